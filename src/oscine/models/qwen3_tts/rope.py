"""Tables of rotary positions, made on the host."""

from __future__ import annotations

import numpy as np

from oscine.ops import RopeTable


def rotary(positions: int, width: int, theta: float) -> RopeTable:
    """Cosines and sines of positions 0 to positions - 1 for heads of `width` values, float32.

    Frequency i is theta^(-2i / width). Angles in float32, as upstream: at large positions an exact
    angle would be another one. The talker's interleaved sections of positions come to the same, as
    all three rows of them are equal. Source: transformers, Qwen3RotaryEmbedding.
    """
    exponents = np.arange(0, width, 2, dtype=np.float32) / np.float32(width)
    frequencies = np.float32(1) / np.float32(theta) ** exponents
    angles = np.arange(positions, dtype=np.float32)[:, None] * frequencies
    exact = angles.astype(np.float64)  # of which NumPy's cosine is the same everywhere
    return RopeTable(np.cos(exact).astype(np.float32), np.sin(exact).astype(np.float32))
