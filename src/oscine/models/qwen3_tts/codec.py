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
    DecoderBlock,
    MimiTransformerLayer,
    ResidualUnit,
    ResnetBlock,
    UpsampleBlock,
)
from oscine.models.qwen3_tts.config import CodecDecoderConfig, CodecEncoderConfig
from oscine.models.qwen3_tts.layers import TransformerLayer
from oscine.ops import Activation, Cache, ConvParams, Linear, Ops, RopeTable, TalkerState, Tensor


@dataclass(frozen=True, slots=True)
class StreamingState:
    """What earlier calls left: the rows before each causal stage, and the transformer's keys.

    rows(name, count, width) is the memory of a stage [S, count, width]; caches are [S, P, K·W].
    `place` has a row a voice: its slot among the S, the position of its first transformer row in
    this call, and how many rows it has.
    """

    conv_state: Callable[[str, int, int], Tensor]
    kv_caches: tuple[Cache, ...]
    rope: RopeTable
    batch: TalkerState


def causal_conv(
    ops: Ops,
    x: Tensor,
    conv: Linear,
    state: StreamingState,
    name: str,
    *,
    dilation: int = 1,
    stride: int = 1,
    activation: Activation = None,
) -> Tensor:
    """x [B·T, I], weight [O, K, I] -> [B·ceil(T / stride), O], looking back only.

    Where T is no multiple of the stride zeros fill the last window: then no more calls may follow.
    """
    (_, taps, inputs), rows = conv.weight.shape, state.batch.rows
    left_padding = (taps - 1) * dilation + 1 - stride
    conv_state = state.conv_state(name, left_padding, inputs) if left_padding else None
    right_padding = -(x.shape[0] // rows.shape[0]) % stride
    params = ConvParams(left_padding, right_padding, stride, dilation)
    return ops.conv1d(x, conv, params, memory=conv_state, state=rows, activation=activation)


def pointwise_conv(
    ops: Ops, x: Tensor, layer: Linear, activation: Activation = None, add: Tensor | None = None
) -> Tensor:
    """activation(x Wᵀ + b) + add, weight [O, I]: `linear` for rows that are many or vary, as the
    kernels of convolutions do not depend on the number of rows."""
    return ops.conv1d(x, layer, ConvParams(0), activation=activation, add=add)


def causal_conv_transpose(
    ops: Ops, x: Tensor, conv: Linear, rate: int, state: StreamingState, name: str
) -> Tensor:
    """A causal transposed convolution: x [B·T, I], weight [rate·O, K, I] -> [B·T·rate, O]."""
    y = causal_conv(ops, x, conv, state, name)
    return ops.reshape(y, (y.shape[0] * rate, y.shape[1] // rate))


# -- codes to waveform ------------------------------------------------------------------------


def decode(
    ops: Ops,
    w: CodecDecoderWeights,
    config: CodecDecoderConfig,
    state: StreamingState,
    codes: Tensor,
) -> Tensor:
    """Codes [B·T, G] uint32 -> waveform [B·T·hop, 1], before it is clamped to [-1, 1].

    Stages: decoder.quantized, preconv, tf_layer{i}, tf_out, up{i}_transconv, up{i}_convnext and
    wave{i}.
    """
    x = ops.linear(ops.codebook_lookup(codes, w.rvq_first_codebooks, 0), w.rvq_first_output_proj)
    x = ops.linear(
        ops.codebook_lookup(codes, w.rvq_rest_codebooks, 1), w.rvq_rest_output_proj, add=x
    )
    ops.probe("decoder.quantized", x)
    x = causal_conv(ops, x, w.pre_conv, state, "before")
    ops.probe("decoder.preconv", x)
    x = ops.linear(x, w.input_proj)
    for index, block in enumerate(w.layers):
        x = decoder_transformer_layer(ops, x, block, config, state, state.kv_caches[index])
        ops.probe(f"decoder.tf_layer{index}", x)
    x = ops.linear(x, w.output_proj, norm=w.norm)
    ops.probe("decoder.tf_out", x)
    for index, (rate, stage) in enumerate(zip(config.upsampling_ratios, w.upsample, strict=True)):
        x = causal_conv_transpose(ops, x, stage.conv_transpose, rate, state, f"up{index}")
        ops.probe(f"decoder.up{index}_transconv", x)
        x = convnext_block(ops, x, stage, state, f"up{index}_depthwise")
        ops.probe(f"decoder.up{index}_convnext", x)
    x = causal_conv(ops, x, w.conv_in, state, "first")
    ops.probe("decoder.wave0", x)
    for index, (rate, wave) in enumerate(zip(config.upsample_rates, w.blocks, strict=True), 1):
        x = decoder_block(ops, x, wave, rate, state, f"wave{index}")
        ops.probe(f"decoder.wave{index}", x)
    x = ops.snake(x, w.snake_out)
    ops.probe(f"decoder.wave{len(w.blocks) + 1}", x)
    x = causal_conv(ops, x, w.conv_out, state, "last")
    ops.probe(f"decoder.wave{len(w.blocks) + 2}", x)
    return x


def decoder_transformer_layer(
    ops: Ops,
    x: Tensor,
    w: TransformerLayer,
    config: CodecDecoderConfig,
    state: StreamingState,
    cache: Cache,
) -> Tensor:
    """x [B·T, d] -> [B·T, d]; a row sees `window` positions, itself among them."""
    attended = ops.causal_attention(
        ops.linear(x, w.qkv_proj, norm=w.input_layernorm),
        cache,
        state.batch,
        config.transformer.num_attention_heads,
        rope=state.rope,
        window=config.sliding_window,
    )
    x = ops.linear(attended, w.o_proj, add=x)
    return ops.linear(
        ops.swiglu_linear(x, w.gate_up_proj, norm=w.post_attention_layernorm), w.down_proj, add=x
    )


def convnext_block(
    ops: Ops, x: Tensor, stage: UpsampleBlock, state: StreamingState, name: str
) -> Tensor:
    """x [B·T, C] -> [B·T, C]."""
    w = stage.convnext
    taps, width = w.dwconv.weight.shape
    y = ops.depthwise(x, w.dwconv, state.conv_state(name, taps - 1, width), state.batch.rows)
    y = ops.linear(y, w.pwconv1, norm=w.norm, activation="gelu")
    return ops.linear(y, w.pwconv2, add=x)


def decoder_block(
    ops: Ops, x: Tensor, w: DecoderBlock, rate: int, state: StreamingState, name: str
) -> Tensor:
    """x [B·T, I] -> [B·T·rate, O]."""
    x = causal_conv_transpose(ops, ops.snake(x, w.snake), w.conv_transpose, rate, state, name)
    for index, unit in enumerate(w.residual_units):
        x = residual_unit(ops, x, unit, state, f"{name}_unit{index}")
    return x


def residual_unit(ops: Ops, x: Tensor, w: ResidualUnit, state: StreamingState, name: str) -> Tensor:
    """x [B·T, C] -> [B·T, C]."""
    y = causal_conv(ops, ops.snake(x, w.act1), w.conv1, state, name, dilation=w.dilation)
    return pointwise_conv(ops, ops.snake(y, w.act2), w.conv2, add=x)


# -- waveform to codes ------------------------------------------------------------------------


def encode(
    ops: Ops,
    w: CodecEncoderWeights,
    config: CodecEncoderConfig,
    state: StreamingState,
    samples: Tensor,
) -> Tensor:
    """Samples [n, 1] (or with columns of zeros) -> [ceil(n / hop'), d], hop' samples a row.

    One voice. Two rows are a frame. Only the last call may have an n that is no multiple of hop'.
    Stages: encoder.conv{i} by upstream's numbers, tf_layer{i}.
    """
    x = causal_conv(ops, samples, w.conv_in, state, "first")
    ops.probe("encoder.conv0", x)
    number = 0
    for index, stage in enumerate(w.stages):
        for unit_index, unit in enumerate(stage.resnet_blocks):
            x = resnet_block(ops, x, unit, state, f"stage{index}_unit{unit_index}")
            number += 1
            ops.probe(f"encoder.conv{number}", x)
        x = ops.activate(x, "elu")
        x = causal_conv(ops, x, stage.downsample, state, f"stage{index}", stride=stage.stride)
        number += 2
        ops.probe(f"encoder.conv{number}", x)
    x = causal_conv(ops, ops.activate(x, "elu"), w.conv_out, state, "last")
    ops.probe(f"encoder.conv{number + 2}", x)
    for index, block in enumerate(w.layers):
        x = encoder_transformer_layer(
            ops, x, block, config.transformer.num_attention_heads, state, state.kv_caches[index]
        )
        ops.probe(f"encoder.tf_layer{index}", x)
    return x


def resnet_block(ops: Ops, x: Tensor, w: ResnetBlock, state: StreamingState, name: str) -> Tensor:
    """x [T, C] -> [T, C]."""
    y = ops.activate(x, "elu")
    y = causal_conv(ops, y, w.conv1, state, name, dilation=w.dilation, activation="elu")
    return pointwise_conv(ops, y, w.conv2, add=x)


def encoder_transformer_layer(
    ops: Ops, x: Tensor, w: MimiTransformerLayer, heads: int, state: StreamingState, cache: Cache
) -> Tensor:
    """x [T, d] -> [T, d]; a row sees all before it."""
    qkv = ops.linear(x, w.qkv_proj, norm=w.input_layernorm)
    attended = ops.causal_attention(qkv, cache, state.batch, heads, rope=state.rope)
    x = ops.linear(attended, w.o_proj, add=x)
    y = ops.linear(x, w.fc1, norm=w.post_attention_layernorm, activation="gelu")
    return ops.linear(y, w.fc2, add=x)


def rvq_encode(ops: Ops, w: CodecEncoderWeights, rows: Tensor, codes: Tensor) -> None:
    """All of listen's rows [T, d] -> codes, a slot [ceil(T / 2), G].

    The acoustic codebooks start from the same latent as the semantic one, not from what it leaves.
    """
    taps = w.downsample.weight.shape[1]
    stride = taps // 2
    look = ConvParams(taps - stride, -rows.shape[0] % stride, stride, padding="edge")
    latent = ops.conv1d(rows, w.downsample, look)
    ops.probe("encoder.latent", latent)
    ops.nearest_code(ops.linear(latent, w.semantic_input_proj), w.codebooks[0], codes, 0)
    rest = ops.linear(latent, w.acoustic_input_proj)
    for group, table in enumerate(w.codebooks[1:], 1):
        rest = ops.nearest_code(rest, table, codes, group)
