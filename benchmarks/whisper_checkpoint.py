"""A random Whisper checkpoint in a released size, in Hugging Face's layout, written on the spot."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gpu import SIZES
from recording import LANGUAGES, SPECIAL, STAMPS
from speech_checkpoint import dump, random_values, write_tensors

Shapes = Iterator[tuple[str, tuple[int, ...]]]


def write(folder: Path, size: str) -> None:
    """Configuration, tokenizer, and float16 tensors in the order of their names, as published."""
    mels, d, heads, encoders, decoders, vocabulary = SIZES[size]
    folder.mkdir(parents=True, exist_ok=True)
    sizes = {
        "num_mel_bins": mels, "d_model": d, "vocab_size": vocabulary, "activation_function": "gelu",
        "max_source_positions": 1500, "max_target_positions": 448, "model_type": "whisper",
        "encoder_attention_heads": heads, "decoder_attention_heads": heads,
        "encoder_layers": encoders, "decoder_layers": decoders,
    }  # fmt: skip
    dump(folder / "config.json", sizes)
    write_tokenizer(folder / "tokenizer.json", vocabulary)
    shapes = dict(sorted(tensors(size)))
    write_tensors(folder / "model.safetensors", shapes, random_values(), "F16")


def write_tokenizer(path: Path, vocabulary: int) -> None:
    """A multilingual vocabulary of that size, in which every text token is a word."""
    end = vocabulary - STAMPS - SPECIAL - LANGUAGES[vocabulary]
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = [chr(byte) for byte in keep] + [chr(256 + i) for i in range(256 - len(keep))]
    words = [*letters, *(f"\u0120w{number}" for number in range(256, end - 1)), ""]
    added = [{"content": "<|endoftext|>", "id": end, "special": True}]
    merges = [f"{word[:-1]} {word[-1]}" for word in words if len(word) > 1]
    model = {"type": "BPE", "vocab": {word: id for id, word in enumerate(words)}, "merges": merges}
    dump(path, {"added_tokens": added, "model": model})


def tensors(size: str) -> Shapes:
    """Hugging Face's names and the shapes of all tensors of a size."""
    mels, d, _, encoders, decoders, vocabulary = SIZES[size]
    encoder, decoder = "model.encoder", "model.decoder"
    for name, inputs in (("conv1", mels), ("conv2", d)):
        yield f"{encoder}.{name}.weight", (d, inputs, 3)
        yield f"{encoder}.{name}.bias", (d,)
    yield f"{encoder}.embed_positions.weight", (1500, d)
    yield f"{decoder}.embed_positions.weight", (448, d)
    yield f"{decoder}.embed_tokens.weight", (vocabulary, d)
    for part, layers in ((encoder, encoders), (decoder, decoders)):
        yield from norm(f"{part}.layer_norm", d)
        for layer in range(layers):
            yield from block(f"{part}.layers.{layer}", d, cross=part == decoder)


def block(prefix: str, d: int, *, cross: bool) -> Shapes:
    """A layer of the encoder, or with `cross` of the decoder."""
    for attention in ("self_attn", "encoder_attn") if cross else ("self_attn",):
        yield from norm(f"{prefix}.{attention}_layer_norm", d)
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            yield f"{prefix}.{attention}.{name}.weight", (d, d)
            if name != "k_proj":
                yield f"{prefix}.{attention}.{name}.bias", (d,)
    yield from norm(f"{prefix}.final_layer_norm", d)
    for name, out, inputs in (("fc1", 4 * d, d), ("fc2", d, 4 * d)):
        yield f"{prefix}.{name}.weight", (out, inputs)
        yield f"{prefix}.{name}.bias", (out,)


def norm(name: str, d: int) -> Shapes:
    """The weight and the bias of a LayerNorm."""
    yield f"{name}.weight", (d,)
    yield f"{name}.bias", (d,)
