"""The types of tensors in ggml's files, and their blocks as float32 or as oscine.quantized's.

Source: ggml/src/ggml-common.h (layouts) and ggml-quants.c (dequantize_row_*). Blocks lie along the
fastest axis, the last one here. K-quants have 256 weights a block, in parts of 16 or 32 whose
scales have 6 or 8 bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from oscine.dtypes import BFLOAT16
from oscine.errors import CheckpointError
from oscine.quantized import Q4, Q8
from oscine.weights.checkpoint import FLOAT16, FLOAT32, LazyTensor, mapped_tensor
from oscine.weights.mapped_file import Array, MappedFile

_CHUNK_VALUES = 1 << 20  # turned to float32 at a time, so that the scratch stays in cache

_PLAIN: dict[int, np.dtype[Any]] = {
    0: FLOAT32,
    1: FLOAT16,
    24: np.dtype("i1"),
    25: np.dtype("<i2"),
    26: np.dtype("<i4"),
    27: np.dtype("<i8"),
    28: np.dtype("<f8"),
    30: BFLOAT16,
}
_UNSUPPORTED = {9: "q8_1", 10: "q2_K", 11: "q3_K", 15: "q8_K", 34: "tq1_0", 35: "tq2_0"}

_SCALE, _LOW, _NIBBLES = ("scale", "<f2"), ("low", "<f2"), ("nibbles", "u1", (16,))
_FIFTH = ("high", "u1", (4,))
#: Shifts to the parts of a byte, along the axis before the last.
_HALVES = np.array([[0], [4]], np.uint8)
_QUARTERS = np.array([[0], [2], [4], [6]], np.uint8)
_EIGHTHS = np.arange(8, dtype=np.uint8)[:, None]
_Q6_K = [("nibbles", "u1", (128,)), ("high", "u1", (64,)), ("steps", "i1", (16,)), _SCALE]
_K_HEAD = (_SCALE, _LOW, ("packed", "u1", (12,)))


def _widen_q8_0(packed: Array, out: Array) -> None:
    out[:] = packed["values"]
    out *= packed["scale"].astype(FLOAT32)[:, None]


def _widen_nibbles(packed: Array, out: Array) -> None:
    """q4 and q5: element j in the low half of byte j, element j + 16 in its high half."""
    fields = packed.dtype.names or ()
    nibbles = packed["nibbles"]
    out[:, :16] = nibbles & 15
    out[:, 16:] = nibbles >> 4
    middle = 8.0
    if "high" in fields:  # the fifth bit of all 32 elements, element 0 in the lowest
        bits = np.unpackbits(np.ascontiguousarray(packed["high"]), axis=1, bitorder="little")
        out += bits * np.float32(16)
        middle = 16.0
    if "low" not in fields:
        out -= np.float32(middle)
    out *= packed["scale"].astype(FLOAT32)[:, None]
    if "low" in fields:
        out += packed["low"].astype(FLOAT32)[:, None]


def _widen_k(packed: Array, out: Array) -> None:
    """q4_K and q5_K: w = scale · s · q - low · m, s and m of 6 bits for each 32 weights."""
    q = packed["nibbles"].reshape(-1, 4, 1, 32) >> _HALVES & 15
    q = q.reshape(-1, 8, 32)
    if "high" in (packed.dtype.names or ()):  # bit j of byte l: the fifth of weight l of part j
        q |= (packed["high"][:, None] >> _EIGHTHS & 1) << 4
    steps, lows = _six_bits(packed["packed"])
    scale, low = (packed[name].astype(FLOAT32)[:, None] for name in ("scale", "low"))
    parts = out.reshape(-1, 8, 32)
    parts[:] = q
    parts *= (scale * steps)[..., None]
    parts -= (low * lows)[..., None]


def _six_bits(packed: Array) -> tuple[Array, Array]:
    """Eight scales and eight lows of 6 bits from 12 bytes: ggml's get_scale_min_k4."""
    first, second, last = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    steps = np.concatenate([first & 63, last & 15 | first >> 6 << 4], axis=1)
    lows = np.concatenate([second & 63, last >> 4 | second >> 6 << 4], axis=1)
    return steps, lows


def _widen_q6_k(packed: Array, out: Array) -> None:
    """q6_K: w = scale · s · (q - 32), s of 8 bits for each 16 weights; two halves of 128."""
    low = packed["nibbles"].reshape(-1, 2, 1, 64) >> _HALVES & 15
    high = packed["high"].reshape(-1, 2, 1, 32) >> _QUARTERS & 3
    q = (low.reshape(-1, 2, 4, 32) | high << 4).astype(np.int8) - np.int8(32)
    steps = packed["scale"].astype(FLOAT32)[:, None] * packed["steps"]
    np.multiply(q.reshape(-1, 16, 16), steps[..., None], out=out.reshape(-1, 16, 16))


@dataclass(frozen=True, slots=True)
class BlockType:
    """A quantised type: its name, its blocks' layout and number of weights, and their float32."""

    name: str
    layout: np.dtype[Any]
    weights: int
    widen: Callable[[Array, Array], None]  # (blocks [n], out [n, weights])
    as_is: np.dtype[Any] | None = None  # the dtype of oscine.quantized that holds the same weights


#: By ggml's number (enum ggml_type).
BLOCK_TYPES: dict[int, BlockType] = {
    2: BlockType("q4_0", np.dtype([_SCALE, _NIBBLES]), 32, _widen_nibbles, Q4),
    3: BlockType("q4_1", Q4, 32, _widen_nibbles, Q4),
    6: BlockType("q5_0", np.dtype([_SCALE, _FIFTH, _NIBBLES]), 32, _widen_nibbles),
    7: BlockType("q5_1", np.dtype([_SCALE, _LOW, _FIFTH, _NIBBLES]), 32, _widen_nibbles),
    8: BlockType("q8_0", Q8, 32, _widen_q8_0, Q8),
    12: BlockType("q4_K", np.dtype([*_K_HEAD, ("nibbles", "u1", (128,))]), 256, _widen_k),
    13: BlockType(
        "q5_K",
        np.dtype([*_K_HEAD, ("high", "u1", (32,)), ("nibbles", "u1", (128,))]),
        256,
        _widen_k,
    ),
    14: BlockType(
        "q6_K",
        np.dtype(
            [("nibbles", "u1", (128,)), ("high", "u1", (64,)), ("steps", "i1", (16,)), _SCALE]
        ),
        256,
        _widen_q6_k,
    ),
}


def tensor_bytes(file: MappedFile, name: str, code: int, shape: tuple[int, ...]) -> int:
    """The bytes of a tensor of ggml's type `code`.

    Raises CheckpointError for a type that is not read, or rows that blocks do not divide.
    """
    if code in _PLAIN:
        return math.prod(shape) * _PLAIN[code].itemsize
    kind = BLOCK_TYPES.get(code)
    if kind is None:
        known = ", ".join(["f32", "f16", "bf16", *(kind.name for kind in BLOCK_TYPES.values())])
        raise CheckpointError(
            file.path,
            f"tensor {name!r} has type {_UNSUPPORTED.get(code, code)}",
            f"types that can be read: {known}",
        )
    if not shape or shape[-1] % kind.weights:
        row = shape[-1] if shape else 1
        raise file.damaged(
            f"tensor {name!r} has rows of {row}, {kind.name} needs a multiple of {kind.weights}"
        )
    return math.prod(shape) // kind.weights * kind.layout.itemsize


def ggml_tensor(
    file: MappedFile, name: str, code: int, shape: tuple[int, ...], start: int
) -> LazyTensor:
    """A tensor of a type that `tensor_bytes` accepts, whose bytes begin at `start` of the file."""
    if code in _PLAIN:
        return mapped_tensor(file, start, _PLAIN[code], shape, name)
    kind = BLOCK_TYPES[code]
    count = math.prod(shape) // kind.weights

    def stored() -> Array:
        size = count * kind.layout.itemsize
        return file.array(start, "u1", (size,), f"tensor {name!r}").view(kind.layout)

    def as_is() -> Array:
        return _with_low(stored()).reshape(*shape[:-1], shape[-1] // kind.weights)

    return LazyTensor(
        shape,
        FLOAT32,
        lambda: _widened(stored(), kind).reshape(shape),
        block_dtype=kind.as_is,
        load_blocks=None if kind.as_is is None else as_is,
    )


def _widened(packed: Array, kind: BlockType) -> Array:
    values = np.empty((len(packed), kind.weights), FLOAT32)
    step = _CHUNK_VALUES // kind.weights
    for first in range(0, len(packed), step):
        kind.widen(packed[first : first + step], values[first : first + step])
    return values


def _with_low(packed: Array) -> Array:
    """Blocks of q8_0 and q4_1 unchanged, those of q4_0 as q4_1: their lowest step is -8."""
    if "nibbles" not in (packed.dtype.names or ()) or "low" in (packed.dtype.names or ()):
        return packed
    blocks = np.empty(len(packed), Q4)
    blocks["scale"], blocks["nibbles"] = packed["scale"], packed["nibbles"]
    blocks["low"] = packed["scale"] * np.float16(-8)
    return blocks
