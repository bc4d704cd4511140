"""How a Parakeet is made of a checkpoint, on a device."""

from __future__ import annotations

from oscine.family import LoadContext, Network
from oscine.models.parakeet.pipeline import Parakeet
from oscine.models.parakeet.runner import ParakeetRunner
from oscine.models.parakeet.weights import ParakeetWeights, load_weights
from oscine.ops import Backend


def runner(weights: ParakeetWeights, backend: Backend) -> ParakeetRunner:
    """What runs it, which makes room as it is asked for it. Raises DeviceError."""
    return ParakeetRunner(weights, backend)


def model(
    runner: ParakeetRunner, weights: ParakeetWeights, opened: LoadContext[ParakeetRunner]
) -> Parakeet:
    """The public model."""
    assert weights.tokenizer is not None
    return Parakeet(runner, weights.tokenizer, opened.name, opened.rebuild)


NETWORK = Network(load_weights, runner, model)
