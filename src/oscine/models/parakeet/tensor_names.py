"""Maps tensor names and axes of every format to NeMo's names with torch's order of axes.

transformers has other names for the same network. MLX keeps NeMo's names, puts the channels of
convolutions last, names the LSTM's arrays its own way and stores the sum of its two biases.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from oscine.errors import CheckpointError
from oscine.models.parakeet.config import LSTM
from oscine.weights import Checkpoint, LazyTensor
from oscine.weights.mapped_file import Array

_Table = tuple[tuple[str, str], ...]

# Replacements (in the file, NeMo's), applied in order; in reverse order for the way back.
_HUGGING_FACE_NAMES: _Table = (
    ("encoder.subsampling.layers.", "encoder.pre_encode.conv."),
    ("encoder.subsampling.linear.", "encoder.pre_encode.out."),
    (".conv.norm.", ".conv.batch_norm."),
    (".self_attn.q_proj.", ".self_attn.linear_q."),
    (".self_attn.k_proj.", ".self_attn.linear_k."),
    (".self_attn.v_proj.", ".self_attn.linear_v."),
    (".self_attn.o_proj.", ".self_attn.linear_out."),
    (".self_attn.relative_k_proj.", ".self_attn.linear_pos."),
    (".self_attn.bias_", ".self_attn.pos_bias_"),
    ("encoder_projector.", "joint.enc."),
    ("decoder.decoder_projector.", "joint.pred."),
    ("decoder.embedding.", "decoder.prediction.embed."),
    ("decoder.lstm.", "decoder.prediction.dec_rnn.lstm."),
    ("joint.head.", "joint.joint_net.2."),
    ("ctc_head.", "ctc."),
)
_NEMO_NAMES: _Table = (
    ("ctc_decoder.decoder_layers.0.", "ctc."),
    ("decoder.decoder_layers.0.", "ctc."),
)
_MLX_LSTM_PATTERN = re.compile(re.escape(LSTM) + r"\.(\d{1,3})\.(Wx|Wh|bias)")
_MLX_PARTS = {"Wx": "weight_ih", "Wh": "weight_hh", "bias": "bias_ih"}

#: Ignored: tensors of training, or computed here.
_IGNORED_PATTERN = re.compile(
    r"preprocessor\.featurizer\.(window|fb)|.*\.num_batches_tracked"
    r"|(loss|ctc_loss|spec_augmentation|spec_augment|wer|ctc_wer)\..*|joint\._(loss|wer).*"
)
MEL_FILTERS_TENSOR = "preprocessor.featurizer.fb"
_FIRST_CONV_WEIGHT = "encoder.pre_encode.conv.0.weight"


@dataclass(frozen=True, slots=True)
class CheckpointTensors:
    """A checkpoint's tensors under NeMo's names with torch's axes, and their names in the file."""

    entries: dict[str, LazyTensor]
    filters: LazyTensor | None  # NeMo's mel bank [1, mels, 257], if the file has it
    format: str
    origin: dict[str, str]
    table: _Table

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> CheckpointTensors:
        """Rename tensors, drop those of training and move axes.

        Raises CheckpointError for a file without a FastConformer encoder, or for two tensors with
        one meaning.
        """
        tensors = checkpoint.tensors
        hugging = any(name.startswith("encoder.subsampling.") for name in tensors)
        table = _HUGGING_FACE_NAMES if hugging else _NEMO_NAMES
        entries: dict[str, LazyTensor] = {}
        origin: dict[str, str] = {}
        for name, entry in tensors.items():
            if _IGNORED_PATTERN.fullmatch(name):
                continue
            found = _canonical(name, table)
            if found in origin:
                problem = f"tensors {origin[found]!r} and {name!r} have the same meaning"
                raise CheckpointError(checkpoint.path, problem)
            entries[found], origin[found] = entry, name
        first = entries.get(_FIRST_CONV_WEIGHT)
        if first is None or len(first.shape) != 4:
            missing = f"missing {_original_name(_FIRST_CONV_WEIGHT, table)} of 4 axes"
            raise CheckpointError(checkpoint.path, f"has no FastConformer encoder ({missing})")
        last = first.shape[1] == 3 and first.shape[3] == 1
        if last:
            entries = {name: _channels_first(name, entry) for name, entry in entries.items()}
        format = "mlx" if last and checkpoint.format == "safetensors" else checkpoint.format
        return cls(entries, tensors.get(MEL_FILTERS_TENSOR), format, origin, table)

    @property
    def has_single_bias(self) -> bool:
        """Whether each LSTM layer has one bias, the sum of two, as in MLX."""
        return self.origin.get(f"{LSTM}.bias_ih_l0", "").endswith("lstm.0.bias")

    def original_name(self, name: str) -> str:
        """The name in the file of a tensor, given NeMo's name."""
        return self.origin.get(name) or _original_name(name, self.table)


def _original_name(name: str, table: _Table) -> str:
    for theirs, ours in reversed(table):
        name = name.replace(ours, theirs)
    return name


def _canonical(name: str, table: _Table) -> str:
    for theirs, ours in table:
        name = name.replace(theirs, ours)
    if (mlx := _MLX_LSTM_PATTERN.fullmatch(name)) is not None:
        return f"{LSTM}.{_MLX_PARTS[mlx[2]]}_l{mlx[1]}"
    # Without dropout in its configuration, NeMo's joint network is one layer shorter.
    return name.replace("joint.joint_net.1.", "joint.joint_net.2.")


def _channels_first(name: str, entry: LazyTensor) -> LazyTensor:
    """MLX's [O, ..., I] as torch's [O, I, ...]; other tensors unchanged."""
    rank = len(entry.shape)
    if rank not in (3, 4) or not name.endswith(".weight"):
        return entry
    shape = (entry.shape[0], entry.shape[-1], *entry.shape[1:-1])

    def read() -> Array:
        return np.moveaxis(entry.read(), -1, 1)

    return LazyTensor(shape, entry.dtype, read)
