"""The vocabulary: the definitions of all kinds, and names for what they compute."""

from __future__ import annotations

from typing import Protocol

from oscine.ops.reference.attention import AttentionOps
from oscine.ops.reference.channels import ChannelOps
from oscine.ops.reference.conv import ConvOps
from oscine.ops.reference.embedding import EmbeddingOps
from oscine.ops.reference.linear import LinearOps
from oscine.ops.reference.sampling import SamplingOps
from oscine.ops.reference.transducer import TransducerOps
from oscine.ops.types import Tensor
from oscine.probe import current_probe


class Ops(
    AttentionOps,
    ConvOps,
    EmbeddingOps,
    SamplingOps,
    TransducerOps,
    ChannelOps,
    LinearOps,
    Protocol,
):
    """What a forward may say. Every op is defined by its NumPy method; a GPU has the same names."""

    def store(self, x: Tensor, slot: Tensor) -> None:
        """Let slot, which outlives the plan, hold x from now on; rounded, if it is float16."""
        slot[...] = x

    def reshape(self, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        """The same values, row by row, under another shape; x itself is not used again."""
        return x.reshape(shape)

    def probe(self, name: str, x: Tensor) -> None:
        """Name x as a stage, for oscine.probe: no dispatch, no buffer and no copy unless a run is
        looked into."""
        probe = current_probe()
        if probe is not None:
            probe(name, x.copy())
