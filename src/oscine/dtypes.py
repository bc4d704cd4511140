"""bfloat16, which NumPy lacks: the upper 16 bits of a float32, in a one-field dtype.

The dtype distinguishes it from plain uint16. `upload` keeps its two bytes on a GPU, where a shift
converts it to float32, and converts it to float32 for NumPy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

BFLOAT16 = np.dtype([("bfloat16", "<u2")])


def bf16_to_f32(array: NDArray[Any]) -> NDArray[np.float32]:
    """Convert an array of dtype BFLOAT16 and any shape to float32, exactly."""
    bits = array["bfloat16"].astype(np.uint32)
    bits <<= np.uint32(16)
    widened: NDArray[np.float32] = bits.view(np.float32)
    return widened
