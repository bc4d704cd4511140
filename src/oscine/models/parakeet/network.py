"""How a Parakeet is made from a checkpoint, on a device."""

from __future__ import annotations

from oscine.family import LoadContext, Network
from oscine.models.parakeet.pipeline import Parakeet
from oscine.models.parakeet.runner import ParakeetRunner
from oscine.models.parakeet.weights import ParakeetWeights, load_weights
from oscine.ops import Backend


def runner(weights: ParakeetWeights, backend: Backend) -> ParakeetRunner:
    """A runner with uploaded weights. Raises DeviceError."""
    return ParakeetRunner(weights, backend)


def model(
    runner: ParakeetRunner, weights: ParakeetWeights, opened: LoadContext[ParakeetRunner]
) -> Parakeet:
    """The public model of a runner."""
    assert weights.tokenizer is not None
    return Parakeet(runner, weights.tokenizer, opened.name, opened.rebuild)


NETWORK = Network(load_weights, runner, model)
