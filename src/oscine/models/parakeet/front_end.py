"""The constants of NeMo's log-mel front end, as a device computes it. Source: audio/mel_nemo.py."""

from __future__ import annotations

import numpy as np

from oscine.audio.mel import HOP_LENGTH, fourier_basis, mel_filters
from oscine.audio.mel_nemo import HANN_WINDOW, LOG_ZERO_GUARD, N_FFT
from oscine.models.front_end import FrontEnd


def front_end(n_mels: int) -> FrontEnd:
    """Natural logarithms of pre-emphasised samples, with mean 0 and deviation 1 in each band."""
    basis = fourier_basis(HANN_WINDOW, N_FFT).astype(np.float32)
    filters = mel_filters(n_mels, N_FFT)
    return FrontEnd.of(basis, filters, HOP_LENGTH, "standard", guard=LOG_ZERO_GUARD)
