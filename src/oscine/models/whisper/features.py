"""The windows of a recording as encoder inputs: features, or samples for a device."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from oscine.audio.features import Recording, WhisperFeatures, WhisperSamples
from oscine.audio.sample_window import LogMelStats
from oscine.engine.sequence import Call
from oscine.engine.sequence import Sequence as AnySequence
from oscine.models.whisper.runner import WhisperRunner

Windows: TypeAlias = WhisperFeatures | WhisperSamples


def recording_windows(
    recording: Recording,
    runner: WhisperRunner,
    submit: Callable[[AnySequence[Any]], AnySequence[Any]],
    check: Callable[[], None] | None = None,
) -> Windows:
    """The windows of a recording, as samples where the runner's device computes features.

    `submit` sends calls to the engine of the runner; `check` may raise to cancel.
    """
    config = runner.config
    if not runner.backend.computes_features:
        return WhisperFeatures(recording, config.n_mels, config.window_frames, check=check)

    def analyse(samples: NDArray[np.float32], frames: int) -> Callable[[], LogMelStats]:
        call = Call(partial(WhisperRunner.log_mel_stats, samples=samples, frames=frames))
        return partial(submit(call).wait, check)

    return WhisperSamples(recording, config.n_mels, config.window_frames, analyse, check=check)
