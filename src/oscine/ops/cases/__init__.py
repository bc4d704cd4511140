"""A case, which compares an op on a GPU with its definition, and random inputs for cases."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oscine import ops
from oscine.dtypes import BFLOAT16
from oscine.quantized import BLOCK_DTYPES, quantize

Array = NDArray[Any]
Values = dict[str, Any]

FRAMES_PER_SLOT = 6  # of codes in a slot
SPARE_SLOTS = 2  # slots of no row, which ops leave unchanged


@dataclass(frozen=True)
class Case:
    """One op at one shape. Buffers keep their contents between runs; all are compared after
    each."""

    name: str
    inputs: Callable[[np.random.Generator], Values]  # written to buffers before each run
    call: Callable[[Any, Values, Values], Any]  # (backend, buffers, weights) -> result or None
    weights: Callable[[np.random.Generator], Values] = lambda rng: {}
    limit: float = 2e-5  # of the largest value
    row_mask: str = ""  # the input with state rows, where results of finished rows are undefined


def noise(rng: np.random.Generator, *shape: int, spike: float = 0.0) -> Array:
    """Gaussian noise; with a spike a few values are large and every row has a large mean.

    Plain noise is not enough: it hides cancelling sums and overflowing exponentials.
    """
    x = rng.standard_normal(shape).astype(np.float32)
    if spike:
        x.reshape(-1)[:: max(1, x.size // 7)] *= spike
        x += spike / 10
    return x


def decoder_rows(
    rng: np.random.Generator, batch: int, capacity: int, length: int, slots: int = 0
) -> Array:
    """State rows at random positions with space for `length` more rows; one in four is done.

    Row b has one of `slots` slots, in random order; 0: as many slots as rows. Rows without a slot
    are done.
    """
    rows = np.zeros(batch, ops.TEXT_DECODER_STATE)
    rows["position"] = rng.integers(0, capacity - length + 1, batch)
    rows["length"] = rng.integers(1, length + 1, batch)
    rows["sot"] = rng.integers(0, length, batch)
    rows["done"] = rng.random(batch) < (0.25 if batch > 1 else 0.0)
    rows["slot"] = rng.permutation(np.arange(max(batch, slots)))[:batch]
    beyond = rows["slot"] >= (slots or batch)
    rows["slot"][beyond], rows["done"][beyond] = 0, 1
    rows["limit"] = capacity
    rows["after_pair"] = 1
    return rows


def random_cache_indirection(
    rng: np.random.Generator, rows: Array, beams: int, shape: tuple[int, int]
) -> Array:
    """cache_indirection [N, C] of groups of `beams` rows: earlier positions at random in the
    group."""
    made = np.repeat(np.arange(shape[0], dtype=np.uint32)[:, None], shape[1], 1)
    for b, row in enumerate(rows):
        group = rows["slot"][b // beams * beams :][:beams]
        made[row["slot"], : row["position"]] = rng.choice(group, row["position"])
    return made


def to_dtype(matrix: Array, dtype: str) -> Array:
    """A matrix in a dtype of weights; bfloat16 is truncated, not rounded."""
    if dtype in BLOCK_DTYPES:
        return quantize(matrix, BLOCK_DTYPES[dtype])
    if dtype == "bfloat16":
        return (matrix.view(np.uint32) >> 16).astype(np.uint16).view(BFLOAT16)
    return matrix.astype(dtype)


def random_lengths(rng: np.random.Generator, batch: int, maximum: int) -> Array:
    """Lengths of a batch: one is the maximum, one is 0, others are between."""
    frames = rng.integers(0, maximum + 1, batch).astype(np.uint32)
    frames[0] = maximum
    frames[1:2] = 0
    return rng.permutation(frames)


def talker_rows(
    rng: np.random.Generator, batch: int, capacity: int, length: int, groups: int = 4
) -> Array:
    """Talker rows in random slots, with space for `length` more rows; one in four is done."""
    rows = np.zeros(batch, ops.TALKER_STATE)
    rows["slot"] = rng.permutation(batch + SPARE_SLOTS)[:batch]
    rows["done"] = rng.random(batch) < (0.25 if batch > 1 else 0.0)
    rows["position"] = rng.integers(0, capacity - length + 1, batch)
    rows["length"] = rng.integers(1, length + 1, batch)
    rows["count"] = rng.integers(1, FRAMES_PER_SLOT, batch)
    rows["limit"] = rng.integers(rows["count"] + 1, FRAMES_PER_SLOT + 2)
    rows["group"] = rng.integers(0, groups, batch)
    rows["seed"] = rng.integers(0, 2**32, batch)
    rows["texts"] = rng.integers(1, FRAMES_PER_SLOT, batch)
    return rows


def talker_state(x: Values) -> ops.TalkerState:
    """The talker's state of a case's buffers."""
    return ops.TalkerState(x["rows"], x.get("codes"), x.get("seen"))


def batch_suffix(batch: int) -> str:
    """The suffix of a case's name for a batch of windows."""
    return f", {batch} windows" * (batch > 1)
