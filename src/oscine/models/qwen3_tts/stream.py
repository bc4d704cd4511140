"""Speaks a text piece by piece: yields audio as it is generated and joins the pieces."""

from __future__ import annotations

import logging
from asyncio import CancelledError
from collections.abc import Callable, Generator, Iterable, Iterator
from inspect import GEN_CLOSED, getgeneratorstate
from threading import Lock
from time import perf_counter
from types import TracebackType

import numpy as np

from oscine.engine.scheduler import Engine
from oscine.engine.sequence import Caller, Priority
from oscine.errors import Cancelled, UsageError
from oscine.models.asynchronous import AsyncTextIterator, StreamExecutor
from oscine.models.base_model import ModelInfo
from oscine.models.provenance import provenance_comment
from oscine.models.qwen3_tts.generation import NO_SAMPLES, Generation, GenerationSettings
from oscine.models.qwen3_tts.guards import (
    TYPICAL_LETTERS_PER_S,
    crossfade,
    max_crossfade_samples,
    silence_between,
    trim_leading_silence,
)
from oscine.models.qwen3_tts.options import retry_seed
from oscine.models.qwen3_tts.runner import Qwen3TtsRunner
from oscine.models.qwen3_tts.sentences import TextPiece, count_letters
from oscine.models.qwen3_tts.sequences import Utterance
from oscine.models.speech import Speech, SpokenPiece
from oscine.types import Audio, Samples

log = logging.getLogger(__name__)

MAX_CONCURRENT_PIECES = 16  # when only the complete audio is wanted
TAIL_S = 0.6  # of the latest audio, kept to join the next piece to


class Synthesis:
    """One call that is running, and its progress.

    Its pieces are utterances of the engine: one after another if audio is read as it comes, several
    in one batch if only the complete audio is wanted and no length limit depends on other pieces.
    It is separate from SpeechStream so that the running generator holds no reference to the stream:
    a stream that is dropped is collected at once, and its generations stop.
    """

    def __init__(
        self,
        model: ModelInfo,
        engine: Engine[Qwen3TtsRunner],
        pieces: Iterable[TextPiece],
        settings: GenerationSettings,
        started: float,
        cancelled: Callable[[], bool] | None,
    ) -> None:
        self.model, self.engine, self.codec = model, engine, settings.config.codec
        self.caller = Caller(Priority.INTERACTIVE)
        self.pieces, self.settings, self.started = pieces, settings, started
        self.cancelled = cancelled
        self.closed = False
        self.rate = self.codec.sample_rate
        self.buffer_pieces = False  # keep a piece until it is complete, so that it can be retried
        self.finish_reason: str | None = None
        self.first_audio: float | None = None
        self.due_silence_s = 0.0  # from pause marks, before the next audio
        self.samples = self.count = self.retries = self.frames = 0
        self.tail = NO_SAMPLES
        self.failure: str | None = None
        self.is_out_of_frames = False  # the call has no frames left
        self.limited = False  # cut short without a warning
        self.total_letters = (
            sum(count_letters(each.text) for each in pieces) if isinstance(pieces, list) else 0
        )
        self.spoken_letters = self.piece_letters = (
            0.0  # letters of complete pieces, and of the current one
        )
        self.piece_start = 0  # the sample at which the current piece begins
        self.reason = "end"  # how the current piece ended
        self.spoken: list[SpokenPiece] = []
        self.prefetched: dict[int, Generation] = {}  # of later pieces, by number

    def run(self) -> Generator[Samples, None, None]:
        """Yield the audio of the whole text; cancels all generations at the end."""
        try:
            yield from self.speak_pieces()
        finally:
            for generation in self.prefetched.values():
                generation.utterance.cancel()

    def speak_pieces(self) -> Iterator[Samples]:
        """Yield the audio of all pieces, with the silence between them."""
        for number, piece in enumerate(self.pieces):
            self.due_silence_s += piece.silence_s
            if not has_words(piece):
                continue
            if self.remaining_frames(piece) == 0:
                self.failure, self.limited = self.failure or "length", True
                break
            self.count += 1
            self.spoken_letters += self.piece_letters
            self.piece_letters, self.piece_start = count_letters(piece.text), self.samples
            began: int | None = None
            for samples in self.speak_piece(number, piece):
                if began is None:
                    yield from self.gap_before(piece, samples)
                    began = self.samples
                yield from self.emit(samples)
            if began is not None:
                times = began / self.rate, self.samples / self.rate
                self.spoken.append(SpokenPiece(piece.text, *times, self.reason))
            if self.is_out_of_frames:
                break
        if not self.count:
            raise UsageError("there is no text to speak")
        if not self.limited:
            yield from self.emit_silence(NO_SAMPLES)  # at the end of the text
        self.spoken_letters, self.piece_letters = self.spoken_letters + self.piece_letters, 0.0
        self.finish_reason = self.failure or "end"

    def speak_piece(self, number: int, piece: TextPiece) -> Iterator[Samples]:
        """The audio of a piece; if trim_silence is set, the first one's leading silence is
        removed.
        """
        audio = self.audio_with_retry(number, piece)
        is_first = self.settings.trim_silence and not self.samples
        return trim_leading_silence(audio, self.rate) if is_first else audio

    def gap_before(self, piece: TextPiece, after: Samples) -> Iterator[Samples]:
        """Yield the silence before a piece's first audio: of pause marks, else the pause that is
        due.
        """
        if self.due_silence_s:
            yield from self.emit_silence(after)
        elif self.samples:
            yield from self.emit(crossfade(self.tail, after, piece.pause_s, self.rate))

    def emit_silence(self, after: Samples) -> Iterator[Samples]:
        """Yield the silence of the pause marks so far, within the limit of the call."""
        samples, self.due_silence_s = (
            silence_between(self.tail, after, self.due_silence_s, self.rate),
            0.0,
        )
        most = self.settings.max_samples
        if most is not None and self.samples + len(samples) > most:
            samples = samples[: max(0, most - self.samples)]
            self.failure, self.limited = self.failure or "length", True
        second = self.rate
        for start in range(0, len(samples), second):  # in parts, so that it can be cancelled
            yield from self.emit(samples[start : start + second])

    def remaining_frames(self, piece: TextPiece) -> int | None:
        """The frames left for a piece, after the silence before it; None for no limit."""
        settings, hop = self.settings, self.codec.hop_length
        limits: list[int] = []
        if settings.max_frames is not None:
            limits.append(max(0, settings.max_frames - self.frames))
        if settings.max_samples is not None:
            quiet = max_crossfade_samples(piece.pause_s, self.rate) if self.samples else 0
            quiet = round(self.due_silence_s * self.rate) or quiet
            minimum = 0 if self.samples or quiet else 1
            limits.append(max(minimum, (settings.max_samples - self.samples - quiet) // hop))
        return min(limits, default=None)

    def emit(self, samples: Samples) -> Iterator[Samples]:
        """Yield samples and record them."""
        if not len(samples):
            return
        self.samples += len(samples)
        keep = round(TAIL_S * self.rate)
        self.tail = np.concatenate([self.tail, samples[-keep:]])[-keep:]
        yield samples
        self.check()

    def check(self) -> None:
        """Raise Cancelled if the caller wants to stop."""
        if self.closed or (self.cancelled is not None and self.cancelled()):
            raise Cancelled("speaking was cancelled")

    # -- one piece ----------------------------------------------------------------------------

    def audio_with_retry(self, number: int, piece: TextPiece) -> Iterator[Samples]:
        """Yield the audio of a piece; a generation that fails is retried with another seed.

        It is not retried once audio has been yielded: the piece then ends there.
        """
        self.check()
        self.prefetch(number)
        generation = self.prefetched.pop(number, None) or self.generate(piece, self.settings.seed)
        buffered: list[Samples] = []
        yielded = False
        for samples in self.generated_audio(generation):
            if self.buffer_pieces:
                buffered.append(samples)
            else:
                yielded = True
                yield samples
        if self.needs_retry(generation) and not yielded:
            message = "%r: %s; trying again with another seed"
            log.info(message, shorten(piece.text), self.failure_text(generation))
            self.retries += 1
            other = self.generate(piece, retry_seed(self.settings.seed))
            again = list(self.generated_audio(other))
            if not self.needs_retry(other) or not buffered:
                generation, buffered = other, again
        self.frames += generation.frames
        self.is_out_of_frames = generation.hit_remaining
        self.reason = generation.reason or "end"
        if generation.reason != "end":
            self.failure = self.failure or generation.reason
        if self.needs_retry(generation):
            message = "%r: stopped after %.1f s, as %s; another seed may do better"
            seconds = generation.frames * self.codec.hop_length / self.rate
            log.warning(message, shorten(piece.text), seconds, self.failure_text(generation))
        elif generation.reason != "end":
            self.limited = True
        yield from buffered

    def generate(self, piece: TextPiece, seed: int) -> Generation:
        """Start a generation of a piece."""
        return Generation(
            self.settings,
            piece.text,
            seed,
            self.remaining_frames(piece),
            self.submit,
            unpaced=self.buffer_pieces,
        )

    def submit(self, utterance: Utterance) -> None:
        """Submit an utterance to the engine on behalf of this call."""
        self.engine.submit(utterance, self.caller)

    def prefetch(self, number: int) -> None:
        """Start later pieces in the same batch, if only the complete audio is wanted."""
        if not self.buffer_pieces or self.settings.has_limit or not isinstance(self.pieces, list):
            return
        for index in range(number, min(number + MAX_CONCURRENT_PIECES, len(self.pieces))):
            piece = self.pieces[index]
            if index not in self.prefetched and has_words(piece):
                self.prefetched[index] = self.generate(piece, self.settings.seed)

    def needs_retry(self, generation: Generation) -> bool:
        """Whether another try may be better."""
        return self.settings.guard and (
            generation.reason in ("silence", "repetition")
            or (generation.reason == "length" and not generation.hit_remaining)
            or not generation.frames
        )

    def failure_text(self, generation: Generation) -> str:
        """The failure of a generation, for messages."""
        reasons = {
            "length": "it did not come to an end",
            "silence": "it became silent",
            "repetition": "it repeated itself in a loop",
        }
        return reasons.get(generation.reason or "", "there was no sound")

    @property
    def share(self) -> float | None:
        """The estimated share of the text that is spoken, from its length and typical speed."""
        if not self.total_letters:
            return None
        usual = TYPICAL_LETTERS_PER_S * (self.samples - self.piece_start) / self.rate
        return (self.spoken_letters + min(usual, self.piece_letters)) / self.total_letters

    def generated_audio(self, generation: Generation) -> Iterator[Samples]:
        """Yield the samples of a generation, and record the time of the first."""
        for samples in generation.samples(self.check):
            if self.first_audio is None and generation.utterance.first_piece is not None:
                self.first_audio = generation.utterance.first_piece - self.started
            yield samples


def has_words(piece: TextPiece) -> bool:
    """Whether a piece has a letter or a digit; a pause or a stray mark has none."""
    return any(map(str.isalnum, piece.text))


def shorten(text: str, most: int = 40) -> str:
    """A text shortened for messages."""
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


class SpeechStream(Iterator[Audio]):
    """Running speech: iterate for pieces of audio as they are generated.

    To stop it, stop iterating, call `close` or leave its `with` block. Streams run in one batch and
    do not wait for each other. A piece of the text is generated ahead of its reader: it pauses when
    30 s of audio are unread, and resumes when 5 s are left. The stream may move to another thread,
    but only one thread may iterate at a time. `seed` is the seed in use. While the stream runs,
    `finish_reason` is None; `first_audio`, the seconds from the call to the first audio, is None
    until there is some. Audio that was yielded is not kept.

    In asyncio, `async with` and `async for` do the same without blocking the event loop: audio is
    generated in a thread of the stream. A cancelled task closes its stream.

    Iterating raises the errors of `speak`.
    """

    def __init__(self, synthesis: Synthesis, awaited: AsyncTextIterator | None = None) -> None:
        self._synthesis = synthesis
        self._awaited = awaited
        self._worker = StreamExecutor()
        self._audio = synthesis.run()
        self._in_use = Lock()
        self._seconds: float | None = None
        self.seed = synthesis.settings.seed
        self.rate = synthesis.rate

    def __next__(self) -> Audio:
        synthesis = self._synthesis
        if synthesis.closed:
            self.close()
            raise StopIteration
        if not self._in_use.acquire(blocking=False):
            raise UsageError("the stream is already being iterated over")
        try:
            if synthesis.finish_reason is not None:
                raise StopIteration
            if self._is_over():
                synthesis.check()
                raise UsageError("the stream has ended with an error; make another one")
            return Audio(self._advance(), self.rate)
        finally:
            self._in_use.release()
            if synthesis.closed:  # meanwhile
                self.close()

    def _advance(self) -> Samples:
        """The samples of the next piece of audio."""
        try:
            return next(self._audio)
        except Cancelled:
            if self._synthesis.closed:
                raise StopIteration from None
            raise
        except StopIteration:
            self._seconds = perf_counter() - self._synthesis.started
            raise

    def _is_over(self) -> bool:
        return getgeneratorstate(self._audio) == GEN_CLOSED

    def __enter__(self) -> SpeechStream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop the speech; if a thread is iterating, at the next burst."""
        self._synthesis.closed = True
        if self._awaited is not None:
            self._awaited.close()
        if self._in_use.acquire(blocking=False):  # else the thread that iterates closes it
            try:
                self._audio.close()
            finally:
                self._in_use.release()

    def __aiter__(self) -> SpeechStream:
        return self

    async def __anext__(self) -> Audio:
        audio = None
        try:
            audio = await self._worker.call(lambda: next(self, None))
        except CancelledError:  # asyncio's, of the task that waits
            self.close()
            raise
        finally:
            if audio is None:
                self._worker.close()
        if audio is None:
            raise StopAsyncIteration
        return audio

    async def aclose(self) -> None:
        """Stop the speech and the stream's thread, without waiting; the asynchronous form of
        `close`.
        """
        self.close()
        self._worker.close()

    async def __aenter__(self) -> SpeechStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    @property
    def buffer_pieces(self) -> bool:
        """Whether each piece of the text is yielded when complete, so that a failed one can be
        retried.

        The default is False: audio is yielded as it is generated and is final.
        """
        return self._synthesis.buffer_pieces

    @buffer_pieces.setter
    def buffer_pieces(self, buffer_pieces: bool) -> None:
        self._synthesis.buffer_pieces = buffer_pieces
        self._synthesis.caller.priority = Priority.BULK if buffer_pieces else Priority.INTERACTIVE

    @property
    def finish_reason(self) -> str | None:
        """The reason as in Speech; None while the stream runs and after it was stopped."""
        return self._synthesis.finish_reason

    @property
    def limited(self) -> bool:
        """Whether max_frames, max_seconds or the model's limit cut the speech short.

        A guard that stops it logs a warning instead.
        """
        return self._synthesis.limited

    @property
    def share(self) -> float | None:
        """The estimated share of the text that is spoken, 0 to 1; None for a text in parts."""
        return self._synthesis.share

    @property
    def first_audio(self) -> float | None:
        """Seconds from the call until the first audio was generated."""
        return self._synthesis.first_audio

    @property
    def mark(self) -> str:
        """The mark of synthetic speech: the `comment` for the AudioWriter of this stream."""
        return provenance_comment(self._synthesis.model.name)

    @property
    def duration(self) -> float:
        """Seconds of audio so far."""
        return self._synthesis.samples / self.rate

    @property
    def pieces(self) -> int:
        """Pieces of the text so far, the current one included."""
        return self._synthesis.count

    @property
    def spoken(self) -> tuple[SpokenPiece, ...]:
        """The pieces that are complete, each with its times; without the current one."""
        return tuple(self._synthesis.spoken)

    @property
    def retries(self) -> int:
        """Pieces that were retried so far."""
        return self._synthesis.retries

    @property
    def timings(self) -> dict[str, float]:
        """Milliseconds a stage so far: prompt, frames (talker and code predictor), codec."""
        timings = self._synthesis.caller.timings.copy()
        return {name: round(spent, 3) for name, spent in timings.items()}

    def speech(self) -> Speech:
        """Run to the end and return all audio that was not yielded before.

        A piece of the text that fails is retried. Raises the errors of iterating, and UsageError
        for a closed stream with no audio left.
        """
        self.buffer_pieces = True
        samples = [audio.samples for audio in self]
        synthesis = self._synthesis
        if not samples and synthesis.finish_reason is None:
            raise UsageError("the stream was closed, so there is no speech; make another one")
        return Speech(
            np.concatenate(samples) if samples else NO_SAMPLES,
            self.rate,
            finish_reason=synthesis.finish_reason or "stopped",
            seed=self.seed,
            first_audio=synthesis.first_audio,
            seconds=self._seconds or 0.0,
            pieces=synthesis.count,
            retries=synthesis.retries,
            model=synthesis.model.name,
            device=synthesis.model.device,
            timings=self.timings,
            spoken=self.spoken,
        )
