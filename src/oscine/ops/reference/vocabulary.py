"""The op vocabulary: the definitions of all kinds in one class, with store, reshape and probe."""

from __future__ import annotations

from typing import Protocol

from oscine.ops.reference.attention import AttentionOps
from oscine.ops.reference.channels import ChannelOps
from oscine.ops.reference.conv import ConvOps
from oscine.ops.reference.embedding import EmbeddingOps
from oscine.ops.reference.linear import LinearOps
from oscine.ops.reference.mel import MelOps
from oscine.ops.reference.sampling import SamplingOps
from oscine.ops.reference.transducer import TransducerOps
from oscine.ops.types import Tensor
from oscine.probe import current_probe


class Ops(
    AttentionOps,
    ConvOps,
    EmbeddingOps,
    MelOps,
    SamplingOps,
    TransducerOps,
    ChannelOps,
    LinearOps,
    Protocol,
):
    """All ops of a forward pass, each defined by its NumPy method; a GPU has the same names."""

    def store(self, x: Tensor, buffer: Tensor) -> None:
        """Write x to a buffer that outlives the plan, rounded where the buffer is float16."""
        buffer[...] = x

    def reshape(self, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        """The same values in another shape; x itself may not be used afterwards."""
        return x.reshape(shape)

    def probe(self, name: str, x: Tensor) -> None:
        """Name x as a stage for oscine.probe; costs nothing unless a probe is active."""
        probe = current_probe()
        if probe is not None:
            probe(name, x.copy())
