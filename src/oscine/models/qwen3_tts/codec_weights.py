"""The codec of a Qwen3-TTS as trees of float32 arrays, checked against its configuration first.

It lies in a folder of its own, which may also stand alone. Source of the network: qwen_tts/core/
tokenizer_12hz/modeling_qwen3_tts_tokenizer_v2.py and transformers models/mimi. What is folded into
the weights: see weights.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from oscine.models.qwen3_tts.codec_sizes import read_codec_config
from oscine.models.qwen3_tts.config import CodecConfig, CodecDecoderConfig, CodecEncoderConfig
from oscine.models.qwen3_tts.shapes import (
    ACOUSTIC,
    DILATIONS,
    FIRST_CODES,
    REST_CODES,
    SEMANTIC,
    codec_shapes,
    encoder_layers,
    last_layer,
    unused_codec_shapes,
)
from oscine.models.qwen3_tts.tensors import Block, Tensors, scaled, stacked
from oscine.ops import Linear, Norm, RmsNorm, Snake
from oscine.weights import Checkpoint, read_checkpoint
from oscine.weights.source import Array

_CONVNEXT_EPS = 1e-6


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
    tensors = Tensors(checkpoint, codec_shapes(config), unused_codec_shapes(config))
    return _decoder(tensors, config), _encoder(tensors, config)


def _decoder(tensors: Tensors, config: CodecConfig) -> CodecDecoderWeights:
    decoder = config.decoder
    at, last = "decoder.pre_transformer", len(decoder.rates) + 1
    return CodecDecoderWeights(
        first_table=_tables(tensors, FIRST_CODES, 1),
        rest_tables=_tables(tensors, REST_CODES, config.groups - 1),
        first_out=tensors.linear(f"{FIRST_CODES}.output_proj"),
        rest_out=tensors.linear(f"{REST_CODES}.output_proj"),
        before=tensors.convolution("decoder.pre_conv.conv"),
        input=tensors.linear(f"{at}.input_proj"),
        blocks=_decoder_blocks(tensors, at, decoder),
        norm=tensors.rms(f"{at}.norm", decoder.stack.eps),
        output=tensors.linear(f"{at}.output_proj"),
        upsample=tuple(
            _upsample(tensors, f"decoder.upsample.{index}", ratio)
            for index, ratio in enumerate(decoder.ratios)
        ),
        first=tensors.convolution("decoder.decoder.0.conv"),
        stages=tuple(
            _decoder_stage(tensors, f"decoder.decoder.{index}.block", rate)
            for index, rate in enumerate(decoder.rates, 1)
        ),
        snake=tensors.snake(f"decoder.decoder.{last}"),
        last=tensors.convolution(f"decoder.decoder.{last + 1}.conv"),
    )


def _tables(tensors: Tensors, at: str, count: int) -> Array:
    books = [f"{at}.vq.layers.{index}._codebook" for index in range(count)]
    return np.stack([tensors.codebook(book, "embedding_sum") for book in books])


def _decoder_blocks(tensors: Tensors, at: str, config: CodecDecoderConfig) -> tuple[Block, ...]:
    blocks = []
    for layer in range(config.stack.layers):
        block = f"{at}.layers.{layer}"
        gates = [tensors.wide(f"{block}.mlp.{part}_proj.weight") for part in ("gate", "up")]
        down = tensors.linear(f"{block}.mlp.down_proj")
        blocks.append(
            Block(
                norm=tensors.rms(f"{block}.input_layernorm", config.stack.eps),
                qkv=_attention_inputs(tensors, block),
                q_norm=None,
                k_norm=None,
                out=_attention_output(tensors, block),
                mlp_norm=tensors.rms(f"{block}.post_attention_layernorm", config.stack.eps),
                gate_up=Linear(stacked(gates), None),
                down=scaled(down, tensors.wide(f"{block}.mlp_layer_scale.scale")),
            )
        )
    return tuple(blocks)


def _attention_inputs(tensors: Tensors, block: str) -> Linear:
    parts = [tensors.wide(f"{block}.self_attn.{part}_proj.weight") for part in "qkv"]
    return Linear(stacked(parts), None)


def _attention_output(tensors: Tensors, block: str) -> Linear:
    scale = tensors.wide(f"{block}.self_attn_layer_scale.scale")
    return scaled(tensors.linear(f"{block}.self_attn.o_proj"), scale)


def _upsample(tensors: Tensors, at: str, ratio: int) -> Upsample:
    shrink = tensors.linear(f"{at}.1.pwconv2")
    return Upsample(
        up=tensors.upsampling(f"{at}.0.conv", ratio),
        block=ConvNext(
            depthwise=tensors.depthwise(f"{at}.1.dwconv.conv"),
            norm=tensors.norm(f"{at}.1.norm", _CONVNEXT_EPS),
            expand=tensors.linear(f"{at}.1.pwconv1"),
            shrink=scaled(shrink, tensors.wide(f"{at}.1.gamma")),
        ),
    )


def _decoder_stage(tensors: Tensors, at: str, rate: int) -> DecoderStage:
    return DecoderStage(
        snake=tensors.snake(f"{at}.0"),
        up=tensors.upsampling(f"{at}.1.conv", rate),
        units=tuple(
            ResidualUnit(
                before=tensors.snake(f"{at}.{unit}.act1"),
                first=tensors.convolution(f"{at}.{unit}.conv1.conv"),
                between=tensors.snake(f"{at}.{unit}.act2"),
                second=tensors.linear(f"{at}.{unit}.conv2.conv"),
                dilation=dilation,
            )
            for unit, dilation in enumerate(DILATIONS, 2)
        ),
    )


def _encoder(tensors: Tensors, config: CodecConfig) -> CodecEncoderWeights:
    encoder, at = config.encoder, "encoder.encoder.layers"
    books = [f"{SEMANTIC}.layers.0"]
    books += [f"{ACOUSTIC}.layers.{index}" for index in range(config.groups - 1)]
    return CodecEncoderWeights(
        first=tensors.convolution(f"{at}.0.conv"),
        stages=_encoder_stages(tensors, at, encoder),
        last=tensors.convolution(f"{at}.{last_layer(encoder)}.conv"),
        blocks=_encoder_blocks(tensors, encoder),
        down=tensors.convolution("encoder.downsample.conv"),
        semantic=tensors.linear(f"{SEMANTIC}.input_proj"),
        acoustic=tensors.linear(f"{ACOUSTIC}.input_proj"),
        tables=tuple(tensors.codebook(f"{book}.codebook", "embed_sum") for book in books),
    )


def _encoder_stages(
    tensors: Tensors, at: str, config: CodecEncoderConfig
) -> tuple[EncoderStage, ...]:
    return tuple(
        EncoderStage(
            units=tuple(
                EncoderUnit(
                    first=tensors.convolution(f"{at}.{unit}.block.1.conv"),
                    second=tensors.linear(f"{at}.{unit}.block.3.conv"),
                    dilation=config.dilation_growth**number,
                )
                for number, unit in enumerate(units)
            ),
            down=tensors.convolution(f"{at}.{down}.conv"),
            stride=stride,
        )
        for units, down, stride in encoder_layers(config)
    )


def _encoder_blocks(tensors: Tensors, config: CodecEncoderConfig) -> tuple[EncoderBlock, ...]:
    blocks = []
    for layer in range(config.stack.layers):
        block = f"encoder.encoder_transformer.layers.{layer}"
        shrink = tensors.linear(f"{block}.mlp.fc2")
        blocks.append(
            EncoderBlock(
                norm=tensors.norm(f"{block}.input_layernorm", config.stack.eps),
                qkv=_attention_inputs(tensors, block),
                out=_attention_output(tensors, block),
                mlp_norm=tensors.norm(f"{block}.post_attention_layernorm", config.stack.eps),
                expand=tensors.linear(f"{block}.mlp.fc1"),
                shrink=scaled(shrink, tensors.wide(f"{block}.mlp_layer_scale.scale")),
            )
        )
    return tuple(blocks)
