"""A Qwen3-TTS checkpoint as trees of arrays, checked against its configuration first.

Sizes, names and quirks: MODELS/qwen3_tts.md. Source of the network: qwen_tts/core/models/
modeling_qwen3_tts.py and core/tokenizer_12hz/modeling_qwen3_tts_tokenizer_v2.py.
What is folded into the weights here, so that the forward knows nothing of it: q, k and v in one
matrix, gate and up in one; layer scales (into the rows of out and down); ConvNeXt's gamma (into
shrink); transposed convolutions as plain ones with stride times as many outputs; codebooks divided
by their usage; Snake's logarithms.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from oscine.models.qwen3_tts.config import Qwen3TtsConfig
from oscine.ops import Linear, Norm, RmsNorm, Snake
from oscine.weights.source import Array


@dataclass(frozen=True, slots=True)
class Block:
    """A layer: qkv [Q + 2K, D], out [D, Q], gate_up [2I, D] (gate's rows, then up's), down [D, I].

    q_norm and k_norm [W]; None in the codec's decoder. No biases.
    """

    norm: RmsNorm
    qkv: Linear
    q_norm: Array | None
    k_norm: Array | None
    out: Linear
    mlp_norm: RmsNorm
    gate_up: Linear
    down: Linear


@dataclass(frozen=True, slots=True)
class TextWeights:
    """P(id) = fc2(silu(fc1(embedding[id]))). The embedding [text vocabulary, text width] stays on
    the host, a view of the file: only its rows that a prompt has are ever uploaded."""

    embedding: Array
    fc1: Linear
    fc2: Linear


@dataclass(frozen=True, slots=True)
class TalkerWeights:
    """embedding [V, D] of codes and special ids; head [V, D], no bias."""

    blocks: tuple[Block, ...]
    norm: RmsNorm
    embedding: Array
    head: Linear


@dataclass(frozen=True, slots=True)
class PredictorWeights:
    """embeddings: G - 1 tables [C, D] of the talker's width, of codes 1 to G - 1; heads [C, d].

    project [d, D] with bias, None where both widths are the same.
    """

    blocks: tuple[Block, ...]
    norm: RmsNorm
    embeddings: tuple[Array, ...]
    heads: tuple[Linear, ...]
    project: Linear | None


@dataclass(frozen=True, slots=True)
class ConvNext:
    """depthwise.weight [K, C]; expand [4C, C], GELU, shrink [C, 4C] with gamma folded in."""

    depthwise: Linear
    norm: Norm
    expand: Linear
    shrink: Linear


@dataclass(frozen=True, slots=True)
class Upsample:
    """up.weight [r·C, 1, C]: seen as [T·r, C]."""

    up: Linear
    block: ConvNext


@dataclass(frozen=True, slots=True)
class ResidualUnit:
    """x + second(snake(first(snake(x)))): first.weight [C, K, C], second [C, C]."""

    before: Snake
    first: Linear
    between: Snake
    second: Linear
    dilation: int


@dataclass(frozen=True, slots=True)
class DecoderStage:
    """up.weight [r·O, 2, I], its bias r times over: seen as [T·r, O]."""

    snake: Snake
    up: Linear
    units: tuple[ResidualUnit, ...]


@dataclass(frozen=True, slots=True)
class CodecDecoderWeights:
    """first_table [1, N, d], rest_tables [G - 1, N, d]; before.weight [latent, 3, codebook];
    first.weight [channels, 7, latent]; last.weight [1, 7, channels of the last stage]."""

    first_table: Array
    rest_tables: Array
    first_out: Linear
    rest_out: Linear
    before: Linear
    input: Linear
    blocks: tuple[Block, ...]
    norm: RmsNorm
    output: Linear
    upsample: tuple[Upsample, ...]
    first: Linear
    stages: tuple[DecoderStage, ...]
    snake: Snake
    last: Linear


@dataclass(frozen=True, slots=True)
class EncoderUnit:
    """x + second(elu(first(elu(x)))): first.weight [C/compress, K, C], second [C, C/compress]."""

    first: Linear
    second: Linear
    dilation: int


@dataclass(frozen=True, slots=True)
class EncoderStage:
    """Residual units, ELU, then down.weight [2C, 2·stride, C]."""

    units: tuple[EncoderUnit, ...]
    down: Linear
    stride: int


@dataclass(frozen=True, slots=True)
class EncoderBlock:
    """A layer of Mimi's transformer: layer norms, rotary attention, expand, GELU, shrink."""

    norm: Norm
    qkv: Linear
    out: Linear
    mlp_norm: Norm
    expand: Linear
    shrink: Linear


@dataclass(frozen=True, slots=True)
class CodecEncoderWeights:
    """first.weight [filters, K, 1]; last.weight [width, K, C]; down.weight [width, 4, width].

    semantic and acoustic [d, width]; tables: G of them, [N, d], the semantic one first.
    """

    first: Linear
    stages: tuple[EncoderStage, ...]
    last: Linear
    blocks: tuple[EncoderBlock, ...]
    down: Linear
    semantic: Linear
    acoustic: Linear
    tables: tuple[Array, ...]


@dataclass(frozen=True, slots=True)
class SpeakerBlock:
    """A squeeze-excite Res2Net block: first [C, C], parts.weight [c, K, c] each, second [C, C],
    squeeze [s, C], excite [C, s]."""

    first: Linear
    parts: tuple[Linear, ...]
    second: Linear
    squeeze: Linear
    excite: Linear
    dilation: int


@dataclass(frozen=True, slots=True)
class SpeakerWeights:
    """first.weight [C, K, mels]; mixed [M, M]; attention's input [a, 3M] (x, mean, deviation), its
    scores [M, a]; last [width, 2M]."""

    first: Linear
    blocks: tuple[SpeakerBlock, ...]
    mixed: Linear
    attention: Linear
    scores: Linear
    last: Linear


@dataclass(frozen=True, slots=True)
class Qwen3TtsWeights:
    """Talker and predictor as stored (bfloat16, float16 or float32 matrices; vectors float32);
    codec and speaker encoder float32. Arrays may be read-only views of the file."""

    config: Qwen3TtsConfig
    text: TextWeights
    talker: TalkerWeights
    predictor: PredictorWeights
    decoder: CodecDecoderWeights
    encoder: CodecEncoderWeights
    speaker: SpeakerWeights | None
    path: Path
    folder: Path
    stored: str  # "bf16", "f16" or "f32": what most of the talker is
