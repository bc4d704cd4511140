"""NeMo's log-mel front end, time first, with per-feature normalisation.

Source: NeMo nemo/collections/asr/parts/preprocessing/features.py (FilterbankFeatures,
normalize_batch) as the Parakeet checkpoints configure it; transformers' ParakeetFeatureExtractor is
the same. Unlike Whisper's: pre-emphasis, a symmetric window, zeros instead of reflection at the
ends, natural logarithms, no clamp.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oscine.audio.mel import HOP_LENGTH, mel_filters
from oscine.threads import parallel_for, single_threaded_blas

N_FFT = 512  # samples per Fourier transform
WIN_LENGTH = 400  # samples of the window, centred in the transform
PREEMPHASIS = 0.97
LOG_ZERO_GUARD = 2.0**-24  # added to the power before the logarithm
LOG_FLOOR = float(np.log(LOG_ZERO_GUARD))  # the value of silence, before normalisation
STD_EPSILON = 1e-5  # added to the standard deviation

_HALF_WINDOW = WIN_LENGTH // 2  # a frame is centred in its window
_FFT_BATCH_FRAMES = 128  # they and their spectra fit the level-2 cache
_FRAMES_PER_BLOCK = 1 << 14  # 164 s: summed or normalised at once
HANN_WINDOW = 0.5 - 0.5 * np.cos(
    2.0 * np.pi * np.arange(WIN_LENGTH) / (WIN_LENGTH - 1)
)  # symmetric


def frame_count(samples: int) -> int:
    """Number of mel frames: one per whole hop of 10 ms; 0 for fewer than 160 samples."""
    return samples // HOP_LENGTH


def raw_log_mel(
    samples: NDArray[np.float32], n_mels: int, first: int = 0, last: int | None = None
) -> NDArray[np.float32]:
    """Log mel power before normalisation, float32 [frames, n_mels], time first.

    `samples` [n] float32 at 16 kHz, one whole recording: its first sample has no predecessor, and
    it is zero-padded at both ends. Frames `first` to `last` (exclusive) of n // 160, by default
    all; computing them in blocks gives the same values up to rounding.
    """
    samples = np.asarray(samples, np.float32)
    count = frame_count(len(samples))
    last = count if last is None else min(last, count)
    frames = max(0, last - first)
    logs = np.empty((frames, n_mels), np.float32)
    bank = mel_filters(n_mels, N_FFT).T

    def transform(start: int) -> None:
        stop = min(start + _FFT_BATCH_FRAMES, frames)
        stretch = _preemphasized(samples, first + start, first + stop)
        cut = np.lib.stride_tricks.sliding_window_view(stretch, WIN_LENGTH)[::HOP_LENGTH]
        # float64 through the window, as in Whisper's front end: rounding of loud bands would show
        # in quiet ones. The 56 zeros to each side only shift the phase; one end gets all of them.
        spectrum = np.fft.rfft(cut * HANN_WINDOW, N_FFT)
        power = (spectrum.real**2 + spectrum.imag**2).astype(np.float32)
        logs[start:stop] = np.log(power @ bank + np.float32(LOG_ZERO_GUARD))

    with single_threaded_blas():
        parallel_for(transform, range(0, frames, _FFT_BATCH_FRAMES))
    return logs


def _preemphasized(samples: NDArray[np.float32], first: int, last: int) -> NDArray[np.float32]:
    """The pre-emphasised samples of frames `first` to `last`, zero-padded outside the recording."""
    begin, end = first * HOP_LENGTH - _HALF_WINDOW, (last - 1) * HOP_LENGTH + _HALF_WINDOW
    inside = samples[max(begin - 1, 0) : min(end, len(samples))]
    stretch = np.zeros(end - begin, np.float32)
    if begin > 0:
        part = inside[1:] - np.float32(PREEMPHASIS) * inside[:-1]
        stretch[: len(part)] = part
    else:
        stretch[-begin : len(inside) - begin] = inside
        stretch[1 - begin : len(inside) - begin] -= np.float32(PREEMPHASIS) * inside[:-1]
    return stretch


@dataclass(frozen=True, slots=True)
class FeatureStats:
    """Mean and standard deviation of every feature, float64 [n_mels].

    The divisor of the variance is one less than the number of frames; of one frame it is 0.
    """

    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]

    @classmethod
    def of(cls, blocks: Iterable[NDArray[np.float32]]) -> FeatureStats:
        """Those of raw features that come in blocks [frames, n_mels], at least one frame in all.

        Sums are of distances from the first frame, so that digital silence has no deviation at
        all: the rounding of its mean, divided by 1e-5, would be noise.
        """
        pivot: NDArray[np.float64] | None = None
        total = square = np.float64(0)
        count = 0
        for block in _in_blocks(blocks):
            if pivot is None:
                pivot = block[0].astype(np.float64)
            distance = block - pivot
            total = total + distance.sum(axis=0)
            square = square + np.square(distance, out=distance).sum(axis=0)
            count += len(block)
        if pivot is None:
            raise ValueError("statistics of no frame")
        variance = np.maximum(square - total * total / count, 0.0) / max(count - 1, 1)
        return cls(pivot + total / count, np.sqrt(variance))

    def normalised(self, raw: NDArray[np.float32]) -> NDArray[np.float32]:
        """(x - mean) / (deviation + 1e-5), float32 of the shape of `raw`."""
        features = np.empty_like(raw)
        for start in range(0, len(raw), _FRAMES_PER_BLOCK):
            rows = slice(start, start + _FRAMES_PER_BLOCK)
            features[rows] = (raw[rows] - self.mean) / (self.deviation + STD_EPSILON)
        return features


def _in_blocks(blocks: Iterable[NDArray[np.float32]]) -> Iterator[NDArray[np.float32]]:
    for block in blocks:
        for start in range(0, len(block), _FRAMES_PER_BLOCK):
            yield block[start : start + _FRAMES_PER_BLOCK]


def statistics(samples: NDArray[np.float32], n_mels: int) -> FeatureStats:
    """Feature statistics of a recording of at least 160 samples, in bounded memory."""
    count = frame_count(len(samples))
    starts = range(0, count, _FRAMES_PER_BLOCK)
    return FeatureStats.of(
        raw_log_mel(samples, n_mels, start, start + _FRAMES_PER_BLOCK) for start in starts
    )


def log_mel(samples: NDArray[np.float32], n_mels: int) -> NDArray[np.float32]:
    """Parakeet's features of all of `samples`, float32 [n // 160, n_mels], time first.

    `samples` [n] float32 at 16 kHz. Every feature has mean 0 and standard deviation 1 over these
    frames; digital silence is 0. For long recordings use `statistics` and normalise parts of
    `raw_log_mel`.
    """
    raw = raw_log_mel(samples, n_mels)
    return FeatureStats.of([raw]).normalised(raw) if len(raw) else raw
