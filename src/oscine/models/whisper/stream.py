"""A recording to segments: windows, prompts, attempts, and the seek that follows from the text.

Source: whisper/transcribe.py, whose one loop is here a generator over small steps.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from threading import Event
from time import perf_counter
from typing import TYPE_CHECKING

from oscine.audio.io import Source
from oscine.audio.windows import Features
from oscine.errors import Cancelled
from oscine.models.whisper.cut import FRAMES_PER_SECOND, SECONDS_PER_TIMESTAMP, Piece, cut
from oscine.models.whisper.decode import Request
from oscine.models.whisper.fallback import Outcome, best, compression_ratio, is_poor, is_silence
from oscine.models.whisper.options import BEST_OF, Clip, TranscribeOptions
from oscine.models.whisper.prompt import History, build_prompt, fit_prefix
from oscine.models.whisper.tokens import suppressed, suppressed_first
from oscine.text.whisper import Tokenizer
from oscine.types import Segment, Transcript

if TYPE_CHECKING:
    from oscine.models.whisper.pipeline import Whisper

log = logging.getLogger(__name__)

MOST_TOKENS = 440  # picked in one window, whatever the text context allows
HOT = 0.5  # text made above this temperature is no context for what follows

Progress = Callable[[float, float], None]
Cancel = Callable[[], bool] | Event


class Stream(Iterator[Segment]):
    """One transcription under way: iterate for segments, stop iterating to cancel.

    `language` is the code once it is known ("" before), `duration` the seconds of audio.
    `transcript()` gives what is finished so far, at any time.
    """

    def __init__(
        self,
        model: Whisper,
        source: Source,
        options: TranscribeOptions,
        progress: Progress | None = None,
        cancel: Cancel | None = None,
    ) -> None:
        model.check(options)
        self._model, self._source, self._options = model, source, options
        self.language = options.language or ("" if model.multilingual else "en")
        self.duration = 0.0
        self._progress = progress
        self._cancelled = cancel.is_set if isinstance(cancel, Event) else cancel
        self._done: list[Segment] = []
        self._prepare()
        self._stages_before = dict(model.decoder.timings)
        self._timings = {"audio": 0.0, "total": 0.0}
        self._segments = self._run()

    def __next__(self) -> Segment:
        started = perf_counter()
        try:
            segment = next(self._segments)
        except Cancelled as stop:
            stop.partial = self.transcript()
            raise
        finally:
            self._clock("total", started)
        self._done.append(segment)
        return segment

    def transcript(self) -> Transcript:
        """What is finished so far; timings in milliseconds."""
        before = self._stages_before
        stages = {
            name: spent - before.get(name, 0.0)
            for name, spent in self._model.decoder.timings.items()
        }
        return Transcript(
            text="".join(segment.text for segment in self._done),
            language=self.language,
            segments=tuple(self._done),
            duration=self.duration,
            model=self._model.name,
            device=self._model.device,
            timings={name: round(spent, 3) for name, spent in (stages | self._timings).items()},
        )

    def _prepare(self) -> None:
        """What stays the same for all windows."""
        tokenizer, tokens = self._model.text_side()
        config, options = self._model.decoder.config, self._options
        self._tokenizer, self._tokens, self._config = tokenizer, tokens, config
        self._suppress = suppressed(options.suppress_tokens, tokenizer, tokens, config)
        self._suppress_first = (
            suppressed_first(tokenizer, tokens, config) if options.suppress_blank else ()
        )
        prefix = _encode(tokenizer, options.prefix or None)  # an empty one forces no space
        self._prefix = fit_prefix(prefix, config.n_text_ctx, options.sample_len)
        self._history = History(
            _encode(tokenizer, options.initial_prompt),
            config.n_text_ctx // 2 - 1,
            options.carry_initial_prompt,
        )

    def _run(self) -> Iterator[Segment]:
        """The seek loop."""
        started = perf_counter()
        window_frames = self._config.window_frames
        features = Features(self._source, self._config.n_mels, window_frames, check=self._check)
        self._clock("audio", started)
        self.duration = features.duration
        # Less than one frame of sound is a recording too.
        frames = max(features.frames, int(features.duration > 0))
        ranges = clip_frames(self._options.clip_timestamps, frames)
        if not ranges:
            why = "clip_timestamps name none of it" if frames else "it holds no sound"
            log.warning("%s: nothing to transcribe: %s", self._source.name, why)
        for start, end in ranges:
            seek = start
            last = self.duration if end == frames else end / FRAMES_PER_SECOND
            while seek < end:
                self._report(seek / frames)
                size = min(window_frames, end - seek)
                outcome = self._decode(features, seek, size)
                if is_silence(outcome, self._options):
                    seek += size
                else:
                    seek += yield from self._emit(outcome, seek, size, last)
        self._report(1.0)

    def _decode(self, features: Features, seek: int, size: int) -> Outcome:
        """One window's tokens, at the first temperature whose result is not poor."""
        with self._model.lock:
            self._check()
            self._model.hold(features, seek, size, self)
            if not self.language:
                self.language, _ = self._model.language_of(features, seek, size, self)
            for attempt, temperature in enumerate(self._options.temperature):
                outcome = self._attempt(temperature, seek, attempt)
                if not is_poor(outcome, self._options):
                    break
        return outcome

    def _attempt(self, temperature: float, seek: int, attempt: int) -> Outcome:
        """Decode the window that the device holds, once; the best of several samples if warm."""
        request = self._request(temperature, seek, attempt)
        row = best(self._model.decoder.decode(request, self._check))
        text = self._tokenizer.decode(row.tokens).strip()
        return Outcome(
            tokens=row.tokens,
            temperature=temperature,
            avg_logprob=row.avg_logprob,
            no_speech_prob=row.no_speech_prob,
            compression_ratio=compression_ratio(text),
            stop=row.stop,
        )

    def _request(self, temperature: float, seek: int, attempt: int) -> Request:
        options, tokens, context = self._options, self._tokens, self._config.n_text_ctx
        timestamps = not options.without_timestamps
        start = tokens.start_sequence(self.language, options.task, timestamps)
        history = self._history.prompt()
        prompt, sot = build_prompt(history, start, self._prefix, tokens.start_of_previous, context)
        initial = options.max_initial_timestamp
        if initial is not None:
            initial = min(initial, self._config.window_frames / FRAMES_PER_SECOND)
        return Request(
            prompt=prompt,
            sot=sot,
            suppress=self._suppress,
            suppress_first=self._suppress_first,
            end=tokens.end,
            timestamp_begin=tokens.timestamp_begin,
            no_timestamps=tokens.no_timestamps,
            no_speech=tokens.no_speech,
            timestamps=timestamps,
            max_initial_timestamp=(
                None if initial is None else round(initial / SECONDS_PER_TIMESTAMP)
            ),
            limit=min(options.sample_len or context // 2, context - len(prompt), MOST_TOKENS),
            temperature=temperature,
            samples=(options.best_of or BEST_OF) if temperature > 0 else 1,
            # Another window or attempt, other random numbers; the same run again, the same.
            seed=(options.seed * 0x9E3779B1 + seek * 16 + attempt) & 0xFFFFFFFF,
        )

    def _emit(
        self, outcome: Outcome, seek: int, size: int, last: float
    ) -> Generator[Segment, None, int]:
        """The window's segments; returns how many frames to move on."""
        pieces, advance = cut(outcome.tokens, size, self._tokens.timestamp_begin)
        texts = self._tokenizer.decode_parts(piece.tokens for piece in pieces)
        for piece, text in zip(pieces, texts, strict=True):
            if piece.start == piece.end or not text.strip():
                continue  # openai-whisper keeps these as empty segments; they say nothing
            self._history.extend(piece.tokens)
            yield self._segment(outcome, piece, text, seek, last)
        if not self._options.condition_on_previous_text or outcome.temperature > HOT:
            self._history.forget()
        return advance

    def _segment(
        self, outcome: Outcome, piece: Piece, text: str, seek: int, last: float
    ) -> Segment:
        """Times not past the `last` of audio or clip, and not before the segment before."""
        offset = seek / FRAMES_PER_SECOND
        before = self._done[-1].end if self._done else 0.0
        start = max(before, min(offset + piece.start, last))
        return Segment(
            id=len(self._done),
            seek=seek,
            start=start,
            end=max(start, min(offset + piece.end, last)),
            text=text,
            tokens=piece.tokens,
            temperature=outcome.temperature,
            avg_logprob=outcome.avg_logprob,
            compression_ratio=outcome.compression_ratio,
            no_speech_prob=outcome.no_speech_prob,
        )

    def _check(self, *_: int) -> None:
        """Stop here if the caller wants to."""
        if self._cancelled is not None and self._cancelled():
            raise Cancelled(f"{self._source.name}: cancelled")

    def _report(self, share: float) -> None:
        if self._progress is not None:
            self._progress(share * self.duration, self.duration)

    def _clock(self, stage: str, started: float) -> None:
        self._timings[stage] += 1000 * (perf_counter() - started)


def clip_frames(clips: Sequence[Clip], frames: int) -> list[tuple[int, int]]:
    """Clips in seconds as ranges of frames that lie inside the recording; empty ones left out."""
    ranges = []
    for start, end in clips:
        first = round(min(frames, start * FRAMES_PER_SECOND))
        last = frames if end is None else round(min(frames, end * FRAMES_PER_SECOND))
        if first < last:
            ranges.append((first, last))
    return ranges


def _encode(tokenizer: Tokenizer, text: str | None) -> tuple[int, ...]:
    """A prompt's text as ids, with the leading space that words in mid-sentence have."""
    return () if text is None else tokenizer.encode(" " + text.strip())
