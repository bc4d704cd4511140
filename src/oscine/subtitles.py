"""Subtitles: from segments to cues, and words to lines where a layout asks for it.

Source: SubtitlesWriter.iterate_result in whisper/utils.py, whose cues these are. Segments are taken
one by one, and a cue is given as soon as nothing can be added to it any more.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from oscine.cues import Cue, clause_end, clause_lines, extend_cues, to_milliseconds
from oscine.errors import UsageError
from oscine.options.layout import Layout as Layout
from oscine.terminal import strip_controls
from oscine.types import Segment, Word

MAX_BALANCED_WORDS = (
    300  # words of a cue, minutes of speech: lines of a longer one end where they are full
)
MAX_PAUSE_S = 3.0  # seconds between the starts of two words, over which no cue reaches

# Looked for once in a run of white space, which a hostile vocabulary makes as long as it likes.
_LINE_BREAK_PATTERN = re.compile(r"(?<!\s)\s*[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]\s*")


PLAIN_LAYOUT = Layout()


@dataclass(slots=True)
class _CueBuilder:
    """Builds a cue from words. `indent`: characters before the first word, for a channel's name.

    `spell` gives a word as the format writes it, which takes no more of the width than the word.
    """

    layout: Layout
    indent: int
    spell: Callable[[str], str]
    channel: int | None = None
    lines: list[list[Word]] = field(default_factory=list)
    length: int = 0  # of the last line

    @property
    def words(self) -> list[Word]:
        """All of them, in order."""
        return [word for line in self.lines for word in line]

    def takes(self, word: Word) -> bool:
        """Add a word to the last line or to a new one; False if the page is full."""
        width, most = self.layout.max_line_width, self.layout.max_line_count
        if not self.lines:
            self.length = self.indent
        elif width is None or self.length + len(word.word) <= width:
            self.lines[-1].append(word)
            self.length += len(word.word)
            return True
        elif most is not None and len(self.lines) >= most:
            return False
        else:
            self.length = 0
        self.lines.append([word])
        self.length += len(word.word.strip())
        return True

    def take_after_last_clause(self) -> list[Word]:
        """Take the words out that follow the last clause of a full page, where that is asked."""
        words = self.words
        kept = clause_end(words) if self.layout.clause_breaks else len(words)
        if kept < len(words):
            self.lines = []
            for word in words[:kept]:
                self.takes(word)
        return words[kept:]

    def cues(self) -> Iterator[Cue]:
        """One cue, or one for every word and for every pause between two."""
        words, layout = self.words, self.layout
        if not words:
            return
        width = layout.max_line_width
        if layout.clause_breaks and width is not None and len(words) <= MAX_BALANCED_WORDS:
            count = len(self.lines)
            self.lines = clause_lines(words, width, count, self.indent)
        lengths = [len("".join(word.word for word in line).strip()) for line in self.lines]
        size = self.indent + sum(lengths) + len(lengths) - 1
        whole = Cue(words[0].start, words[-1].end, self._text(None), self.channel, size)
        if not layout.highlight_words:
            yield whole
            return
        last = whole.start
        for word in words:
            if to_milliseconds(last) < to_milliseconds(word.start):
                yield replace(whole, start=last, end=word.start)
            yield replace(whole, start=word.start, end=word.end, text=self._text(word))
            last = word.end

    def _text(self, marked: Word | None) -> str:
        return "\n".join(
            "".join(self._spelled(word, place, marked) for place, word in enumerate(line))
            for line in self.lines
        )

    def _spelled(self, word: Word, place: int, marked: Word | None) -> str:
        """A word at a place of its line, whose first has no space before it."""
        text = self.spell(word.word if place else word.word.strip())
        return _underline(text) if word is marked else text


def cues(
    segments: Iterable[Segment],
    layout: Layout = PLAIN_LAYOUT,
    *,
    named: bool = False,
    spell: Callable[[str], str] = str,
) -> Iterator[Cue]:
    """Cues in order of time, as long as the layout asks; words drive them where segments have any.

    `named`: the first line begins with the name of the channel, which counts in its width. `spell`
    escapes what the format has a meaning for; widths are those of the text before. Raises
    UsageError if the layout asks for what needs words and a segment comes without.
    """
    return extend_cues(_laid_out(segments, layout, named, spell), layout)


def _laid_out(
    segments: Iterable[Segment], layout: Layout, named: bool, spell: Callable[[str], str]
) -> Iterator[Cue]:
    """Cues with the times that their words or segments have."""
    flowing = layout.max_line_count is not None  # cues reach over segments
    page = _CueBuilder(layout, 0, spell)
    last = 0.0
    for segment in segments:
        if segment.words is None and layout.needing_words:
            raise UsageError(f"{layout.needing_words[0]} needs word_timestamps=True")
        words = _visible_words(segment)
        indent = len(channel_name(segment.channel)) if named else 0
        if not flowing or not words or segment.channel != page.channel:
            yield from page.cues()
            page = _CueBuilder(layout, indent, spell, segment.channel)
        if not words and (text := one_line(segment.text)):
            yield Cue(segment.start, segment.end, spell(text), segment.channel, indent + len(text))
        for number, word in enumerate(words):
            full = layout.max_words_per_line and number and not number % layout.max_words_per_line
            if full or (flowing and page.lines and word.start - last > MAX_PAUSE_S):
                yield from page.cues()
                page = _CueBuilder(layout, indent, spell, segment.channel)
            waiting = [word]
            while waiting:
                if page.takes(waiting[0]):
                    del waiting[0]
                    continue
                waiting = page.take_after_last_clause() + waiting
                yield from page.cues()
                page = _CueBuilder(layout, indent, spell, segment.channel)
            last = word.start
        if not flowing:
            yield from page.cues()
            page = _CueBuilder(layout, 0, spell)
    yield from page.cues()


def channel_name(channel: int | None) -> str:
    """The prefix for the text of a channel; empty without split channels."""
    return "" if channel is None else f"Channel {channel}: "


def one_line(text: str) -> str:
    """Text without line breaks, which would end a row or a cue, and other controls but tabs."""
    return _without_line_breaks(text).strip()


def _without_line_breaks(text: str) -> str:
    return _LINE_BREAK_PATTERN.sub(" ", strip_controls(text))


def _visible_words(segment: Segment) -> list[Word]:
    """Words that can be seen, none of which holds a line break or another control."""
    return [
        Word(word.start, word.end, text, word.probability)
        for word in segment.words or ()
        if (text := _without_line_breaks(word.word)).strip()
    ]


def _underline(word: str) -> str:
    bare = word.lstrip()
    return f"{word[: len(word) - len(bare)]}<u>{bare}</u>"
