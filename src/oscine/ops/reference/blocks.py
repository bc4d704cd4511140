"""Blocks of rows that stay in a cache, and the windows and lengths of a batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oscine.ops.types import SeqLengths

Array = NDArray[Any]

BLOCK_BYTES = 1 << 19  # a second-level cache; half and twice as much are not faster, as measured


def chunk_slices(length: int, step: int) -> Iterator[slice]:
    """Slices of `step` from 0 to length."""
    return (slice(start, min(start + step, length)) for start in range(0, length, step))


def blocks(rows: int, row_bytes: int) -> Iterator[slice]:
    """Slices of rows of about BLOCK_BYTES."""
    return chunk_slices(rows, max(1, BLOCK_BYTES // row_bytes))


def windows_of(x: Array, batch: int) -> list[Array]:
    """The windows of a batch. Raises ValueError where their number does not divide the rows."""
    if len(x) % batch:
        raise ValueError(f"{len(x)} rows are not {batch} windows")
    return np.split(x, batch)


def valid_lengths(lengths: SeqLengths) -> list[int]:
    """The number of rows of each sequence."""
    return [-(-int(frames) // lengths.frames_per_row) for frames in lengths.frames]


def spans(batch: int, rows: int, step: int) -> Iterator[tuple[int, int, int]]:
    """(sequence, first row, end) of each block of at most `step` rows."""
    for b in range(batch):
        for start in range(0, rows, step):
            yield b, start, min(start + step, rows)


def zero_padded_rows(x: Array, start: int, stop: int, count: int) -> Array:
    """A copy of rows start to stop, zero outside 0 to count."""
    y = np.zeros((stop - start, *x.shape[1:]), x.dtype)
    first, last = max(start, 0), min(stop, count)
    if first < last:
        y[first - start : last - start] = x[first:last]
    return y
