"""Parakeet's encoder and decoder heads, written once against the op vocabulary.

Source: Rekesh et al. 2023, arXiv:2305.05084 (FastConformer); NeMo
nemo/collections/asr/modules/conformer_encoder.py and rnnt.py (RNNTDecoder, RNNTJoint).

Shapes of the encoder: B inputs padded to n mel frames; T = ceil(n / subsampling_factor) encoder
frames; d = d_model. Every residual sum is part of the linear layer before it. Shapes of the heads:
B rows of a batch, F frames of a block, R encoder frames, J = joint_dim, V = vocab_size, n
durations.
"""

from __future__ import annotations

from collections.abc import Sequence

from oscine.models.parakeet.config import ParakeetConfig
from oscine.models.parakeet.weights import (
    ConformerBlock,
    ConvModule,
    EncoderWeights,
    FeedForward,
    RelPosAttention,
    TransducerWeights,
)
from oscine.ops import (
    ContextGraphTensors,
    Linear,
    LstmState,
    Ops,
    SeqLengths,
    Tensor,
    TransducerState,
)


def feed_forward(ops: Ops, x: Tensor, w: FeedForward) -> Tensor:
    """Half-step feed-forward module, x [R, d] -> [R, d]; the half is folded into the weights."""
    hidden = ops.linear(x, w.linear1, norm=w.norm, activation="silu")
    return ops.linear(hidden, w.linear2, add=x)


def self_attention(
    ops: Ops,
    x: Tensor,
    w: RelPosAttention,
    heads: int,
    lengths: SeqLengths,
    positions: Tensor,
    attention_window: tuple[int, int] | None = None,
) -> Tensor:
    """Relative-position self-attention module, x [B·T, d] -> [B·T, d].

    positions: projected position table [2M - 1, d]. attention_window: encoder frames (left, right)
    of local attention; None: global.
    """
    qkv = ops.linear(x, w.linear_qkv, norm=w.norm)
    attended = ops.rel_pos_attention(
        qkv, positions, w.pos_bias_u, w.pos_bias_v, lengths, heads, attention_window
    )
    return ops.linear(attended, w.linear_out, add=x)


def conv_module(ops: Ops, x: Tensor, w: ConvModule, lengths: SeqLengths) -> Tensor:
    """Convolution module: pointwise, GLU, depthwise, SiLU, pointwise; x [B·T, d] -> [B·T, d]."""
    hidden = ops.linear(x, w.pointwise_conv1, norm=w.norm)
    return ops.linear(
        ops.conformer_conv(hidden, w.depthwise_conv, lengths), w.pointwise_conv2, add=x
    )


def conformer_block(
    ops: Ops,
    x: Tensor,
    w: ConformerBlock,
    heads: int,
    lengths: SeqLengths,
    positions: Tensor,
    attention_window: tuple[int, int] | None,
    name: str,
) -> Tensor:
    """One Conformer block, x [B·T, d] -> [B·T, d]; its probe stages are `name` and `name.part`."""
    x = feed_forward(ops, x, w.feed_forward1)
    ops.probe(f"{name}.ff1", x)
    x = self_attention(ops, x, w.self_attn, heads, lengths, positions, attention_window)
    ops.probe(f"{name}.attn", x)
    x = conv_module(ops, x, w.conv, lengths)
    ops.probe(f"{name}.conv", x)
    x = feed_forward(ops, x, w.feed_forward2)
    x = ops.layer_norm(x, w.norm_out)
    ops.probe(name, x)
    return x


def conv_subsampling(ops: Ops, w: EncoderWeights, mel: Tensor, frames: Tensor) -> Tensor:
    """Log-mel [B·n, n_mels], frames [B] valid mel frames of each input -> [B·T, d]."""
    layers = [(layer.depthwise, layer.pointwise) for layer in w.subsampling_layers]
    return ops.linear(
        ops.conv_subsampling(mel, SeqLengths(frames), w.subsampling_first_conv, layers),
        w.subsampling_linear,
    )


def project_positions(
    ops: Ops, w: EncoderWeights, config: ParakeetConfig, count: int
) -> list[Tensor]:
    """Each layer's projected position table [2 count - 1, d], for any T up to count.

    It depends on the weights alone: it is computed once, stored in buffers and used by every plan.
    """
    table = ops.relative_positions(count, config.d_model)
    return [ops.linear(table, block.self_attn.linear_pos) for block in w.blocks]


def encode(
    ops: Ops,
    w: EncoderWeights,
    config: ParakeetConfig,
    mel: Tensor,
    frames: Tensor,
    rel_positions: Sequence[Tensor],
    attention_window: tuple[int, int] | None = None,
) -> Tensor:
    """Log-mel [B·n, n_mels], frames [B] (uint32) valid mel frames of each input -> [B·T, d].

    Row t of input b is row b·T + t; rows from ceil(frames[b] / subsampling_factor) on are padding.
    rel_positions: the result of `project_positions` for a count of at least T, or above both
    numbers of the attention window.
    """
    lengths = SeqLengths(frames, config.subsampling_factor)
    x = conv_subsampling(ops, w, mel, frames)
    ops.probe("encoder.subsampled", x)
    for index, (block, of_layer) in enumerate(zip(w.blocks, rel_positions, strict=True)):
        name = f"encoder.layer{index}"
        x = conformer_block(
            ops, x, block, config.n_heads, lengths, of_layer, attention_window, name
        )
    return x


def project_encoder(ops: Ops, w: TransducerWeights, encoded: Tensor) -> Tensor:
    """The encoder's projection of the joint network, once for all frames: [R, d] -> [R, J]."""
    return ops.linear(encoded, w.joint_enc)


def joint_logits(
    ops: Ops,
    w: TransducerWeights,
    projected: Tensor,
    memory: LstmState,
    track: TransducerState,
    block: int,
) -> Tensor:
    """Logits of the next F frames of each row after its tokens so far: [B·F, V + 1 + n]."""
    ops.prediction_network(w.embedding, w.lstm, memory, track)
    scores = ops.linear(
        ops.joint_network(projected, w.joint_pred, memory, track, block), w.joint_out
    )
    ops.probe("joint.logits", scores)
    return scores


def transducer_step(
    ops: Ops,
    w: TransducerWeights,
    projected: Tensor,
    memory: LstmState,
    track: TransducerState,
    rules: Tensor,
    *,
    block: int,
    boost: ContextGraphTensors | None = None,
) -> None:
    """Advance each row to its next token, or past a block of blanks."""
    scores = joint_logits(ops, w, projected, memory, track, block)
    ops.transducer_step(scores, rules, track, boost)


def ctc_argmax(ops: Ops, head: Linear, encoded: Tensor) -> Tensor:
    """CTC: the most probable token of each frame and its probability, [R, d] -> [R, 2]."""
    scores = ops.linear(encoded, head)
    ops.probe("ctc.logits", scores)
    return ops.argmax_prob(scores)
