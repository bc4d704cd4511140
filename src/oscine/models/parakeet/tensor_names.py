"""Maps tensor names and axes of every format to NeMo's names with torch's order of axes.

transformers, and two programs that write GGUF, have other names for the same network. MLX keeps
NeMo's names, puts the channels of convolutions last, names the LSTM's arrays its own way and stores
the sum of its two biases.
"""

from __future__ import annotations

import re
from collections.abc import Collection
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
#: GGUF's: what transcribe.cpp and CrispASR share, then each; parakeet.cpp keeps NeMo's names.
_GGUF_NAMES: _Table = (
    (".norm_ff1.", ".norm_feed_forward1."),
    (".norm_ff2.", ".norm_feed_forward2."),
    (".ff1.", ".feed_forward1."),
    (".ff2.", ".feed_forward2."),
    (".norm_attn.", ".norm_self_att."),
    (".attn.", ".self_attn."),
    (".conv.bn.", ".conv.batch_norm."),
    ("joint.out.", "joint.joint_net.2."),
)
_TRANSCRIBE_CPP_NAMES: _Table = (
    ("enc.pre_encode.", "encoder.pre_encode."),
    ("enc.blocks.", "encoder.layers."),
    *_GGUF_NAMES,
    (".conv.pointwise1.", ".conv.pointwise_conv1."),
    (".conv.pointwise2.", ".conv.pointwise_conv2."),
    (".conv.depthwise.", ".conv.depthwise_conv."),
    ("pred.embed.", "decoder.prediction.embed."),
    ("pred.lstm.", f"{LSTM}."),
    ("head.ctc.", "ctc."),
)
_CRISPASR_NAMES: _Table = (
    ("encoder.pre.", "encoder.pre_encode."),
    *_GGUF_NAMES,
    *((f".self_attn.{part}.", f".self_attn.linear_{part}.") for part in "qkv"),
    (".self_attn.out.", ".self_attn.linear_out."),
    (".self_attn.pos.", ".self_attn.linear_pos."),
    (".conv.pw1.", ".conv.pointwise_conv1."),
    (".conv.pw2.", ".conv.pointwise_conv2."),
    (".conv.dw.", ".conv.depthwise_conv."),
    ("decoder.embed.", "decoder.prediction.embed."),
    ("decoder.lstm.", f"{LSTM}."),
)
_NEMO_NAMES: _Table = (
    ("ctc_decoder.decoder_layers.0.", "ctc."),
    ("decoder.decoder_layers.0.", "ctc."),
)
_LSTM_PARTS = {
    **{"Wx": "weight_ih", "Wh": "weight_hh", "bias": "bias_ih"},  # of MLX and transcribe.cpp
    **{"w_ih": "weight_ih", "w_hh": "weight_hh", "b_ih": "bias_ih", "b_hh": "bias_hh"},  # CrispASR
}
_LSTM_PATTERN = re.compile(rf"{re.escape(LSTM)}\.(\d{{1,3}})\.({'|'.join(_LSTM_PARTS)})")
#: Zeros into which CrispASR folds the batch normalisation when it loads a file.
_CRISPASR_ZEROS = re.compile(r"encoder\.layers\.\d+\.conv\.dw\.bias")

#: Ignored: tensors of training, or computed here.
_IGNORED_PATTERN = re.compile(
    r"preprocessor\.(featurizer\.)?(window|fb)|.*\.num_batches_tracked"
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
        table = _table_of(tensors)
        zeros = table is _CRISPASR_NAMES and "encoder.layers.0.conv.pw1.bias" not in tensors
        entries: dict[str, LazyTensor] = {}
        origin: dict[str, str] = {}
        for name, entry in tensors.items():
            if _IGNORED_PATTERN.fullmatch(name) or (zeros and _CRISPASR_ZEROS.fullmatch(name)):
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


def _table_of(names: Collection[str]) -> _Table:
    """The names of the format of a checkpoint, by those of its subsampling."""
    if any(name.startswith("encoder.subsampling.") for name in names):
        return _HUGGING_FACE_NAMES
    if any(name.startswith("enc.pre_encode.") for name in names):
        return _TRANSCRIBE_CPP_NAMES
    if any(name.startswith("encoder.pre.") for name in names):
        return _CRISPASR_NAMES
    return _NEMO_NAMES


def _original_name(name: str, table: _Table) -> str:
    for theirs, ours in reversed(table):
        name = name.replace(ours, theirs)
    return name


def _canonical(name: str, table: _Table) -> str:
    for theirs, ours in table:
        name = name.replace(theirs, ours)
    if (part := _LSTM_PATTERN.fullmatch(name)) is not None:
        return f"{LSTM}.{_LSTM_PARTS[part[2]]}_l{part[1]}"
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
