"""openai-whisper's interface on oscine: load_model, transcribe, decode and what they need.

Names, defaults and results are those of openai-whisper 20250625 (whisper/__init__.py,
transcribe.py, decoding.py, audio.py); docs/compat.md has what differs. Arrays are NumPy's where
openai-whisper's are PyTorch's. Raises oscine's errors, each one line.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oscine.audio.io import decode as decode_recording
from oscine.audio.mel import HOP_LENGTH, SAMPLE_RATE, log_mel
from oscine.compat.arguments import (
    available_models,
    load_whisper,
    missing_attribute,
    reject_unknown,
    reject_unsupported,
    to_array,
    to_device,
    warn_once,
    without_unused_search,
)
from oscine.errors import CPU_BACKENDS, UsageError
from oscine.formats import timestamp
from oscine.options.transcribe import (
    APPEND_PUNCTUATIONS,
    DEFAULT_TEMPERATURES,
    PREPEND_PUNCTUATIONS,
)
from oscine.terminal import strip_controls
from oscine.text.languages import LANGUAGES
from oscine.types import Samples

__all__ = [
    "DecodingOptions",
    "DecodingResult",
    "ModelDimensions",
    "Whisper",
    "available_models",
    "decode",
    "detect_language",
    "load_audio",
    "load_model",
    "log_mel_spectrogram",
    "pad_or_trim",
    "transcribe",
]

N_SAMPLES = 30 * SAMPLE_RATE
N_FRAMES = N_SAMPLES // HOP_LENGTH

#: Options of transcribe besides those of DecodingOptions, with openai-whisper's defaults.
DEFAULTS: Mapping[str, Any] = {
    "verbose": None,
    "temperature": DEFAULT_TEMPERATURES,
    "compression_ratio_threshold": 2.4,
    "logprob_threshold": -1.0,
    "no_speech_threshold": 0.6,
    "condition_on_previous_text": True,
    "initial_prompt": None,
    "carry_initial_prompt": False,
    "word_timestamps": False,
    "prepend_punctuations": PREPEND_PUNCTUATIONS,
    "append_punctuations": APPEND_PUNCTUATIONS,
    "clip_timestamps": "0",
    "hallucination_silence_threshold": None,
}
#: Unsupported options of load_model, transcribe and decode, and attributes -> what to use instead.
UNSUPPORTED_MODEL_OPTIONS = {
    "download_root": "set the environment variable OSCINE_HOME to the folder of models",
    "in_memory": "weights are memory-mapped; leave it out",
}
UNSUPPORTED_OPTIONS = {"prompt": "use initial_prompt"}
UNSUPPORTED_ATTRIBUTES = {
    "encoder": "oscine.load(name).encode(audio) gives the encoder's output",
    "embed_audio": "oscine.load(name).encode(audio) gives the encoder's output",
    "decoder": "use decode",
    "logits": "oscine.probe.probing shows all that the network computes",
    "forward": "oscine.probe.probing shows all that the network computes",
    "parameters": "the weights are on the device and not PyTorch's",
    "state_dict": "the weights are on the device and not PyTorch's",
    "half": "give dtype='f16' to oscine.load",
    "float": "give dtype='f32' to oscine.load",
    "set_alignment_heads": "they are those of the checkpoint",
    "install_kv_cache_hooks": "oscine.probe.probing shows all that the network computes",
}


@dataclass
class ModelDimensions:
    """Sizes of the network."""

    n_mels: int
    n_audio_ctx: int
    n_audio_state: int
    n_audio_head: int
    n_audio_layer: int
    n_vocab: int
    n_text_ctx: int
    n_text_state: int
    n_text_head: int
    n_text_layer: int


@dataclass(frozen=True)
class DecodingOptions:
    """How one window is decoded; whisper/decoding.py says what each option means."""

    task: str = "transcribe"
    language: str | None = None
    temperature: float = 0.0
    sample_len: int | None = None
    best_of: int | None = None
    beam_size: int | None = None
    patience: float | None = None
    length_penalty: float | None = None
    prompt: str | list[int] | None = None
    prefix: str | list[int] | None = None
    suppress_tokens: Any = "-1"
    suppress_blank: bool = True
    without_timestamps: bool = False
    max_initial_timestamp: float | None = 1.0
    fp16: bool = True


@dataclass(frozen=True)
class DecodingResult:
    """The result of one window. `audio_features` is None: use oscine.load(name).encode."""

    audio_features: None
    language: str
    language_probs: dict[str, float] | None = None
    tokens: list[int] = field(default_factory=list)
    text: str = ""
    avg_logprob: float = np.nan
    no_speech_prob: float = np.nan
    temperature: float = np.nan
    compression_ratio: float = np.nan


class Spectrogram(np.ndarray[Any, Any]):
    """A log-mel spectrogram [n_mels, frames] as an array with PyTorch's conversion methods."""

    def to(self, *_: Any, **__: Any) -> Spectrogram:
        """Return itself: it is uploaded to the device when it is decoded."""
        return self

    cpu = detach = contiguous = half = float = to

    def numpy(self) -> NDArray[np.float32]:
        """The values as a plain array."""
        return self.view(np.ndarray)

    def unsqueeze(self, axis: int) -> Spectrogram:
        """Insert an axis of size 1."""
        return np.expand_dims(self, axis).view(Spectrogram)


class Whisper:
    """A loaded Whisper model, made by `load_model`."""

    def __init__(self, model: Any) -> None:
        """`model`: as oscine.load gives it."""
        self._model = model
        config = model.runner.config
        sizes = {each.name: getattr(config, each.name) for each in fields(ModelDimensions)}
        self.dims = ModelDimensions(**sizes)
        self.is_multilingual: bool = model.multilingual
        self.num_languages = len(model.languages) if model.multilingual else 99

    def __getattr__(self, name: str) -> Any:
        raise missing_attribute("Whisper", name, UNSUPPORTED_ATTRIBUTES)

    @property
    def device(self) -> str:
        """cpu, or the name of the GPU."""
        return "cpu" if self._model.device in CPU_BACKENDS else str(self._model.device)

    def to(self, device: Any) -> Whisper:
        """Return itself if it is on that device. Raises UsageError otherwise."""
        wanted = to_device(device)
        if wanted == "auto" or (wanted == "cpu") == (self.device == "cpu"):
            return self
        opens = f"load_model(name, device={str(device)!r}) opens it there"
        raise UsageError(f"the model is on {self.device}; {opens}")

    def eval(self) -> Whisper:
        """Return itself: inference is the only mode."""
        return self

    def transcribe(self, audio: Any, **options: Any) -> dict[str, Any]:
        """Transcribe a recording, as the function `transcribe` does."""
        return transcribe(self, audio, **options)

    def decode(self, mel: Any, options: DecodingOptions | None = None, **more: Any) -> Any:
        """Decode windows, as the function `decode` does."""
        return decode(self, mel, options, **more)

    def detect_language(self, mel: Any) -> tuple[Any, Any]:
        """Detect the language of windows, as the function `detect_language` does."""
        found: tuple[Any, Any] = detect_language(self, mel)
        return found


def load_model(name: str, device: Any = None, **more: Any) -> Whisper:
    """Load a model by name or path. `device`: cuda (the GPU), cpu; None: auto.

    Raises UsageError, HubError, CheckpointError, DeviceError.
    """
    reject_unknown("load_model", more, UNSUPPORTED_MODEL_OPTIONS)
    reject_unsupported("load_model", more, UNSUPPORTED_MODEL_OPTIONS)
    return Whisper(load_whisper(name, to_device(device)))


def load_audio(file: Any, sr: int = SAMPLE_RATE) -> Samples:
    """A recording as mono float32 [n] at `sr` hertz. Raises AudioError, NonFiniteError."""
    return decode_recording(file, sr).samples


def pad_or_trim(array: Any, length: int = N_SAMPLES, *, axis: int = -1) -> Any:
    """Cut an array to `length` along one axis, or pad it with zeros."""
    given = np.asanyarray(array)
    kept = given.take(range(min(length, given.shape[axis])), axis=axis)
    widths = [(0, 0)] * given.ndim
    widths[axis] = (0, length - kept.shape[axis])
    padded = np.pad(kept, widths)
    return padded.view(type(given))


def log_mel_spectrogram(
    audio: Any, n_mels: int = 80, padding: int = 0, device: Any = None
) -> Spectrogram:
    """The log-mel [n_mels, frames] of a path or samples at 16 kHz, with `padding` zeros after them.

    `device` is ignored: it is computed on the CPU. Raises AudioError, NonFiniteError.
    """
    samples = decode_recording(to_array(audio)).samples
    logs = log_mel(np.pad(samples, (0, padding)), n_mels)
    return np.ascontiguousarray(logs.T).view(Spectrogram)


def detect_language(model: Whisper, mel: Any) -> tuple[Any, Any]:
    """(code, {code: probability}) of a mel [n_mels, frames]; lists of them for [n, n_mels, frames].

    openai-whisper's first value is the token of the code. Raises UsageError, NonFiniteError.
    """
    found: list[tuple[Any, Any]] = list(map(model._model.window_language, _split_windows(mel)))
    if np.ndim(mel) == 2:
        return found[0]
    return [code for code, _ in found], [shares for _, shares in found]


def decode(model: Whisper, mel: Any, options: DecodingOptions | None = None, **more: Any) -> Any:
    """What a mel [n_mels, 3000] says, a DecodingResult; a list of them for [n, n_mels, 3000].

    `more`: fields of DecodingOptions. Raises UsageError, NonFiniteError, DeviceError.
    """
    reject_unknown("decode", more, [each.name for each in fields(DecodingOptions)])
    asked = replace(options or DecodingOptions(), **more)
    results = [_decode_window(model, window, asked) for window in _split_windows(mel)]
    return results[0] if np.ndim(mel) == 2 else results


def _decode_window(
    model: Whisper, window: NDArray[np.float32], asked: DecodingOptions
) -> DecodingResult:
    if asked.task == "lang_id":
        code, shares = model._model.window_language(window)
        return DecodingResult(None, code, shares)
    options = _oscine_options(model, asdict(asked))
    prompt, prefix = options.pop("prompt"), options["prefix"]
    if prefix is not None and not isinstance(prefix, str):
        raise UsageError("prefix must be text; ids of tokens are not taken")
    ids: tuple[int, ...] = ()
    if isinstance(prompt, str):
        options["initial_prompt"] = prompt
    elif prompt is not None:
        ids = tuple(prompt)
    alone = {"compression_ratio_threshold": None, "logprob_threshold": None}  # no second attempt
    found = model._model.decode_window(window, ids, **options, **alone)
    return DecodingResult(
        audio_features=None,
        language=found.language,
        language_probs=found.language_probs,
        tokens=list(found.tokens),
        text=found.text,
        avg_logprob=found.avg_logprob,
        no_speech_prob=found.no_speech_prob,
        temperature=found.temperature,
        compression_ratio=found.compression_ratio,
    )


def transcribe(model: Whisper, audio: Any, **options: Any) -> dict[str, Any]:
    """{"text", "segments", "language"} of a recording: a path or an array at 16 kHz.

    `options`: those in DEFAULTS and the fields of DecodingOptions. `verbose` True prints segments
    as they come, False shows a bar. Raises UsageError, AudioError, NonFiniteError, DeviceError.
    """
    of_windows = {each.name: each.default for each in fields(DecodingOptions)}
    reject_unknown("transcribe", options, [*DEFAULTS, *of_windows])
    reject_unsupported("transcribe", options, UNSUPPORTED_OPTIONS)
    asked = {**of_windows, **DEFAULTS, **options}
    del asked["prompt"]
    verbose = asked.pop("verbose")
    asked = without_unused_search(_oscine_options(model, asked))
    stream = model._model.stream(
        to_array(audio), progress=verbose is False, vad_filter=False, **asked
    )
    stream.begin()
    if verbose is not None and stream.language_probs:
        _print_line(f"Detected language: {LANGUAGES[stream.language].title()}")
    segments: list[dict[str, Any]] = []
    for segment in stream:
        if verbose:
            times = [timestamp(t, hours=False, marker=".") for t in (segment.start, segment.end)]
            _print_line(f"[{times[0]} --> {times[1]}] {segment.text}")
        segments.append(_openai_segment(segment.to_dict()))
    text = "".join(segment["text"] for segment in segments)
    return {"text": text, "segments": segments, "language": stream.language}


def _print_line(line: str) -> None:
    """A line on stdout, without controls and in whatever characters stdout has."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    print(strip_controls(line).encode(encoding, "replace").decode(encoding))


def _openai_segment(row: dict[str, Any]) -> dict[str, Any]:
    """A segment with openai-whisper's keys alone."""
    return {key: value for key, value in row.items() if key not in ("language", "channel", "flags")}


def _oscine_options(model: Whisper, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Options in oscine's names."""
    options = dict(asked)
    if options.pop("fp16") is False and model.device != "cpu":
        warn_once(
            "fp16=False: oscine holds the weights as they are stored; "
            "oscine.load(name, dtype='f32') holds them in float32"
        )
    if options["temperature"] is None:
        options["temperature"] = 0.0
    if options["best_of"] is None and np.any(options["temperature"]):
        options["best_of"] = 1  # openai-whisper's default outside its command
    return options


def _split_windows(mel: Any) -> list[NDArray[np.float32]]:
    """Mels [n_mels, frames] or [n, n_mels, frames], each as [frames, n_mels]."""
    values = np.asarray(mel, np.float32)
    if values.ndim not in (2, 3):
        raise UsageError(f"a mel has shape [n_mels, frames], not {list(values.shape)}")
    windows = values.reshape(-1, *values.shape[-2:])
    return [np.ascontiguousarray(window.T) for window in windows]
