"""The bytes that a backend holds on its device, by what they are for; other benchmarks take it."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from weakref import finalize

import numpy as np

from oscine.gpu.tensor import Tensor
from oscine.ops.webgpu import Gpu

#: What a slot is for: by the module of the family that asks for it, and its shape.
Purpose = Callable[[str, tuple[int, ...]], str]


def any_slot(module: str, shape: tuple[int, ...]) -> str:
    """All slots are of one kind."""
    return "slots"


class Ledger:
    """Counts the buffers of a backend from now on.

    `now`: bytes by kind. "weights" are what is uploaded, "scratch" is what recorded plans share for
    their intermediates, "staging" is what results are read and slots are copied through; the kind
    of all other memory is its `purpose`. `most`: the highest sum so far. A buffer counts until its
    last reference is dropped.
    """

    def __init__(self, backend: Gpu, purpose: Purpose = any_slot) -> None:
        self.now: Counter[str] = Counter()
        self.most = 0
        self._purpose, self._kind = purpose, ""
        memory, pool = backend.memory, backend.pool
        self._create, self._make = memory.create, memory.zeros
        vars(memory).update(
            create=self._counted,
            zeros=self._slot,
            upload=self._as("weights", memory.upload),
            snapshot=self._as("staging", memory.snapshot),
            copy_scratch=self._as("staging", memory.copy_scratch),
        )
        vars(pool)["acquire"] = self._as("scratch", pool.acquire)

    @property
    def total(self) -> int:
        """Bytes of all kinds."""
        return sum(self.now.values())

    def _counted(self, nbytes: int, usage: int) -> Any:
        buffer = self._create(nbytes, usage)
        size, kind = int(buffer.size), self._kind or "others"
        self.now[kind] += size
        self.most = max(self.most, self.total)
        finalize(buffer, self.now.subtract, {kind: size})
        return buffer

    def _slot(self, shape: tuple[int, ...], dtype: Any = np.float32) -> Tensor:
        with self._being(self._kind or self._purpose(family_module(), shape)):
            return self._make(shape, dtype)

    def _as(self, kind: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def inside(*given: Any) -> Any:
            with self._being(kind):
                return work(*given)

        return inside

    @contextmanager
    def _being(self, kind: str) -> Iterator[None]:
        before, self._kind = self._kind, kind
        try:
            yield
        finally:
            self._kind = before


def family_module() -> str:
    """The innermost module of a family that is at work; empty where none is."""
    frame = sys._getframe(1)
    while frame is not None:
        file = Path(frame.f_code.co_filename)
        if file.parent.parent.name == "models":
            return file.stem
        frame = frame.f_back  # type: ignore[assignment]
    return ""
