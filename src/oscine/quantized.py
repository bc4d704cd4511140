"""Weights in blocks of 8 or 4 bits, as NumPy arrays of blocks: [outputs, inputs / 32] of Q8 or Q4.

A block has 32 consecutive weights of a row, which share a float16 scale: ggml's q8_0 and q4_1
(ggml/src/ggml-common.h), so blocks of whisper.cpp's files are used without conversion. One scale
for a whole row would leave twice the error at 8 bits, and too much at 4; a block of 4 bits also has
its lowest weight, which is worth its two bytes (benchmarks/NOTES.md). Q4 holds q4_0 exactly.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

BLOCK = 32  # weights of a block
#: w = scale · value, with values of -127 to 127: 8.5 bits a weight.
Q8 = np.dtype([("scale", "<f2"), ("values", "i1", (BLOCK,))])
#: w = scale · nibble + low; weight j is in the lower half of byte j, weight j + 16 in the upper
#: half: 5 bits a weight.
Q4 = np.dtype([("scale", "<f2"), ("low", "<f2"), ("nibbles", "u1", (BLOCK // 2,))])

#: By the values of `dtype` of `load`.
BLOCK_DTYPES = {"q8": Q8, "q4": Q4}

#: At 8 bits several scales of each block are tried, in which the largest weight is that many steps,
#: and the one of least square error is taken. It is often not the first, since more weights are
#: inside than at the ends: the error falls by a tenth. At 4 bits the same would cut the largest
#: weights off, and although the error falls, more tokens change.
Q8_STEPS = (127, 126.5, 126, 125.5, 125, 124, 123, 122)


def is_quantized(dtype: np.dtype[Any]) -> bool:
    """Whether an element of this dtype is a block of weights."""
    return dtype in (Q8, Q4)


def weights_per_item(dtype: np.dtype[Any]) -> int:
    """How many weights an element of this dtype holds."""
    return BLOCK if is_quantized(dtype) else 1


def shape_of(array: Array) -> tuple[int, ...]:
    """The shape in weights of an array of any dtype: [outputs, inputs] for a matrix of blocks."""
    if not is_quantized(array.dtype):
        return array.shape
    return (*array.shape[:-1], array.shape[-1] * BLOCK)


def quantize(matrix: Array, dtype: np.dtype[Any]) -> Array:
    """A float32 matrix [outputs, inputs] as blocks of Q8 or Q4; BLOCK divides its inputs."""
    rows = matrix.reshape(len(matrix), -1, BLOCK)
    with np.errstate(all="ignore"):  # a NaN or infinite weight makes its block NaN
        return _quantize_q8(rows) if dtype == Q8 else _quantize_q4(rows)


def dequantize(blocks: Array) -> NDArray[np.float32]:
    """The weights [outputs, inputs] of blocks [outputs, inputs / 32], in float32."""
    weights = np.empty((*blocks.shape, BLOCK), np.float32)
    with np.errstate(invalid="ignore"):
        if blocks.dtype == Q8:
            weights[:] = blocks["values"]
            weights *= blocks["scale"].astype(np.float32)[..., None]
        else:
            weights[..., : BLOCK // 2] = blocks["nibbles"] & 15
            weights[..., BLOCK // 2 :] = blocks["nibbles"] >> 4
            weights *= blocks["scale"].astype(np.float32)[..., None]
            weights += blocks["low"].astype(np.float32)[..., None]
    return weights.reshape(shape_of(blocks))


def _quantize_q8(rows: Array) -> Array:
    """Rows [outputs, inputs / 32, 32] as blocks [outputs, inputs / 32] of Q8."""
    blocks, largest = np.empty(rows.shape[:2], Q8), np.abs(rows).max(-1)
    least = np.full(largest.shape, np.inf, np.float32)
    blocks["scale"] = (largest / np.float32(Q8_STEPS[0])).astype(np.float16)
    for steps in Q8_STEPS:
        scale = (largest / np.float32(steps)).astype(np.float16)
        error = _square_error(rows, scale)
        better = error < least
        blocks["scale"][better], least[better] = scale[better], error[better]
    blocks["values"] = _steps(rows, blocks["scale"], -127, 127)
    return blocks


def _quantize_q4(rows: Array) -> Array:
    """Rows [outputs, inputs / 32, 32] as blocks [outputs, inputs / 32] of Q4."""
    blocks = np.empty(rows.shape[:2], Q4)
    blocks["low"] = rows.min(-1).astype(np.float16)
    rows = rows - blocks["low"].astype(np.float32)[..., None]
    blocks["scale"] = (rows.max(-1) / np.float32(15)).astype(np.float16)
    nibbles = _steps(rows, blocks["scale"], 0, 15).astype(np.uint8)
    blocks["nibbles"] = nibbles[..., : BLOCK // 2] | nibbles[..., BLOCK // 2 :] << 4
    return blocks


def _square_error(rows: Array, scale: Array) -> Array:
    """The sum of squares by which whole steps of a scale miss the weights of each block."""
    step = scale.astype(np.float32)[..., None]
    missed = rows / step
    np.rint(missed, out=missed)
    missed *= step
    missed -= rows
    found: Array = np.einsum("obw,obw->ob", missed, missed)
    return found


def _steps(rows: Array, scale: Array, lowest: int, highest: int) -> Array:
    """The whole number of steps of each block's scale that is nearest to each weight."""
    step = scale.astype(np.float32)[..., None]
    steps = np.rint(np.divide(rows, step, out=np.zeros_like(rows), where=step > 0))
    found: Array = np.clip(np.nan_to_num(steps), lowest, highest).astype(np.int8)
    return found
