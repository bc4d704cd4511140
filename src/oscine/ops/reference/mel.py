"""From spectra of frames to the features of a speech encoder, [T, M] of M mel bands.

The spectra are a convolution over the samples: `conv1d` with a Fourier basis of one hop as its
stride. oscine.audio.mel and its neighbours compute the same features on the host, by a fast Fourier
transform in float64. Source: openai/whisper whisper/audio.py; NeMo
nemo/collections/asr/parts/preprocessing/features.py.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from oscine.ops.effects import op
from oscine.ops.reference.blocks import valid_lengths
from oscine.ops.types import FeatureNorm, MelBank, SeqLengths, Tensor

Array = NDArray[Any]

PEAK_RANGE = 8.0  # log10 units below the maximum that are kept
STD_EPSILON = 1e-5  # added to a standard deviation


def check_spectrum(spectrum: Tensor, mel: MelBank) -> None:
    """Raise ValueError unless the spectrum has a real and an imaginary part of each bin."""
    if spectrum.shape[1] != 2 * mel.bank.shape[0]:
        raise ValueError(f"a spectrum {spectrum.shape} for {mel.bank.shape[0]} bins")


def check_stats(x: Tensor, stats: Tensor) -> None:
    """Raise ValueError unless there are statistics of each column, for equal parts of the rows."""
    if stats.shape[1] != 3 * x.shape[1] or x.shape[0] % stats.shape[0]:
        raise ValueError(f"statistics {stats.shape} of {x.shape}")


class MelOps(Protocol):
    """Log-mel power, its statistics and its normalisation."""

    @op()
    def log_mel(self, spectrum: Tensor, mel: MelBank) -> Tensor:
        """scale · ln(max(p · bank, floor) + guard): re ‖ im [T, 2F], bank [F, M] -> [T, M].

        p = re² + im², or with an epsilon √(re² + im² + epsilon). Raises ValueError for a spectrum
        of another width.
        """
        check_spectrum(spectrum, mel)
        real, imaginary = np.split(spectrum, 2, axis=1)
        p = real**2 + imaginary**2
        if mel.magnitude_epsilon is not None:
            p = np.sqrt(p + np.float32(mel.magnitude_epsilon))
        bands = np.maximum(p @ mel.bank, np.float32(mel.floor)) + np.float32(mel.guard)
        logs: Array = np.float32(mel.scale) * np.log(bands)
        return logs

    @op()
    def feature_stats(self, x: Tensor, lengths: SeqLengths) -> Tensor:
        """Maximum ‖ mean ‖ standard deviation of each column of each of B sequences of rows.

        x [B·T, M] -> [B, 3M], over the first rows of a sequence that its length says, at least one
        and at most T. The divisor of the variance is one less than their number; of one row the
        deviation is 0, and of equal values exactly 0.
        """
        sequences = x.reshape(len(lengths.frames), -1, x.shape[1])
        stats = np.empty((len(sequences), 3, x.shape[1]), np.float32)
        for rows, count, found in zip(sequences, valid_lengths(lengths), stats, strict=True):
            part = rows[: max(count, 1)]
            distance = part - part[0]
            mean = distance.mean(axis=0)
            squares = np.square(distance - mean).sum(axis=0)
            found[0], found[1] = part.max(axis=0), part[0] + mean
            found[2] = np.sqrt(squares / np.float32(max(len(part) - 1, 1)))
        return stats.reshape(len(stats), -1)

    @op()
    def normalise_features(self, x: Tensor, stats: Tensor, norm: FeatureNorm) -> Tensor:
        """x [B·T, M] normalised by the stats [B, 3M] of its sequence, as `feature_stats` has them.

        "peak": max(x, peak - 8) / 4 + 1, where peak is the maximum of all columns (Whisper).
        "standard": (x - mean) / (deviation + 1e-5) of each column (NeMo). Raises ValueError for
        stats of other shapes.
        """
        check_stats(x, stats)
        rows = x.reshape(len(stats), -1, x.shape[1])
        maxima, mean, deviation = np.split(stats[:, None], 3, axis=2)
        if norm == "peak":
            lowest = maxima.max(axis=2, keepdims=True) - np.float32(PEAK_RANGE)
            y: Array = np.maximum(rows, lowest) / np.float32(4) + np.float32(1)
        else:
            y = (rows - mean) / (deviation + np.float32(STD_EPSILON))
        return y.reshape(x.shape)
