"""Made-up text between silences: each branch of the rule, by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from oscine.models.whisper.hallucination import is_segment_anomaly, skip_hallucinations
from oscine.models.whisper.words import WindowTimes
from oscine.types import Segment, Word


def segment(start: float, end: float, probability: float = 0.9, count: int = 4) -> Segment:
    """`count` words of equal length."""
    step = (end - start) / max(1, count)
    words = tuple(
        Word(start + at * step, start + (at + 1) * step, f" w{at}", probability)
        for at in range(count)
    )
    return Segment(0, 0, start, end, " said", (1,), 0.0, 0.0, 0.0, 0.0, words)


def skip(*segments: Segment, **changes: Any) -> tuple[list[Segment], float | None]:
    given: dict[str, Any] = {"threshold": 2.0, "single_ending": True}
    times = {name: changes.pop(name) for name in ("content_end", "last_speech") if name in changes}
    window = replace(WindowTimes(60.0, 90.0, content_end=200.0, last_speech=60.0), **times)
    return skip_hallucinations(segments, window, **(given | changes))


GOOD, BAD = 0.9, 0.1


@pytest.mark.parametrize(
    ("words", "anomaly"),
    [
        ([(0.3, GOOD)] * 4, False),
        ([(0.3, BAD)] * 2, True),  # every word improbable
        ([(0.3, BAD)] * 3 + [(0.3, GOOD)] * 9, True),  # three points
        ([(0.3, BAD)] * 2 + [(0.3, GOOD)] * 9, False),
        ([(0.3, GOOD)] * 8 + [(0.3, BAD)] * 9, False),  # only the first eight count
        ([(0.02, GOOD)] * 2, True),  # 1.695 each: too short
        ([(3.5, GOOD), (0.3, GOOD)], False),  # 1.5 of 2
        ([(5.0, GOOD), (0.3, GOOD)], True),  # too long
        ([], False),
    ],
)
def test_anomalies(words: list[tuple[float, float]], anomaly: bool) -> None:
    assert is_segment_anomaly([Word(5.0, 5.0 + long, " w", p) for long, p in words]) is anomaly


def test_punctuation_is_not_judged() -> None:
    marks = [Word(1.0, 1.0, mark, 0.01) for mark in "?!,."]
    assert not is_segment_anomaly([*marks, Word(1.0, 1.4, " yes", GOOD)])
    assert not is_segment_anomaly(None)


def test_good_words_change_nothing() -> None:
    segments = (segment(61, 63), segment(80, 82))
    assert skip(*segments) == (list(segments), None)
    assert skip() == ([], None)


@pytest.mark.parametrize(
    ("end", "changes", "seek"),
    [
        (85.0, {}, 85.0),  # on from the last word, however little is left of the window
        (89.0, {}, 89.0),
        (89.0, {"content_end": 89.5}, 89.0),
        (85.0, {"content_end": 86.0}, 85.0),
        (85.0, {"single_ending": True}, None),
    ],
)
def test_text_cut_off_by_the_window(
    end: float, changes: dict[str, Any], seek: float | None
) -> None:
    segments = [segment(80, end)]
    assert skip(*segments, **({"single_ending": False} | changes)) == (segments, seek)


def test_words_that_end_before_the_window_do_not_seek() -> None:
    segments = [segment(58.0, 60.0)]
    assert skip(*segments, single_ending=False) == (segments, None)


def test_silence_before_a_first_segment_that_looks_made_up_is_skipped() -> None:
    assert skip(segment(66, 68, BAD), segment(70, 72)) == ([], 66)
    # Neither the end of the text nor an empty segment before it matters.
    empty = segment(60, 61, count=0)
    assert skip(empty, segment(66, 68, BAD), single_ending=False) == ([], 66)
    near = (segment(61.5, 63, BAD), segment(63.1, 65))
    assert skip(*near) == (list(near), None)


@pytest.mark.parametrize(
    ("segments", "kept", "seek"),
    [
        # silence on both sides
        ([segment(61, 63), segment(70, 71, BAD), segment(80, 82)], 1, 70),
        # speech close before, or close after
        ([segment(61, 69), segment(70, 71, BAD), segment(80, 82)], 3, None),
        ([segment(61, 63), segment(70, 71, BAD), segment(72, 82)], 3, None),
        # the next one looks hallucinated, too
        ([segment(61, 63), segment(70, 71, BAD), segment(72, 82, BAD)], 1, 70),
        # nothing follows: silence to the end of the window, or near it
        ([segment(61, 63), segment(70, 71, BAD)], 1, 70),
        ([segment(61, 63), segment(88, 89, BAD)], 1, 88),
        # at the window's beginning: on from where it ends, or a second further at most
        ([segment(60.5, 61.5, BAD), segment(70, 72)], 0, 61),
        ([segment(60.2, 60.6, BAD), segment(70, 72)], 0, 60.6),
        ([segment(60.0, 60.3, BAD), segment(60.3, 69, BAD)], 0, 60.3),
        ([segment(60.0, 60.0, BAD), segment(60.3, 69, BAD)], 0, 60.1),
        # segments without words count neither as silence nor as text
        ([segment(61, 63), segment(64, 65, count=0), segment(70, 71, BAD)], 2, 70),
    ],
)
def test_made_up_text_between_silences(
    segments: list[Segment], kept: int, seek: float | None
) -> None:
    assert skip(*segments) == (segments[:kept], seek)


@pytest.mark.parametrize(
    ("end", "changes", "seek"),
    [
        (88.9, {"content_end": 90.0}, 90.0),  # all of it was decoded, without more text
        (88.9, {"content_end": 90.5}, 88),  # the end of the recording is in no window yet
        (88.9, {"content_end": 93.0, "threshold": 5.0}, 88),
    ],
)
def test_the_end_of_a_recording_is_decoded_before_it_is_done(
    end: float, changes: dict[str, Any], seek: float
) -> None:
    segments = [segment(61, 63), segment(end - 0.9, end, BAD)]
    assert skip(*segments, **changes) == (segments[:1], pytest.approx(seek))
    late = [segment(61, 63), segment(86, 87, BAD), segment(87.2, 89, BAD)]
    assert skip(*late, content_end=89.5, threshold=4.0) == (late[:1], 86)  # it has more text


def test_speech_that_is_heard_is_not_dropped() -> None:
    segments = [segment(61, 63), segment(70, 71, BAD), segment(80, 82)]
    asked: list[tuple[float, float]] = []

    def is_speech(start: float, end: float) -> bool:
        asked.append((start, end))
        return True

    assert skip(*segments, is_speech=is_speech) == (segments, None)
    assert asked == [(70, 71)]
    assert skip(*segments, is_speech=lambda start, end: False) == (segments[:1], 70)


def test_speech_before_the_window_counts() -> None:
    segments = [segment(63, 64, BAD), segment(70, 72)]
    assert skip(*segments, threshold=4.0, last_speech=60.0) == (segments, None)
    assert skip(*segments, threshold=4.0, last_speech=58.0) == ([], 63)


def test_made_up_text_near_the_end_of_the_audio_ends_it() -> None:
    segments = [segment(61, 63), segment(70, 71, BAD)]
    assert skip(*segments, content_end=72.0, threshold=1.5) == (
        segments,
        None,
    )  # too little silence after
    assert skip(*segments, content_end=72.9, threshold=1.5) == (segments[:1], 70)
    late = [segment(61, 63), segment(88.5, 89, BAD)]
    assert skip(*late, content_end=90.0) == (late[:1], 90.0)
