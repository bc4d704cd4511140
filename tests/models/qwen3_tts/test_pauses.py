"""Silence that the text asks for, and silence at the beginning that is not wanted."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oscine
from oscine.errors import UsageError
from oscine.models.qwen3_tts.sentences import TextPiece, split_sentences, stream_sentences

SPEC = importlib.util.spec_from_file_location("scripted", Path(__file__).with_name("scripted.py"))
assert SPEC is not None and SPEC.loader is not None
SCRIPTED = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(SCRIPTED)
HOP_LENGTH, GOLDENS, scripted = SCRIPTED.HOP_LENGTH, SCRIPTED.GOLDENS, SCRIPTED.scripted
RATE, RAMP = 24_000, 120


def two_frames(request: Any, call: int) -> tuple[list[int], str]:
    return [300 + call, 400 + call], "end"


def say(text: Any, script: Any = two_frames, **options: Any) -> np.ndarray:
    """The samples of a text, which are the same whole and streamed."""
    whole = scripted(script)[0].speak(text, voice="ryan", seed=1, **options).samples
    stream = scripted(script)[0].stream(text, voice="ryan", seed=1, **options)
    parts = [audio.samples for audio in stream]
    assert np.array_equal(np.concatenate(parts), whole)
    assert max(map(len, parts)) <= RATE  # a pause is given out second by second
    return whole


@pytest.mark.parametrize("seconds", [0.001, 0.5, 1.5, 2.0, 60.0])
@pytest.mark.parametrize("unit", ["ms", "s"])
@pytest.mark.parametrize("streamed", [False, True])
def test_a_pause_is_exactly_so_much_silence(seconds: float, unit: str, streamed: bool) -> None:
    number = 1000 * seconds if unit == "ms" else seconds
    text = f"One. [pause {number:g}{unit}] Two"
    samples = say(list(text) if streamed else text)
    silence = samples[2 * HOP_LENGTH : -2 * HOP_LENGTH]
    assert len(silence) == round(seconds * RATE)
    assert not silence[RAMP:-RAMP].any()


def test_pauses_at_both_ends_in_a_row_and_within_a_sentence() -> None:
    samples = say("[pause 1s] One [pause 500ms][pause 250ms] two [pause 2s]")
    assert len(samples) == 4 * HOP_LENGTH + round(3.75 * RATE)
    assert not samples[: RATE - RAMP].any() and samples[RATE : RATE + 2 * HOP_LENGTH].all()
    assert not samples[-2 * RATE + RAMP :].any()
    assert len(say("One two [pause 1s]...")) == 2 * HOP_LENGTH + RATE


def test_a_pause_counts_for_max_seconds() -> None:
    model, engine = scripted(two_frames)
    stream = model.stream("One [pause 3s] two", voice="ryan", max_seconds=2)
    speech = stream.speech()
    assert speech.duration == 2 * HOP_LENGTH / RATE and len(engine.requests) == 1
    assert (speech.finish_reason, stream.limited) == ("length", True)
    stream = scripted(two_frames)[0].stream("One [pause 3s]", voice="ryan", max_seconds=2)
    assert stream.speech().duration == 2 and stream.limited
    stream = scripted(two_frames)[0].stream("[pause 3s] one", voice="ryan", max_seconds=3.2)
    assert stream.speech().duration == 3.16 and not stream.limited


def test_a_long_pause_can_be_cancelled() -> None:
    asked = []
    model, _ = scripted(two_frames)
    stream = model.stream("One [pause 60s] two", voice="ryan", cancel=lambda: len(asked) > 2)
    for audio in stream:
        asked.append(audio)
        if len(asked) == 3:
            stream.close()
    assert len(asked) == 3 and stream.duration < 3


@pytest.mark.parametrize("text", ["[pause 1s]", "[pause 1s] ... [pause 2s]"])
def test_pauses_alone_say_nothing(text: str) -> None:
    model, _ = scripted(two_frames)
    with pytest.raises(UsageError, match="nothing to say in the text beside pauses"):
        model.speak(text, voice="ryan")
    with pytest.raises(UsageError, match="there is no text to speak"):
        model.speak([text], voice="ryan")


def test_too_long_a_pause_is_refused_before_the_work() -> None:
    model, engine = scripted(two_frames)
    with pytest.raises(UsageError, match=r"\[pause 90s\]: a pause is 60 s at most"):
        model.speak("One [pause 90s] two", voice="ryan")
    assert not engine.requests


def test_a_mark_ends_a_piece_and_is_none() -> None:
    text = "One two. Three [pause 1s] four. Five."
    assert split_sentences(text) == [
        TextPiece("One two. Three", 0.0),
        TextPiece("", 0.0, silence_s=1.0),
        TextPiece("four. Five.", 0.0, " "),
    ]
    assert [piece.text for piece in stream_sentences(text)] == [
        "One two.", "Three", "", "four.", "Five.",
    ]  # fmt: skip


# -- silence at the beginning ---------------------------------------------------------------------


def quiet_first(request: Any, call: int) -> tuple[list[int], str]:
    return [0, 1, 2, 300, 0, 400], "end"


def test_silence_at_the_beginning_is_trimmed_on_request() -> None:
    whole = say("One.", quiet_first)
    trimmed = say("One.", quiet_first, trim_silence=True)
    assert len(whole) == 6 * HOP_LENGTH and len(trimmed) == 3 * HOP_LENGTH + RAMP
    assert np.array_equal(trimmed, whole[3 * HOP_LENGTH - RAMP :])
    loud = say("One.", trim_silence=True)
    assert np.array_equal(loud, say("One."))


def test_a_pause_that_is_asked_for_is_not_trimmed() -> None:
    trimmed = say("[pause 1s] One [pause 1s] two", quiet_first, trim_silence=True)
    assert len(trimmed) == RATE + 3 * HOP_LENGTH + RAMP + RATE + 6 * HOP_LENGTH


@pytest.mark.parametrize("streamed", [False, True])
def test_each_piece_has_its_place_in_the_speech(streamed: bool) -> None:
    """The audio there equals the piece's audio alone, to the sample."""
    model = oscine.load(GOLDENS / "custom_voice" / "ckpt", "cpu")
    text = "[pause 250ms] Hello there. \n\nI am fine [pause 500ms] today! \n\nAnd you? [pause 1s]"
    how: dict[str, Any] = {"voice": "ryan", "seed": 3, "guard": False}
    stream = model.stream(list(text) if streamed else text, **how)
    samples = np.concatenate([audio.samples for audio in stream])
    assert [piece.text for piece in stream.spoken] == [
        "Hello there.", "I am fine", "today!", "And you?",
    ]  # fmt: skip
    before = 0
    for piece in stream.spoken:
        start, end = round(piece.start * RATE), round(piece.end * RATE)
        assert before <= start < end <= len(samples) - RATE
        alone = model.stream(piece.text, **how)
        heard = np.concatenate([audio.samples for audio in alone])
        assert np.array_equal(samples[start:end], heard)
        assert piece.finish_reason == alone.finish_reason == "end"
        assert (alone.spoken[0].start, alone.spoken[0].end) == (0, alone.duration)
        before = end
    assert round(stream.spoken[0].start * RATE) == RATE // 4
    if not streamed:
        assert model.speak(text, **how).spoken == stream.spoken


def test_a_piece_that_is_cut_short_says_so() -> None:
    model, _ = scripted(two_frames)
    speech = model.speak("One.\n\nTwo.", voice="ryan", seed=1, max_frames=3)
    reasons = [piece.finish_reason for piece in speech.spoken]
    assert reasons[-1] == speech.finish_reason == "length" and reasons[:-1] == ["end"]
