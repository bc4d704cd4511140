"""Any checkpoint of Whisper as one tree of arrays, checked against its configuration first.

Sizes, names and quirks: MODELS/whisper.md. Source of the network: openai/whisper whisper/model.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from oscine.errors import CheckpointError
from oscine.models.whisper.config import WhisperConfig
from oscine.models.whisper.names import IGNORED, Names
from oscine.models.whisper.sizes import read_config
from oscine.ops import Linear, Norm
from oscine.weights import Entry, read_checkpoint
from oscine.weights.source import Array, shown

#: The projection to logits, which is the token embedding.
PROJECTIONS = frozenset({"proj_out.weight", "decoder.projection.weight"})


@dataclass(frozen=True, slots=True)
class EncoderBlock:
    """qkv.weight [3d, d] holds the rows of q, k and v in this order; k's bias is zero."""

    attention_norm: Norm
    qkv: Linear
    out: Linear
    mlp_norm: Norm
    up: Linear
    down: Linear


@dataclass(frozen=True, slots=True)
class DecoderBlock:
    """As EncoderBlock, plus cross-attention: cross_kv.weight [2d, d] holds the rows of k and v."""

    attention_norm: Norm
    qkv: Linear
    out: Linear
    cross_norm: Norm
    cross_q: Linear
    cross_kv: Linear
    cross_out: Linear
    mlp_norm: Norm
    up: Linear
    down: Linear


@dataclass(frozen=True, slots=True)
class EncoderWeights:
    """Convolutions time first [O, K, I]; positions [S, d]; norm None in towers without one."""

    conv1: Linear
    conv2: Linear
    positions: Array
    blocks: tuple[EncoderBlock, ...]
    norm: Norm | None


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    """embedding [V, d] is the projection to logits too; positions [n_text_ctx, d]."""

    embedding: Array
    positions: Array
    blocks: tuple[DecoderBlock, ...]
    norm: Norm


@dataclass(frozen=True, slots=True)
class WhisperWeights:
    """Matrices as stored: float16 or else float32; vectors and position tables float32.

    Arrays may be read-only views of the file.
    """

    config: WhisperConfig
    encoder: EncoderWeights
    decoder: DecoderWeights | None
    path: Path
    folder: Path  # where tokenizer files lie
    format: str
    vocabulary: tuple[bytes, ...] | None  # raw token bytes, where the file carries them (ggml)
    stored: Literal["f16", "f32"]  # f16 only where every matrix is


def load_weights(path: Path | str) -> WhisperWeights:
    """Read a checkpoint in any format that `oscine.weights` knows.

    Raises:
        CheckpointError: damaged files, or tensors that are missing, unexpected or of wrong shape.
    """
    checkpoint = read_checkpoint(path)
    names = Names(checkpoint)
    entries = names.entries
    config = read_config(checkpoint, entries)
    reader = _Reader(checkpoint.path, names, config)
    reader.check()
    _check_projection(checkpoint.path, entries)
    matrices = [e for n, e in entries.items() if n in reader.expected and _is_matrix(n)]
    return WhisperWeights(
        config=config,
        encoder=reader.encoder(),
        decoder=reader.decoder() if config.n_vocab else None,
        path=checkpoint.path,
        folder=checkpoint.folder,
        format=checkpoint.format,
        vocabulary=checkpoint.vocabulary,
        stored="f16" if all(e.dtype == np.float16 for e in matrices) else "f32",
    )


def sinusoids(length: int, width: int) -> Array:
    """Encoder positions [length, width] float32: sines, then cosines, not interleaved."""
    steps = np.exp(-np.arange(width // 2) * (np.log(10000.0) / (width // 2 - 1)))
    angles = np.arange(length)[:, None] * steps[None, :]
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)


def _is_matrix(name: str) -> bool:
    return name.endswith(".weight") and "ln" not in name.split(".")[-2]


def _check_projection(path: Path, entries: dict[str, Entry]) -> None:
    """The projection to logits is tied; a file may repeat it, but not differ."""
    for name in PROJECTIONS:
        extra, tied = entries.get(name), entries.get("decoder.token_embedding.weight")
        if extra is None or extra is tied:
            continue
        if (
            tied is None
            or extra.shape != tied.shape
            or not np.array_equal(extra.read(), tied.read())
        ):
            raise CheckpointError(path, f"{name} differs from the token embedding it is tied to")


class _Reader:
    """Holds what is expected, compares, then builds; nothing large is read before it compared."""

    def __init__(self, path: Path, names: Names, config: WhisperConfig) -> None:
        self.path = path
        self.names = names
        self.entries = names.entries
        self.config = config
        self.time_first = self._time_first()
        self.packed = "encoder.blocks.0.attn.qkv.weight" in self.entries
        self.expected = self._encoder_shapes()
        if config.n_vocab:
            self.expected |= self._decoder_shapes()

    def check(self) -> None:
        missing = self.expected.keys() - self.entries.keys() - {"encoder.positional_embedding"}
        extra = self.entries.keys() - self.expected.keys() - IGNORED - PROJECTIONS
        misshapen = [
            f"{self.own(name)} {list(entry.shape)} {entry.dtype}, not {list(self.expected[name])}"
            for name, entry in self.entries.items()
            if name in self.expected
            and (entry.shape != self.expected[name] or entry.dtype.kind != "f")
        ]
        if missing or extra or misshapen:
            raise CheckpointError.tensors(
                self.path,
                missing=map(self.own, missing),
                extra=map(self.own, extra),
                misshapen=misshapen,
            )

    def own(self, name: str) -> str:
        """A name as the file spells it, fit for a message."""
        return shown(self.names.own(name))

    def encoder(self) -> EncoderWeights:
        config = self.config
        if "encoder.positional_embedding" in self.entries:
            positions = self._vector("encoder.positional_embedding")
        else:
            positions = sinusoids(config.n_audio_ctx, config.n_audio_state)
        return EncoderWeights(
            conv1=self._convolution("encoder.conv1"),
            conv2=self._convolution("encoder.conv2"),
            positions=positions,
            blocks=tuple(self._encoder_block(i) for i in range(config.n_audio_layer)),
            norm=self._norm("encoder.ln_post")
            if "encoder.ln_post.weight" in self.expected
            else None,
        )

    def decoder(self) -> DecoderWeights:
        return DecoderWeights(
            embedding=self.entries["decoder.token_embedding.weight"].read(),
            positions=self._vector("decoder.positional_embedding"),
            blocks=tuple(self._decoder_block(i) for i in range(self.config.n_text_layer)),
            norm=self._norm("decoder.ln"),
        )

    def _encoder_block(self, layer: int) -> EncoderBlock:
        at = f"encoder.blocks.{layer}"
        return EncoderBlock(
            attention_norm=self._norm(f"{at}.attn_ln"),
            qkv=self._joined(f"{at}.attn", "qkv", ("query", "key", "value")),
            out=self._linear(f"{at}.attn.out"),
            mlp_norm=self._norm(f"{at}.mlp_ln"),
            up=self._linear(f"{at}.mlp.0"),
            down=self._linear(f"{at}.mlp.2"),
        )

    def _decoder_block(self, layer: int) -> DecoderBlock:
        at = f"decoder.blocks.{layer}"
        return DecoderBlock(
            attention_norm=self._norm(f"{at}.attn_ln"),
            qkv=self._joined(f"{at}.attn", "qkv", ("query", "key", "value")),
            out=self._linear(f"{at}.attn.out"),
            cross_norm=self._norm(f"{at}.cross_attn_ln"),
            cross_q=self._linear(f"{at}.cross_attn.query"),
            cross_kv=self._joined(f"{at}.cross_attn", "kv", ("key", "value")),
            cross_out=self._linear(f"{at}.cross_attn.out"),
            mlp_norm=self._norm(f"{at}.mlp_ln"),
            up=self._linear(f"{at}.mlp.0"),
            down=self._linear(f"{at}.mlp.2"),
        )

    def _vector(self, name: str) -> Array:
        with np.errstate(invalid="ignore"):
            return self.entries[name].read().astype(np.float32, copy=False)

    def _norm(self, name: str) -> Norm:
        return Norm(self._vector(f"{name}.weight"), self._vector(f"{name}.bias"))

    def _linear(self, name: str) -> Linear:
        return Linear(self.entries[f"{name}.weight"].read(), self._vector(f"{name}.bias"))

    def _joined(self, at: str, name: str, parts: tuple[str, ...]) -> Linear:
        if self.packed:
            return self._linear(f"{at}.{name}")
        weights = [self.entries[f"{at}.{part}.weight"].read() for part in parts]
        biases = [
            np.zeros(weights[i].shape[0], np.float32)
            if part == "key"
            else self._vector(f"{at}.{part}.bias")
            for i, part in enumerate(parts)
        ]
        return Linear(np.concatenate(weights), np.concatenate(biases))

    def _convolution(self, name: str) -> Linear:
        weight = self.entries[f"{name}.weight"].read()
        if not self.time_first:
            weight = np.ascontiguousarray(weight.transpose(0, 2, 1))
        return Linear(weight, self._vector(f"{name}.bias").reshape(-1))

    def _time_first(self) -> bool:
        """MLX stores [O, K, I], the others [O, I, K]; K is 3 and I, in any real model, is not."""
        shape = self.entries["encoder.conv1.weight"].shape
        return shape[1] == 3 and shape[2] != 3

    def _encoder_shapes(self) -> dict[str, tuple[int, ...]]:
        config = self.config
        d = config.n_audio_state
        shapes: dict[str, tuple[int, ...]] = {
            "encoder.positional_embedding": (config.n_audio_ctx, d)
        }
        for name, inputs in (("conv1", config.n_mels), ("conv2", d)):
            shapes[f"encoder.{name}.weight"] = (d, 3, inputs) if self.time_first else (d, inputs, 3)
            bias = (d,)
            if self._shape(f"encoder.{name}.bias") == (d, 1):
                bias = (d, 1)  # type: ignore[assignment]  # ggml keeps them ready to broadcast
            shapes[f"encoder.{name}.bias"] = bias
        if config.n_vocab or "encoder.ln_post.weight" in self.entries:
            shapes |= _norm_shapes("encoder.ln_post", d)
        for layer in range(config.n_audio_layer):
            shapes |= self._block_shapes(f"encoder.blocks.{layer}", d)
        return shapes

    def _decoder_shapes(self) -> dict[str, tuple[int, ...]]:
        config = self.config
        d = config.n_text_state
        shapes: dict[str, tuple[int, ...]] = {
            "decoder.token_embedding.weight": (config.n_vocab, d),
            "decoder.positional_embedding": (config.n_text_ctx, d),
        }
        shapes |= _norm_shapes("decoder.ln", d)
        for layer in range(config.n_text_layer):
            at = f"decoder.blocks.{layer}"
            shapes |= self._block_shapes(at, d)
            shapes |= _norm_shapes(f"{at}.cross_attn_ln", d)
            shapes |= self._attention_shapes(f"{at}.cross_attn", d, "kv", ("key", "value"))
            shapes |= _linear_shapes(f"{at}.cross_attn.query", d, d)
        return shapes

    def _block_shapes(self, at: str, d: int) -> dict[str, tuple[int, ...]]:
        inner = (self._shape(f"{at}.mlp.0.weight") or (4 * d,))[0]
        shapes = _norm_shapes(f"{at}.attn_ln", d) | _norm_shapes(f"{at}.mlp_ln", d)
        shapes |= self._attention_shapes(f"{at}.attn", d, "qkv", ("query", "key", "value"))
        shapes |= _linear_shapes(f"{at}.mlp.0", inner, d) | _linear_shapes(f"{at}.mlp.2", d, inner)
        return shapes

    def _attention_shapes(
        self, at: str, d: int, joined: str, parts: tuple[str, ...]
    ) -> dict[str, tuple[int, ...]]:
        shapes = _linear_shapes(f"{at}.out", d, d)
        if self.packed:
            return shapes | _linear_shapes(f"{at}.{joined}", len(parts) * d, d)
        for part in parts:
            shapes |= _linear_shapes(f"{at}.{part}", d, d)
        del shapes[f"{at}.key.bias"]  # Whisper's keys have none
        return shapes

    def _shape(self, name: str) -> tuple[int, ...]:
        return self.entries[name].shape if name in self.entries else ()


def _norm_shapes(name: str, d: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (d,), f"{name}.bias": (d,)}


def _linear_shapes(name: str, out: int, inputs: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (out, inputs), f"{name}.bias": (out,)}
