"""Qwen3-TTS cases, in the format of the official classes' oracles: meta.json says what was asked,
expected.npz holds every array, ckpt/ is a small random checkpoint with released files' layout.

A stage is fed the golden input of that stage, so that a difference shows where it arises.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from checks import qwen3_codec
from checks.qwen3_case import Case
from checks.qwen3_sampler import check_sampler
from checks.qwen3_talker import check_talker
from checks.report import Report
from oscine.dtypes import BFLOAT16, bf16_to_f32
from oscine.models.qwen3_tts.released import CODEC_FOLDER
from oscine.models.qwen3_tts.weights import Qwen3TtsWeights, load_weights
from oscine.ops import Backend
from oscine.text.qwen import QwenTokenizer
from oscine.weights import read_checkpoint


def check(folder: Path, backend: Backend, report: Report) -> None:
    """Compare one case."""
    checkpoint = folder / "ckpt"
    if (checkpoint / "model.safetensors").is_file() and not (checkpoint / CODEC_FOLDER).is_dir():
        qwen3_codec.check(folder, backend, report)
        return
    meta = json.loads((folder / "meta.json").read_text("utf-8"))
    with np.load(folder / "expected.npz") as stored:
        arrays = dict(stored)
    if (checkpoint / CODEC_FOLDER).is_dir():
        weights, tokenizer = load_weights(checkpoint), QwenTokenizer.load(checkpoint)
        report.begin(folder.name, f"{weights.config}, stored {weights.dtype}")
        check_weights(weights, report)
        case = Case(folder, meta, arrays, weights, tokenizer)
        compared = check_talker(case, backend, report)
        if weights.speaker is not None:
            compared |= qwen3_codec.check_references(weights, arrays, backend, report)
    elif checkpoint.is_dir():
        report.begin(folder.name, f"{len(meta['texts'])} texts")
        compared = check_text(arrays, meta["texts"], QwenTokenizer.load(checkpoint), report)
    else:
        report.begin(folder.name, f"{len(meta['cases'])} rows of logits")
        compared = check_sampler(meta["cases"], arrays, backend, report)
    report.not_yet(name for name in arrays if name not in compared)


def check_text(
    arrays: dict[str, np.ndarray], texts: list[str], tokenizer: QwenTokenizer, report: Report
) -> set[str]:
    """Ids of every text, special tokens parsed as upstream does."""
    for index, text in enumerate(texts):
        ids = tokenizer.encode(text, allow_special=True)
        report.same(f"t{index}/ids", ids, arrays[f"t{index}/ids"].tolist())
    # Of the pattern that upstream takes by mistake for a local folder.
    return {f"t{index}/{part}" for index in range(len(texts)) for part in ("ids", "ids_patched")}


def check_weights(weights: Qwen3TtsWeights, report: Report) -> None:
    """What was joined and what was kept against the file's own tensors."""
    entries, q = read_checkpoint(weights.path).tensors, weights.config.talker.q_size
    block = weights.talker.layers[-1]
    at = f"talker.model.layers.{weights.config.talker.num_hidden_layers - 1}"
    for name, rows, got in (
        ("self_attn.q_proj", slice(None, q), block.qkv_proj.weight),
        ("self_attn.v_proj", slice(-weights.config.talker.kv_size, None), block.qkv_proj.weight),
        (
            "mlp.up_proj",
            slice(weights.config.talker.intermediate_size, None),
            block.gate_up_proj.weight,
        ),
    ):
        wide = bf16_to_f32(got) if got.dtype == BFLOAT16 else got
        report.array(name, wide[rows], entries[f"{at}.{name}.weight"].read(), 0.0)
