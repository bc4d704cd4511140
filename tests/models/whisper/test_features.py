"""A recording is transcribed from samples as from features, also where its device is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oscine
from oscine.audio.features import WhisperSamples
from oscine.models.whisper.features import recording_windows
from oscine.types import Segment

pytestmark = [pytest.mark.gpu, pytest.mark.host]

GOLDENS = Path(__file__).resolve().parents[2] / "goldens"
OPTIONS: dict[str, Any] = {"temperature": 0, "language": "en", "vad_filter": False}


def tokens(segments: list[Segment]) -> list[tuple[int, ...]]:
    return [segment.tokens for segment in segments]


@pytest.mark.parametrize("more", [{}, {"batch_size": 3}], ids=["sequential", "batched"])
def test_the_tokens_are_the_same(
    more: dict[str, Any], monkeypatch: pytest.MonkeyPatch, adapter: Any
) -> None:
    audio = GOLDENS / "audio" / "parakeet_tdt.wav"
    model = oscine.load(GOLDENS / "whisper_multi", "gpu")
    expected = model.transcribe(audio, **OPTIONS, **more).segments
    made: list[Any] = []

    def noted(*given: Any, **named: Any) -> Any:
        made.append(recording_windows(*given, **named))
        return made[-1]

    monkeypatch.setattr("oscine.models.whisper.transcribe.recording_windows", noted)
    monkeypatch.setattr(model.runner.backend, "computes_features", True)
    found = model.transcribe(audio, **OPTIONS, **more).segments
    assert expected
    assert tokens(found) == tokens(expected)
    assert isinstance(made[0], WhisperSamples)


def test_samples_are_encoded_where_the_device_is_lost_and_numpy_goes_on(
    monkeypatch: pytest.MonkeyPatch, adapter: Any
) -> None:
    audio = np.random.default_rng(4).standard_normal(16_000 * 8).astype(np.float32) / 8
    model = oscine.load(GOLDENS / "whisper_multi", "gpu")
    expected = model.transcribe(audio, **OPTIONS).segments
    monkeypatch.setattr(model.runner.backend, "computes_features", True)

    losses = [0.5, 2.0, 4.0]  # seconds of progress; after the third one NumPy takes over

    def lose(seconds: float, total: float) -> None:
        if losses and seconds >= losses[0]:
            losses.pop(0)
            model.engine.call(lambda runner: runner.backend.device.handle.destroy())

    found = model.transcribe(audio, progress=lose, **OPTIONS)
    assert found.device == "NumPy"
    assert tokens(found.segments) == tokens(expected)
