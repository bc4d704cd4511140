"""A recording is transcribed from samples as from features, as one chunk and as several."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oscine
from oscine.audio.io import decode
from oscine.models.parakeet.long_form import ChunkConfig
from oscine.models.parakeet.samples import NemoSamples, recording_features
from oscine.types import Segment

pytestmark = [pytest.mark.gpu, pytest.mark.host]

GOLDENS = Path(__file__).resolve().parents[2] / "goldens"


def words(segments: list[Segment]) -> list[list[tuple[str, float, float]]]:
    return [[(word.word, word.start, word.end) for word in each.words or ()] for each in segments]


@pytest.mark.parametrize("checkpoint", ["parakeet_tdt", "parakeet_ctc"])
@pytest.mark.parametrize("repeats", [1, 4], ids=["one chunk", "chunks"])
def test_the_words_are_the_same(
    checkpoint: str, repeats: int, monkeypatch: pytest.MonkeyPatch, adapter: Any
) -> None:
    audio = np.tile(decode(GOLDENS / "audio" / "parakeet_tdt.wav").samples, repeats)
    model = oscine.load(GOLDENS / checkpoint, "gpu")
    options: dict[str, Any] = {"vad_filter": False, "word_timestamps": True}
    if repeats > 1:
        model._chunk_config = ChunkConfig(400, 300, 100)
    expected = model.transcribe(audio, **options).segments
    made: list[Any] = []

    def noted(*given: Any, **named: Any) -> Any:
        made.append(recording_features(*given, **named))
        return made[-1]

    monkeypatch.setattr("oscine.models.parakeet.stream.recording_features", noted)
    monkeypatch.setattr(model.runner.backend, "computes_features", True)
    found = model.transcribe(audio, **options).segments
    assert expected
    assert [segment.tokens for segment in found] == [segment.tokens for segment in expected]
    assert words(found) == words(expected)
    assert isinstance(made[0], NemoSamples)
    assert bool(made[0].__dict__.get("stats")) == (repeats > 1)
