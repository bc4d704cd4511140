"""The public model: text to speech, as one recording or as a stream."""

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
from oscine.text.qwen import check_characters
from oscine.types import Samples

log = logging.getLogger(__name__)

#: 5 to 15 s are best. A longer reference delays the first audio.
SHORT_REFERENCE_S, LONG_REFERENCE_S = 2.0, 30.0
MAX_REFERENCE_S = 300.0  # the speaker encoder processes it in one pass


class Qwen3Tts(Model[Qwen3TtsRunner]):
    """A loaded model; `kind` is custom_voice, voice_design or base.

    Calls and streams of any threads run in one batch. `folder` holds saved voices by name.
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
        """The model's type: "custom_voice", "voice_design" or "base"."""
        return self._config.tts_model_type

    @property
    def capabilities(self) -> Capabilities:
        """What the model can be asked for."""
        return Capabilities.from_config(self._config, self.name)

    @property
    def voices(self) -> tuple[str, ...]:
        """Values of `voice`: the model's own voices, or for a base model the saved ones."""
        if self.kind == "base":
            return tuple(self.folder.names())
        return tuple(self.capabilities.speakers)

    @property
    def languages(self) -> tuple[str, ...]:
        """Values of `language`, by name; with "auto" the model chooses."""
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
        """Speak the text as one recording. Arguments: see `stream`.

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
        """Speak the text in a thread, without blocking the event loop. Calls share the device.

        The text may also be an asynchronous iterator of parts. `cancel` is called in that thread.
        Cancelling the task stops the work as `cancel` does. Raises the errors of `speak`.
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
        """Yield audio as it is generated: a frame of 80 ms, then 4 frames at a time, later up to
        12.

        `text`: the whole text, or parts of it as they are written, also from an asynchronous
        iterator; each sentence is spoken once it is complete. A long text is split at sentences;
        all pieces have the same voice and seed. Marks such as `[pause 500ms]` and `[pause 1.5s]`
        (60 s at most) become exactly that much silence. `voice`: for a custom_voice model one of
        its own, which is required; for a base model a saved voice, by name or path, or a result of
        voice_of. `language`: a name or code; with "auto" the model chooses. `instruct`: how to
        speak, or for a voice_design model the description of the voice. `reference`: for a base
        model, a recording of the voice to clone (an array as (samples, rate)). With
        `reference_text`, its transcript, speech continues the reference; without, only the speaker
        embedding is used. `cancel`: called between pieces; if it returns True, Cancelled is raised.
        `options`: SpeakOptions. Raises the errors of `speak`.
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
            if not check_characters(text).strip():
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
            raise UsageError(f"text must be a str or an iterable of str, not {type(text).__name__}")
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
        """Check voice, language and instruction; `pieces`: the pieces of the text that are known.

        Raises UsageError for arguments that do not suit this model or a prompt that does not fit
        into it.
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
                log.warning(
                    "no voice is described, so the model chooses one: describe it with instruct"
                )
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
        """Make a voice of a recording, for `voice` or save_voice.

        With the transcript `text`, the voice also has the reference's codes, so that speech
        continues it. `silence`: seconds of silence to append to the recording. Raises UsageError
        for a model that is not a base model, a recording that is too short, or an array without its
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
        """The voice of a recording, if prompts of these pieces leave room for its codes."""
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
        """Save a voice under a name, replacing a voice of that name. Returns its file.

        `reference`: a result of voice_of, or a recording as voice_of takes it, with `text`. Raises
        the errors of voice_of.
        """
        self.folder.path_to_write(name)  # reports an invalid name before the work
        if isinstance(reference, Voice):
            if text is not None:
                raise UsageError("a voice has its text already: give it to voice_of")
            return self.folder.save(name, reference)
        return self.folder.save(name, self.voice_of(reference, text, name=name))


def check_text_part(part: Any) -> str:
    """A part of a text. Raises UsageError if it is not a str."""
    if not isinstance(part, str):
        raise UsageError(f"parts of a text must be str, not {type(part).__name__}")
    return check_characters(part)


def load_reference(
    reference: SourceLike, rate: int, min_samples: int, max_samples: int | None = None
) -> Samples:
    """Read a recording for cloning: mono float32 samples [n] at `rate`, n from `min_samples` to
    `max_samples`.

    Warns about recordings that give a poor voice. Raises UsageError for an array without its rate,
    NaN or infinity, or a recording that is too short or too long; AudioError.
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
            f"it needs at least {min_samples / rate:.3f} s, 5 to 15 s are best"
        )
    if max_samples is not None and len(samples) > max_samples:
        raise UsageError(
            f"{source.name}: {seconds:.1f} s are too long for a reference with its text; "
            f"{max(0.0, max_samples / rate):.1f} s fit into the model, 5 to 15 s are best"
        )
    if seconds > LONG_REFERENCE_S:
        log.warning("%s: a reference of %.0f s is long; 5 to 15 s are best", source.name, seconds)
    if available() and not detect_speech(source, vad=VadOptions()).spans:
        log.warning("%s: no speech is detected in it, so the voice will be arbitrary", source.name)
    elif seconds < SHORT_REFERENCE_S:
        log.warning("%s: a reference of %.1f s is short; 5 to 15 s are best", source.name, seconds)
    return samples


def _read_reference(source: Source, rate: int) -> Samples:
    """Read a whole recording. Raises UsageError as soon as it is longer than MAX_REFERENCE_S."""
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
