"""From a name to a model on a device: the one place that chooses a backend."""

from __future__ import annotations

import logging
import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from oscine import hub
from oscine.errors import CheckpointError, DeviceError, UsageError
from oscine.files import expanded
from oscine.models import resident
from oscine.models.parakeet.decode import Decoder as ParakeetDecoder
from oscine.models.parakeet.pipeline import Parakeet
from oscine.models.parakeet.weights import ParakeetWeights
from oscine.models.parakeet.weights import load_weights as load_parakeet_weights
from oscine.models.qwen3_tts.config import CODEC_TYPE, MODEL_TYPE
from oscine.models.qwen3_tts.decode import BURST
from oscine.models.qwen3_tts.decode import Decoder as Qwen3TtsDecoder
from oscine.models.qwen3_tts.pipeline import Qwen3Tts
from oscine.models.qwen3_tts.voices import VoiceFolder
from oscine.models.qwen3_tts.weights import TALKER, Qwen3TtsWeights
from oscine.models.qwen3_tts.weights import load_weights as load_qwen3_tts_weights
from oscine.models.whisper.decode import Decoder
from oscine.models.whisper.pipeline import Whisper
from oscine.models.whisper.weights import WhisperWeights, load_weights
from oscine.ops import Backend
from oscine.ops.reference import Reference
from oscine.text.qwen import QwenTokenizer
from oscine.text.whisper import Tokenizer, load_tokenizer
from oscine.weights import Checkpoint, read_checkpoint

if TYPE_CHECKING:
    from oscine.gpu.device import Adapter

log = logging.getLogger(__name__)

Model = Whisper | Parakeet | Qwen3Tts


class Engine(resident.Engine, Protocol):
    """A family's decode.Decoder, as it is made here."""

    backend: Backend


Weights = TypeVar("Weights")
Held = TypeVar("Held", bound=Engine)

DTYPES = ("auto", "f32", "f16")
#: How often each device was lost in this process, by name. From the third time on it is no glitch.
LOSSES: Counter[str] = Counter()
MOST_LOSSES = 2


def load(
    model: str | Path | None, device: str = "auto", dtype: str = "auto", *, offline: bool = False
) -> Model:
    """See oscine.load."""
    if dtype not in DTYPES:
        raise UsageError(f"dtype {dtype!r} is not one of {', '.join(DTYPES)}")
    name = str(model or hub.DEFAULT_MODEL)
    path = hub.resolve(name, offline=offline)
    device = wanted_device(device)
    backend = choose_backend(device)
    try:
        return load_path(path, name, backend, device, dtype, offline=offline)
    except CheckpointError as error:
        if os.path.exists(expanded(name)):
            raise
        mend = f"`oscine models pull {name} --check` fetches what is damaged again"
        remedy = f"{error.remedy}; {mend}" if error.remedy else mend
        raise CheckpointError(error.path, error.problem, remedy) from error


def load_path(
    path: Path, given: str, backend: Backend, device: str, dtype: str, *, offline: bool
) -> Model:
    """The model in a folder or file, `given` by that path or a name. Raises as oscine.load."""
    checkpoint = read_checkpoint(path)
    name = given
    if os.path.exists(given):
        name = path.name if path.is_dir() else path.stem
    if is_parakeet(checkpoint):
        return load_parakeet(checkpoint, backend, path, name, device, dtype)
    if is_codec(checkpoint):
        problem = "is only the codec of a Qwen3-TTS"
        raise CheckpointError(path, problem, "give the folder of the whole model, which it is in")
    if is_qwen3_tts(checkpoint):
        return load_qwen3_tts(checkpoint, backend, path, given, device, dtype)
    weights = load_weights(checkpoint, dtype)
    decoder = build(partial(Decoder, weights), backend, device)
    tokenizer = tokenizer_of(weights, offline)
    return Whisper(decoder, tokenizer, name, Rebuild(path, dtype, device, decoder))


def is_parakeet(checkpoint: Checkpoint) -> bool:
    """Whether a configuration is transformers' of a Parakeet, or any of NeMo's."""
    config = checkpoint.config
    kind, target = config.get("model_type"), config.get("target")
    return isinstance(target, str) or (isinstance(kind, str) and kind.startswith("parakeet"))


def load_parakeet(
    checkpoint: Checkpoint, backend: Backend, path: Path, name: str, device: str, dtype: str
) -> Parakeet:
    """A checkpoint that is open already as a model. Raises CheckpointError, DeviceError."""
    weights = load_parakeet_weights(checkpoint, dtype)
    decoder = build(partial(ParakeetDecoder, weights), backend, device)
    assert weights.spelling is not None
    return Parakeet(decoder, weights.spelling, name, RebuildParakeet(path, dtype, device, decoder))


def is_qwen3_tts(checkpoint: Checkpoint) -> bool:
    """Whether a configuration is that of a Qwen3-TTS, of whatever rate, or else its tensors are: a
    configuration that is missing or of another model is then told as such."""
    talks = any(name.startswith(f"{TALKER}.") for name in checkpoint.tensors)
    return talks or checkpoint.config.get("model_type") == MODEL_TYPE


def is_codec(checkpoint: Checkpoint) -> bool:
    """The same of the codec that is a part of every Qwen3-TTS."""
    decodes = any(name.startswith("decoder.pre_transformer.") for name in checkpoint.tensors)
    return decodes or checkpoint.config.get("model_type") == CODEC_TYPE


def load_qwen3_tts(
    checkpoint: Checkpoint, backend: Backend, path: Path, name: str, device: str, dtype: str
) -> Qwen3Tts:
    """A checkpoint that is open already as a model. Raises CheckpointError, DeviceError."""
    weights = load_qwen3_tts_weights(checkpoint, dtype)
    tokenizer = QwenTokenizer.load(weights.folder)
    if tokenizer.size > weights.config.text_vocabulary:
        raise CheckpointError(
            weights.folder,
            f"its tokenizer has ids up to {tokenizer.size - 1}, its weights rows for "
            f"{weights.config.text_vocabulary}",
            "fetch the whole folder again",
        )
    decoder = build(partial(speaking, weights), backend, device)
    rebuild = RebuildQwen3Tts(path, dtype, device, decoder)
    return Qwen3Tts(decoder, tokenizer, name, rebuild, VoiceFolder(hub.home() / "voices"))


def speaking(weights: Qwen3TtsWeights, backend: Backend) -> Qwen3TtsDecoder:
    """The engine with its codec, ready for the bursts of a stream. Raises DeviceError."""
    decoder = Qwen3TtsDecoder(weights, backend)
    decoder.codec.prepare(1, BURST)
    return decoder


class Reopening(ABC, Generic[Weights, Held]):
    """Makes a model's engine anew where its device was lost: on the device, else with NumPy.

    The weights are read from their file again, so that no second copy lies in memory until then.
    """

    def __init__(self, path: Path, dtype: str, device: str, decoder: Held) -> None:
        self.path, self.dtype, self.device, self.decoder = path, dtype, device, decoder

    @abstractmethod
    def read(self) -> Weights:
        """The weights, their matrices as asked for. Raises CheckpointError."""

    @abstractmethod
    def make(self, weights: Weights, backend: Backend) -> Held:
        """An engine like the one that was lost. Raises DeviceError."""

    def __call__(self) -> Held:
        """The new engine; the old one can be used no more.

        The device is chosen as before, unless it was lost more than MOST_LOSSES times: what a GPU
        was asked for is then done with NumPy, which a warning says.
        Raises CheckpointError if the file cannot be read any more.
        """
        close(self.decoder.backend)  # a lost device holds its memory until then
        weights = self.read()
        try:
            self.decoder = self.make(weights, reopen(self.decoder.device, self.device))
        except DeviceError as problem:
            self.decoder = self.make(weights, give_up(self.decoder.device, problem))
        return self.decoder


class Rebuild(Reopening[WhisperWeights, Decoder]):
    """Whisper's, with room for as many windows and lines as there was."""

    def read(self) -> WhisperWeights:
        return load_weights(self.path, self.dtype)

    def make(self, weights: WhisperWeights, backend: Backend) -> Decoder:
        made = Decoder(weights, backend)
        made.reserve(self.decoder.windows, self.decoder.most_lines)
        return made


class RebuildParakeet(Reopening[ParakeetWeights, ParakeetDecoder]):
    """Parakeet's, whose engine makes room as it is asked for it."""

    def read(self) -> ParakeetWeights:
        return load_parakeet_weights(self.path, self.dtype)

    def make(self, weights: ParakeetWeights, backend: Backend) -> ParakeetDecoder:
        return ParakeetDecoder(weights, backend)


class RebuildQwen3Tts(Reopening[Qwen3TtsWeights, Qwen3TtsDecoder]):
    """Qwen3-TTS's, likewise."""

    def read(self) -> Qwen3TtsWeights:
        return load_qwen3_tts_weights(self.path, self.dtype)

    def make(self, weights: Qwen3TtsWeights, backend: Backend) -> Qwen3TtsDecoder:
        return speaking(weights, backend)


def reopen(lost: str, device: str) -> Backend:
    """What `device` asks for, anew. DeviceError if it was `lost` more often than MOST_LOSSES."""
    LOSSES[lost] += 1
    if LOSSES[lost] > MOST_LOSSES:
        raise DeviceError(f"lost {LOSSES[lost]} times")
    return open_gpu(device)


def give_up(lost: str, problem: DeviceError) -> Backend:
    """NumPy, with a line that says why."""
    log.warning("%s: not opened again (%s); using NumPy on the CPU", lost, problem)
    return Reference()


def close(backend: Backend) -> None:
    """Give back all memory of a GPU, also through its shadow; NumPy has nothing to close."""
    device = getattr(getattr(backend, "gpu", backend), "device", None)
    if device is not None:
        device.close()


def tokenizer_of(weights: WhisperWeights, offline: bool) -> Tokenizer | None:
    """The tokenizer beside the weights, or that of the vocabulary's size; None without decoder."""
    if weights.decoder is None:
        return None
    return load_tokenizer(
        weights.folder,
        weights.vocabulary,
        fallback=lambda: hub.tokenizer_folder(weights.config.n_vocab, offline=offline),
    )


def wanted_device(device: str) -> str:
    """The device asked for, in small letters; OSCINE_DEVICE stands in for `auto`, as does nothing.

    Raises UsageError for what is no text, and for names of APIs that are not used here.
    """
    if not isinstance(device, str):
        raise UsageError(f"device must be text such as auto, cpu or gpu, not {device!r}")
    wanted, source = device.strip().lower() or "auto", "--device "
    if wanted == "auto":
        wanted, source = (
            os.environ.get("OSCINE_DEVICE", "").strip().lower() or "auto",
            "OSCINE_DEVICE=",
        )
    if wanted.partition(":")[0] in ("cuda", "rocm", "mps"):
        raise UsageError(f"{source}{wanted}: oscine needs no CUDA, ROCm or MPS; use {source}gpu")
    return wanted


def choose_backend(device: str) -> Backend:
    """NumPy or a GPU that passed its check.

    Raises DeviceError where a GPU was asked for and none will do.
    """
    if device == "cpu":
        return Reference()
    try:
        return open_gpu(device)
    except DeviceError as problem:
        return fall_back(device, problem)


def build(make: Callable[[Backend], Held], backend: Backend, device: str) -> Held:
    """The engine; on NumPy where `auto` has chosen a GPU that cannot do this model.

    Raises DeviceError where a GPU was asked for.
    """
    try:
        return make(backend)
    except DeviceError as problem:
        return make(fall_back(device, problem))


def fall_back(device: str, problem: DeviceError) -> Backend:
    """NumPy, with a line that says why; the problem itself unless the choice was left to us."""
    if device != "auto":
        raise problem
    log.warning("using NumPy on the CPU: %s", problem)
    return Reference()


def open_gpu(device: str) -> Backend:
    """The adapter that was asked for, opened and checked against NumPy.

    Where Dawn's fails, wgpu's of the same kind is tried. Raises the first DeviceError.
    """
    from oscine.gpu.device import candidates

    problems: list[DeviceError] = []
    for adapter in candidates(device):
        try:
            return checked(adapter)
        except DeviceError as problem:
            log.info("%s under %s: %s", adapter.name, adapter.implementation, problem)
            problems.append(problem)
    raise problems[0]


def checked(adapter: Adapter) -> Backend:
    """One adapter, open and right; in shadow mode where OSCINE_CHECK asks for it."""
    from oscine.gpu.device import open_device
    from oscine.ops.check import self_check
    from oscine.ops.gpu import Gpu

    gpu = Gpu(open_device(adapter))
    self_check(gpu)
    if os.environ.get("OSCINE_CHECK", "0") not in ("", "0"):
        from oscine.ops.shadow import Shadow

        return Shadow(gpu)
    return gpu
