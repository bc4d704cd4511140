"""A window's tokens into segments, and how far to move on.

Source: whisper/transcribe.py, the part of its loop between decoding and new_segment. What it does
not have: speech that a window's text passes over is found, and decoded again from there.

Times here are those of the speech, without the pauses that were cut out. The stream maps them back.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from oscine.audio.mel import FRAMES_PER_SECOND
from oscine.audio.speech import Speech, silences
from oscine.engine.steps import Steps
from oscine.models.whisper.fallback import DecodingResult, Window, is_repetitive, is_silence
from oscine.models.whisper.repetition import remove_loops
from oscine.models.whisper.sequences import Align
from oscine.models.whisper.silence import skip_silences
from oscine.models.whisper.timing import WordTiming, align_words
from oscine.models.whisper.tokens import FRAMES_PER_TIMESTAMP, SECONDS_PER_TIMESTAMP, TextSide
from oscine.models.whisper.words import WindowTimes, add_words, last_word_end, share_out
from oscine.options.transcribe import APPEND_PUNCTUATIONS, DecodingOptions
from oscine.types import Segment

log = logging.getLogger(__name__)

MISSED = 0.6  # seconds of speech after a window's last text that are worth another window
LEAST_ADVANCE = 100  # frames that such a window must be ahead
# A segment of fewer tokens a second may lack some of its speech: a word of it that lasts over a
# pause (seconds) and over so much speech after that is where it stops.
USUAL_RATE, PAUSE, HOLE = 3.0, 0.3, 3.0
GAP = 4.0  # seconds of silence that were cut out, over which no segment lasts
HOT = 0.5  # text made above this temperature is no context for what follows


@dataclass(frozen=True, slots=True)
class WindowSegments:
    """The segments of a window, and how many of its frames are done with."""

    segments: tuple[Segment, ...]
    advance: int
    reset_prompt: bool  # made at a temperature so high, or so repetitive, that it is no context


class Segmenter:
    """Makes the segments of the windows of one recording."""

    def __init__(self, options: DecodingOptions, text: TextSide, speech: Speech) -> None:
        self.options, self.speech = options, speech
        self._tokenizer, self._tokens = text.tokenizer, text.tokens
        self._context = text.config.n_text_ctx
        self._gaps = speech.timeline.gaps(GAP)

    def segments(
        self, window: Window, result: DecodingResult, times: WindowTimes, *, final: bool
    ) -> Steps[WindowSegments]:
        """One window's tokens as segments.

        `final`: the window ends in a pause, so the text at its end is whole.
        """
        if is_silence(result, self.options):
            return WindowSegments((), window.size, reset_prompt=False)
        begin, looping = self._tokens.timestamp_begin, False
        if is_repetitive(result, self.options):
            tokens, looping = remove_loops(result.tokens, self._tokens.end, begin)
            result = replace(result, tokens=tokens)
        whole = final and result.stop == "end"
        pieces, advance = split_at_timestamps(result.tokens, window.size, begin, final=whole)
        segments = self._timed(window, result, pieces, times, looping)
        if not self.options.without_timestamps:
            segments, advance = yield from self._recover_missed_speech(window, segments, advance)
            segments = yield from self._cut_at_gaps(window, segments)
        single = whole or ends_in_single_timestamp(result.tokens, begin)
        if self.options.word_timestamps and segments:
            timings = yield from self._timings(window, segments)
            segments, _ = add_words(segments, timings, times, self.options, self._tokens.end)
            segments, advance = self._seek_by_words(window, segments, advance, times, single)
        if not self.options.without_timestamps:
            advance = self._rewind_to_last_text(window, segments, advance)
        reset = looping or result.temperature > HOT
        return WindowSegments(tuple(segments), advance, reset_prompt=reset)

    def _timed(
        self,
        window: Window,
        result: DecodingResult,
        pieces: Sequence[TimedTokens],
        times: WindowTimes,
        looping: bool,
    ) -> list[Segment]:
        """Times not past the end of audio or clip, and not before the text before."""
        offset, last, before = times.start, times.content_end, times.last_speech
        segments: list[Segment] = []
        texts = self._tokenizer.decode_parts(piece.tokens for piece in pieces)
        for piece, text in zip(pieces, texts, strict=True):
            if piece.start == piece.end or not text.strip():
                continue  # openai-whisper keeps these as empty segments; they say nothing
            start = max(before, min(offset + piece.start, last))
            if start >= last:
                continue  # made up: there is no sound left
            end = max(start, min(offset + piece.end, last))
            before = end
            segments.append(
                Segment(
                    id=0,  # the stream counts
                    seek=window.seek,
                    start=start,
                    end=end,
                    text=text,
                    tokens=piece.tokens,
                    temperature=result.temperature,
                    avg_logprob=result.avg_logprob,
                    compression_ratio=result.compression_ratio,
                    no_speech_prob=result.no_speech_prob,
                    language=window.language if self.options.multilingual else None,
                    flags=("repetition",) if looping else (),
                )
            )
        return segments

    def _cut_at_gaps(self, window: Window, segments: list[Segment]) -> Steps[list[Segment]]:
        """Each segment that spans a gap in parts, by where its words are; the others as they are.

        A sentence may go on after a gap that a lost connection leaves: its cue must not stay.
        """
        spans = [any(s.start < gap < s.end for gap in self._gaps) for s in segments]
        if not any(spans):
            return segments
        parts: list[Segment] = []
        groups = yield from self._words_of(window, segments)
        for segment, words, over in zip(segments, groups, spans, strict=True):
            parts += self._parts(segment, words, window) if over else [segment]
        return parts

    def _parts(
        self, segment: Segment, words: list[WordTiming], window: Window
    ) -> Iterator[Segment]:
        """A segment cut at every gap in it; a part without words is left out."""
        for gap in self._gaps:
            if not segment.start < gap < segment.end:
                continue
            count = self._count_before(gap - window.seek / FRAMES_PER_SECOND, words)
            heard = self._speech_between(segment.start, gap), self._speech_between(gap, segment.end)
            starts = [n for n, word in enumerate(words) if not n or not _is_mark(word)]
            if min(heard) >= MISSED and len(starts) > 1:  # each side has some of the text
                count = min(max(count, starts[1]), starts[-1])
            if count and count == len(words):
                segment = replace(segment, end=gap)
            elif count:
                head = self._shortened(segment, words[:count], gap)
                yield head
                words = words[count:]
                text, tokens = segment.text[len(head.text) :], segment.tokens[len(head.tokens) :]
                segment = replace(segment, start=gap, text=text, tokens=tokens)
            else:
                segment = replace(segment, start=gap)
        yield segment

    def _count_before(self, gap: float, words: Sequence[WordTiming]) -> int:
        """How many words are before a time of the window, each with the marks after it."""
        count = sum((word.start + word.end) / 2 < gap for word in words)
        while 0 < count < len(words) and _is_mark(words[count]):
            count += 1
        return count

    def _words_of(
        self, window: Window, segments: Sequence[Segment]
    ) -> Steps[list[list[WordTiming]]]:
        """The words of each segment, in seconds from the window's beginning."""
        counts = [self._text_count(segment) for segment in segments]
        timings = yield from self._timings(window, segments)
        return share_out(timings, counts, [segment.text for segment in segments])

    def _timings(self, window: Window, segments: Sequence[Segment]) -> Steps[list[WordTiming]]:
        """The words of all segments, in seconds from the window's beginning."""
        tokens, task = self._tokens, self.options.task
        text = [id for segment in segments for id in segment.tokens if id < tokens.end]
        start = tokens.start_sequence(window.language, task, timestamps=False)
        room = self._context - len(start) - 1
        text = text[:room]  # more than the decoder picks in one window
        frames = window.size // FRAMES_PER_TIMESTAMP
        prompt = (*start, *text, tokens.end)
        alignment = yield Align(window.audio, prompt, tokens.end, frames)
        language = "en" if task == "translate" else window.language
        return align_words(alignment, text, len(start), self._tokenizer, language)

    def _seek_by_words(
        self,
        window: Window,
        segments: list[Segment],
        advance: int,
        times: WindowTimes,
        single: bool,
    ) -> tuple[list[Segment], int]:
        """Where the words say that the next window begins; made-up text around silence goes."""
        seek, threshold = None, self.options.hallucination_silence_threshold
        if not single:
            seek = last_word_end(segments)
        if threshold is not None:
            segments, skip = skip_silences(
                segments, times, threshold, single_ending=single, is_speech=self._is_speech
            )
            seek = seek if skip is None else skip
        if seek is None:
            return segments, advance
        frames = round(seek * FRAMES_PER_SECOND) - window.seek
        return segments, frames if frames > 0 else advance

    def _recover_missed_speech(
        self, window: Window, segments: list[Segment], advance: int
    ) -> Steps[tuple[list[Segment], int]]:
        """Up to where speech is passed over, in a segment or between two; on from there."""
        offset = window.seek / FRAMES_PER_SECOND
        groups: list[list[WordTiming]] = [[] for _ in segments]
        if any(map(self._is_sparse, segments)):
            groups = yield from self._words_of(window, segments)
        for at, (segment, words) in enumerate(zip(segments, groups, strict=True)):
            kept, resume = list(segments[: at + 1]), None
            found = self._find_gap(segment, words, offset) if self._is_sparse(segment) else None
            after = segments[at + 1].start if at + 1 < len(segments) else segment.end
            if found is not None:
                count, end, resume = found
                kept[at:] = [self._shortened(segment, words[:count], end)] if count else []
            elif self._speech_between(segment.end, after) >= HOLE:
                resume = segment.end
            if resume is None:
                continue
            done = round(resume * FRAMES_PER_SECOND) - window.seek
            if LEAST_ADVANCE <= done < advance:
                log.info("speech without text from %.2f s on: taken up again", resume)
                return kept, done
        return segments, advance

    def _find_gap(
        self, segment: Segment, words: Sequence[WordTiming], offset: float
    ) -> tuple[int, float, float] | None:
        """How many words come before speech that is in none, when they end, where to go on."""
        for number, word in enumerate(words):
            start, end = offset + word.start, offset + word.end
            if self._pause_before_speech(start, end):
                # Whether the word is before the pause or after what is missing is not known.
                return number, max(segment.start, start), start
        if words:
            pause = self._pause_before_speech(offset + words[-1].end, segment.end)
            if pause is not None:
                return len(words), max(segment.start, pause[0]), sum(pause) / 2
        return None

    def _text_count(self, segment: Segment) -> int:
        return sum(id < self._tokens.end for id in segment.tokens)

    def _is_sparse(self, segment: Segment) -> bool:
        """Whether it has few tokens for its speech."""
        usual = self._text_count(segment) / USUAL_RATE
        return self._speech_between(segment.start, segment.end) >= usual + HOLE

    def _pause_before_speech(self, start: float, end: float) -> tuple[float, float] | None:
        """The first pause between two times if much is said between it and the second."""
        low, high = (round(time * FRAMES_PER_SECOND) for time in (start, end))
        line = self.speech.timeline
        for begin, stop in silences(self.speech, low, high) if low < high else ():
            if stop - begin >= PAUSE:
                pause = line.condensed(begin), line.condensed(stop)
                return pause if self._speech_between(pause[1], end) >= HOLE else None
        return None

    def _shortened(self, segment: Segment, words: Sequence[WordTiming], end: float) -> Segment:
        """The segment with its first words alone, and this end."""
        wanted = sum(len(word.tokens) for word in words)
        tokens = []
        for token in segment.tokens:
            if token < self._tokens.end:
                wanted -= 1
                if wanted < 0:
                    break
            tokens.append(token)
        text = "".join(word.word for word in words)
        return replace(segment, end=end, text=text, tokens=tuple(tokens))

    def _rewind_to_last_text(
        self, window: Window, segments: Sequence[Segment], advance: int
    ) -> int:
        """On from the last text where speech is heard after it that the window passes over."""
        if not segments or advance < window.size:
            return advance
        end = segments[-1].end
        done = round(end * FRAMES_PER_SECOND) - window.seek
        missed = self._speech_between(end, (window.seek + window.size) / FRAMES_PER_SECOND)
        if missed < MISSED or done < LEAST_ADVANCE:
            return advance
        log.info("%.1f s of speech after %.2f s: taken up again", missed, end)
        return done

    def _speech_between(self, start: float, end: float) -> float:
        """Seconds of speech; 0.0 where no detector has listened."""
        line = self.speech.timeline
        if self.speech.spans is None or end <= start:
            return 0.0
        return self.speech.speech_seconds(line.original(start), line.original(end, end=True))

    def _is_speech(self, start: float, end: float) -> bool:
        """Whether speech is heard over most of a time; False where no detector has listened."""
        return end > start and self._speech_between(start, end) > (end - start) / 2


@dataclass(frozen=True, slots=True)
class TimedTokens:
    """Tokens between two times, in seconds from the window's beginning."""

    start: float
    end: float
    tokens: tuple[int, ...]


def split_at_timestamps(
    tokens: Sequence[int], size: int, timestamp_begin: int, *, final: bool = False
) -> tuple[list[TimedTokens], int]:
    """Cut a window of `size` frames after each closing timestamp; -> pieces, frames to advance.

    Two timestamps in a row close one piece and open the next. Text that follows the last such pair
    was cut off by the window's end, so the next window begins there; but a single timestamp at
    the end says that nothing is spoken after it, and the whole window is done. So it is where the
    window is `final`, ending in a pause: then its last text is a piece too. The advance is at
    least 1.
    """
    stamp = [token >= timestamp_begin for token in tokens]
    ends = [at for at, both in enumerate(pairwise(stamp), start=1) if all(both)]
    if not ends:
        stamps = [token - timestamp_begin for token in tokens if token >= timestamp_begin]
        length = size / FRAMES_PER_SECOND
        if stamps and stamps[-1] != 0:
            length = stamps[-1] * SECONDS_PER_TIMESTAMP
        return [TimedTokens(0.0, length, tuple(tokens))], max(1, size)
    complete = ends_in_single_timestamp(tokens, timestamp_begin)
    if complete or (final and not all(stamp[ends[-1] :])):
        ends.append(len(tokens))
    pieces = []
    for begin, end in pairwise([0, *ends]):
        part = tuple(tokens[begin:end])
        first, last = (max(0, token - timestamp_begin) for token in (part[0], part[-1]))
        stop = last * SECONDS_PER_TIMESTAMP if stamp[end - 1] else size / FRAMES_PER_SECOND
        pieces.append(TimedTokens(first * SECONDS_PER_TIMESTAMP, stop, part))
    if complete or final:
        return pieces, max(1, size)
    return pieces, max(1, (tokens[ends[-1] - 1] - timestamp_begin) * FRAMES_PER_TIMESTAMP)


def ends_in_single_timestamp(tokens: Sequence[int], timestamp_begin: int) -> bool:
    """Whether text and one timestamp come last: nothing is said in the rest of the window."""
    return [token >= timestamp_begin for token in tokens[-2:]] == [False, True]


def _is_mark(word: WordTiming) -> bool:
    """Whether it is punctuation that belongs to the word before."""
    return word.word.strip() in APPEND_PUNCTUATIONS
