"""Cues: openai-whisper's lines for the same words, and rules that hold for any words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oscine.cues import Cue
from oscine.errors import UsageError
from oscine.formats import LINE_FORMATS, SUBTITLE_FORMATS, render
from oscine.subtitles import MAX_PAUSE_S, Layout, cues
from oscine.types import Segment, Transcript, Word


def spoken(id: int, *words: tuple[float, float, str], channel: int | None = None) -> Segment:
    timed = tuple(Word(start, end, word, 0.5) for start, end, word in words)
    text = "".join(word.word for word in timed)
    start, end = timed[0].start, timed[-1].end
    return Segment(id, 0, start, end, text, (), 0.0, 0.0, 0.0, 0.0, timed, channel=channel)


FIRST = spoken(0, (0.5, 1.0, " The"), (1.0, 1.5, " quick"), (1.75, 2.0, " brown"))
SECOND = spoken(1, (2.0, 2.5, " fox"), (2.5, 3.0, " jumps."))
LATER = spoken(2, (9.0, 9.5, " Over."))
ALL = (FIRST, SECOND, LATER)


def lines(layout: Layout, *segments: Segment) -> list[tuple[float, float, str]]:
    return [(cue.start, cue.end, cue.text) for cue in cues(segments, layout)]


def test_without_a_layout_a_segment_is_a_cue_with_the_times_of_its_words() -> None:
    assert lines(Layout(), replace(FIRST, start=0.0, end=4.0), LATER) == [
        (0.5, 2.0, "The quick brown"),
        (9.0, 9.5, "Over."),
    ]


# What whisper/utils.py gives for the same words.
def test_a_width_breaks_lines_and_keeps_segments() -> None:
    assert lines(Layout(max_line_width=10), *ALL) == [
        (0.5, 2.0, "The quick\nbrown"),
        (2.0, 3.0, "fox jumps."),
        (9.0, 9.5, "Over."),
    ]


def test_a_count_of_lines_lets_cues_reach_over_segments_but_not_over_pauses() -> None:
    assert lines(Layout(max_line_width=10, max_line_count=2), *ALL) == [
        (0.5, 2.5, "The quick\nbrown fox"),
        (2.5, 3.0, "jumps."),
        (9.0, 9.5, "Over."),
    ]


def test_so_many_words_and_then_a_new_cue() -> None:
    assert lines(Layout(max_words_per_line=2), *ALL) == [
        (0.5, 1.5, "The quick"),
        (1.75, 2.0, "brown"),
        (2.0, 3.0, "fox jumps."),
        (9.0, 9.5, "Over."),
    ]


def test_every_word_is_underlined_in_its_turn_and_none_in_pauses() -> None:
    assert lines(Layout(max_line_width=9, highlight_words=True), FIRST) == [
        (0.5, 1.0, "<u>The</u> quick\nbrown"),
        (1.0, 1.5, "The <u>quick</u>\nbrown"),
        (1.5, 1.75, "The quick\nbrown"),
        (1.75, 2.0, "The quick\n<u>brown</u>"),
    ]


def test_text_without_spaces_breaks_between_its_words() -> None:
    chinese = spoken(0, *((t / 10, t / 10 + 0.1, word) for t, word in enumerate("今天天气很好。")))
    assert lines(Layout(max_line_width=4), chinese) == [(0.0, 0.7, "今天天气\n很好。")]


def test_a_word_that_is_too_long_stands_alone() -> None:
    long = spoken(0, (0.0, 1.0, " a"), (1.0, 2.0, " incomprehensible"), (2.0, 3.0, " b"))
    assert [text for *_, text in lines(Layout(max_line_width=6), long)] == [
        "a\nincomprehensible\nb"
    ]


def test_channels_share_no_cue_and_their_names_take_width() -> None:
    layout = Layout(max_line_width=20, max_line_count=2)
    talk = (replace(FIRST, channel=1), replace(SECOND, channel=2))
    whole = Transcript("", "en", talk, 3.0, "", "")
    assert render(whole, "srt", layout) == (
        "1\n00:00:00,500 --> 00:00:02,000\nChannel 1: The quick\nbrown\n\n"
        "2\n00:00:02,000 --> 00:00:03,000\nChannel 2: fox\njumps.\n\n"
    )
    assert render(whole, "vtt", layout) == (
        "WEBVTT\n\n00:00.500 --> 00:02.000\n<v Channel 1>The quick brown\n\n"
        "00:02.000 --> 00:03.000\n<v Channel 2>fox jumps.\n\n"
    )


def test_a_segment_whose_words_are_none_is_not_lost() -> None:
    bare = replace(SECOND, words=())
    layout = Layout(max_line_width=30, max_line_count=2)
    assert [cue.text for cue in cues((FIRST, bare, LATER), layout)] == [
        "The quick brown",
        "fox jumps.",
        "Over.",
    ]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"max_line_count": 2}, "max_line_count needs max_line_width"),
        (
            {"max_words_per_line": 2, "max_line_width": 40},
            "max_words_per_line does not go with max_line_width",
        ),
        ({"max_line_width": 0}, "max_line_width must be a whole number from 1, not 0"),
        ({"max_words_per_line": 1.5}, "max_words_per_line must be a whole number"),
    ],
)
def test_a_layout_that_cannot_be_is_refused(options: dict[str, int], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        Layout(**options)


@pytest.mark.parametrize(
    "layout", [Layout(max_line_width=9), Layout(max_words_per_line=1), Layout(highlight_words=True)]
)
@pytest.mark.parametrize("name", SUBTITLE_FORMATS)
def test_a_layout_needs_words(name: str, layout: Layout) -> None:
    whole = Transcript("", "en", (replace(FIRST, words=None),), 3.0, "", "")
    with pytest.raises(UsageError, match=f"{layout.needing_words[0]} needs word_timestamps=True"):
        render(whole, name, layout)


def test_a_cue_comes_as_soon_as_nothing_can_be_added_to_it() -> None:
    seen: list[int] = []

    def arriving() -> Iterator[Segment]:
        for segment in ALL:
            seen.append(segment.id)
            yield segment

    shaped = cues(arriving(), Layout(max_line_width=10))
    assert (next(shaped).text, seen) == ("The quick\nbrown", [0])
    seen.clear()
    shaped = cues(arriving(), Layout(max_line_width=10, max_line_count=2))
    assert (next(shaped).text, seen) == ("The quick\nbrown fox", [0, 1])
    assert (next(shaped).text, seen) == ("jumps.", [0, 1, 2])


PACE = {
    "min_cue_time": st.none() | st.sampled_from([0, 0.3, 1.0, 5]),
    "max_cps": st.none() | st.sampled_from([1, 12.5, 20]),
}
#: What is done with cues that are not a word each.
PACED = st.one_of(
    st.builds(Layout, **PACE),
    st.builds(
        Layout,
        max_line_width=st.integers(1, 30),
        max_line_count=st.none() | st.integers(1, 3),
        clause_breaks=st.booleans(),
        **PACE,
    ),
    st.builds(Layout, max_words_per_line=st.integers(1, 5), **PACE),
)
LAYOUTS = st.one_of(
    PACED,
    st.builds(Layout, highlight_words=st.booleans()),
    st.builds(Layout, max_line_width=st.integers(1, 30), highlight_words=st.booleans()),
    st.builds(
        Layout,
        max_line_width=st.integers(1, 30),
        max_line_count=st.integers(1, 3),
        highlight_words=st.booleans(),
    ),
    st.builds(Layout, max_words_per_line=st.integers(1, 5), highlight_words=st.booleans()),
)
WORDS = st.tuples(
    st.sampled_from([0.0, 0.02, 0.5, MAX_PAUSE_S + 1]),  # silence before it
    st.sampled_from([0.0, 0.1, 0.7]),  # its length
    st.sampled_from(
        [" a", " word", "-ish", " incomprehensible", "世", "界", "。", " x\ny", " no,", ' so."']
    ),
)


@st.composite
def talks(draw: st.DrawFn) -> tuple[Segment, ...]:
    """Segments with words in order of time."""
    now, segments = 0.0, []
    for id, words in enumerate(draw(st.lists(st.lists(WORDS, min_size=1, max_size=8), max_size=5))):
        timed = []
        for silence, length, word in words:
            start = now + silence
            now = start + length
            timed.append((start, now, word))
        segments.append(spoken(id, *timed))
    return tuple(segments)


def plain(cue: Cue) -> str:
    return cue.text.replace("<u>", "").replace("</u>", "")


@given(talks(), LAYOUTS)
def test_cues_of_any_words(segments: tuple[Segment, ...], layout: Layout) -> None:
    made = list(cues(segments, layout))
    assert made == list(cues(iter(segments), layout))
    edges = [edge for cue in made for edge in (cue.start, cue.end)]
    assert edges == sorted(edges)  # in order, and no two overlap
    words = {word.word.strip().replace("\n", " ") for each in segments for word in each.words or ()}
    for cue in made:
        rows = plain(cue).split("\n")
        assert all(rows)  # an empty line would end the cue
        assert len(rows) <= (layout.max_line_count or len(rows))
        for row in rows:
            assert row == row.strip()
            assert len(row) <= (layout.max_line_width or len(row)) or row in words
    if not layout.highlight_words:
        shown = "".join(cue.text for cue in made)
        said = "".join(segment.text for segment in segments)
        assert "".join(shown.split()) == "".join(said.split())


@given(talks(), LAYOUTS)
def test_every_word_has_its_turn(segments: tuple[Segment, ...], layout: Layout) -> None:
    marked = replace(layout, highlight_words=True, min_cue_time=None, max_cps=None)
    lit = [
        cue.text.partition("<u>")[2].partition("</u>")[0]
        for cue in cues(segments, marked)
        if "<u>" in cue.text
    ]
    words = [word.word.strip() for segment in segments for word in segment.words or ()]
    assert lit == [word.replace("\n", " ") for word in words]


@given(talks(), LAYOUTS, st.sampled_from(SUBTITLE_FORMATS))
def test_one_by_one_is_all_at_once(
    segments: tuple[Segment, ...], layout: Layout, name: str
) -> None:
    whole = Transcript("", "en", segments, 60.0, "", "")
    assert "".join(LINE_FORMATS[name](iter(segments), layout)) == render(whole, name, layout)
