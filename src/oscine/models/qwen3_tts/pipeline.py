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
from oscine.audio.speech import detect_speech
from oscine.audio.vad import VadOptions
from oscine.errors import NonFiniteError, UsageError
from oscine.models.asynchronous import AsyncTextIterator
from oscine.models.base_model import Model
from oscine.models.cancel import Cancel, as_should_stop
from oscine.models.qwen3_tts.capabilities import Capabilities
from oscine.models.qwen3_tts.conditioning import Conditioning
from oscine.models.qwen3_tts.generation import GenerationSettings
from oscine.models.qwen3_tts.options import OPTIONS, sampling_params
from oscine.models.qwen3_tts.prompt import Reference, Tokenizer
from oscine.models.qwen3_tts.runner import Qwen3TtsRunner
from oscine.models.qwen3_tts.sentences import TextPiece, split_sentences, stream_sentences
from oscine.models.qwen3_tts.stream import SpeechStream, Synthesis
from oscine.models.qwen3_tts.voices import Voice, VoiceFolder, check_reference_text
from oscine.models.speech import Speech
from oscine.options.speak import SpeakOptions, check_silence
from oscine.text.qwen import checked_text
from oscine.types import Samples

log = logging.getLogger(__name__)

#: Seconds; 5 to 15 are best, and each slows the beginning down.
SHORT_REFERENCE_S, LONG_REFERENCE_S = 2.0, 30.0
MAX_REFERENCE_S = 300.0  # the speaker's encoder holds all of it at once


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
        return self._config.tts_model_type

    @property
    def capabilities(self) -> Capabilities:
        """All that it can be asked for."""
        return Capabilities.from_config(self._config, self.name)

    @property
    def voices(self) -> tuple[str, ...]:
        """What `voice` may be: the model's own voices, or of a base model those that are saved."""
        if self.kind == "base":
            return tuple(self.folder.names())
        return tuple(self.capabilities.speakers)

    @property
    def languages(self) -> tuple[str, ...]:
        """What `language` may be, by name; "auto" leaves it to the model."""
        return ("auto", *self.capabilities.languages)

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
        if (
            checked.max_frames is not None
            and checked.max_frames >= self._config.max_position_embeddings
        ):
            raise UsageError(
                f"max_frames {checked.max_frames} do not fit into the model's "
                f"{self._config.max_position_embeddings} positions; use max_seconds to bound "
                "long texts"
            )
        awaited = None
        if isinstance(text, str):
            if not checked_text(text).strip():
                raise UsageError("there is no text to speak")
            if not any(map(str.isalnum, text)):
                raise UsageError("there is nothing to say in the text: no letter and no digit")
            parts: Iterable[Any] = split_sentences(text)
            if not any(any(map(str.isalnum, part.text)) for part in parts):
                raise UsageError("there is nothing to say in the text beside pauses")
        elif isinstance(text, AsyncIterable):
            awaited = AsyncTextIterator(text)
            parts = stream_sentences(map(check_text_part, awaited))
        elif isinstance(text, Iterable) and not isinstance(text, bytes | bytearray):
            parts = stream_sentences(map(check_text_part, text))
        else:
            raise UsageError(f"text must be a str, or several of them, not {type(text).__name__}")
        conditioning = self._conditioning(checked, parts if isinstance(parts, list) else [], **how)
        talker, predictor = sampling_params(checked, self._config.generation)
        assert checked.seed is not None
        samples = checked.samples(self._config.codec.sample_rate)
        settings = GenerationSettings(
            self._config, self.tokenizer, conditioning, talker, predictor, checked.seed,
            checked.max_frames, samples, checked.guard, checked.trim_silence,
        )  # fmt: skip
        synthesis = Synthesis(self, self.engine, parts, settings, started, cancelled)
        return SpeechStream(synthesis, awaited)

    def _conditioning(
        self,
        options: SpeakOptions,
        pieces: Sequence[TextPiece] = (),
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
        request = self.capabilities.check(
            self.folder, options, voice=voice, language=language, instruct=instruct,
            reference=reference, reference_text=reference_text,
        )  # fmt: skip
        conditioning = Conditioning(
            request.language,
            request.speaker,
            request.instruct,
            streamed_text=bool(options.streamed_text),
        )
        if self.kind != "base":
            conditioning.max_frames(self._config, self.tokenizer, pieces)
            if self.kind == "voice_design" and request.instruct is None:
                log.warning("no voice is described, so any is made up: describe it with instruct")
            return conditioning
        cloned = request.voice
        if cloned is None:
            assert reference is not None
            transcript = None if options.x_vector_only else reference_text
            cloned = self._clone_voice(
                reference, transcript, options.reference_silence or 0.0, conditioning, pieces
            )
        conditioning = replace(
            conditioning, reference=cloned.reference(self._config, options.x_vector_only)
        )
        conditioning.max_frames(self._config, self.tokenizer, pieces)
        return conditioning

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
        self.capabilities.require_cloning()
        if text is not None:
            check_reference_text(text, "reference_text")
        silence = check_silence("silence", silence)
        return replace(
            self._clone_voice(reference, text, silence, Conditioning("auto"), ()), name=name
        )

    def _clone_voice(
        self,
        reference: SourceLike,
        text: str | None,
        silence: float,
        conditioning: Conditioning,
        pieces: Sequence[TextPiece],
    ) -> Voice:
        """The voice of a recording, where there is room for it in prompts of these pieces."""
        codec, width = self._config.codec, self._config.talker.hidden_size
        padding, max_samples = np.zeros(round(silence * codec.sample_rate), np.float32), None
        if text is not None:
            frame = np.zeros((1, self._config.num_code_groups), np.uint32)
            short = Reference(np.zeros(width, np.float32), frame, text)
            shown = replace(conditioning, reference=short)
            room = shown.max_frames(self._config, self.tokenizer, pieces)
            max_samples = room * codec.hop_length - len(padding)
        min_samples = self.engine.call(lambda runner: runner.speaker_encoder.min_samples)
        samples = load_reference(reference, codec.sample_rate, min_samples, max_samples)

        def work(
            runner: Qwen3TtsRunner,
        ) -> tuple[NDArray[np.float32], NDArray[np.uint32] | None]:
            vector = runner.speaker_encoder.embed(samples)
            if text is None:
                return vector, None
            return vector, runner.codec_encoder.encode(np.concatenate([samples, padding]))

        vector, codes = self.engine.call(work)
        return Voice("", vector, codes, text, self._config.tts_model_size)

    def save_voice(self, name: str, reference: SourceLike | Voice, text: str | None = None) -> Path:
        """Keep a voice under a name, in place of one that had it. Returns its file.

        `reference`: what voice_of gives, or what it takes, with `text`. Raises as voice_of.
        """
        self.folder.path_to_write(name)  # before the work
        if isinstance(reference, Voice):
            if text is not None:
                raise UsageError("a voice has its text already: give it to voice_of")
            return self.folder.save(name, reference)
        return self.folder.save(name, self.voice_of(reference, text, name=name))


def check_text_part(part: Any) -> str:
    """A part of a text. Raises UsageError for anything else."""
    if not isinstance(part, str):
        raise UsageError(f"parts of a text must be str, not {type(part).__name__}")
    return checked_text(part)


def load_reference(
    reference: SourceLike, rate: int, min_samples: int, max_samples: int | None = None
) -> Samples:
    """A recording as mono samples [n] at `rate`, n from `least` to `most`, for cloning.

    What cannot make a good voice is told. Raises UsageError for an array without its rate, NaN,
    infinity, too little or too much of it; AudioError.
    """
    if isinstance(reference, np.ndarray):
        raise UsageError("a reference that is an array needs its rate: give (samples, rate)")
    source = open_source(reference)
    try:
        samples = _read_reference(source, rate)
    except NonFiniteError as error:
        raise UsageError(str(error)) from None
    seconds = len(samples) / rate
    if len(samples) < min_samples:
        raise UsageError(
            f"{source.name}: {seconds:.3f} s are too short for a reference; "
            f"{min_samples / rate:.3f} s are the least, 5 to 15 s are best"
        )
    if max_samples is not None and len(samples) > max_samples:
        raise UsageError(
            f"{source.name}: {seconds:.1f} s are too long for a reference with its text; "
            f"{max(0.0, max_samples / rate):.1f} s fit into the model, 5 to 15 s are best"
        )
    if seconds > LONG_REFERENCE_S:
        log.warning("%s: a reference of %.0f s is long; 5 to 15 s are best", source.name, seconds)
    if available() and not detect_speech(source, vad=VadOptions()).spans:
        log.warning("%s: no speech is heard in it, so the voice will be nobody's", source.name)
    elif seconds < SHORT_REFERENCE_S:
        log.warning("%s: a reference of %.1f s is short; 5 to 15 s are best", source.name, seconds)
    return samples


def _read_reference(source: Source, rate: int) -> Samples:
    """All of a recording. Raises UsageError for one of more than MOST_REFERENCE, read so far."""
    blocks = [np.zeros(0, np.float32)]
    seconds = 0.0
    for block in source.blocks(rate):
        blocks.append(block)
        seconds += len(block) / rate
        if seconds > MAX_REFERENCE_S:
            raise UsageError(
                f"{source.name}: a reference may last at most {MAX_REFERENCE_S:g} s; cut 5 to 15 s "
                "out of it"
            )
    return np.concatenate(blocks)
