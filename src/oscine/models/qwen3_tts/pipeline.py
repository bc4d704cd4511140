"""The public model: a text in, speech out, whole or as it comes."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterable, Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oscine.audio.io import Source, SourceLike, open_source
from oscine.audio.silero import available
from oscine.audio.speech import survey
from oscine.audio.vad import VadOptions
from oscine.errors import NonFiniteError, UsageError
from oscine.models.asynchronous import AsyncTextIterator
from oscine.models.base_model import Model
from oscine.models.cancel import Cancel, as_should_stop
from oscine.models.qwen3_tts.capabilities import Abilities
from oscine.models.qwen3_tts.conditioning import Conditioning
from oscine.models.qwen3_tts.generation import Settings
from oscine.models.qwen3_tts.options import OPTIONS, sampling
from oscine.models.qwen3_tts.prompt import Reference, Tokenizer
from oscine.models.qwen3_tts.runner import Qwen3TtsRunner
from oscine.models.qwen3_tts.sentences import Piece, incremental_pieces, pieces
from oscine.models.qwen3_tts.stream import SpeechStream, Synthesis
from oscine.models.qwen3_tts.voices import Voice, VoiceFolder, checked_words
from oscine.models.speech import Speech
from oscine.options.speak import SpeakOptions, checked_silence
from oscine.text.qwen import checked_text
from oscine.types import Samples

log = logging.getLogger(__name__)

#: Seconds; 5 to 15 are best, and each slows the beginning down.
SHORT_REFERENCE, LONG_REFERENCE = 2.0, 30.0
MOST_REFERENCE = 300.0  # the speaker's encoder holds all of it at once


class Qwen3Tts(Model[Qwen3TtsRunner]):
    """A loaded model: custom_voice, voice_design or base (`kind`).

    Calls and streams speak side by side, in whatever threads they are. `folder` is where saved
    voices are found by name.
    """

    def __init__(
        self,
        runner: Qwen3TtsRunner,
        tokenizer: Tokenizer,
        name: str,
        rebuild: Callable[[], Qwen3TtsRunner] | None = None,
        folder: VoiceFolder | None = None,
    ) -> None:
        super().__init__(runner, name, rebuild)
        self.tokenizer = tokenizer
        self.folder = folder or VoiceFolder(Path("voices"))
        self._config = runner.config

    @property
    def kind(self) -> str:
        """What the model is for: "custom_voice", "voice_design" or "base"."""
        return self._config.kind

    @property
    def abilities(self) -> Abilities:
        """All that it can be asked for."""
        return Abilities.of(self._config, self.name)

    @property
    def voices(self) -> tuple[str, ...]:
        """What `voice` may be: the model's own voices, or of a base model those that are saved."""
        if self.kind == "base":
            return tuple(self.folder.names())
        return tuple(self.abilities.speakers)

    @property
    def languages(self) -> tuple[str, ...]:
        """What `language` may be, by name; "auto" leaves it to the model."""
        return ("auto", *self.abilities.languages)

    # -- speaking -----------------------------------------------------------------------------

    def speak(
        self,
        text: str | Iterable[str],
        *,
        voice: str | Path | Voice | None = None,
        language: str | None = "auto",
        instruct: str | None = None,
        reference: SourceLike | None = None,
        reference_text: str | None = None,
        cancel: Cancel | None = None,
        **options: Any,
    ) -> Speech:
        """The text as one recording. Arguments: `stream`.

        Raises UsageError, AudioError, CheckpointError (a damaged voice), NonFiniteError,
        DeviceError, Cancelled.
        """
        started = perf_counter()
        stream = self._stream(
            started, text, cancel, options, voice=voice, language=language, instruct=instruct,
            reference=reference, reference_text=reference_text,
        )  # fmt: skip
        return stream.speech()

    async def speak_async(
        self,
        text: str | Iterable[str] | AsyncIterable[str],
        *,
        cancel: Cancel | None = None,
        **options: Any,
    ) -> Speech:
        """As speak, in a thread, without blocking the event loop. Calls share the device.

        The text may also be an asynchronous iterator of its parts. `cancel` is called in that
        thread. A task that is cancelled stops the work where `cancel` would. Raises as speak.
        """
        parts = AsyncTextIterator(text) if isinstance(text, AsyncIterable) else text
        try:
            return await self._async_calls.call(
                lambda stop: self.speak(parts, cancel=stop, **options), cancel
            )
        finally:
            if isinstance(parts, AsyncTextIterator):
                parts.close()

    def stream(
        self,
        text: str | Iterable[str] | AsyncIterable[str],
        *,
        voice: str | Path | Voice | None = None,
        language: str | None = "auto",
        instruct: str | None = None,
        reference: SourceLike | None = None,
        reference_text: str | None = None,
        cancel: Cancel | None = None,
        **options: Any,
    ) -> SpeechStream:
        """Audio as it comes: a frame of 80 ms, then pieces of 4 frames, later of up to 12.

        `text`: all of it, or parts of it as somebody writes them, also from an asynchronous
        iterator: each sentence is spoken once it is whole. A long text is cut at sentences; every
        piece has the same voice and seed. Marks as `[pause 500ms]` and `[pause 1.5s]` (60 s at
        most) become exactly so much silence.
        `voice`: of a custom_voice model one of its own, which must be named, of a base model a
        saved one, by name or path, or what voice_of gives. `language`: a name or code;
        "auto": the model finds out. `instruct`: how to speak, or of a voice_design model what voice
        to make up. `reference`: for base models a recording to sound like (an array as (samples,
        rate)); with `reference_text`, the words that are said in it, it is gone on from, without
        them only its voice is cloned.
        `cancel`: asked between pieces; then Cancelled is raised. `options`: SpeakOptions.
        Raises as speak.
        """
        return self._stream(
            perf_counter(), text, cancel, options, voice=voice, language=language,
            instruct=instruct, reference=reference, reference_text=reference_text,
        )  # fmt: skip

    def _stream(
        self,
        started: float,
        text: str | Iterable[str] | AsyncIterable[str],
        cancel: Cancel | None,
        options: dict[str, Any],
        **how: Any,
    ) -> SpeechStream:
        cancelled = as_should_stop(cancel)
        checked = OPTIONS.of(**options).with_seed()
        if checked.max_frames is not None and checked.max_frames >= self._config.context:
            raise UsageError(
                f"max_frames {checked.max_frames} do not fit into the model's "
                f"{self._config.context} positions; use max_seconds to bound long texts"
            )
        awaited = None
        if isinstance(text, str):
            if not checked_text(text).strip():
                raise UsageError("there is no text to speak")
            if not any(map(str.isalnum, text)):
                raise UsageError("there is nothing to say in the text: no letter and no digit")
            parts: Iterable[Any] = pieces(text)
            if not any(any(map(str.isalnum, part.text)) for part in parts):
                raise UsageError("there is nothing to say in the text beside pauses")
        elif isinstance(text, AsyncIterable):
            awaited = AsyncTextIterator(text)
            parts = incremental_pieces(map(checked_part, awaited))
        elif isinstance(text, Iterable) and not isinstance(text, bytes | bytearray):
            parts = incremental_pieces(map(checked_part, text))
        else:
            raise UsageError(f"text must be a str, or several of them, not {type(text).__name__}")
        conditioning = self._conditioning(checked, parts if isinstance(parts, list) else [], **how)
        talker, predictor = sampling(checked, self._config.generation)
        assert checked.seed is not None
        samples = checked.samples(self._config.codec.rate)
        settings = Settings(
            self._config, self.tokenizer, conditioning, talker, predictor, checked.seed,
            checked.max_frames, samples, checked.guard, checked.trim_silence,
        )  # fmt: skip
        synthesis = Synthesis(self, self.engine, parts, settings, started, cancelled)
        return SpeechStream(synthesis, awaited)

    def _conditioning(
        self,
        options: SpeakOptions,
        pieces: Sequence[Piece] = (),
        *,
        voice: str | Path | Voice | None,
        language: str | None,
        instruct: str | None,
        reference: SourceLike | None,
        reference_text: str | None,
    ) -> Conditioning:
        """Who speaks and how, checked; `pieces`: what of the text is known.

        Raises UsageError for what does not go with this model, or does not fit into it.
        """
        asked = self.abilities.check(
            self.folder, options, voice=voice, language=language, instruct=instruct,
            reference=reference, reference_text=reference_text,
        )  # fmt: skip
        found = Conditioning(
            asked.language, asked.speaker, asked.instruct, streamed=bool(options.streamed_text)
        )
        if self.kind != "base":
            found.room(self._config, self.tokenizer, pieces)
            if self.kind == "voice_design" and asked.instruct is None:
                log.warning("no voice is described, so any is made up: describe it with instruct")
            return found
        cloned = asked.voice
        if cloned is None:
            assert reference is not None
            heard = None if options.x_vector_only else reference_text
            cloned = self._cloned(reference, heard, options.reference_silence or 0.0, found, pieces)
        found = replace(found, reference=cloned.reference(self._config, options.x_vector_only))
        found.room(self._config, self.tokenizer, pieces)
        return found

    # -- voices -------------------------------------------------------------------------------

    def voice_of(
        self,
        reference: SourceLike,
        text: str | None = None,
        *,
        name: str = "",
        silence: float = 0.0,
    ) -> Voice:
        """What cloning takes from a recording; with the text that is said in it, more of it.

        Give it as `voice`, or keep it with save_voice. `silence`: seconds put after the recording.
        Raises UsageError for another kind of model, too short a recording, or an array without its
        rate; AudioError.
        """
        self.abilities.refuse_cloning()
        if text is not None:
            checked_words(text, "reference_text")
        silence = checked_silence("silence", silence)
        return replace(self._cloned(reference, text, silence, Conditioning("auto"), ()), name=name)

    def _cloned(
        self,
        reference: SourceLike,
        text: str | None,
        silence: float,
        conditioning: Conditioning,
        pieces: Sequence[Piece],
    ) -> Voice:
        """The voice of a recording, where there is room for it in prompts of these pieces."""
        codec, width = self._config.codec, self._config.talker.width
        rest, most = np.zeros(round(silence * codec.rate), np.float32), None
        if text is not None:
            frame = np.zeros((1, self._config.groups), np.uint32)
            short = Reference(np.zeros(width, np.float32), frame, text)
            shown = replace(conditioning, reference=short)
            room = shown.room(self._config, self.tokenizer, pieces)
            most = room * codec.hop - len(rest)
        least = self.engine.call(lambda runner: runner.speaker.least_samples)
        samples = reference_samples(reference, codec.rate, least, most)

        def work(
            runner: Qwen3TtsRunner,
        ) -> tuple[NDArray[np.float32], NDArray[np.uint32] | None]:
            vector = runner.speaker.embed(samples)
            if text is None:
                return vector, None
            return vector, runner.codec_encoder.encode(np.concatenate([samples, rest]))

        vector, codes = self.engine.call(work)
        return Voice("", vector, codes, text, self._config.size)

    def save_voice(self, name: str, reference: SourceLike | Voice, text: str | None = None) -> Path:
        """Keep a voice under a name, in place of one that had it. Returns its file.

        `reference`: what voice_of gives, or what it takes, with `text`. Raises as voice_of.
        """
        self.folder.place(name)  # before the work
        if isinstance(reference, Voice):
            if text is not None:
                raise UsageError("a voice has its text already: give it to voice_of")
            return self.folder.save(name, reference)
        return self.folder.save(name, self.voice_of(reference, text, name=name))


def checked_part(part: Any) -> str:
    """A part of a text. Raises UsageError for anything else."""
    if not isinstance(part, str):
        raise UsageError(f"parts of a text must be str, not {type(part).__name__}")
    return checked_text(part)


def reference_samples(
    reference: SourceLike, rate: int, least: int, most: int | None = None
) -> Samples:
    """A recording as mono samples [n] at `rate`, n from `least` to `most`, for cloning.

    What cannot make a good voice is told. Raises UsageError for an array without its rate, NaN,
    infinity, too little or too much of it; AudioError.
    """
    if isinstance(reference, np.ndarray):
        raise UsageError("a reference that is an array needs its rate: give (samples, rate)")
    source = open_source(reference)
    try:
        samples = _beginning(source, rate)
    except NonFiniteError as error:
        raise UsageError(str(error)) from None
    seconds = len(samples) / rate
    if len(samples) < least:
        raise UsageError(
            f"{source.name}: {seconds:.3f} s are too short for a reference; "
            f"{least / rate:.3f} s are the least, 5 to 15 s are best"
        )
    if most is not None and len(samples) > most:
        raise UsageError(
            f"{source.name}: {seconds:.1f} s are too long for a reference with its text; "
            f"{max(0.0, most / rate):.1f} s fit into the model, 5 to 15 s are best"
        )
    if seconds > LONG_REFERENCE:
        log.warning("%s: a reference of %.0f s is long; 5 to 15 s are best", source.name, seconds)
    if available() and not survey(source, vad=VadOptions()).spans:
        log.warning("%s: no speech is heard in it, so the voice will be nobody's", source.name)
    elif seconds < SHORT_REFERENCE:
        log.warning("%s: a reference of %.1f s is short; 5 to 15 s are best", source.name, seconds)
    return samples


def _beginning(source: Source, rate: int) -> Samples:
    """All of a recording. Raises UsageError for one of more than MOST_REFERENCE, read so far."""
    blocks = [np.zeros(0, np.float32)]
    seconds = 0.0
    for block in source.blocks(rate):
        blocks.append(block)
        seconds += len(block) / rate
        if seconds > MOST_REFERENCE:
            raise UsageError(
                f"{source.name}: is longer than {MOST_REFERENCE:g} s, the most of a reference; cut "
                "5 to 15 s out of it, which are best"
            )
    return np.concatenate(blocks)
