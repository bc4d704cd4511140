"""The memory and the time that ops live in, on either side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd
from typing import Any, Protocol

import numpy as np

from oscine.budget import Budget
from oscine.errors import DeviceMemoryError
from oscine.ops.reference.vocabulary import Ops
from oscine.ops.types import Tensor
from oscine.tree import tree_map


class Plan(Protocol):
    """A recorded pass: the same work again and again, on whatever the buffers hold by then."""

    def run(self, times: int = 1) -> None:
        """Replay the pass; a plan with a guard stops by itself once every row of it is done."""
        ...


class Backend(Ops, Protocol):
    """Ops, and the memory and time they live in."""

    name: str  # for people and for JSON: "NumPy", or the adapter's name
    preferred_batch: int  # windows side by side, beyond which more hardly gain
    encode_batch: int  # windows in one pass of an encoder, likewise
    f16_cross_kv: bool  # whether float16 buffers for cross_attention save time, as they save memory
    is_async: bool  # whether a plan runs while the host does something else
    batch_invariant: bool  # whether kernels may not depend on how much memory a cache has

    @property
    def budget(self) -> Budget:
        """Counts what is allocated: weights, buffers, and on a GPU what plans compute."""
        ...

    def upload(self, array: np.ndarray) -> Tensor:
        """A constant: float32, float16 and bfloat16 matrices, float32 vectors."""
        ...

    def zeros(self, shape: tuple[int, ...], dtype: Any = np.float32) -> Tensor:
        """Zeroed memory that outlives plans."""
        ...

    def view(self, slot: Tensor, shape: tuple[int, ...]) -> Tensor:
        """The start of a buffer under another shape; the same memory."""
        ...

    def copy(self, source: Tensor, target: Tensor, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy item i of source [N, ...] to item j of target [M, ...] for each (i, j), in turn.

        After the work so far, and before the work that follows. Both may be the same buffer. Raises
        IndexError for an item that does not exist, ValueError where items differ in size.
        """
        ...

    def release(self, *slots: Tensor) -> None:
        """Give back the memory of buffers that no plan will use again."""
        ...

    def memory_limits(self) -> tuple[int, int | None]:
        """The most bytes of one buffer, and of all together where that can be known."""
        ...

    def write(self, tensor: Tensor, array: np.ndarray, at: int = 0) -> None:
        """Copy the host's array over items at, at + 1, ... of a buffer's leading axis.

        After the work so far, and before the work that follows; what lies beside them stays.
        Raises ValueError where item `at` does not begin at a multiple of 4 bytes.
        """
        ...

    def read(self, slot: Tensor) -> np.ndarray:
        """Wait for the work so far; return a copy of a buffer."""
        ...

    def wait(self) -> None:
        """Wait for the work so far."""
        ...

    def snapshot(self, *slots: Tensor) -> Callable[[], tuple[np.ndarray, ...]]:
        """Mark this moment; the returned function waits for it, and gives the buffers as they were
        then."""
        ...

    def record(
        self,
        trace: Callable[[], None],
        guard: Tensor | None = None,
        name: str = "",
    ) -> Plan:
        """Note the ops of the trace; once all rows of the guard are done, a replay is a no-op.

        `guard`: state rows of any family, whose first word is `done`. `name` is the plan's in a
        trace.
        """
        ...

    def bucket_length(self, length: int) -> int:
        """The prompt length to record a plan for: a few lengths where recording costs."""
        ...

    def bucket_rows(self, count: int) -> int:
        """The number of lines to record a plan for, likewise."""
        ...

    def bucket_frames(self, count: int) -> int:
        """The number of encoder frames to record a plan for, likewise."""
        ...

    def trace(self) -> dict[str, tuple[int, float]]:
        """Under OSCINE_TRACE, compute passes and their milliseconds in all, as the device measures
        them: by plan, or by plan/kernel under OSCINE_TRACE=kernels; empty where it does not.
        """
        ...


def check_free_memory(backend: Backend, nbytes: int, share: float = 1) -> None:
    """Raise DeviceMemoryError where so many bytes more are over a share of what is free, if that is
    known; of a budget all may be used, as its owner has left the rest to others."""
    backend.budget.check(nbytes)
    free = backend.memory_limits()[1]
    if backend.budget.limit is not None:
        share = 1
    if free is not None and nbytes > share * free:
        part = "" if share == 1 else f"{share:.0%} of "
        problem = f"no room for {nbytes >> 20} MiB more in {part}the memory that is free"
        raise DeviceMemoryError(backend.name, problem)


def copy_starts(
    backend: Backend, source: Tensor, target: Tensor, pairs: Sequence[tuple[int, int]]
) -> None:
    """Copy item i of source [N, n, ...] over the first n of item j of target [M, m, ...], n <= m,
    for (i, j) in pairs; where there is one axis, item i to item j.

    Backend.copy takes items of one size: those are as many of an item as divide n and m.
    """
    if len(source.shape) == 1:
        backend.copy(source, target, pairs)
        return
    (items, n, *rest), (places, m) = source.shape, target.shape[:2]
    part = gcd(n, m)
    backend.copy(
        backend.view(source, (items * n // part, part, *rest)),
        backend.view(target, (places * m // part, part, *rest)),
        [(i * n // part + k, j * m // part + k) for i, j in pairs for k in range(n // part)],
    )


def upload(backend: Backend, tree: Any) -> Any:
    """The same tree of dataclasses and tuples with every NumPy array uploaded."""
    return tree_map(backend.upload, tree)
