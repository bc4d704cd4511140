"""How much memory a runner needs, found without allocating it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oscine.errors import OscineError
from oscine.ops.backend import Backend
from oscine.ops.reference import Reference, ReferencePlan
from oscine.quantized import shape_of

Array = NDArray[Any]


class Sizing(Reference):
    """A backend in place of another: it counts what a runner allocates there, and computes nothing.

    Every tensor is one number, seen under the tensor's shape. What plans on a GPU compute is not
    counted, since no op runs. `peak`: the maximum of bytes held at once.
    """

    def __init__(self, other: Backend) -> None:
        self.name, self.other, self.peak = other.name, other, 0
        self.preferred_batch, self.encode_batch = other.preferred_batch, other.encode_batch
        self.computes_features = other.computes_features
        self.f16_cross_kv, self.is_async = other.f16_cross_kv, other.is_async
        self.reads_blocks = other.reads_blocks

    def blank(self, shape: tuple[int, ...], dtype: Any, nbytes: int) -> Array:
        """A tensor that counts as nbytes."""
        made = np.broadcast_to(np.zeros((), dtype), shape)
        self.budget.hold(made, nbytes)
        self.peak = max(self.peak, self.budget.used)
        return made

    def upload(self, array: Array) -> Array:
        other = self.other
        nbytes = other.stored_bytes(array) if isinstance(other, Reference) else array.nbytes
        return self.blank(shape_of(array), array.dtype, nbytes)

    def zeros(self, shape: tuple[int, ...], dtype: Any = np.float32) -> Array:
        return self.blank(shape, dtype, prod(shape) * np.dtype(dtype).itemsize)

    def view(self, slot: Array, shape: tuple[int, ...]) -> Array:
        return np.broadcast_to(np.zeros((), slot.dtype), shape)

    def write(self, tensor: Array, array: Array, at: int = 0) -> None:
        """Nothing is kept."""

    def copy(self, source: Array, target: Array, pairs: Sequence[tuple[int, int]]) -> None:
        """Nothing is kept."""

    def record(
        self, trace: Callable[[], None], guard: Array | None = None, name: str = ""
    ) -> ReferencePlan:
        return ReferencePlan(lambda: None, None)

    def bucket_length(self, length: int) -> int:
        return self.other.bucket_length(length)

    def bucket_rows(self, count: int) -> int:
        return self.other.bucket_rows(count)

    def bucket_frames(self, count: int) -> int:
        return self.other.bucket_frames(count)


def bytes_needed(make: Callable[[Backend], object], backend: Backend) -> int:
    """The bytes that `make` would allocate on a backend, as far as it comes without values."""
    sizing = Sizing(backend)
    with suppress(OscineError):
        make(sizing)
    return sizing.peak
