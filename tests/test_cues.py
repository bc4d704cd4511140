"""How long cues are shown and where lines end: cases, and rules that hold for any words."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oscine.cues import Cue, clause_end, clause_lines, ends_clause, extend_cues, to_milliseconds
from oscine.errors import UsageError
from oscine.formats import render
from oscine.options.layout import MIN_CUE_S
from oscine.subtitles import Layout, cues
from oscine.types import Segment, Transcript, Word

from .bounded import run_bounded
from .test_subtitles import PACED, spoken, talks


def cue(start: float, end: float, text: str, channel: int | None = None) -> Cue:
    return Cue(start, end, text, channel, len(text))


def shown(layout: Layout, *given: Cue) -> list[tuple[float, float, str]]:
    return [(each.start, each.end, each.text) for each in extend_cues(given, layout)]


def test_cues_of_a_few_frames_last_into_silence_or_become_one_with_the_next() -> None:
    talk = (cue(0, 2, "A."), cue(2, 2.04, "B."), cue(2.04, 4, "C."), cue(5, 5.02, "D."))
    assert shown(Layout(), *talk) == [
        (0, 2, "A."), (2, 4, "B. C."), (5, 5.125, "D.")
    ]  # fmt: skip
    assert shown(Layout(min_cue_time=0), *talk) == [(c.start, c.end, c.text) for c in talk]
    close = (cue(0, 0.02, "A."), cue(0.1, 0.14, "B."), cue(0.2, 3, "C."))
    assert shown(Layout(), *close) == [(0, 0.14, "A. B."), (0.2, 3, "C.")]


def test_a_least_time_is_held_by_joining_where_there_is_no_silence() -> None:
    talk = (cue(0, 0.5, "Yes."), cue(0.5, 0.9, "No."), cue(0.9, 3, "Or so."), cue(8, 8.4, "Ah."))
    assert shown(Layout(min_cue_time=1.0), *talk) == [
        (0, 3, "Yes. No. Or so."), (8, 9, "Ah.")
    ]  # fmt: skip
    assert shown(Layout(min_cue_time=0.8), *talk) == [
        (0, 0.9, "Yes. No."), (0.9, 3, "Or so."), (8, 8.8, "Ah.")
    ]  # fmt: skip
    wide = Layout(min_cue_time=1.0, max_line_width=9)
    assert shown(wide, *talk)[0] == (0, 3, "Yes. No.\nOr so.")
    full = Layout(min_cue_time=1.0, max_line_width=9, max_line_count=1)
    assert [text for *_, text in shown(full, *talk)] == ["Yes. No.", "Or so.", "Ah."]


def test_chinese_is_joined_without_a_space() -> None:
    assert shown(Layout(), cue(0, 0.04, "今天"), cue(0.04, 2, "很好。")) == [(0, 2, "今天很好。")]


def test_channels_are_not_joined_and_have_their_frames() -> None:
    talk = (cue(0, 0.04, "A.", 1), cue(0.04, 2, "B.", 2))
    assert shown(Layout(min_cue_time=1), *talk) == [(0, MIN_CUE_S, "A."), (0.04, 2, "B.")]


def test_reading_speed_takes_the_silence_there_is_and_no_more() -> None:
    talk = (cue(0, 1, "x" * 34), cue(1.5, 2, "x" * 34), cue(9, 10, "x" * 17))
    assert shown(Layout(max_cps=17), *talk) == [
        (0, 1.5, "x" * 34), (1.5, 3.5, "x" * 34), (9, 10, "x" * 17)
    ]  # fmt: skip


def test_what_a_format_escapes_is_read_as_one_character() -> None:
    said = Segment(0, 0, 0.0, 1.0, "&<>&<>&<>", (), 0.0, 0.0, 0.0, 0.0)
    whole = Transcript("", "en", (said,), 9.0, "", "")
    for layout in (Layout(max_cps=9), Layout(max_cps=4.5)):
        ends = {render(whole, name, layout).split(" --> ")[1][-13:] for name in ("srt", "vtt")}
        times = {render(whole, name, layout).split("\n\n")[-2].splitlines()[-2][-6:]
                 for name in ("srt", "vtt")}  # fmt: skip
        assert len({each.replace(",", ".") for each in times}) == 1, ends


@pytest.mark.parametrize(
    ("word", "ends"),
    [
        *((" so.", True), (" so,", True), (' so."', True), ("。", True), ("，", True), ("؟", True)),
        *((" (so)", False), (" so", False), ("", False), (" 3.5", False), (" well…", True)),
    ],
)
def test_ends_of_clauses(word: str, ends: bool) -> None:
    assert ends_clause(word) == ends


SAID = "The old man, who had been there before, did not say much. He was tired."


def words_of(text: str) -> list[Word]:
    return [
        Word(place / 2, place / 2 + 0.5, f" {word}", 1.0) for place, word in enumerate(text.split())
    ]


def test_lines_and_cues_end_after_clauses() -> None:
    said = spoken(0, *((word.start, word.end, word.word) for word in words_of(SAID)))
    full = Layout(max_line_width=30, max_line_count=2)
    assert [each.text for each in cues([said], full)] == [
        "The old man, who had been\nthere before, did not say",
        "much. He was tired.",
    ]
    clauses = Layout(max_line_width=30, max_line_count=2, clause_breaks=True)
    assert [each.text for each in cues([said], clauses)] == [
        "The old man,\nwho had been there before,",
        "did not say much.\nHe was tired.",
    ]
    lines = Layout(max_line_width=34, clause_breaks=True)
    assert [each.text for each in cues([said], lines)] == [
        "The old man,\nwho had been there before,\ndid not say much. He was tired."
    ]


def test_a_cue_keeps_at_least_half_of_what_fits() -> None:
    assert clause_end(words_of("No, that is not what I said")) == 7
    assert clause_end(words_of("That is not what I said, so")) == 6
    assert clause_end(words_of("It was so. And he said, that")) == 6
    assert clause_end(words_of("And there it was. He said, that")) == 4  # a sentence before


TEXTS = st.lists(
    st.sampled_from([" a", " word", " no,", " so.", " incomprehensible", "世", "。"]),
    min_size=1,
    max_size=9,
).map(lambda texts: [Word(at, at + 1, text, 1.0) for at, text in enumerate(texts)])


@given(TEXTS, st.integers(1, 20), st.integers(0, 9))
def test_lines_are_the_best_there_are(words: list[Word], width: int, indent: int) -> None:
    """Of all ways to break words into as many lines, none has fewer lines that end in a clause."""

    def fits(lines: list[list[Word]]) -> bool:
        return all(
            len(line) == 1
            or len("".join(w.word for w in line).strip()) <= width - (0 if number else indent)
            for number, line in enumerate(lines)
        )

    def within(lines: list[list[Word]]) -> int:
        return sum(not ends_clause(line[-1].word) for line in lines[:-1])

    for count in range(1, len(words) + 1):
        ways = [
            [words[start:end] for start, end in pairwise((0, *breaks, len(words)))]
            for breaks in combinations(range(1, len(words)), count - 1)
        ]
        if possible := [lines for lines in ways if fits(lines)]:
            lines = clause_lines(words, width, count, indent)
            assert lines in possible
            # Two lines more within a clause cost more than any lengths gain.
            assert within(lines) <= min(map(within, possible)) + 1
            return


@given(talks(), PACED)
def test_limits_hold_where_they_can(segments: tuple[Segment, ...], layout: Layout) -> None:
    made = list(cues(segments, layout))
    least = MIN_CUE_S if layout.min_cue_time is None else layout.min_cue_time
    for each, after in zip(made, [*made, None][1:], strict=True):
        lasts = to_milliseconds(each.end) - to_milliseconds(each.start)
        meets = after is not None and to_milliseconds(each.end) == to_milliseconds(after.start)
        if not meets:  # there was silence to take
            assert lasts >= to_milliseconds(least)
            assert not layout.max_cps or len(each.text) * 1000 <= layout.max_cps * (lasts + 1e-6)
        if layout.max_words_per_line is None and layout.max_line_count is None:
            assert lasts >= to_milliseconds(least)


def test_lines_of_a_very_long_segment_take_no_long() -> None:
    """A model may be told to end no segment; balance costs the square of its words."""
    code = """
from oscine.subtitles import Layout, cues
from oscine.types import Segment, Word
words = tuple(Word(at, at + 1, " so,", 1.0) for at in range(20_000))
said = Segment(0, 0, 0.0, 20_000.0, " so," * 20_000, (), 0.0, 0.0, 0.0, 0.0, words)
for count in (None, 20_000):
    list(cues([said], Layout(max_line_width=40, max_line_count=count, clause_breaks=True)))
"""
    run_bounded(code, [])


@given(talks())
def test_what_is_long_enough_stays_as_it_is(segments: tuple[Segment, ...]) -> None:
    made = [(each.start, each.end, each.text) for each in cues(segments, Layout(min_cue_time=0))]
    if all(to_milliseconds(end) - to_milliseconds(start) >= 125 for start, end, _ in made):
        assert [(each.start, each.end, each.text) for each in cues(segments)] == made


def test_a_cue_that_is_long_enough_does_not_wait_for_the_next() -> None:
    seen: list[int] = []

    def arriving() -> Iterator[Cue]:
        for number, each in enumerate([cue(0, 1, "A."), cue(1, 1.02, "B."), cue(5, 6, "C.")]):
            seen.append(number)
            yield each

    given = extend_cues(arriving(), Layout())
    assert (next(given).text, seen) == ("A.", [0])
    assert (next(given).text, seen) == ("B.", [0, 1, 2])


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"clause_breaks": True}, "clause_breaks needs max_line_width"),
        ({"max_cps": 17, "highlight_words": True}, "max_cps does not go with highlight_words"),
        ({"min_cue_time": 1, "highlight_words": True}, "min_cue_time does not go with"),
        ({"min_cue_time": "1"}, "min_cue_time must be 0 to 60 seconds, not '1'"),
        ({"min_cue_time": 61}, "min_cue_time must be 0 to 60 seconds"),
        ({"max_cps": float("nan")}, "max_cps must be 1 to 1000 characters a second"),
        ({"max_cps": 0.5}, "max_cps must be 1 to 1000 characters a second"),
    ],
)
def test_a_pace_that_cannot_be_is_refused(options: dict[str, object], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        Layout(**options)  # type: ignore[arg-type]
