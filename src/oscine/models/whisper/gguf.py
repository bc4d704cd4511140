"""Whisper in GGUF as transcribe.cpp writes it: its metadata as transformers' config.json.

Source: handy-computer/transcribe.cpp scripts/convert-whisper.py. Files without such metadata, as
candle writes them, have transformers' names, and a config.json beside them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from oscine.errors import CheckpointError
from oscine.model_files import read_json
from oscine.text.whisper import END_OF_TEXT, token_bytes
from oscine.weights import Checkpoint
from oscine.weights.gguf import TOKENS

_KEYS = {
    "encoder.n_layers": "encoder_layers",
    "encoder.d_model": "d_model",
    "encoder.n_heads": "encoder_attention_heads",
    "encoder.num_mel_bins": "num_mel_bins",
    "encoder.max_source_positions": "max_source_positions",
    "encoder.activation": "activation_function",
    "decoder.n_layers": "decoder_layers",
    "decoder.n_heads": "decoder_attention_heads",
    "decoder.max_target_positions": "max_target_positions",
    "decoder.vocab_size": "vocab_size",
    "decoder.scale_embedding": "scale_embedding",
    "suppress_tokens": "suppress_tokens",
    "begin_suppress_tokens": "begin_suppress_tokens",
}


def with_config(checkpoint: Checkpoint) -> Checkpoint:
    """A GGUF checkpoint whose config has transformers' keys, and whose vocabulary is in bytes.

    Raises CheckpointError for tokens that are not byte-level.
    """
    metadata = checkpoint.config
    config: dict[str, Any] = {
        key: metadata[f"stt.whisper.{theirs}"]
        for theirs, key in _KEYS.items()
        if f"stt.whisper.{theirs}" in metadata
    }
    if not config:
        return replace(checkpoint, config=read_json(checkpoint.folder / "config.json"))
    tokens = metadata.get(TOKENS)
    if tokens is None:
        return replace(checkpoint, config=config)
    if not isinstance(tokens, list) or END_OF_TEXT not in tokens:
        raise CheckpointError(checkpoint.path, f"its {TOKENS} are not Whisper's")
    text = tokens[: tokens.index(END_OF_TEXT)]
    vocabulary = (*token_bytes(text, checkpoint.path), END_OF_TEXT.encode())
    return replace(checkpoint, config=config, vocabulary=vocabulary)
