"""faster-whisper's interface on oscine: WhisperModel, BatchedInferencePipeline and what they give.

Names, defaults and results are those of faster-whisper 1.2 (faster_whisper/transcribe.py);
docs/compat.md has what differs. Raises oscine's errors, each one line.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from types import SimpleNamespace
from typing import Any

from oscine import hub
from oscine.audio.io import channel_count, decode, open_source
from oscine.audio.mel import SAMPLE_RATE
from oscine.audio.vad import VadOptions
from oscine.compat.arguments import (
    available_models,
    load_whisper,
    missing_attribute,
    reject_unknown,
    reject_unsupported,
    to_array,
    to_device,
    to_dtype,
    without_unused_search,
)
from oscine.errors import UsageError
from oscine.formats import timestamp
from oscine.options.transcribe import (
    APPEND_PUNCTUATIONS,
    DEFAULT_TEMPERATURES,
    PREPEND_PUNCTUATIONS,
    TranscribeOptions,
)
from oscine.text.languages import language_code
from oscine.threads import set_count
from oscine.types import Samples

__all__ = [
    "BatchedInferencePipeline",
    "Segment",
    "TranscriptionInfo",
    "VadOptions",
    "WhisperModel",
    "Word",
    "available_models",
    "decode_audio",
    "download_model",
    "format_timestamp",
]

#: Options of WhisperModel.transcribe besides language and task, with faster-whisper's defaults.
DEFAULTS: Mapping[str, Any] = {
    "log_progress": False,
    "beam_size": 5,
    "best_of": 5,
    "patience": 1,
    "length_penalty": 1,
    "repetition_penalty": 1,
    "no_repeat_ngram_size": 0,
    "temperature": DEFAULT_TEMPERATURES,
    "compression_ratio_threshold": 2.4,
    "log_prob_threshold": -1.0,
    "no_speech_threshold": 0.6,
    "condition_on_previous_text": True,
    "prompt_reset_on_temperature": 0.5,
    "initial_prompt": None,
    "prefix": None,
    "suppress_blank": True,
    "suppress_tokens": (-1,),
    "without_timestamps": False,
    "max_initial_timestamp": 1.0,
    "word_timestamps": False,
    "prepend_punctuations": PREPEND_PUNCTUATIONS,
    "append_punctuations": APPEND_PUNCTUATIONS,
    "multilingual": False,
    "vad_filter": False,
    "vad_parameters": None,
    "max_new_tokens": None,
    "chunk_length": None,
    "clip_timestamps": "0",
    "hallucination_silence_threshold": None,
    "hotwords": None,
    "language_detection_threshold": 0.5,
    "language_detection_segments": 1,
}
#: The same of BatchedInferencePipeline.transcribe.
BATCHED_DEFAULTS: Mapping[str, Any] = {
    **DEFAULTS,
    "without_timestamps": True,
    "vad_filter": True,
    "clip_timestamps": None,
    "batch_size": 8,
}
#: Options that have another name in oscine.
RENAMED_OPTIONS = {"log_prob_threshold": "logprob_threshold", "max_new_tokens": "sample_len"}
#: What is refused: of WhisperModel, of transcribe, of download_model, of attributes.
UNSUPPORTED_MODEL_OPTIONS = {
    "num_workers": "calls from any number of threads share the device; leave it out",
    "download_root": "set the environment variable OSCINE_HOME to the folder of models",
    "files": "give the path of a folder or file that holds the model",
    "revision": "the newest is fetched; give the path of a copy of another",
    "use_auth_token": "set the environment variable HF_TOKEN, or run `hf auth login`",
    "flash_attention": "oscine has kernels of its own; leave it out",
    "tensor_parallel": "oscine runs a model on one device; leave it out",
    "max_queued_batches": "any number of calls may wait for the device; leave it out",
}
UNSUPPORTED_OPTIONS = {
    "chunk_length": "a window is as long as the model's, 30 s; leave it out",
    "prompt_reset_on_temperature": "it is 0.5; leave it out",
}
UNSUPPORTED_DOWNLOAD_OPTIONS = {
    "output_dir": "set the environment variable OSCINE_HOME to the folder of models",
    "cache_dir": UNSUPPORTED_MODEL_OPTIONS["download_root"],
    "revision": UNSUPPORTED_MODEL_OPTIONS["revision"],
    "use_auth_token": UNSUPPORTED_MODEL_OPTIONS["use_auth_token"],
}
UNSUPPORTED_ATTRIBUTES = {
    "encode": "oscine.load(name).encode(audio) gives the encoder's output",
    "generate_segments": "use transcribe",
    "hf_tokenizer": "oscine.load(name).tokenizer encodes and decodes",
}


@dataclass
class Word:
    """A word: its times in seconds, its text, and the probability of that."""

    start: float
    end: float
    word: str
    probability: float

    def _asdict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class Segment:
    """A phrase. `id` counts from 1, `seek` mel frames of 10 ms, `start` and `end` seconds."""

    id: int
    seek: int
    start: float
    end: float
    text: str
    tokens: list[int]
    avg_logprob: float
    compression_ratio: float
    no_speech_prob: float
    words: list[Word] | None
    temperature: float | None

    def _asdict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class TranscriptionInfo:
    """What is known before the first segment; durations are seconds.

    `all_language_probs`: (code, probability), highest first; None where the language was given.
    """

    language: str
    language_probability: float
    duration: float
    duration_after_vad: float
    all_language_probs: list[tuple[str, float]] | None
    transcription_options: TranscribeOptions
    vad_options: VadOptions | None

    def _asdict(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)}


class WhisperModel:
    """A Whisper that is loaded; see docs/compat.md for what each argument means here."""

    def __init__(
        self,
        model_size_or_path: str,
        device: str = "auto",
        device_index: int | list[int] = 0,
        compute_type: str = "default",
        cpu_threads: int = 0,
        *,
        local_files_only: bool = False,
        **more: Any,
    ) -> None:
        """Raises UsageError, HubError, CheckpointError, DeviceError."""
        reject_unknown("WhisperModel", more, UNSUPPORTED_MODEL_OPTIONS)
        asked = {name: value for name, value in more.items() if (name, value) != ("num_workers", 1)}
        if asked.get("use_auth_token") is True:  # the token that is stored is used anyway
            del asked["use_auth_token"]
        reject_unsupported("WhisperModel", asked, UNSUPPORTED_MODEL_OPTIONS)
        where, dtype = to_device(device, device_index), to_dtype(compute_type)
        if cpu_threads:
            set_count(cpu_threads)
        self.logger = logging.getLogger("faster_whisper")
        self._model = load_whisper(model_size_or_path, where, dtype, offline=local_files_only)
        self.model = SimpleNamespace(is_multilingual=self._model.multilingual)
        self.feature_extractor = SimpleNamespace(sampling_rate=SAMPLE_RATE)

    def __getattr__(self, name: str) -> Any:
        raise missing_attribute("WhisperModel", name, UNSUPPORTED_ATTRIBUTES)

    @property
    def supported_languages(self) -> list[str]:
        """The codes of the languages that the model knows."""
        return list(self._model.languages)

    def transcribe(
        self, audio: Any, language: str | None = None, task: str = "transcribe", **options: Any
    ) -> tuple[Iterator[Segment], TranscriptionInfo]:
        """Segments, which are made as they are asked for, and what is known before them.

        `audio`: a path, a binary file, an array at 16 kHz. `options`: those in DEFAULTS. Raises
        UsageError, AudioError, NonFiniteError, DeviceError.
        """
        reject_unknown("transcribe", options, DEFAULTS)
        return self._transcribe(audio, {**DEFAULTS, **options, "language": language, "task": task})

    def detect_language(
        self, audio: Any = None, features: Any = None, **options: Any
    ) -> tuple[str, float, list[tuple[str, float]]]:
        """The code, its probability, and all (code, probability), highest first.

        `options`: vad_filter, vad_parameters, language_detection_segments and _threshold, as for
        transcribe. Raises what transcribe raises.
        """
        if audio is None or features is not None:
            raise UsageError("detect_language: give audio; features are not taken")
        _, info = self.transcribe(audio, **options)
        return (
            info.language,
            info.language_probability,
            info.all_language_probs or [(info.language, 1.0)],
        )

    def _transcribe(
        self, audio: Any, asked: dict[str, Any]
    ) -> tuple[Iterator[Segment], TranscriptionInfo]:
        """`asked`: all options, as faster-whisper names them."""
        if asked["language"] is not None:
            asked["language"] = language_code(asked["language"])  # None for auto
        if not self._model.multilingual:
            self._stay_english(asked)
        bar = asked.pop("log_progress")
        options, vad = translate_options(asked)
        stream = self._model.stream(to_array(audio), progress=bool(bar), **options)
        stream.begin()
        shares = stream.language_probs
        ordered = shares and sorted(shares.items(), key=lambda share: -share[1])
        info = TranscriptionInfo(
            language=stream.language,
            language_probability=shares[stream.language]
            if shares
            else float(stream.language != ""),
            duration=stream.duration,
            duration_after_vad=stream.listened,
            all_language_probs=ordered,
            transcription_options=TranscribeOptions.of(**options),
            vad_options=vad,
        )
        self._log(info)
        return _convert_segments(stream), info

    def _stay_english(self, asked: dict[str, Any]) -> None:
        """Have an English-only model asked for English, with faster-whisper's warnings."""
        if asked["multilingual"]:
            self.logger.warning("the model is English-only: multilingual=True is left out")
            asked["multilingual"] = False
        language = asked["language"]
        if language not in (None, "en"):
            self.logger.warning("the model is English-only: language='%s' becomes 'en'", language)
            asked["language"] = "en"

    def _log(self, info: TranscriptionInfo) -> None:
        self.logger.info("Processing audio with duration %s", format_timestamp(info.duration))
        if info.vad_options is not None:
            removed = info.duration - info.duration_after_vad
            self.logger.info("VAD filter removed %s of audio", format_timestamp(removed))
        if info.all_language_probs:
            shown = (info.language, info.language_probability)
            self.logger.info("Detected language '%s' with probability %.2f", *shown)


class BatchedInferencePipeline:
    """Several windows of a recording side by side; `model` is a WhisperModel."""

    def __init__(self, model: WhisperModel) -> None:
        self.model = model

    def transcribe(
        self, audio: Any, language: str | None = None, task: str = "transcribe", **options: Any
    ) -> tuple[Iterator[Segment], TranscriptionInfo]:
        """As WhisperModel.transcribe; `options`: those in BATCHED_DEFAULTS.

        A prompt is shown to each window, no window sees the text of another, and of several
        temperatures the first is taken.
        """
        reject_unknown("transcribe", options, BATCHED_DEFAULTS)
        asked = {**BATCHED_DEFAULTS, **options, "language": language, "task": task}
        temperature = asked["temperature"]
        if isinstance(temperature, list | tuple):
            asked["temperature"] = temperature[:1]
        asked["condition_on_previous_text"] = options.get("condition_on_previous_text", False)
        asked["carry_initial_prompt"] = asked["initial_prompt"] is not None
        return self.model._transcribe(audio, asked)


def translate_options(asked: Mapping[str, Any]) -> tuple[dict[str, Any], VadOptions | None]:
    """Options in oscine's names, and how speech is listened for (None: not at all)."""
    options = {name: value for name, value in asked.items() if name not in UNSUPPORTED_OPTIONS}
    odd = {name: asked[name] for name in UNSUPPORTED_OPTIONS if asked[name] != DEFAULTS[name]}
    reject_unsupported("transcribe", odd, UNSUPPORTED_OPTIONS)
    if odd:  # None of an option whose default is another
        raise UsageError(f"transcribe cannot do {odd}: leave it out")
    for theirs, ours in RENAMED_OPTIONS.items():
        options[ours] = options.pop(theirs)
    prompt = options["initial_prompt"]
    if prompt is not None and not isinstance(prompt, str):
        raise UsageError("initial_prompt must be text; ids of tokens are not taken")
    options["length_penalty"] = _length_penalty(options["length_penalty"])
    if options["language"] is not None:  # then neither is asked for
        del options["language_detection_segments"], options["language_detection_threshold"]
    clips = options.pop("clip_timestamps")
    vad = None if clips not in (None, "0", []) else _vad_options(options)
    if clips is not None:
        options["clip_timestamps"] = clips
    del options["vad_parameters"]
    options["vad_filter"] = vad is not None
    if vad is not None:
        options |= {f"vad_{each.name}": getattr(vad, each.name) for each in fields(vad)}
    return without_unused_search(options), vad


def _vad_options(options: Mapping[str, Any]) -> VadOptions | None:
    """What vad_filter and vad_parameters ask for: a VadOptions, or some of its fields."""
    given = options["vad_parameters"]
    if not options["vad_filter"]:
        if given is not None:
            raise UsageError("vad_parameters needs vad_filter=True")
        return None
    if given is None or isinstance(given, VadOptions):
        return given or VadOptions()
    if not isinstance(given, Mapping):
        raise UsageError("vad_parameters must be a dictionary or VadOptions")
    reject_unknown("vad_parameters", given, [each.name for each in fields(VadOptions)])
    return VadOptions(**given)


def _length_penalty(value: Any) -> float | None:
    """1 is the mean log probability and 0 its sum; CTranslate2's formula between is another."""
    if value in (None, 0, 1):
        return 0.0 if value == 0 else None
    raise UsageError(f"transcribe cannot do length_penalty={value!r}: only 1 (the mean) and 0")


def _convert_segments(stream: Any) -> Iterator[Segment]:
    for each in stream:
        words = each.words and [Word(w.start, w.end, w.word, w.probability) for w in each.words]
        yield Segment(
            id=each.id + 1,
            seek=each.seek,
            start=each.start,
            end=each.end,
            text=each.text,
            tokens=list(each.tokens),
            avg_logprob=each.avg_logprob,
            compression_ratio=each.compression_ratio,
            no_speech_prob=each.no_speech_prob,
            words=words if each.words is None else list(words),
            temperature=each.temperature,
        )


def download_model(size_or_id: str, local_files_only: bool = False, **more: Any) -> str:
    """The folder of a model, fetched if need be. Raises UsageError, HubError."""
    reject_unknown("download_model", more, UNSUPPORTED_DOWNLOAD_OPTIONS)
    reject_unsupported("download_model", more, UNSUPPORTED_DOWNLOAD_OPTIONS)
    return str(hub.resolve(size_or_id, offline=local_files_only))


def decode_audio(
    input_file: Any, sampling_rate: int = SAMPLE_RATE, split_stereo: bool = False
) -> Samples | tuple[Samples, Samples]:
    """A recording as mono float32 [n], or its left and right channel. Raises AudioError."""
    source = open_source(input_file)
    if not split_stereo:
        return decode(source, sampling_rate).samples
    if channel_count(source) == 1:
        both = decode(source, sampling_rate).samples
        return both, both
    left, right = (
        decode(source.with_channel(channel), sampling_rate).samples for channel in (1, 2)
    )
    return left, right


def format_timestamp(
    seconds: float, always_include_hours: bool = False, decimal_marker: str = "."
) -> str:
    """[HH:]MM:SS.mmm"""
    return timestamp(seconds, hours=always_include_hours, marker=decimal_marker)
