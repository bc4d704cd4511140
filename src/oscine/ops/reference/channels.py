"""Activations, concatenation, slices and pooling of [T, C]: ops without a weight matrix.

Source: transformers models/mimi; Desplanques et al. 2020, arXiv:2005.07143 (ECAPA-TDNN).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from oscine.ops.effects import op
from oscine.ops.reference.activations import ACTIVATIONS
from oscine.ops.reference.blocks import blocks
from oscine.ops.types import Activation, Snake, Tensor
from oscine.threads import parallel_for

Array = NDArray[Any]


def concat_shape(shapes: Sequence[tuple[int, ...]]) -> tuple[int, int]:
    """The shape of the concatenation of parts along their columns.

    Raises ValueError without parts, for parts that are not matrices, and for numbers of rows that
    are neither equal nor 1.
    """
    if not shapes or any(len(shape) != 2 for shape in shapes):
        raise ValueError(f"concat takes one or more matrices, not {list(shapes)}")
    rows = max(shape[0] for shape in shapes)
    if any(shape[0] not in (1, rows) for shape in shapes):
        raise ValueError(f"concat takes parts of equal length, or of one row, not {list(shapes)}")
    return rows, sum(shape[1] for shape in shapes)


def check_columns(x: Tensor, first: int, count: int, add: Tensor | None) -> None:
    """Raise ValueError for columns that x does not have, and for another shape of add."""
    if len(x.shape) != 2 or first < 0 or count < 1 or first + count > x.shape[1]:
        raise ValueError(f"{list(x.shape)} has no columns {first} to {first + count}")
    if add is not None and add.shape != (x.shape[0], count):
        raise ValueError(f"{list(add.shape)} cannot be added to {[x.shape[0], count]}")


def weighted(values: Array, weights: Array | None) -> Array:
    """Mean over time per channel, in float64, since there are many rows."""
    mean: Array
    if weights is None:
        mean = values.mean(0, dtype=np.float64)
    else:
        mean = np.einsum("tc,tc->c", values, weights, dtype=np.float64)
    return mean


class ChannelOps(Protocol):
    """Ops over channels: T rows, C channels."""

    @op()
    def activate(self, x: Tensor, activation: Activation) -> Tensor:
        """The activation of every value, any shape."""
        y = x.copy()
        if activation is not None:
            wide = y.reshape(len(y), -1)
            parallel_for(
                lambda rows: ACTIVATIONS[activation](wide[rows]), blocks(len(y), y[:1].nbytes)
            )
        return y

    @op()
    def snake(self, x: Tensor, snake: Snake) -> Tensor:
        """x + gain · sin²(scale · x): x [T, C] -> [T, C]. Arguments are tens of radians: the sine
        is reduced to its first period and then a polynomial, within 1e-6."""
        y = np.empty_like(x)

        def work(rows: slice) -> None:
            part = np.multiply(x[rows], snake.scale, out=y[rows])
            np.sin(part, out=part)
            part *= part
            part *= snake.gain
            part += x[rows]

        parallel_for(work, blocks(len(x), x[:1].nbytes))
        return y

    @op()
    def scale_channels(self, x: Tensor, factors: Tensor, add: Tensor | None = None) -> Tensor:
        """x · factors + add: x [T, C], factors [1, C], add [T, C]."""
        y: Array = x * factors
        if add is not None:
            y += add
        return y

    @op()
    def stats_pool(self, x: Tensor, scores: Tensor | None = None) -> Tensor:
        """Mean and standard deviation over time: x [T, C] -> [1, 2C].

        With scores [T, C] both are weighted by softmax of the scores over time, per channel. The
        deviation is √max(Σ w (x - mean)², 1e-12).
        """
        weights = None
        if scores is not None:
            weights = np.exp(scores - scores.max(0))
            weights /= weights.sum(0, dtype=np.float64).astype(np.float32)
        mean = weighted(x, weights)
        deviation = np.square(x - mean.astype(np.float32))
        variance = np.maximum(weighted(deviation, weights), 1e-12)
        return np.concatenate([mean, np.sqrt(variance)])[None].astype(np.float32)

    @op()
    def concat(self, parts: Sequence[Tensor]) -> Tensor:
        """Concatenate parts [T, c] along their columns -> [T, Σ c]; a part [1, c] is repeated.

        Raises ValueError without parts and for other numbers of rows; on a GPU, DeviceError for
        widths that are not multiples of 4.
        """
        rows, _ = concat_shape([part.shape for part in parts])
        return np.concatenate([np.broadcast_to(p, (rows, p.shape[1])) for p in parts], axis=1)

    @op()
    def slice_columns(self, x: Tensor, first: int, count: int, add: Tensor | None = None) -> Tensor:
        """x[:, first : first + count] + add: x [T, C], add [T, count] -> [T, count].

        Raises ValueError for columns that x does not have, and for another shape of add; on a
        GPU, DeviceError for numbers that are not multiples of 4.
        """
        check_columns(x, first, count, add)
        y: Array = x[:, first : first + count].copy()
        if add is not None:
            y += add
        return y
