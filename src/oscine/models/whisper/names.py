"""Every format's tensor names turned into one: those of openai/whisper (whisper/model.py).

Two exceptions serve CTranslate2, which stores projections packed: `attn.qkv` (query, key and value
rows, in this order) and `cross_attn.kv`.
"""

from __future__ import annotations

from pathlib import Path

from oscine.errors import CheckpointError
from oscine.weights import Checkpoint, Entry

_Table = tuple[tuple[str, str], ...]

# Applied in order to every name; what is longer comes before what it contains.
_HUGGING_FACE: _Table = (
    (".layers.", ".blocks."),
    ("encoder.layer_norm.", "encoder.ln_post."),
    ("decoder.layer_norm.", "decoder.ln."),
    ("self_attn_layer_norm", "attn_ln"),
    ("encoder_attn_layer_norm", "cross_attn_ln"),
    ("final_layer_norm", "mlp_ln"),
    ("self_attn.", "attn."),
    ("encoder_attn.", "cross_attn."),
    ("q_proj", "query"),
    ("k_proj", "key"),
    ("v_proj", "value"),
    ("out_proj", "out"),
    (".fc1.", ".mlp.0."),
    (".fc2.", ".mlp.2."),
    ("embed_tokens.weight", "token_embedding.weight"),
    ("embed_positions.weight", "positional_embedding"),
)
_MLX: _Table = ((".mlp1.", ".mlp.0."), (".mlp2.", ".mlp.2."))
_CTRANSLATE2: _Table = (
    ("/", "."),
    (".layer_norm.gamma", ".layer_norm.weight"),
    (".layer_norm.beta", ".layer_norm.bias"),
    (".layer_", ".blocks."),
    (".blocks.norm.", ".layer_norm."),  # undoes the line above for `/layer_norm/`
    (".self_attention.layer_norm.", ".attn_ln."),
    (".attention.layer_norm.", ".cross_attn_ln."),
    (".ffn.layer_norm.", ".mlp_ln."),
    ("encoder.layer_norm.", "encoder.ln_post."),
    ("decoder.layer_norm.", "decoder.ln."),
    (".self_attention.linear_0.", ".attn.qkv."),
    (".self_attention.linear_1.", ".attn.out."),
    (".attention.linear_0.", ".cross_attn.query."),
    (".attention.linear_1.", ".cross_attn.kv."),
    (".attention.linear_2.", ".cross_attn.out."),
    (".ffn.linear_0.", ".mlp.0."),
    (".ffn.linear_1.", ".mlp.2."),
    ("embeddings.weight", "token_embedding.weight"),
    ("position_encodings.encodings", "positional_embedding"),
)

#: May be there and say nothing that is not known otherwise.
IGNORED = frozenset(
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


def canonical(checkpoint: Checkpoint) -> dict[str, Entry]:
    """The checkpoint's Whisper tensors under openai/whisper's names.

    An encoder may lie under any prefix (`model.encoder.`, `audio_tower.`); where no decoder lies
    beside it, tensors outside that prefix belong to another model and are left out.

    Raises:
        CheckpointError: no encoder, more than one, or two tensors of one meaning.
    """
    if checkpoint.format == "ctranslate2":
        return _renamed(checkpoint.path, checkpoint.tensors, _CTRANSLATE2)
    prefix = _encoder_prefix(checkpoint)
    beside = prefix.removesuffix("encoder.")
    decoder = f"{beside}decoder."
    has_decoder = beside != prefix and any(n.startswith(decoder) for n in checkpoint.tensors)
    placed: dict[str, Entry] = {}
    for name, entry in checkpoint.tensors.items():
        if name.startswith(prefix):
            placed["encoder." + name.removeprefix(prefix)] = entry
        elif has_decoder:
            placed[name.removeprefix(beside)] = entry
        elif prefix in ("", "encoder."):
            placed[name] = entry  # nothing here could belong to another model
    return _renamed(checkpoint.path, placed, _HUGGING_FACE + _MLX)


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


def _renamed(path: Path, tensors: dict[str, Entry], table: _Table) -> dict[str, Entry]:
    renamed: dict[str, Entry] = {}
    origin: dict[str, str] = {}
    for name, entry in tensors.items():
        new = name
        for old, replacement in table:
            new = new.replace(old, replacement)
        if new in renamed:
            raise CheckpointError(path, f"tensors {origin[new]!r} and {name!r} are the same one")
        renamed[new] = entry
        origin[new] = name
    return renamed
