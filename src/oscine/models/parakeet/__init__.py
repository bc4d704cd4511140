"""Parakeet: FastConformer encoders with TDT, RNN-T or CTC decoders (MODELS/parakeet.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oscine.family import Family
from oscine.manifest import has_tokenizer
from oscine.models.parakeet.released import MODELS

if TYPE_CHECKING:
    from oscine.bench import BenchSettings, Measurement
    from oscine.family import Network
    from oscine.models.parakeet.runner import ParakeetRunner
    from oscine.models.parakeet.weights import ParakeetWeights
    from oscine.weights import Checkpoint


def matches(checkpoint: Checkpoint) -> bool:
    """Whether a configuration is that of a Parakeet in transformers or GGUF, or any of NeMo's."""
    if checkpoint.config.get("general.architecture") == "parakeet":
        return True
    kind, target = checkpoint.config.get("model_type"), checkpoint.config.get("target")
    return isinstance(target, str) or (isinstance(kind, str) and kind.startswith("parakeet"))


def network() -> Network[ParakeetWeights, ParakeetRunner]:
    """The functions that load and run a Parakeet, imported on first use."""
    from oscine.models.parakeet.network import NETWORK

    return NETWORK


def is_complete(folder: Path, config: Mapping[str, Any]) -> bool:
    """Whether a folder has a tokenizer, or a NeMo configuration, which lists the vocabulary."""
    return has_tokenizer(folder) or "target" in config


def bench() -> Callable[[Any, BenchSettings], Iterator[Measurement]]:
    """Import the function that measures a model."""
    from oscine.models.parakeet.bench import bench

    return bench


FAMILY = Family(
    name="parakeet",
    title="Parakeet",
    task="transcribe",
    checkpoint_signature="configuration of a Parakeet (model_type parakeet_*, or NeMo's target)",
    matches=matches,
    network=network,
    models=MODELS,
    is_complete=is_complete,
    bench=bench,
)
