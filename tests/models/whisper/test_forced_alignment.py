"""Forced alignment: times as with word_timestamps, and refused arguments."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oscine
from oscine.audio.io import decode
from oscine.errors import UsageError
from oscine.models.whisper.pipeline import Whisper

Scripted = Callable[..., Whisper]


def sound(seconds: float) -> np.ndarray:
    return np.random.default_rng(0).normal(0, 0.1, round(seconds * 16000)).astype(np.float32)


@pytest.mark.weights
@pytest.mark.parametrize("name", ["tiny.en", "base"])
def test_a_known_text_has_the_times_of_its_transcript(
    name: str, weights: dict[str, Path], example: Path
) -> None:
    model = oscine.load(weights[name], "cpu")
    heard = model.transcribe(example, word_timestamps=True)
    expected = [word for segment in heard.segments for word in segment.words or ()]
    text = example.with_suffix(".txt").read_text("utf-8")
    found = model.align(example, text)
    assert [word.word for word in found] == [f" {word}" for word in text.split()]
    assert len(expected) == len(found) == 25
    for ours, theirs in zip(found, expected, strict=True):
        assert abs(ours.start - theirs.start) <= 0.3 and abs(ours.end - theirs.end) <= 0.3
        assert 0 < ours.probability <= 1
    audio = decode(example, rate=24_000)
    again = model.align((audio.samples, 24_000), f"\n{text.replace(' ', '  ')}", "English")
    assert [word.word for word in again] == [word.word for word in found]
    assert max(abs(a.start - b.start) for a, b in zip(again, found, strict=True)) <= 0.3
    wrong = model.align(example, "Nothing of this sort is in there at all.")
    chances = [np.mean([word.probability for word in words]) for words in (wrong, found)]
    assert chances[0] < 0.3 < chances[1]


@pytest.mark.parametrize(
    "text", ["one", " One,  two!\n(three)", "día 世界 \ud800 \N{PARTY POPPER}"]
)
@pytest.mark.parametrize("seconds", [0.02, 0.5, 1.0])
def test_words_are_the_text_in_order_and_within_the_sound(
    text: str, seconds: float, scripted: Scripted
) -> None:
    words = scripted().align(sound(seconds), text)
    clean = text.replace("\ud800", "?").split()
    assert "".join(word.word for word in words).split() == clean
    times = [time for word in words for time in (word.start, word.end)]
    assert times == sorted(times) and times[0] >= 0 and times[-1] <= seconds


def test_the_language_is_listened_for_unless_it_is_given(scripted: Scripted) -> None:
    model = scripted(languages=3)
    codes, model.engine.language = model.languages, 1
    for given, code in ((None, codes[1]), (codes[2], codes[2])):
        model.align(sound(0.5), "one", given)
        assert model._special_tokens.languages[code] in model.engine.aligned[-1][0]


@pytest.mark.parametrize(
    ("seconds", "text", "language", "told"),
    [
        (31.0, "one", None, r"array: 31.00 s is longer than the .* s .* at once; cut"),
        (0.0, "one", None, "array: 0.000 s is too short"),
        (0.5, " \n", None, "no text to align"),
        (0.5, ["one"], None, "must be a str, not list"),
        (0.5, "word " * 90, None, "tokens; at most .* can be aligned at once; cut"),
        (0.5, "one", "de", "does not support language de"),
        (0.5, "one", "klingon", "klingon"),
    ],
)
def test_what_cannot_be_aligned_is_refused(
    seconds: float, text: Any, language: str | None, told: str, scripted: Scripted
) -> None:
    model = scripted()
    with pytest.raises(UsageError, match=told):
        model.align(sound(seconds), text, language)
    assert not model.engine.aligned
