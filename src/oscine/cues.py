"""How long a cue is shown and where its lines end: what readers need, done to cues that are made.

Source: Netflix, Timed Text Style Guide, General Requirements (least duration, reading speed, line
treatment). No cue is moved to an earlier time, and none reaches over the next.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from oscine.options.layout import MIN_CUE_S, Layout
from oscine.types import Word

#: What ends a clause or a sentence, the Chinese, Indic, Arabic and Armenian marks included. A mark
#: of closing may follow.
CLAUSE_ENDS = ",;:.!?…—–，、；：。！？·।॥،؛؟։"
SENTENCE_ENDS = ".!?…。！？।॥؟։"
_CLOSING = "\"'”’)]}»」』）】"
_WITHIN_CLAUSE, _AFTER_CLAUSE = 3.0, 1.0  # costs of a line that ends there, in whole empty lines


@dataclass(frozen=True, slots=True)
class Cue:
    """Lines that are shown from `start` to `end`, in seconds.

    `size` is how many characters are read: those of the text before the format's escapes.
    """

    start: float
    end: float
    text: str
    channel: int | None = None
    size: int = 0


def to_milliseconds(seconds: float) -> int:
    """As they are written."""
    return round(seconds * 1000)


def extend_cues(cues: Iterable[Cue], layout: Layout) -> Iterator[Cue]:
    """The same texts in the same order, in cues that last as long as the layout asks.

    A cue that is too short for its text or for any text lasts into the silence after it, up to the
    next one. Where that is not enough for the least time, it becomes one with the next, unless the
    layout's limits on words and lines are in the way. A cue that is long enough is given at once.
    """
    if layout.highlight_words:  # each cue is a word's turn
        yield from cues
        return
    held: Cue | None = None
    for cue in cues:
        if held is not None and should_merge(held, cue, layout):
            cue = merged(held, cue, layout)
        elif held is not None:
            yield extended(held, cue, layout)
        held = cue if to_milliseconds(cue.end) < min_end_ms(cue, layout) else None
        if held is None:
            yield cue
    if held is not None:
        yield extended(held, None, layout)


def min_duration_ms(layout: Layout) -> int:
    """Milliseconds that every cue lasts."""
    return to_milliseconds(MIN_CUE_S if layout.min_cue_time is None else layout.min_cue_time)


def min_end_ms(cue: Cue, layout: Layout) -> int:
    """When a cue may end, in milliseconds: after the least time, and once its text can be read."""
    reading = 0 if layout.max_cps is None else math.ceil(cue.size * 1000 / layout.max_cps)
    return to_milliseconds(cue.start) + max(min_duration_ms(layout), reading)


def extended(cue: Cue, after: Cue | None, layout: Layout) -> Cue:
    """A cue that lasts as long as it should, as far as the next one lets it.

    Over a cue of another channel, which is another voice, it may reach for a few frames.
    """
    end = min_end_ms(cue, layout) / 1000
    if after is not None and after.channel == cue.channel:
        end = min(end, after.start)
    elif after is not None:
        end = min(end, max(after.start, cue.start + MIN_CUE_S))
    return replace(cue, end=max(cue.end, end))


def should_merge(cue: Cue, after: Cue, layout: Layout) -> bool:
    """Whether a cue has no room for its least time, and becomes one with the cue after it."""
    start, least = to_milliseconds(cue.start), min_duration_ms(layout)
    if to_milliseconds(cue.end) >= start + least or cue.channel != after.channel:
        return False
    if (
        not 0 <= to_milliseconds(after.start) - start < least
        or layout.max_words_per_line is not None
    ):
        return False
    lines = (cue.text + _cue_separator(cue, after, layout) + after.text).count("\n") + 1
    return layout.max_line_count is None or lines <= layout.max_line_count


def merged(cue: Cue, after: Cue, layout: Layout) -> Cue:
    """Two cues as one: in one line where it has room for them, else line after line."""
    between = _cue_separator(cue, after, layout)
    size = cue.size + after.size + len(between)
    end = max(cue.end, after.end)
    return Cue(cue.start, end, cue.text + between + after.text, cue.channel, size)


def _cue_separator(cue: Cue, after: Cue, layout: Layout) -> str:
    """The separator between the texts of two merged cues: a space or a line break.

    It is empty if either text is in a script without spaces.
    """
    wide = any(
        unicodedata.east_asian_width(each) in "WF" for each in (cue.text[-1:], after.text[:1])
    )
    space = "" if wide else " "
    if layout.max_line_width is None:
        return space
    fits = cue.size + len(space) + after.size <= layout.max_line_width
    return space if fits and "\n" not in cue.text + after.text else "\n"


def ends_clause(word: str, marks: str = CLAUSE_ENDS) -> bool:
    """Whether a clause ends with a word, or a sentence by its `marks`; "3," and "e.g." do too."""
    return word.rstrip().rstrip(_CLOSING)[-1:] in tuple(marks)


def clause_end(words: Sequence[Word]) -> int:
    """How many of a full cue's words it keeps, so that it ends with a sentence or else a clause.

    At least half of the characters stay; where no clause ends behind them, all words do.
    """
    sizes = [len(word.word) for word in words]
    half = sum(sizes) / 2
    for marks in (SENTENCE_ENDS, CLAUSE_ENDS):
        for count in range(len(words), 0, -1):
            if sum(sizes[:count]) < half:
                break
            if ends_clause(words[count - 1].word, marks):
                return count
    return len(words)


def clause_lines(words: Sequence[Word], width: int, count: int, indent: int) -> list[list[Word]]:
    """Words in `count` lines of at most `width` characters, which end after clauses if they can.

    Of all ways to break them, the one with the least cost: of each line's end, and of how unequal
    lines are. The first line begins after `indent` characters. A word that is longer than a line
    has one of its own. The words fit, as they have been laid out in as many lines before.
    """
    total = len(words)
    best: dict[tuple[int, int], tuple[float, int]] = {(0, 0): (0.0, 0)}  # (lines, words) so far
    for line in range(1, count + 1):
        for end in range(line, total + 1):
            for start in range(end - 1, line - 2, -1):
                cost = _line_cost(words, start, end, width, 0 if start else indent)
                if cost == math.inf:  # as are those of all longer lines
                    break
                if (line - 1, start) in best:
                    way = (best[line - 1, start][0] + cost, start)
                    best[line, end] = min(way, best.get((line, end), way))
    breaks = [total]
    for line in range(count, 0, -1):
        breaks.append(best[line, breaks[-1]][1])
    edges = breaks[::-1]
    return [list(words[start:end]) for start, end in pairwise(edges)]


def _line_cost(words: Sequence[Word], start: int, end: int, width: int, indent: int) -> float:
    """Of a line of some of the words; infinite where they are too long for one."""
    length = indent + len("".join(word.word for word in words[start:end]).strip())
    if length > width and end - start > 1:
        return math.inf
    empty = max(0, width - length) / width
    if end == len(words) or ends_clause(words[end - 1].word, SENTENCE_ENDS):
        return empty**2
    clause = ends_clause(words[end - 1].word)
    return empty**2 + (_AFTER_CLAUSE if clause else _WITHIN_CLAUSE)
