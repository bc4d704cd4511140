"""What a recording's windows need on their way from features to segments, in whatever order.

Times here are those of what is listened to: speech without the pauses that were cut out. The
stream maps them back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from oscine.audio.mel import FRAMES_PER_SECOND
from oscine.audio.speech import Speech, silences
from oscine.audio.windows import Features
from oscine.models.resident import RunOnEngine
from oscine.models.whisper.attempts import Attempts, Job
from oscine.models.whisper.cut import (
    FRAMES_PER_TIMESTAMP,
    Piece,
    cut,
    ends_in_single_timestamp,
)
from oscine.models.whisper.fallback import Outcome, is_repetitive, is_silence
from oscine.models.whisper.guard import cut_repetition
from oscine.models.whisper.language import language_probs, likeliest, window_language_probs
from oscine.models.whisper.request import Alignment, Engine
from oscine.models.whisper.silence import skip_silences
from oscine.models.whisper.timing import WordTiming, align_words
from oscine.models.whisper.tokens import TextSide
from oscine.models.whisper.windows import ensure_encoded
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

#: Engine.align for one window: of all forced tokens, the first id that is not text, and positions.
Align = Callable[[Sequence[int], int, int], Alignment]


@dataclass(frozen=True, slots=True)
class Found:
    """What a window says, and how many of its frames are done with."""

    segments: tuple[Segment, ...]
    advance: int
    hot: bool  # made at a temperature so high, or so repetitive, that it is no context


class Passage:
    """One recording under way: `on_engine` runs what decodes its windows."""

    def __init__(
        self,
        on_engine: RunOnEngine[Engine],
        text: TextSide,
        options: DecodingOptions,
        attempts: Attempts,
        speech: Speech,
        features: Features,
        check: Callable[..., None],
    ) -> None:
        self.options, self.speech, self.features = options, speech, features
        self.check = check
        self.language = ""
        self.attempts = attempts
        self._on_engine = on_engine
        self._tokenizer, self._tokens = text.tokenizer, text.tokens
        self._context = text.config.n_text_ctx
        self._gaps = speech.timeline.gaps(GAP)

    @property
    def frames(self) -> int:
        """Frames of all that is listened to; less than one of sound counts too."""
        return max(self.features.frames, int(self.features.duration > 0))

    def end_of(self, frame: int) -> float:
        """Seconds at which a range that ends with this frame has no more text."""
        return self.features.duration if frame == self.frames else frame / FRAMES_PER_SECOND

    def decode(
        self, jobs: Sequence[Job], last: float, before: float, *, final: bool
    ) -> list[Found]:
        """Decode windows side by side; a device that is lost on the way is replaced.

        `last`: seconds where audio or clip ends. `before`: where the text before the first of the
        windows ends. `final`: windows end in pauses, so the text at their end is whole.
        """
        return self._on_engine(partial(self._decode, jobs, last, before, final))

    def _decode(
        self, jobs: Sequence[Job], last: float, before: float, final: bool, engine: Engine
    ) -> list[Found]:
        self.check()
        places = [(job.seek, job.size) for job in jobs]
        ensure_encoded(engine, self.features, places, silence=final)
        if self.options.multilingual:
            jobs = [
                replace(job, language=likeliest(language_probs(engine, self._tokens, window)))
                for window, job in enumerate(jobs)
            ]
        outcomes = self.attempts.run(jobs, engine, self.check)
        found = []
        for window, (job, outcome) in enumerate(zip(jobs, outcomes, strict=True)):
            align = partial(engine.align, window=window)
            start = job.seek / FRAMES_PER_SECOND
            end = start + self.features.window_frames / FRAMES_PER_SECOND
            times = WindowTimes(start, end, last, before)
            found.append(self._found(align, job, outcome, times, final))
            if found[-1].segments:
                before = found[-1].segments[-1].end
        return found

    def language_probs(self, seek: int, size: int) -> dict[str, float]:
        """The probability of each language code in one window of frames, `size` at most."""
        probs = partial(window_language_probs, self.features, self._tokens, seek, size)
        return self._on_engine(probs)

    def _found(
        self, align: Align, job: Job, outcome: Outcome, window: WindowTimes, final: bool
    ) -> Found:
        """One window's tokens as segments."""
        if is_silence(outcome, self.options):
            return Found((), job.size, hot=False)
        begin, looping = self._tokens.timestamp_begin, False
        if is_repetitive(outcome, self.options):
            tokens, looping = cut_repetition(outcome.tokens, self._tokens.end, begin)
            outcome = replace(outcome, tokens=tokens)
        whole = final and outcome.stop == "end"
        pieces, advance = cut(outcome.tokens, job.size, begin, final=whole)
        segments = self._segments(job, outcome, pieces, window, looping)
        if not self.options.without_timestamps:
            segments, advance = self._without_holes(align, job, segments, advance)
            segments = self._cut_at_gaps(align, job, segments)
        single = whole or ends_in_single_timestamp(outcome.tokens, begin)
        if self.options.word_timestamps and segments:
            segments = self._with_words(align, job, segments, window)
            segments, advance = self._seek_by_words(job, segments, advance, window, single)
        if not self.options.without_timestamps:
            advance = self._early_stop(job, segments, advance)
        return Found(tuple(segments), advance, hot=looping or outcome.temperature > HOT)

    def _segments(
        self,
        job: Job,
        outcome: Outcome,
        pieces: Sequence[Piece],
        window: WindowTimes,
        looping: bool,
    ) -> list[Segment]:
        """Times not past the end of audio or clip, and not before the text before."""
        offset, last, before = window.start, window.content_end, window.last_speech
        segments: list[Segment] = []
        texts = self._tokenizer.decode_parts(piece.tokens for piece in pieces)
        for piece, text in zip(pieces, texts, strict=True):
            if piece.start == piece.end or not text.strip():
                continue  # openai-whisper keeps these as empty segments; they say nothing
            start = max(before, min(offset + piece.start, last))
            if start >= last:
                continue  # made up: nothing is left to hear
            end = max(start, min(offset + piece.end, last))
            before = end
            segments.append(
                Segment(
                    id=0,  # the stream counts
                    seek=job.seek,
                    start=start,
                    end=end,
                    text=text,
                    tokens=piece.tokens,
                    temperature=outcome.temperature,
                    avg_logprob=outcome.avg_logprob,
                    compression_ratio=outcome.compression_ratio,
                    no_speech_prob=outcome.no_speech_prob,
                    language=job.language if self.options.multilingual else None,
                    flags=("repetition",) if looping else (),
                )
            )
        return segments

    def _cut_at_gaps(self, align: Align, job: Job, segments: list[Segment]) -> list[Segment]:
        """Each segment that spans a gap in parts, by where its words are; the others as they are.

        A sentence may go on after a gap that a lost connection leaves: its cue must not stay.
        """
        spans = [any(s.start < gap < s.end for gap in self._gaps) for s in segments]
        if not any(spans):
            return segments
        parts: list[Segment] = []
        groups = self._words_of(align, job, segments)
        for segment, words, over in zip(segments, groups, spans, strict=True):
            parts += self._parts(segment, words, job) if over else [segment]
        return parts

    def _parts(self, segment: Segment, words: list[WordTiming], job: Job) -> Iterator[Segment]:
        """A segment cut at every gap in it; a part without words is left out."""
        for gap in self._gaps:
            if not segment.start < gap < segment.end:
                continue
            count = self._count_before(gap - job.seek / FRAMES_PER_SECOND, words)
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
        self, align: Align, job: Job, segments: Sequence[Segment]
    ) -> list[list[WordTiming]]:
        """The words of each segment, in seconds from the window's beginning."""
        counts = [self._text_count(segment) for segment in segments]
        timings = self._timings(align, job, segments)
        return share_out(timings, counts, [segment.text for segment in segments])

    def _with_words(
        self, align: Align, job: Job, segments: Sequence[Segment], window: WindowTimes
    ) -> list[Segment]:
        """The same segments, with each word's time."""
        timings = self._timings(align, job, segments)
        timed, _ = add_words(segments, timings, window, self.options, self._tokens.end)
        return timed

    def _timings(self, align: Align, job: Job, segments: Sequence[Segment]) -> list[WordTiming]:
        """The words of all segments, in seconds from the window's beginning."""
        tokens, task = self._tokens, self.options.task
        text = [id for segment in segments for id in segment.tokens if id < tokens.end]
        start = tokens.start_sequence(job.language, task, timestamps=False)
        room = self._context - len(start) - 1
        text = text[:room]  # more than the decoder picks in one window
        frames = job.size // FRAMES_PER_TIMESTAMP
        alignment = align((*start, *text, tokens.end), tokens.end, frames)
        language = "en" if task == "translate" else job.language
        return align_words(alignment, text, len(start), self._tokenizer, language)

    def _seek_by_words(
        self,
        job: Job,
        segments: list[Segment],
        advance: int,
        window: WindowTimes,
        single: bool,
    ) -> tuple[list[Segment], int]:
        """Where the words say that the next window begins; made-up text around silence goes."""
        seek, threshold = None, self.options.hallucination_silence_threshold
        if not single:
            seek = last_word_end(segments)
        if threshold is not None:
            segments, skip = skip_silences(
                segments, window, threshold, single_ending=single, is_speech=self._is_speech
            )
            seek = seek if skip is None else skip
        if seek is None:
            return segments, advance
        frames = round(seek * FRAMES_PER_SECOND) - job.seek
        return segments, frames if frames > 0 else advance

    def _without_holes(
        self, align: Align, job: Job, segments: list[Segment], advance: int
    ) -> tuple[list[Segment], int]:
        """Up to where speech is passed over, in a segment or between two; on from there."""
        offset = job.seek / FRAMES_PER_SECOND
        groups: list[list[WordTiming]] = [[] for _ in segments]
        if any(map(self._is_thin, segments)):
            groups = self._words_of(align, job, segments)
        for at, (segment, words) in enumerate(zip(segments, groups, strict=True)):
            kept, resume = list(segments[: at + 1]), None
            found = self._hole(segment, words, offset) if self._is_thin(segment) else None
            after = segments[at + 1].start if at + 1 < len(segments) else segment.end
            if found is not None:
                count, end, resume = found
                kept[at:] = [self._shortened(segment, words[:count], end)] if count else []
            elif self._speech_between(segment.end, after) >= HOLE:
                resume = segment.end
            if resume is None:
                continue
            done = round(resume * FRAMES_PER_SECOND) - job.seek
            if LEAST_ADVANCE <= done < advance:
                log.info("speech without text from %.2f s on: taken up again", resume)
                return kept, done
        return segments, advance

    def _hole(
        self, segment: Segment, words: Sequence[WordTiming], offset: float
    ) -> tuple[int, float, float] | None:
        """How many words come before speech that is in none, when they end, where to go on."""
        for number, word in enumerate(words):
            start, end = offset + word.start, offset + word.end
            if self._pause_before_speech(start, end):
                # Whether the word is before the pause or after what is missing, nobody can tell.
                return number, max(segment.start, start), start
        if words:
            pause = self._pause_before_speech(offset + words[-1].end, segment.end)
            if pause is not None:
                return len(words), max(segment.start, pause[0]), sum(pause) / 2
        return None

    def _text_count(self, segment: Segment) -> int:
        return sum(id < self._tokens.end for id in segment.tokens)

    def _is_thin(self, segment: Segment) -> bool:
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

    def _early_stop(self, job: Job, segments: Sequence[Segment], advance: int) -> int:
        """On from the last text where speech is heard after it that the window passes over."""
        if not segments or advance < job.size:
            return advance
        end = segments[-1].end
        done = round(end * FRAMES_PER_SECOND) - job.seek
        missed = self._speech_between(end, (job.seek + job.size) / FRAMES_PER_SECOND)
        if missed < MISSED or done < LEAST_ADVANCE:
            return advance
        log.info("%.1f s of speech after %.2f s: taken up again", missed, end)
        return done

    def _speech_between(self, start: float, end: float) -> float:
        """Seconds of speech; none where nobody has listened for it."""
        line = self.speech.timeline
        if self.speech.spans is None or end <= start:
            return 0.0
        return self.speech.speech_seconds(line.original(start), line.original(end, end=True))

    def _is_speech(self, start: float, end: float) -> bool:
        """Whether speech is heard over most of a time; False where no detector has listened."""
        return end > start and self._speech_between(start, end) > (end - start) / 2


def _is_mark(word: WordTiming) -> bool:
    """Whether it is punctuation that belongs to the word before."""
    return word.word.strip() in APPEND_PUNCTUATIONS
