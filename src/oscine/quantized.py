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
    blocks = np.empty(rows.shape[:2], dtype)
    with np.errstate(all="ignore"):  # a NaN or infinite weight makes its block NaN
        if dtype == Q8:
            _fill_q8(rows, blocks)
        else:
            _fill_q4(rows, blocks)
    return blocks


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


def _fill_q8(rows: Array, blocks: Array) -> None:
    """Set the blocks of rows [outputs, inputs / 32, 32]: the largest weight becomes 127 or -127."""
    scale = (np.abs(rows).max(-1) / np.float32(127)).astype(np.float16)
    blocks["scale"] = scale
    blocks["values"] = _steps(rows, scale, -127, 127)


def _fill_q4(rows: Array, blocks: Array) -> None:
    """Set the blocks of rows: the lowest weight becomes 0 and the highest 15."""
    low = rows.min(-1).astype(np.float16)
    rows = rows - low.astype(np.float32)[..., None]
    scale = (rows.max(-1) / np.float32(15)).astype(np.float16)
    nibbles = _steps(rows, scale, 0, 15).astype(np.uint8)
    blocks["scale"], blocks["low"] = scale, low
    blocks["nibbles"] = nibbles[..., : BLOCK // 2] | nibbles[..., BLOCK // 2 :] << 4


def _steps(rows: Array, scale: Array, lowest: int, highest: int) -> Array:
    """The whole number of steps of each block's scale that is nearest to each weight."""
    step = scale.astype(np.float32)[..., None]
    steps = np.rint(np.divide(rows, step, out=np.zeros_like(rows), where=step > 0))
    found: Array = np.clip(np.nan_to_num(steps), lowest, highest).astype(np.int8)
    return found
