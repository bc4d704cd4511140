"""Parakeet in GGUF: the metadata that three programs write, as NeMo's configuration.

Sources: handy-computer/transcribe.cpp scripts/convert-parakeet.py, CrispStrobe/CrispASR
models/convert-parakeet-to-gguf.py and mudler/parakeet.cpp scripts/convert_parakeet_to_gguf.py. What
they leave out is as their own readers have it: features are normalised per mel bin, and the
encoder's input is not scaled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oscine.errors import CheckpointError
from oscine.weights import Checkpoint
from oscine.weights.gguf import TOKENS

#: NeMo's keys by those of the file. transcribe.cpp, CrispASR, parakeet.cpp:
_TRANSCRIBE_CPP = {
    "stt.parakeet.encoder.n_layers": "encoder.n_layers",
    "stt.parakeet.encoder.d_model": "encoder.d_model",
    "stt.parakeet.encoder.n_heads": "encoder.n_heads",
    "stt.parakeet.encoder.conv_kernel": "encoder.conv_kernel_size",
    "stt.parakeet.encoder.subsampling_factor": "encoder.subsampling_factor",
    "stt.parakeet.encoder.subsampling_channels": "encoder.subsampling_conv_channels",
    "stt.parakeet.encoder.xscaling": "encoder.xscaling",
    "stt.parakeet.encoder.att_context_style": "encoder.att_context_style",
    "stt.parakeet.encoder.conv_norm_type": "encoder.conv_norm_type",
    "stt.parakeet.predictor.hidden": "decoder.prednet.pred_hidden",
    "stt.parakeet.predictor.n_layers": "decoder.prednet.pred_rnn_layers",
    "stt.parakeet.joint.hidden": "joint.jointnet.joint_hidden",
    "stt.parakeet.joint.activation": "joint.jointnet.activation",
    "stt.parakeet.tdt.durations": "model_defaults.tdt_durations",
    "stt.parakeet.tdt.max_symbols": "decoding.greedy.max_symbols",
    "stt.frontend.num_mels": "preprocessor.features",
    "stt.frontend.sample_rate": "preprocessor.sample_rate",
    "stt.frontend.n_fft": "preprocessor.n_fft",
    "stt.frontend.win_length": "preprocessor.n_window_size",
    "stt.frontend.hop_length": "preprocessor.n_window_stride",
    "stt.frontend.window": "preprocessor.window",
    "stt.frontend.normalize": "preprocessor.normalize",
}
_CRISPASR = {
    "parakeet.n_layers": "encoder.n_layers",
    "parakeet.d_model": "encoder.d_model",
    "parakeet.n_heads": "encoder.n_heads",
    "parakeet.conv_kernel": "encoder.conv_kernel_size",
    "parakeet.subsampling_factor": "encoder.subsampling_factor",
    "parakeet.subsampling_channels": "encoder.subsampling_conv_channels",
    "parakeet.pred_hidden": "decoder.prednet.pred_hidden",
    "parakeet.pred_layers": "decoder.prednet.pred_rnn_layers",
    "parakeet.joint_hidden": "joint.jointnet.joint_hidden",
    "parakeet.tdt_durations": "model_defaults.tdt_durations",
    "parakeet.vocab_size": "decoder.vocab_size",
    "parakeet.n_mels": "preprocessor.features",
    "parakeet.sample_rate": "preprocessor.sample_rate",
    "parakeet.n_fft": "preprocessor.n_fft",
    "parakeet.win_length": "preprocessor.n_window_size",
    "parakeet.hop_length": "preprocessor.n_window_stride",
}
_PARAKEET_CPP = {
    "parakeet.encoder.n_layers": "encoder.n_layers",
    "parakeet.encoder.d_model": "encoder.d_model",
    "parakeet.encoder.n_heads": "encoder.n_heads",
    "parakeet.encoder.conv_kernel": "encoder.conv_kernel_size",
    "parakeet.encoder.conv_norm_type": "encoder.conv_norm_type",
    "parakeet.encoder.subsampling_factor": "encoder.subsampling_factor",
    "parakeet.encoder.subsampling_conv_channels": "encoder.subsampling_conv_channels",
    "parakeet.encoder.xscaling": "encoder.xscaling",
    "parakeet.encoder.att_context_style": "encoder.att_context_style",
    "parakeet.encoder.causal_downsampling": "encoder.causal_downsampling",
    "parakeet.decoder.pred_hidden": "decoder.prednet.pred_hidden",
    "parakeet.decoder.pred_rnn_layers": "decoder.prednet.pred_rnn_layers",
    "parakeet.joint.joint_hidden": "joint.jointnet.joint_hidden",
    "parakeet.joint.activation": "joint.jointnet.activation",
    "parakeet.tdt.durations": "model_defaults.tdt_durations",
    "parakeet.decoding.max_symbols": "decoding.greedy.max_symbols",
    "parakeet.preprocessor.n_mels": "preprocessor.features",
    "parakeet.preprocessor.sample_rate": "preprocessor.sample_rate",
    "parakeet.preprocessor.n_fft": "preprocessor.n_fft",
    "parakeet.preprocessor.win_length": "preprocessor.n_window_size",
    "parakeet.preprocessor.hop_length": "preprocessor.n_window_stride",
    "parakeet.preprocessor.normalize": "preprocessor.normalize",
}
_FF_DIM = ("stt.parakeet.encoder.d_ff", "parakeet.ff_dim", "parakeet.encoder.ff_dim")
_LABELS = (TOKENS, "parakeet.tokenizer.pieces")
_SIDES = ("left", "right")  # of an attention's or a convolution's context; -1: all of it
#: NeMo's class by the kind of head that a file states.
_CLASSES = {
    **dict.fromkeys(("tdt", "rnnt"), "EncDecRNNTBPEModel"),
    "ctc": "EncDecCTCModelBPE",
    **dict.fromkeys(("hybrid_tdt_ctc", "hybrid_rnnt_ctc"), "EncDecHybridRNNTCTCBPEModel"),
}


def nemo_config(checkpoint: Checkpoint) -> dict[str, Any]:
    """NeMo's configuration, nested, of a GGUF file's metadata.

    Raises CheckpointError for metadata that none of the three programs writes.
    """
    metadata, path = checkpoint.config, checkpoint.path
    kind = str(metadata.get("stt.parakeet.head_kind", metadata.get("parakeet.arch", "tdt")))
    tables = (_TRANSCRIBE_CPP, _PARAKEET_CPP, _CRISPASR)
    table = next((table for table in tables if next(iter(table)) in metadata), None)
    if table is None or kind not in _CLASSES:
        raise CheckpointError(
            path,
            "is a Parakeet in GGUF with metadata of an unknown program",
            "transcribe.cpp, CrispASR and parakeet.cpp write files that can be read",
        )
    config: dict[str, Any] = {"target": _CLASSES[kind]}
    for key, ours in table.items():
        if key in metadata:
            _set(config, ours, metadata[key])
    config["encoder"].setdefault("xscaling", False)
    for key in ("att_context", "conv_context"):
        sides = [metadata.get(f"stt.parakeet.encoder.{key}_{side}", -1) for side in _SIDES]
        if sides != [-1, -1]:
            config["encoder"][f"{key}_size"] = sides
    if "att_context_size" in config["encoder"]:
        config["encoder"]["self_attention_model"] = "rel_pos_local_attn"
    _set(config, "joint.num_extra_outputs", len(_durations(config)))
    _set(config, "encoder.ff_expansion_factor", _expansion(checkpoint, config))
    labels = next((metadata[key] for key in _LABELS if key in metadata), None)
    blank = metadata.get("tokenizer.ggml.blank_token_id")
    config["labels"] = labels[:blank] if isinstance(labels, list) else labels
    return config


def _durations(config: Mapping[str, Any]) -> list[Any]:
    durations = config.get("model_defaults", {}).get("tdt_durations", [])
    return durations if isinstance(durations, list) else []


def _expansion(checkpoint: Checkpoint, config: Mapping[str, Any]) -> int:
    """The factor of the feed-forward modules' width, which files state as a width."""
    width = config["encoder"].get("d_model")
    inner = next((checkpoint.config[key] for key in _FF_DIM if key in checkpoint.config), None)
    if inner is None:
        return 4
    if type(width) is not int or type(inner) is not int or width < 1 or inner % width:
        raise CheckpointError(
            checkpoint.path, f"its feed-forward width {str(inner)[:40]} does not fit its width"
        )
    return inner // width


def _set(config: dict[str, Any], key: str, value: Any) -> None:
    """Set the value at a key with dots in nested objects."""
    *parents, last = key.split(".")
    for parent in parents:
        config = config.setdefault(parent, {})
    config[last] = value
