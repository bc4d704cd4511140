"""Real weights on what goes wrong elsewhere: silence, seams, last words, single words, loops."""

from __future__ import annotations

import re
from collections.abc import Callable
from difflib import SequenceMatcher
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oscine import load
from oscine.audio.io import decode
from oscine.models.whisper.pipeline import Whisper
from oscine.models.whisper.sequences import DecodingSequence
from oscine.types import Transcript

pytestmark = pytest.mark.weights

RATE = 16_000
Models = Callable[[str], Whisper]
#: Recordings and the seconds of faint noise after each; 70 s, so that there are seams.
LONG = {
    "jfk.flac": 2.5,
    "moonshine_beckett.wav": 0.8,
    "libri_198-209-0000.ogg": 3.0,
    "lhotse_libri-1088-134315-0000.wav": 0.6,
    "lhotse_2412-153948-0001.flac": 4.0,
}
SENTENCES = (
    "ask what you can do for your country",
    "ever failed no matter try again",
    "will there be any harm in my calling on miss",
    "only put on a white gown",
    "i have the greatest admiration in the world",
    "an opportunity of rendering to you in person",
    "it will be seen that i did not succeed in my design",
    "that however much i may have met with that was new and strange",
)


@pytest.fixture(scope="module")
def model(weights: dict[str, Path]) -> Models:
    return cache(lambda name: load(weights[name], device="cpu"))


def chords(seconds: int) -> np.ndarray:
    """Struck chords of four voices and their overtones, a new one every 2.5 s."""
    time = np.arange(seconds * RATE) / RATE
    since = time % 2.5
    root = np.array([220, 174.6, 261.6, 196])[(time // 2.5).astype(int) % 4]
    tones = sum(
        np.sin(2 * np.pi * root * voice * overtone * since) / overtone
        for voice in (1, 1.25, 1.5, 2)
        for overtone in (1, 2, 3)
    )
    return (0.06 * np.exp(-0.8 * since) * tones).astype(np.float32)


def noise(seconds: float, level: float) -> np.ndarray:
    return np.random.default_rng(0).normal(0, level, round(seconds * RATE)).astype(np.float32)


NOTHING_SAID = {
    "silence": lambda: np.zeros(30 * RATE, np.float32),
    "white noise": lambda: noise(30, 0.1),
    "tone": lambda: 0.5 * np.sin(2 * np.pi * 440 * np.arange(30 * RATE) / RATE).astype(np.float32),
    "chords": lambda: chords(30),
}


@pytest.mark.parametrize("name", ["tiny.en", "base"])
@pytest.mark.parametrize("sound", NOTHING_SAID)
def test_nothing_said_is_no_text(model: Models, name: str, sound: str) -> None:
    result = model(name).transcribe(NOTHING_SAID[sound]())
    assert (result.text, result.segments) == ("", ())
    assert result.duration == 30


def plain(text: str) -> str:
    return re.sub(r"[^a-z ]", "", text.lower().replace("-", " "))


@pytest.fixture(scope="module")
def ways(model: Models, shared_audio: Path) -> list[Transcript]:
    """A long recording, one window after another and in batches, with words."""
    parts = []
    for file, gap in LONG.items():
        parts += [decode(shared_audio / file).samples, noise(gap, 1e-4)]
    audio = np.concatenate(parts)
    whisper = model("tiny.en")
    return [
        whisper.transcribe(audio, temperature=0, word_timestamps=True, **options)
        for options in ({}, {"batch_size": 8})
    ]


def test_batches_say_what_one_window_after_another_says(ways: list[Transcript]) -> None:
    one, other = (plain(way.text).split() for way in ways)
    assert SequenceMatcher(None, one, other, autojunk=False).ratio() > 0.97


def test_no_sentence_is_lost_or_said_twice(ways: list[Transcript]) -> None:
    for way in ways:
        text = " ".join(plain(way.text).split())
        assert [text.count(sentence) for sentence in SENTENCES] == [1] * len(SENTENCES)
        assert way.coverage is not None
        assert way.coverage.without_text < 0.05 * way.coverage.speech


def test_every_word_has_a_time_in_order_and_inside(ways: list[Transcript]) -> None:
    for way in ways:
        for segment in way.segments:
            assert "".join(word.word for word in segment.words or ()) == segment.text
        words = [word for segment in way.segments for word in segment.words or ()]
        assert len(words) > 130
        assert all(word.start < word.end for word in words)
        edges = [edge for word in words for edge in (word.start, word.end)]
        assert all(a <= b for a, b in pairwise(edges))
        assert 0 <= edges[0] <= edges[-1] <= way.duration


@pytest.mark.parametrize("options", [{}, {"batch_size": 2}, {"word_timestamps": True}])
def test_last_words_of_a_file(
    model: Models, shared_audio: Path, options: dict[str, object]
) -> None:
    """The recording stops a tenth of a second after its last word."""
    samples = decode(shared_audio / "jfk.flac").samples[: round(10.58 * RATE)]
    result = model("tiny.en").transcribe(samples, temperature=0, **options)
    assert plain(result.text).endswith("ask what you can do for your country")
    assert 10 < result.segments[-1].end <= result.duration


def test_the_end_of_a_window_is_not_lost_between_silences(
    model: Models, shared_audio: Path
) -> None:
    """The first window ends in mid-sentence, with less than the threshold after its last word."""
    jfk, pencils = (
        decode(shared_audio / name).samples for name in ("jfk.flac", "sb_spk1_snt6.wav")
    )
    silence = [np.zeros(round(seconds * RATE), np.float32) for seconds in (18.5, 3)]
    audio = np.concatenate([pencils, silence[0], jfk, silence[1], pencils])
    result = model("tiny.en").transcribe(
        audio,
        temperature=0,
        word_timestamps=True,
        vad_filter=False,
        hallucination_silence_threshold=2,
    )
    assert [result.text.count(words) for words in ("you can do for your country", "pencils")] == [
        1,
        2,
    ]


@pytest.mark.parametrize(
    ("middle", "milliseconds", "said"),
    [(6.0, 500, "country"), (6.0, 700, "country"), (7.21, 500, "for you"), (7.21, 1000, "for you")],
)
def test_a_word_alone(
    model: Models, shared_audio: Path, middle: float, milliseconds: int, said: str
) -> None:
    start = int((middle - milliseconds / 2000) * RATE)
    clip = decode(shared_audio / "jfk.flac").samples[start : start + 16 * milliseconds]
    result = model("tiny.en").transcribe(clip, temperature=0)
    assert plain(result.text).strip() == said
    assert 0 <= result.segments[0].start < result.segments[-1].end <= milliseconds / 1000


@pytest.mark.parametrize("milliseconds", [300, 400])
def test_a_scrap_of_a_word_is_heard_or_counted(
    model: Models, shared_audio: Path, milliseconds: int
) -> None:
    """Too little to be sure of; but speech without text is not passed over in silence."""
    samples = decode(shared_audio / "jfk.flac").samples
    for middle in (1.39, 8.16):
        start = int((middle - milliseconds / 2000) * RATE)
        clip = samples[start : start + 16 * milliseconds]
        result = model("tiny.en").transcribe(clip, temperature=0)
        assert result.coverage is not None
        assert bool(result.text) != (result.coverage.without_text > 0.1)
        assert all(s.end <= result.duration for s in result.segments)


@pytest.mark.parametrize("before", ["silence", "chords"])
def test_language_is_that_of_the_speech(model: Models, shared_audio: Path, before: str) -> None:
    """Not that of 20 s of something else before it, which has none."""
    lead = np.zeros(20 * RATE, np.float32) if before == "silence" else chords(20)
    german = decode(shared_audio / "az_de-DE.flac").samples[: 10 * RATE]
    code, shares = model("base").detect_language(np.concatenate([lead, german]))
    assert code == "de"
    assert shares["de"] > 0.9


def test_a_loop_is_cut_and_flagged(model: Models, shared_audio: Path) -> None:
    """A prompt that repeats itself, on noisy speech, with nothing but temperature 0 to try."""
    file = shared_audio / "night_60s_i_dont_want_anyones_life_on_my_hands.wav"
    samples = decode(file).samples[: 30 * RATE]
    prompt = "no sound, no sound, " * 10
    result = model("tiny.en").transcribe(samples, temperature=0, initial_prompt=prompt)
    flagged = [segment for segment in result.segments if "repetition" in segment.flags]
    assert flagged
    assert not re.search(r"\b(\w+(?: \w+){0,5})(?: \1){2}", " ".join(plain(result.text).split()))
    assert len(result.text) > 100  # and continues with the speech


def test_a_poor_window_does_not_run_to_its_limit(
    model: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Noise without the detector: base repeats itself until something ends it."""
    engine, attempts = model("base").engine, []
    submit = engine.submit

    def recorded(sequence: Any, caller: Any = None) -> Any:
        if isinstance(sequence, DecodingSequence):
            attempts.append(sequence)
        return submit(sequence, caller)

    monkeypatch.setattr(engine, "submit", recorded)
    found = model("base").transcribe(noise(30, 0.3), vad_filter=False, temperature=(0, 0.2))
    assert all("repetition" in segment.flags for segment in found.segments)
    assert [len(attempt.result()) for attempt in attempts] == [1, 5]
    stops = [
        (row.finish_reason, len(row.tokens)) for attempt in attempts for row in attempt.result()
    ]
    assert "repeat" in dict(stops)
    assert max(count for _, count in stops) < attempts[0].request.max_new_tokens / 2
