"""Audio in pieces, as it comes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oscine
from oscine.audio.io import decode as decode_audio
from oscine.audio.mel_nemo import FeatureStats, raw_log_mel
from oscine.errors import AudioError, NonFiniteError, UsageError
from oscine.models.parakeet import streaming
from oscine.models.parakeet.pipeline import Parakeet
from oscine.models.parakeet.words import ModelInfo
from oscine.types import Update, Word

GOLDENS = Path(__file__).resolve().parents[2] / "goldens"


def load(case: str) -> Parakeet:
    """A model of which attention sees little, so that half a second around a frame is all."""
    model = oscine.load(GOLDENS / case, device="cpu")
    assert isinstance(model, Parakeet)
    model.runner.config = replace(model.runner.config, attention_window=(3, 3))
    return model


def rising() -> Iterator[Any]:
    raise ZeroDivisionError
    yield


@pytest.mark.parametrize(
    ("pieces", "said"),
    [
        (np.zeros(1600, np.float32), "put one array into a list"),
        (None, "arrays of samples, not NoneType"),
        (5, "arrays of samples, not int"),
        ([1, 2], "array of samples, not int"),
        ([np.zeros(9, np.float32), None], "array of samples, not NoneType"),
        ([0.5], "array of samples, not float"),
        ([np.float32(1)], "array of samples, not float32"),
        ([np.array(1.0)], "array of samples, not ndarray"),
        ([{}], "array of samples, not dict"),
        ([[0.5, 0.5]], "list is not a recording"),
    ],
)
def test_what_are_no_pieces_of_samples(pieces: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        list(load("parakeet_tdt").listen(pieces))


def test_what_a_generator_of_pieces_raises_comes_through() -> None:
    with pytest.raises(ZeroDivisionError):
        list(load("parakeet_tdt").listen(rising()))


def audio(case: str) -> Any:
    parts = [decode_audio(GOLDENS / "audio" / f"{case}{more}.wav").samples for more in ("", "_2")]
    return np.concatenate([*parts, *parts])


def in_pieces(samples: Any, size: int) -> list[Any]:
    return [samples[start : start + size] for start in range(0, len(samples), size)]


def final(updates: list[Update]) -> list[Word]:
    return [word for update in updates for word in update.final]


@pytest.mark.parametrize("size", [100, 1_600, 50_000, 1_000_000])
def test_the_size_of_pieces_changes_nothing(size: int) -> None:
    model, samples = load("parakeet_tdt"), audio("parakeet_tdt")
    expected = list(model.listen([samples], latency=1.6))
    assert len(expected) > 5
    assert list(model.listen(in_pieces(samples, size), latency=1.6)) == expected


@pytest.mark.parametrize("case", ["parakeet_tdt", "parakeet_rnnt", "parakeet_ctc"])
def test_words_are_those_of_the_whole(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all buffers are normalised alike, and hold all that a frame hangs on."""
    model, samples = load(case), audio(case)
    n_mels = model.runner.config.n_mels
    statistics = FeatureStats.of([raw_log_mel(samples, n_mels)])
    monkeypatch.setattr(
        streaming, "log_mel", lambda samples, n: statistics.normalised(raw_log_mel(samples, n))
    )
    monkeypatch.setattr(streaming, "LEFT_CONTEXT_S", 3.0)
    monkeypatch.setattr(
        streaming, "MIN_PAUSE_FRAMES", 10**6
    )  # these models say words of many seconds
    listened = list(model.listen(in_pieces(samples, 8_000), latency=4.0))
    whole = list(model.listen([samples], latency=30.0))
    assert len(final(whole)) > 5
    words, expected = final(listened), final(whole)
    assert [(w.word, w.start, w.end) for w in words] == [(w.word, w.start, w.end) for w in expected]


@pytest.mark.parametrize("latency", [0.16, 0.5, 2.0])
def test_words_come_in_time_and_in_order(latency: float) -> None:
    model, samples = load("parakeet_tdt"), audio("parakeet_tdt")
    updates = list(model.listen(in_pieces(samples, 1_000), latency=latency))
    words = final(updates)
    assert words
    assert [w.start for w in words] == sorted(w.start for w in words)
    before = 0.0
    settled: list[Word] = []
    for update in updates[:-1]:
        assert update.heard > before
        before = update.heard
        shown = [*update.final, *update.partial]
        assert all(word.end <= update.heard for word in shown)
        # Half a second after a word nothing belongs to it any more.
        settled += update.final
        said = [word for word in words if word.end < update.heard - latency - 0.6]
        assert set(said) <= set(settled)
    assert updates[-1].partial == ()
    assert updates[-1].heard == len(samples) / 16_000


def test_memory_does_not_grow() -> None:
    model = load("parakeet_ctc")
    text = ModelInfo(model.tokenizer, model.runner.config, model.multilingual)
    decoder = streaming.StreamingDecoder(model.engine.submit, text, 1.0, None)
    samples = audio("parakeet_ctc")
    most = 0
    for _ in range(8):
        for piece in in_pieces(samples, 4_000):
            list(decoder.push(piece))
            most = max(most, len(decoder.samples))
    assert decoder.samples_received == 8 * len(samples)
    assert most <= 16_000 * (streaming.LEFT_CONTEXT_S + 1.0) + 4_000


@pytest.mark.parametrize("count", [0, 1, 159, 160, 2_000])
def test_little_or_nothing(count: int) -> None:
    samples = np.full(count, 0.1, np.float32)
    (update,) = load("parakeet_tdt").listen([samples, np.zeros(0, np.float32)])
    assert update.heard == count / 16_000
    assert update.partial == ()


def test_cancelled_it_finishes_what_it_heard() -> None:
    model, samples = load("parakeet_tdt"), audio("parakeet_tdt")
    asked: list[int] = []

    def cancel() -> bool:
        asked.append(1)
        return len(asked) > 3

    updates = list(model.listen(in_pieces(samples, 16_000), cancel=cancel))
    assert updates[-1].heard == 3
    assert updates[-1].partial == ()


def test_mistakes_are_told() -> None:
    model = load("parakeet_ctc")
    for latency in (0.0, 31.0, float("nan"), True):
        with pytest.raises(UsageError, match=r"latency must be 0\.16 to 30"):
            list(model.listen([], latency=latency))
    with pytest.raises(UsageError, match="does not support hotwords"):
        model.listen([], hotwords="so")
    with pytest.raises(NonFiniteError):
        list(model.listen([np.full(100, np.nan, np.float32)]))
    with pytest.raises((AudioError, UsageError)):
        list(model.listen(["nowhere.wav"]))


def test_a_language_is_taken_or_refused_by_name() -> None:
    model = load("parakeet_tdt")
    silence = [np.zeros(1600, np.float32)]
    assert list(model.listen(silence, language="en")) == list(model.listen(silence))
    with pytest.raises(UsageError, match="de"):
        model.listen(silence, language="de")


@pytest.mark.parametrize("latency", ["2", None, True, 0])
def test_what_is_no_latency_is_refused(latency: Any) -> None:
    with pytest.raises(UsageError, match="latency must be"):
        list(load("parakeet_tdt").listen([np.zeros(1600, np.float32)], latency=latency))
