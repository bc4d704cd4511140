"""A random Qwen3-TTS checkpoint in a released size and layout, written on the spot."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from oscine.models.loader import ShapeCheckLoader
from oscine.models.qwen3_tts.codec_weights import build_codec
from oscine.models.qwen3_tts.config import read_codec_config, read_config
from oscine.models.qwen3_tts.weights import build_networks
from oscine.weights import read_checkpoint

#: Talker width, its feed-forward: MODELS/qwen3_tts.md.
SIZES = {"0.6b": (1024, 3072, "0b6"), "1.7b": (2048, 6144, "1b7")}
SPECIALS = {
    "<|endoftext|>": 151643, "<|im_start|>": 151644, "<|im_end|>": 151645, "<tts_pad>": 151671,
    "<tts_text_bos>": 151672, "<tts_text_eod>": 151673,
}  # fmt: skip
ASSISTANT = 77091
LANGUAGES = {"chinese": 2055, "english": 2050, "german": 2053, "italian": 2070, "portuguese": 2071,
             "spanish": 2054, "japanese": 2058, "korean": 2064, "french": 2061, "russian": 2069,
             "beijing_dialect": 2074, "sichuan_dialect": 2062}  # fmt: skip
NOISE = 1 << 22  # values that all tensors are cut from: to draw billions takes longer than all else
END = 2150
#: A configuration is read beside its tensors, of which it wants some: any do for that.
SOME: dict[str, tuple[int, ...]] = {str(i): (1,) for i in range(500)}


@contextmanager
def checkpoint(size: str, keep: Path | None) -> Iterator[Path]:
    """The folder of a size below `keep`, made where it is not there; without it, for now only."""
    if keep is not None:
        if not (keep / size).exists():
            write(keep / size, size)
        yield keep / size
        return
    with tempfile.TemporaryDirectory() as scratch:
        write(Path(scratch) / size, size)
        yield Path(scratch) / size


def write(folder: Path, size: str) -> None:
    """custom_voice in a released size: bfloat16 talker, float32 codec; it never ends by itself."""
    noise, codec = random_values(), folder / "speech_tokenizer"
    write_codec(codec, noise)
    width, inner, short = SIZES[size]
    dump(folder / "config.json", configuration(width, inner, short))
    dump(folder / "generation_config.json", {"max_new_tokens": 8192})
    write_tokenizer(folder)
    write_tensors(folder / "model.safetensors", SOME, noise, "F32")
    networks = ShapeCheckLoader(folder, {})
    build_networks(networks, read_config(read_checkpoint(folder), read_checkpoint(codec)))
    write_tensors(folder / "model.safetensors", networks.expected, noise, "BF16")


def write_codec(folder: Path, noise: np.ndarray) -> None:
    """The codec that all released sizes have, float32."""
    folder.mkdir(parents=True, exist_ok=True)
    dump(folder / "config.json", codec_configuration())
    listens = {"feature_extractor_type": "EncodecFeatureExtractor", "sampling_rate": 24000}
    dump(folder / "preprocessor_config.json", listens)
    write_tensors(folder / "model.safetensors", SOME, noise, "F32")
    codec = ShapeCheckLoader(folder, {})
    build_codec(codec, read_codec_config(read_checkpoint(folder)))
    write_tensors(folder / "model.safetensors", codec.expected | codec.optional, noise, "F32")


def random_values() -> np.ndarray:
    """What all tensors are cut from."""
    return np.random.default_rng(0).standard_normal(NOISE, np.float32)


def dump(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value), "utf-8")


def write_tensors(
    path: Path, shapes: dict[str, tuple[int, ...]], noise: np.ndarray, kind: str
) -> None:
    """A safetensors file, tensor after tensor."""
    item, at, header = 4 if kind == "F32" else 2, 0, {}
    for name, shape in shapes.items():
        end = at + item * int(np.prod(shape))
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, shape in shapes.items():
            for block in values(name, shape, noise, kind):
                file.write(block)


def values(
    name: str, shape: tuple[int, ...], noise: np.ndarray, kind: str
) -> Iterator[memoryview | bytes]:
    """A tensor's bytes: norms and usages 1, biases and Snake's logarithms 0, scales small, the rest
    noise that keeps what passes through it of one size."""
    count = int(np.prod(shape))
    if name.endswith(("norm.weight", "cluster_usage", "initialized")):
        whole = np.ones(count, np.float32)
    elif name.endswith((".bias", ".alpha", ".beta")):
        whole = np.zeros(count, np.float32)
    elif name.endswith(("_scale.scale", ".gamma")):
        whole = np.full(count, 0.1, np.float32)
    else:
        embedding = "embed" in name
        inputs = shape[0] * 2 if "block.1.conv.weight" in name else int(np.prod(shape[1:]))
        scale = np.float32(0.05 if embedding else inputs**-0.5)
        yield from cut(noise * scale, count, kind, shape[-1] if "codec_head" in name else 0)
        return
    yield stored(whole, kind)


def cut(scaled: np.ndarray, count: int, kind: str, row: int) -> Iterator[bytes]:
    """`count` values of the noise, over and over; of a head with rows of `row` values the end's is
    left at zero, so that it is never among the likeliest."""
    if row:
        whole = np.resize(scaled, count).reshape(-1, row)
        whole[END] = 0
        yield stored(whole, kind)
        return
    part = stored(scaled, kind)
    size = len(part) // len(scaled)
    for start in range(0, count, len(scaled)):
        yield part[: size * min(len(scaled), count - start)]


def stored(array: np.ndarray, kind: str) -> bytes:
    """As the file has it."""
    if kind == "BF16":
        return (np.ascontiguousarray(array).view(np.uint32) >> 16).astype("<u2").tobytes()
    return array.astype("<f2" if kind == "F16" else "<f4").tobytes()


def write_tokenizer(folder: Path) -> None:
    """Bytes as they are, `assistant` and a line break: a text costs a token a letter."""
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = [chr(b) for b in keep] + [chr(256 + i) for i in range(256 - len(keep))]
    vocabulary = {letter: i for i, letter in enumerate(letters)}
    merges, symbols = [], list("assistant")
    while len(symbols) > 1:
        joined = symbols[0] + symbols[1]
        merges.append(f"{symbols[0]} {symbols[1]}")
        vocabulary.setdefault(joined, len(vocabulary))
        symbols = [joined, *symbols[2:]]
    vocabulary["assistant"] = ASSISTANT
    dump(folder / "vocab.json", vocabulary)
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n", "utf-8")
    added = {
        str(id): {"content": name, "special": True, "normalized": False}
        for name, id in SPECIALS.items()
    }
    dump(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "Qwen2Tokenizer",
            "added_tokens_decoder": added,
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
        },
    )


def stack(layers: int, width: int, inner: int) -> dict[str, Any]:
    """Of talker and predictor."""
    return {
        "hidden_size": width, "intermediate_size": inner, "num_hidden_layers": layers,
        "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
        "rms_norm_eps": 1e-6, "rope_theta": 1000000, "hidden_act": "silu", "attention_bias": False,
        "sliding_window": None, "use_sliding_window": False, "num_code_groups": 16,
    }  # fmt: skip


def configuration(width: int, inner: int, short: str) -> dict[str, Any]:
    """config.json of a released custom voice model."""
    predictor = stack(5, 1024, 3072) | {
        "vocab_size": 2048, "rope_scaling": None, "model_type": "qwen3_tts_talker_code_predictor",
        "max_position_embeddings": 65536,
    }  # fmt: skip
    talker = stack(28, width, inner) | {
        "code_predictor_config": predictor, "vocab_size": 3072, "text_vocab_size": 151936,
        "text_hidden_size": 2048, "max_position_embeddings": 32768, "codec_pad_id": 2148,
        "codec_bos_id": 2149, "codec_eos_token_id": END, "codec_think_id": 2154,
        "codec_nothink_id": 2155, "codec_think_bos_id": 2156, "codec_think_eos_id": 2157,
        "codec_language_id": LANGUAGES, "spk_id": {"ryan": 3061, "vivian": 3065},
        "spk_is_dialect": {"ryan": False, "vivian": False}, "model_type": "qwen3_tts_talker",
        "rope_scaling": {"interleaved": True, "mrope_section": [24, 20, 20],
                         "rope_type": "default"},
    }  # fmt: skip
    return {
        "model_type": "qwen3_tts", "tokenizer_type": "qwen3_tts_tokenizer_12hz",
        "tts_model_type": "custom_voice", "tts_model_size": short, "talker_config": talker,
        "assistant_token_id": ASSISTANT, "im_start_token_id": SPECIALS["<|im_start|>"],
        "im_end_token_id": SPECIALS["<|im_end|>"], "tts_pad_token_id": SPECIALS["<tts_pad>"],
        "tts_bos_token_id": SPECIALS["<tts_text_bos>"],
        "tts_eos_token_id": SPECIALS["<tts_text_eod>"],
    }  # fmt: skip


def codec_configuration() -> dict[str, Any]:
    """speech_tokenizer/config.json as released."""
    decoder = {
        "num_quantizers": 16, "codebook_size": 2048, "codebook_dim": 512, "latent_dim": 1024,
        "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 8,
        "num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 64,
        "sliding_window": 72, "rms_norm_eps": 1e-5, "rope_theta": 10000, "decoder_dim": 1536,
        "upsample_rates": [8, 5, 4, 3], "upsampling_ratios": [2, 2], "hidden_act": "silu",
    }  # fmt: skip
    encoder = {
        "num_quantizers": 32, "codebook_size": 2048, "codebook_dim": 256,
        "vector_quantization_hidden_dimension": 256, "hidden_size": 512,
        "intermediate_size": 2048, "num_hidden_layers": 8, "num_attention_heads": 8,
        "num_key_value_heads": 8, "head_dim": 64, "norm_eps": 1e-5, "rope_theta": 10000,
        "num_filters": 64, "kernel_size": 7, "last_kernel_size": 3, "residual_kernel_size": 3,
        "upsampling_ratios": [8, 6, 5, 4], "compress": 2, "num_residual_layers": 1,
        "dilation_growth_rate": 2, "hidden_act": "gelu", "audio_channels": 1,
        "use_causal_conv": True, "sliding_window": 250,
    }  # fmt: skip
    return {
        "model_type": "qwen3_tts_tokenizer_12hz", "encoder_valid_num_quantizers": 16,
        "input_sample_rate": 24000, "output_sample_rate": 24000, "decode_upsample_rate": 1920,
        "encode_downsample_rate": 1920, "decoder_config": decoder, "encoder_config": encoder,
    }  # fmt: skip
