"""How a Parakeet is made of a checkpoint, on a device."""

from __future__ import annotations

from oscine.family import Network, Opened
from oscine.models.parakeet.decode import Decoder
from oscine.models.parakeet.pipeline import Parakeet
from oscine.models.parakeet.weights import ParakeetWeights, load_weights
from oscine.ops import Backend


def engine(weights: ParakeetWeights, backend: Backend, like: Decoder | None) -> Decoder:
    """An engine, which makes room as it is asked for it. Raises DeviceError."""
    return Decoder(weights, backend)


def model(engine: Decoder, weights: ParakeetWeights, opened: Opened[Decoder]) -> Parakeet:
    """The public model."""
    assert weights.spelling is not None
    return Parakeet(engine, weights.spelling, opened.name, opened.rebuild)


NETWORK = Network(load_weights, engine, model)
