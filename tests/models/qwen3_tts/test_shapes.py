"""Tensors of the released sizes: as many, of as many numbers, as the official classes have."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from pathlib import Path

import pytest

from oscine.models.qwen3_tts.config import (
    CodecConfig,
    CodecDecoderConfig,
    CodecEncoderConfig,
    Kind,
    Qwen3TtsConfig,
    SpeakerConfig,
    Stack,
)
from oscine.models.qwen3_tts.shapes import (
    Shapes,
    codec_shapes,
    encoder_layers,
    last_layer,
    talker_shapes,
    unused_codec_shapes,
)
from oscine.models.qwen3_tts.weights import load_weights

GOLDEN = Path(__file__).resolve().parents[2] / "goldens" / "qwen3_tts" / "custom_voice" / "ckpt"
TALKER = Stack(28, 2048, 6144, 16, 8, 128, 1e-6, 1e6)
PREDICTOR = Stack(5, 1024, 3072, 16, 8, 128, 1e-6, 1e6)
SPEAKER = SpeakerConfig(
    2048, 128, (512, 512, 512, 512, 1536), (5, 3, 3, 3, 1), (1, 2, 3, 4, 1), 128, 8, 128
)
CODEC = CodecConfig(
    decoder=CodecDecoderConfig(
        Stack(8, 512, 1024, 16, 16, 64, 1e-5, 1e4), 72, 512, 1024, 1536, (8, 5, 4, 3), (2, 2)
    ),
    encoder=CodecEncoderConfig(
        Stack(8, 512, 2048, 8, 8, 64, 1e-5, 1e4), 64, (4, 5, 6, 8), 7, 3, 3, 2, 1, 2, 256, 32
    ),
    groups=16,
    codes=2048,
    hop=1920,
)


@pytest.fixture(scope="module")
def small() -> Qwen3TtsConfig:
    return load_weights(GOLDEN).config


def sums(shapes: Shapes) -> tuple[int, int]:
    return len(shapes), sum(map(prod, shapes.values()))


@pytest.mark.parametrize(
    ("kind", "width", "tensors", "numbers"),
    [
        ("base", 1024, 478, 914_643_008),
        ("custom_voice", 1024, 402, 905_788_672),
        ("base", 2048, 480, 1_928_677_440),
        ("voice_design", 2048, 404, 1_916_676_352),
    ],
)
def test_released_models(
    small: Qwen3TtsConfig, kind: Kind, width: int, tensors: int, numbers: int
) -> None:
    config = replace(
        small,
        kind=kind,
        talker=replace(TALKER, width=width, inner=3 * width),
        predictor=PREDICTOR,
        vocabulary=3072,
        text_vocabulary=151936,
        text_width=2048,
        groups=16,
        codes=2048,
        codec=CODEC,
        speaker=replace(SPEAKER, width=width) if kind == "base" else None,
    )
    assert sums(talker_shapes(config)) == (tensors, numbers)


def test_the_released_codec() -> None:
    shapes = codec_shapes(CODEC) | unused_codec_shapes(CODEC)
    decoder = {name: shape for name, shape in shapes.items() if name.startswith("decoder.")}
    encoder = {name: shape for name, shape in shapes.items() if name.startswith("encoder.")}
    assert sums(decoder) == (271, 114_323_137) and sums(encoder) == (225, 56_234_304)
    assert not codec_shapes(CODEC).keys() & unused_codec_shapes(CODEC).keys()
    assert shapes["decoder.decoder.3.block.1.conv.weight"] == (384, 192, 8)
    assert shapes["encoder.encoder.layers.12.conv.weight"] == (1024, 512, 16)


def test_places_in_upstreams_list() -> None:
    encoder = CODEC.encoder
    assert [(*units, down) for units, down, _ in encoder_layers(encoder)] == [
        (1, 3), (4, 6), (7, 9), (10, 12),
    ]  # fmt: skip
    assert last_layer(encoder) == 14
    two = replace(encoder, residual_layers=2, ratios=(4, 5))
    assert list(encoder_layers(two)) == [((1, 2), 4, 4), ((5, 6), 8, 5)] and last_layer(two) == 10
