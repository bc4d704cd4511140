"""Parakeet's encoder and its heads, written once against the op vocabulary.

Source: Rekesh et al. 2023, arXiv:2305.05084 (FastConformer); NeMo
nemo/collections/asr/modules/conformer_encoder.py and rnnt.py (RNNTDecoder, RNNTJoint).

Encoder: B utterances side by side, padded to n mel frames each; T = n / factor encoder frames,
rounded up; d width. Every residual sum rides on the linear layer before it. Heads: B rows of a
batch, F frames of a block, R encoder frames, J width of the joint network, V labels, n durations.
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
    """x [R, d] -> [R, d]: half a step, the half in the weights."""
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
    """x [B·T, d] -> [B·T, d]; positions [2M - 1, d], projected."""
    qkv = ops.linear(x, w.linear_qkv, norm=w.norm)
    attended = ops.rel_pos_attention(
        qkv, positions, w.pos_bias_u, w.pos_bias_v, lengths, heads, attention_window
    )
    return ops.linear(attended, w.linear_out, add=x)


def conv_module(ops: Ops, x: Tensor, w: ConvModule, lengths: SeqLengths) -> Tensor:
    """x [B·T, d] -> [B·T, d]."""
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
    """x [B·T, d] -> [B·T, d]; its stages are `name` and what comes after a dot."""
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
    """Log-mel [B·n, n_mels] with frames [B] that count -> [B·T, d], scaled where the model is."""
    layers = [(layer.depthwise, layer.pointwise) for layer in w.subsampling_layers]
    return ops.linear(
        ops.conv_subsampling(mel, SeqLengths(frames), w.subsampling_conv, layers),
        w.subsampling_linear,
    )


def project_positions(
    ops: Ops, w: EncoderWeights, config: ParakeetConfig, count: int
) -> list[Tensor]:
    """Each layer's projected distances, [2 count - 1, d]: good for any T up to count.

    They hang on the weights alone: computed once, kept in slots, and given to every plan.
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
    """Log-mel [B·n, n_mels] with frames [B] (uint32) that count -> [B·T, d].

    Utterance b's row t is row b·T + t; those from ceil(frames[b] / factor) on are void. distances:
    what `positions` gave, of a count of at least T, or with a band (left, right) above both of it.
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
    """The encoder's half of the joint network, once for all frames: [R, d] -> [R, J]."""
    return ops.linear(encoded, w.joint_enc)


def joint_logits(
    ops: Ops,
    w: TransducerWeights,
    projected: Tensor,
    memory: LstmState,
    track: TransducerState,
    block: int,
) -> Tensor:
    """What the next frames of each row say after its labels so far: [B·F, V + 1 + n]."""
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
    """Each row on to its next label, or past a block of blanks."""
    scores = joint_logits(ops, w, projected, memory, track, block)
    ops.transducer_step(scores, rules, track, boost)


def ctc_argmax(ops: Ops, head: Linear, encoded: Tensor) -> Tensor:
    """CTC: the likeliest token of each frame and its probability: [R, d] -> [R, 2]."""
    scores = ops.linear(encoded, head)
    ops.probe("ctc.logits", scores)
    return ops.argmax_prob(scores)
