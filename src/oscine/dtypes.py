"""bfloat16 without a library: the upper half of a float32, kept as it is stored.

NumPy has no such type. An array of this one-field dtype is told from plain uint16 by everyone who
meets it: `upload` keeps its two bytes on a GPU, where a shift makes it a float32, and widens it for
NumPy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

BFLOAT16 = np.dtype([("bfloat16", "<u2")])


def bf16_to_f32(array: NDArray[Any]) -> NDArray[np.float32]:
    """The same numbers as float32, exactly: any shape, dtype BFLOAT16."""
    bits = array["bfloat16"].astype(np.uint32)
    bits <<= np.uint32(16)
    widened: NDArray[np.float32] = bits.view(np.float32)
    return widened
