"""Memory budgets: how a user states one, and the count of bytes that a backend holds against it."""

from __future__ import annotations

import gc
import os
import re
import weakref
from dataclasses import dataclass
from fractions import Fraction
from operator import index
from typing import Any

from oscine.errors import MemoryBudgetError, UsageError

UNITS = {
    "B": 1,
    **{f"{prefix}B": 1000**power for power, prefix in enumerate("KMGT", 1)},
    **{f"{prefix}iB": 1024**power for power, prefix in enumerate("KMGT", 1)},
}
_BYTES_PER_UNIT = {unit.lower(): factor for unit, factor in UNITS.items()}
MIN_PERCENT = Fraction(1, 100)  # less holds no model: 0.01 % of 16 GB are 1.6 MB
_SIZE_PATTERN = re.compile(
    r"([0-9]{1,18}(?:\.[0-9]{1,9})?)\s*([a-z]{1,3}|%)?", re.ASCII | re.IGNORECASE
)
_SIZE_HELP = "be a size such as 4GB, 800MB, 1.5GiB or 50%, from 1B or 0.01%"


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """A budget as a user states it: bytes, or percent of the memory that is free."""

    nbytes: int = 0
    percent: Fraction | None = None

    @classmethod
    def of(cls, value: object) -> MemoryLimit:
        """The limit that text such as "4GB", "1.5GiB" or "50%", or an int of bytes, states.

        Units are read in any case. Raises UsageError for another value, and for one below a byte,
        below 0.01% or above 100%.
        """
        wrong = UsageError(f"memory must {_SIZE_HELP}, not {value!r:.60}")
        if not isinstance(value, str):
            try:
                nbytes = 0 if isinstance(value, bool) else index(value)  # type: ignore[arg-type]
            except TypeError:
                raise wrong from None
            if nbytes < 1:
                raise wrong
            return cls(nbytes)
        match = _SIZE_PATTERN.fullmatch(value.strip())
        number, unit = match.groups() if match else ("0", None)
        if unit == "%":
            if not MIN_PERCENT <= Fraction(number) <= 100:
                raise wrong
            return cls(percent=Fraction(number))
        nbytes = int(Fraction(number) * _BYTES_PER_UNIT.get((unit or "B").lower(), 0))
        if nbytes < 1 or (unit is None and "." in number):
            raise wrong
        return cls(nbytes)


def size_text(nbytes: int) -> str:
    """A number of bytes for people, rounded up: `--memory` takes it in this form."""
    unit = next((unit for unit in ("TB", "GB", "MB", "KB") if nbytes >= UNITS[unit]), "B")
    return f"{-(-1000 * nbytes // UNITS[unit]) / 1000:g}{unit}"


def free_memory() -> int | None:
    """Bytes of the host's memory that are free; None where the system does not tell."""
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf, macOS no such name
        return None


class Budget:
    """The bytes that one backend holds, and the most that it may.

    Each allocation is counted from `hold` until its owner is dropped or its last reference ends.
    `limit`: the most bytes; None: as many as the device has.

    Args:
        device: The backend's name, for messages.
        in_host_memory: Whether the backend allocates from the host's memory, so that a share of
            what is free is known.
    """

    def __init__(self, device: str, *, in_host_memory: bool) -> None:
        self.device, self.in_host_memory = device, in_host_memory
        self.limit: int | None = None
        self._held: dict[int, int] = {}  # bytes by the id of the owner

    def set_limit(self, limit: MemoryLimit) -> None:
        """Allow no more than this from now on.

        Raises UsageError for a share where it is unknown how much memory is free.
        """
        if limit.percent is None:
            self.limit = limit.nbytes
            return
        free = free_memory() if self.in_host_memory else None
        if free is None:
            raise UsageError(
                f"memory: {self.device} does not tell how much of its memory is free; "
                "give a size such as 4GB instead of a share"
            )
        self.limit = int(free * limit.percent / 100)

    @property
    def used(self) -> int:
        """Bytes that are held now."""
        return sum(list(self._held.values()))  # a copy: any thread may drop an owner meanwhile

    @property
    def free(self) -> int | None:
        """Bytes that may still be allocated; None without a limit."""
        return None if self.limit is None else max(0, self.limit - self.used)

    def check(self, nbytes: int) -> None:
        """Raise MemoryBudgetError where that many more bytes exceed the limit."""
        if self.limit is None or self.used + nbytes <= self.limit:
            return
        gc.collect()  # old plans and their buffers refer to each other
        if self.used + nbytes > self.limit:
            raise self.too_small(self.used + nbytes)

    def too_small(self, needed: int) -> MemoryBudgetError:
        """The error for a limit below the bytes that are needed in all."""
        assert self.limit is not None
        return MemoryBudgetError(self.device, needed, size_text(needed), size_text(self.limit))

    def hold(self, owner: Any, nbytes: int) -> None:
        """Count an allocation for as long as its owner lives."""
        if id(owner) in self._held:  # of an array that is shared by two parts of a network
            return
        self._held[id(owner)] = nbytes
        weakref.finalize(owner, self._held.pop, id(owner), None).atexit = False

    def drop(self, owner: Any) -> None:
        """Count an allocation no longer, whose memory is released though its owner lives."""
        self._held.pop(id(owner), None)
