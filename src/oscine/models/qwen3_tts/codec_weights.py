"""The codec of a Qwen3-TTS as trees of float32 arrays, checked against its configuration first.

It is in a folder of its own, which may also stand alone. Source of the network: qwen_tts/core/
tokenizer_12hz/modeling_qwen3_tts_tokenizer_v2.py and transformers models/mimi. What is folded into
the weights: see layers.py. Widths of the waveform's layers are filled up with zeros to multiples of
four. What a norm goes over, or heads are cut from, is left as it is: zeros would change it.
Released sizes only have the encoder's one input channel to fill.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from oscine.models.loader import Expect, Loader, load
from oscine.models.qwen3_tts.config import (
    LAST_STRIDE,
    CodecConfig,
    CodecDecoderConfig,
    CodecEncoderConfig,
    read_codec_config,
)
from oscine.models.qwen3_tts.layers import (
    Block,
    blocks,
    codebook,
    convolution,
    depthwise,
    padded,
    pointwise,
    query_key_value,
    rescaled,
    snake,
    transposed_convolution,
)
from oscine.ops import LayerNorm, Linear, RmsNorm, Snake
from oscine.weights import Checkpoint, read_checkpoint
from oscine.weights.mapped_file import Array

_FIRST_CODES = "decoder.quantizer.rvq_first"
_REST_CODES = "decoder.quantizer.rvq_rest"
_SEMANTIC = "encoder.quantizer.semantic_residual_vector_quantizer"
_ACOUSTIC = "encoder.quantizer.acoustic_residual_vector_quantizer"
_DILATIONS = (1, 3, 9)  # of the residual units of a stage of the decoder
_CONVNEXT_EPS = 1e-6


@dataclass(frozen=True, slots=True)
class ConvNext:
    """depthwise.weight [K, C]; expand [4C, C], GELU, shrink [C, 4C] with gamma folded in."""

    depthwise: Linear
    norm: LayerNorm
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

    norm: LayerNorm
    qkv: Linear
    out: Linear
    mlp_norm: LayerNorm
    expand: Linear
    shrink: Linear


@dataclass(frozen=True, slots=True)
class CodecEncoderWeights:
    """first.weight [filters, K, 4], of which samples meet the first input only; last.weight
    [width, K, C]; down.weight [width, 4, width].

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


def load_codec(
    path: Checkpoint | Path | str,
) -> tuple[CodecConfig, CodecDecoderWeights, CodecEncoderWeights]:
    """Read a codec that stands alone, or the folder speech_tokenizer of a model.

    Raises:
        CheckpointError: as oscine.models.qwen3_tts.weights.load_weights.
    """
    checkpoint = path if isinstance(path, Checkpoint) else read_checkpoint(path)
    config = read_codec_config(checkpoint)
    return config, *codec_weights(checkpoint, config)


def codec_weights(
    checkpoint: Checkpoint, config: CodecConfig
) -> tuple[CodecDecoderWeights, CodecEncoderWeights]:
    """The trees of a codec whose configuration has been read. Raises CheckpointError."""
    build = partial(build_codec, config=config)
    return load(build, checkpoint.path, checkpoint.tensors, "f32")


def check_codec(checkpoint: Checkpoint, config: CodecConfig) -> None:
    """Compare names and shapes without reading anything. Raises CheckpointError."""
    expect = Expect(checkpoint.path, checkpoint.tensors)
    build_codec(expect, config)
    expect.compare()


def build_codec(t: Loader, config: CodecConfig) -> tuple[CodecDecoderWeights, CodecEncoderWeights]:
    """Both directions; they share nothing."""
    return _decoder(t, config), _encoder(t, config)


# -- codes to waveform ----------------------------------------------------------------------------


def _decoder(t: Loader, config: CodecConfig) -> CodecDecoderWeights:
    decoder, at = config.decoder, "decoder.pre_transformer"
    wide, latent, stack = decoder.codebook_width, decoder.latent, decoder.stack
    first = convolution(t, "decoder.decoder.0.conv", decoder.channels, latent, 7)
    stages, channels, end = _decoder_stages(t, decoder)
    last = convolution(t, f"decoder.decoder.{end + 1}.conv", 1, channels, 7)
    return CodecDecoderWeights(
        first_table=_tables(t, _FIRST_CODES, 1, config),
        rest_tables=_tables(t, _REST_CODES, config.groups - 1, config),
        first_out=_codes_out(t, _FIRST_CODES, wide),
        rest_out=_codes_out(t, _REST_CODES, wide),
        before=convolution(t, "decoder.pre_conv.conv", latent, wide, 3),
        input=t.linear(f"{at}.input_proj", stack.width, latent),
        blocks=blocks(t, at, stack, scaled=True),
        norm=t.rms_norm(f"{at}.norm", stack.width, stack.eps),
        output=t.linear(f"{at}.output_proj", latent, stack.width),
        upsample=tuple(
            _upsample(t, f"decoder.upsample.{index}", latent, ratio)
            for index, ratio in enumerate(decoder.ratios)
        ),
        first=padded(t, first, inputs=0),
        stages=stages,
        snake=snake(t, f"decoder.decoder.{end}", channels),
        last=padded(t, last, outputs=0),
    )


def _tables(t: Loader, at: str, count: int, config: CodecConfig) -> Array:
    """All codebooks of a quantizer [count, N, d]."""
    width = config.decoder.codebook_width // 2
    books = [f"{at}.vq.layers.{index}._codebook" for index in range(count)]
    tables = [codebook(t, book, "embedding_sum", config.codes, width) for book in books]
    return t.derived(_stack, *tables)


def _stack(*tables: Array) -> Array:
    return np.stack(tables)


def _codes_out(t: Loader, at: str, wide: int) -> Linear:
    """A quantizer's projection to the width of all; the one that trains it is not used."""
    t.unused(f"{at}.input_proj.weight", wide // 2, wide, 1)
    return pointwise(t, f"{at}.output_proj", wide, wide // 2, bias=False)


def _upsample(t: Loader, at: str, width: int, ratio: int) -> Upsample:
    shrink = t.linear(f"{at}.1.pwconv2", width, 4 * width)
    return Upsample(
        up=transposed_convolution(t, f"{at}.0.conv", width, width, ratio, ratio),
        block=ConvNext(
            depthwise=depthwise(t, f"{at}.1.dwconv.conv", width, 7),
            norm=t.norm(f"{at}.1.norm", width, _CONVNEXT_EPS),
            expand=t.linear(f"{at}.1.pwconv1", 4 * width, width),
            shrink=rescaled(t, shrink, f"{at}.1.gamma", width),
        ),
    )


def _decoder_stages(
    t: Loader, config: CodecDecoderConfig
) -> tuple[tuple[DecoderStage, ...], int, int]:
    """The stages, the channels that the last one gives, and the index that follows it."""
    stages, channels = [], config.channels
    for index, rate in enumerate(config.rates, 1):
        stages.append(decoder_stage(t, f"decoder.decoder.{index}.block", channels, rate))
        channels //= 2
    return tuple(stages), channels, len(stages) + 1


def decoder_stage(t: Loader, at: str, channels: int, rate: int) -> DecoderStage:
    """A stage that takes `channels` channels and gives half of them."""
    half = channels // 2
    up = transposed_convolution(t, f"{at}.1.conv", channels, half, 2 * rate, rate)
    return DecoderStage(
        snake=snake(t, f"{at}.0", channels),
        up=padded(t, up, outputs=rate),
        units=tuple(
            ResidualUnit(
                before=snake(t, f"{at}.{unit}.act1", half),
                first=padded(t, convolution(t, f"{at}.{unit}.conv1.conv", half, half, 7)),
                between=snake(t, f"{at}.{unit}.act2", half),
                second=padded(t, pointwise(t, f"{at}.{unit}.conv2.conv", half, half)),
                dilation=dilation,
            )
            for unit, dilation in enumerate(_DILATIONS, 2)
        ),
    )


# -- waveform to codes ----------------------------------------------------------------------------


def _encoder(t: Loader, config: CodecConfig) -> CodecEncoderWeights:
    encoder, at = config.encoder, "encoder.encoder.layers"
    d = encoder.stack.width
    first = convolution(t, f"{at}.0.conv", encoder.filters, 1, encoder.kernel)
    stages, channels, end = _encoder_stages(t, at, encoder)
    last = convolution(t, f"{at}.{end}.conv", d, channels, encoder.last_kernel)
    semantic, semantic_tables = _quantizer(t, _SEMANTIC, config, 1, 1)
    stored = encoder.stored_codebooks - 1
    acoustic, acoustic_tables = _quantizer(t, _ACOUSTIC, config, config.groups - 1, stored)
    return CodecEncoderWeights(
        first=padded(t, first),
        stages=stages,
        last=padded(t, last, outputs=0),
        blocks=_encoder_blocks(t, encoder),
        down=convolution(t, "encoder.downsample.conv", d, d, 2 * LAST_STRIDE, bias=False),
        semantic=semantic,
        acoustic=acoustic,
        tables=(*semantic_tables, *acoustic_tables),
    )


def _encoder_stages(
    t: Loader, at: str, config: CodecEncoderConfig
) -> tuple[tuple[EncoderStage, ...], int, int]:
    """The stages, the channels that the last one gives, and the last convolution's index.

    Indices are those of upstream's list, in which an ELU before a convolution has a place too.
    """
    stages, channels, index = [], config.filters, 1
    for stride in config.ratios:
        units = tuple(
            _encoder_unit(t, f"{at}.{index + number}.block", channels, config, number)
            for number in range(config.residual_layers)
        )
        index += config.residual_layers + 1
        down = convolution(t, f"{at}.{index}.conv", 2 * channels, channels, 2 * stride)
        stages.append(EncoderStage(units, padded(t, down), stride))
        channels *= 2
        index += 1
    return tuple(stages), channels, index + 1


def _encoder_unit(
    t: Loader, at: str, channels: int, config: CodecEncoderConfig, number: int
) -> EncoderUnit:
    inner, kernel = channels // config.compress, config.residual_kernel
    return EncoderUnit(
        first=padded(t, convolution(t, f"{at}.1.conv", inner, channels, kernel)),
        second=padded(t, pointwise(t, f"{at}.3.conv", channels, inner)),
        dilation=config.dilation_growth**number,
    )


def _encoder_blocks(t: Loader, config: CodecEncoderConfig) -> tuple[EncoderBlock, ...]:
    stack, layers = config.stack, []
    d = stack.width
    for layer in range(stack.layers):
        at = f"encoder.encoder_transformer.layers.{layer}"
        out = t.linear(f"{at}.self_attn.o_proj", d, stack.query_width, bias=False)
        shrink = t.linear(f"{at}.mlp.fc2", d, stack.inner, bias=False)
        layers.append(
            EncoderBlock(
                norm=t.norm(f"{at}.input_layernorm", d, stack.eps),
                qkv=query_key_value(t, f"{at}.self_attn", stack),
                out=rescaled(t, out, f"{at}.self_attn_layer_scale.scale", d),
                mlp_norm=t.norm(f"{at}.post_attention_layernorm", d, stack.eps),
                expand=t.linear(f"{at}.mlp.fc1", stack.inner, d, bias=False),
                shrink=rescaled(t, shrink, f"{at}.mlp_layer_scale.scale", d),
            )
        )
    return tuple(layers)


def _quantizer(
    t: Loader, at: str, config: CodecConfig, used: int, stored: int
) -> tuple[Linear, tuple[Array, ...]]:
    """The projection to the codebooks' width, and the tables of those that are used.

    What the file has of training, and the codebooks beyond the used ones, may be absent.
    """
    d, width, codes = config.encoder.codebook_width, config.encoder.stack.width, config.codes
    books = [f"{at}.layers.{index}.codebook" for index in range(stored)]
    t.unused(f"{at}.output_proj.weight", width, d, 1)
    for book in books:
        t.unused(f"{book}.initialized", 1)
    for book in books[used:]:
        t.unused(f"{book}.embed_sum", codes, d)
        t.unused(f"{book}.cluster_usage", codes)
    tables = tuple(codebook(t, book, "embed_sum", codes, d) for book in books[:used])
    return pointwise(t, f"{at}.input_proj", d, width, bias=False), tables
