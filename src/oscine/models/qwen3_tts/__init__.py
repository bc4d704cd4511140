"""Qwen3-TTS: text to speech with the 12 Hz codec. MODELS/qwen3_tts.md lists sizes and quirks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oscine.errors import CheckpointError
from oscine.family import Family
from oscine.manifest import has_files, has_tokenizer, has_weights
from oscine.models.qwen3_tts.released import (
    CODEC_FOLDER,
    CODEC_TYPE,
    DEFAULT,
    DEFAULT_CLONER,
    MODEL_TYPE,
    MODELS,
)

if TYPE_CHECKING:
    from oscine.bench import BenchSettings, Measurement
    from oscine.family import Network, VoiceSupport
    from oscine.models.qwen3_tts.runner import Qwen3TtsRunner
    from oscine.models.qwen3_tts.weights import Qwen3TtsWeights
    from oscine.weights import Checkpoint


def matches(checkpoint: Checkpoint) -> bool:
    """Whether a checkpoint states `model_type` qwen3_tts or has a Qwen3-TTS talker's tensors.

    Checkpoints of another frame rate match too, so that loading them reports the reason.

    Raises CheckpointError for the codec alone, which is a part of every such model.
    """
    if _has(checkpoint, "talker.model.", MODEL_TYPE):
        return True
    if _has(checkpoint, "decoder.pre_transformer.", CODEC_TYPE):
        problem = "is only the codec of a Qwen3-TTS"
        remedy = "give the folder of the whole model, which it is in"
        raise CheckpointError(checkpoint.folder, problem, remedy)
    return False


def _has(checkpoint: Checkpoint, prefix: str, model_type: str) -> bool:
    stated = checkpoint.config.get("model_type") == model_type
    return stated or any(name.startswith(prefix) for name in checkpoint.tensors)


def network() -> Network[Qwen3TtsWeights, Qwen3TtsRunner]:
    """Import the code that loads and runs a Qwen3-TTS."""
    from oscine.models.qwen3_tts.network import NETWORK

    return NETWORK


def speaking() -> VoiceSupport:
    """Import the functions that commands call before a model is loaded."""
    from oscine.models.qwen3_tts.voice_support import VOICE_SUPPORT

    return VOICE_SUPPORT


def is_complete(folder: Path, config: Mapping[str, Any]) -> bool:
    """Whether a folder has the codec and the tokenizer's files, beside the weights."""
    if config.get("model_type") != MODEL_TYPE:
        return has_tokenizer(folder)
    files = ("vocab.json", "merges.txt", "tokenizer_config.json", f"{CODEC_FOLDER}/config.json")
    return has_files(folder, *files) and has_weights(folder / CODEC_FOLDER)


def describe_unsupported(repository: str) -> str | None:
    """The error message for an MLX conversion, which has other axes and files; None for others.

    It names the repository that the conversion was made from.
    """
    name = repository.lower()
    if "qwen3-tts" not in name or "mlx" not in re.split(r"[^a-z0-9]+", name):
        return None
    upstream = (release.repository for release in MODELS.values())
    named = (each for each in upstream if each.lower().rpartition("/")[2] in name)
    return f"MLX's Qwen3-TTS is not read; take {next(named, MODELS[DEFAULT].repository)}"


def bench() -> Callable[[Any, BenchSettings], Iterator[Measurement]]:
    """Import the function that measures a model."""
    from oscine.models.qwen3_tts.bench import bench

    return bench


FAMILY = Family(
    name="qwen3_tts",
    title="Qwen3-TTS",
    task="speak",
    checkpoint_signature="Qwen3-TTS talker (talker.model.*)",
    matches=matches,
    network=network,
    models=MODELS,
    default=DEFAULT,
    default_cloner=DEFAULT_CLONER,
    is_complete=is_complete,
    files=(f"{CODEC_FOLDER}/",),
    unsupported_reason=describe_unsupported,
    speaking=speaking,
    bench=bench,
)
