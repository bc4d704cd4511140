"""A window's words into its segments: punctuation, words too long to be true, order and bounds.

Source: whisper/timing.py (merge_punctuations, add_word_timestamps), with these differences. A
word belongs to the segment that its text is in, so that a segment's words make its text; a word
of no length is given some; words never overlap, within a window or over two; where the alignment
says nothing, words share their segment's time; and a segment reaches from the start of its first
word to the end of its last, so that none lies outside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from oscine.models.whisper.timing import WordTiming
from oscine.options.transcribe import WordOptions
from oscine.types import Segment, Word

SENTENCE_ENDS = ".。!！?？"
LONGEST_USUAL = 0.7  # seconds: the usual length of a word is never taken to be more
BELIEVABLE = 0.5  # seconds that a word may stick out of what the timestamps say
SHORTEST = 2  # hundredths of a second: one position of the encoder


@dataclass(frozen=True, slots=True)
class WindowTimes:
    """A window among what is listened to, in seconds.

    `end` is that of a whole window (30 s), which may be past `content_end`, the end of the audio or
    clip. `last_speech`: the end of the last word, or segment, before this window.
    """

    start: float
    end: float
    content_end: float
    last_speech: float


def merge_punctuations(words: Sequence[WordTiming], prepend: str, append: str) -> list[WordTiming]:
    """Opening marks to the word after them, closing ones to the word before, with its times."""
    merged: list[WordTiming] = []
    for word in reversed(words):
        if merged and word.word.startswith(" ") and word.word.strip() in prepend:
            merged[-1] = _glue(merged[-1], word, merged[-1])
        else:
            merged.append(word)
    words, merged = merged[::-1], []
    for word in words:
        if merged and not merged[-1].word.endswith(" ") and word.word in append:
            merged[-1] = _glue(merged[-1], merged[-1], word)
        else:
            merged.append(word)
    return merged


def _glue(times: WordTiming, first: WordTiming, second: WordTiming) -> WordTiming:
    return replace(times, word=first.word + second.word, tokens=first.tokens + second.tokens)


def add_words(
    segments: Sequence[Segment],
    timings: list[WordTiming],
    window: WindowTimes,
    options: WordOptions,
    end_of_text: int,
) -> tuple[list[Segment], float]:
    """The window's segments with their words, and when the last of these ends.

    `timings`: words of all text tokens (ids < `end_of_text`) of `segments`, in seconds from the
    start of the window. Words are in order, do not overlap, lie between the window's `last_speech`
    and `content_end`, and have at least 0.02 s each where there is room. A segment without text has
    no words and keeps its times.
    """
    counts = [sum(id < end_of_text for id in segment.tokens) for segment in segments]
    usual, rows = 0.0, []
    if lengths := [word.end - word.start for word in timings if word.end != word.start]:
        usual = min(LONGEST_USUAL, median(lengths))
        timings = shorten_at_sentence_ends(timings, 2 * usual)
    groups = share_out(timings, counts, [segment.text for segment in segments])
    known = any(word.end > 0 for word in timings)
    before = window.last_speech
    marks = options.prepend_punctuations, options.append_punctuations
    for segment, group in zip(segments, groups, strict=True):
        if known:
            group = [_shift(word, window.start) for word in group]
        else:
            group = spread(group, segment.start, segment.end)
        row = Row(segment, merge_punctuations(group, *marks))
        if row.words and known:
            row.settle(usual, before)
        if row.words:
            before = row.end
        rows.append(row)
    return finish(rows, window.last_speech, window.content_end)


def _shift(word: WordTiming, offset: float) -> WordTiming:
    return replace(word, start=round(offset + word.start, 2), end=round(offset + word.end, 2))


def shorten_at_sentence_ends(words: Sequence[WordTiming], longest: float) -> list[WordTiming]:
    """A pause is aligned to the mark that ends a sentence, or to the word after: cut it off."""
    out = list(words)
    for at in range(1, len(out)):
        word = out[at]
        if word.end - word.start > longest:
            if word.word in SENTENCE_ENDS:
                out[at] = replace(word, end=word.start + longest)
            elif out[at - 1].word in SENTENCE_ENDS:
                out[at] = replace(word, start=word.end - longest)
    return out


def share_out(
    words: Sequence[WordTiming], counts: Sequence[int], texts: Sequence[str]
) -> list[list[WordTiming]]:
    """The words of each segment, given how many text tokens and what text it has.

    A word over a seam is cut there, its time by tokens. Joined, a segment's words are its text.
    """
    groups: list[list[WordTiming]] = []
    waiting = list(reversed(words))
    for count, text in zip(counts, texts, strict=True):
        group: list[WordTiming] = []
        while waiting and count > 0:
            word = waiting.pop()
            if count < len(word.tokens):
                written = sum(len(other.word) for other in group)
                word, rest = _split(word, count, text[written:])
                waiting.append(rest)
            count -= len(word.tokens)
            group.append(word)
        groups.append(list(_fit(group, text)))
    return groups


def _split(word: WordTiming, count: int, text: str) -> tuple[WordTiming, WordTiming]:
    """The first `count` tokens, whose text is `text`, and the others."""
    time = word.start + (word.end - word.start) * count / len(word.tokens)
    return (
        replace(word, word=text, tokens=word.tokens[:count], end=time),
        replace(word, word=word.word[len(text) :], tokens=word.tokens[count:], start=time),
    )


def _fit(words: Sequence[WordTiming], text: str) -> Iterator[WordTiming]:
    """The same words with the letters of `text`; those for which there are none are left out.

    They differ only where bytes are no UTF-8: a segment's text leaves out what its end cuts.
    """
    at = 0
    for word in words[:-1]:
        letters = word.word
        if not text.startswith(letters, at):
            letters = letters.replace("\ufffd", "")
        if piece := text[at : at + len(letters)]:
            yield replace(word, word=piece)
        at += len(letters)
    if words and at < len(text):
        yield replace(words[-1], word=text[at:])


def spread(words: Sequence[WordTiming], start: float, end: float) -> list[WordTiming]:
    """Words of which no time is known: equal shares of their segment."""
    step = (end - start) / max(1, len(words))
    return [
        replace(word, start=start + at * step, end=start + (at + 1) * step)
        for at, word in enumerate(words)
    ]


@dataclass(slots=True)
class Row:
    """A segment and its words while their times are still moved."""

    segment: Segment
    words: list[WordTiming]
    end_of_speech: float | None = None  # None: that of the last word

    @property
    def end(self) -> float:
        """When the speech of the segment ends."""
        return self.words[-1].end if self.end_of_speech is None else self.end_of_speech

    def settle(self, usual: float, last_speech: float) -> None:
        """Shorten words that take a pause along; believe the segment where they are far off."""
        self._shorten_after_pause(usual, last_speech)
        start, end, words = self.segment.start, self.segment.end, self.words
        if words[0].start < start - BELIEVABLE and start < words[0].end:
            words[0] = replace(words[0], start=max(0.0, min(words[0].end - usual, start)))
        if words[-1].start < end and end + BELIEVABLE < words[-1].end:
            words[-1] = replace(words[-1], end=max(words[-1].start + usual, end))
            self.end_of_speech = end

    def _shorten_after_pause(self, usual: float, last_speech: float) -> None:
        words, longest = self.words, 2 * usual
        first, second = words[0], words[1] if len(words) > 1 else None
        if first.end - last_speech <= 4 * usual:
            return
        if first.end - first.start > longest or (
            second is not None and second.end - first.start > 2 * longest
        ):
            if second is not None and second.end - second.start > longest:
                boundary = max(second.end / 2, second.end - longest)
                first = replace(first, end=boundary)
                words[1] = replace(second, start=boundary)
            words[0] = replace(first, start=max(0.0, first.end - longest))


def finish(rows: Sequence[Row], last_speech: float, limit: float) -> tuple[list[Segment], float]:
    """Times in whole hundredths, in order and inside; -> segments, end of the last word."""
    words = [word for row in rows for word in row.words]
    # Words given a length are not pushed past what the window says: there the next one begins.
    ends = [word.end for word in words] + [row.segment.end for row in rows]
    most = int(limit * 100 + 1e-6)
    floor = min(round(last_speech * 100), most)  # no word begins before the last one has ended
    last = max(floor, min(most, int(max(ends, default=limit) * 100 + 1e-6)))
    times = iter(in_order([(word.start, word.end) for word in words], floor, last))
    out = []
    for row in rows:
        found = []
        for word in row.words:
            start, end = (min(time / 100, limit) for time in next(times))
            found.append(Word(start, end, word.word, word.probability))
        segment = replace(row.segment, words=tuple(found))
        if found:
            last_speech = found[-1].end
            segment = replace(segment, start=found[0].start, end=last_speech)
        out.append(segment)
    return out, last_speech


def in_order(times: Sequence[tuple[float, float]], first: int, last: int) -> list[tuple[int, int]]:
    """Starts and ends in seconds to hundredths between `first` and `last`, none over the next.

    Each gets SHORTEST, or an equal share where there is less: pushed on from the first, then
    back from `last`. What is in order already stays where it is.
    """
    shortest = min(SHORTEST, (last - first) // max(1, len(times)))
    at, pushed = first, []
    for start, end in times:
        begin = max(at, round(start * 100))
        at = max(begin + shortest, round(end * 100))
        pushed.append((begin, at))
    at, out = last, []
    for begin, end in reversed(pushed):
        end = min(end, at)
        at = min(begin, end - shortest)
        out.append((at, end))
    return out[::-1]


def last_word_end(segments: Sequence[Segment]) -> float | None:
    """When the last word ends; the last segment's end where there are no words at all.

    As get_end in whisper/utils.py; None without segments.
    """
    ends = (segment.words[-1].end for segment in reversed(segments) if segment.words)
    return next(ends, segments[-1].end if segments else None)
