"""Every format's tensor names turned into one: those of openai/whisper (whisper/model.py).

Two exceptions serve CTranslate2, which stores projections packed: `attn.qkv` (query, key and value
rows, in this order) and `cross_attn.kv`.
"""

from __future__ import annotations

from oscine.errors import CheckpointError
from oscine.weights import Checkpoint, Entry

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


class Names:
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
        self.entries: dict[str, Entry] = {}
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


def _is_mlx(names: dict[str, Entry]) -> bool:
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
