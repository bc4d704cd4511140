"""The input of an encoder as samples, from which its device computes the features."""

from __future__ import annotations

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
