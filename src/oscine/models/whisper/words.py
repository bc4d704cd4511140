"""Word timestamps of segments: merges punctuation, truncates overlong words, clamps times.

Source: whisper/timing.py (merge_punctuations, add_word_timestamps), with these differences. A
word belongs to the segment that contains its text, so that a segment's words make up its text;
words have a minimum length; words never overlap, within a window or across two; where the
alignment gives no times, words share their segment's time equally; and a segment lasts from the
start of its first word to the end of its last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from oscine.models.whisper.timing import WordTiming
from oscine.options.transcribe import WordOptions
from oscine.types import Segment, Word

SENTENCE_ENDS = ".。!！?？"
MAX_MEDIAN_WORD_S = 0.7  # upper bound of the median word duration
MAX_WORD_OVERHANG_S = 0.5  # by which a word may exceed its segment's timestamps
MIN_WORD_CENTISECONDS = 2  # one position of the encoder


@dataclass(frozen=True, slots=True)
class WindowTimes:
    """The position of a window in the speech, in seconds.

    `end`: of a whole window (30 s), which may exceed `content_end`, the end of the audio or clip.
    `last_speech`: the end of the last word, or segment, before the window.
    """

    start: float
    end: float
    content_end: float
    last_speech: float


def merge_punctuations(words: Sequence[WordTiming], prepend: str, append: str) -> list[WordTiming]:
    """Merge opening marks into the word after them and closing marks into the word before."""
    merged: list[WordTiming] = []
    for word in reversed(words):
        if merged and word.word.startswith(" ") and word.word.strip() in prepend:
            merged[-1] = _merge_words(merged[-1], word, merged[-1])
        else:
            merged.append(word)
    words, merged = merged[::-1], []
    for word in words:
        if merged and not merged[-1].word.endswith(" ") and word.word in append:
            merged[-1] = _merge_words(merged[-1], merged[-1], word)
        else:
            merged.append(word)
    return merged


def _merge_words(times: WordTiming, first: WordTiming, second: WordTiming) -> WordTiming:
    return replace(times, word=first.word + second.word, tokens=first.tokens + second.tokens)


def add_word_timestamps(
    segments: Sequence[Segment],
    timings: list[WordTiming],
    window: WindowTimes,
    options: WordOptions,
    eot: int,
) -> tuple[list[Segment], float]:
    """Add words to the segments of a window; -> segments, end of the last word.

    `timings`: the words of all text tokens (ids < `eot`) of `segments`, in seconds from the start
    of the window. In the result words are in order, do not overlap, are between the window's
    `last_speech` and `content_end`, and last at least 0.02 s where there is room. A segment
    without text has no words and keeps its times.
    """
    counts = [sum(id < eot for id in segment.tokens) for segment in segments]
    median_word_s, entries = 0.0, []
    if lengths := [word.end - word.start for word in timings if word.end != word.start]:
        median_word_s = min(MAX_MEDIAN_WORD_S, median(lengths))
        timings = truncate_at_sentence_ends(timings, 2 * median_word_s)
    groups = assign_words(timings, counts, [segment.text for segment in segments])
    has_times = any(word.end > 0 for word in timings)
    before = window.last_speech
    marks = options.prepend_punctuations, options.append_punctuations
    for segment, group in zip(segments, groups, strict=True):
        if has_times:
            group = [_shift_word(word, window.start) for word in group]
        else:
            group = spread_evenly(group, segment.start, segment.end)
        entry = SegmentWords(segment, merge_punctuations(group, *marks))
        if entry.words and has_times:
            entry.adjust_boundaries(median_word_s, before)
        if entry.words:
            before = entry.end
        entries.append(entry)
    return clamp_times(entries, window.last_speech, window.content_end)


def _shift_word(word: WordTiming, offset: float) -> WordTiming:
    return replace(word, start=round(offset + word.start, 2), end=round(offset + word.end, 2))


def truncate_at_sentence_ends(words: Sequence[WordTiming], max_word_s: float) -> list[WordTiming]:
    """Truncate long words at sentence boundaries, where alignment assigns pauses to words."""
    out = list(words)
    for index in range(1, len(out)):
        word = out[index]
        if word.end - word.start > max_word_s:
            if word.word in SENTENCE_ENDS:
                out[index] = replace(word, end=word.start + max_word_s)
            elif out[index - 1].word in SENTENCE_ENDS:
                out[index] = replace(word, start=word.end - max_word_s)
    return out


def assign_words(
    words: Sequence[WordTiming], counts: Sequence[int], texts: Sequence[str]
) -> list[list[WordTiming]]:
    """Assign the words of a window to its segments, by their numbers of text tokens and texts.

    A word that spans two segments is split, and its time in proportion to its tokens. The joined
    words of a segment are its text.
    """
    groups: list[list[WordTiming]] = []
    waiting = list(reversed(words))
    for count, text in zip(counts, texts, strict=True):
        group: list[WordTiming] = []
        while waiting and count > 0:
            word = waiting.pop()
            if count < len(word.tokens):
                written = sum(len(other.word) for other in group)
                word, rest = _split_word(word, count, text[written:])
                waiting.append(rest)
            count -= len(word.tokens)
            group.append(word)
        groups.append(list(_fit_to_text(group, text)))
    return groups


def _split_word(word: WordTiming, count: int, text: str) -> tuple[WordTiming, WordTiming]:
    """Split a word after `count` tokens, whose text is `text`."""
    time = word.start + (word.end - word.start) * count / len(word.tokens)
    return (
        replace(word, word=text, tokens=word.tokens[:count], end=time),
        replace(word, word=word.word[len(text) :], tokens=word.tokens[count:], start=time),
    )


def _fit_to_text(words: Sequence[WordTiming], text: str) -> Iterator[WordTiming]:
    """The words with their characters in `text`; words without any are left out.

    They differ only for invalid UTF-8: a segment's text leaves out a character cut at its end.
    """
    offset = 0
    for word in words[:-1]:
        letters = word.word
        if not text.startswith(letters, offset):
            letters = letters.replace("\ufffd", "")
        if piece := text[offset : offset + len(letters)]:
            yield replace(word, word=piece)
        offset += len(letters)
    if words and offset < len(text):
        yield replace(words[-1], word=text[offset:])


def spread_evenly(words: Sequence[WordTiming], start: float, end: float) -> list[WordTiming]:
    """Give words without has_times times equal shares of their segment."""
    step = (end - start) / max(1, len(words))
    return [
        replace(word, start=start + index * step, end=start + (index + 1) * step)
        for index, word in enumerate(words)
    ]


@dataclass(slots=True)
class SegmentWords:
    """A segment and its words while their times are adjusted."""

    segment: Segment
    words: list[WordTiming]
    end_of_speech: float | None = None  # None: that of the last word

    @property
    def end(self) -> float:
        """The end of the segment's speech in seconds."""
        return self.words[-1].end if self.end_of_speech is None else self.end_of_speech

    def adjust_boundaries(self, median_word_s: float, last_speech: float) -> None:
        """Shorten words that contain a pause; use the segment's times for words far outside it."""
        self._shorten_after_pause(median_word_s, last_speech)
        start, end, words = self.segment.start, self.segment.end, self.words
        if words[0].start < start - MAX_WORD_OVERHANG_S and start < words[0].end:
            words[0] = replace(words[0], start=max(0.0, min(words[0].end - median_word_s, start)))
        if words[-1].start < end and end + MAX_WORD_OVERHANG_S < words[-1].end:
            words[-1] = replace(words[-1], end=max(words[-1].start + median_word_s, end))
            self.end_of_speech = end

    def _shorten_after_pause(self, median_word_s: float, last_speech: float) -> None:
        words, max_word_s = self.words, 2 * median_word_s
        first, second = words[0], words[1] if len(words) > 1 else None
        if first.end - last_speech <= 4 * median_word_s:
            return
        if first.end - first.start > max_word_s or (
            second is not None and second.end - first.start > 2 * max_word_s
        ):
            if second is not None and second.end - second.start > max_word_s:
                boundary = max(second.end / 2, second.end - max_word_s)
                first = replace(first, end=boundary)
                words[1] = replace(second, start=boundary)
            words[0] = replace(first, start=max(0.0, first.end - max_word_s))


def clamp_times(
    entries: Sequence[SegmentWords], last_speech: float, limit: float
) -> tuple[list[Segment], float]:
    """Round times to 0.01 s, in order and within bounds; -> segments, end of the last word."""
    words = [word for entry in entries for word in entry.words]
    # Lengthened words do not exceed the times of the window: there the next window begins.
    ends = [word.end for word in words] + [entry.segment.end for entry in entries]
    maximum = int(limit * 100 + 1e-6)
    floor = min(round(last_speech * 100), maximum)  # no word starts before the last one ends
    last = max(floor, min(maximum, int(max(ends, default=limit) * 100 + 1e-6)))
    times = iter(make_monotonic([(word.start, word.end) for word in words], floor, last))
    out = []
    for entry in entries:
        words_of_segment = []
        for word in entry.words:
            start, end = (min(time / 100, limit) for time in next(times))
            words_of_segment.append(Word(start, end, word.word, word.probability))
        segment = replace(entry.segment, words=tuple(words_of_segment))
        if words_of_segment:
            last_speech = words_of_segment[-1].end
            segment = replace(segment, start=words_of_segment[0].start, end=last_speech)
        out.append(segment)
    return out, last_speech


def make_monotonic(
    times: Sequence[tuple[float, float]], first: int, last: int
) -> list[tuple[int, int]]:
    """Starts and ends in seconds as hundredths from `first` to `last`, without overlap.

    Each word lasts at least MIN_WORD_CENTISECONDS, or an equal share if there is less room. Words
    are pushed later from `first` on, then earlier from `last` back; words in order do not move.
    """
    minimum = min(MIN_WORD_CENTISECONDS, (last - first) // max(1, len(times)))
    position, pushed = first, []
    for start, end in times:
        begin = max(position, round(start * 100))
        position = max(begin + minimum, round(end * 100))
        pushed.append((begin, position))
    position, out = last, []
    for begin, end in reversed(pushed):
        end = min(end, position)
        position = min(begin, end - minimum)
        out.append((position, end))
    return out[::-1]


def last_word_end(segments: Sequence[Segment]) -> float | None:
    """The end of the last word; of the last segment if there are no words; None without segments.

    Source: whisper/utils.py, get_end.
    """
    ends = (segment.words[-1].end for segment in reversed(segments) if segment.words)
    return next(ends, segments[-1].end if segments else None)
