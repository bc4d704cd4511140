"""The loop around the decoder: seek, prompts, attempts, languages, times, progress, cancelling."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oscine.audio.timeline import Timeline
from oscine.audio.vad import Span
from oscine.errors import AudioError, Cancelled, UsageError
from oscine.models.transcription import clip_frames
from oscine.models.whisper.executors import pack_params
from oscine.models.whisper.pipeline import Whisper
from oscine.models.whisper.sequences import Hypothesis

from .conftest import HearsAll

Scripted = Callable[..., Whisper]


def sound(seconds: float) -> np.ndarray:
    """Quiet noise at 16 kHz."""
    return np.random.default_rng(0).normal(0, 0.1, round(seconds * 16000)).astype(np.float32)


def test_segments_and_seek_follow_the_timestamps(scripted: Scripted) -> None:
    model = scripted(
        (0.0, " one", 0.4, 0.4, " two", 0.7, 0.7, " cut of"),  # continue at 0.70
        (0.0, " cut off", 0.6),  # no pair: the window is done
        (0.1, " end", 0.2),
    )
    result = model.transcribe(sound(2.0))
    assert result.text == " one two cut off end"
    assert [(s.id, s.seek, s.text) for s in result.segments] == [
        (0, 0, " one"), (1, 0, " two"), (2, 70, " cut off"), (3, 170, " end"),
    ]  # fmt: skip
    times = [time for s in result.segments for time in (s.start, s.end)]
    assert times == pytest.approx([0, 0.4, 0.4, 0.7, 0.7, 1.3, 1.7, 1.9])
    assert (result.language, result.duration) == ("en", 2.0)
    assert (result.model, result.device) == ("script", "script")
    assert result.segments[0].tokens == model.engine.tokens((0.0, " one", 0.4))
    assert result.timings["encode"] == 3.0  # of this call's three windows
    assert result.timings["total"] >= result.timings["audio"] > 0


def test_earlier_text_is_the_next_prompt(scripted: Scripted) -> None:
    model = scripted((0.0, " a", 0.5), (0.0, " b", 0.5), (0.0, " c", 0.5))
    model.transcribe(sound(3.0), initial_prompt="hi ")
    tokens, asked = model._special_tokens, model.engine.requests
    first, before = model.engine.tokens((0.0, " a", 0.5)), tokens.sot_prev
    assert asked[0].prompt == (before, *b" hi", tokens.sot)
    assert asked[1].prompt == (before, *b" hi", *first, tokens.sot)
    assert asked[1].sot_index == len(asked[1].prompt) - 1
    assert len(asked[2].prompt) <= 32  # half of the context is for history
    assert asked[2].max_new_tokens == min(32, 64 - len(asked[2].prompt))


@pytest.mark.parametrize(
    ("options", "second"),
    [
        ({"condition_on_previous_text": False}, b""),
        ({"condition_on_previous_text": False, "initial_prompt": "x"}, b""),
        ({"initial_prompt": "x", "carry_initial_prompt": True, "temperature": 0.6}, b" x"),
    ],
)
def test_history_can_be_dropped(scripted: Scripted, options: dict[str, Any], second: bytes) -> None:
    model = scripted((0.0, " a", 0.5), (0.0, " b", 0.5))
    model.transcribe(sound(2.0), **options)
    before = (model._special_tokens.sot_prev, *second) if second else ()
    assert model.engine.requests[1].prompt == (*before, model._special_tokens.sot)


def test_prefix_and_no_timestamps_end_the_prompt(scripted: Scripted) -> None:
    model = scripted((" b",))
    result = model.transcribe(sound(1.0), prefix="a", without_timestamps=True)
    request = model.engine.requests[0]
    assert request.prompt == (
        model._special_tokens.sot,
        model._special_tokens.no_timestamps,
        *b" a",
    )
    assert not request.timestamps
    assert [(s.start, s.end, s.text) for s in result.segments] == [(0.0, 1.0, " b")]


def test_request_carries_the_options(scripted: Scripted) -> None:
    model = scripted((" a",), (" a",))
    model.transcribe(sound(1.0))
    default = model.engine.requests[0]
    assert set(default.suppress_tokens) == {1, 2} | model._special_tokens.always_suppressed()
    assert default.begin_suppress_tokens == (32, 256)
    assert (default.max_initial_timestamp_index, default.temperature, default.best_of) == (
        50,
        0.0,
        1,
    )
    model.transcribe(
        sound(1.0),
        suppress_tokens="",
        suppress_blank=False,
        max_initial_timestamp=None,
        sample_len=5,
        temperature=0.4,
        best_of=3,
    )
    other = model.engine.requests[1]
    assert set(other.suppress_tokens) == model._special_tokens.always_suppressed()
    assert other.begin_suppress_tokens == ()
    assert (other.max_initial_timestamp_index, other.max_new_tokens) == (None, 5)
    assert (other.temperature, other.best_of) == (0.4, 3)


def test_poor_windows_are_tried_warmer(scripted: Scripted) -> None:
    unlikely = Hypothesis(tuple(b" x"), -9.0, 0.1, "end")
    model = scripted(unlikely, Hypothesis(tuple(b"y" * 8), -0.1, 0.1, "repeat"), (0.0, " ok", 0.5))
    result = model.transcribe(sound(1.0))
    assert [request.temperature for request in model.engine.requests] == [0.0, 0.2, 0.4]
    assert [request.best_of for request in model.engine.requests] == [1, 5, 5]
    assert len({request.seed for request in model.engine.requests}) == 3
    assert (result.text, result.segments[0].temperature) == (" ok", 0.4)
    assert len(model.engine.mels) == 1  # encoded once


@pytest.mark.parametrize(("scores", "text"), [((-9.0, -8.0), " 1"), ((-7.0, -8.0), " 0")])
def test_of_poor_attempts_the_likeliest_stands(
    scripted: Scripted, scores: tuple[float, ...], text: str
) -> None:
    rows = [Hypothesis(tuple(b" %d" % at), score, 0.1, "end") for at, score in enumerate(scores)]
    assert scripted(*rows).transcribe(sound(1.0), temperature=(0, 1)).text == text


def test_an_attempt_that_runs_in_circles_stands_last(scripted: Scripted) -> None:
    loop = Hypothesis(tuple(b" yes" * 20), -0.1, 0.1, "end")
    other = Hypothesis(tuple(b" no"), -9.0, 0.1, "end")
    assert scripted(loop, other).transcribe(sound(1.0), temperature=(0, 1)).text == " no"


def test_silence_is_skipped_and_says_nothing(scripted: Scripted) -> None:
    silence = Hypothesis(tuple(b" Thank you."), -20.0, 0.9, "end")
    model = scripted(silence, (0.0, " then", 0.5))
    result = model.transcribe(sound(2.0), initial_prompt="x")
    assert [(s.id, s.seek, s.text) for s in result.segments] == [(0, 100, " then")]
    assert model.engine.requests[1].prompt[:3] == (model._special_tokens.sot_prev, *b" x")


def test_blank_and_instantaneous_segments_are_dropped(scripted: Scripted) -> None:
    model = scripted((0.0, " a", 0.2, 0.2, "  ", 0.4, 0.4, " b", 0.4, 0.5, " c", 0.6))
    result = model.transcribe(sound(1.0))
    assert [s.text for s in result.segments] == [" a", " c"]
    assert [s.id for s in result.segments] == [0, 1]


def test_no_broken_character_where_a_segment_ends(scripted: Scripted) -> None:
    day = "日".encode()
    model = scripted((0.0, day[:2], 0.4, 0.4, day[2:], " a", 0.6, 0.6, day[:1], 0.8))
    assert model.transcribe(sound(1.0)).text == "日 a"


def test_times_stay_inside_the_audio_and_in_order(scripted: Scripted) -> None:
    model = scripted((0.0, " a", 0.3, 0.3, " b", 0.9), (0.0, " c", 0.5))
    result = model.transcribe(sound(0.455))
    assert [(s.start, s.end) for s in result.segments] == [(0.0, 0.3), (0.3, 0.455)]


ROW = st.lists(st.sampled_from([0.0, 0.2, 0.5, 0.9, 1.0, " a", " ", "é"]), max_size=8).map(tuple)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None
)
@given(rows=st.lists(ROW, min_size=1, max_size=5), seconds=st.floats(0.0001, 3.0))
def test_whatever_the_model_says_the_result_is_sound(
    scripted: Scripted, rows: list[tuple[Any, ...]], seconds: float
) -> None:
    model = scripted(*(rows * 400))
    seen: list[tuple[float, float]] = []
    result = model.transcribe(
        sound(seconds), temperature=0, progress=lambda done, total: seen.append((done, total))
    )
    times = [time for s in result.segments for time in (s.start, s.end)]
    assert times == sorted(times)
    assert all(0 <= time <= result.duration for time in times)
    assert all(s.text.strip() and "\ufffd" not in s.text for s in result.segments)
    assert [s.id for s in result.segments] == list(range(len(result.segments)))
    assert seen == sorted(seen)
    assert seen[-1] == (result.duration, result.duration)
    seeks = [s.seek for s in result.segments]
    assert seeks == sorted(seeks)


@pytest.mark.parametrize("count", [1, 100, 200, 16000])
def test_clips_of_a_sample_and_more_are_decoded(scripted: Scripted, count: int) -> None:
    result = scripted((0.0, " a", 0.5)).transcribe(sound(1.0)[:count])
    assert [(s.text, s.end) for s in result.segments] == [(" a", min(0.5, count / 16000))]


def test_no_audio_is_an_empty_result(scripted: Scripted) -> None:
    model = scripted(languages=3)
    result = model.transcribe(np.zeros(0, np.float32))
    assert (result.text, result.segments, result.duration) == ("", (), 0.0)
    assert not model.engine.mels


def test_clip_timestamps_choose_what_is_read(scripted: Scripted) -> None:
    model = scripted((0.0, " a", 0.9), (0.0, " b", 0.3))
    result = model.transcribe(sound(3.0), clip_timestamps="0.5,1,2.5")
    assert [(s.seek, s.start, s.end) for s in result.segments] == [(50, 0.5, 1.0), (250, 2.5, 2.8)]


def test_clips_lie_inside_the_recording() -> None:
    clips = [(0.0, 0.5), (0.5, 0.5), (2.0, None), (9.0, 12.0)]
    line = Timeline.identity(48000)
    assert clip_frames(clips, 300, line) == [(0, 50), (200, 300)]
    kept = Timeline([Span(0, 4000), Span(40000, 48000)], 48000)  # from 0.25 to 2.5 s nothing
    assert clip_frames(clips, 75, kept) == [(0, 25), (25, 75)]


def test_language_is_detected_once_on_the_window_already_encoded(scripted: Scripted) -> None:
    model = scripted((0.0, " a", 0.5), (0.0, " b", 0.5), languages=3)
    result = model.transcribe(sound(2.0))
    (detection,), (first, second) = model.engine.detected, model.engine.requests
    assert result.language == "zh"
    assert detection.sot == model._special_tokens.sot
    assert detection.ids == list(model._special_tokens.languages.values())
    expected = (
        model._special_tokens.sot,
        model._special_tokens.languages["zh"],
        model._special_tokens.transcribe,
    )
    assert first.prompt == expected
    assert second.prompt[-3:] == expected
    assert len(model.engine.mels) == 2


def test_detect_language(scripted: Scripted) -> None:
    code, shares = scripted(languages=3).detect_language(sound(1.0))
    assert code == "zh"
    assert shares == pytest.approx({"en": 0.1, "zh": 0.7, "de": 0.1})


def test_asked_language_and_task_are_in_the_prompt(scripted: Scripted) -> None:
    model = scripted((" a",), languages=3)
    assert model.transcribe(sound(1.0), language="German", task="translate").language == "de"
    expected = (
        model._special_tokens.sot,
        model._special_tokens.languages["de"],
        model._special_tokens.translate,
    )
    assert model.engine.requests[0].prompt == expected


@pytest.mark.parametrize(
    ("languages", "options", "problem"),
    [
        (0, {"language": "de"}, "script is English-only and does not support language de"),
        (0, {"task": "translate"}, "script is English-only and cannot translate"),
        (0, {"multilingual": True}, "script is English-only and cannot detect languages"),
        (3, {"language": "fr"}, "script does not support language fr; it supports en, zh, de"),
        (0, {"suppress_tokens": "99999"}, "suppress_tokens: 99999 is not an id"),
        (0, {"prefix": "a", "sample_len": 40}, "sample_len=40 leaves no room for a prefix"),
    ],
)
def test_refused_before_any_work(
    scripted: Scripted, languages: int, options: dict[str, Any], problem: str
) -> None:
    model = scripted(languages=languages)
    with pytest.raises(UsageError, match=problem):
        model.stream(sound(1.0), **options)


def test_english_only_models_do_not_detect(scripted: Scripted) -> None:
    assert scripted((" a",)).transcribe(sound(1.0), language="english").language == "en"
    with pytest.raises(UsageError, match="script is English-only and cannot detect"):
        scripted().detect_language(sound(1.0))


@pytest.mark.parametrize("seconds", [1e10, 1e308])
def test_times_far_beyond_the_end_are_the_end(scripted: Scripted, seconds: float) -> None:
    model = scripted((0.0, " a", 0.5))
    options = {"max_initial_timestamp": seconds, "clip_timestamps": [0, seconds]}
    assert model.transcribe(sound(1.0), **options).text == " a"
    assert model.engine.requests[0].max_initial_timestamp_index == 50  # all of the window


@pytest.mark.parametrize(
    ("length", "clips", "why"),
    [
        (0, "0", "it is shorter than 10 ms"),
        (1, "5", "clip_timestamps selects nothing"),
        (1, "0,0", "clip_"),
    ],
)
def test_nothing_to_transcribe_is_said(
    scripted: Scripted, caplog: pytest.LogCaptureFixture, length: int, clips: str, why: str
) -> None:
    told: list[tuple[float, float]] = []
    result = scripted().transcribe(
        sound(length), clip_timestamps=clips, progress=lambda *seconds: told.append(seconds)
    )
    assert result.segments == ()
    assert told == [(result.duration, result.duration)]
    assert [record.getMessage() for record in caplog.records] == [
        record.getMessage() for record in caplog.records if why in record.getMessage()
    ]
    assert len(caplog.records) == 1


def test_channels_without_speech_are_named_and_count_as_done(
    scripted: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[tuple[float, float]] = []
    quiet = np.zeros((16000, 3), np.float32)
    model = scripted()
    model.transcribe(
        (quiet, 16000),
        vad_filter=True,
        split_channels=True,
        progress=lambda *seconds: told.append(seconds),
    )
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [
        "array, channel 1", "array, channel 2", "array, channel 3",
    ]  # fmt: skip
    assert told == [(pytest.approx(part / 3), 1.0) for part in (1, 2, 3)]


@pytest.mark.parametrize("name", ["prefix", "initial_prompt", "hotwords"])
@pytest.mark.parametrize("blank", ["", " ", "\n"])
def test_a_blank_prompt_is_none(scripted: Scripted, name: str, blank: str) -> None:
    model = scripted((0.0, " a", 0.5))
    model.transcribe(sound(1.0), **{name: blank})
    assert model.engine.requests[0].prompt == (model._special_tokens.sot,)


@pytest.mark.parametrize("more", [{}, {"initial_prompt": "x", "carry_initial_prompt": True}])
def test_hotwords_without_end_leave_room_for_text(scripted: Scripted, more: dict[str, Any]) -> None:
    model = scripted(*[(0.0, " aaaaaaaaaa", 1.0)] * 6)
    model.transcribe(sound(6.0), hotwords="word " * 1000, **more)
    (prompt,) = {request.prompt for request in model.engine.requests}
    assert len(prompt) == 33  # half the context, and the start
    assert {request.max_new_tokens for request in model.engine.requests} == {31}


def test_a_run_longer_than_any_text_is_never_met_twice(scripted: Scripted) -> None:
    model = scripted((0.0, " a", 0.5))
    model.transcribe(sound(1.0), no_repeat_ngram_size=2**40)
    assert pack_params(model.engine.requests[0], 300, 0)["no_repeat_ngram"] == 64


def test_an_encoder_alone_can_only_encode(scripted: Scripted) -> None:
    model = HearsAll(scripted().engine, None, "tower")
    encoded = model.encode(sound(0.5))
    assert encoded.shape == (50, 8) and encoded[0, 0] == -1
    assert model.engine.mels[0].shape == (100, 4)
    with pytest.raises(UsageError, match="tower has no text decoder"):
        model.transcribe(sound(0.5))


def test_a_missing_file_is_told_at_once(scripted: Scripted) -> None:
    with pytest.raises(AudioError, match=r"nowhere\.wav"):
        scripted().stream("nowhere.wav")


@pytest.mark.parametrize("kind", ["callable", "event"])
def test_cancelling_stops_inside_a_window_and_keeps_what_is_done(
    scripted: Scripted, kind: str
) -> None:
    event = threading.Event()
    model = scripted((0.0, " a", 0.5), (0.0, " b", 0.5))
    stream = model.stream(sound(2.0), cancel=event if kind == "event" else event.is_set)
    assert next(stream).text == " a"
    event.set()
    with pytest.raises(Cancelled, match="cancelled") as caught:
        next(stream)
    assert caught.value.partial is not None
    assert caught.value.partial.text == " a"
    assert len(model.engine.requests) == 1


def test_cancel_is_asked_while_a_window_is_decoded(scripted: Scripted) -> None:
    model = scripted((0.0, " a", 0.5))
    with pytest.raises(Cancelled):
        model.transcribe(sound(1.0), cancel=lambda: bool(model.engine.waiting))
    assert len(model.engine.rows) == 1  # stopped before the window's answer
    assert [sequence.cancel_requested for sequence in model.engine.waiting] == [True]


def test_to_stop_iterating_is_to_cancel(scripted: Scripted) -> None:
    model = scripted((0.0, " a", 0.5), (0.0, " b", 0.5))
    stream = model.stream(sound(2.0))
    next(stream)
    assert stream.transcript().text == " a"
    assert len(model.engine.requests) == 1


def test_interleaved_streams_do_not_share_a_window(scripted: Scripted) -> None:
    model = scripted(
        (0.0, " a", 0.5, 0.5, " b", 0.7), (0.0, " A", 0.5), (0.0, " c", 0.5), languages=3
    )
    one, other = model.stream(sound(2.0)), model.stream(sound(0.5), language="en")
    assert [next(one).text, next(other).text, next(one).text, next(one).text] == [
        " a", " A", " b", " c",
    ]  # fmt: skip
    assert len(model.engine.mels) == 3


def test_the_best_of_several_samples_is_taken(scripted: Scripted) -> None:
    model = scripted((0.0, " a", 0.5))
    rows = [Hypothesis(model.engine.tokens((0.0, text, 0.5)), score, 0.1, "end")
            for text, score in [(" a", -3.0), (" b", -1.0), (" c", -2.0)]]  # fmt: skip
    model.engine.decode = lambda request: tuple(rows)  # type: ignore[method-assign]
    assert model.transcribe(sound(1.0), temperature=1.0, best_of=3).text == " b"
    assert replace(rows[0], sum_logprob=0.0).avg_logprob == 0.0
