"""A transcription can begin before its first segment is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oscine
from oscine.errors import AudioError, Cancelled

GOLDENS = Path(__file__).resolve().parents[1] / "goldens"
NOISE = np.random.default_rng(0).normal(0, 0.1, 3 * 16000).astype(np.float32)


@pytest.mark.parametrize("name", ["whisper_multi", "whisper_en", "parakeet_tdt"])
def test_begin_finds_language_and_length_and_loses_no_segment(name: str) -> None:
    model = oscine.load(GOLDENS / name, "cpu")
    options: dict[str, Any] = {"vad_filter": False}
    plain = model.stream(NOISE, **options)
    stream = model.stream(NOISE, **options)
    assert (stream.duration, stream.listened) == (0.0, 0.0)
    stream.begin()
    assert (stream.duration, stream.listened) == (3.0, 3.0)
    assert stream.language
    assert bool(stream.language_probs) == (name == "whisper_multi")
    assert stream.transcript().segments == ()
    stream.begin()  # there is nothing more to find out
    found = list(stream)
    assert found == list(plain)
    stream.begin()
    assert list(stream) == [] and stream.transcript().segments == tuple(found)


def test_begin_raises_what_the_recording_raises_and_stops_where_it_is_asked_to() -> None:
    model = oscine.load(GOLDENS / "whisper_multi", "cpu")
    with pytest.raises(AudioError, match="bytes"):
        model.stream(b"RIFF no wave").begin()
    with pytest.raises(Cancelled) as stopped:
        model.stream(NOISE, cancel=lambda: True).begin()
    assert stopped.value.partial is not None and stopped.value.partial.segments == ()


def test_channels_begin_one_by_one() -> None:
    model = oscine.load(GOLDENS / "whisper_multi", "cpu")
    options: dict[str, Any] = {"vad_filter": False, "split_channels": True}
    both = np.stack([NOISE, NOISE[::-1]])
    stream = model.stream((both, 16000), **options)
    stream.begin()
    assert stream.language and list(stream) == list(model.stream((both, 16000), **options))
