"""Whisper: speech to text and translation. Sizes and details: MODELS/whisper.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from oscine.family import Family
from oscine.models.whisper.released import ALIASES, DEFAULT, MODELS

if TYPE_CHECKING:
    from oscine.bench import BenchSettings, Measurement
    from oscine.family import Network
    from oscine.models.whisper.runner import WhisperRunner
    from oscine.models.whisper.weights import WhisperWeights
    from oscine.weights import Checkpoint


def matches(checkpoint: Checkpoint) -> bool:
    """Whether a checkpoint is a Whisper model, or contains a Whisper encoder."""
    config = checkpoint.config
    stated = (
        "whisper" in (config.get("model_type"), config.get("general.architecture"))
        or "n_audio_state" in config
    )
    return stated or checkpoint.format in ("ctranslate2", "ggml") or _has_encoder(checkpoint)


def _has_encoder(checkpoint: Checkpoint) -> bool:
    """Whether the tensors include convolutions conv1 and conv2 of kernel size 3."""
    tensors = checkpoint.tensors
    return any(
        name.endswith("conv1.weight")
        and len(entry.shape) == 3
        and 3 in entry.shape[1:]
        and f"{name.removesuffix('conv1.weight')}conv2.weight" in tensors
        for name, entry in tensors.items()
    )


def network() -> Network[WhisperWeights, WhisperRunner]:
    """Import the modules that run the network."""
    from oscine.models.whisper.network import NETWORK

    return NETWORK


def bench() -> Callable[[Any, BenchSettings], Iterator[Measurement]]:
    """Import the function that measures a model."""
    from oscine.models.whisper.bench import bench

    return bench


FAMILY = Family(
    name="whisper",
    title="Whisper",
    task="transcribe",
    checkpoint_signature="Whisper encoder (missing conv1.weight or conv2.weight of three axes)",
    matches=matches,
    network=network,
    models=MODELS,
    aliases=ALIASES,
    default=DEFAULT,
    bench=bench,
)
