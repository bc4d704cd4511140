"""Values of configuration files, defaults of absent keys, and refused values."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oscine.errors import CheckpointError
from oscine.models.qwen3_tts.config import (
    GenerationConfig,
    Qwen3TtsConfig,
    SamplingParams,
    read_codec_config,
    read_config,
    read_generation,
)
from oscine.weights import read_checkpoint

Copy = Callable[[str], Any]
CODEC = "speech_tokenizer/config.json"
TALKER, PREDICTOR = "talker_config", "talker_config.code_predictor_config"
HUGE = 10**12


def read(folder: Path) -> Qwen3TtsConfig:
    return read_config(read_checkpoint(folder), read_checkpoint(folder / "speech_tokenizer"))


def refused(folder: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        read(folder)
    message = str(caught.value)
    assert str(folder) in message and "\n" not in message and len(message) < 600
    return message


def test_what_is_stated(model: Copy) -> None:
    folder = model("custom_voice").folder
    stated, config = json.loads((folder / "config.json").read_text()), read(folder)
    talker, predictor = stated["talker_config"], stated["talker_config"]["code_predictor_config"]
    assert (config.tts_model_type, config.tts_model_size) == (
        "custom_voice",
        stated["tts_model_size"],
    )
    for stack, part in ((config.talker, talker), (config.code_predictor, predictor)):
        assert stack.q_size == part["num_attention_heads"] * part["head_dim"]
        assert stack.kv_size == part["num_key_value_heads"] * part["head_dim"]
        assert (stack.norm_eps, stack.rope_theta) == (part["rms_norm_eps"], part["rope_theta"])
    assert (
        config.vocab_size == talker["vocab_size"]
        and config.codebook_size == config.codec.codebook_size
    )
    assert config.codec_language_id == talker["codec_language_id"]
    assert config.spk_id == talker["spk_id"]
    assert config.spk_is_dialect == {n: d for n, d in talker["spk_is_dialect"].items() if d}
    assert config.codec_ids.eos == talker["codec_eos_token_id"]
    assert config.text_ids.assistant == stated["assistant_token_id"]
    codec = json.loads((folder / CODEC).read_text())
    assert config.codec.encoder.strides == tuple(codec["encoder_config"]["upsampling_ratios"][::-1])
    assert config.codec.decoder.upsample_rates == tuple(codec["decoder_config"]["upsample_rates"])
    assert config.codec.hop_length == codec["decode_upsample_rate"]


def test_what_need_not_be_stated(model: Copy) -> None:
    little = model("base")
    before = read(little.folder)
    for key in ("head_dim", "rms_norm_eps", "num_key_value_heads", "hidden_act", "rope_scaling"):
        little.set(f"{TALKER}.{key}", ...)
    config = read(little.folder)
    assert config.talker.head_dim == before.talker.hidden_size // before.talker.num_attention_heads
    assert (
        config.talker.num_key_value_heads == before.talker.num_attention_heads
        and config.talker.norm_eps == 1e-6
    )
    for key in ("enc_channels", "enc_kernel_sizes", "enc_attention_channels"):
        little.set(f"speaker_encoder_config.{key}", ...)
    speaker = read(little.folder).speaker_encoder
    assert speaker is not None
    assert (speaker.enc_channels, speaker.enc_attention_channels) == (
        (512, 512, 512, 512, 1536),
        128,
    )
    assert (speaker.enc_kernel_sizes, speaker.mel_dim, speaker.sample_rate) == (
        (5, 3, 3, 3, 1),
        128,
        24000,
    )


@pytest.mark.parametrize("key", ["semantic_codebook_size", "layer_scale_initial_scale"])
def test_decoys_are_not_looked_at(model: Copy, key: str) -> None:
    decoyed = model("base")
    before = read(decoyed.folder)
    decoyed.set(f"decoder_config.{key}", "nothing", CODEC)
    decoyed.set("encoder_config.sliding_window", 7, CODEC)
    decoyed.set("decoder_config.vector_quantization_hidden_dimension", 9999, CODEC)
    assert read(decoyed.folder) == before


def test_names_are_lower_case_and_ids_may_be_wrapped(model: Copy) -> None:
    voiced = model("custom_voice")
    voiced.set(f"{TALKER}.spk_id", {"Anna": [70], "uncle.Bo": 71})
    voiced.set(f"{TALKER}.spk_is_dialect", {"Anna": "Sichuan_Dialect", "uncle.Bo": False})
    config = read(voiced.folder)
    assert config.spk_id == {"anna": 70, "uncle.bo": 71}
    assert config.spk_is_dialect == {"anna": "sichuan_dialect"}
    voiced.set(f"{TALKER}.spk_is_dialect", ...)
    assert read(voiced.folder).spk_is_dialect == {}
    voiced.set("tts_model_type", "voice_design")
    assert read(voiced.folder).spk_id == {}


def test_generation(model: Copy, tmp_path: Path) -> None:
    usual = GenerationConfig()
    assert usual.talker == SamplingParams(True, 0.9, 50, 1.0, 1.05) and usual.max_new_tokens == 2048
    assert read_generation(tmp_path) == usual
    other = model("base")
    assert read(other.folder).generation.max_new_tokens == 8192
    file = "generation_config.json"
    for key, value in (
        ("do_sample", False), ("temperature", 2), ("subtalker_top_k", 0), ("subtalker_top_p", 0.5),
        ("top_k", None), ("repetition_penalty", ...),
    ):  # fmt: skip
        other.set(key, value, file)
    found = read(other.folder).generation
    assert found.talker == SamplingParams(False, 2.0, 50, 1.0, 1.05)
    assert found.subtalker == SamplingParams(True, 0.9, 0, 0.5, 1.0)


GENERATION = [
    ("temperature", 0), ("temperature", 1e-45), ("repetition_penalty", 1e-3),
    ("repetition_penalty", 1e39), ("temperature", "warm"), ("temperature", True), ("top_k", -1),
    ("top_k", 2.5), ("top_p", 0), ("top_p", 1.1), ("repetition_penalty", -1), ("do_sample", 1),
    ("max_new_tokens", 0), ("max_new_tokens", HUGE), ("subtalker_temperature", 1e9),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value"), GENERATION)
def test_generation_that_cannot_be(model: Copy, key: str, value: object) -> None:
    wrong = model("base")
    wrong.set(key, value, "generation_config.json")
    message = refused(wrong.folder)
    assert f"generation_config.json: its configuration has {key} = " in message


WRONG: list[tuple[str, Any]] = [
    ("model_type", "qwen3"), ("tokenizer_type", "qwen3_tts_tokenizer_25hz"),
    ("tts_model_type", "singing"), ("tts_model_type", ["base"]), ("tts_model_size", 7),
    ("talker_config", None), ("talker_config", [1]), (PREDICTOR, ...),
    *((f"{TALKER}.hidden_size", value) for value in (..., 0, -8, 1.5, "64", True, HUGE)),
    (f"{TALKER}.num_hidden_layers", HUGE), (f"{TALKER}.num_hidden_layers", 1000),
    (f"{TALKER}.num_key_value_heads", 3), (f"{TALKER}.head_dim", 5), (f"{TALKER}.head_dim", HUGE),
    (f"{TALKER}.rms_norm_eps", 0), (f"{TALKER}.rope_theta", float("inf")),
    (f"{TALKER}.rope_scaling.rope_type", "yarn"), (f"{TALKER}.hidden_act", "gelu"),
    (f"{TALKER}.attention_bias", True), (f"{TALKER}.use_sliding_window", True),
    (f"{TALKER}.tie_word_embeddings", True), (f"{TALKER}.vocab_size", HUGE),
    (f"{TALKER}.text_vocab_size", 0), (f"{TALKER}.text_hidden_size", None),
    (f"{TALKER}.num_code_groups", 4), (f"{TALKER}.max_position_embeddings", HUGE),
    (f"{PREDICTOR}.num_code_groups", 99), (f"{PREDICTOR}.vocab_size", 60),
    (f"{PREDICTOR}.hidden_size", HUGE), (f"{PREDICTOR}.num_hidden_layers", HUGE),
    ("im_start_token_id", 320), ("tts_pad_token_id", -1), ("assistant_token_id", ...),
    (f"{TALKER}.codec_eos_token_id", HUGE), (f"{TALKER}.codec_think_id", "170"),
    (f"{TALKER}.codec_pad_id", [1, 2]), (f"{TALKER}.codec_language_id.english", HUGE),
    (f"{TALKER}.codec_language_id", ["english"]), (f"{TALKER}.spk_id.ryan", True),
    (f"{TALKER}.spk_id", {"a": 1, "A": 2}), (f"{TALKER}.spk_is_dialect.ryan", "klingon"),
    (f"{TALKER}.spk_is_dialect.ryan", True),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value"), WRONG, ids=str)
def test_what_no_model_has(model: Copy, key: str, value: Any) -> None:
    wrong = model("custom_voice")
    wrong.set(key, value)
    message = refused(wrong.folder)
    problems = [f"its configuration {verb} {key}" for verb in ("has", "lacks")]
    assert any(f"{wrong.folder}/config.json: {problem}" in message for problem in problems)


SPEAKER: list[tuple[str, Any]] = [
    ("enc_dim", 48), ("sample_rate", 16000), ("enc_channels", [16, 16, 16, 16, 47]),
    ("enc_channels", [16, 16, 8, 16, 40]), ("enc_channels", []), ("enc_channels", [16, 16]),
    ("enc_channels", [HUGE] * 5), ("enc_kernel_sizes", [5, 3, 3, 3, 3]),
    ("enc_kernel_sizes", [5, 3, 3]), ("enc_dilations", [1, 0, 1, 1, 1]), ("enc_res2net_scale", 5),
    ("enc_res2net_scale", 1), ("enc_se_channels", 0), ("mel_dim", HUGE),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value"), SPEAKER, ids=str)
def test_speaker_encoders_that_are_not_built(model: Copy, key: str, value: Any) -> None:
    wrong = model("base")
    wrong.set(f"speaker_encoder_config.{key}", value)
    assert "has speaker_encoder_config.enc_" in (message := refused(wrong.folder)) or key in message
    wrong.set("speaker_encoder_config", ...)
    assert "lacks speaker_encoder_config" in refused(wrong.folder)


SOUND: list[tuple[str, Any]] = [
    ("model_type", "qwen3_tts_tokenizer_25hz"), ("model_type", "mimi"),
    ("encoder_valid_num_quantizers", 1), ("decoder_config.num_quantizers", 3),
    ("decode_upsample_rate", 1919), ("encode_downsample_rate", 960), ("input_sample_rate", 16000),
    ("output_sample_rate", 48000), ("decoder_config", ...), ("encoder_config", 5),
    ("decoder_config.codebook_size", HUGE), ("encoder_config.codebook_size", 31),
    ("decoder_config.codebook_dim", 25), ("decoder_config.decoder_dim", 7),
    ("decoder_config.upsample_rates", [8, 5, 4, 2]), ("decoder_config.upsample_rates", []),
    ("decoder_config.upsample_rates", [1] * 1000), ("decoder_config.upsampling_ratios", [2, "2"]),
    ("decoder_config.num_hidden_layers", HUGE), ("decoder_config.num_hidden_layers", 900),
    ("decoder_config.hidden_act", "gelu"), ("decoder_config.sliding_window", 0),
    ("decoder_config.head_dim", 7), ("decoder_config.latent_dim", HUGE),
    ("encoder_config.upsampling_ratios", [8, 7]), ("encoder_config.upsampling_ratios", 8),
    ("encoder_config.num_filters", 1), ("encoder_config.compress", 0),
    ("encoder_config.num_quantizers", 2), ("encoder_config.num_quantizers", HUGE),
    ("encoder_config.codebook_dim", 11), ("encoder_config.num_residual_layers", HUGE),
    ("encoder_config.dilation_growth_rate", HUGE), ("encoder_config.kernel_size", HUGE),
    ("encoder_config.num_hidden_layers", HUGE), ("encoder_config.pad_mode", "reflect"),
    ("encoder_config.use_causal_conv", False), ("encoder_config.use_conv_shortcut", True),
    ("encoder_config.hidden_act", "silu"), ("encoder_config.audio_channels", 2),
    ("encoder_config.sampling_rate", 16000), ("encoder_config.norm_eps", -1),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value"), SOUND, ids=str)
def test_codecs_that_are_not_built(model: Copy, key: str, value: Any) -> None:
    wrong = model("custom_voice")
    wrong.set(key, value, CODEC)
    message = refused(wrong.folder)
    problems = [f"its configuration {verb} " for verb in ("has", "lacks")]
    assert any(f"{wrong.folder}/{CODEC}: {problem}" in message for problem in problems)
    with pytest.raises(CheckpointError):
        read_codec_config(read_checkpoint(wrong.folder / "speech_tokenizer"))


@pytest.mark.parametrize("file", ["config.json", CODEC, "generation_config.json"])
@pytest.mark.parametrize("content", [b"", b"[]", b'{"a": 1, "a": 2}', b"\xff", b"[" * 100_000])
def test_files_that_are_no_configuration(model: Copy, file: str, content: bytes) -> None:
    wrong = model("base")
    (wrong.folder / file).write_bytes(content)
    assert f"{wrong.folder}/{file}: " in refused(wrong.folder)


@pytest.mark.parametrize("file", ["config.json", CODEC])
def test_files_that_are_not_there(model: Copy, file: str) -> None:
    wrong = model("base")
    (wrong.folder / file).unlink()
    assert f"{wrong.folder}/{file}: no such file" in refused(wrong.folder)


def test_sizes_at_every_limit_take_no_memory(model: Copy) -> None:
    """Nothing is made of a size before tensors of it are there."""
    from oscine.models.qwen3_tts.weights import load_weights

    hostile = model("base")
    for key in ("hidden_size", "intermediate_size", "text_hidden_size"):
        hostile.set(f"{TALKER}.{key}", 1 << 16)
    hostile.set("speaker_encoder_config.enc_dim", 1 << 16)
    hostile.set(f"{TALKER}.num_hidden_layers", len(hostile.tensors()))
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError, match="tensors do not fit"):
            load_weights(hostile.folder)
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()
