"""Random Parakeets that speak: labels, tokenizer, configuration and weights."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    ParakeetCTCConfig,
    ParakeetFeatureExtractor,
    ParakeetForCTC,
    ParakeetForRNNT,
    ParakeetForTDT,
    ParakeetRNNTConfig,
    ParakeetTDTConfig,
)
from transformers.models.parakeet import ParakeetProcessor, ParakeetTokenizer

SPACE = "\u2581"
LETTERS = list("etaoinshrdlucmfwygpbvk")
PUNCTUATION = [".", ",", "?", "'", "!", "-"]
WORDS = (
    "the of and to in that is was for it with as his on be at by had not are but from or have an "
    "they which one you were her all she there would their we him been has when who will more if "
    "out so said what up its about into than them can only other new some could time these two may"
).split()


def draw_pieces(kind: str, count: int, rng: np.random.Generator) -> tuple[list[str], list]:
    """A vocabulary as SentencePiece's BPE makes it, and its merges: control pieces, merged pieces,
    single characters."""
    head = ["<unk>"] + ([] if kind == "ctc" else ["<|nospeech|>", "<pad>"])
    characters = [SPACE, *LETTERS, *PUNCTUATION]
    merged: list[str] = []
    merges: list[tuple[str, str]] = []
    words = list(WORDS)
    rng.shuffle(words)
    room = count - len(head) - len(characters)
    for word in words:
        current = SPACE
        for letter in word:
            if letter not in LETTERS or (len(merged) >= room and current + letter not in merged):
                break
            if current + letter not in merged:
                merged.append(current + letter)
                merges.append((current, letter))
            current += letter
    return head + merged + characters, merges


def write_tokenizer(
    folder: Path, kind: str, pieces: list[str], merges: list, features: ParakeetFeatureExtractor
) -> ParakeetProcessor:
    """tokenizer.json and the processor's files; the blank follows the pieces (CTC's is <pad>)."""
    vocabulary = {piece: id for id, piece in enumerate(pieces)}
    model = models.BPE(vocab=vocabulary, merges=merges, unk_token="<unk>", fuse_unk=True)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(replacement=SPACE, prepend_scheme="always")
    special = ["<unk>", "<pad>"] if kind == "ctc" else ["<unk>", "<|nospeech|>", "<pad>", "<blank>"]
    tokenizer.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in special])
    assert tokenizer.token_to_id(special[-1]) == len(pieces)
    wrapped = ParakeetTokenizer(
        tokenizer_object=tokenizer,
        unk_token="<unk>",
        pad_token="<pad>",
        clean_up_tokenization_spaces=False,
    )
    processor = ParakeetProcessor(
        feature_extractor=features,
        tokenizer=wrapped,
        decoder_type=kind,
        blank_token=special[-1],
    )
    processor.save_pretrained(folder)
    features.save_pretrained(folder)  # the older layout beside the newer
    return processor


def make_model(p: dict[str, Any], labels: int) -> Any:
    """An untrained model of these sizes; `labels` with the blank."""
    encoder = {
        "hidden_size": p["d"],
        "num_hidden_layers": p["layers"],
        "num_attention_heads": p["heads"],
        "intermediate_size": 4 * p["d"],
        "num_mel_bins": p["mels"],
        "subsampling_conv_channels": p["chan"],
        "subsampling_factor": p["sub"],
        "conv_kernel_size": p["kernel"],
        "attention_bias": p["bias"],
        "convolution_bias": p["bias"],
        "scale_input": p["scale"],
    }
    if p["kind"] == "ctc":
        config = ParakeetCTCConfig(
            vocab_size=labels, pad_token_id=labels - 1, encoder_config=encoder
        )
        model = ParakeetForCTC(config)
    else:
        sizes = {"vocab_size": labels, "pad_token_id": 2, "blank_token_id": labels - 1}
        sizes |= {"decoder_hidden_size": p["hid"], "num_decoder_layers": p["lstm"]}
        sizes |= {"max_symbols_per_step": 10, "encoder_config": encoder}
        if p["kind"] == "tdt":
            model = ParakeetForTDT(ParakeetTDTConfig(durations=list(p["dur"]), **sizes))
        else:
            model = ParakeetForRNNT(ParakeetRNNTConfig(**sizes))
    for config in (model.config, model.encoder.config):
        config._attn_implementation = "eager"
    return model.eval()


def set_weights(model: Any, rng: np.random.Generator, embedding: float, head: float) -> None:
    """Random weights; the blank's row of the embedding is zero, as NeMo pads it."""
    for name, parameter in model.named_parameters():
        value = _drawn(name, tuple(parameter.shape), rng, embedding, head)
        if "decoder.embedding" in name:
            value[-1] = 0
        parameter.data.copy_(torch.from_numpy(np.asarray(value, np.float32)))
    for name, buffer in model.named_buffers():
        shape = tuple(buffer.shape)
        if name.endswith("running_mean"):
            buffer.copy_(torch.from_numpy((0.2 * rng.standard_normal(shape)).astype(np.float32)))
        elif name.endswith("running_var"):
            buffer.copy_(torch.from_numpy(rng.uniform(0.5, 2.0, shape).astype(np.float32)))


def _drawn(
    name: str, shape: tuple[int, ...], rng: np.random.Generator, embedding: float, head: float
) -> np.ndarray:
    leaf = name.split(".")[-1]
    noise = rng.standard_normal(shape)
    if leaf in ("bias_u", "bias_v"):
        return 0.4 * noise
    if ".norm" in name or "norm_" in name:
        return 1 + 0.2 * noise if leaf == "weight" else 0.1 * noise
    if "decoder.embedding" in name:
        return embedding * noise
    if "lstm" in name:
        return noise * (1.5 / math.sqrt(shape[1]) if "weight" in leaf else 0.3)
    if leaf == "bias":
        return 0.1 * noise
    gain = 1.4
    if "joint.head" in name or "ctc_head" in name:
        gain = head
    elif "subsampling" in name:
        gain = 1.5
    elif "o_proj" in name or "pointwise_conv2" in name:
        gain = 2.2
    return noise * gain / math.sqrt(int(np.prod(shape[1:])))


def calibrate(
    linear: torch.nn.Linear, inputs: torch.Tensor, rng: np.random.Generator, scale: float
) -> None:
    """Over the rows of `inputs`, every output gets mean near 0 and standard deviation `scale`."""
    outputs = inputs @ linear.weight.T
    linear.weight.mul_(scale / outputs.std(0, keepdim=True).T)
    noise = (0.1 * rng.standard_normal(linear.bias.shape[0])).astype(np.float32)
    linear.bias.copy_(-(inputs @ linear.weight.T).mean(0) + torch.from_numpy(noise))


def round_to(model: Any, dtype: torch.dtype) -> None:
    """Every stored number as `dtype` has it, still computing in float32."""
    if dtype != torch.float32:
        for tensor in model.state_dict().values():
            if tensor.is_floating_point():
                tensor.data.copy_(tensor.data.to(dtype).float())


def save_model(model: Any, folder: Path, dtype: torch.dtype) -> None:
    """As transformers does, in the type it is to be stored in."""
    if dtype == torch.float32:
        model.save_pretrained(folder)
        return
    state = {
        name: value.to(dtype) if value.is_floating_point() else value
        for name, value in model.state_dict().items()
    }
    model.save_pretrained(folder, state_dict=state)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["dtype"] = str(dtype).removeprefix("torch.")
    path.write_text(json.dumps(config, indent=2))
