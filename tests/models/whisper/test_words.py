"""Words into segments: planted answers by upstream's rules, and what holds for any timings."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import example, given
from hypothesis import strategies as st

from oscine.models.whisper.timing import WordTiming
from oscine.models.whisper.words import (
    WindowTimes,
    add_word_timestamps,
    last_word_end,
    make_monotonic,
    merge_punctuations,
)
from oscine.options.transcribe import APPEND_PUNCTUATIONS, PREPEND_PUNCTUATIONS, WordOptions
from oscine.types import Segment

END = 1000  # <|endoftext|>; timestamps are above


def timed(*words: tuple[str, float, float]) -> list[WordTiming]:
    """Words of one token each."""
    return [WordTiming(word, (at,), start, end, 0.5) for at, (word, start, end) in enumerate(words)]


def segment(start: float, end: float, text: str, count: int) -> Segment:
    tokens = (END + 1, *[1] * count, END + 2)
    return Segment(0, 0, start, end, text, tokens, 0.0, 0.0, 0.0, 0.0)


def add(
    segments: list[Segment], timings: list[WordTiming], **changes: float
) -> tuple[list[Segment], float]:
    window = replace(WindowTimes(0.0, 30.0, content_end=1000.0, last_speech=0.0), **changes)
    return add_word_timestamps(segments, timings, window, WordOptions(), END)


def times(row: Segment) -> list[tuple[str, float, float]]:
    return [(word.word, word.start, word.end) for word in row.words or ()]


def test_marks_go_to_the_words_they_belong_to() -> None:
    words = timed(
        (' "', 0, 1), (" (", 1, 2), (" Yes", 2, 3), (",", 3, 4), (' "', 4, 5), ("!", 5, 6),
        (" he", 6, 7), (" -", 7, 8), (" said", 8, 9), (".", 9, 10), ('"', 10, 11), (" [", 11, 12),
    )  # fmt: skip
    merged = merge_punctuations(words, PREPEND_PUNCTUATIONS, APPEND_PUNCTUATIONS)
    assert [(word.word, word.start, word.end) for word in merged] == [
        (' " ( Yes,', 2, 3),
        (' "!', 5, 6),
        (" he", 6, 7),
        (' - said."', 8, 9),
        (" [", 11, 12),
    ]
    assert [word.tokens for word in merged[:2]] == [(0, 1, 2, 3), (4, 5)]
    assert merge_punctuations(words, "", "") == words
    assert merge_punctuations([], "", "") == []


def test_words_and_segments_get_their_times() -> None:
    segments = [segment(10.0, 12.0, " one two.", 3), segment(12.0, 14.0, " three", 1)]
    words = timed((" one", 0.3, 0.6), (" two", 0.6, 1.0), (".", 1.0, 1.2), (" three", 2.3, 2.7))
    (first, second), last = add(segments, words, start=10.0, last_speech=9.5)
    assert times(first) == [(" one", 10.3, 10.6), (" two.", 10.6, 11.0)]
    assert times(second) == [(" three", 12.3, 12.7)]
    assert [(row.start, row.end) for row in (first, second)] == [(10.3, 11.0), (12.3, 12.7)]
    assert last == last_word_end([first, second]) == 12.7


def test_a_pause_at_a_sentence_end_belongs_to_no_word() -> None:
    text = " a b. c d! e"
    words = timed(
        (" a", 0.0, 0.2), (" b", 0.2, 0.4), (".", 0.4, 0.6), (" c", 0.6, 3.0), (" d", 3.0, 3.2),
        ("!", 3.2, 5.0), (" e", 5.0, 5.2),
    )  # fmt: skip
    ((row,), _) = add([segment(0.0, 5.2, text, 7)], words)
    assert times(row) == [
        (" a", 0.0, 0.2),
        (" b.", 0.2, 0.4),
        (" c", 2.6, 3.0),  # twice the median, before its end
        (" d!", 3.0, 3.2),
        (" e", 5.0, 5.2),
    ]


def test_a_first_word_after_a_pause_is_shortened() -> None:
    words = timed((" a", 0.0, 5.0), (" b", 5.0, 5.2), (" c", 5.2, 5.4))
    ((row,), _) = add([segment(0.0, 5.4, " a b c", 3)], words)
    assert times(row)[0] == (" a", 4.6, 5.0)
    assert row.start == 4.6
    # So is the second where both are long.
    words = timed((" a", 0.0, 0.2), (" b", 0.2, 8.0), (" c", 8.0, 8.2), (" d", 8.2, 8.4))
    ((row,), _) = add([segment(0.0, 8.4, " a b c d", 4)], words, start=20.0)
    assert times(row)[:2] == [(" a", 27.2, 27.6), (" b", 27.6, 28.0)]


def test_segments_hold_their_words_and_shorten_those_far_off() -> None:
    words = timed((" a", 0.0, 0.9), (" b", 0.9, 1.2), (" c", 1.2, 1.5), (" d", 1.5, 3.0))
    ((row,), last) = add([segment(0.7, 2.0, " a b c d", 4)], words)
    # usual: 0.6; the first begins more than 0.5 s early, the last ends more than 0.5 s late
    assert (row.start, row.end) == (0.3, 2.1)
    assert times(row)[0] == (" a", 0.3, 0.9)
    assert times(row)[-1] == (" d", 1.5, 2.1)
    assert last == 2.1


def test_a_word_over_two_segments_is_cut_with_the_text() -> None:
    words = [
        WordTiming(" so", (1,), 0.0, 0.4, 0.5),
        WordTiming(" hello", (2, 3), 0.4, 0.8, 0.5),
        WordTiming(" you", (4,), 0.8, 1.2, 0.5),
    ]
    first, second = add([segment(0, 0.6, " so hel", 2), segment(0.6, 2, "lo you", 2)], words)[0]
    assert times(first) == [(" so", 0.0, 0.4), (" hel", 0.4, 0.6)]
    assert times(second) == [("lo", 0.6, 0.8), (" you", 0.8, 1.2)]


def test_a_mark_at_a_seam_stays_in_its_segment() -> None:
    words = timed((" one", 0.0, 0.4), (". ", 0.4, 0.6), (".", 0.6, 0.8), (" two", 0.8, 1.2))
    segments = [segment(0, 0.6, " one. ", 2), segment(0.6, 2, ". two", 2)]
    first, second = add(segments, words)[0]
    assert [word for word, *_ in times(first)] == [" one", ". "]
    assert [word for word, *_ in times(second)] == [".", " two"]


def test_bytes_that_a_segment_leaves_out_are_in_no_word() -> None:
    words = timed((" a", 0.0, 0.2), ("\ufffd b", 0.2, 0.4), (" c\ufffd", 0.4, 0.6))
    ((row,), _) = add([segment(0, 0.6, " a b c", 3)], words)
    assert [word for word, *_ in times(row)] == [" a", " b", " c"]


def test_unknown_times_are_shared_out_evenly() -> None:
    words = timed((" a", 0, 0), (" b", 0, 0), (".", 0, 0), (" c", 0, 0))
    segments = [segment(4.0, 4.6, " a b.", 3), segment(5.0, 5.01, " c", 1)]
    (first, second), last = add(segments, words, start=4.0, content_end=5.01)
    assert times(first) == [(" a", 4.0, 4.2), (" b.", 4.2, 4.4)]
    assert times(second) == [(" c", 4.99, 5.01)]
    assert last == 5.01


def test_segments_without_text_have_no_words_and_keep_their_times() -> None:
    (first, second), last = add(
        [segment(1.0, 2.0, "", 0), segment(2.0, 3.0, " a", 1)], timed((" a", 2.2, 2.5))
    )
    assert (first.words, first.start, first.end) == ((), 1.0, 2.0)
    assert times(second) == [(" a", 2.2, 2.5)]
    assert last == 2.5
    assert add([], [], last_speech=7.0) == ([], 7.0)
    assert last_word_end([first]) == 2.0
    assert last_word_end([]) is None


def test_words_of_no_length_get_some_where_there_is_room() -> None:
    assert make_monotonic([(1.0, 1.0), (1.0, 1.0), (1.0, 1.5)], 0, 200) == [
        (100, 102),
        (102, 104),
        (104, 150),
    ]
    assert make_monotonic([(1.0, 2.0), (2.0, 2.0)], 0, 200) == [(100, 198), (198, 200)]
    assert make_monotonic([(1.0, 1.0)] * 3, 100, 104) == [(100, 101), (101, 102), (102, 103)]
    assert make_monotonic([(1.0, 1.0)] * 3, 100, 100) == [(100, 100)] * 3
    assert make_monotonic([(1.0, 2.0), (1.5, 3.0)], 120, 250) == [(120, 200), (200, 250)]


@st.composite
def windows(draw: st.DrawFn) -> tuple[list[Segment], list[WordTiming], dict[str, float]]:
    """Any words, timed in order, over any segments."""
    offset = draw(st.integers(0, 100)) / 10
    vocabulary = st.sampled_from([" a", " be", "s", " (", '"', ".", "、", "日", " cat"])
    at, words, texts = 0, [], []
    for number in range(draw(st.integers(0, 8))):
        parts = draw(st.lists(vocabulary, min_size=1, max_size=3))
        after = at + draw(st.sampled_from([0, 0, 1, 8, 20, 90]))
        tokens = (number,) * len(parts)
        words.append(WordTiming("".join(parts), tokens, at / 50, after / 50, 0.5))
        texts += parts
        at = after
    cuts = sorted(draw(st.lists(st.integers(0, len(texts)), max_size=3)))
    segments, time = [], offset
    for first, after in zip([0, *cuts], [*cuts, len(texts)], strict=True):
        start = time + draw(st.integers(0, 50)) / 50
        time = start + draw(st.integers(0, 100)) / 50
        segments.append(segment(start, time, "".join(texts[first:after]), after - first))
    bounds = {
        "start": offset,
        "last_speech": max(0.0, offset - draw(st.integers(-5, 50)) / 10),
        "content_end": offset + draw(st.floats(0, 12)),
    }
    return segments, words, bounds


BEFORE_ITS_PREDECESSOR = (
    [segment(0.0, 0.0, " a", 1)],
    [WordTiming(" a", (0,), 0.0, 0.0, 0.5)],
    {"start": 0.0, "last_speech": 0.1, "content_end": 1.0},
)


@example(BEFORE_ITS_PREDECESSOR)
@given(windows())
def test_any_words_are_in_order_inside_and_make_the_text(
    window: tuple[list[Segment], list[WordTiming], dict[str, float]],
) -> None:
    segments, timings, bounds = window
    found, last = add(segments, timings, **bounds)
    words = [word for row in found for word in row.words or ()]
    assert ["".join(word.word for word in row.words or ()) for row in found] == [
        row.text for row in segments
    ]
    moments = [moment for word in words for moment in (word.start, word.end)]
    assert moments == sorted(moments)
    for moment in moments:
        assert 0 <= moment <= bounds["content_end"]
    if words:
        assert moments[0] >= min(bounds["last_speech"], bounds["content_end"]) - 0.01
        assert last == words[-1].end
        room = min(bounds["content_end"], words[-1].end) - bounds["last_speech"]
        if room > 0.02 * len(words) + 0.02:
            assert min(word.end - word.start for word in words) > 0.0199
    for row in found:
        if row.words:
            assert (row.start, row.end) == (row.words[0].start, row.words[-1].end)
