"""Loading of weights from checkpoints of all formats, and errors of those that do not fit."""

from __future__ import annotations

import json
import shutil
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oscine.models.whisper.weights import TensorNames, load_weights, sinusoids
from oscine.weights import read_checkpoint
from oscine.weights.safetensors import serialize

from ..trees import refused_by

GOLDENS = Path(__file__).resolve().parents[2] / "goldens"
FORMATS = GOLDENS / "whisper_formats"

Arrays = dict[str, np.ndarray]


def write_safetensors(folder: Path, arrays: Arrays, config: dict[str, Any] | None) -> Path:
    """A checkpoint folder of these tensors; config None: no config.json."""
    folder.mkdir(exist_ok=True)
    (folder / "model.safetensors").write_bytes(serialize(arrays))
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture
def arrays() -> Arrays:
    """The Hugging Face golden's tensors, to be changed."""
    return {name: e.read() for name, e in read_checkpoint(FORMATS / "hf").tensors.items()}


@pytest.fixture
def config() -> dict[str, Any]:
    """The config.json of a checkpoint."""
    return json.loads((FORMATS / "hf" / "config.json").read_text())


def refused(folder: Path) -> str:
    return refused_by(load_weights, folder)


def test_the_tree(tmp_path: Path) -> None:
    weights = load_weights(GOLDENS / "whisper_multi")
    c, d = weights.config, weights.config.n_audio_state
    assert weights.encoder.conv1.weight.shape == (d, 3, c.n_mels)
    assert weights.encoder.conv2.weight.shape == (d, 3, d)
    assert weights.encoder.positional_embedding.shape == (c.n_audio_ctx, d)
    assert len(weights.encoder.blocks) == c.n_audio_layer
    assert weights.encoder.ln_post is not None and weights.decoder is not None
    assert weights.decoder.token_embedding.shape == (c.n_vocab, d)
    assert weights.decoder.positional_embedding.shape == (c.n_text_ctx, d)
    block = weights.decoder.blocks[-1]
    shapes = {f.name: getattr(block, f.name).weight.shape for f in fields(block)}
    assert shapes == {
        "attn_ln": (d,),
        "qkv": (3 * d, d),
        "attn_out": (d, d),
        "cross_attn_ln": (d,),
        "cross_q": (d, d),
        "cross_kv": (2 * d, d),
        "cross_attn_out": (d, d),
        "mlp_ln": (d,),
        "fc1": (4 * d, d),
        "fc2": (d, 4 * d),
    }
    assert not block.qkv.bias[d : 2 * d].any() and block.qkv.bias[:d].any()
    assert not block.cross_kv.bias[:d].any() and block.cross_kv.bias[d:].any()


def test_rows_are_packed_in_order(arrays: Arrays) -> None:
    weights = load_weights(FORMATS / "hf")
    assert weights.decoder is not None
    at = "model.decoder.layers.0"
    parts = [arrays[f"{at}.self_attn.{x}_proj.weight"] for x in "qkv"]
    block = weights.decoder.blocks[0]
    np.testing.assert_array_equal(block.qkv.weight, np.concatenate(parts))
    parts = [arrays[f"{at}.encoder_attn.{x}_proj.weight"] for x in "kv"]
    np.testing.assert_array_equal(block.cross_kv.weight, np.concatenate(parts))
    values = arrays[f"{at}.encoder_attn.v_proj.bias"]
    np.testing.assert_array_equal(block.cross_kv.bias[len(values) :], values.astype(np.float32))
    kernel = arrays["model.encoder.conv1.weight"]
    np.testing.assert_array_equal(weights.encoder.conv1.weight, kernel.transpose(0, 2, 1))


def test_lists_come_from_generation_config() -> None:
    meta = json.loads((GOLDENS / "whisper_multi" / "golden.json").read_text())
    config = load_weights(GOLDENS / "whisper_multi").config
    assert list(config.suppress_tokens or ()) == meta["suppress_tokens"]
    assert list(config.begin_suppress_tokens or ()) == meta["begin_suppress_tokens"]
    assert [list(pair) for pair in config.alignment_heads or ()] == meta["alignment_heads"]
    assert config.max_initial_timestamp_index == meta["max_initial_timestamp_index"]


def test_lists_of_other_formats() -> None:
    assert load_weights(FORMATS / "ct2_int8").config.alignment_heads == ((0, 0),)
    assert load_weights(FORMATS / "mlx_npz").config.alignment_heads == ((0, 0),)
    assert len(load_weights(FORMATS / "ct2_int8").config.suppress_tokens or ()) == 1
    assert load_weights(FORMATS / "ggml-f16.bin").config.suppress_tokens is None


@pytest.mark.parametrize(
    ("lists", "name", "wanted"),
    [
        ({"suppress_tokens": [-1]}, "suppress_tokens", None),
        ({"suppress_tokens": []}, "suppress_tokens", ()),
        ({"suppress_tokens": [3, 1, 10**6]}, "suppress_tokens", (1, 3)),
        ({"alignment_heads": [[0, 1]]}, "alignment_heads", ((0, 1),)),
        # Distilled models ship their teacher's.
        ({"alignment_heads": [[7, 0]]}, "alignment_heads", None),
        ({"max_initial_timestamp_index": None}, "max_initial_timestamp_index", None),
    ],
)
def test_lists(
    tmp_path: Path, arrays: Arrays, config: dict, lists: dict, name: str, wanted: Any
) -> None:
    folder = write_safetensors(tmp_path / "m", arrays, config)
    (folder / "generation_config.json").write_text(json.dumps(lists))
    assert getattr(load_weights(folder).config, name) == wanted


@pytest.mark.parametrize(
    "lists",
    [
        {"suppress_tokens": "1"},
        {"suppress_tokens": [1.5]},
        {"alignment_heads": [[1, 2, 3]]},
        {"alignment_heads": 3},
        {"max_initial_timestamp_index": -1},
        {"max_initial_timestamp_index": "50"},
    ],
)
def test_lists_that_are_none(tmp_path: Path, arrays: Arrays, config: dict, lists: dict) -> None:
    folder = write_safetensors(tmp_path / "m", arrays, config)
    (folder / "generation_config.json").write_text(json.dumps(lists))
    assert next(iter(lists)) in refused(folder)


def test_missing_extra_and_misshapen_are_named_as_the_file_spells_them(
    tmp_path: Path, arrays: Arrays, config: dict
) -> None:
    del arrays["model.decoder.layers.0.encoder_attn.q_proj.bias"]
    arrays["model.decoder.layers.0.self_attn.k_proj.bias"] = np.zeros(32, np.float16)
    arrays["model.encoder.layers.0.fc1.bias"] = np.zeros(31, np.float16)
    message = refused(write_safetensors(tmp_path / "m", arrays, config))
    assert "missing model.decoder.layers.0.encoder_attn.q_proj.bias" in message
    assert "unexpected model.decoder.layers.0.self_attn.k_proj.bias" in message
    assert "wrong shape model.encoder.layers.0.fc1.bias [31] float16, not [128]" in message


@pytest.mark.parametrize(
    "name", ("hf", "openai.pt", "ggml-q8_0.bin", "ct2_int8", "mlx_npz", "hf_bf16_sharded")
)
def test_names_lead_back(name: str) -> None:
    checkpoint = read_checkpoint(FORMATS / name)
    names = TensorNames(checkpoint)
    assert {names.original_name(found) for found in names.entries} == set(checkpoint.tensors)


def test_no_tensor_can_be_missing(tmp_path: Path, arrays: Arrays, config: dict) -> None:
    for name in set(arrays) - {"proj_out.weight", "model.encoder.embed_positions.weight"}:
        rest = {other: value for other, value in arrays.items() if other != name}
        message = refused(write_safetensors(tmp_path / "m", rest, config))
        assert name in message or "conv" in name, message


def test_a_decoder_that_was_promised(tmp_path: Path, arrays: Arrays, config: dict) -> None:
    encoder = {name: value for name, value in arrays.items() if ".encoder." in name}
    folder = write_safetensors(tmp_path / "m", encoder, config)
    assert "model.decoder.embed_positions.weight" in refused(folder)
    config["architectures"] = ["WhisperForAudioClassification"]
    assert load_weights(write_safetensors(folder, encoder, config)).decoder is None


@pytest.mark.parametrize("prefix", ("audio_tower.", "model.encoder.", "thinker.audio_tower.", ""))
@pytest.mark.parametrize("norm", (True, False))
def test_an_encoder_alone_under_any_prefix(
    tmp_path: Path, arrays: Arrays, config: dict, prefix: str, norm: bool
) -> None:
    encoder = {
        name.replace("model.encoder.", prefix): value
        for name, value in arrays.items()
        if ".encoder." in name and (norm or "encoder.layer_norm" not in name)
    }
    if prefix:  # belongs to the language model beside it
        encoder["language_model.model.layers.0.mlp.up_proj.weight"] = np.zeros((2, 2), np.float32)
    tower = {"model_type": "some_audio_llm", "audio_config": config | {"architectures": None}}
    weights = load_weights(write_safetensors(tmp_path / "m", encoder, tower))
    whole = load_weights(FORMATS / "hf")
    assert weights.decoder is None and weights.config.n_vocab == 0
    assert (weights.encoder.ln_post is not None) == norm
    assert weights.config.n_audio_head == whole.config.n_audio_head
    np.testing.assert_array_equal(
        weights.encoder.blocks[0].qkv.weight, whole.encoder.blocks[0].qkv.weight
    )


def test_positions_are_computed_where_absent(tmp_path: Path, arrays: Arrays, config: dict) -> None:
    stored = arrays.pop("model.encoder.embed_positions.weight")
    weights = load_weights(write_safetensors(tmp_path / "m", arrays, config))
    np.testing.assert_allclose(weights.encoder.positional_embedding, stored, atol=1e-3)
    exact = load_weights(FORMATS / "ct2_float32").encoder.positional_embedding
    np.testing.assert_allclose(sinusoids(*exact.shape), exact, atol=1e-6)


def test_the_tied_projection(tmp_path: Path, arrays: Arrays, config: dict) -> None:
    arrays["proj_out.weight"] = arrays["model.decoder.embed_tokens.weight"].copy()
    folder = write_safetensors(tmp_path / "m", arrays, config)
    assert load_weights(folder).decoder is not None
    arrays["proj_out.weight"][0, 0] += 1
    assert "proj_out.weight differs" in refused(write_safetensors(folder, arrays, config))


def test_the_projection_alone_is_the_embedding(
    tmp_path: Path, arrays: Arrays, config: dict
) -> None:
    embedding = arrays.pop("model.decoder.embed_tokens.weight")
    arrays["proj_out.weight"] = embedding
    weights = load_weights(write_safetensors(tmp_path / "m", arrays, config))
    assert weights.decoder is not None
    np.testing.assert_array_equal(weights.decoder.token_embedding, embedding)


def test_names_without_the_models_prefix(tmp_path: Path, arrays: Arrays, config: dict) -> None:
    bare = {name.removeprefix("model."): value for name, value in arrays.items()}
    weights = load_weights(write_safetensors(tmp_path / "m", bare, config))
    assert weights.config == load_weights(FORMATS / "hf").config


def test_two_encoders_and_two_of_a_name(tmp_path: Path, arrays: Arrays, config: dict) -> None:
    double = arrays | {f"other.{n}": v for n, v in arrays.items() if "encoder.conv" in n}
    assert "several encoders" in refused(write_safetensors(tmp_path / "m", double, config))
    same = arrays | {"model.encoder.ln_post.bias": arrays["model.encoder.layer_norm.bias"]}
    assert "are the same tensor" in refused(write_safetensors(tmp_path / "n", same, config))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"encoder_attention_heads": None}, ["encoder attention heads", "encoder_attention_heads"]),
        ({"encoder_attention_heads": 5}, ["5 encoder heads", "width 32"]),
        ({"decoder_attention_heads": 0}, ["decoder_attention_heads", "'0'"]),
        ({"d_model": 64}, ["wrong shape"]),
        ({"d_model": "32"}, ["d_model", "'32'"]),
        ({"num_mel_bins": 80}, ["model.encoder.conv1.weight", "80"]),
        ({"max_source_positions": 11}, ["model.encoder.embed_positions.weight", "[11, 32]"]),
        ({"vocab_size": 51865}, ["model.decoder.embed_tokens.weight", "51865"]),
        ({"encoder_layers": 2}, ["missing model.encoder.layers.1"]),
        ({"decoder_layers": 10**6}, ["1000000 decoder layers"]),
        ({"activation_function": "gelu_new"}, ["GELU"]),
        ({"scale_embedding": True}, ["scale_embedding"]),
    ],
)
def test_a_configuration_that_does_not_fit(
    tmp_path: Path, arrays: Arrays, config: dict, change: dict, words: list[str]
) -> None:
    message = refused(write_safetensors(tmp_path / "m", arrays, config | change))
    assert all(word in message for word in words), message


@pytest.mark.parametrize("shape", [(), (3,), (0,), (2, 3), (2, 2, 2)])
def test_alignment_heads_that_are_no_pairs(
    tmp_path: Path, arrays: Arrays, config: dict, shape: tuple[int, ...]
) -> None:
    arrays["alignment_heads"] = np.zeros(shape, np.int32)
    folder = write_safetensors(tmp_path / "m", arrays, config | {"alignment_heads": None})
    if len(shape) == 2:
        assert "not pairs of layer and head" in refused(folder)
    else:
        assert load_weights(folder).config.alignment_heads is None


def test_alignment_heads_that_are_named_often_count_once(
    tmp_path: Path, arrays: Arrays, config: dict
) -> None:
    stated = config | {"alignment_heads": [[0, 1], [0, 0]] * 1000}
    weights = load_weights(write_safetensors(tmp_path / "m", arrays, stated))
    assert weights.config.alignment_heads == ((0, 1), (0, 0))


@pytest.mark.parametrize(("key", "size"), [("num_mel_bins", 1025), ("max_source_positions", 8193)])
def test_sizes_that_ask_for_much(
    tmp_path: Path, arrays: Arrays, config: dict, key: str, size: int
) -> None:
    message = refused(write_safetensors(tmp_path / "m", arrays, config | {key: size}))
    assert f"= {size}, more than {size - 1}" in message


def test_sizes_come_from_shapes_where_nothing_states_them(tmp_path: Path, arrays: Arrays) -> None:
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    found = load_weights(write_safetensors(tmp_path / "m", arrays, heads)).config
    stated = load_weights(FORMATS / "hf").config
    assert replace(found, begin_suppress_tokens=stated.begin_suppress_tokens) == stated


def test_without_a_configuration_the_heads_are_asked_for(tmp_path: Path, arrays: Arrays) -> None:
    assert "config.json should give" in refused(write_safetensors(tmp_path / "m", arrays, None))


def test_whole_numbers_are_no_weights(tmp_path: Path, arrays: Arrays, config: dict) -> None:
    name = "model.encoder.layers.0.fc1.weight"
    arrays[name] = np.zeros(arrays[name].shape, np.int8)
    assert f"{name} [128, 32] int8" in refused(write_safetensors(tmp_path / "m", arrays, config))


def test_mixed_precision(tmp_path: Path, arrays: Arrays, config: dict) -> None:
    name = "model.encoder.layers.0.self_attn.q_proj.weight"
    arrays[name] = arrays[name].astype(np.float32)
    weights = load_weights(write_safetensors(tmp_path / "m", arrays, config))
    assert weights.stored_dtype == "f32"
    assert weights.encoder.blocks[0].qkv.weight.dtype == np.float32  # packed with float16 rows
    assert weights.encoder.blocks[0].fc1.weight.dtype == np.float16


def test_another_activation_in_ctranslate2(tmp_path: Path) -> None:
    shutil.copytree(FORMATS / "ct2_int8", tmp_path / "m")
    path = tmp_path / "m" / "model.bin"
    content = path.read_bytes()
    at = content.index(b"decoder/activation\0") + len(b"decoder/activation\0") + 1 + 1 + 4
    assert content[at] == 3
    path.write_bytes(content[:at] + b"\1" + content[at + 1 :])
    assert "GELU" in refused(tmp_path / "m")


@pytest.mark.weights
def test_real_checkpoints(weights: dict[str, Path]) -> None:
    """Released models in CTranslate2's float16: specs as published."""
    for name, sizes in {
        "tiny.en": (80, 1500, 384, 6, 4, 51864, 448, 384, 6, 4),
        "base": (80, 1500, 512, 8, 6, 51865, 448, 512, 8, 6),
    }.items():
        loaded = load_weights(weights[name])
        found = [
            getattr(loaded.config, f.name) for f in fields(loaded.config) if f.name[:2] == "n_"
        ]
        assert tuple(found) == sizes
        assert loaded.stored_dtype == "f16"
        wanted = sinusoids(1500, loaded.config.n_audio_state)
        np.testing.assert_allclose(loaded.encoder.positional_embedding, wanted, atol=1e-3)
