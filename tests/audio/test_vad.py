"""Spans of speech: faster-whisper's rules on made-up probabilities, and what always holds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oscine.audio.vad import CHUNK_SAMPLES, Span, VadOptions, pad_spans, speech_spans
from oscine.errors import UsageError


def probabilities(text: str) -> np.ndarray:
    """One chunk a letter: S speech, s between the two thresholds, . silence."""
    return np.array([{"S": 0.9, "s": 0.4, ".": 0.1}[letter] for letter in text], np.float32)


def chunks(text: str, samples: int | None = None, **options) -> list[tuple[float, float]]:
    """Spans in chunks."""
    samples = len(text) * CHUNK_SAMPLES if samples is None else samples
    spans = speech_spans(probabilities(text), samples, VadOptions(**options))
    return [(start / CHUNK_SAMPLES, end / CHUNK_SAMPLES) for start, end in spans]


def milliseconds(count: float) -> float:
    """So many chunks."""
    return count * CHUNK_SAMPLES / 16


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("", []),
        ("....", []),
        ("ssss", []),  # between the thresholds nothing begins
        ("SSSS", [(0, 4)]),
        ("..SS..", [(2, 4)]),
        ("..SS.", [(2, 4)]),  # it ends where the silence begins, also at the end
        ("..SSss....", [(2, 6)]),  # between the thresholds nothing ends
        ("SS..SS....", [(0, 6)]),  # a pause too short to end it
        ("SS...SS...", [(0, 2), (5, 7)]),
        ("SS..s.SS", [(0, 2), (6, 8)]),  # nor does what lies between them make it speech again
        ("SS.S.S...S", [(0, 6), (9, 10)]),
    ],
)
def test_where_speech_begins_and_ends(text, spans):
    assert chunks(text, min_silence_duration_ms=milliseconds(2)) == spans


def test_the_last_chunk_may_be_cut_short():
    assert chunks("..SS", 3 * CHUNK_SAMPLES + 100) == [(2, 3 + 100 / CHUNK_SAMPLES)]


def test_short_speech_is_left_out():
    text = "S.....SSSS.....SS"
    silence = {"min_silence_duration_ms": milliseconds(2)}
    assert len(chunks(text, **silence)) == 3
    found = chunks(text, min_speech_duration_ms=milliseconds(3), **silence)
    assert found == [(6, 10)]


def long(chunks_long: int, **options) -> dict:
    """Options under which a span has at most so many chunks."""
    seconds = milliseconds(chunks_long + 1) / 1000
    return {"max_speech_duration_s": seconds, "speech_pad_ms": 0, **options}


def test_a_long_span_is_split_at_its_last_silence():
    # Pauses of six and of five chunks (more than 98 ms) lie inside; the first 20 hold both.
    text = "SSS......SS.....SSSSSSSSSSSS"
    assert chunks(text, **long(20)) == [(0, 11), (16, 28)]
    assert chunks(text, **long(12)) == [(0, 3), (9, 11), (16, 28)]


def test_a_long_span_without_silence_is_split_where_it_is_and_loses_nothing():
    assert chunks("S" * 25, **long(10)) == [(0, 11), (11, 22), (22, 25)]
    assert chunks("S" * 10 + ".." + "S" * 5, **long(10)) == [(0, 10), (12, 17)]


def test_a_long_span_that_ends_in_silence_just_ends():
    assert chunks("S" * 8 + "." * 30, **long(12)) == [(0, 8)]


def test_padding():
    options = VadOptions(speech_pad_ms=100, min_silence_duration_ms=0)  # 1600 samples
    spans = [Span(1000, 5000), Span(7001, 9000), Span(20_000, 21_000)]
    assert pad_spans(spans, 30_000, options) == [(0, 6000), (6000, 10_600), (18_400, 22_600)]
    assert pad_spans([Span(20_000, 29_500)], 30_000, options) == [(18_400, 30_000)]
    assert pad_spans([], 30_000, options) == []


def test_what_is_around_all_speech_is_kept_like_a_pause():
    options = VadOptions(speech_pad_ms=0, min_silence_duration_ms=100)
    assert pad_spans([Span(0, 1000)], 2599, options) == [(0, 2599)]
    assert pad_spans([Span(0, 1000)], 2600, options) == [(0, 1000)]
    assert pad_spans([Span(1599, 2000)], 2000, options) == [(0, 2000)]
    assert pad_spans([Span(1600, 2000)], 2000, options) == [(1600, 2000)]


options_strategy = st.builds(
    VadOptions,
    threshold=st.floats(0.05, 1),
    neg_threshold=st.none() | st.floats(0, 0.05),
    min_speech_duration_ms=st.integers(0, 300),
    max_speech_duration_s=st.floats(0.05, 5) | st.just(math.inf),
    min_silence_duration_ms=st.integers(0, 500),
    speech_pad_ms=st.integers(0, 500),
)


@given(
    levels=st.lists(st.tuples(st.floats(0, 1, width=32), st.integers(1, 30)), max_size=12),
    missing=st.integers(0, CHUNK_SAMPLES - 1),
    options=options_strategy,
)
@settings(max_examples=200, deadline=None)
def test_what_always_holds(levels, missing, options):
    heard = np.array([level for level, count in levels for _ in range(count)], np.float32)
    samples = max(0, len(heard) * CHUNK_SAMPLES - missing)
    spans = speech_spans(heard, samples, options)
    last = 0
    for start, end in spans:
        assert last <= start < end <= samples
        assert end - start > options.min_speech_duration_ms * 16
        last = end
    longest = max(
        options.max_speech_duration_s * 16_000 - 32 * options.speech_pad_ms, 2 * CHUNK_SAMPLES
    )
    assert all(end - start <= longest for start, end in spans)
    if not options.min_speech_duration_ms:  # no chunk of speech is lost
        inside = np.zeros(samples, bool)
        for start, end in spans:
            inside[start:end] = True
        for chunk in np.flatnonzero(heard.astype("f8") >= options.threshold):
            assert inside[chunk * CHUNK_SAMPLES : (chunk + 1) * CHUNK_SAMPLES].all()
    padded = pad_spans(spans, samples, options)
    assert len(padded) == len(spans)
    last = 0
    for inner, outer in zip(spans, padded, strict=True):
        assert last <= outer.start <= inner.start < inner.end <= outer.end <= samples
        last = outer.end


@pytest.mark.parametrize(
    "wrong",
    [
        {"threshold": 0.0}, {"threshold": 1.1}, {"threshold": math.nan}, {"neg_threshold": 0.6},
        {"neg_threshold": -0.1}, {"speech_pad_ms": -1}, {"min_silence_duration_ms": math.inf},
        {"min_speech_duration_ms": math.nan}, {"max_speech_duration_s": 0},
    ],
)  # fmt: skip
def test_options_out_of_range(wrong):
    with pytest.raises(UsageError, match=next(iter(wrong))):
        VadOptions(**wrong)


def test_the_lower_threshold():
    assert VadOptions().silent_below == pytest.approx(0.35)
    assert VadOptions(threshold=0.1).silent_below == 0.01
    assert VadOptions(threshold=0.005).silent_below == 0.005
    assert VadOptions(neg_threshold=0.2).silent_below == 0.2
