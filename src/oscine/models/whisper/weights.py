"""Any checkpoint of Whisper as one tree of arrays, checked against its configuration first.

Sizes, names and quirks: MODELS/whisper.md. Source of the network: openai/whisper whisper/model.py,
whose names every format's are turned into. Two exceptions serve CTranslate2, which stores
projections packed: `attn.qkv` (query, key and value rows, in this order) and `cross_attn.kv`.
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
from oscine.ops import LayerNorm, Linear
from oscine.weights import Checkpoint, LazyTensor, read_checkpoint
from oscine.weights.mapped_file import Array

EMBEDDING = "decoder.token_embedding.weight"
#: The projection to logits, which is the token embedding.
PROJECTIONS = frozenset({"proj_out.weight", "decoder.projection.weight"})


@dataclass(frozen=True, slots=True)
class EncoderBlock:
    """qkv.weight [3d, d] holds the rows of q, k and v in this order; k's bias is zero."""

    attention_norm: LayerNorm
    qkv: Linear
    out: Linear
    mlp_norm: LayerNorm
    up: Linear
    down: Linear


@dataclass(frozen=True, slots=True)
class DecoderBlock:
    """As EncoderBlock, plus cross-attention: cross_kv.weight [2d, d] holds the rows of k and v."""

    attention_norm: LayerNorm
    qkv: Linear
    out: Linear
    cross_norm: LayerNorm
    cross_q: Linear
    cross_kv: Linear
    cross_out: Linear
    mlp_norm: LayerNorm
    up: Linear
    down: Linear


@dataclass(frozen=True, slots=True)
class EncoderWeights:
    """Convolutions time first [O, K, I]; positions [S, d]; norm None in towers without one."""

    conv1: Linear
    conv2: Linear
    positions: Array
    blocks: tuple[EncoderBlock, ...]
    norm: LayerNorm | None


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    """embedding [V, d] is the projection to logits too; positions [n_text_ctx, d]."""

    embedding: Array
    positions: Array
    blocks: tuple[DecoderBlock, ...]
    norm: LayerNorm


@dataclass(frozen=True, slots=True)
class WhisperWeights:
    """Matrices as asked for, else as stored (float16 or float32); vectors and positions float32.

    Arrays may be read-only views of the file.
    """

    config: WhisperConfig
    encoder: EncoderWeights
    decoder: DecoderWeights | None
    path: Path
    folder: Path  # where tokenizer files lie
    format: str
    vocabulary: tuple[bytes, ...] | None  # raw token bytes, where the file carries them (ggml)
    stored: Literal["f16", "f32"]  # in the file; f16 only where every matrix is


def load_weights(path: Checkpoint | Path | str, dtype: str = "auto") -> WhisperWeights:
    """Read a checkpoint in any format that `oscine.weights` knows.

    Args:
        path: The file or folder, or the checkpoint if it is open already.
        dtype: "f16" or "f32" for all matrices and convolutions; "auto": as they are stored.

    Raises:
        CheckpointError: damaged files, or tensors that are missing, unexpected or of wrong shape.
    """
    checkpoint = read_checkpoint(path)
    names = TensorNames(checkpoint)
    config = read_config(checkpoint, names.entries)
    encoder, decoder = load(
        partial(network, config=config),
        checkpoint.path,
        names.entries,
        dtype,
        original_name=names.own,
        ignored=IGNORED.__contains__,
    )
    matrices = (
        entry
        for name, entry in names.entries.items()
        if name.endswith(".weight") and len(entry.shape) > 1 and name not in IGNORED
    )
    return WhisperWeights(
        config=config,
        encoder=encoder,
        decoder=decoder,
        path=checkpoint.path,
        folder=checkpoint.folder,
        format=checkpoint.format,
        vocabulary=checkpoint.vocabulary,
        stored="f16" if all(stored_dtype(entry) == "f16" for entry in matrices) else "f32",
    )


def network(t: Loader, config: WhisperConfig) -> tuple[EncoderWeights, DecoderWeights | None]:
    """All tensors of a checkpoint of these sizes."""
    return encoder(t, config), decoder(t, config) if config.n_vocab else None


def encoder(t: Loader, config: WhisperConfig) -> EncoderWeights:
    """The encoder, also one that is a tower of another model: these may lack the last norm."""
    d, layers = config.n_audio_state, range(config.n_audio_layer)
    has_norm = config.n_vocab > 0 or t.has("encoder.ln_post.weight")
    return EncoderWeights(
        conv1=convolution(t, "encoder.conv1", d, config.n_mels),
        conv2=convolution(t, "encoder.conv2", d, d),
        positions=encoder_positions(t, config.n_audio_ctx, d),
        blocks=tuple(encoder_block(t, f"encoder.blocks.{layer}", d) for layer in layers),
        norm=t.norm("encoder.ln_post", d) if has_norm else None,
    )


def decoder(t: Loader, config: WhisperConfig) -> DecoderWeights:
    """The decoder."""
    d, layers = config.n_text_state, range(config.n_text_layer)
    embedding = t.raw(EMBEDDING, config.n_vocab, d)
    return DecoderWeights(
        embedding=t.cast(t.derived(_tied, t, embedding)),
        positions=t.f32("decoder.positional_embedding", config.n_text_ctx, d),
        blocks=tuple(decoder_block(t, f"decoder.blocks.{layer}", d) for layer in layers),
        norm=t.norm("decoder.ln", d),
    )


def encoder_block(t: Loader, at: str, d: int) -> EncoderBlock:
    """One layer of the encoder."""
    inner = inner_width(t, at, d)
    return EncoderBlock(
        attention_norm=t.norm(f"{at}.attn_ln", d),
        qkv=projection(t, f"{at}.attn", "qkv", d),
        out=t.linear(f"{at}.attn.out", d, d),
        mlp_norm=t.norm(f"{at}.mlp_ln", d),
        up=t.linear(f"{at}.mlp.0", inner, d),
        down=t.linear(f"{at}.mlp.2", d, inner),
    )


def decoder_block(t: Loader, at: str, d: int) -> DecoderBlock:
    """One layer of the decoder."""
    inner = inner_width(t, at, d)
    return DecoderBlock(
        attention_norm=t.norm(f"{at}.attn_ln", d),
        qkv=projection(t, f"{at}.attn", "qkv", d),
        out=t.linear(f"{at}.attn.out", d, d),
        cross_norm=t.norm(f"{at}.cross_attn_ln", d),
        cross_q=t.linear(f"{at}.cross_attn.query", d, d),
        cross_kv=projection(t, f"{at}.cross_attn", "kv", d),
        cross_out=t.linear(f"{at}.cross_attn.out", d, d),
        mlp_norm=t.norm(f"{at}.mlp_ln", d),
        up=t.linear(f"{at}.mlp.0", inner, d),
        down=t.linear(f"{at}.mlp.2", d, inner),
    )


def inner_width(t: Loader, at: str, d: int) -> int:
    """The width of a layer's MLP, as its tensor has it; 4d, as in released models, without one."""
    return (t.shape(f"{at}.mlp.0.weight") or (4 * d,))[0]


def projection(t: Loader, at: str, parts: str, d: int) -> Linear:
    """Queries, keys and values ("qkv" or "kv") as one layer, as CTranslate2 stores them.

    Whisper's keys have no bias; a packed file has zeros in its place.
    """
    if t.has("encoder.blocks.0.attn.qkv.weight"):
        return t.linear(f"{at}.{parts}", len(parts) * d, d)
    names = [f"{at}.{name}" for name in ("query", "key", "value") if name[0] in parts]
    return t.fused(names, [d] * len(parts), d, bias=[part != "k" for part in parts])


def convolution(t: Loader, name: str, out: int, inputs: int) -> Linear:
    """A convolution over three places, [O, 3, I].

    MLX stores it so, the others [O, I, 3]; in any real model I is not 3. ggml stores biases [O, 1],
    ready to broadcast.
    """
    first = t.shape("encoder.conv1.weight")
    if first[1:2] == (3,) and first[2:] != (3,):
        weight = t.raw(f"{name}.weight", out, 3, inputs)
    else:
        weight = t.derived(_time_first, t.raw(f"{name}.weight", out, inputs, 3))
    column = t.shape(f"{name}.bias") == (out, 1)
    bias = t.f32(f"{name}.bias", *((out, 1) if column else (out,)))
    return Linear(t.cast(weight), t.derived(_flat, bias))


def encoder_positions(t: Loader, length: int, width: int) -> Array:
    """The table in the file, or sinusoids where it has none."""
    name = "encoder.positional_embedding"
    return t.f32(name, length, width) if t.has(name) else t.derived(sinusoids, length, width)


def sinusoids(length: int, width: int) -> Array:
    """Encoder positions [length, width] float32: sines, then cosines, not interleaved."""
    steps = np.exp(-np.arange(width // 2) * (np.log(10000.0) / (width // 2 - 1)))
    angles = np.arange(length)[:, None] * steps[None, :]
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)


def _tied(t: Loader, embedding: Array) -> Array:
    """The projection to logits is the embedding; a file may repeat it, but not differ."""
    for name in PROJECTIONS:
        extra = t.entries.get(name)
        if extra is None or extra is t.entries[EMBEDDING]:
            continue
        if extra.shape != embedding.shape or not np.array_equal(extra.read(), embedding):
            raise CheckpointError(t.path, f"{name} differs from the token embedding it is tied to")
    return embedding


def _time_first(weight: Array) -> Array:
    return np.ascontiguousarray(weight.transpose(0, 2, 1))


def _flat(bias: Array) -> Array:
    return bias.reshape(-1)


# -- names ----------------------------------------------------------------------------------------

_Table = tuple[tuple[str, str], ...]

# Applied in order to a name, and backwards from the end to give a name as its file has it.
_HUGGING_FACE: _Table = (
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
_MLX: _Table = ((".mlp1.", ".mlp.0."), (".mlp2.", ".mlp.2."))
_CTRANSLATE2: _Table = (
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

#: Tensors that may be there and say nothing that is not known otherwise.
IGNORED = PROJECTIONS | frozenset(
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
    }
)


class TensorNames:
    """A checkpoint's tensors under openai/whisper's names, and the way back to its own.

    An encoder may lie under any prefix (`model.encoder.`, `audio_tower.`); where no decoder lies
    beside it, tensors outside that prefix belong to another model and are left out.

    Raises:
        CheckpointError: no encoder, more than one, or two tensors of one meaning.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        names = checkpoint.tensors
        self._prefix, self._beside, self._table = "encoder.", "", _CTRANSLATE2
        if checkpoint.format != "ctranslate2":
            self._prefix = _encoder_prefix(checkpoint)
            self._beside = self._prefix.removesuffix("encoder.")
            hugging = any("layers." in name and "_proj" in name for name in names)
            self._table = _HUGGING_FACE if hugging else _MLX if _is_mlx(names) else ()
        decoder = f"{self._beside}decoder."
        beside = self._beside != self._prefix and any(n.startswith(decoder) for n in names)
        self.entries: dict[str, LazyTensor] = {}
        origin: dict[str, str] = {}
        for name, entry in names.items():
            found = self._canonical(name, beside or checkpoint.format == "ctranslate2")
            if found is None:
                continue
            if found in origin:
                problem = f"tensors {origin[found]!r} and {name!r} are the same one"
                raise CheckpointError(checkpoint.path, problem)
            self.entries[found], origin[found] = entry, name
        if "proj_out.weight" in self.entries:  # some writers keep this one of the tied two
            projection = self.entries["proj_out.weight"]
            self.entries.setdefault("decoder.token_embedding.weight", projection)

    def own(self, name: str) -> str:
        """How the file spells, or would spell, one of openai/whisper's names."""
        for ours, theirs in reversed(self._table):
            name = name.replace(theirs, ours)
        if name.startswith("encoder."):
            return self._prefix + name.removeprefix("encoder.")
        return self._beside + name if name.startswith("decoder.") else name

    def _canonical(self, name: str, has_decoder: bool) -> str | None:
        if name.startswith(self._prefix) and self._table is not _CTRANSLATE2:
            name = "encoder." + name.removeprefix(self._prefix)
        elif has_decoder:
            name = name.removeprefix(self._beside)
        elif self._prefix not in ("", "encoder."):
            return None
        for theirs, ours in self._table:
            name = name.replace(theirs, ours)
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
        found = " and ".join(repr(f"{prefix}conv1.weight") for prefix in prefixes[:5])
        raise CheckpointError(
            checkpoint.path,
            f"holds several encoders: {found}"
            if prefixes
            else "holds no Whisper encoder (missing conv1.weight or conv2.weight of three axes)",
        )
    return prefixes[0]
