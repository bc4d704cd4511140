"""Linear layers and norms, compiled: products of a few rows, and what follows large products."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oscine.dtypes import BFLOAT16
from oscine.ops.compiled.team import Team
from oscine.ops.compiled.words import GELU, RELU, SILU
from oscine.ops.reference import Reference
from oscine.ops.reference.activations import ACTIVATIONS
from oscine.ops.reference.linear import normed, strips, tiles
from oscine.ops.types import Activation, LayerNorm, Linear, RmsNorm
from oscine.quantized import Q4, Q8, shape_of
from oscine.threads import parallel_for

Array = NDArray[Any]

FEW_ROWS = 24  # BLAS is faster beyond, though it packs the weights
PIECE_BYTES = 1 << 19  # of weights, which one thread reads in 20 µs: less is not worth a second
NORM_ROWS = 64  # in a piece
WIDEN_VALUES = 1 << 18  # in a piece
CODES: dict[Activation, int] = {None: 0, "gelu": GELU, "silu": SILU, "relu": RELU}
KINDS = {np.dtype(np.float32): "f32", np.dtype(np.float16): "f16", BFLOAT16: "bf16"}
KINDS |= {Q8: "q8", Q4: "q4"}


def address(array: Array | None) -> int:
    """The address of an array's first value; 0 for None."""
    return 0 if array is None else int(array.__array_interface__["data"][0])


def dense(x: Array) -> Array:
    """x as float32 without gaps, as kernels read it."""
    return np.ascontiguousarray(x, np.float32)


@lru_cache(64)
def float_bits(value: float) -> int:
    """The bits of a float32, as kernels are given it."""
    return ctypes.c_int32.from_buffer(ctypes.c_float(value)).value


class CompiledLinear(Reference):
    """The ops of oscine.ops.reference.linear."""

    team: Team

    def layer_norm(self, x: Array, norm: LayerNorm) -> Array:
        return self._norm(x, norm.weight, norm.bias, norm.eps)

    def rms_norm(self, x: Array, norm: RmsNorm) -> Array:
        return self._norm(x, norm.weight, None, norm.eps)

    def _norm(self, x: Array, weight: Array, bias: Array | None, eps: float) -> Array:
        x, y = dense(x), np.empty(x.shape, np.float32)
        words = (
            *(address(x), address(weight), address(bias), address(y)),
            *(x.shape[1], float_bits(eps)),
        )
        self.team.run("norm", words, len(x), NORM_ROWS)
        return y

    def linear(
        self,
        x: Array,
        linear: Linear,
        *,
        norm: LayerNorm | RmsNorm | None = None,
        activation: Activation = None,
        add: Array | None = None,
    ) -> Array:
        x, weight = dense(normed(self, x, norm)), linear.weight
        fused = activation in CODES
        y = np.empty((len(x), len(weight)), np.float32)
        after = (activation, add) if fused else (None, None)
        if len(x) > FEW_ROWS:
            self._many_rows(x, Linear(self.widen(weight), linear.bias), y, *after)
        else:
            self._few_rows(x, linear, y, *after)
        if not fused:
            assert activation is not None
            ACTIVATIONS[activation](y)
            y += 0 if add is None else add
        return y

    def _few_rows(
        self, x: Array, linear: Linear, y: Array, activation: Activation, add: Array | None
    ) -> None:
        rows, inputs = x.shape
        weight = np.ascontiguousarray(linear.weight)
        add = None if add is None else dense(add)
        words = (
            *(address(x), address(weight), address(linear.bias), address(add), address(y)),
            *(rows, inputs, len(weight), CODES[activation]),
        )
        grain = max(4, PIECE_BYTES // max(1, weight[0].nbytes) // 4 * 4)
        self.team.run(f"linear_{KINDS[weight.dtype]}", words, len(weight), grain)

    def _many_rows(
        self, x: Array, linear: Linear, y: Array, activation: Activation, add: Array | None
    ) -> None:
        add = None if add is None else dense(add)
        finish = self.team.library.call["finish_rows"]

        def multiply(tile: tuple[slice, slice]) -> None:
            rows, outputs = tile
            part, taken = y[tile], x[rows]
            for strip in strips(len(taken), outputs, taken.shape[1]):
                np.matmul(taken, linear.weight[strip].T, out=y[rows, strip])
            bias = None if linear.bias is None else linear.bias[outputs]
            words = (
                *(address(part), address(bias), address(None if add is None else add[tile])),
                *(part.shape[1], y.strides[0], CODES[activation]),
            )
            finish((ctypes.c_int64 * len(words))(*words), 0, len(part))

        parallel_for(multiply, tiles(len(x), linear.weight))

    def widen(self, weight: Array) -> Array:
        """A weight in float32."""
        if weight.dtype == np.float32:
            return weight
        weight = np.ascontiguousarray(weight)
        wide = np.empty(shape_of(weight), np.float32)
        words = address(weight), address(wide)
        grain = WIDEN_VALUES * weight.size // wide.size
        self.team.run(f"widen_{KINDS[weight.dtype]}", words, weight.size, grain)
        return wide
