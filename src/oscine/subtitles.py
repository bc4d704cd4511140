"""Subtitles: from segments to cues, and words to lines where a layout asks for it.

Source: SubtitlesWriter.iterate_result in whisper/utils.py, whose cues these are. Segments are taken
one by one, and a cue is given as soon as nothing can be added to it any more.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from oscine.errors import UsageError
from oscine.options.layout import Layout as Layout
from oscine.terminal import without_controls
from oscine.types import Segment, Word

LONG_PAUSE = 3.0  # seconds between the starts of two words, over which no cue reaches

# Looked for once in a run of white space, which a hostile vocabulary makes as long as it likes.
_LINE_BREAKS = re.compile(r"(?<!\s)\s*[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]\s*")


PLAIN = Layout()


@dataclass(frozen=True, slots=True)
class Cue:
    """Lines that are shown from `start` to `end`, in seconds."""

    start: float
    end: float
    text: str
    channel: int | None = None


@dataclass(slots=True)
class _Page:
    """The words of a cue by lines. `indent` is what stands before the first one, in characters.

    `spell` gives a word as the format writes it, which takes no more of the width than the word.
    """

    indent: int
    spell: Callable[[str], str]
    lines: list[list[Word]] = field(default_factory=list)
    length: int = 0  # of the last line
    channel: int | None = None

    def takes(self, word: Word, layout: Layout) -> bool:
        """Add a word to the last line or to a new one; False if the page is full."""
        width = layout.max_line_width
        if not self.lines:
            self.length = self.indent
        elif width is None or self.length + len(word.word) <= width:
            self.lines[-1].append(word)
            self.length += len(word.word)
            return True
        elif layout.max_line_count is not None and len(self.lines) >= layout.max_line_count:
            return False
        else:
            self.length = 0
        first = Word(word.start, word.end, word.word.strip(), word.probability)
        self.lines.append([first])
        self.length += len(first.word)
        return True

    def cues(self, highlight: bool) -> Iterator[Cue]:
        """One cue, or one for every word and for every pause between two."""
        if not self.lines:
            return
        words = [word for line in self.lines for word in line]
        if not highlight:
            yield Cue(words[0].start, words[-1].end, self._text(None), self.channel)
            return
        last = words[0].start
        for word in words:
            if milliseconds(last) < milliseconds(word.start):
                yield Cue(last, word.start, self._text(None), self.channel)
            yield Cue(word.start, word.end, self._text(word), self.channel)
            last = word.end

    def _text(self, marked: Word | None) -> str:
        return "\n".join(
            "".join(
                _underlined(self.spell(word.word)) if word is marked else self.spell(word.word)
                for word in line
            )
            for line in self.lines
        )


def cues(
    segments: Iterable[Segment],
    layout: Layout = PLAIN,
    *,
    named: bool = False,
    spell: Callable[[str], str] = str,
) -> Iterator[Cue]:
    """Cues in order of time; words drive them where segments have any.

    `named`: the name of a channel will stand in the first line and takes of its width. `spell`
    escapes what the format has a meaning for; widths are those of the text before. Raises
    UsageError if the layout asks for what needs words and a segment comes without.
    """
    flowing = layout.max_line_count is not None  # cues reach over segments
    page = _Page(0, spell)
    last = 0.0
    for segment in segments:
        if segment.words is None and layout.asked:
            raise UsageError(f"{layout.asked[0]} needs word_timestamps=True")
        words = _words(segment)
        indent = len(channel_name(segment.channel)) if named else 0
        if not flowing or not words or segment.channel != page.channel:
            yield from page.cues(layout.highlight_words)
            page = _Page(indent, spell, channel=segment.channel)
        if not words and (text := one_line(segment.text)):
            yield Cue(segment.start, segment.end, spell(text), segment.channel)
        for number, word in enumerate(words):
            full = layout.max_words_per_line and number and not number % layout.max_words_per_line
            pause = flowing and page.lines and word.start - last > LONG_PAUSE
            if full or pause or not page.takes(word, layout):
                yield from page.cues(layout.highlight_words)
                page = _Page(indent, spell, channel=segment.channel)
                page.takes(word, layout)
            last = word.start
        if not flowing:
            yield from page.cues(layout.highlight_words)
            page = _Page(0, spell)
    yield from page.cues(layout.highlight_words)


def channel_name(channel: int | None) -> str:
    """What stands before the text of a channel; nothing where channels are not told apart."""
    return "" if channel is None else f"Channel {channel}: "


def one_line(text: str) -> str:
    """Text without line breaks, which would end a row or a cue, and other controls but tabs."""
    return _unbroken(text).strip()


def _unbroken(text: str) -> str:
    return _LINE_BREAKS.sub(" ", without_controls(text))


def milliseconds(seconds: float) -> int:
    """As they are written."""
    return round(seconds * 1000)


def _words(segment: Segment) -> list[Word]:
    """Words that can be seen, none of which holds a line break or another control."""
    return [
        Word(word.start, word.end, text, word.probability)
        for word in segment.words or ()
        if (text := _unbroken(word.word)).strip()
    ]


def _underlined(word: str) -> str:
    bare = word.lstrip()
    return f"{word[: len(word) - len(bare)]}<u>{bare}</u>"
