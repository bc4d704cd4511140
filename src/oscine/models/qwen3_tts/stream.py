"""A text spoken piece by piece: audio as it comes, each piece joined to the one before."""

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

MAX_CONCURRENT_PIECES = 16  # pieces of a text that are spoken at once where the whole is wanted
TAIL_S = 0.6  # seconds of what was heard last that are kept, to join the next piece to


class Synthesis:
    """One call under way, and what is known of it so far.

    Its pieces are utterances of the engine: one after another where they are heard as they come,
    several side by side where the whole is wanted and no limit of one depends on another's length.
    Apart from SpeechStream, so that the generator which runs it holds no stream: one that is not
    iterated over any more goes away at once, and what was under way for it stops.
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
        self.buffer_pieces = False  # a piece until it is whole, so that it can be tried once more
        self.finish_reason: str | None = None
        self.first_audio: float | None = None
        self.due_silence_s = 0.0  # seconds of silence that the text asks for before what comes next
        self.samples = self.count = self.retries = self.frames = 0
        self.tail = NO_SAMPLES
        self.failure: str | None = None
        self.is_out_of_frames = False  # no more frames may be made
        self.limited = False  # stopped at a bound that nobody has been told of
        self.total_letters = (
            sum(count_letters(each.text) for each in pieces) if isinstance(pieces, list) else 0
        )
        self.spoken_letters = self.piece_letters = (
            0.0  # letters: of whole pieces, of the one that is spoken
        )
        self.piece_start = 0  # of that one, in samples
        self.reason = "end"  # how that one ended
        self.spoken: list[SpokenPiece] = []
        self.prefetched: dict[
            int, Generation
        ] = {}  # at pieces whose turn is yet to come, by their number

    def run(self) -> Generator[Samples, None, None]:
        """All of it."""
        try:
            yield from self.speak_pieces()
        finally:
            for attempt in self.prefetched.values():
                attempt.utterance.cancel()

    def speak_pieces(self) -> Iterator[Samples]:
        """Piece by piece, with the quiet between them."""
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
                place = began / self.rate, self.samples / self.rate
                self.spoken.append(SpokenPiece(piece.text, *place, self.reason))
            if self.is_out_of_frames:
                break
        if not self.count:
            raise UsageError("there is no text to speak")
        if not self.limited:
            yield from self.emit_silence(NO_SAMPLES)  # that the text ends with
        self.spoken_letters, self.piece_letters = self.spoken_letters + self.piece_letters, 0.0
        self.finish_reason = self.failure or "end"

    def speak_piece(self, number: int, piece: TextPiece) -> Iterator[Samples]:
        """Audio of a piece, where it is the first without the quiet before it, if that is asked."""
        audio = self.audio_with_retry(number, piece)
        is_first = self.settings.trim_silence and not self.samples
        return trim_leading_silence(audio, self.rate) if is_first else audio

    def gap_before(self, piece: TextPiece, after: Samples) -> Iterator[Samples]:
        """What goes ahead of a piece's first audio: the silence that the text asks for, else the
        quiet that is due."""
        if self.due_silence_s:
            yield from self.emit_silence(after)
        elif self.samples:
            yield from self.emit(crossfade(self.tail, after, piece.pause_s, self.rate))

    def emit_silence(self, after: Samples) -> Iterator[Samples]:
        """The silence that the text asks for by now, as far as there may be more audio."""
        samples, self.due_silence_s = (
            silence_between(self.tail, after, self.due_silence_s, self.rate),
            0.0,
        )
        most = self.settings.max_samples
        if most is not None and self.samples + len(samples) > most:
            samples = samples[: max(0, most - self.samples)]
            self.failure, self.limited = self.failure or "length", True
        second = self.rate
        for start in range(0, len(samples), second):  # so that it can be stopped
            yield from self.emit(samples[start : start + second])

    def remaining_frames(self, piece: TextPiece) -> int | None:
        """Frames that a piece may have, the quiet before it being counted too; None: any number."""
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
        """Give it out."""
        if not len(samples):
            return
        self.samples += len(samples)
        keep = round(TAIL_S * self.rate)
        self.tail = np.concatenate([self.tail, samples[-keep:]])[-keep:]
        yield samples
        self.check()

    def check(self) -> None:
        """Stop here if the caller wants to."""
        if self.closed or (self.cancelled is not None and self.cancelled()):
            raise Cancelled("speaking was cancelled")

    # -- one piece ----------------------------------------------------------------------------

    def audio_with_retry(self, number: int, piece: TextPiece) -> Iterator[Samples]:
        """Audio of a piece; of a second try with another seed where the first went wrong.

        There is none once audio of the first has been given out: then the piece ends there.
        """
        self.check()
        self.prefetch(number)
        attempt = self.prefetched.pop(number, None) or self.generate(piece, self.settings.seed)
        held: list[Samples] = []
        given = False
        for samples in self.generated_audio(attempt):
            if self.buffer_pieces:
                held.append(samples)
            else:
                given = True
                yield samples
        if self.needs_retry(attempt) and not given:
            told = "%r: %s; it is said once more, with another seed"
            log.info(told, shorten(piece.text), self.failure_text(attempt))
            self.retries += 1
            other = self.generate(piece, retry_seed(self.settings.seed))
            again = list(self.generated_audio(other))
            if not self.needs_retry(other) or not held:
                attempt, held = other, again
        self.frames += attempt.frames
        self.is_out_of_frames = attempt.hit_remaining
        self.reason = attempt.reason or "end"
        if attempt.reason != "end":
            self.failure = self.failure or attempt.reason
        if self.needs_retry(attempt):
            told = "%r: stopped after %.1f s, as %s; another seed may do better"
            seconds = attempt.frames * self.codec.hop_length / self.rate
            log.warning(told, shorten(piece.text), seconds, self.failure_text(attempt))
        elif attempt.reason != "end":
            self.limited = True
        yield from held

    def generate(self, piece: TextPiece, seed: int) -> Generation:
        """One try, which begins now."""
        return Generation(
            self.settings,
            piece.text,
            seed,
            self.remaining_frames(piece),
            self.submit,
            unpaced=self.buffer_pieces,
        )

    def submit(self, utterance: Utterance) -> None:
        """Have the engine speak it, for this call."""
        self.engine.submit(utterance, self.caller)

    def prefetch(self, number: int) -> None:
        """Where the whole is wanted, begin with pieces from one on, side by side."""
        if not self.buffer_pieces or self.settings.has_limit or not isinstance(self.pieces, list):
            return
        for place in range(number, min(number + MAX_CONCURRENT_PIECES, len(self.pieces))):
            piece = self.pieces[place]
            if place not in self.prefetched and has_words(piece):
                self.prefetched[place] = self.generate(piece, self.settings.seed)

    def needs_retry(self, attempt: Generation) -> bool:
        """Whether another try may be better."""
        return self.settings.guard and (
            attempt.reason in ("silence", "repetition")
            or (attempt.reason == "length" and not attempt.hit_remaining)
            or not attempt.frames
        )

    def failure_text(self, attempt: Generation) -> str:
        """What is wrong with it."""
        reasons = {
            "length": "it did not come to an end",
            "silence": "nothing was heard any more",
            "repetition": "it said the same over and over",
        }
        return reasons.get(attempt.reason or "", "there was no sound")

    @property
    def share(self) -> float | None:
        """How much of the text is spoken, as far as its length and usual speed tell."""
        if not self.total_letters:
            return None
        usual = TYPICAL_LETTERS_PER_S * (self.samples - self.piece_start) / self.rate
        return (self.spoken_letters + min(usual, self.piece_letters)) / self.total_letters

    def generated_audio(self, attempt: Generation) -> Iterator[Samples]:
        """The samples of an attempt as they come."""
        for samples in attempt.samples(self.check):
            if self.first_audio is None and attempt.utterance.first_piece is not None:
                self.first_audio = attempt.utterance.first_piece - self.started
            yield samples


def has_words(piece: TextPiece) -> bool:
    """Whether there is something to say in a piece, which may be a pause or a stray mark."""
    return any(map(str.isalnum, piece.text))


def shorten(text: str, most: int = 40) -> str:
    """A text as messages quote it."""
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


class SpeechStream(Iterator[Audio]):
    """Speech under way: iterate for pieces of audio as they come.

    To stop, stop iterating, or `close`, or leave its `with`. Other calls need not wait for that:
    the device speaks for all of them side by side. A piece of the text is made ahead of its reader;
    where 30 s of it are not taken it stops, and is made again once 5 s are left. Another thread may
    go on with the stream, but no two at a time. `seed` is what it is spoken with. While it runs
    `finish_reason` is None and `first_audio`, seconds from the call to the first piece, None until
    there is one. What was iterated over is not kept.

    In asyncio, `async with` and `async for` do the same without making the event loop wait: audio
    is made in a thread of the stream. A task that is cancelled closes its stream.

    Iterating raises what speak raises.
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
            raise UsageError("the stream is being iterated over already; two at a time cannot")
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
        """The next piece."""
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
        """Say no more, and stop what is under way; at the next burst if a thread is iterating."""
        self._synthesis.closed = True
        if self._awaited is not None:
            self._awaited.close()
        if self._in_use.acquire(blocking=False):  # else whoever has it closes it
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
        """As `close`."""
        self.close()
        self._worker.close()

    async def __aenter__(self) -> SpeechStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    @property
    def hold(self) -> bool:
        """Whether a piece of the text comes whole, so that one that goes wrong is said once more.

        False unless set: audio comes as it is made, and what was given out stands.
        """
        return self._synthesis.buffer_pieces

    @hold.setter
    def hold(self, hold: bool) -> None:
        self._synthesis.buffer_pieces = hold
        self._synthesis.caller.priority = Priority.BULK if hold else Priority.INTERACTIVE

    @property
    def finish_reason(self) -> str | None:
        """As in Speech; None while it is not known, and where it was stopped."""
        return self._synthesis.finish_reason

    @property
    def limited(self) -> bool:
        """Whether speech was cut short by max_frames, max_seconds or the model's own bound, and not
        by a guard, which logs a warning."""
        return self._synthesis.limited

    @property
    def share(self) -> float | None:
        """How much of the text is spoken, 0 to 1, more or less; None for a text in parts."""
        return self._synthesis.share

    @property
    def first_audio(self) -> float | None:
        """Seconds from the call until the first audio was made."""
        return self._synthesis.first_audio

    @property
    def mark(self) -> str:
        """As in Speech: the `comment` of an AudioWriter that this goes to."""
        return provenance_comment(self._synthesis.model.name)

    @property
    def duration(self) -> float:
        """Seconds of audio so far."""
        return self._synthesis.samples / self.rate

    @property
    def pieces(self) -> int:
        """Pieces of the text so far, the one under way too."""
        return self._synthesis.count

    @property
    def spoken(self) -> tuple[SpokenPiece, ...]:
        """The pieces that are spoken so far, each with its place; not the one under way."""
        return tuple(self._synthesis.spoken)

    @property
    def retries(self) -> int:
        """Pieces that were spoken a second time so far."""
        return self._synthesis.retries

    @property
    def timings(self) -> dict[str, float]:
        """Milliseconds a stage so far: prompt, frames (talker and predictor), codec."""
        timings = self._synthesis.caller.timings.copy()
        return {name: round(spent, 3) for name, spent in timings.items()}

    def speech(self) -> Speech:
        """Run to the end; all that was not iterated over before, as one.

        A piece of the text that goes wrong is spoken a second time here, as it is not heard before.
        Raises what iterating raises, and UsageError where it was closed and nothing is left.
        """
        self.hold = True
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
