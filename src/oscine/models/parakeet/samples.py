"""Windows of samples of a recording, for a device that computes NeMo's features itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from oscine.audio.features import RecordingSamples
from oscine.audio.mel import HALF_WINDOW, SAMPLE_RATE
from oscine.audio.mel_nemo import PREEMPHASIS, frame_count
from oscine.audio.sample_window import LogMelStats, SampleWindow
from oscine.audio.timeline import AudioBlocks
from oscine.engine.sequence import Call
from oscine.engine.sequence import Sequence as AnySequence
from oscine.models.parakeet.features import NemoFeatures
from oscine.models.parakeet.runner import ParakeetRunner
from oscine.types import Samples

Features: TypeAlias = "NemoFeatures | NemoSamples"


class Preemphasized:
    """A recording with each sample less 0.97 times the one before it; the first has none."""

    def __init__(self, recording: AudioBlocks) -> None:
        self.name, self._recording = recording.name, recording

    def blocks(self, rate: int = SAMPLE_RATE) -> Iterator[Samples]:
        """Mono float32 blocks [n]. Raises what the recording raises."""
        before = np.zeros(1, np.float32)
        for block in self._recording.blocks(rate):
            shifted: Samples = np.concatenate([before, block[:-1]])
            before = block[-1:]
            shifted *= np.float32(PREEMPHASIS)
            yield block - shifted


class NemoSamples(RecordingSamples):
    """Windows of pre-emphasised samples; the device's counterpart of NemoFeatures."""

    _released = 0  # frames before it are not requested again

    def window(self, first: int, last: int, *, self_normalised: bool = False) -> SampleWindow:
        """Frames `first` to `last` (exclusive), as NemoFeatures.window has them."""
        if not 0 <= first <= last <= self.frames:
            raise ValueError(f"frames {first} to {last} of {self.frames}")
        whole = first == 0 and last == self.frames
        stats = None if self_normalised or whole else self.stats.as_row()
        samples = self._window_samples(first, last - first) if last > first else np.zeros(0)
        return SampleWindow(
            samples.astype(np.float32, copy=False), (last - first, self.n_mels), stats, last - first
        )

    def release(self, before: int) -> None:
        """Free frames before this one; the caller does not request them again."""
        self._released = max(self._released, before)

    def _unneeded_before(self, start: int) -> int:
        return min(start, self._released)

    def _lead_in(self, beginning: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.concatenate([np.zeros(HALF_WINDOW, np.float32), beginning])

    def _counted_frames(self, done: int, frames: int) -> int:
        return max(0, min(frames, frame_count(self.samples) - done))


def recording_features(
    recording: AudioBlocks,
    runner: ParakeetRunner,
    max_single_frames: int,
    submit: Callable[[AnySequence[Any]], AnySequence[Any]],
    check: Callable[[], None] | None = None,
) -> Features:
    """The features of a recording, or its samples where the runner's device computes features.

    A recording of at most `max_single_frames` is decoded as one window. `submit` sends calls to the
    engine of the runner; `check` may raise to cancel.
    """
    n_mels = runner.config.n_mels
    if not runner.backend.computes_features:
        return NemoFeatures(recording, n_mels, check=check)

    def analyse(samples: NDArray[np.float32], frames: int) -> Callable[[], LogMelStats]:
        call = Call(partial(ParakeetRunner.log_mel_stats, samples=samples, frames=frames))
        return partial(submit(call).wait, check)

    source = Preemphasized(recording)
    return NemoSamples(source, n_mels, max_single_frames, analyse, check=check)
