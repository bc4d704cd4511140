"""Whisper's log-mel front end, time first.

Source: openai/whisper, whisper/audio.py (log_mel_spectrogram), and librosa's Slaney mel filters,
which made the bank shipped there. All other values derive from three constants.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from oscine.threads import parallel_for, single_threaded_blas

SAMPLE_RATE = 16_000  # hertz
N_FFT = 400  # samples per Fourier transform: 25 ms
HOP_LENGTH = 160  # samples between frames: 10 ms
FRAMES_PER_SECOND = SAMPLE_RATE // HOP_LENGTH

HALF_WINDOW = N_FFT // 2  # a frame is centred in its window
LOG_FLOOR = -10.0  # log10 of the floor 1e-10: the value of silence
DYNAMIC_RANGE = 8.0  # log10 units below the maximum

# The rounding of a product depends on its number of rows: with the same number, counted from the
# same frame on, features are the same bits however a recording is cut.
FRAMES_PER_MATMUL = 128
# About a millisecond of work for one thread: with less, threads wait for each other.
_FRAMES_PER_TASK = 4 * FRAMES_PER_MATMUL
_KNEE_HZ, _KNEE_MEL, _LOG_STEP = 1000.0, 15.0, np.log(6.4) / 27.0  # Slaney: linear below, log above

HANN_WINDOW = 0.5 - 0.5 * np.cos(2.0 * np.pi * np.arange(N_FFT) / N_FFT)  # periodic


def _hertz_to_mel(hertz: float) -> float:
    """Mel value of a frequency above 1 kHz on the Slaney scale."""
    return float(_KNEE_MEL + np.log(hertz / _KNEE_HZ) / _LOG_STEP)


def _mel_to_hertz(mels: NDArray[np.float64]) -> NDArray[np.float64]:
    linear = mels * (_KNEE_HZ / _KNEE_MEL)
    return np.where(mels < _KNEE_MEL, linear, _KNEE_HZ * np.exp((mels - _KNEE_MEL) * _LOG_STEP))


@lru_cache(maxsize=8)
def mel_filters(
    n_mels: int, n_fft: int = N_FFT, sample_rate: int = SAMPLE_RATE
) -> NDArray[np.float32]:
    """Slaney mel filter bank, float32 [n_mels, n_fft // 2 + 1], read-only; computed in float64.

    Triangles over `n_mels + 2` points equally spaced in mel from 0 Hz to half the sample rate, each
    of area one (scaled by 2 / width in hertz). Source: librosa.filters.mel(norm="slaney").
    """
    edges = _mel_to_hertz(np.linspace(0.0, _hertz_to_mel(sample_rate / 2), n_mels + 2))
    bins = np.arange(n_fft // 2 + 1) * (sample_rate / n_fft)
    left, centre, right = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    rising = (bins - left) / (centre - left)
    falling = (right - bins) / (right - centre)
    bank = np.maximum(0.0, np.minimum(rising, falling)) * (2.0 / (right - left))
    filters = bank.astype(np.float32)
    filters.setflags(write=False)
    return filters


def fourier_basis(window: NDArray[np.float64], n_fft: int) -> NDArray[np.float64]:
    """A windowed Fourier transform as a matrix: cosines, then sines, [2 (n_fft // 2 + 1), n].

    `window` [n], n <= n_fft. Products with n samples have the power of the transform, whichever
    zeros are added to the samples on either side.
    """
    turns = np.outer(np.arange(n_fft // 2 + 1), np.arange(len(window))) % n_fft / n_fft
    parts = np.cos(2.0 * np.pi * turns), np.sin(2.0 * np.pi * turns)
    basis: NDArray[np.float64] = np.concatenate(parts) * window
    return basis


def log_power(stretch: NDArray[np.float32], n_mels: int) -> NDArray[np.float32]:
    """log10 mel power of every whole frame, without padding or clamping.

    `stretch` [n] float32 at 16 kHz; frame i covers `stretch[160 i : 160 i + 400]`. Returns float32
    [1 + (n - 400) // 160, n_mels], at least -10; no rows if n < 400.
    """
    frames = 1 + (len(stretch) - N_FFT) // HOP_LENGTH if len(stretch) >= N_FFT else 0
    logs = np.empty((frames, n_mels), np.float32)
    if not frames:
        return logs
    bank, floor = mel_filters(n_mels).T, np.float32(10.0**LOG_FLOOR)
    cut = np.lib.stride_tricks.sliding_window_view(stretch, N_FFT)[::HOP_LENGTH]

    def transform(start: int) -> None:
        mels = logs[start : start + _FRAMES_PER_TASK]
        # The window is float64, so the n_fft is too, under every NumPy: in float32 the rounding
        # of a loud frame would show in its quiet bands, eight decades below.
        parts = np.fft.rfft(cut[start : start + len(mels)] * HANN_WINDOW).view(np.float64)
        np.square(parts, out=parts)  # real, imaginary, real, …
        power = (parts[:, ::2] + parts[:, 1::2]).astype(np.float32)
        for first in range(0, len(mels), FRAMES_PER_MATMUL):
            rows = slice(first, min(first + FRAMES_PER_MATMUL, len(mels)))
            np.matmul(power[rows], bank, out=mels[rows])
        np.log10(np.maximum(mels, floor, out=mels), out=mels)
        np.maximum(mels, np.float32(LOG_FLOOR), out=mels)  # log10 may round below the floor

    with single_threaded_blas():
        parallel_for(transform, range(0, frames, _FRAMES_PER_TASK))
    return logs


def scale(
    logs: NDArray[np.float32], peak: float, out: NDArray[np.float32] | None = None
) -> NDArray[np.float32]:
    """Clamp to eight decades below `peak` and scale to about [-1, 1.5], as in training.

    `out` receives the result, and may be `logs`; None: a new array.
    """
    scaled: NDArray[np.float32] = np.maximum(logs, np.float32(peak - DYNAMIC_RANGE), out=out)
    scaled += np.float32(4.0)
    scaled /= np.float32(4.0)
    return scaled


def log_mel(samples: NDArray[np.float32], n_mels: int) -> NDArray[np.float32]:
    """Whisper's features of all of `samples`, float32 [n // 160, n_mels], time first.

    `samples` [n] float32 at 16 kHz, reflected by 200 samples at both ends; fewer than 201 are
    zero-padded first. The maximum over the array sets the clamp. For the model's input, pad with
    zeros to 30 s first. Source: whisper/audio.py: log_mel_spectrogram.
    """
    samples = np.asarray(samples, np.float32)
    if len(samples) <= HALF_WINDOW:
        samples = np.pad(samples, (0, HALF_WINDOW + 1 - len(samples)))
    logs = log_power(np.pad(samples, HALF_WINDOW, mode="reflect"), n_mels)[
        : len(samples) // HOP_LENGTH
    ]
    return scale(logs, float(logs.max(initial=LOG_FLOOR)))
