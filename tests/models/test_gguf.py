"""GGUF files of whole models give the weights that the checkpoints they were made from give.

The names and keys are those of the programs that write such files: handy-computer/transcribe.cpp
scripts/convert-whisper.py and convert-parakeet.py, CrispStrobe/CrispASR
models/convert-parakeet-to-gguf.py, mudler/parakeet.cpp scripts/convert_parakeet_to_gguf.py.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

import oscine
from oscine.errors import CheckpointError
from oscine.models.loader import load
from oscine.models.parakeet.weights import ParakeetWeights
from oscine.models.parakeet.weights import load_weights as load_parakeet
from oscine.models.whisper.weights import load_weights as load_whisper
from oscine.quantized import Q8
from oscine.tree import tree_paths
from oscine.weights import read_checkpoint
from tests.weights.gguf_files import write_gguf

GOLDENS = Path(__file__).resolve().parents[1] / "goldens"
WHISPER, PARAKEET = GOLDENS / "whisper_multi", GOLDENS / "parakeet_formats" / "model.nemo"


def tensors_of(path: Path) -> dict[str, np.ndarray]:
    """The tensors of a checkpoint in its own names."""
    return {name: entry.read() for name, entry in read_checkpoint(path).tensors.items()}


def assert_same_weights(found: Any, expected: Any) -> None:
    ours, theirs = tree_paths(found), tree_paths(expected)
    assert ours.keys() == theirs.keys() and ours
    for name, array in ours.items():
        np.testing.assert_array_equal(array, theirs[name], err_msg=name)


# -- Whisper --------------------------------------------------------------------------------------

SIDES = {
    "encoder": {"self_attn_layer_norm": "norm_attn", "self_attn": "attn"},
    "decoder": {
        "encoder_attn_layer_norm": "norm_cross",
        "self_attn_layer_norm": "norm_self",
        "encoder_attn": "cross_attn",
    },
}
BOTH = {
    "layers": "blocks", "final_layer_norm": "norm_ffn", "layer_norm": "final_norm",
    "q_proj": "q", "k_proj": "k", "v_proj": "v", "out_proj": "out", "fc1": "ffn.fc1",
    "fc2": "ffn.fc2", "conv1": "conv.0", "conv2": "conv.1", "embed_positions": "pos_emb",
    "embed_tokens": "token_embd",
}  # fmt: skip


def transcribe_cpp_whisper_name(name: str) -> str:
    """transcribe.cpp's name of transformers'."""
    side, *rest = name.removeprefix("model.").split(".")
    parts = [(SIDES[side] | BOTH).get(part, part) for part in rest]
    return ".".join([side[:3], *parts])


def whisper_metadata() -> dict[str, Any]:
    config = json.loads((WHISPER / "config.json").read_text("utf-8"))
    tokenizer = json.loads((WHISPER / "tokenizer.json").read_text("utf-8"))
    ids = tokenizer["model"]["vocab"] | {
        added["content"]: added["id"] for added in tokenizer["added_tokens"]
    }
    names = {id: token for token, id in ids.items()}
    found = {
        "tokenizer.ggml.tokens": [names.get(i, f"<|u_{i}|>") for i in range(config["vocab_size"])]
    }
    for side in ("encoder", "decoder"):
        at = f"stt.whisper.{side}"
        found[f"{at}.n_layers"] = config[f"{side}_layers"]
        found[f"{at}.d_model"] = config["d_model"]
        found[f"{at}.n_heads"] = config[f"{side}_attention_heads"]
        found[f"{at}.activation"] = "gelu"
    found["stt.whisper.encoder.num_mel_bins"] = config["num_mel_bins"]
    found["stt.whisper.encoder.max_source_positions"] = config["max_source_positions"]
    found["stt.whisper.decoder.max_target_positions"] = config["max_target_positions"]
    found["stt.whisper.decoder.vocab_size"] = config["vocab_size"]
    found["stt.whisper.decoder.scale_embedding"] = False
    return found


def whisper_file(folder: Path) -> Path:
    arrays = {
        transcribe_cpp_whisper_name(name): array
        for name, array in tensors_of(WHISPER).items()
        if name != "proj_out.weight"
    }
    arrays["frontend.window"] = np.zeros(400, np.float32)
    return write_gguf(folder / "w.gguf", "whisper", whisper_metadata(), arrays)


def test_whisper_of_transcribe_cpp(tmp_path: Path) -> None:
    found, expected = load_whisper(whisper_file(tmp_path)), load_whisper(WHISPER)
    assert found.vocabulary is not None
    for field in ("n_mels", "n_audio_ctx", "n_audio_head", "n_text_ctx", "n_text_head", "n_vocab"):
        assert getattr(found.config, field) == getattr(expected.config, field)
    assert_same_weights((found.encoder, found.decoder), (expected.encoder, expected.decoder))


def test_whisper_in_gguf_transcribes_alike(tmp_path: Path) -> None:
    clip = next((GOLDENS / "audio").glob("whisper_multi*.wav"))
    found, expected = (
        oscine.load(path, "cpu").transcribe(clip, language="en", temperature=0)
        for path in (whisper_file(tmp_path), WHISPER)
    )
    assert found.text == expected.text


def test_a_missing_tensor_has_the_name_of_the_file(tmp_path: Path) -> None:
    arrays = tensors_of(whisper_file(tmp_path))
    del arrays["dec.blocks.1.self_attn.q.weight"], arrays["enc.blocks.0.norm_attn.bias"]
    del arrays["dec.blocks.0.norm_self.weight"]
    path = write_gguf(tmp_path / "fewer.gguf", "whisper", whisper_metadata(), arrays)
    with pytest.raises(CheckpointError) as caught:
        load_whisper(path)
    for name in ("dec.blocks.1.self_attn.q", "enc.blocks.0.norm_attn", "dec.blocks.0.norm_self"):
        assert name in str(caught.value)


def test_blocks_of_a_file_are_used_as_they_are(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    arrays = {"w.weight": rng.standard_normal((4, 64)).astype(np.float32)}
    path = write_gguf(
        tmp_path / "m.gguf", "toy", {}, arrays, lambda name, array: gguf.GGMLQuantizationType.Q8_0
    )
    checkpoint = read_checkpoint(path)
    layer = load(lambda t: t.linear("w", 4, 64, bias=False), path, checkpoint.tensors, "q8")
    assert layer.weight.dtype == Q8
    stored = gguf.GGUFReader(path).tensors[0].data
    assert layer.weight.tobytes() == stored.tobytes()
    wide = load(lambda t: t.linear("w", 4, 64, bias=False), path, checkpoint.tensors, "f32")
    np.testing.assert_array_equal(wide.weight, checkpoint.tensors["w.weight"].read())


# -- Parakeet -------------------------------------------------------------------------------------

Names = tuple[tuple[str, str], ...]
CRISPASR: Names = (
    (r"preprocessor\.featurizer\.", "preprocessor."),
    (r"encoder\.pre_encode\.", "encoder.pre."),
    ("feed_forward", "ff"),
    ("norm_self_att", "norm_attn"),
    (r"self_attn\.linear_", "attn."),
    (r"self_attn\.", "attn."),
    ("pointwise_conv", "pw"),
    ("depthwise_conv", "dw"),
    ("batch_norm", "bn"),
    (r"decoder\.prediction\.embed", "decoder.embed"),
    (r"decoder\.prediction\.dec_rnn\.lstm\.weight_(..)_l(\d)", r"decoder.lstm.\2.w_\1"),
    (r"decoder\.prediction\.dec_rnn\.lstm\.bias_(..)_l(\d)", r"decoder.lstm.\2.b_\1"),
    (r"joint\.joint_net\.2", "joint.out"),
)
TRANSCRIBE_CPP: Names = (
    (r"encoder\.pre_encode\.", "enc.pre_encode."),
    (r"encoder\.layers\.", "enc.blocks."),
    ("feed_forward", "ff"),
    ("norm_self_att", "norm_attn"),
    (r"self_attn\.", "attn."),
    ("pointwise_conv", "pointwise"),
    ("depthwise_conv", "depthwise"),
    ("batch_norm", "bn"),
    (r"decoder\.prediction\.embed", "pred.embed"),
    (r"decoder\.prediction\.dec_rnn\.lstm\.weight_ih_l(\d)", r"pred.lstm.\1.Wx"),
    (r"decoder\.prediction\.dec_rnn\.lstm\.weight_hh_l(\d)", r"pred.lstm.\1.Wh"),
    (r"decoder\.prediction\.dec_rnn\.lstm\.bias_ih_l(\d)", r"pred.lstm.\1.bias"),
    (r"joint\.joint_net\.2", "joint.out"),
)


def renamed(arrays: dict[str, np.ndarray], names: Names) -> dict[str, np.ndarray]:
    found = {}
    for name, array in arrays.items():
        for pattern, other in names:
            name = re.sub(pattern, other, name)
        found[name] = array
    return found


def unscaled_parakeet() -> ParakeetWeights:
    """The small NeMo checkpoint without a scale of its inputs, which most GGUF files do not state
    and no released TDT model has."""
    checkpoint = read_checkpoint(PARAKEET)
    encoder = checkpoint.config["encoder"] | {"xscaling": False}
    return load_parakeet(replace(checkpoint, config=checkpoint.config | {"encoder": encoder}))


def parakeet_file(folder: Path, program: str) -> Path:
    """The small NeMo checkpoint as one of the programs writes it."""
    arrays = {
        name: array
        for name, array in tensors_of(PARAKEET).items()
        if not name.endswith("num_batches_tracked") and name.split(".")[0] != "ctc_decoder"
    }
    config, pieces = unscaled_parakeet().config, list(unscaled_parakeet().vocabulary)
    sizes: dict[str, Any] = {
        "n_layers": config.n_layers, "d_model": config.d_model, "n_heads": config.n_heads,
        "conv_kernel": config.conv_kernel_size, "subsampling_factor": config.subsampling_factor,
    }  # fmt: skip
    channels, durations = config.subsampling_channels, list(config.durations)
    predictor, layers = config.predictor_dim, config.predictor_layers
    if program == "parakeet.cpp":
        metadata = {f"parakeet.encoder.{key}": value for key, value in sizes.items()} | {
            "parakeet.arch": "tdt",
            "parakeet.encoder.ff_dim": config.ff_dim,
            "parakeet.encoder.subsampling_conv_channels": channels,
            "parakeet.encoder.xscaling": config.xscaling,
            "parakeet.preprocessor.n_mels": config.n_mels,
            "parakeet.preprocessor.normalize": "per_feature",
            "parakeet.decoder.pred_hidden": predictor,
            "parakeet.decoder.pred_rnn_layers": layers,
            "parakeet.joint.joint_hidden": config.joint_dim,
            "parakeet.joint.activation": "relu",
            "parakeet.tdt.durations": durations,
            "parakeet.decoding.max_symbols": config.max_symbols,
            "parakeet.tokenizer.pieces": pieces,
        }
    elif program == "CrispASR":
        metadata = {f"parakeet.{key}": value for key, value in sizes.items()} | {
            "parakeet.ff_dim": config.ff_dim,
            "parakeet.subsampling_channels": channels,
            "parakeet.n_mels": config.n_mels,
            "parakeet.pred_hidden": predictor,
            "parakeet.pred_layers": layers,
            "parakeet.joint_hidden": config.joint_dim,
            "parakeet.vocab_size": config.vocab_size,
            "parakeet.tdt_durations": durations,
            "tokenizer.ggml.tokens": pieces,
        }
        arrays = renamed(arrays, CRISPASR)
        for layer in range(config.n_layers):
            name = f"encoder.layers.{layer}.conv.dw.bias"
            arrays.setdefault(name, np.zeros(config.d_model, np.float32))
    else:
        at = "stt.parakeet"
        metadata = {f"{at}.encoder.{key}": value for key, value in sizes.items()} | {
            f"{at}.head_kind": "tdt",
            f"{at}.encoder.d_ff": config.ff_dim,
            f"{at}.encoder.subsampling_channels": channels,
            f"{at}.predictor.hidden": predictor,
            f"{at}.predictor.n_layers": layers,
            f"{at}.joint.hidden": config.joint_dim,
            f"{at}.joint.activation": "relu",
            f"{at}.tdt.durations": durations,
            f"{at}.tdt.max_symbols": config.max_symbols,
            "stt.frontend.num_mels": config.n_mels,
            "stt.frontend.normalize": "per_feature",
            "stt.frontend.window": "hann",
            "tokenizer.ggml.tokens": [*pieces, "<blank>"],
            "tokenizer.ggml.blank_token_id": len(pieces),
        }
        for layer in range(layers):
            at = f"decoder.prediction.dec_rnn.lstm.bias_{{}}_l{layer}"
            arrays[at.format("ih")] = arrays[at.format("ih")] + arrays.pop(at.format("hh"))
        arrays = {n: a for n, a in renamed(arrays, TRANSCRIBE_CPP).items() if "preproc" not in n}
    return write_gguf(folder / "p.gguf", "parakeet", metadata, arrays)


@pytest.mark.parametrize("program", ["transcribe.cpp", "CrispASR", "parakeet.cpp"])
def test_parakeet_in_gguf(tmp_path: Path, program: str) -> None:
    found, expected = load_parakeet(parakeet_file(tmp_path, program)), unscaled_parakeet()
    assert found.vocabulary == expected.vocabulary
    assert found.config.durations == expected.config.durations
    assert_same_weights((found.encoder, found.transducer), (expected.encoder, expected.transducer))


@pytest.mark.parametrize(
    ("key", "value", "found"),
    [
        ("encoder.xscaling", True, "xscaling"),
        ("encoder.att_context_style", "chunked_limited", "streaming"),
        ("encoder.conv_norm_type", "layer_norm", "streaming"),
        ("encoder.conv_context_left", 8, "streaming"),
        ("encoder.d_ff", 7, "feed-forward width 7"),
        ("joint.activation", "tanh", "tanh"),
        ("head_kind", "other", "unknown program"),
    ],
)
def test_what_a_parakeet_states(tmp_path: Path, key: str, value: Any, found: str) -> None:
    """Of transcribe.cpp: what changes the network is followed or refused."""
    path = parakeet_file(tmp_path, "transcribe.cpp")
    checkpoint = read_checkpoint(path)
    changed = replace(checkpoint, config=checkpoint.config | {f"stt.parakeet.{key}": value})
    if found == "xscaling":
        assert load_parakeet(changed).config.xscaling
        return
    with pytest.raises(CheckpointError, match=found):
        load_parakeet(changed)


def test_local_attention_of_transcribe_cpp(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(parakeet_file(tmp_path, "transcribe.cpp"))
    at = "stt.parakeet.encoder.att_context_"
    changed = replace(checkpoint, config=checkpoint.config | {f"{at}left": 20, f"{at}right": 9})
    assert load_parakeet(changed).config.attention_window == (20, 9)


def test_metadata_of_an_unknown_program(tmp_path: Path) -> None:
    arrays = {"encoder.pre_encode.conv.0.weight": np.zeros((4, 1, 3, 3), np.float32)}
    path = write_gguf(tmp_path / "p.gguf", "parakeet", {"other.sizes": 3}, arrays)
    with pytest.raises(CheckpointError, match="metadata of an unknown program"):
        load_parakeet(path)
