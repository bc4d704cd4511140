"""NVIDIA's Parakeets that are known by name, most of them as .nemo, and two conversions for MLX.

Their hashes are those that the Hub lists; none is pinned here. Sizes are MB of float32 tensors.
"""

from __future__ import annotations

from oscine.family import Release

MODELS: dict[str, Release] = {
    "parakeet-tdt-0.6b-v2": Release("nvidia/parakeet-tdt-0.6b-v2", 2472, "English"),
    "parakeet-tdt-0.6b-v3": Release("nvidia/parakeet-tdt-0.6b-v3", 2508, "25"),
    "parakeet-tdt-1.1b": Release("nvidia/parakeet-tdt-1.1b", 4282, "English"),
    "parakeet-tdt_ctc-110m": Release("nvidia/parakeet-tdt_ctc-110m", 459, "English"),
    "parakeet-tdt_ctc-1.1b": Release("nvidia/parakeet-tdt_ctc-1.1b", 4286, "English"),
    "parakeet-rnnt-0.6b": Release("nvidia/parakeet-rnnt-0.6b", 2467, "English"),
    "parakeet-rnnt-1.1b": Release("nvidia/parakeet-rnnt-1.1b", 4282, "English"),
    "parakeet-ctc-0.6b": Release("nvidia/parakeet-ctc-0.6b", 2435, "English"),
    "parakeet-ctc-1.1b": Release("nvidia/parakeet-ctc-1.1b", 4251, "English"),
    "parakeet-tdt-0.6b-v2-mlx": Release("mlx-community/parakeet-tdt-0.6b-v2", 2472, "English"),
    "parakeet-tdt-0.6b-v3-mlx": Release("mlx-community/parakeet-tdt-0.6b-v3", 2508, "25"),
}
