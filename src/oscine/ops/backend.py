"""What a backend offers beside the ops: buffers, plans and waiting, on NumPy and on a GPU alike."""

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
    """A recorded sequence of ops, which is replayed on the present contents of its buffers."""

    def run(self, times: int = 1) -> None:
        """Replay the plan `times` times. Once every row of its `until` is done, a replay does
        nothing."""
        ...


class Backend(Ops, Protocol):
    """The ops of a device, with its buffers and plans."""

    name: str  # for people and for JSON: "NumPy", or the adapter's name
    preferred_batch: int  # windows side by side; more are hardly faster
    encode_batch: int  # windows in one pass of an encoder; more are hardly faster
    computes_features: bool  # whether log-mel features are faster here than on the host
    reads_blocks: bool  # whether weights in blocks of 8 and 4 bits are kept; else they are widened
    f16_cross_kv: bool  # whether float16 keys of cross_attention are faster, besides smaller
    is_async: bool  # whether a plan runs while the host does other work
    batch_invariant: bool  # whether results may not depend on the size of a cache

    @property
    def budget(self) -> Budget:
        """Counts what is allocated: weights, buffers, and on a GPU what plans compute."""
        ...

    def upload(self, array: np.ndarray) -> Tensor:
        """Upload a constant: a matrix of any dtype of weights (oscine.dtypes), or a float32
        vector."""
        ...

    def zeros(self, shape: tuple[int, ...], dtype: Any = np.float32) -> Tensor:
        """A zeroed buffer that outlives plans."""
        ...

    def view(self, buffer: Tensor, shape: tuple[int, ...]) -> Tensor:
        """The start of a buffer in another shape, over the same memory."""
        ...

    def copy(self, source: Tensor, target: Tensor, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy item i of source [N, ...] to item j of target [M, ...] for each (i, j), in order.

        Ordered after earlier work and before later work. Both may be the same buffer. Raises
        IndexError for an item that does not exist, ValueError where items differ in size.
        """
        ...

    def release(self, *buffers: Tensor) -> None:
        """Free buffers that no plan uses any more."""
        ...

    def memory_limits(self) -> tuple[int, int | None]:
        """The maximum bytes of one buffer, and the bytes that are free, or None where unknown."""
        ...

    def write(self, tensor: Tensor, array: np.ndarray, at: int = 0) -> None:
        """Copy the host's array over items at, at + 1, ... of a buffer's leading axis.

        Ordered after earlier work and before later work; other items are unchanged.
        Raises ValueError where item `at` does not begin at a multiple of 4 bytes.
        """
        ...

    def read(self, buffer: Tensor) -> np.ndarray:
        """Wait for all earlier work and return a copy of a buffer."""
        ...

    def wait(self) -> None:
        """Wait for all earlier work."""
        ...

    def snapshot(self, *buffers: Tensor) -> Callable[[], tuple[np.ndarray, ...]]:
        """Copy buffers as they are after all earlier work; the returned function waits for it."""
        ...

    def record(
        self,
        trace: Callable[[], None],
        until: Tensor | None = None,
        name: str = "",
    ) -> Plan:
        """Record the ops that trace() calls as a plan.

        until: state rows of any family, whose first word is `done`; once all are done, a replay
        does nothing. name: the plan's name in a trace.
        """
        ...

    def finish_compiling(self) -> None:
        """Wait until the kernels of all plans so far are compiled.

        Raises DeviceError where the driver refuses one.
        """
        ...

    def bucket_length(self, length: int) -> int:
        """The prompt length to record a plan for: one of a few where recording is expensive."""
        ...

    def bucket_rows(self, count: int) -> int:
        """The number of rows to record a plan for: one of a few where recording is expensive."""
        ...

    def bucket_frames(self, count: int) -> int:
        """The number of encoder frames to record a plan for: one of a few where recording is
        expensive."""
        ...

    def trace(self) -> dict[str, tuple[int, float]]:
        """The number of compute passes and their total milliseconds, as the device measures them.

        By plan under OSCINE_TRACE, by plan/kernel under OSCINE_TRACE=kernels; otherwise empty.
        """
        ...


def check_free_memory(backend: Backend, nbytes: int, share: float = 1) -> None:
    """Raise DeviceMemoryError where nbytes more exceed a share of the free memory, if it is known.

    A budget may be used up, since its owner has left the rest to others.
    """
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
    """Copy item i of source [N, n, ...] over the start of item j of target [M, m, ...], n <= m.

    For each (i, j) of pairs; with one axis, item i to item j. Backend.copy takes items of one size,
    so items are cut into pieces of gcd(n, m).
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
    """A copy of a tree of dataclasses and tuples with every NumPy array uploaded."""
    return tree_map(backend.upload, tree)
