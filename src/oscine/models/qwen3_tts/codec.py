"""The 12 Hz codec, written once against the op vocabulary: codes to waveform and back.

Source: qwen_tts/core/tokenizer_12hz/modeling_qwen3_tts_tokenizer_v2.py; the encoder is that of
transformers models/mimi (Défossez et al. 2024, arXiv:2410.00037). All layers are causal.
`StreamingState` holds what a call needs of earlier calls, so that the result does not depend on how
frames are split into calls. A call decodes several voices in one batch, each at its own position:
rows are stored voice by voice, and no row reads another voice's rows. !B voices, T frames of codes
of each in this call, G codebooks.
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
from oscine.ops import Activation, ConvParams, KVCache, Linear, Ops, RopeTable, TalkerState, Tensor


@dataclass(frozen=True, slots=True)
class StreamingState:
    """State from earlier calls: rows before each causal convolution, and the transformer's KV
    cache.

    `conv_state(name, count, width)` is the buffer [S, count, width] of a layer; `kv_caches` are [S,
    P, K·W]. `batch` has one row for each voice: its slot among the S, the position of its first
    transformer row in this call, and its number of rows.
    """

    conv_state: Callable[[str, int, int], Tensor]
    kv_caches: tuple[KVCache, ...]
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
    """Causal convolution: x [B·T, I], weight [O, K, I] -> [B·ceil(T / stride), O].

    If T is not a multiple of the stride, the last window is padded with zeros; no call may follow.
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
    """activation(x Wᵀ + b) + add, weight [O, I].

    It equals `linear`, and suits a large or varying number of rows: convolution kernels do not
    depend on it.
    """
    return ops.conv1d(x, layer, ConvParams(0), activation=activation, add=add)


def causal_conv_transpose(
    ops: Ops, x: Tensor, conv: Linear, rate: int, state: StreamingState, name: str
) -> Tensor:
    """Causal transposed convolution: x [B·T, I], weight [rate·O, K, I] -> [B·T·rate, O]."""
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
    """Decode codes [B·T, G] uint32 to waveform [B·T·hop, 1], before it is clamped to [-1, 1].

    Probes: decoder.quantized, preconv, tf_layer{i}, tf_out, up{i}_transconv, up{i}_convnext and
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
    cache: KVCache,
) -> Tensor:
    """A layer of the decoder's transformer: x [B·T, d] -> [B·T, d].

    A row attends to `sliding_window` positions, its own included.
    """
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
    """ConvNeXt block with a causal depthwise convolution: x [B·T, C] -> [B·T, C]."""
    w = stage.convnext
    taps, width = w.dwconv.weight.shape
    y = ops.depthwise(x, w.dwconv, state.conv_state(name, taps - 1, width), state.batch.rows)
    y = ops.linear(y, w.pwconv1, norm=w.norm, activation="gelu")
    return ops.linear(y, w.pwconv2, add=x)


def decoder_block(
    ops: Ops, x: Tensor, w: DecoderBlock, rate: int, state: StreamingState, name: str
) -> Tensor:
    """Snake, transposed convolution, residual units: x [B·T, I] -> [B·T·rate, O]."""
    x = causal_conv_transpose(ops, ops.snake(x, w.snake), w.conv_transpose, rate, state, name)
    for index, unit in enumerate(w.residual_units):
        x = residual_unit(ops, x, unit, state, f"{name}_unit{index}")
    return x


def residual_unit(ops: Ops, x: Tensor, w: ResidualUnit, state: StreamingState, name: str) -> Tensor:
    """Dilated and pointwise convolution with Snake before each: x [B·T, C] -> [B·T, C]."""
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
    """Encode samples [n, 1] (or padded with columns of zeros) to latents [ceil(n / hop'), d].

    A row is hop' samples, half a frame. It takes one voice. Only the last call may have an n that
    is not a multiple of hop'. Probes: encoder.conv{i} by upstream's numbers, tf_layer{i}.
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
    """Mimi's residual block with ELU: x [T, C] -> [T, C]."""
    y = ops.activate(x, "elu")
    y = causal_conv(ops, y, w.conv1, state, name, dilation=w.dilation, activation="elu")
    return pointwise_conv(ops, y, w.conv2, add=x)


def encoder_transformer_layer(
    ops: Ops, x: Tensor, w: MimiTransformerLayer, heads: int, state: StreamingState, cache: KVCache
) -> Tensor:
    """A layer of Mimi's transformer: x [T, d] -> [T, d]; a row attends to all rows before it."""
    qkv = ops.linear(x, w.qkv_proj, norm=w.input_layernorm)
    attended = ops.causal_attention(qkv, cache, state.batch, heads, rope=state.rope)
    x = ops.linear(attended, w.o_proj, add=x)
    y = ops.linear(x, w.fc1, norm=w.post_attention_layernorm, activation="gelu")
    return ops.linear(y, w.fc2, add=x)


def rvq_encode(ops: Ops, w: CodecEncoderWeights, rows: Tensor, codes: Tensor) -> None:
    """Residual vector quantization: all latents [T, d] -> codes, a buffer [ceil(T / 2), G].

    The acoustic codebooks quantize the same latent as the semantic one, not its residual.
    """
    taps = w.downsample.weight.shape[1]
    stride = taps // 2
    params = ConvParams(taps - stride, -rows.shape[0] % stride, stride, padding="edge")
    latent = ops.conv1d(rows, w.downsample, params)
    ops.probe("encoder.latent", latent)
    ops.nearest_code(ops.linear(latent, w.semantic_input_proj), w.codebooks[0], codes, 0)
    residual = ops.linear(latent, w.acoustic_input_proj)
    for group, table in enumerate(w.codebooks[1:], 1):
        residual = ops.nearest_code(residual, table, codes, group)
