"""bfloat16, which NumPy lacks: the upper 16 bits of a float32, in a one-field dtype.

The dtype distinguishes it from plain uint16. `upload` keeps its two bytes on a GPU, where a shift
converts it to float32, and converts it to float32 for NumPy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from oscine.quantized import BLOCK_DTYPES, dequantize, is_quantized

BFLOAT16 = np.dtype([("bfloat16", "<u2")])
#: Every dtype of weights by the name that commands and kernels have for it.
NAMED_DTYPES: dict[str, np.dtype[Any]] = {
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "bf16": BFLOAT16,
    **BLOCK_DTYPES,
}


def bf16_to_f32(array: NDArray[Any]) -> NDArray[np.float32]:
    """Convert an array of dtype BFLOAT16 and any shape to float32, exactly."""
    bits = array["bfloat16"].astype(np.uint32)
    bits <<= np.uint32(16)
    widened: NDArray[np.float32] = bits.view(np.float32)
    return widened


def to_f32(array: NDArray[Any]) -> NDArray[np.float32]:
    """An array of any dtype of weights in float32: bfloat16 and blocks are widened exactly."""
    if array.dtype == BFLOAT16:
        return bf16_to_f32(array)
    return dequantize(array) if is_quantized(array.dtype) else array.astype(np.float32, copy=False)


def dtype_name(dtype: np.dtype[Any]) -> str:
    """The name of a dtype of weights: f32, f16, bf16, q8 or q4."""
    return next((name for name, known in NAMED_DTYPES.items() if known == dtype), "f32")
