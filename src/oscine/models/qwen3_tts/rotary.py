"""Tables of rotary positions, made on the host."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]


def rotary_tables(positions: int, width: int, theta: float) -> tuple[Array, Array]:
    """Cosines and sines of positions 0, 1, ... for heads of `width`: each [positions, width / 2].

    The angle is the float32 product of a float32 frequency and a position, as upstream has it: in
    float64 it would drift away from upstream's at large positions. Source: transformers
    modeling_rope_utils.py, "default". The talker's interleaved sections come to the same, as its
    three rows of positions are equal.
    """
    powers = np.arange(0, width, 2, dtype=np.float32) / np.float32(width)
    frequencies = np.float32(1) / np.float32(theta) ** powers
    angles = np.arange(positions, dtype=np.float32)[:, None] * frequencies
    exact = angles.astype(np.float64)
    return np.cos(exact).astype(np.float32), np.sin(exact).astype(np.float32)
