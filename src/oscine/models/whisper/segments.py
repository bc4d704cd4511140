"""Turns a window's tokens into segments, and determines where the next window starts.

Source: whisper/transcribe.py, its loop between decoding and new_segment. Beyond it, speech without
text is detected and decoded again. Times here are seconds of the speech, with pauses cut out;
transcribe.py maps them to those of the recording.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from oscine.audio.mel import FRAMES_PER_SECOND
from oscine.audio.speech import SpeechMap, silences
from oscine.engine.generators import SequenceGenerator
from oscine.models.whisper.fallback import DecodingResult, Window, is_repetitive, is_silence
from oscine.models.whisper.hallucination import skip_hallucinations
from oscine.models.whisper.repetition import remove_loops
from oscine.models.whisper.sequences import AlignmentSequence
from oscine.models.whisper.timing import WordTiming, find_alignment
from oscine.models.whisper.tokens import (
    FRAMES_PER_TIMESTAMP,
    SECONDS_PER_TIMESTAMP,
    TextDecoderInfo,
)
from oscine.models.whisper.words import (
    WindowTimes,
    add_word_timestamps,
    assign_words,
    last_word_end,
)
from oscine.options.transcribe import APPEND_PUNCTUATIONS, DecodingOptions
from oscine.types import Segment

log = logging.getLogger(__name__)

MIN_MISSED_S = 0.6  # speech after a window's last text that is decoded again
MIN_ADVANCE_FRAMES = 100  # by which a window must move on for that
TYPICAL_TOKENS_PER_S = 3.0  # a segment with fewer may have passed over some of its speech:
MIN_PAUSE_S, MIN_GAP_S = 0.3, 3.0  # that is after such a pause in a word, if it is this long
MAX_CUT_PAUSE_S = 4.0  # a segment is split at a longer pause that was cut out
MAX_PROMPT_TEMPERATURE = 0.5  # text sampled above it is left out of later prompts


@dataclass(frozen=True, slots=True)
class WindowSegments:
    """The segments of a window, and where the next window starts."""

    segments: tuple[Segment, ...]
    advance: int  # frames from this window's start to the next one's
    reset_prompt: bool  # the text is too random or repetitive to be in later prompts


class Segmenter:
    """Makes segments of the decoded windows of one recording."""

    def __init__(self, options: DecodingOptions, info: TextDecoderInfo, speech: SpeechMap) -> None:
        self.options, self.speech = options, speech
        self._tokenizer, self._special_tokens = info.tokenizer, info.special_tokens
        self._n_text_ctx = info.config.n_text_ctx
        self._cut_pauses = speech.timeline.cut_points(MAX_CUT_PAUSE_S)

    def segments(
        self, window: Window, result: DecodingResult, times: WindowTimes, *, final: bool
    ) -> SequenceGenerator[WindowSegments]:
        """The segments of a window. `final`: it ends in a pause, so its last text is complete."""
        if is_silence(result, self.options):
            return WindowSegments((), window.size, reset_prompt=False)
        timestamp_begin, is_loop = self._special_tokens.timestamp_begin, False
        if is_repetitive(result, self.options):
            tokens, is_loop = remove_loops(result.tokens, self._special_tokens.eot, timestamp_begin)
            result = replace(result, tokens=tokens)
        is_complete = final and result.finish_reason == "end"
        pieces, advance = split_at_timestamps(
            result.tokens, window.size, timestamp_begin, final=is_complete
        )
        segments = self._make_segments(window, result, pieces, times, is_loop)
        if not self.options.without_timestamps:
            segments, advance = yield from self._recover_missed_speech(window, segments, advance)
            segments = yield from self._split_at_gaps(window, segments)
        single_ending = is_complete or ends_in_single_timestamp(result.tokens, timestamp_begin)
        if self.options.word_timestamps and segments:
            timings = yield from self._word_timings(window, segments)
            segments, _ = add_word_timestamps(
                segments, timings, times, self.options, self._special_tokens.eot
            )
            segments, advance = self._seek_by_words(window, segments, advance, times, single_ending)
        if not self.options.without_timestamps:
            advance = self._rewind_to_last_text(window, segments, advance)
        reset = is_loop or result.temperature > MAX_PROMPT_TEMPERATURE
        return WindowSegments(tuple(segments), advance, reset_prompt=reset)

    def _make_segments(
        self,
        window: Window,
        result: DecodingResult,
        pieces: Sequence[TimedTokens],
        times: WindowTimes,
        is_loop: bool,
    ) -> list[Segment]:
        """Segments with times from the end of the text before to the end of audio or clip."""
        offset, end_of_audio, before = times.start, times.content_end, times.last_speech
        segments: list[Segment] = []
        texts = self._tokenizer.decode_parts(piece.tokens for piece in pieces)
        for piece, text in zip(pieces, texts, strict=True):
            if piece.start == piece.end or not text.strip():
                continue  # openai-whisper keeps these as empty segments
            start = max(before, min(offset + piece.start, end_of_audio))
            if start >= end_of_audio:
                continue  # hallucinated: the audio has ended
            end = max(start, min(offset + piece.end, end_of_audio))
            before = end
            segments.append(
                Segment(
                    id=0,  # numbered by Transcription
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
                    flags=("repetition",) if is_loop else (),
                )
            )
        return segments

    def _split_at_gaps(
        self, window: Window, segments: list[Segment]
    ) -> SequenceGenerator[list[Segment]]:
        """Split segments at long pauses that were cut out, by where their words are.

        A sentence may continue after a pause, such as a lost connection leaves; without the split
        its subtitle would stay on screen.
        """
        spans = [any(s.start < pause < s.end for pause in self._cut_pauses) for s in segments]
        if not any(spans):
            return segments
        parts: list[Segment] = []
        groups = yield from self._words_by_segment(window, segments)
        for segment, words, over in zip(segments, groups, spans, strict=True):
            parts += self._split_segment(segment, words, window) if over else [segment]
        return parts

    def _split_segment(
        self, segment: Segment, words: list[WordTiming], window: Window
    ) -> Iterator[Segment]:
        """Split a segment at each long pause in it; a part without words is left out."""
        for pause in self._cut_pauses:
            if not segment.start < pause < segment.end:
                continue
            count = self._count_words_before(pause - window.seek / FRAMES_PER_SECOND, words)
            speech = (
                self._speech_between(segment.start, pause),
                self._speech_between(pause, segment.end),
            )
            starts = [n for n, word in enumerate(words) if not n or not _is_punctuation(word)]
            if min(speech) >= MIN_MISSED_S and len(starts) > 1:  # each part gets some of the text
                count = min(max(count, starts[1]), starts[-1])
            if count and count == len(words):
                segment = replace(segment, end=pause)
            elif count:
                head = self._truncated(segment, words[:count], pause)
                yield head
                words = words[count:]
                text, tokens = segment.text[len(head.text) :], segment.tokens[len(head.tokens) :]
                segment = replace(segment, start=pause, text=text, tokens=tokens)
            else:
                segment = replace(segment, start=pause)
        yield segment

    def _count_words_before(self, time: float, words: Sequence[WordTiming]) -> int:
        """The number of words before a time of the window, each with the punctuation after it."""
        count = sum((word.start + word.end) / 2 < time for word in words)
        while 0 < count < len(words) and _is_punctuation(words[count]):
            count += 1
        return count

    def _words_by_segment(
        self, window: Window, segments: Sequence[Segment]
    ) -> SequenceGenerator[list[list[WordTiming]]]:
        """The words of each segment; times in seconds from the start of the window."""
        counts = [self._text_token_count(segment) for segment in segments]
        timings = yield from self._word_timings(window, segments)
        return assign_words(timings, counts, [segment.text for segment in segments])

    def _word_timings(
        self, window: Window, segments: Sequence[Segment]
    ) -> SequenceGenerator[list[WordTiming]]:
        """The words of all segments; times in seconds from the start of the window."""
        special_tokens, task = self._special_tokens, self.options.task
        text = [id for segment in segments for id in segment.tokens if id < special_tokens.eot]
        start = special_tokens.sot_sequence(window.language, task, timestamps=False)
        text = text[: self._n_text_ctx - len(start) - 1]  # more than is decoded in one window
        frames = window.size // FRAMES_PER_TIMESTAMP
        prompt = (*start, *text, special_tokens.eot)
        alignment = yield AlignmentSequence(window.audio, prompt, special_tokens.eot, frames)
        language = "en" if task == "translate" else window.language
        return find_alignment(alignment, text, len(start), self._tokenizer, language)

    def _seek_by_words(
        self,
        window: Window,
        segments: list[Segment],
        advance: int,
        times: WindowTimes,
        single_ending: bool,
    ) -> tuple[list[Segment], int]:
        """Set the next window's start by the words, and drop hallucinated text around silence."""
        seek, threshold = None, self.options.hallucination_silence_threshold
        if not single_ending:
            seek = last_word_end(segments)
        if threshold is not None:
            segments, skip = skip_hallucinations(
                segments, times, threshold, single_ending=single_ending, is_speech=self._is_speech
            )
            seek = seek if skip is None else skip
        if seek is None:
            return segments, advance
        frames = round(seek * FRAMES_PER_SECOND) - window.seek
        return segments, frames if frames > 0 else advance

    def _recover_missed_speech(
        self, window: Window, segments: list[Segment], advance: int
    ) -> SequenceGenerator[tuple[list[Segment], int]]:
        """Cut the window where speech has no text, in or between segments, to decode it again."""
        offset = window.seek / FRAMES_PER_SECOND
        groups: list[list[WordTiming]] = [[] for _ in segments]
        if any(map(self._is_sparse, segments)):
            groups = yield from self._words_by_segment(window, segments)
        for index, (segment, words) in enumerate(zip(segments, groups, strict=True)):
            kept, resume = list(segments[: index + 1]), None
            gap = self._find_gap(segment, words, offset) if self._is_sparse(segment) else None
            after = segments[index + 1].start if index + 1 < len(segments) else segment.end
            if gap is not None:
                count, end, resume = gap
                kept[index:] = [self._truncated(segment, words[:count], end)] if count else []
            elif self._speech_between(segment.end, after) >= MIN_GAP_S:
                resume = segment.end
            if resume is None:
                continue
            done = round(resume * FRAMES_PER_SECOND) - window.seek
            if MIN_ADVANCE_FRAMES <= done < advance:
                log.info("speech without text from %.2f s: decoded again", resume)
                return kept, done
        return segments, advance

    def _find_gap(
        self, segment: Segment, words: Sequence[WordTiming], offset: float
    ) -> tuple[int, float, float] | None:
        """Number and end of the words before speech without text, and where to resume decoding."""
        for number, word in enumerate(words):
            start, end = offset + word.start, offset + word.end
            if self._pause_before_speech(start, end):
                # The word may be before the pause or after the missing text.
                return number, max(segment.start, start), start
        if words:
            pause = self._pause_before_speech(offset + words[-1].end, segment.end)
            if pause is not None:
                return len(words), max(segment.start, pause[0]), sum(pause) / 2
        return None

    def _text_token_count(self, segment: Segment) -> int:
        return sum(id < self._special_tokens.eot for id in segment.tokens)

    def _is_sparse(self, segment: Segment) -> bool:
        """Whether a segment has too few tokens for its speech."""
        expected = self._text_token_count(segment) / TYPICAL_TOKENS_PER_S
        return self._speech_between(segment.start, segment.end) >= expected + MIN_GAP_S

    def _pause_before_speech(self, start: float, end: float) -> tuple[float, float] | None:
        """The first pause between two times, if there is much speech from it to the second."""
        low, high = (round(time * FRAMES_PER_SECOND) for time in (start, end))
        timeline = self.speech.timeline
        for begin, stop in silences(self.speech, low, high) if low < high else ():
            if stop - begin >= MIN_PAUSE_S:
                pause = timeline.trimmed_time(begin), timeline.trimmed_time(stop)
                return pause if self._speech_between(pause[1], end) >= MIN_GAP_S else None
        return None

    def _truncated(self, segment: Segment, words: Sequence[WordTiming], end: float) -> Segment:
        """The segment reduced to its first words, with a new end."""
        remaining = sum(len(word.tokens) for word in words)
        tokens = []
        for token in segment.tokens:
            if token < self._special_tokens.eot:
                remaining -= 1
                if remaining < 0:
                    break
            tokens.append(token)
        text = "".join(word.word for word in words)
        return replace(segment, end=end, text=text, tokens=tuple(tokens))

    def _rewind_to_last_text(
        self, window: Window, segments: Sequence[Segment], advance: int
    ) -> int:
        """Let the next window start at the end of the last text if speech follows it here."""
        if not segments or advance < window.size:
            return advance
        end = segments[-1].end
        done = round(end * FRAMES_PER_SECOND) - window.seek
        missed = self._speech_between(end, (window.seek + window.size) / FRAMES_PER_SECOND)
        if missed < MIN_MISSED_S or done < MIN_ADVANCE_FRAMES:
            return advance
        log.info("%.1f s of speech without text after %.2f s: decoded again", missed, end)
        return done

    def _speech_between(self, start: float, end: float) -> float:
        """Seconds of speech between two times; 0.0 without voice activity detection."""
        timeline = self.speech.timeline
        if self.speech.spans is None or end <= start:
            return 0.0
        return self.speech.speech_seconds(
            timeline.original_time(start), timeline.original_time(end, end=True)
        )

    def _is_speech(self, start: float, end: float) -> bool:
        """Whether most of an interval is speech; False without voice activity detection."""
        return end > start and self._speech_between(start, end) > (end - start) / 2


@dataclass(frozen=True, slots=True)
class TimedTokens:
    """Tokens between two timestamps, in seconds from the start of the window."""

    start: float
    end: float
    tokens: tuple[int, ...]


def split_at_timestamps(
    tokens: Sequence[int], size: int, timestamp_begin: int, *, final: bool = False
) -> tuple[list[TimedTokens], int]:
    """Split a window of `size` frames at pairs of timestamps; -> pieces, frames to advance.

    Two consecutive timestamps close one piece and open the next. Text after the last pair was cut
    off by the window's end, so the next window starts there. But a single timestamp at the end
    means that no speech follows, so the whole window is done. The same holds for a `final` window,
    which ends in a pause: its last text is a piece, too. The advance is at least 1.
    """
    is_timestamp = [token >= timestamp_begin for token in tokens]
    ends = [index for index, both in enumerate(pairwise(is_timestamp), start=1) if all(both)]
    if not ends:
        timestamps = [token - timestamp_begin for token in tokens if token >= timestamp_begin]
        length = size / FRAMES_PER_SECOND
        if timestamps and timestamps[-1] != 0:
            length = timestamps[-1] * SECONDS_PER_TIMESTAMP
        return [TimedTokens(0.0, length, tuple(tokens))], max(1, size)
    complete = ends_in_single_timestamp(tokens, timestamp_begin)
    if complete or (final and not all(is_timestamp[ends[-1] :])):
        ends.append(len(tokens))
    pieces = []
    for begin, end in pairwise([0, *ends]):
        part = tuple(tokens[begin:end])
        first, last = (max(0, token - timestamp_begin) for token in (part[0], part[-1]))
        stop = last * SECONDS_PER_TIMESTAMP if is_timestamp[end - 1] else size / FRAMES_PER_SECOND
        pieces.append(TimedTokens(first * SECONDS_PER_TIMESTAMP, stop, part))
    if complete or final:
        return pieces, max(1, size)
    return pieces, max(1, (tokens[ends[-1] - 1] - timestamp_begin) * FRAMES_PER_TIMESTAMP)


def ends_in_single_timestamp(tokens: Sequence[int], timestamp_begin: int) -> bool:
    """Whether the tokens end in text and one timestamp: the rest of the window has no speech."""
    return [token >= timestamp_begin for token in tokens[-2:]] == [False, True]


def _is_punctuation(word: WordTiming) -> bool:
    """Whether a word is punctuation that belongs to the word before it."""
    return word.word.strip() in APPEND_PUNCTUATIONS
