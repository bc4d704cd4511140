"""Windows side by side: cut at pauses, in order, nothing lost, as many as there is room for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from oscine.errors import UsageError
from oscine.models.whisper.pipeline import Whisper
from oscine.models.whisper.sequences import Alignment, Hypothesis

Scripted = Callable[..., Whisper]


@pytest.fixture(autouse=True)
def _equal_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a detector windows are of equal length, whatever the noise sounds like."""
    monkeypatch.setattr("oscine.models.whisper.transcribe.available", lambda: False)


def sound(seconds: float) -> np.ndarray:
    """Quiet noise at 16 kHz."""
    return np.random.default_rng(0).normal(0, 0.1, round(seconds * 16000)).astype(np.float32)


def test_batches_of_windows_in_order(scripted: Scripted) -> None:
    model = scripted(*[(0.0, f" {at}", 0.5, 0.5, f" and {at}", 0.9) for at in range(5)])
    result = model.transcribe(sound(5.0), batch_size=2)
    assert result.text == "".join(f" {at} and {at}" for at in range(5))
    assert [s.id for s in result.segments] == list(range(10))
    times = [time for s in result.segments for time in (s.start, s.end)]
    assert times == sorted(times)
    assert model.engine.windows == [0, 1, 2, 3, 4]
    assert max(model.engine.together) == 2


def test_text_at_a_windows_end_is_whole(scripted: Scripted) -> None:
    """Sequentially it would be decoded again; here the window ends in a pause."""
    model = scripted((0.0, " a", 0.4, 0.4, " b"))
    result = model.transcribe(sound(1.0), batch_size=4)
    assert [(s.text, s.start, s.end) for s in result.segments] == [
        (" a", 0.0, 0.4),
        (" b", 0.4, 1.0),
    ]
    assert len(model.engine.requests) == 1


def test_a_window_cut_off_by_its_budget_is_taken_up_again(scripted: Scripted) -> None:
    begin = 0
    model = scripted(languages=0)
    tokens = model.engine.tokens((0.0, " a", 0.4, 0.4, " b"))
    model.engine.rows = [Hypothesis(tokens, -0.5, 0.1, "length"), (0.0, " b c", 0.5)]
    result = model.transcribe(sound(1.0), batch_size=4)
    assert [(s.text, round(s.start, 2)) for s in result.segments] == [(" a", begin), (" b c", 0.4)]
    assert [len(mel) for mel in model.engine.mels] == [100, 100]
    np.testing.assert_array_equal(model.engine.mels[1][:60], model.engine.mels[0][40:])


def test_only_poor_windows_of_a_batch_are_tried_again(scripted: Scripted) -> None:
    poor = Hypothesis(tuple(b" x"), -9.0, 0.1, "end")
    model = scripted((0.0, " a", 0.5), poor, (0.0, " c", 0.5), (0.0, " b", 0.5))
    result = model.transcribe(sound(3.0), batch_size=3)
    assert result.text == " a b c"
    assert [request.temperature for request in model.engine.requests] == [0.0, 0.0, 0.0, 0.2]
    assert model.engine.windows == [0, 1, 2, 1]
    assert len(model.engine.mels) == 3


def test_windows_of_a_batch_know_the_carried_prompt_and_the_hotwords(scripted: Scripted) -> None:
    model = scripted((0.0, " a", 0.5), (0.0, " b", 0.5))
    model.transcribe(
        sound(2.0), batch_size=2, initial_prompt="x", carry_initial_prompt=True, hotwords="Zed"
    )
    before = (model._special_tokens.sot_prev, *b" Zed x", model._special_tokens.sot)
    assert [request.prompt for request in model.engine.requests] == [before, before]


@pytest.mark.parametrize(
    ("options", "size"),
    [({}, 6), ({"beam_size": 2}, 3), ({"beam_size": 5}, 1), ({"batch_size": 4}, 4)],
)
def test_auto_takes_what_the_runner_says_fits(
    scripted: Scripted, options: dict[str, Any], size: int
) -> None:
    model = scripted(*[(0.0, " a", 0.5)] * 9)
    assert model.transcribe(sound(9.0), **{"batch_size": "auto"} | options).text == " a" * 9
    assert max(model.engine.together) == size


@pytest.mark.parametrize(
    "options",
    [
        {"condition_on_previous_text": True},
        {"initial_prompt": "x"},
        {"hallucination_silence_threshold": 1.0, "word_timestamps": True},
    ],
)
def test_what_needs_the_window_before_is_refused(
    scripted: Scripted, options: dict[str, Any]
) -> None:
    with pytest.raises(UsageError, match=next(iter(options))):
        scripted().stream(sound(1.0), batch_size=2, **options)


def test_words_in_batches(scripted: Scripted) -> None:
    model = scripted((0.0, " one two", 0.8), (0.0, " three", 0.5))
    result = model.transcribe(sound(2.0), batch_size=2, word_timestamps=True)
    assert [w.word for s in result.segments for w in s.words or ()] == [" one", " two", " three"]
    assert [window for _, _, window in model.engine.aligned] == [0, 1]
    times = [time for s in result.segments for w in s.words or () for time in (w.start, w.end)]
    assert times == sorted(times)
    assert 0 <= times[0] <= times[-1] <= 2.0


def test_words_do_not_depend_on_the_windows_beside_theirs(scripted: Scripted) -> None:
    """The first word is long; how far it is shortened depends on the time since the last speech."""
    starts = [0, 0, 18, 18, 23, 23, 28, 28, 33]  # positions of the text's tokens and of the end

    def align(prompt: Any, end: int, frames: int) -> Alignment:
        weights = np.zeros((1, len(prompt), frames), np.float32)
        for row, at in enumerate(starts, start=len(prompt) - 1 - len(starts)):
            weights[0, row, at : at + 5] = 1
        return Alignment(weights, np.full(len(prompt) - 1, 0.9, np.float32))

    found = []
    for size in (2, 3, 4):
        model = scripted(*[(0.0, " a b c d", 0.7)] * 4)
        model.engine.align = align  # type: ignore[method-assign]
        result = model.transcribe(sound(4.0), batch_size=size, word_timestamps=True)
        found.append([word for segment in result.segments for word in segment.words or ()])
    assert len(found[0]) == 16
    assert found[1] == found[2] == found[0]
