"""The bytes that a backend holds on its device, by what they are for; other benchmarks take it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import finalize

from oscine.ops.gpu import Gpu


class Ledger:
    """Counts the buffers of a backend from now on.

    `now`: bytes by kind. Weights are what is uploaded, scratch is what recorded plans share for
    their intermediates, staging is what results are read through; slots are all other memory.
    `most`: the highest sum so far. A buffer counts until its last reference is dropped.
    """

    def __init__(self, backend: Gpu) -> None:
        self.now: Counter[str] = Counter()
        self.most = 0
        self._kind = "slots"
        memory, pool = backend.memory, backend.pool
        self._create = memory.create
        vars(memory)["create"] = self._counted
        vars(memory)["upload"] = self._as("weights", memory.upload)
        vars(memory)["snapshot"] = self._as("staging", memory.snapshot)
        vars(pool)["take"] = self._as("scratch", pool.take)

    @property
    def total(self) -> int:
        """Bytes of all kinds."""
        return sum(self.now.values())

    def _counted(self, nbytes: int, usage: int) -> Any:
        buffer = self._create(nbytes, usage)
        size, kind = int(buffer.size), self._kind
        self.now[kind] += size
        self.most = max(self.most, self.total)
        finalize(buffer, self.now.subtract, {kind: size})
        return buffer

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
