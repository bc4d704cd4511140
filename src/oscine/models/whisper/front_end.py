"""The constants of Whisper's log-mel front end, as a device computes it. Source: audio/mel.py."""

from __future__ import annotations

import math

import numpy as np

from oscine.audio.mel import HANN_WINDOW, HOP_LENGTH, LOG_FLOOR, N_FFT, fourier_basis, mel_filters
from oscine.models.front_end import FrontEnd


def front_end(n_mels: int) -> FrontEnd:
    """log10 of at least 1e-10, clamped to eight decades below the maximum and scaled."""
    basis = fourier_basis(HANN_WINDOW, N_FFT).astype(np.float32)
    return FrontEnd.of(
        basis, mel_filters(n_mels), HOP_LENGTH, "peak",
        scale=1.0 / math.log(10.0), floor=10.0**LOG_FLOOR,
    )  # fmt: skip
