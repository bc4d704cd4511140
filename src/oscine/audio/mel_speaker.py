"""Log-mel front end of Qwen3-TTS's speaker encoder: samples at 24 kHz, time first.

Source: qwen_tts/core/models/modeling_qwen3_tts.py (mel_spectrogram), which has it from HiFi-GAN.
Unlike Whisper's: magnitudes instead of power, natural logarithms, frames that are not centred but
taken from a recording reflected by 384 samples at both ends.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from oscine.audio.mel import mel_filters
from oscine.threads import parallel_for, single_threaded_blas

SAMPLE_RATE = 24_000  # hertz
N_FFT = 1024  # samples per Fourier transform and window
HOP_LENGTH = 256  # samples between frames: 10.7 ms
MIN_MAGNITUDE = 1e-5  # of a band's magnitude, before the logarithm
POWER_EPSILON = 1e-9  # added to the power, before its root

_PADDING_SAMPLES = (N_FFT - HOP_LENGTH) // 2  # samples reflected at both ends
MIN_SAMPLES = _PADDING_SAMPLES + 1  # reflection does not repeat the edge
_FFT_BATCH_FRAMES = 64  # they and their spectra fit the level-2 cache
_HANN_WINDOW = 0.5 - 0.5 * np.cos(2.0 * np.pi * np.arange(N_FFT) / N_FFT)  # periodic


def speaker_mel(samples: NDArray[np.float32], n_mels: int) -> NDArray[np.float32]:
    """log max(mel magnitude, 1e-5), float32 [n // 256, n_mels], time first.

    `samples` [n] float32 at 24 kHz, at least 385 of them: else ValueError.
    """
    samples = np.asarray(samples, np.float32)
    if len(samples) < MIN_SAMPLES:
        raise ValueError(f"{len(samples)} samples cannot be mirrored, {MIN_SAMPLES} can")
    mirrored = np.pad(samples, _PADDING_SAMPLES, mode="reflect")
    cut = np.lib.stride_tricks.sliding_window_view(mirrored, N_FFT)[::HOP_LENGTH]
    logs = np.empty((len(cut), n_mels), np.float32)
    bank = mel_filters(n_mels, N_FFT, SAMPLE_RATE).T

    def transform(start: int) -> None:
        rows = slice(start, min(start + _FFT_BATCH_FRAMES, len(cut)))
        # float64 through the window: rounding of loud bands would show in quiet ones.
        spectrum = np.fft.rfft(cut[rows] * _HANN_WINDOW)
        magnitude = np.sqrt(spectrum.real**2 + spectrum.imag**2 + POWER_EPSILON).astype(np.float32)
        logs[rows] = np.log(np.maximum(magnitude @ bank, np.float32(MIN_MAGNITUDE)))

    with single_threaded_blas():
        parallel_for(transform, range(0, len(cut), _FFT_BATCH_FRAMES))
    return logs
