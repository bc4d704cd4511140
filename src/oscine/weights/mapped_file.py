"""Memory-mapped files with bounds checks: no size stated in a file is trusted before it fits."""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from oscine.errors import CheckpointError

Array = NDArray[Any]

#: Far above any released tensor; beyond these NumPy's own arithmetic could overflow.
MAX_RANK, MAX_ELEMENTS = 8, 1 << 40
#: Tensors in one file; the largest supported model has 3,000.
MAX_TENSORS = 1 << 16


class MappedFile:
    """A read-only file, memory-mapped. Views keep the mapping alive, so it need not be closed."""

    def __init__(self, path: Path, data: memoryview | None = None) -> None:
        """`data`: a part of the file, or its decompressed contents, used instead of all of it."""
        self.path = path
        self._map = _map_file(path) if data is None else data
        self.size = len(self._map)
        self.head = bytes(self._map[:64])

    def damaged(self, problem: str) -> CheckpointError:
        """The error for impossible contents of this file."""
        return CheckpointError(self.path, problem, "the file is damaged or truncated")

    def bytes(self, offset: int, count: int, what: str) -> bytes:
        """A copy of `count` bytes; `what` names them in the error if the file is too short."""
        self.require(offset, count, what)
        return bytes(self._map[offset : offset + count])

    def part(self, offset: int, count: int, what: str) -> memoryview:
        """A view of `count` bytes; `what` names them in the error if the file is too short."""
        self.require(offset, count, what)
        return self._map[offset : offset + count]

    def require(self, offset: int, count: int, what: str) -> None:
        """Raise unless [offset, offset + count) lies inside the file."""
        if offset < 0 or count < 0 or offset + count > self.size:
            raise self.damaged(
                f"{what} needs bytes {offset} to {offset + count}, the file has {self.size}"
            )

    def array(self, offset: int, dtype: DTypeLike, shape: Sequence[int], what: str) -> Array:
        """The array of `shape` at `offset`: a view of the file, possibly unaligned.

        It is not a copy, since a backend makes its own.
        """
        kind = np.dtype(dtype)
        count = math.prod(shape)
        self.require(offset, count * kind.itemsize, what)
        flat = np.frombuffer(self._map, dtype=np.uint8, count=count * kind.itemsize, offset=offset)
        view: Array = flat.view(kind) if count else np.empty(0, kind)
        return view.reshape(tuple(shape))


def _map_file(path: Path) -> memoryview:
    try:
        with path.open("rb") as file:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except ValueError:
        raise CheckpointError(path, "the file is empty", "fetch it again") from None
    except OSError as error:
        raise CheckpointError(path, f"cannot be read ({error.strerror})") from None


class Cursor:
    """Walks through the little-endian fields of a MappedFile."""

    def __init__(self, file: MappedFile, offset: int = 0) -> None:
        self.file = file
        self.offset = offset

    def take(self, count: int, what: str) -> bytes:
        """The next `count` bytes."""
        found = self.file.bytes(self.offset, count, what)
        self.offset += count
        return found

    def skip(self, count: int, what: str) -> int:
        """Pass over `count` bytes that must be there; returns where they begin."""
        self.file.require(self.offset, count, what)
        start = self.offset
        self.offset += count
        return start

    def unpack(self, layout: str, what: str) -> tuple[int, ...]:
        """The next integers, `layout` as in struct without the byte order."""
        layout = "<" + layout
        return struct.unpack(layout, self.take(struct.calcsize(layout), what))


def printable_name(name: str) -> str:
    """A name from a file for a message of one line; quoted and escaped if it is not printable."""
    return name if name.isprintable() and name else repr(name)


def checked_shape(file: MappedFile, name: str, dims: Sequence[object]) -> tuple[int, ...]:
    """Check dimensions from a file and return them as a shape. Raises CheckpointError."""
    shape = tuple(d for d in dims if type(d) is int and d >= 0)
    if len(shape) != len(dims) or len(shape) > MAX_RANK:
        raise file.damaged(f"tensor {name!r} has impossible dimensions {list(dims)[:MAX_RANK]}")
    if math.prod(max(d, 1) for d in shape) > MAX_ELEMENTS:
        raise file.damaged(f"tensor {name!r} has impossible dimensions {list(shape)}")
    return shape
