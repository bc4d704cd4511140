"""The codec's weights as trees of float32 arrays, checked against its configuration first.

The codec is stored in a folder of its own, which can also be loaded alone. Source of the network:
qwen_tts/core/tokenizer_12hz/modeling_qwen3_tts_tokenizer_v2.py and transformers models/mimi.
layers.py lists what is folded into the weights. Channels of convolutions are padded with zeros to
multiples of 4. Dimensions that a norm covers or heads are split from are not padded, since zeros
would change the result. In released sizes only the encoder's single input channel is padded.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from oscine.models.loader import Loader, ShapeCheckLoader, load
from oscine.models.qwen3_tts.config import (
    DOWNSAMPLE_STRIDE,
    CodecConfig,
    CodecDecoderConfig,
    CodecEncoderConfig,
    read_codec_config,
)
from oscine.models.qwen3_tts.layers import (
    TransformerLayer,
    codebook,
    conv1d,
    conv_transpose1d,
    depthwise_conv,
    fold_scale,
    pad_channels,
    pointwise_conv,
    qkv_proj,
    snake,
    transformer_layers,
)
from oscine.ops import LayerNorm, Linear, RmsNorm, Snake
from oscine.weights import Checkpoint, read_checkpoint
from oscine.weights.mapped_file import Array

_DECODER_RVQ_FIRST = "decoder.quantizer.rvq_first"
_DECODER_RVQ_REST = "decoder.quantizer.rvq_rest"
_ENCODER_SEMANTIC_RVQ = "encoder.quantizer.semantic_residual_vector_quantizer"
_ENCODER_ACOUSTIC_RVQ = "encoder.quantizer.acoustic_residual_vector_quantizer"
_DILATIONS = (1, 3, 9)  # of the residual units of a stage of the decoder
_CONVNEXT_EPS = 1e-6


@dataclass(frozen=True, slots=True)
class ConvNextBlock:
    """dwconv.weight [K, C]; pwconv1 [4C, C], GELU, pwconv2 [C, 4C] with gamma folded in."""

    dwconv: Linear
    norm: LayerNorm
    pwconv1: Linear
    pwconv2: Linear


@dataclass(frozen=True, slots=True)
class UpsampleBlock:
    """Transposed convolution and ConvNeXt block. conv_transpose.weight [r·C, 1, C] gives
    [T·r, C].
    """

    conv_transpose: Linear
    convnext: ConvNextBlock


@dataclass(frozen=True, slots=True)
class ResidualUnit:
    """x + conv2(act2(conv1(act1(x)))), activations Snake: conv1.weight [C, K, C], conv2 [C, C]."""

    act1: Snake
    conv1: Linear
    act2: Snake
    conv2: Linear
    dilation: int


@dataclass(frozen=True, slots=True)
class DecoderBlock:
    """Snake, transposed convolution and residual units.

    conv_transpose.weight [r·O, 2, I], its bias repeated r times; the result is read as [T·r, O].
    """

    snake: Snake
    conv_transpose: Linear
    residual_units: tuple[ResidualUnit, ...]


@dataclass(frozen=True, slots=True)
class CodecDecoderWeights:
    """The decoder, codes to waveform; the fields bear the checkpoint's names where it has some.

    rvq_first_codebooks [1, N, d], rvq_rest_codebooks [G - 1, N, d]; pre_conv.weight [latent_dim, 3,
    codebook_dim]; conv_in.weight [decoder_dim, 7, latent_dim]; conv_out.weight [1, 7, channels of
    the last block].
    """

    rvq_first_codebooks: Array
    rvq_rest_codebooks: Array
    rvq_first_output_proj: Linear
    rvq_rest_output_proj: Linear
    pre_conv: Linear
    input_proj: Linear
    layers: tuple[TransformerLayer, ...]
    norm: RmsNorm
    output_proj: Linear
    upsample: tuple[UpsampleBlock, ...]
    conv_in: Linear
    blocks: tuple[DecoderBlock, ...]
    snake_out: Snake
    conv_out: Linear


@dataclass(frozen=True, slots=True)
class ResnetBlock:
    """x + conv2(elu(conv1(elu(x)))): conv1.weight [C/compress, K, C], conv2 [C, C/compress]."""

    conv1: Linear
    conv2: Linear
    dilation: int


@dataclass(frozen=True, slots=True)
class EncoderStage:
    """Residual blocks, ELU, then downsample.weight [2C, 2·stride, C]."""

    resnet_blocks: tuple[ResnetBlock, ...]
    downsample: Linear
    stride: int


@dataclass(frozen=True, slots=True)
class MimiTransformerLayer:
    """A layer of Mimi's transformer: layer norms, attention with RoPE, fc1, GELU, fc2."""

    input_layernorm: LayerNorm
    qkv_proj: Linear
    o_proj: Linear
    post_attention_layernorm: LayerNorm
    fc1: Linear
    fc2: Linear


@dataclass(frozen=True, slots=True)
class CodecEncoderWeights:
    """The encoder, waveform to codes.

    conv_in.weight [num_filters, K, 4], whose first input channel takes the samples; conv_out.weight
    [hidden_size, K, C]; downsample.weight [hidden_size, 4, hidden_size]; semantic_input_proj and
    acoustic_input_proj [d, hidden_size]; codebooks: G of [N, d], the semantic one first.
    """

    conv_in: Linear
    stages: tuple[EncoderStage, ...]
    conv_out: Linear
    layers: tuple[MimiTransformerLayer, ...]
    downsample: Linear
    semantic_input_proj: Linear
    acoustic_input_proj: Linear
    codebooks: tuple[Array, ...]


def load_codec(
    path: Checkpoint | Path | str,
) -> tuple[CodecConfig, CodecDecoderWeights, CodecEncoderWeights]:
    """Read a codec: a folder of its own, or the folder speech_tokenizer of a model.

    Raises:
        CheckpointError: as oscine.models.qwen3_tts.weights.load_weights.
    """
    checkpoint = path if isinstance(path, Checkpoint) else read_checkpoint(path)
    config = read_codec_config(checkpoint)
    return config, *load_codec_weights(checkpoint, config)


def load_codec_weights(
    checkpoint: Checkpoint, config: CodecConfig
) -> tuple[CodecDecoderWeights, CodecEncoderWeights]:
    """The weights of a codec whose configuration has been read. Raises CheckpointError."""
    build = partial(build_codec, config=config)
    return load(build, checkpoint.path, checkpoint.tensors, "f32")


def check_codec(checkpoint: Checkpoint, config: CodecConfig) -> None:
    """Compare names and shapes of the tensors, without reading any. Raises CheckpointError."""
    expect = ShapeCheckLoader(checkpoint.path, checkpoint.tensors)
    build_codec(expect, config)
    expect.compare()


def build_codec(t: Loader, config: CodecConfig) -> tuple[CodecDecoderWeights, CodecEncoderWeights]:
    """Decoder and encoder; they share no weights."""
    return _decoder_weights(t, config), _encoder_weights(t, config)


# -- codes to waveform ----------------------------------------------------------------------------


def _decoder_weights(t: Loader, config: CodecConfig) -> CodecDecoderWeights:
    decoder, at = config.decoder, "decoder.pre_transformer"
    codebook_dim, latent_dim, stack = decoder.codebook_dim, decoder.latent_dim, decoder.transformer
    first = conv1d(t, "decoder.decoder.0.conv", decoder.decoder_dim, latent_dim, 7)
    stages, channels, end = _decoder_blocks(t, decoder)
    last = conv1d(t, f"decoder.decoder.{end + 1}.conv", 1, channels, 7)
    return CodecDecoderWeights(
        rvq_first_codebooks=_stacked_codebooks(t, _DECODER_RVQ_FIRST, 1, config),
        rvq_rest_codebooks=_stacked_codebooks(
            t, _DECODER_RVQ_REST, config.num_code_groups - 1, config
        ),
        rvq_first_output_proj=_output_proj(t, _DECODER_RVQ_FIRST, codebook_dim),
        rvq_rest_output_proj=_output_proj(t, _DECODER_RVQ_REST, codebook_dim),
        pre_conv=conv1d(t, "decoder.pre_conv.conv", latent_dim, codebook_dim, 3),
        input_proj=t.linear(f"{at}.input_proj", stack.hidden_size, latent_dim),
        layers=transformer_layers(t, at, stack, layer_scale=True),
        norm=t.rms_norm(f"{at}.norm", stack.hidden_size, stack.norm_eps),
        output_proj=t.linear(f"{at}.output_proj", latent_dim, stack.hidden_size),
        upsample=tuple(
            _upsample_block(t, f"decoder.upsample.{index}", latent_dim, ratio)
            for index, ratio in enumerate(decoder.upsampling_ratios)
        ),
        conv_in=pad_channels(t, first, inputs=0),
        blocks=stages,
        snake_out=snake(t, f"decoder.decoder.{end}", channels),
        conv_out=pad_channels(t, last, outputs=0),
    )


def _stacked_codebooks(t: Loader, at: str, count: int, config: CodecConfig) -> Array:
    """All codebooks of a quantizer [count, N, d]."""
    width = config.decoder.codebook_dim // 2
    books = [f"{at}.vq.layers.{index}._codebook" for index in range(count)]
    tables = [codebook(t, book, "embedding_sum", config.codebook_size, width) for book in books]
    return t.derived(_stack, *tables)


def _stack(*tables: Array) -> Array:
    return np.stack(tables)


def _output_proj(t: Loader, at: str, codebook_dim: int) -> Linear:
    """A quantizer's output projection; its input projection is for training only."""
    t.ignore(f"{at}.input_proj.weight", codebook_dim // 2, codebook_dim, 1)
    return pointwise_conv(t, f"{at}.output_proj", codebook_dim, codebook_dim // 2, bias=False)


def _upsample_block(t: Loader, at: str, width: int, ratio: int) -> UpsampleBlock:
    pwconv2 = t.linear(f"{at}.1.pwconv2", width, 4 * width)
    return UpsampleBlock(
        conv_transpose=conv_transpose1d(t, f"{at}.0.conv", width, width, ratio, ratio),
        convnext=ConvNextBlock(
            dwconv=depthwise_conv(t, f"{at}.1.dwconv.conv", width, 7),
            norm=t.norm(f"{at}.1.norm", width, _CONVNEXT_EPS),
            pwconv1=t.linear(f"{at}.1.pwconv1", 4 * width, width),
            pwconv2=fold_scale(t, pwconv2, f"{at}.1.gamma", width),
        ),
    )


def _decoder_blocks(
    t: Loader, config: CodecDecoderConfig
) -> tuple[tuple[DecoderBlock, ...], int, int]:
    """The decoder blocks, the last one's output channels, and the index of the module after
    them.
    """
    blocks, channels = [], config.decoder_dim
    for index, rate in enumerate(config.upsample_rates, 1):
        blocks.append(decoder_block(t, f"decoder.decoder.{index}.block", channels, rate))
        channels //= 2
    return tuple(blocks), channels, len(blocks) + 1


def decoder_block(t: Loader, at: str, channels: int, rate: int) -> DecoderBlock:
    """A block with `channels` input channels and half as many output channels."""
    half = channels // 2
    up = conv_transpose1d(t, f"{at}.1.conv", channels, half, 2 * rate, rate)
    return DecoderBlock(
        snake=snake(t, f"{at}.0", channels),
        conv_transpose=pad_channels(t, up, outputs=rate),
        residual_units=tuple(
            ResidualUnit(
                act1=snake(t, f"{at}.{unit}.act1", half),
                conv1=pad_channels(t, conv1d(t, f"{at}.{unit}.conv1.conv", half, half, 7)),
                act2=snake(t, f"{at}.{unit}.act2", half),
                conv2=pad_channels(t, pointwise_conv(t, f"{at}.{unit}.conv2.conv", half, half)),
                dilation=dilation,
            )
            for unit, dilation in enumerate(_DILATIONS, 2)
        ),
    )


# -- waveform to codes ----------------------------------------------------------------------------


def _encoder_weights(t: Loader, config: CodecConfig) -> CodecEncoderWeights:
    encoder, at = config.encoder, "encoder.encoder.layers"
    d = encoder.transformer.hidden_size
    first = conv1d(t, f"{at}.0.conv", encoder.num_filters, 1, encoder.kernel_size)
    stages, channels, end = _encoder_stages(t, at, encoder)
    last = conv1d(t, f"{at}.{end}.conv", d, channels, encoder.last_kernel_size)
    semantic, semantic_tables = _quantizer(t, _ENCODER_SEMANTIC_RVQ, config, 1, 1)
    stored_acoustic = encoder.num_quantizers - 1
    acoustic, acoustic_tables = _quantizer(
        t, _ENCODER_ACOUSTIC_RVQ, config, config.num_code_groups - 1, stored_acoustic
    )
    return CodecEncoderWeights(
        conv_in=pad_channels(t, first),
        stages=stages,
        conv_out=pad_channels(t, last, outputs=0),
        layers=_encoder_layers(t, encoder),
        downsample=conv1d(t, "encoder.downsample.conv", d, d, 2 * DOWNSAMPLE_STRIDE, bias=False),
        semantic_input_proj=semantic,
        acoustic_input_proj=acoustic,
        codebooks=(*semantic_tables, *acoustic_tables),
    )


def _encoder_stages(
    t: Loader, at: str, config: CodecEncoderConfig
) -> tuple[tuple[EncoderStage, ...], int, int]:
    """The stages, the last one's output channels, and the index of the last convolution.

    Indices are those of upstream's module list, which also counts each ELU before a convolution.
    """
    stages, channels, index = [], config.num_filters, 1
    for stride in config.strides:
        units = tuple(
            _resnet_block(t, f"{at}.{index + number}.block", channels, config, number)
            for number in range(config.num_residual_layers)
        )
        index += config.num_residual_layers + 1
        down = conv1d(t, f"{at}.{index}.conv", 2 * channels, channels, 2 * stride)
        stages.append(EncoderStage(units, pad_channels(t, down), stride))
        channels *= 2
        index += 1
    return tuple(stages), channels, index + 1


def _resnet_block(
    t: Loader, at: str, channels: int, config: CodecEncoderConfig, number: int
) -> ResnetBlock:
    inner, kernel = channels // config.compress, config.residual_kernel_size
    return ResnetBlock(
        conv1=pad_channels(t, conv1d(t, f"{at}.1.conv", inner, channels, kernel)),
        conv2=pad_channels(t, pointwise_conv(t, f"{at}.3.conv", channels, inner)),
        dilation=config.dilation_growth_rate**number,
    )


def _encoder_layers(t: Loader, config: CodecEncoderConfig) -> tuple[MimiTransformerLayer, ...]:
    stack, layers = config.transformer, []
    d = stack.hidden_size
    for layer in range(stack.num_hidden_layers):
        at = f"encoder.encoder_transformer.layers.{layer}"
        out = t.linear(f"{at}.self_attn.o_proj", d, stack.q_size, bias=False)
        fc2 = t.linear(f"{at}.mlp.fc2", d, stack.intermediate_size, bias=False)
        layers.append(
            MimiTransformerLayer(
                input_layernorm=t.norm(f"{at}.input_layernorm", d, stack.norm_eps),
                qkv_proj=qkv_proj(t, f"{at}.self_attn", stack),
                o_proj=fold_scale(t, out, f"{at}.self_attn_layer_scale.scale", d),
                post_attention_layernorm=t.norm(
                    f"{at}.post_attention_layernorm", d, stack.norm_eps
                ),
                fc1=t.linear(f"{at}.mlp.fc1", stack.intermediate_size, d, bias=False),
                fc2=fold_scale(t, fc2, f"{at}.mlp_layer_scale.scale", d),
            )
        )
    return tuple(layers)


def _quantizer(
    t: Loader, at: str, config: CodecConfig, used: int, stored: int
) -> tuple[Linear, tuple[Array, ...]]:
    """A quantizer's input projection and its first `used` codebooks.

    Training state and codebooks beyond those may be absent from the file.
    """
    d, width, codes = (
        config.encoder.codebook_dim,
        config.encoder.transformer.hidden_size,
        config.codebook_size,
    )
    books = [f"{at}.layers.{index}.codebook" for index in range(stored)]
    t.ignore(f"{at}.output_proj.weight", width, d, 1)
    for book in books:
        t.ignore(f"{book}.initialized", 1)
    for book in books[used:]:
        t.ignore(f"{book}.embed_sum", codes, d)
        t.ignore(f"{book}.cluster_usage", codes)
    tables = tuple(codebook(t, book, "embed_sum", codes, d) for book in books[:used])
    return pointwise_conv(t, f"{at}.input_proj", d, width, bias=False), tables
