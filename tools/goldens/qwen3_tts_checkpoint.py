"""Random Qwen3-TTS checkpoints in the published layout: tokenizer, configurations, weights, sound.

The talker is bfloat16 and the codec float32, as released. Specials of the tiny vocabulary follow
its last word; the talker keeps 1024 special ids above its codes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from whisper_weights import rng_for

Rule = Callable[[str, tuple[int, ...], np.random.Generator], np.ndarray]

WORDS = (
    *("assistant", "user", " the", " voice", " speak", "ing", "Hello", " you", "er", " a", "ow"),
    *("'ll", "Case", " slow", "\n\n", "  ", "eB", "你好", "é"),
)
SPECIALS = (
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|audio_start|>", "<|audio_end|>"),
    *("<tts_pad>", "<tts_text_bos>", "<tts_text_eod>", "<tts_text_bos_single>", "<|audio_pad|>"),
)
LANGUAGES = {
    "chinese": 7, "english": 2, "german": 5, "italian": 22, "portuguese": 23, "spanish": 6,
    "japanese": 10, "korean": 16, "french": 13, "russian": 21,
}  # fmt: skip
DIALECTS = {"beijing_dialect": 26, "sichuan_dialect": 14}
GENERATION = {
    "do_sample": True, "repetition_penalty": 1.05, "temperature": 0.9, "top_p": 1.0, "top_k": 50,
    "subtalker_dosample": True, "subtalker_temperature": 0.9, "subtalker_top_p": 1.0,
    "subtalker_top_k": 50, "max_new_tokens": 8192,
}  # fmt: skip


def dump(path: Path, value: Any) -> None:
    """JSON, ended by a line break."""
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", "utf-8")


# Text


def byte_alphabet() -> dict[int, str]:
    """GPT-2's letters for bytes."""
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in keep]
    letters = {b: chr(b) for b in keep} | {b: chr(256 + i) for i, b in enumerate(others)}
    return {b: letters[b] for b in range(256)}


def write_tokenizer(folder: Path) -> tuple[dict[str, int], int, int]:
    """vocab.json, merges.txt, tokenizer_config.json; ids of the specials, of `assistant`, and how
    many there are."""
    letters = byte_alphabet()
    order = sorted(letters, key=lambda b: letters[b] != chr(b))
    vocab = {letters[b]: i for i, b in enumerate(order)}
    merges: list[tuple[str, str]] = []
    for word in WORDS:
        symbols = [letters[b] for b in word.encode()]
        while len(symbols) > 1:
            pair = symbols[0], symbols[1]
            if pair not in merges:
                merges.append(pair)
                vocab.setdefault(pair[0] + pair[1], len(vocab))
            symbols = [pair[0] + pair[1], *symbols[2:]]
    ids = {name: len(vocab) + i for i, name in enumerate(SPECIALS)}
    (folder / "vocab.json").write_text(json.dumps(vocab, ensure_ascii=False), "utf-8")
    lines = "".join(f"{a} {b}\n" for a, b in merges)
    (folder / "merges.txt").write_text("#version: 0.2\n" + lines, "utf-8")
    flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
    added = {str(i): {"content": name, **flags, "special": True} for name, i in ids.items()}
    config = {
        "add_bos_token": False, "add_prefix_space": False, "clean_up_tokenization_spaces": False,
        "errors": "replace", "model_max_length": 131072, "tokenizer_class": "Qwen2Tokenizer",
        "bos_token": None, "unk_token": None, "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>", "split_special_tokens": False,
        "additional_special_tokens": list(SPECIALS[1:]), "added_tokens_decoder": added,
    }  # fmt: skip
    dump(folder / "tokenizer_config.json", config)
    return ids, vocab["assistant"], len(vocab) + len(SPECIALS)


# Sound


def voice(count: int, seed: int, pitch: float = 140.0) -> np.ndarray:
    """Something like a voice: float32 at 24 kHz, peak 0.8."""
    rng = rng_for(seed, "voice", count, str(pitch))
    t = np.arange(count) / 24000.0
    frequency = pitch * (1 + 0.15 * np.sin(2 * np.pi * 1.7 * t + rng.uniform(0, 6)))
    phase = 2 * np.pi * np.cumsum(frequency) / 24000.0
    x = np.zeros(count)
    for k in range(1, 14):
        x += np.sin(k * phase + rng.uniform(0, 6)) * rng.uniform(0.2, 1.0) / k
    slow, quick = (np.sin(2 * np.pi * rate * t + rng.uniform(0, 6)) for rate in (2.3, 5.1))
    x = x * (0.35 + 0.3 * slow + 0.25 * quick) + 0.05 * rng.standard_normal(count)
    return (0.8 * x / np.abs(x).max()).astype(np.float32)


# Configurations


def codec_config(z: dict[str, Any]) -> dict[str, Any]:
    """speech_tokenizer/config.json, decoys included."""
    hop = int(np.prod(z["rates"] + z["ratios"]))
    if hop != 2 * int(np.prod(z["eratios"])):
        raise ValueError(f"{z} does not upsample as much as it downsamples")
    encoder = {
        "_frame_rate": 24000 / hop, "attention_bias": False, "attention_dropout": 0.0,
        "audio_channels": 1, "codebook_dim": z["vq"], "codebook_size": z["codebook"],
        "compress": 2, "dilation_growth_rate": 2, "head_dim": z["ehd"], "hidden_act": "gelu",
        "hidden_size": z["ehid"], "initializer_range": 0.02, "intermediate_size": z["einter"],
        "kernel_size": 7, "last_kernel_size": 3, "layer_scale_initial_scale": 0.01,
        "max_position_embeddings": 8000, "norm_eps": 1e-05, "num_attention_heads": z["eheads"],
        "num_filters": z["filters"], "num_hidden_layers": z["elayers"],
        "num_key_value_heads": z["ekv"], "num_quantizers": z["enc_q"], "num_residual_layers": 1,
        "num_semantic_quantizers": 1, "pad_mode": "constant", "residual_kernel_size": 3,
        "rope_theta": 10000.0, "sampling_rate": 24000, "sliding_window": 250,
        "trim_right_ratio": 1.0, "upsample_groups": z["ehid"], "upsampling_ratios": z["eratios"],
        "use_cache": False, "use_causal_conv": True, "use_conv_shortcut": False,
        "use_streaming": False, "vector_quantization_hidden_dimension": z["vq"],
    }  # fmt: skip
    decoder = {
        "attention_bias": False, "attention_dropout": 0.0, "latent_dim": z["latent"],
        "codebook_dim": z["cdim"], "codebook_size": z["codebook"], "decoder_dim": z["ddim"],
        "hidden_act": "silu", "hidden_size": z["hid"], "intermediate_size": z["inter"],
        "layer_scale_initial_scale": 0.01, "max_position_embeddings": 8000, "head_dim": z["hd"],
        "num_attention_heads": z["heads"], "num_hidden_layers": z["layers"],
        "num_key_value_heads": z["kv"], "num_quantizers": z["groups"],
        "num_semantic_quantizers": 1, "rms_norm_eps": 1e-05, "rope_theta": 10000,
        "semantic_codebook_size": 2 * z["codebook"], "sliding_window": z["win"],
        "upsample_rates": z["rates"], "upsampling_ratios": z["ratios"],
        "vector_quantization_hidden_dimension": z["cdim"],
    }  # fmt: skip
    return {
        "architectures": ["Qwen3TTSTokenizerV2Model"], "model_type": "qwen3_tts_tokenizer_12hz",
        "encoder_config": encoder, "decoder_config": decoder,
        "encoder_valid_num_quantizers": z["groups"], "input_sample_rate": 24000,
        "output_sample_rate": 24000, "decode_upsample_rate": hop, "encode_downsample_rate": hop,
        "transformers_version": "4.57.3",
    }  # fmt: skip


def stack_config(t: dict[str, Any]) -> dict[str, Any]:
    """What talker and predictor have in common."""
    return {
        "attention_bias": False, "attention_dropout": 0, "head_dim": t["hd"], "hidden_act": "silu",
        "hidden_size": t["H"], "initializer_range": 0.02, "intermediate_size": t["inter"],
        "num_attention_heads": t["heads"], "num_hidden_layers": t["L"],
        "num_key_value_heads": t["kv"], "rms_norm_eps": 1e-06, "rope_theta": 1000000,
        "sliding_window": None, "use_cache": True, "use_sliding_window": False,
    }  # fmt: skip


def talker_config(
    t: dict[str, Any],
    kind: str,
    ids: dict[str, int],
    assistant: int,
    texts: int,
    z: dict[str, Any],
) -> dict[str, Any]:
    """config.json."""
    codes, predictor = z["codebook"], t["cp"]
    vocabulary, half = codes + 1024, t["hd"] // 2
    section = max(1, half * 20 // 64)
    languages, speakers, dialects = dict(LANGUAGES), {}, {}
    if kind == "custom_voice":
        languages |= DIALECTS
        speakers = {"serena": vocabulary - 6, "vivian": vocabulary - 7, "ryan": vocabulary - 11}
        dialects = dict.fromkeys(speakers, False)
        speakers |= {"eric": codes + 827, "dylan": codes + 830}
        dialects |= {"eric": "sichuan_dialect", "dylan": "beijing_dialect"}
    talker = stack_config(t) | {
        "code_predictor_config": stack_config(predictor) | {
            "layer_types": ["full_attention"] * predictor["L"], "max_position_embeddings": 65536,
            "max_window_layers": 28, "model_type": "qwen3_tts_talker_code_predictor",
            "num_code_groups": z["groups"], "rope_scaling": None, "tie_word_embeddings": False,
            "vocab_size": codes,
        },
        "codec_pad_id": codes + 100, "codec_bos_id": codes + 101, "codec_eos_token_id": codes + 102,
        "codec_think_id": codes + 106, "codec_nothink_id": codes + 107,
        "codec_think_bos_id": codes + 108, "codec_think_eos_id": codes + 109,
        "codec_language_id": {name: codes + id for name, id in languages.items()},
        "max_position_embeddings": 32768, "model_type": "qwen3_tts_talker",
        "num_code_groups": z["groups"], "position_id_per_seconds": 13,
        "rope_scaling": {
            "interleaved": True, "mrope_section": [half - 2 * section, section, section],
            "rope_type": "default", "type": "default",
        },
        "spk_id": speakers, "spk_is_dialect": dialects, "text_hidden_size": t["TH"],
        "text_vocab_size": texts, "vocab_size": vocabulary,
    }  # fmt: skip
    config = {
        "architectures": ["Qwen3TTSForConditionalGeneration"], "assistant_token_id": assistant,
        "im_end_token_id": ids["<|im_end|>"], "im_start_token_id": ids["<|im_start|>"],
        "tts_bos_token_id": ids["<tts_text_bos>"], "tts_eos_token_id": ids["<tts_text_eod>"],
        "tts_pad_token_id": ids["<tts_pad>"], "model_type": "qwen3_tts",
        "tokenizer_type": "qwen3_tts_tokenizer_12hz", "tts_model_size": t["size"],
        "tts_model_type": kind, "talker_config": talker, "transformers_version": "4.57.3",
    }  # fmt: skip
    if kind == "base":
        s = t["spk"]
        config["speaker_encoder_config"] = {
            "enc_dim": t["H"], "sample_rate": 24000, "enc_channels": s["ch"],
            "enc_kernel_sizes": s["ks"], "enc_dilations": s["dil"],
            "enc_attention_channels": s["att"], "enc_res2net_scale": s["scale"],
            "enc_se_channels": s["se"],
        }  # fmt: skip
    return config


# Weights


def fill(
    state: dict[str, torch.Tensor], seed: int, tag: str, rule: Rule
) -> dict[str, torch.Tensor]:
    """Every tensor by a rule, each from its own generator."""
    filled = {}
    for name, tensor in state.items():
        values = rule(name, tuple(tensor.shape), rng_for(seed, tag, name))
        filled[name] = torch.from_numpy(np.ascontiguousarray(values).astype(np.float32))
    return filled


def fan(shape: tuple[int, ...]) -> int:
    """Inputs of an output."""
    return int(np.prod(shape[1:])) if len(shape) > 1 else shape[0]


def talker_rule(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Weights that keep hidden states of order one and logits apart."""
    n = rng.standard_normal(shape)
    if name.endswith(("q_norm.weight", "k_norm.weight")):
        return 1.3 * (1 + 0.15 * n)
    if name.endswith("norm.weight"):
        return 1 + 0.1 * n
    if name.startswith("speaker_encoder."):
        gain = 0.6 if name.endswith("fc.weight") else 1.4
        return 0.1 * n if name.endswith(".bias") else n * gain / np.sqrt(fan(shape))
    if name.endswith(".bias"):
        return 0.1 * n
    if "text_embedding" in name or name == "talker.model.codec_embedding.weight":
        return 0.6 * n
    if "code_predictor.model.codec_embedding" in name:
        return 0.3 * n
    if "codec_head" in name or "lm_head" in name:
        return 4.0 * n / np.sqrt(shape[1])
    gain = 0.8 if name.endswith(("o_proj.weight", "down_proj.weight")) else 1.3
    return gain * n / np.sqrt(shape[1])


def codec_rule(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """The codec's; its scale is set afterwards. One row of a codebook was never used."""
    n = rng.standard_normal(shape)
    if name.endswith("initialized"):
        return np.ones(shape)
    if name.endswith("cluster_usage"):
        usage = rng.uniform(0.5, 3.0, shape)
        usage[3] = 0.0  # below the floor of 1e-5: to be clamped, not divided by
        return usage
    if name.endswith(("embedding_sum", "embed_sum")):
        return n  # multiplied by the usage afterwards
    if name.endswith(("_layer_scale.scale", ".gamma")):
        return 0.4 + 0.1 * n
    if name.endswith((".alpha", ".beta")):
        return 0.3 * n + (0.4 if name.endswith("beta") else 0.0)
    if "norm" in name and name.endswith("weight"):
        return 1 + 0.1 * n
    if name.endswith(".bias"):
        return 0.05 * n
    upsampling = "upsample" in name and name.endswith("0.conv.weight")
    if upsampling or (".block.1.conv.weight" in name and name.startswith("decoder")):
        return n / np.sqrt(shape[0] * 2)  # transposed: an output sees two taps
    if name.startswith("decoder.decoder.") and name.endswith("conv2.conv.weight"):
        return 0.35 * n / np.sqrt(fan(shape))  # the residual chain must not amplify rounding
    return n / np.sqrt(fan(shape))
