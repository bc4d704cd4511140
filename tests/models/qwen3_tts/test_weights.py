"""One tree from any checkpoint, folded weights, and errors for tensors that do not fit."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oscine.dtypes import BFLOAT16, bf16_to_f32
from oscine.errors import CheckpointError
from oscine.models.loader import Shape, ShapeCheckLoader
from oscine.models.qwen3_tts.codec_weights import build_codec, load_codec
from oscine.models.qwen3_tts.config import (
    MODEL_SIZES,
    CodecConfig,
    CodecDecoderConfig,
    CodecEncoderConfig,
    Qwen3TtsConfig,
    SpeakerEncoderConfig,
    TransformerConfig,
    TtsModelType,
)
from oscine.models.qwen3_tts.weights import Qwen3TtsWeights, build_networks, load_weights
from oscine.ops import Linear
from oscine.weights import read_checkpoint

from ..trees import leaves, refused_by

GOLDENS = Path(__file__).resolve().parents[2] / "goldens" / "qwen3_tts"
CASES = ("base", "custom_voice", "voice_design")
LAYER, CODEC_LAYER = "talker.model.layers.0", "decoder.pre_transformer.layers.0"

# The released sizes.
TALKER = TransformerConfig(28, 2048, 6144, 16, 8, 128, 1e-6, 1e6)
PREDICTOR = TransformerConfig(5, 1024, 3072, 16, 8, 128, 1e-6, 1e6)
SPEAKER = SpeakerEncoderConfig(
    2048, 128, (512, 512, 512, 512, 1536), (5, 3, 3, 3, 1), (1, 2, 3, 4, 1), 128, 8, 128
)
CODEC = CodecConfig(
    decoder=CodecDecoderConfig(
        TransformerConfig(8, 512, 1024, 16, 16, 64, 1e-5, 1e4),
        72,
        512,
        1024,
        1536,
        (8, 5, 4, 3),
        (2, 2),
    ),
    encoder=CodecEncoderConfig(
        TransformerConfig(8, 512, 2048, 8, 8, 64, 1e-5, 1e4),
        64,
        (4, 5, 6, 8),
        7,
        3,
        3,
        2,
        1,
        2,
        256,
        32,
    ),
    num_code_groups=16,
    codebook_size=2048,
    hop_length=1920,
)

Arrays = dict[str, np.ndarray]
Copy = Callable[[str], Any]


def wide(array: np.ndarray) -> np.ndarray:
    return bf16_to_f32(array) if array.dtype == BFLOAT16 else array.astype(np.float32)


def bf16(array: np.ndarray) -> np.ndarray:
    """Its numbers, which must have no more digits than bfloat16 has."""
    bits = (np.ascontiguousarray(array, "<f4").view("<u4") >> 16).astype("<u2").view(BFLOAT16)
    assert np.array_equal(bf16_to_f32(bits), array)
    return bits


def refused(folder: Path) -> str:
    return refused_by(load_weights, folder)


def networks(config: Qwen3TtsConfig) -> dict[str, Shape]:
    """All tensors of the model's own file."""
    expect = ShapeCheckLoader(Path("model"), {})
    build_networks(expect, config)
    assert not expect.optional
    return expect.expected


def codec(config: CodecConfig) -> tuple[dict[str, Shape], dict[str, Shape]]:
    """The tensors of the codec's file that are used, and those that may be there besides."""
    expect = ShapeCheckLoader(Path("codec"), {})
    build_codec(expect, config)
    return expect.expected, expect.optional


@pytest.fixture(scope="module")
def base() -> Qwen3TtsWeights:
    return load_weights(GOLDENS / "base" / "ckpt")


@pytest.fixture(scope="module")
def raw() -> Arrays:
    """The tensors of `base` by name, in float32; the codec's too, whose names differ."""
    folder = GOLDENS / "base" / "ckpt"
    return {
        name: entry.read().astype(np.float32)
        for part in (folder, folder / "speech_tokenizer")
        for name, entry in read_checkpoint(part).tensors.items()
    }


# -- expected tensors ------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_upstreams_tensors_are_the_expected_ones(case: str) -> None:
    config = load_weights(GOLDENS / case / "ckpt").config
    used, unused = codec(config.codec)
    for expected, part in (
        (networks(config), "ckpt"),
        (used | unused, "ckpt/speech_tokenizer"),
    ):
        stored = read_checkpoint(GOLDENS / case / part).tensors
        assert expected == {name: entry.shape for name, entry in stored.items()}


def sums(shapes: dict[str, Shape]) -> tuple[int, int]:
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
    base: Qwen3TtsWeights, kind: TtsModelType, width: int, tensors: int, numbers: int
) -> None:
    """The number of tensors and of values equals that of the official classes."""
    config = replace(
        base.config,
        tts_model_type=kind,
        talker=replace(TALKER, hidden_size=width, intermediate_size=3 * width),
        code_predictor=PREDICTOR,
        vocab_size=3072,
        text_vocab_size=151936,
        text_hidden_size=2048,
        num_code_groups=16,
        codebook_size=2048,
        codec=CODEC,
        speaker_encoder=replace(SPEAKER, enc_dim=width) if kind == "base" else None,
    )
    assert sums(networks(config)) == (tensors, numbers)


def test_the_released_codec() -> None:
    used, unused = codec(CODEC)
    shapes = used | unused
    decoder = {name: shape for name, shape in shapes.items() if name.startswith("decoder.")}
    encoder = {name: shape for name, shape in shapes.items() if name.startswith("encoder.")}
    assert sums(decoder) == (271, 114_323_137) and sums(encoder) == (225, 56_234_304)
    assert not used.keys() & unused.keys()
    assert shapes["decoder.decoder.3.block.1.conv.weight"] == (384, 192, 8)
    assert shapes["encoder.encoder.layers.12.conv.weight"] == (1024, 512, 16)


@pytest.mark.parametrize(
    ("layers", "ratios", "units", "plain"),
    [
        (1, (4, 5, 6, 8), {1, 4, 7, 10}, {0, 3, 6, 9, 12, 14}),
        (2, (4, 5), {1, 2, 5, 6}, {0, 4, 8, 10}),
    ],
)
def test_places_in_upstreams_list(
    layers: int, ratios: tuple[int, ...], units: set[int], plain: set[int]
) -> None:
    """The encoder's residual units and its convolutions; activations have places of their own."""
    encoder = replace(CODEC.encoder, num_residual_layers=layers, strides=ratios)
    at, (used, _) = "encoder.encoder.layers.", codec(replace(CODEC, encoder=encoder))
    found = [name.removeprefix(at).split(".", 1) for name in used if name.startswith(at)]
    assert {int(index) for index, rest in found if rest.startswith("block.")} == units
    assert {int(index) for index, rest in found if rest.startswith("conv.")} == plain
    strides = [used[f"{at}{index}.conv.weight"][2] // 2 for index in sorted(plain)[1:-1]]
    assert tuple(strides) == ratios


def test_types_and_places(base: Qwen3TtsWeights) -> None:
    found = leaves(base)
    talking = (".text", ".talker", ".code_predictor")
    for at, array in found.items():
        matrix = at.startswith(talking) and array.ndim == 2
        assert array.dtype == (BFLOAT16 if matrix else np.float32), at
    assert base.dtype == "bf16" and base.folder == GOLDENS / "base" / "ckpt"
    assert base.config.speaker_encoder and base.speaker
    assert (
        len(base.code_predictor.lm_heads)
        == len(base.code_predictor.codec_embeddings)
        == base.config.num_code_groups - 1
    )


@pytest.mark.parametrize("case", ["custom_voice", "voice_design"])
def test_only_base_models_have_a_speaker_encoder(case: str) -> None:
    weights = load_weights(GOLDENS / case / "ckpt")
    assert weights.speaker is None and weights.config.speaker_encoder is None
    widths = weights.config.talker.hidden_size != weights.config.code_predictor.hidden_size
    assert (weights.code_predictor.small_to_mtp_projection is not None) == widths


def test_a_codec_alone_and_in_its_model() -> None:
    config, *parts = load_codec(GOLDENS / "codec" / "ckpt")
    whole = load_weights(GOLDENS / "base" / "ckpt")
    inner = load_codec(GOLDENS / "base" / "ckpt" / "speech_tokenizer")
    assert inner[0] == whole.config.codec and config.num_code_groups == whole.config.num_code_groups
    for one, two in zip(inner[1:], (whole.decoder, whole.encoder), strict=True):
        assert all(np.array_equal(a, leaves(two)[at]) for at, a in leaves(one).items())
    assert leaves(parts[0]).keys() == leaves(whole.decoder).keys()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("sign", ["tokenizer", "quantization", "tensors"])
def test_mlx_conversions_are_named_with_what_to_take(model: Copy, name: str, sign: str) -> None:
    copy = model(name)
    if sign == "tokenizer":
        (copy.folder / "vocab.json").unlink()
        (copy.folder / "merges.txt").unlink()
        (copy.folder / "tokenizer.json").write_text("{}")
    elif sign == "quantization":
        copy.set("quantization", {"group_size": 64, "bits": 4})
    else:  # quantized conversions
        copy.set("quantization", {"group_size": 8, "bits": 8})
        tensors = copy.tensors()
        name_of = f"{LAYER}.mlp.gate_proj"
        rows = len(tensors[f"{name_of}.weight"])
        columns = tensors[f"{name_of}.weight"].shape[1]
        tensors[f"{name_of}.weight"] = np.zeros((rows, columns // 4), "<u4")
        tensors[f"{name_of}.scales"] = np.ones((rows, columns // 8), "<f2")
        tensors[f"{name_of}.biases"] = np.zeros((rows, columns // 8), "<f2")
        copy.rewrite(tensors)
    kind = {"base": "Base", "custom_voice": "CustomVoice", "voice_design": "VoiceDesign"}[name]
    size = json.loads((copy.folder / "config.json").read_text())["tts_model_size"]
    released = f"Qwen/Qwen3-TTS-12Hz-{MODEL_SIZES[size]}-{kind}"
    said = refused(copy.folder)
    assert said == f"{copy.folder}: MLX's Qwen3-TTS is not read; take {released}"


# -- folded weights --------------------------------------------------------------------------------


def test_rows_are_joined_in_their_order(base: Qwen3TtsWeights, raw: Arrays) -> None:
    block = base.talker.layers[0]
    parts = [raw[f"{LAYER}.self_attn.{part}_proj.weight"] for part in "qkv"]
    assert np.array_equal(wide(block.qkv_proj.weight), np.concatenate(parts))
    parts = [raw[f"{LAYER}.mlp.{part}_proj.weight"] for part in ("gate", "up")]
    assert np.array_equal(wide(block.gate_up_proj.weight), np.concatenate(parts))
    assert block.qkv_proj.bias is None and block.input_layernorm.eps == base.config.talker.norm_eps


def test_what_lies_together_is_not_copied(model: Copy) -> None:
    """Gate and up, where the file has them one after the other; the numbers are the same."""
    apart, stored = model("base"), load_weights(GOLDENS / "base" / "ckpt")
    gate = f"{LAYER}.mlp.gate_proj.weight"
    arrays = apart.tensors()
    apart.rewrite({gate: arrays.pop(gate), **arrays})
    first, second = load_weights(apart.folder).talker.layers[:2]
    assert (
        first.gate_up_proj.weight.flags.writeable and not second.gate_up_proj.weight.flags.writeable
    )
    for block, want in zip((first, second), stored.talker.layers, strict=False):
        assert not want.gate_up_proj.weight.flags.writeable and want.qkv_proj.weight.flags.writeable
        assert np.array_equal(block.gate_up_proj.weight, want.gate_up_proj.weight)


def test_branch_scales_are_in_the_rows(base: Qwen3TtsWeights, raw: Arrays) -> None:
    x = np.random.default_rng(0).standard_normal(base.config.codec.decoder.transformer.q_size)
    block = base.decoder.layers[0]
    branch = raw[f"{CODEC_LAYER}.self_attn.o_proj.weight"] @ x
    want = raw[f"{CODEC_LAYER}.self_attn_layer_scale.scale"] * branch
    assert np.allclose(block.o_proj.weight @ x, want, rtol=1e-5, atol=1e-8)
    down = raw[f"{CODEC_LAYER}.mlp.down_proj.weight"]
    want = raw[f"{CODEC_LAYER}.mlp_layer_scale.scale"][:, None] * down
    assert np.allclose(block.down_proj.weight, want, rtol=1e-6, atol=0)
    at = "decoder.upsample.0.1"
    shrink, gamma = base.decoder.upsample[0].convnext.pwconv2, raw[f"{at}.gamma"]
    assert np.allclose(shrink.weight, gamma[:, None] * raw[f"{at}.pwconv2.weight"], rtol=1e-6)
    assert shrink.bias is not None
    assert np.allclose(shrink.bias, gamma * raw[f"{at}.pwconv2.bias"], rtol=1e-6)


def transposed(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, stride: int) -> np.ndarray:
    """torch's ConvTranspose1d, x [T, I] and weight [I, O, K]; without the last K - s rows."""
    out = np.zeros(((len(x) - 1) * stride + weight.shape[2], weight.shape[1]))
    for t, row in enumerate(x):
        out[t * stride : t * stride + weight.shape[2]] += np.einsum("i,iok->ko", row, weight)
    return out[: len(x) * stride] + bias


def plain(x: np.ndarray, folded: Linear, stride: int) -> np.ndarray:
    """The result from folded weights: taps in order of time, zeros before the first row."""
    taps = folded.weight.shape[1]
    padded = np.concatenate([np.zeros((taps - 1, x.shape[1])), x])
    rows = [np.einsum("oki,ki->o", folded.weight, padded[t : t + taps]) for t in range(len(x))]
    return (np.stack(rows) + folded.bias).reshape(len(x) * stride, -1)


def test_a_transposed_convolution_is_a_plain_one(base: Qwen3TtsWeights, raw: Arrays) -> None:
    decoder, config = base.decoder, base.config.codec.decoder
    places = [
        (f"decoder.upsample.{i}.0.conv", decoder.upsample[i].conv_transpose, ratio)
        for i, ratio in enumerate(config.upsampling_ratios)
    ] + [
        (f"decoder.decoder.{i}.block.1.conv", decoder.blocks[i - 1].conv_transpose, rate)
        for i, rate in enumerate(config.upsample_rates, 1)
    ]
    for at, folded, stride in places:
        weight, bias = raw[f"{at}.weight"], raw[f"{at}.bias"]
        x = np.random.default_rng(1).standard_normal((5, weight.shape[0]))
        want = transposed(x, weight, bias, stride)
        assert np.allclose(plain(x, folded, stride), want, atol=1e-6), at


def test_codebooks_are_sums_over_usage(base: Qwen3TtsWeights, raw: Arrays) -> None:
    at = "decoder.quantizer.rvq_rest.vq.layers.2._codebook"
    usage = raw[f"{at}.cluster_usage"]
    assert (usage == 0).any(), "an entry that was never used must be among them"
    want = raw[f"{at}.embedding_sum"] / np.maximum(usage, 1e-5)[:, None]
    assert np.allclose(base.decoder.rvq_rest_codebooks[2], want, rtol=1e-6)
    assert base.decoder.rvq_first_codebooks.shape == (1, *base.decoder.rvq_rest_codebooks.shape[1:])
    at = "encoder.quantizer.acoustic_residual_vector_quantizer.layers.1.codebook"
    want = raw[f"{at}.embed_sum"] / np.maximum(raw[f"{at}.cluster_usage"], 1e-5)[:, None]
    assert np.allclose(base.encoder.codebooks[2], want, rtol=1e-6)
    assert len(base.encoder.codebooks) == base.config.num_code_groups


def test_snakes_and_convolutions(base: Qwen3TtsWeights, raw: Arrays) -> None:
    at, unit = "decoder.decoder.2.block.3", base.decoder.blocks[1].residual_units[1]
    assert np.allclose(unit.act2.scale, np.exp(raw[f"{at}.act2.alpha"]))
    assert np.allclose(unit.act2.gain, 1 / (np.exp(raw[f"{at}.act2.beta"]) + 1e-9))
    first = raw[f"{at}.conv1.conv.weight"]
    assert np.array_equal(unit.conv1.weight, first.transpose(0, 2, 1)) and unit.dilation == 3
    depthwise = base.decoder.upsample[1].convnext.dwconv.weight
    assert np.array_equal(depthwise, raw["decoder.upsample.1.1.dwconv.conv.weight"][:, 0].T)
    stage = base.encoder.stages[2]
    assert np.array_equal(
        stage.downsample.weight, raw["encoder.encoder.layers.9.conv.weight"].transpose(0, 2, 1)
    )
    assert stage.stride == base.config.codec.encoder.strides[2]


def test_parts_of_the_speaker_encoder_are_filled_up_with_zeros(
    base: Qwen3TtsWeights, raw: Arrays
) -> None:
    assert base.speaker is not None and base.config.speaker_encoder is not None
    at, block = "speaker_encoder.blocks.2", base.speaker.blocks[1]
    want = raw[f"{at}.res2net_block.blocks.3.conv.weight"].transpose(0, 2, 1)
    width, _, _ = want.shape
    assert width % 4
    part = block.res2net[3].weight.copy()
    assert part.shape == (4, want.shape[1], 4) and np.array_equal(part[:width, :, :width], want)
    part[:width, :, :width] = 0
    assert not part.any()
    count = base.config.speaker_encoder.enc_res2net_scale
    first = block.tdnn1.weight.reshape(count, 4, -1)
    assert np.array_equal(
        first[:, :width], raw[f"{at}.tdnn1.conv.weight"].reshape(count, width, -1)
    )
    second = block.tdnn2.weight.reshape(-1, count, 4)
    assert np.array_equal(
        second[:, :, :width], raw[f"{at}.tdnn2.conv.weight"].reshape(-1, count, width)
    )
    assert block.tdnn1.bias is not None
    bias = block.tdnn1.bias.reshape(count, 4)
    assert np.array_equal(bias[:, :width].ravel(), raw[f"{at}.tdnn1.conv.bias"])
    assert not first[:, width:].any() and not second[:, :, width:].any()
    assert not bias[:, width:].any()


# -- types and shards ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["bf16", "f16", "f32"])
def test_every_type_is_the_same_tree(model: Copy, kind: str) -> None:
    whole = model("custom_voice")
    rng = np.random.default_rng(2)
    # Numbers that all three types have exactly.
    arrays = {
        name: rng.integers(-8, 8, array.shape).astype(np.float32) / 16
        for name, array in whole.tensors().items()
    }
    whole.rewrite({name: bf16(array) for name, array in arrays.items()})
    first = load_weights(whole.folder)
    turn = {"bf16": bf16, "f16": lambda a: a.astype("<f2"), "f32": lambda a: a}[kind]
    whole.rewrite({name: turn(array) for name, array in arrays.items()})
    codec = whole.tensors("codec")
    second = load_weights(whole.folder)
    assert second.dtype == kind
    found = leaves(second)
    for at, array in leaves(first).items():
        assert np.array_equal(wide(array), wide(found[at])), at
        kept = found[at].ndim == 2 and at.startswith((".text", ".talker", ".code_predictor"))
        stored = {"bf16": BFLOAT16, "f16": np.float16}.get(kind, np.float32)
        assert found[at].dtype == (stored if kept else np.float32), at
    whole.rewrite({name: array.astype("<f2") for name, array in codec.items()}, "codec")
    halved = leaves(load_weights(whole.folder).decoder)
    assert all(array.dtype == np.float32 for array in halved.values())


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_matrices_in_the_type_that_is_asked_for(base: Qwen3TtsWeights, dtype: str) -> None:
    """Matrices of talker, code predictor and text projection are cast; all else is unchanged."""
    weights = load_weights(GOLDENS / "base" / "ckpt", dtype)
    found, as_stored = leaves(weights), leaves(base)
    asked = {"f32": np.float32, "f16": np.float16}[dtype]
    cast = [
        at
        for at, array in as_stored.items()
        if at.startswith((".text.fc", ".talker", ".code_predictor")) and array.ndim == 2
    ]
    assert len(cast) == sum(array.dtype == BFLOAT16 for array in as_stored.values()) - 1
    for at, array in as_stored.items():
        want = wide(array).astype(asked) if at in cast else array
        assert found[at].dtype == want.dtype and np.array_equal(found[at], want), at
    assert found.keys() == as_stored.keys() and weights.dtype == "bf16"


def test_types_may_be_mixed(model: Copy) -> None:
    mixed = model("voice_design")
    arrays, before = mixed.tensors(), leaves(load_weights(mixed.folder))
    name = f"{LAYER}.self_attn.k_proj.weight"
    mixed.rewrite(arrays | {name: bf16_to_f32(arrays[name])})
    weights = load_weights(mixed.folder)
    assert weights.talker.layers[0].qkv_proj.weight.dtype == np.float32
    assert weights.talker.layers[1].qkv_proj.weight.dtype == BFLOAT16 and weights.dtype == "bf16"
    after = leaves(weights)
    assert all(np.array_equal(wide(array), wide(after[at])) for at, array in before.items())


def test_shards_are_the_whole(model: Copy) -> None:
    whole, parts = model("base"), model("base")
    for part in ("talker", "codec"):
        arrays, folder = parts.tensors(part), parts.at(part)
        weight_map: dict[str, str] = {}
        for index, names in enumerate((list(arrays)[::2], list(arrays)[1::2]), 1):
            shard = f"model-{index:05d}-of-00002.safetensors"
            parts.rewrite({name: arrays[name] for name in names}, part)
            (folder / "model.safetensors").rename(folder / shard)
            weight_map |= dict.fromkeys(names, shard)
        index_file = folder / "model.safetensors.index.json"
        index_file.write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    found = leaves(load_weights(parts.folder))
    for at, array in leaves(load_weights(whole.folder)).items():
        assert np.array_equal(wide(array), wide(found[at])), at


# -- what does not fit -----------------------------------------------------------------------------


@pytest.mark.parametrize("part", ["talker", "codec"])
def test_tensors_that_do_not_fit_are_named_together(model: Copy, part: str) -> None:
    wrong = model("base")
    arrays = wrong.tensors(part)
    gone, turned, *_, strange = [name for name in arrays if name.endswith("o_proj.weight")]
    arrays["more"] = arrays.pop(gone)
    arrays[turned] = np.ascontiguousarray(arrays[turned][1:])
    arrays[strange] = np.zeros(arrays[strange].shape, np.int32)
    wrong.rewrite(arrays, part)
    message = refused(wrong.folder)
    assert f"missing {gone}" in message and "unexpected more" in message
    assert f"{turned} [" in message and f"{strange} [" in message and "int32" in message


def test_nothing_is_read_before_the_codec_fits_too(model: Copy) -> None:
    def read() -> Any:
        raise AssertionError("read before everything was compared")

    wrong = model("base")
    wrong.rewrite(wrong.tensors("codec") | {"more": np.zeros(1, np.float32)}, "codec")
    checkpoint = read_checkpoint(wrong.folder)
    for name, entry in checkpoint.tensors.items():
        checkpoint.tensors[name] = replace(entry, load=read, load_raw=read)
    with pytest.raises(CheckpointError, match=r"speech_tokenizer.*unexpected more"):
        load_weights(checkpoint)


def test_what_the_codec_does_not_use_may_be_away_but_not_strange(model: Copy) -> None:
    less = model("base")
    arrays = less.tensors("codec")
    _, unused = codec(load_weights(less.folder).config.codec)
    assert unused.keys() <= arrays.keys() and len(unused) > 10
    kept = {name: array for name, array in arrays.items() if name not in unused}
    less.rewrite(kept, "codec")
    load_weights(less.folder)
    name = "decoder.quantizer.rvq_first.input_proj.weight"
    less.rewrite(kept | {name: np.zeros((3, 3, 1), np.float32)}, "codec")
    assert name in refused(less.folder)


def test_a_voice_that_kept_the_encoder_of_its_base(model: Copy) -> None:
    tuned = model("base")
    tuned.set("tts_model_type", "custom_voice")
    tuned.set("talker_config.spk_id", {"Anna": [300]})
    weights = load_weights(tuned.folder)
    assert weights.speaker is None and weights.config.spk_id == {"anna": 300}


def test_a_folder_without_a_codec(model: Copy) -> None:
    cut = model("custom_voice")
    cut.at("codec").rename(cut.folder / "elsewhere")
    assert "speech_tokenizer: no such folder" in refused(cut.folder)


@pytest.mark.parametrize("part", ["talker", "codec"])
def test_truncated_files(model: Copy, part: str) -> None:
    cut = model("custom_voice")
    path = cut.at(part) / "model.safetensors"
    data = path.read_bytes()
    for length in (0, 5, 9, 2000, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:length])
        assert str(path) in refused(cut.folder)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_a_spoilt_header_is_an_error_or_harmless(model: Copy, data: st.DataObject) -> None:
    """Any byte of the table of contents, or of a configuration, may be any other."""
    spoilt = model("codec")
    name = data.draw(st.sampled_from(["model.safetensors", "config.json"]))
    path = spoilt.folder / name
    content = bytearray(path.read_bytes())
    end = 8 + int.from_bytes(content[:8], "little") if name.startswith("model") else len(content)
    for place in data.draw(st.lists(st.integers(0, end - 1), min_size=1, max_size=3)):
        content[place] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    try:
        load_codec(spoilt.folder)
    except CheckpointError as error:
        assert str(spoilt.folder) in str(error)


def test_numbers_that_overflow_pass_silently(model: Copy, caplog: Any) -> None:
    """They are caught where logits and samples are."""
    large = model("codec")
    arrays = {name: entry.read() for name, entry in read_checkpoint(large.folder).tensors.items()}
    name = f"decoder.decoder.{len(load_codec(large.folder)[0].decoder.upsample_rates) + 1}.alpha"
    large.rewrite(arrays | {name: np.full_like(arrays[name], 100)})
    with caplog.at_level(logging.WARNING):
        _, decoder, _ = load_codec(large.folder)
    assert np.isinf(decoder.snake_out.scale).all() and not caplog.records
