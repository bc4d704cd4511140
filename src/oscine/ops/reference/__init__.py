"""The definition of each op in NumPy, which is also the backend where there is no GPU.

The ops are written as formulas, with one concession to speed: work over [rows, width] is cut into
blocks of rows that stay in cache, since whole score matrices are bound by memory; the blocks run on
all cores.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oscine.budget import Budget, free_memory
from oscine.dtypes import to_f32
from oscine.ops.reference.blocks import blocks
from oscine.ops.reference.vocabulary import Ops
from oscine.quantized import shape_of
from oscine.threads import parallel_for, single_threaded_blas

Array = NDArray[Any]


class ReferencePlan:
    """A plan of the NumPy backend: replaying it calls the traced function."""

    def __init__(self, trace: Callable[[], None], until: Array | None) -> None:
        self.trace, self.until = trace, until

    def run(self, times: int = 1) -> None:
        with single_threaded_blas():
            for _ in range(times):
                if self.until is not None and self.until["done"].all():
                    return
                self.trace()


class Reference(Ops):
    """The NumPy backend: the definitions of ops, and arrays as memory. See oscine.ops.Backend."""

    name = "NumPy"
    preferred_batch = 8
    encode_batch = 1  # one window keeps all cores busy, and BLAS may round larger batches otherwise
    computes_features = False  # audio/mel.py is faster
    reads_blocks = False
    f16_cross_kv = False  # NumPy would convert it to float32 at each step
    is_async = False
    batch_invariant = False  # no result depends on it here

    @cached_property
    def budget(self) -> Budget:
        return Budget(self.name, in_host_memory=True)

    # -- memory and time ----------------------------------------------------------------------

    def stored_bytes(self, array: Array) -> int:
        """The bytes that an uploaded constant takes."""
        return 4 * prod(shape_of(array))

    def upload(self, array: Array) -> Array:
        shape = shape_of(array)
        self.budget.check(self.stored_bytes(array))
        if array.dtype == np.float32:
            ready = np.require(array, requirements=["C", "ALIGNED"])
            self.budget.hold(ready, ready.nbytes)
            return ready
        copy = np.empty(shape, np.float32)
        self.budget.hold(copy, copy.nbytes)

        def convert(rows: slice) -> None:
            with np.errstate(invalid="ignore"):  # a NaN weight shows in the logits
                copy[rows] = to_f32(array[rows])

        parallel_for(convert, blocks(len(array), max(1, copy[:1].nbytes)))
        return copy

    def zeros(self, shape: tuple[int, ...], dtype: Any = np.float32) -> Array:
        self.budget.check(prod(shape) * np.dtype(dtype).itemsize)
        made: Array = np.zeros(shape, dtype)
        self.budget.hold(made, made.nbytes)
        return made

    def view(self, buffer: Array, shape: tuple[int, ...]) -> Array:
        return buffer.reshape(-1)[: prod(shape)].reshape(shape)

    def copy(self, source: Array, target: Array, pairs: Sequence[tuple[int, int]]) -> None:
        for i, j in pairs:
            target[j] = source[i]

    def release(self, *buffers: Array) -> None:
        """Count arrays no longer; they are freed with their last reference."""
        for buffer in buffers:
            self.budget.drop(buffer)

    def memory_limits(self) -> tuple[int, int | None]:
        known = [free for free in (free_memory(), self.budget.free) if free is not None]
        return sys.maxsize, min(known, default=None)

    def write(self, tensor: Array, array: Array, at: int = 0) -> None:
        start = at * prod(tensor.shape[1:])
        tensor.reshape(-1)[start : start + array.size] = array.reshape(-1)

    def read(self, buffer: Array) -> Array:
        return buffer.copy()

    def wait(self) -> None:
        """Every op has finished when it returns."""

    def snapshot(self, *buffers: Array) -> Callable[[], tuple[Array, ...]]:
        copies = tuple(buffer.copy() for buffer in buffers)
        return lambda: copies

    def record(
        self,
        trace: Callable[[], None],
        until: Array | None = None,
        name: str = "",
    ) -> ReferencePlan:
        return ReferencePlan(trace, until)

    def finish_compiling(self) -> None:
        """NumPy compiles nothing."""

    def bucket_length(self, length: int) -> int:
        return length

    def bucket_rows(self, count: int) -> int:
        return count

    def bucket_frames(self, count: int) -> int:
        return count

    def trace(self) -> dict[str, tuple[int, float]]:
        return {}
