"""The 12 Hz codec, written once against the op vocabulary: codes to waveform and back.

Source: qwen_tts/core/tokenizer_12hz/modeling_qwen3_tts_tokenizer_v2.py; the encoder is that of
transformers models/mimi (Défossez et al. 2024, arXiv:2410.00037). Everything is causal. What the
calls before left behind is in `Past`, so that any cut into calls gives what one call gives. A call
takes several voices side by side, each at a position of its own: their rows follow one another,
voice by voice, and no row looks at another voice's.
B voices, T frames of codes of each in this call, G codebooks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from oscine.models.qwen3_tts.codec_weights import (
    CodecDecoderWeights,
    CodecEncoderWeights,
    DecoderStage,
    EncoderBlock,
    EncoderUnit,
    ResidualUnit,
    Upsample,
)
from oscine.models.qwen3_tts.config import CodecDecoderConfig, CodecEncoderConfig
from oscine.models.qwen3_tts.layers import Block
from oscine.ops import Activation, Cache, ConvParams, Linear, Ops, RopeTable, TalkerState, Tensor


@dataclass(frozen=True, slots=True)
class Past:
    """What earlier calls left: the rows before each causal stage, and the transformer's keys.

    rows(name, count, width) is the memory of a stage [S, count, width]; caches are [S, P, K·W].
    `place` has a row a voice: its slot among the S, the position of its first transformer row in
    this call, and how many rows it has.
    """

    rows: Callable[[str, int, int], Tensor]
    caches: tuple[Cache, ...]
    rotary: RopeTable
    place: TalkerState


def causal(
    ops: Ops,
    x: Tensor,
    conv: Linear,
    past: Past,
    name: str,
    *,
    dilation: int = 1,
    stride: int = 1,
    activation: Activation = None,
) -> Tensor:
    """x [B·T, I], weight [O, K, I] -> [B·ceil(T / stride), O], looking back only.

    Where T is no multiple of the stride zeros fill the last window: then no more calls may follow.
    """
    (_, taps, inputs), state = conv.weight.shape, past.place.rows
    left = (taps - 1) * dilation + 1 - stride
    memory = past.rows(name, left, inputs) if left else None
    right = -(x.shape[0] // state.shape[0]) % stride
    taken = ConvParams(left, right, stride, dilation)
    return ops.conv1d(x, conv, taken, memory=memory, state=state, activation=activation)


def pointwise(
    ops: Ops, x: Tensor, layer: Linear, activation: Activation = None, add: Tensor | None = None
) -> Tensor:
    """activation(x Wᵀ + b) + add, weight [O, I]: `linear` for rows that are many or vary, as the
    kernels of convolutions do not depend on the number of rows."""
    return ops.conv1d(x, layer, ConvParams(0), activation=activation, add=add)


def spread(ops: Ops, x: Tensor, conv: Linear, rate: int, past: Past, name: str) -> Tensor:
    """A causal transposed convolution: x [B·T, I], weight [rate·O, K, I] -> [B·T·rate, O]."""
    y = causal(ops, x, conv, past, name)
    return ops.reshape(y, (y.shape[0] * rate, y.shape[1] // rate))


# -- codes to waveform ------------------------------------------------------------------------


def decode(
    ops: Ops,
    w: CodecDecoderWeights,
    config: CodecDecoderConfig,
    past: Past,
    codes: Tensor,
) -> Tensor:
    """Codes [B·T, G] uint32 -> waveform [B·T·hop, 1], before it is clamped to [-1, 1].

    Stages: decoder.quantized, preconv, tf_layer{i}, tf_out, up{i}_transconv, up{i}_convnext and
    wave{i}.
    """
    x = ops.linear(ops.codebook_lookup(codes, w.first_table, 0), w.first_out)
    x = ops.linear(ops.codebook_lookup(codes, w.rest_tables, 1), w.rest_out, add=x)
    ops.probe("decoder.quantized", x)
    x = causal(ops, x, w.before, past, "before")
    ops.probe("decoder.preconv", x)
    x = ops.linear(x, w.input)
    for index, block in enumerate(w.blocks):
        x = decoder_block(ops, x, block, config, past, past.caches[index])
        ops.probe(f"decoder.tf_layer{index}", x)
    x = ops.linear(x, w.output, norm=w.norm)
    ops.probe("decoder.tf_out", x)
    for index, (rate, stage) in enumerate(zip(config.ratios, w.upsample, strict=True)):
        x = spread(ops, x, stage.up, rate, past, f"up{index}")
        ops.probe(f"decoder.up{index}_transconv", x)
        x = conv_next(ops, x, stage, past, f"up{index}_depthwise")
        ops.probe(f"decoder.up{index}_convnext", x)
    x = causal(ops, x, w.first, past, "first")
    ops.probe("decoder.wave0", x)
    for index, (rate, wave) in enumerate(zip(config.rates, w.stages, strict=True), 1):
        x = decoder_stage(ops, x, wave, rate, past, f"wave{index}")
        ops.probe(f"decoder.wave{index}", x)
    x = ops.snake(x, w.snake)
    ops.probe(f"decoder.wave{len(w.stages) + 1}", x)
    x = causal(ops, x, w.last, past, "last")
    ops.probe(f"decoder.wave{len(w.stages) + 2}", x)
    return x


def decoder_block(
    ops: Ops, x: Tensor, w: Block, config: CodecDecoderConfig, past: Past, cache: Cache
) -> Tensor:
    """x [B·T, d] -> [B·T, d]; a row sees `window` positions, itself among them."""
    attended = ops.causal_attention(
        ops.linear(x, w.qkv, norm=w.norm), cache, past.place, config.stack.heads,
        rope=past.rotary, window=config.window,
    )  # fmt: skip
    x = ops.linear(attended, w.out, add=x)
    return ops.linear(ops.swiglu_linear(x, w.gate_up, norm=w.mlp_norm), w.down, add=x)


def conv_next(ops: Ops, x: Tensor, stage: Upsample, past: Past, name: str) -> Tensor:
    """x [B·T, C] -> [B·T, C]."""
    w = stage.block
    taps, width = w.depthwise.weight.shape
    y = ops.depthwise(x, w.depthwise, past.rows(name, taps - 1, width), past.place.rows)
    y = ops.linear(y, w.expand, norm=w.norm, activation="gelu")
    return ops.linear(y, w.shrink, add=x)


def decoder_stage(ops: Ops, x: Tensor, w: DecoderStage, rate: int, past: Past, name: str) -> Tensor:
    """x [B·T, I] -> [B·T·rate, O]."""
    x = spread(ops, ops.snake(x, w.snake), w.up, rate, past, name)
    for index, unit in enumerate(w.units):
        x = residual_unit(ops, x, unit, past, f"{name}_unit{index}")
    return x


def residual_unit(ops: Ops, x: Tensor, w: ResidualUnit, past: Past, name: str) -> Tensor:
    """x [B·T, C] -> [B·T, C]."""
    y = causal(ops, ops.snake(x, w.before), w.first, past, name, dilation=w.dilation)
    return pointwise(ops, ops.snake(y, w.between), w.second, add=x)


# -- waveform to codes ------------------------------------------------------------------------


def listen(
    ops: Ops,
    w: CodecEncoderWeights,
    config: CodecEncoderConfig,
    past: Past,
    samples: Tensor,
) -> Tensor:
    """Samples [n, 1] (or with columns of zeros) -> [ceil(n / hop'), d], hop' samples a row.

    One voice. Two rows are a frame. Only the last call may have an n that is no multiple of hop'.
    Stages: encoder.conv{i} by upstream's numbers, tf_layer{i}.
    """
    x = causal(ops, samples, w.first, past, "first")
    ops.probe("encoder.conv0", x)
    number = 0
    for index, stage in enumerate(w.stages):
        for unit_index, unit in enumerate(stage.units):
            x = encoder_unit(ops, x, unit, past, f"stage{index}_unit{unit_index}")
            number += 1
            ops.probe(f"encoder.conv{number}", x)
        x = ops.activate(x, "elu")
        x = causal(ops, x, stage.down, past, f"stage{index}", stride=stage.stride)
        number += 2
        ops.probe(f"encoder.conv{number}", x)
    x = causal(ops, ops.activate(x, "elu"), w.last, past, "last")
    ops.probe(f"encoder.conv{number + 2}", x)
    for index, block in enumerate(w.blocks):
        x = encoder_block(ops, x, block, config.stack.heads, past, past.caches[index])
        ops.probe(f"encoder.tf_layer{index}", x)
    return x


def encoder_unit(ops: Ops, x: Tensor, w: EncoderUnit, past: Past, name: str) -> Tensor:
    """x [T, C] -> [T, C]."""
    y = ops.activate(x, "elu")
    y = causal(ops, y, w.first, past, name, dilation=w.dilation, activation="elu")
    return pointwise(ops, y, w.second, add=x)


def encoder_block(
    ops: Ops, x: Tensor, w: EncoderBlock, heads: int, past: Past, cache: Cache
) -> Tensor:
    """x [T, d] -> [T, d]; a row sees all before it."""
    qkv = ops.linear(x, w.qkv, norm=w.norm)
    attended = ops.causal_attention(qkv, cache, past.place, heads, rope=past.rotary)
    x = ops.linear(attended, w.out, add=x)
    y = ops.linear(x, w.expand, norm=w.mlp_norm, activation="gelu")
    return ops.linear(y, w.shrink, add=x)


def quantise(ops: Ops, w: CodecEncoderWeights, rows: Tensor, codes: Tensor) -> None:
    """All of listen's rows [T, d] -> codes, a slot [ceil(T / 2), G].

    The acoustic codebooks start from the same latent as the semantic one, not from what it leaves.
    """
    taps = w.down.weight.shape[1]
    stride = taps // 2
    look = ConvParams(taps - stride, -rows.shape[0] % stride, stride, padding="edge")
    latent = ops.conv1d(rows, w.down, look)
    ops.probe("encoder.latent", latent)
    ops.nearest_code(ops.linear(latent, w.semantic), w.tables[0], codes, 0)
    rest = ops.linear(latent, w.acoustic)
    for group, table in enumerate(w.tables[1:], 1):
        rest = ops.nearest_code(rest, table, codes, group)
