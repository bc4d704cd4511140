"""Any checkpoint of Parakeet as one tree of arrays, checked against its configuration first.

Sizes, names and quirks: MODELS/parakeet.md. Source of the network: NeMo
nemo/collections/asr/modules/conformer_encoder.py, rnnt.py; transformers models/parakeet.
What is folded into the weights here, so that the forward knows nothing of it: the halves of the
half-step feed-forwards (down.weight and .bias times 1/2, exact in any format), batch normalisation
(into the depthwise convolution), √d of scaled inputs (into the projection after subsampling), the
order of that projection's inputs (channels last), the sum of the LSTM's two biases.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from oscine.models.parakeet.config import ParakeetConfig
from oscine.ops import Linear, Norm
from oscine.weights.source import Array


@dataclass(frozen=True, slots=True)
class FeedForward:
    """norm, up [4d, d], SiLU, down [d, 4d] with the half step folded in."""

    norm: Norm
    up: Linear
    down: Linear


@dataclass(frozen=True, slots=True)
class Attention:
    """qkv.weight [3d, d] holds the rows of q, k, v; position [d, d]; biases u, v [d], head by head."""

    norm: Norm
    qkv: Linear
    out: Linear
    position: Linear
    bias_u: Array
    bias_v: Array


@dataclass(frozen=True, slots=True)
class Convolution:
    """expand [2d, d] (value half, then gate half), depthwise.weight [K, d] time first, shrink."""

    norm: Norm
    expand: Linear
    depthwise: Linear
    shrink: Linear


@dataclass(frozen=True, slots=True)
class EncoderBlock:
    """One conformer block; `norm` ends it."""

    first: FeedForward
    attention: Attention
    convolution: Convolution
    second: FeedForward
    norm: Norm


@dataclass(frozen=True, slots=True)
class Halving:
    """One further halving of time and frequency: depthwise.weight [3, 3, C] (time, frequency,
    channel), pointwise [C, C]."""

    depthwise: Linear
    pointwise: Linear


@dataclass(frozen=True, slots=True)
class EncoderWeights:
    """first.weight [3, 3, C]: one input channel; project [d, F·C], inputs frequency first."""

    first: Linear
    halvings: tuple[Halving, ...]
    project: Linear
    blocks: tuple[EncoderBlock, ...]


@dataclass(frozen=True, slots=True)
class Cell:
    """One LSTM layer: input [4P, P] with the sum of both biases, hidden [4P, P] without; i f g o."""

    input: Linear
    hidden: Linear


@dataclass(frozen=True, slots=True)
class TransducerWeights:
    """embedding [V + 1, P], the blank's row zero (it starts a transcript); head [V + 1 + n, joint]:
    tokens, then durations."""

    embedding: Array
    cells: tuple[Cell, ...]
    encoder: Linear  # [joint, d]
    predictor: Linear  # [joint, P]
    head: Linear


@dataclass(frozen=True, slots=True)
class ParakeetWeights:
    """Matrices as stored: float16 or else float32; vectors and convolutions float32."""

    config: ParakeetConfig
    encoder: EncoderWeights
    transducer: TransducerWeights | None
    ctc: Linear | None  # [V + 1, d]
    path: Path
    folder: Path
    format: str
    pieces: tuple[str, ...]  # V labels, as SentencePiece spells them
    stored: str  # "f16" only where every matrix is
