"""Random weights that talk, and the configurations that go with them."""

from __future__ import annotations

import json
import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import GenerationConfig, WhisperConfig, WhisperForConditionalGeneration

SYMBOLS = '"#()*+/:;<=>@[\\]^_`{|}~'
NEVER_PICKED = ("translate", "transcribe", "startoflm", "startofprev")


def rng_for(*key: int | str) -> np.random.Generator:
    """A generator of its own for every purpose."""
    numbers = [zlib.crc32(part.encode()) if isinstance(part, str) else part for part in key]
    return np.random.default_rng(numbers)


def draw_recipe(rng: np.random.Generator, ids: dict[str, int], p: dict) -> dict[str, Any]:
    """What makes one set of random weights talkative, timed and finite."""
    return {
        "eot": ids["<|endoftext|>"],
        "ts": ids["<|0.00|>"],
        "e_ts": rng.uniform(*p["e_ts"]),
        "pos": rng.uniform(1.4, 2.4),
        "gain": rng.uniform(2.2, 3.2),
        "g_fc2": rng.uniform(1.5, 2.5),
        "p_eot": int(rng.integers(17, 34)),
        "ph": int(rng.integers(0, 17)),
        "c_eot": rng.uniform(25, 60),
        "p_ts": int(rng.integers(5, 10)),
        "ph_ts": int(rng.integers(0, 5)),
        "c_ts": rng.uniform(8, 30),
    }


def unit(vector: np.ndarray) -> np.ndarray:
    """Of length one."""
    return vector / np.linalg.norm(vector)


def embedding_rows(
    shape: tuple[int, ...],
    rng: np.random.Generator,
    recipe: dict[str, Any],
    stamps: np.ndarray,
    ending: np.ndarray,
) -> np.ndarray:
    """Small text rows; end-of-text and the timestamps along directions of their own."""
    width = shape[1]
    value = rng.standard_normal(shape) / math.sqrt(width)
    value[recipe["eot"]] = ending
    value[recipe["eot"] + 1 : recipe["ts"]] *= 0.3
    count = shape[0] - recipe["ts"]
    turn = np.cos(np.arange(count) * 3.0 / count)
    arc = np.outer(turn, unit(rng.standard_normal(width)))
    noise = recipe["e_ts"] * rng.standard_normal((count, width)) / math.sqrt(width)
    value[recipe["ts"] :] = 0.45 * stamps + 0.35 * arc + noise
    return value


def position_rows(
    shape: tuple[int, ...],
    rng: np.random.Generator,
    recipe: dict[str, Any],
    stamps: np.ndarray,
    ending: np.ndarray,
) -> np.ndarray:
    """Random, with a push now and then."""
    value = rng.standard_normal(shape) * recipe["pos"]
    row = np.arange(shape[0])
    for phase, period, push, way in (
        ("ph", "p_eot", "c_eot", ending),
        ("ph_ts", "p_ts", "c_ts", stamps),
    ):
        due = (row + recipe[phase]) % recipe[period] == 0
        value += np.outer(np.where(due, recipe[push], -0.5), way)
    return value


def set_weights(
    model: WhisperForConditionalGeneration, rng: np.random.Generator, recipe: dict[str, Any]
) -> None:
    """Random weights whose greedy decoding is varied and ends by itself.

    Small tied embeddings and a large gain of the last norm keep the previous token from winning;
    position rows are pushed, now and then, towards end-of-text and towards a direction that all
    timestamps share, so that the sum over timestamps wins without one of them winning alone.
    """
    width = model.config.d_model
    matrix_gains = {"fc2": recipe["g_fc2"], "q_proj": 1.8, "k_proj": 1.8}
    matrix_gains |= {"out_proj": 1.5, "v_proj": 1.4}

    stamps, ending = unit(rng.standard_normal(width)), unit(rng.standard_normal(width))
    for name, parameter in model.named_parameters():
        shape = tuple(parameter.shape)
        if "encoder.embed_positions" in name:
            continue  # sinusoids, set by the model
        if "layer_norm" in name:
            noise = rng.standard_normal(shape)
            value = 1 + 0.15 * noise if name.endswith("weight") else 0.1 * noise
            if name == "model.decoder.layer_norm.weight":
                value *= recipe["gain"]
        elif "embed_tokens" in name:
            value = embedding_rows(shape, rng, recipe, stamps, ending)
        elif "embed_positions" in name:
            value = position_rows(shape, rng, recipe, stamps, ending)
        elif name.endswith("bias"):
            value = 0.1 * rng.standard_normal(shape)
        else:
            gain = matrix_gains.get(name.split(".")[-2], 1.3)
            value = rng.standard_normal(shape) * gain / math.sqrt(np.prod(shape[1:]))
        parameter.data.copy_(torch.from_numpy(np.asarray(value, np.float32)))


def model_config(p: dict, ids: dict[str, int]) -> WhisperConfig:
    """The case's sizes as transformers wants them."""
    end = ids["<|endoftext|>"]
    config = WhisperConfig(
        vocab_size=max(ids.values()) + 1,
        num_mel_bins=p["mels"],
        d_model=p["d"],
        encoder_layers=p["enc"],
        decoder_layers=p["dec"],
        encoder_attention_heads=p["heads"],
        decoder_attention_heads=p["heads"],
        encoder_ffn_dim=4 * p["d"],
        decoder_ffn_dim=4 * p["d"],
        max_source_positions=p["msp"],
        max_target_positions=p["mtp"],
        pad_token_id=end,
        bos_token_id=end,
        eos_token_id=end,
        decoder_start_token_id=ids["<|startoftranscript|>"],
        begin_suppress_tokens=[220, end],
        median_filter_width=7,
    )
    config._attn_implementation = "eager"  # gives the attention weights
    return config


def generation_config(p: dict, ids: dict[str, int], tokenizer: Any) -> GenerationConfig:
    """Suppression lists, alignment heads and special ids, as checkpoints carry them."""
    end, start = ids["<|endoftext|>"], ids["<|startoftranscript|>"]
    symbols = {tokenizer.encode(s, add_special_tokens=False).ids[0] for s in SYMBOLS}
    names = (*NEVER_PICKED, p["nospeech"])
    config = GenerationConfig(
        decoder_start_token_id=start,
        eos_token_id=end,
        bos_token_id=end,
        pad_token_id=end,
        suppress_tokens=sorted(symbols | {start, *(ids[f"<|{name}|>"] for name in names)}),
        begin_suppress_tokens=[220, end],
        max_length=p["mtp"],
        return_timestamps=False,
    )
    half, layers = p["dec"] // 2, range(p["dec"])
    pairs = [[at, head] for at in layers[half:] for head in range(p["heads"])]
    config.alignment_heads = [pair for pair in pairs if sum(pair) % 2 == 0][:4]
    config.no_timestamps_token_id = ids["<|notimestamps|>"]
    config.max_initial_timestamp_index = min(50, p["msp"] // 4)
    config.is_multilingual, config.prev_sot_token_id = p["multi"], ids["<|startofprev|>"]
    if p["multi"]:
        config.lang_to_id = {f"<|{code}|>": ids[f"<|{code}|>"] for code in p["langs"]}
        config.task_to_id = {name: ids[f"<|{name}|>"] for name in ("translate", "transcribe")}
    return config


def save_model(model: Any, folder: Path, dtype: torch.dtype, shard: str | None) -> None:
    """Write a checkpoint as transformers does, in one file or several."""
    how = {"max_shard_size": shard} if shard else {}
    state = {name: value.to(dtype) for name, value in model.state_dict().items()}
    model.save_pretrained(folder, state_dict=dict(state), **how)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["dtype"] = str(dtype).removeprefix("torch.")
    path.write_text(json.dumps(config, indent=2))
