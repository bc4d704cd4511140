"""RoPE tables, computed on the host."""

from __future__ import annotations

import numpy as np

from oscine.ops import RopeTable


def rope_table(max_positions: int, head_dim: int, theta: float) -> RopeTable:
    """Cosines and sines of positions 0 to max_positions - 1 for heads of `head_dim` values,
    float32.

    Frequency i is theta^(-2i / head_dim). Angles are computed in float32 as upstream does: at large
    positions an exact angle would differ. The talker's MRoPE gives the same table, since its three
    position rows are equal. Source: transformers, Qwen3RotaryEmbedding.
    """
    exponents = np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)
    frequencies = np.float32(1) / np.float32(theta) ** exponents
    angles = np.arange(max_positions, dtype=np.float32)[:, None] * frequencies
    angles_f64 = angles.astype(np.float64)  # NumPy's float64 cosine is the same on every machine
    return RopeTable(np.cos(angles_f64).astype(np.float32), np.sin(angles_f64).astype(np.float32))
