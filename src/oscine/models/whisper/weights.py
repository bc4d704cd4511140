"""Loads Whisper's weights from a checkpoint of any format.

Sizes, names and details: MODELS/whisper.md. The names of all formats are mapped to those of
openai/whisper whisper/model.py. Two additional names serve CTranslate2, which stores packed
projections: `attn.qkv` (rows of query, key and value, in this order) and `cross_attn.kv`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from oscine.errors import CheckpointError
from oscine.models.loader import Loader, load, stored_dtype
from oscine.models.whisper.config import WhisperConfig, read_config
from oscine.models.whisper.gguf import with_config
from oscine.ops import LayerNorm, Linear
from oscine.weights import Checkpoint, LazyTensor, read_checkpoint
from oscine.weights.mapped_file import Array

TOKEN_EMBEDDING = "decoder.token_embedding.weight"
#: Names of the projection to logits, which is tied to the token embedding.
OUTPUT_PROJECTIONS = frozenset({"proj_out.weight", "decoder.projection.weight"})


@dataclass(frozen=True, slots=True)
class EncoderBlock:
    """A layer of the encoder; qkv.weight [3d, d] has the rows of q, k, v; the bias of k is zero."""

    attn_ln: LayerNorm
    qkv: Linear
    attn_out: Linear
    mlp_ln: LayerNorm
    fc1: Linear
    fc2: Linear


@dataclass(frozen=True, slots=True)
class DecoderBlock:
    """A layer of the decoder; qkv.weight has the rows of q, k, v, cross_kv.weight those of k, v."""

    attn_ln: LayerNorm
    qkv: Linear
    attn_out: Linear
    cross_attn_ln: LayerNorm
    cross_q: Linear
    cross_kv: Linear
    cross_attn_out: Linear
    mlp_ln: LayerNorm
    fc1: Linear
    fc2: Linear


@dataclass(frozen=True, slots=True)
class EncoderWeights:
    """The encoder: convolutions [O, K, I], positional_embedding [S, d]; ln_post may be absent."""

    conv1: Linear
    conv2: Linear
    positional_embedding: Array
    blocks: tuple[EncoderBlock, ...]
    ln_post: LayerNorm | None


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    """The decoder: token_embedding [V, d], also the projection to logits; positions [C, d]."""

    token_embedding: Array
    positional_embedding: Array
    blocks: tuple[DecoderBlock, ...]
    ln: LayerNorm


@dataclass(frozen=True, slots=True)
class WhisperWeights:
    """All weights of a checkpoint, on the host.

    Matrices have the requested dtype, else that of the file (float16 or float32); vectors and
    positional embeddings are float32. With q8 and q4 the token embedding, which is also the
    projection to logits, and all linear layers are in blocks, and both convolutions are float16.
    Arrays may be read-only views of the file.
    """

    config: WhisperConfig
    encoder: EncoderWeights
    decoder: DecoderWeights | None
    path: Path
    folder: Path  # of the tokenizer files
    format: str
    vocabulary: tuple[bytes, ...] | None  # raw token bytes, if the file contains them (ggml)
    stored_dtype: Literal["f16", "f32"]  # of the file; f16 only if every matrix is f16


def load_weights(path: Checkpoint | Path | str, dtype: str = "auto") -> WhisperWeights:
    """Read a checkpoint in any format that `oscine.weights` supports.

    Args:
        path: The file or folder, or an open checkpoint.
        dtype: "f16" or "f32" for all matrices and convolutions; "auto": that of the file; "q8" or
            "q4" for matrices in blocks (oscine.quantized), beside convolutions in float16.

    Raises:
        CheckpointError: a file is damaged, or a tensor is missing, unexpected or misshapen.
    """
    checkpoint = read_checkpoint(path)
    if checkpoint.format == "gguf":
        checkpoint = with_config(checkpoint)
    names = TensorNames(checkpoint)
    config = read_config(checkpoint, names.entries)
    encoder, decoder = load(
        partial(network, config=config),
        checkpoint.path,
        names.entries,
        dtype,
        original_name=names.original_name,
        ignored=IGNORED_TENSORS.__contains__,
    )
    matrices = (
        entry
        for name, entry in names.entries.items()
        if name.endswith(".weight") and len(entry.shape) > 1 and name not in IGNORED_TENSORS
    )
    return WhisperWeights(
        config=config,
        encoder=encoder,
        decoder=decoder,
        path=checkpoint.path,
        folder=checkpoint.folder,
        format=checkpoint.format,
        vocabulary=checkpoint.vocabulary,
        stored_dtype="f16" if all(stored_dtype(entry) == "f16" for entry in matrices) else "f32",
    )


def network(t: Loader, config: WhisperConfig) -> tuple[EncoderWeights, DecoderWeights | None]:
    """Build encoder and decoder; the decoder is None if the vocabulary is empty."""
    return encoder(t, config), decoder(t, config) if config.n_vocab else None


def encoder(t: Loader, config: WhisperConfig) -> EncoderWeights:
    """Build the encoder; audio towers of other models may lack the final norm."""
    d, layers = config.n_audio_state, range(config.n_audio_layer)
    has_norm = config.n_vocab > 0 or t.has("encoder.ln_post.weight")
    return EncoderWeights(
        conv1=convolution(t, "encoder.conv1", d, config.n_mels),
        conv2=convolution(t, "encoder.conv2", d, d),
        positional_embedding=encoder_positions(t, config.n_audio_ctx, d),
        blocks=tuple(encoder_block(t, f"encoder.blocks.{layer}", d) for layer in layers),
        ln_post=t.norm("encoder.ln_post", d) if has_norm else None,
    )


def decoder(t: Loader, config: WhisperConfig) -> DecoderWeights:
    """Build the decoder."""
    d, layers = config.n_text_state, range(config.n_text_layer)
    (embedding,) = t.products([TOKEN_EMBEDDING], [config.n_vocab], d)
    return DecoderWeights(
        token_embedding=t.cast(t.derived(_check_tied, t, embedding)),
        positional_embedding=t.f32("decoder.positional_embedding", config.n_text_ctx, d),
        blocks=tuple(decoder_block(t, f"decoder.blocks.{layer}", d) for layer in layers),
        ln=t.norm("decoder.ln", d),
    )


def encoder_block(t: Loader, prefix: str, d: int) -> EncoderBlock:
    """Build a layer of the encoder; `prefix`: of its tensors' names."""
    width = mlp_width(t, prefix, d)
    return EncoderBlock(
        attn_ln=t.norm(f"{prefix}.attn_ln", d),
        qkv=projection(t, f"{prefix}.attn", "qkv", d),
        attn_out=t.linear(f"{prefix}.attn.out", d, d),
        mlp_ln=t.norm(f"{prefix}.mlp_ln", d),
        fc1=t.linear(f"{prefix}.mlp.0", width, d),
        fc2=t.linear(f"{prefix}.mlp.2", d, width),
    )


def decoder_block(t: Loader, prefix: str, d: int) -> DecoderBlock:
    """Build a layer of the decoder; `prefix`: of its tensors' names."""
    width = mlp_width(t, prefix, d)
    return DecoderBlock(
        attn_ln=t.norm(f"{prefix}.attn_ln", d),
        qkv=projection(t, f"{prefix}.attn", "qkv", d),
        attn_out=t.linear(f"{prefix}.attn.out", d, d),
        cross_attn_ln=t.norm(f"{prefix}.cross_attn_ln", d),
        cross_q=t.linear(f"{prefix}.cross_attn.query", d, d),
        cross_kv=projection(t, f"{prefix}.cross_attn", "kv", d),
        cross_attn_out=t.linear(f"{prefix}.cross_attn.out", d, d),
        mlp_ln=t.norm(f"{prefix}.mlp_ln", d),
        fc1=t.linear(f"{prefix}.mlp.0", width, d),
        fc2=t.linear(f"{prefix}.mlp.2", d, width),
    )


def mlp_width(t: Loader, prefix: str, d: int) -> int:
    """The width of a layer's MLP, from its tensor; without one 4d, as in released models."""
    return (t.shape(f"{prefix}.mlp.0.weight") or (4 * d,))[0]


def projection(t: Loader, prefix: str, parts: str, d: int) -> Linear:
    """Query, key and value projections ("qkv" or "kv") packed into one layer.

    Whisper's key projection has no bias; its rows of the packed bias are zeros.
    """
    if t.has("encoder.blocks.0.attn.qkv.weight"):
        return t.linear(f"{prefix}.{parts}", len(parts) * d, d)
    names = [f"{prefix}.{name}" for name in ("query", "key", "value") if name[0] in parts]
    return t.fused(names, [d] * len(parts), d, bias=[part != "k" for part in parts])


def convolution(t: Loader, name: str, out: int, inputs: int) -> Linear:
    """A convolution of kernel size 3, [O, 3, I].

    MLX stores it in this order, the other formats as [O, I, 3]; no real model has I = 3. ggml
    stores biases as [O, 1] for broadcasting.
    """
    first = t.shape("encoder.conv1.weight")
    if first[1:2] == (3,) and first[2:] != (3,):
        weight = t.raw(f"{name}.weight", out, 3, inputs)
    else:
        weight = t.derived(_time_first, t.raw(f"{name}.weight", out, inputs, 3))
    column = t.shape(f"{name}.bias") == (out, 1)
    bias = t.f32(f"{name}.bias", *((out, 1) if column else (out,)))
    return Linear(t.cast_float(weight), t.derived(_flatten, bias))


def encoder_positions(t: Loader, length: int, width: int) -> Array:
    """The encoder's positional embedding: that of the file, else sinusoids."""
    name = "encoder.positional_embedding"
    return t.f32(name, length, width) if t.has(name) else t.derived(sinusoids, length, width)


def sinusoids(length: int, width: int) -> Array:
    """Sinusoidal embeddings [length, width] float32: sines, then cosines, not interleaved."""
    steps = np.exp(-np.arange(width // 2) * (np.log(10000.0) / (width // 2 - 1)))
    angles = np.arange(length)[:, None] * steps[None, :]
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)


def _check_tied(t: Loader, embedding: Array) -> Array:
    """The token embedding; raises CheckpointError if the file's projection to logits differs."""
    for name in OUTPUT_PROJECTIONS:
        extra = t.entries.get(name)
        if extra is None or extra is t.entries[TOKEN_EMBEDDING]:
            continue
        known = t.entries[TOKEN_EMBEDDING]
        if extra.shape != known.shape or not np.array_equal(extra.read(), known.read()):
            raise CheckpointError(t.path, f"{name} differs from the token embedding it is tied to")
    return embedding


def _time_first(weight: Array) -> Array:
    return np.ascontiguousarray(weight.transpose(0, 2, 1))


def _flatten(bias: Array) -> Array:
    return bias.reshape(-1)


# -- names ----------------------------------------------------------------------------------------

_Table = tuple[tuple[str, str], ...]

# Replacements, applied in order to a file's name, and inverted in reverse order for the way back.
_HUGGING_FACE_NAMES: _Table = (
    (".layers.", ".blocks."),
    ("encoder.layer_norm.", "encoder.ln_post."),
    ("decoder.layer_norm.", "decoder.ln."),
    (".self_attn_layer_norm.", ".attn_ln."),
    (".encoder_attn_layer_norm.", ".cross_attn_ln."),
    (".final_layer_norm.", ".mlp_ln."),
    (".self_attn.", ".attn."),
    (".encoder_attn.", ".cross_attn."),
    (".q_proj.", ".query."),
    (".k_proj.", ".key."),
    (".v_proj.", ".value."),
    (".out_proj.", ".out."),
    (".fc1.", ".mlp.0."),
    (".fc2.", ".mlp.2."),
    (".embed_tokens.weight", ".token_embedding.weight"),
    (".embed_positions.weight", ".positional_embedding"),
)
_MLX_NAMES: _Table = ((".mlp1.", ".mlp.0."), (".mlp2.", ".mlp.2."))
_CTRANSLATE2_NAMES: _Table = (
    ("/layer_norm/", "/norm/"),
    ("/layer_", "/blocks/"),
    ("/norm/gamma", "/norm/weight"),
    ("/norm/beta", "/norm/bias"),
    ("/self_attention/norm/", "/attn_ln/"),
    ("/attention/norm/", "/cross_attn_ln/"),
    ("/ffn/norm/", "/mlp_ln/"),
    ("encoder/norm/", "encoder/ln_post/"),
    ("decoder/norm/", "decoder/ln/"),
    ("/self_attention/linear_0/", "/attn/qkv/"),
    ("/self_attention/linear_1/", "/attn/out/"),
    ("/attention/linear_0/", "/cross_attn/query/"),
    ("/attention/linear_1/", "/cross_attn/kv/"),
    ("/attention/linear_2/", "/cross_attn/out/"),
    ("/ffn/linear_0/", "/mlp/0/"),
    ("/ffn/linear_1/", "/mlp/2/"),
    ("/embeddings/weight", "/token_embedding/weight"),
    ("/position_encodings/encodings", "/positional_embedding"),
    ("/", "."),
)

#: GGUF's, of transcribe.cpp; what the parts of a block are called differs by side.
_GGUF_NAMES: _Table = (
    ("enc.", "encoder."),
    ("dec.", "decoder."),
    (".conv.0.", ".conv1."),
    (".conv.1.", ".conv2."),
    (".pos_emb.weight", ".positional_embedding"),
    (".token_embd.", ".token_embedding."),
    ("encoder.final_norm.", "encoder.ln_post."),
    ("decoder.final_norm.", "decoder.ln."),
    (".norm_cross.", ".cross_attn_ln."),
    (".norm_ffn.", ".mlp_ln."),
    (".ffn.fc1.", ".mlp.0."),
    (".ffn.fc2.", ".mlp.2."),
    (".q.", ".query."),
    (".k.", ".key."),
    (".v.", ".value."),
)
_GGUF_CONV = "enc.conv.0.weight"
_GGUF_SIDES: dict[str, _Table] = {
    "enc": (*_GGUF_NAMES, (".norm_attn.", ".attn_ln.")),
    "dec": ((".self_attn.", ".attn."), *_GGUF_NAMES, (".norm_self.", ".attn_ln.")),
}

#: Tensors that a file may have and that are not needed.
IGNORED_TENSORS = OUTPUT_PROJECTIONS | frozenset(
    {
        "alignment_heads",
        "encoder.num_heads",
        "decoder.num_heads",
        "decoder.activation",
        "decoder.alibi",
        "decoder.pre_norm",
        "decoder.scale_embeddings",
        "decoder.start_from_zero_embedding",
        "decoder.alignment_heads",
        "decoder.alignment_layer",
        "frontend.mel_filterbank",
        "frontend.window",
    }
)


class TensorNames:
    """Maps a checkpoint's tensor names to openai/whisper's and back.

    An encoder may have any prefix (`model.encoder.`, `audio_tower.`). If there is no decoder beside
    it, tensors outside that prefix belong to another model and are left out.

    Raises:
        CheckpointError: no encoder, several encoders, or two tensors with one canonical name.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        names = checkpoint.tensors
        self._prefix, self._beside, self._table = "encoder.", "", _CTRANSLATE2_NAMES
        gguf = _GGUF_CONV in names
        self._sides = _GGUF_SIDES if gguf else {}
        if checkpoint.format != "ctranslate2" and not gguf:
            self._prefix = _encoder_prefix(checkpoint)
            self._beside = self._prefix.removesuffix("encoder.")
            is_hugging_face = any("layers." in name and "_proj" in name for name in names)
            self._table = (
                _HUGGING_FACE_NAMES if is_hugging_face else _MLX_NAMES if _is_mlx(names) else ()
            )
        decoder = f"{self._beside}decoder."
        beside = self._beside != self._prefix and any(n.startswith(decoder) for n in names)
        self.entries: dict[str, LazyTensor] = {}
        origin: dict[str, str] = {}
        for name, entry in names.items():
            canonical = self._canonical(name, beside or gguf or checkpoint.format == "ctranslate2")
            if canonical is None:
                continue
            if canonical in origin:
                problem = f"tensors {origin[canonical]!r} and {name!r} are the same tensor"
                raise CheckpointError(checkpoint.path, problem)
            self.entries[canonical], origin[canonical] = entry, name
        if "proj_out.weight" in self.entries:  # some writers keep only this one of the tied tensors
            projection = self.entries["proj_out.weight"]
            self.entries.setdefault("decoder.token_embedding.weight", projection)

    def original_name(self, name: str) -> str:
        """The name that a tensor of openai/whisper has, or would have, in the file."""
        for own, canonical in reversed(self._table_of(name)):
            name = name.replace(canonical, own)
        if name.startswith("encoder."):
            return self._prefix + name.removeprefix("encoder.")
        return self._beside + name if name.startswith("decoder.") else name

    def _table_of(self, name: str) -> _Table:
        """The replacements for a name, which GGUF has by the side of the network."""
        return self._sides.get(name[:3], self._table)

    def _canonical(self, name: str, has_decoder: bool) -> str | None:
        if name.startswith(self._prefix) and self._table is not _CTRANSLATE2_NAMES:
            name = "encoder." + name.removeprefix(self._prefix)
        elif has_decoder:
            name = name.removeprefix(self._beside)
        elif self._prefix not in ("", "encoder."):
            return None
        for own, canonical in self._table_of(name):
            name = name.replace(own, canonical)
        return name


def _is_mlx(names: dict[str, LazyTensor]) -> bool:
    return any(".mlp1." in name for name in names)


def _encoder_prefix(checkpoint: Checkpoint) -> str:
    prefixes = [
        name.removesuffix("conv1.weight")
        for name, entry in checkpoint.tensors.items()
        if name.endswith("conv1.weight")
        and len(entry.shape) == 3
        and f"{name.removesuffix('conv1.weight')}conv2.weight" in checkpoint.tensors
    ]
    if len(prefixes) != 1:
        encoders = " and ".join(repr(f"{prefix}conv1.weight") for prefix in prefixes[:5])
        raise CheckpointError(
            checkpoint.path,
            f"contains several encoders: {encoders}"
            if prefixes
            else "contains no Whisper encoder (missing conv1.weight or conv2.weight of three axes)",
        )
    return prefixes[0]
