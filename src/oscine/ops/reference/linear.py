"""Linear layers and norms."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from oscine.ops.effects import op
from oscine.ops.reference.activations import ACTIVATIONS, silu
from oscine.ops.reference.blocks import blocks, chunk_slices
from oscine.ops.types import Activation, LayerNorm, Linear, RmsNorm, Tensor
from oscine.threads import parallel_for

Array = NDArray[Any]

TILE_ROWS = 384  # of a product: with fewer, BLAS spends its time packing the weights
TILE_BYTES = 1 << 22  # of weights, for products too narrow to be cut by rows: 0.4 ms of reading
# For 2 to 32 rows. OpenBLAS multiplies matrices with this few results and products without packing
# (sgemm_small_matrix_permit); larger ones it packs first, all the weights for a few rows:
# with AVX-512, 512 x 512 weights and 8 rows take 0.16 ms whole, 0.05 ms in strips.
STRIP_ROWS, STRIP_RESULTS, STRIP_PRODUCTS = 32, 1 << 10, 10**6


def tiles(rows: int, weight: Array) -> Iterator[tuple[slice, slice]]:
    """A product's result [rows, outputs] in pieces: rows of it, or else outputs of it."""
    outputs = len(weight)
    step = outputs if rows > TILE_ROWS else max(1, TILE_BYTES // weight[0].nbytes)
    return product(chunk_slices(rows, TILE_ROWS), chunk_slices(outputs, step))


def strips(rows: int, outputs: slice, inputs: int) -> Iterator[slice]:
    """A tile's outputs in pieces that BLAS multiplies without packing."""
    length = outputs.stop - outputs.start
    step = length
    if 2 <= rows <= STRIP_ROWS:
        step = max(1, min(STRIP_RESULTS // rows, STRIP_PRODUCTS // (rows * inputs)))
    return (
        slice(outputs.start + s.start, outputs.start + s.stop) for s in chunk_slices(length, step)
    )


def normed(ops: LinearOps, x: Array, norm: LayerNorm | RmsNorm | None) -> Array:
    """norm(x), or x where there is no norm."""
    if norm is None:
        return x
    y: Array = ops.rms_norm(x, norm) if isinstance(norm, RmsNorm) else ops.layer_norm(x, norm)
    return y


class LinearOps(Protocol):
    """Linear layers and norms over R rows; `norm=` is the norm before the product."""

    @op()
    def layer_norm(self, x: Tensor, norm: LayerNorm) -> Tensor:
        """x [R, D] -> [R, D]."""
        y = np.empty_like(x)

        def normalise(rows: slice) -> None:
            part = np.subtract(x[rows], x[rows].mean(-1, keepdims=True), out=y[rows])
            variance = np.square(part).mean(-1, keepdims=True)
            part /= np.sqrt(variance + np.float32(norm.eps))
            part *= norm.weight
            part += norm.bias

        parallel_for(normalise, blocks(len(x), x[0].nbytes))
        return y

    @op()
    def rms_norm(self, x: Tensor, norm: RmsNorm) -> Tensor:
        """x / √(mean(x²) + eps) · weight: x [R, D] -> [R, D]."""
        y = np.empty_like(x)

        def normalise(rows: slice) -> None:
            square = np.square(x[rows]).mean(-1, keepdims=True)
            part = np.divide(x[rows], np.sqrt(square + np.float32(norm.eps)), out=y[rows])
            part *= norm.weight

        parallel_for(normalise, blocks(len(x), x[0].nbytes))
        return y

    @op()
    def linear(
        self,
        x: Tensor,
        linear: Linear,
        *,
        norm: LayerNorm | RmsNorm | None = None,
        activation: Activation = None,
        add: Tensor | None = None,
    ) -> Tensor:
        """activation(norm(x) Wᵀ + b) + add: x [R, I] -> [R, O]."""
        x = normed(self, x, norm)
        y = np.empty((len(x), len(linear.weight)), np.float32)

        def multiply(tile: tuple[slice, slice]) -> None:
            rows, outputs = tile
            part, taken = y[tile], x[rows]
            for strip in strips(len(taken), outputs, taken.shape[1]):
                np.matmul(taken, linear.weight[strip].T, out=y[rows, strip])
            if linear.bias is not None:
                part += linear.bias[outputs]
            if activation is not None:
                ACTIVATIONS[activation](part)
            if add is not None:
                part += add[tile]

        parallel_for(multiply, tiles(len(x), linear.weight))
        return y

    @op()
    def swiglu_linear(
        self, x: Tensor, linear: Linear, *, norm: LayerNorm | RmsNorm | None = None
    ) -> Tensor:
        """silu(g) · u, of norm(x) Wᵀ = g‖u: weight [2I, D], x [R, D] -> [R, I]; no bias."""
        both = self.linear(x, linear, norm=norm)
        gate, up = np.split(both, 2, axis=1)
        silu(gate)
        gate *= up
        return np.ascontiguousarray(gate)
