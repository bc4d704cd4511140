"""What a check of an op against its NumPy meaning consists of, and its made-up input."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oscine import ops

Array = NDArray[Any]
Values = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One op at one shape. Slots persist between runs; `compare` names those to compare."""

    name: str
    inputs: Callable[[np.random.Generator], Values]  # written to slots before each run
    call: Callable[[Any, Values, Values], Any]  # (backend, slots, weights) -> result or None
    weights: Callable[[np.random.Generator], Values] = lambda rng: {}
    compare: tuple[str, ...] = ()  # slots that the op writes
    limit: float = 2e-5  # of the largest value
    lines: str = ""  # the input that holds state rows, where the result of a done line is void


def noise(rng: np.random.Generator, *shape: int, spike: float = 0.0) -> Array:
    """Gaussian noise; with a spike a few values are large and every row has a large mean.

    Plain noise is too kind: it hides cancelling sums and overflowing exponentials.
    """
    x = rng.standard_normal(shape).astype(np.float32)
    if spike:
        x.reshape(-1)[:: max(1, x.size // 7)] *= spike
        x += spike / 10
    return x


def state_rows(
    rng: np.random.Generator, lines: int, room: int, length: int, slots: int = 0
) -> Array:
    """Lines at random places with room for `length` more rows; one in four is done.

    Their slots are any of `slots` in any order, as many as there are lines if none are said; lines
    beyond them are done.
    """
    rows = np.zeros(lines, ops.STATE)
    rows["position"] = rng.integers(0, room - length + 1, lines)
    rows["length"] = rng.integers(1, length + 1, lines)
    rows["sot"] = rng.integers(0, length, lines)
    rows["done"] = rng.random(lines) < (0.25 if lines > 1 else 0.0)
    rows["slot"] = rng.permutation(np.arange(max(lines, slots)))[:lines]
    beyond = rows["slot"] >= (slots or lines)
    rows["slot"][beyond], rows["done"][beyond] = 0, 1
    rows["limit"] = room
    rows["after_pair"] = 1
    return rows


def origins(rng: np.random.Generator, rows: Array, beams: int, shape: tuple[int, int]) -> Array:
    """Slots [N, C] in which groups of `beams` lines keep what came before: any of their own."""
    made = np.repeat(np.arange(shape[0], dtype=np.uint32)[:, None], shape[1], 1)
    for b, row in enumerate(rows):
        group = rows["slot"][b // beams * beams :][:beams]
        made[row["slot"], : row["position"]] = rng.choice(group, row["position"])
    return made
