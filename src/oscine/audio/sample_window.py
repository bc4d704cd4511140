"""The input of an encoder as samples, from which its device computes the features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class SampleWindow:
    """Samples float32 [n] that the frames of a window cover, in place of its features.

    shape: that of the features, [frames, n_mels]. stats: maxima ‖ means ‖ deviations [3 · n_mels]
    of the log-mel power of the recording; None: those of these frames. Frames from `content` on
    have the value `padding`, whatever their samples.
    """

    samples: NDArray[np.float32]
    shape: tuple[int, int]
    stats: NDArray[np.float32] | None
    content: int
    padding: float = 0.0

    def __len__(self) -> int:
        """The number of frames."""
        return self.shape[0]


@dataclass(frozen=True, slots=True, eq=False)
class LogMelStats:
    """Statistics of the log-mel power of `frames` frames: float64 [3, n_mels].

    Their rows are maxima, means and standard deviations of each band; the divisor of a variance is
    one less than the number of frames.
    """

    frames: int
    values: NDArray[np.float64]

    @classmethod
    def of(cls, parts: Sequence[LogMelStats]) -> LogMelStats:
        """Those of all frames of at least one part. Source: Chan, Golub and LeVeque 1983."""
        counts = np.array([part.frames for part in parts], np.float64)[:, None]
        maxima, means, deviations = np.stack([part.values for part in parts], axis=1)
        frames = int(counts.sum())
        mean = (counts * means).sum(axis=0) / frames
        squares = (counts - 1) * deviations**2 + counts * (means - mean) ** 2
        deviation = np.sqrt(squares.sum(axis=0) / max(frames - 1, 1))
        return cls(frames, np.stack([maxima.max(axis=0), mean, deviation]))

    @property
    def peak(self) -> float:
        """The maximum of all bands."""
        return float(self.values[0].max())

    def as_row(self) -> NDArray[np.float32]:
        """Maxima ‖ means ‖ deviations, [3 · n_mels]."""
        return self.values.astype(np.float32).reshape(-1)
