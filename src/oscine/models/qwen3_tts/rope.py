"""Tables of rotary positions, made on the host."""

from __future__ import annotations

import numpy as np

from oscine.ops import RopeTable


def rope_table(max_positions: int, head_dim: int, theta: float) -> RopeTable:
    """Cosines and sines of positions 0 to positions - 1 for heads of `width` values, float32.

    Frequency i is theta^(-2i / width). Angles in float32, as upstream: at large positions an exact
    angle would be another one. The talker's interleaved sections of positions come to the same, as
    all three rows of them are equal. Source: transformers, Qwen3RotaryEmbedding.
    """
    exponents = np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)
    frequencies = np.float32(1) / np.float32(theta) ** exponents
    angles = np.arange(max_positions, dtype=np.float32)[:, None] * frequencies
    angles_f64 = angles.astype(np.float64)  # of which NumPy's cosine is the same everywhere
    return RopeTable(np.cos(angles_f64).astype(np.float32), np.sin(angles_f64).astype(np.float32))
