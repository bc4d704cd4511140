"""The case `parakeet_formats`: one network in every file format, and what it says to each."""

from __future__ import annotations

import collections
import gzip
import hashlib
import io
import json
import math
import struct
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from parakeet_upstream import encode
from parakeet_weights import draw_pieces, make_model, set_weights, write_tokenizer
from safetensors.numpy import save_file
from transformers import ParakeetFeatureExtractor
from whisper_case import f32, i32
from whisper_weights import rng_for

RULE = (
    "every file must give the same enc_out for `mel` (already normalised) and the same "
    "joint_logits [frame, token, V + n_dur]; quantised ones their own, named after the folder"
)
NEMO = "nemo.collections.asr.models."
_NAMES = (
    (".conv.norm.", ".conv.batch_norm."),
    ("encoder.subsampling.layers.", "encoder.pre_encode.conv."),
    ("encoder.subsampling.linear.", "encoder.pre_encode.out."),
    ("self_attn.q_proj", "self_attn.linear_q"),
    ("self_attn.k_proj", "self_attn.linear_k"),
    ("self_attn.v_proj", "self_attn.linear_v"),
    ("self_attn.o_proj", "self_attn.linear_out"),
    ("self_attn.relative_k_proj", "self_attn.linear_pos"),
    ("self_attn.bias_", "self_attn.pos_bias_"),
    ("encoder_projector.", "joint.enc."),
    ("decoder.decoder_projector.", "joint.pred."),
    ("decoder.embedding.", "decoder.prediction.embed."),
    ("decoder.lstm.", "decoder.prediction.dec_rnn.lstm."),
    ("joint.head.", "joint.joint_net.2."),
)
_LSTM = "decoder.prediction.dec_rnn.lstm."


def nemo_state(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """transformers' tensors under NeMo's names."""
    found = {}
    for name, value in state.items():
        for theirs, nemos in _NAMES:
            name = name.replace(theirs, nemos)
        found[name] = value.detach().clone()
    return found


def nemo_front(p: dict[str, Any]) -> dict[str, Any]:
    """Of model_config.yaml, what turns sound into encoded frames."""
    return {
        "preprocessor": {
            "_target_": "nemo.collections.asr.modules.AudioToMelSpectrogramPreprocessor",
            "sample_rate": 16000,
            "normalize": "per_feature",
            "window_size": 0.025,
            "window_stride": 0.01,
            "window": "hann",
            "features": p["mels"],
            "n_fft": 512,
            "log": True,
            "frame_splicing": 1,
            "dither": 1e-05,
            "pad_to": 0,
            "pad_value": 0.0,
        },
        "encoder": {
            "_target_": "nemo.collections.asr.modules.ConformerEncoder",
            "feat_in": p["mels"],
            "feat_out": -1,
            "n_layers": p["layers"],
            "d_model": p["d"],
            "use_bias": p["bias"],
            "subsampling": "dw_striding",
            "subsampling_factor": p["sub"],
            "subsampling_conv_channels": p["chan"],
            "causal_downsampling": False,
            "ff_expansion_factor": 4,
            "self_attention_model": "rel_pos",
            "n_heads": p["heads"],
            "att_context_size": [-1, -1],
            "att_context_style": "regular",
            "xscaling": p["scale"],
            "untie_biases": True,
            "pos_emb_max_len": 5000,
            "conv_kernel_size": p["kernel"],
            "conv_norm_type": "batch_norm",
        },
    }


def nemo_config(p: dict[str, Any], pieces: list[str], tag: str) -> dict[str, Any]:
    """What model_config.yaml says, as much as the releases say of what matters."""
    labels, hidden = len(pieces), p["hid"]
    return {
        "sample_rate": 16000,
        **nemo_front(p),
        "decoder": {
            "_target_": "nemo.collections.asr.modules.RNNTDecoder",
            "normalization_mode": None,
            "random_state_sampling": False,
            "blank_as_pad": True,
            "vocab_size": labels,
            "prednet": {"pred_hidden": hidden, "pred_rnn_layers": p["lstm"], "dropout": 0.2},
        },
        "joint": {
            "_target_": "nemo.collections.asr.modules.RNNTJoint",
            "num_classes": labels,
            "num_extra_outputs": len(p["dur"]),
            "jointnet": {
                "joint_hidden": hidden,
                "activation": "relu",
                "dropout": 0.2,
                "encoder_hidden": p["d"],
                "pred_hidden": hidden,
            },
            "vocabulary": pieces,
        },
        "decoding": {
            "strategy": "greedy_batch",
            "model_type": "tdt",
            "durations": list(p["dur"]),
            "greedy": {"max_symbols": 10},
        },
        "model_defaults": {"tdt_durations": list(p["dur"]), "num_tdt_durations": len(p["dur"])},
        "tokenizer": {
            "dir": "/nonexistent",
            "type": "bpe",
            "model_path": f"nemo:{tag}_tokenizer.model",
            "vocab_path": f"nemo:{tag}_vocab.txt",
        },
        "labels": pieces,
        "target": f"{NEMO}rnnt_bpe_models.EncDecRNNTBPEModel",
        "nemo_version": "2.3.0",
    }


def quoted(value: Any) -> str:
    """As JSON, letters as they are."""
    return json.dumps(value, ensure_ascii=False)


def yaml_text(config: dict[str, Any]) -> str:
    """Block style outside, JSON (which is YAML) inside; the durations once by reference."""
    lines = []
    for name, value in config.items():
        if isinstance(value, dict):
            lines.append(f"{name}:")
            lines += [f"  {key}: {quoted(item)}" for key, item in value.items()]
        else:
            lines.append(f"{name}: {quoted(value)}")
    text = "\n".join(lines) + "\n"
    durations = json.dumps(config["decoding"]["durations"])
    return text.replace(f"durations: {durations}", "durations: ${model_defaults.tdt_durations}", 1)


def _varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


def _field(number: int, data: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(data)) + data


def sentencepiece_model(pieces: list[str]) -> bytes:
    """A ModelProto of the fields that matter: pieces, trainer (BPE), normaliser (identity)."""
    out = b""
    for id, piece in enumerate(pieces):
        kind = 2 if piece == "<unk>" else 4 if piece.startswith("<") else 1
        score = struct.pack("<f", -float(id) if kind == 1 else 0.0)
        out += _field(1, _field(1, piece.encode()) + b"\x15" + score + b"\x18" + bytes([kind]))
    trainer = b"\x18\x02\x20" + _varint(len(pieces)) + b"\xc0\x02" + _varint(0)
    for number in (41, 42, 43):  # no begin, end or padding
        trainer += _varint(number << 3) + _varint((1 << 64) - 1)
    return out + _field(2, trainer) + _field(3, _field(1, b"identity"))


def write_nemo(
    path: Path, state: dict[str, torch.Tensor], config: str, pieces: list[str], tag: str
) -> None:
    """A .nemo archive, compressed where its name says so."""
    weights = io.BytesIO()
    torch.save(collections.OrderedDict(state), weights)
    files = {
        "./model_config.yaml": config.encode(),
        "./model_weights.ckpt": weights.getvalue(),
        f"./{tag}_tokenizer.model": sentencepiece_model(pieces),
        f"./{tag}_vocab.txt": "\n".join(pieces).encode(),
    }
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mtime = len(data), 0
            if "weights" in name:
                member.pax_headers = {"comment": "older NeMo writes times as pax records"}
            archive.addfile(member, io.BytesIO(data))
    data = packed.getvalue()
    path.write_bytes(gzip.compress(data, mtime=0) if "gz" in path.name else data)


def mlx_tensors(state: dict[str, torch.Tensor]) -> dict[str, np.ndarray]:
    """As parakeet-mlx has them: channels last, an LSTM's biases summed under its own names."""
    found = {}
    for name, value in state.items():
        array = value.numpy()
        if name.startswith("preprocessor") or name.endswith("num_batches_tracked"):
            continue
        if array.ndim > 2:
            array = np.moveaxis(array, 1, -1)
        if name.startswith(_LSTM):
            part, _, layer = name.removeprefix(_LSTM).rpartition("_l")
            if part == "bias_hh":
                continue
            if part == "bias_ih":
                array = array + state[name.replace("bias_ih", "bias_hh")].numpy()
            own = {"weight_ih": "Wx", "weight_hh": "Wh", "bias_ih": "bias"}[part]
            name = f"{_LSTM}{layer}.{own}"
        found[name] = np.ascontiguousarray(array)
    return found


def mlx_quantised(
    tensors: dict[str, np.ndarray], group: int, bits: int
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """What nn.quantize makes of linear layers and the embedding; and their values again."""
    found, values = dict(tensors), dict(tensors)
    for name, value in tensors.items():
        if value.ndim != 2 or not name.endswith(".weight") or value.shape[1] % group:
            continue
        rows, columns = value.shape
        x = value.reshape(rows, columns // group, group)
        low, high = x.min(-1, keepdims=True), x.max(-1, keepdims=True)
        scale = np.maximum((high - low) / (2**bits - 1), 1e-7)
        q = np.clip(np.rint((x - low) / scale), 0, 2**bits - 1).astype(np.uint8)
        stream = np.unpackbits(q.reshape(rows, columns, 1), axis=2, bitorder="little")[:, :, :bits]
        packed = np.packbits(stream.reshape(rows, -1), axis=1, bitorder="little")
        stem = name.removesuffix("weight")
        found[name] = np.ascontiguousarray(packed).view("<u4")
        found[f"{stem}scales"], found[f"{stem}biases"] = scale[..., 0], low[..., 0]
        values[name] = (q * scale + low).reshape(rows, columns).astype(np.float32)
    return found, values


class Formats:
    """Writes one network in every format and asks upstream what it says."""

    def __init__(self, folder: Path, case: str, seed: int, p: dict[str, Any]) -> None:
        self.folder, self.p = folder, p
        self.rng = rng_for(seed, case, "w")
        self.pieces, self.merges = draw_pieces("tdt", p["pieces"], rng_for(seed, case, "tok"))
        self.tag = hashlib.md5(f"{seed}".encode()).hexdigest()
        self.labels = len(self.pieces) + 1
        self.model = make_model(p, self.labels)
        set_weights(self.model, self.rng, 1.5, 2.0)
        self.mel = self.rng.standard_normal((8 * 9 + 3, p["mels"])).astype(np.float32)
        drawn = self.rng.integers(3, len(self.pieces), 5)
        self.tokens = [len(self.pieces), *map(int, drawn)]
        self.arrays = {"mel": self.mel, "tokens": i32(self.tokens)}

    def outputs(self, suffix: str = "") -> torch.Tensor:
        """Remember what the model says now; the encoder's rows."""
        rows = encode(self.model.encoder, torch.from_numpy(self.mel))[2][-1]
        predicted = self.model.decoder(torch.tensor([self.tokens]))[0]
        projected = self.model.encoder_projector(rows)[:, None]
        joined = self.model.joint.activation(projected + predicted[None])
        self.arrays[f"enc_out{suffix}"] = f32(rows)
        self.arrays[f"joint_logits{suffix}"] = f32(self.model.joint.head(joined))
        return rows

    def write_hugging_face(self) -> None:
        features = ParakeetFeatureExtractor(feature_size=self.p["mels"])
        write_tokenizer(self.folder / "hf", "tdt", self.pieces, self.merges, features)
        self.model.save_pretrained(self.folder / "hf")
        self.filters = np.asarray(features.mel_filters, np.float32)

    def write_nemo(self, rows: torch.Tensor) -> dict[str, torch.Tensor]:
        """Both archives; NeMo's tensors without those of the front end."""
        state = nemo_state(self.model.state_dict())
        front = {
            "preprocessor.featurizer.window": torch.hann_window(400, periodic=False),
            "preprocessor.featurizer.fb": torch.from_numpy(self.filters)[None],
        }
        config = nemo_config(self.p, self.pieces, self.tag)
        text = yaml_text(config)
        write_nemo(self.folder / "model.nemo", front | state, text, self.pieces, self.tag)
        shape = (self.labels, self.p["d"], 1)
        weight = self.rng.standard_normal(shape) / math.sqrt(self.p["d"])
        bias = 0.1 * self.rng.standard_normal(self.labels)
        head = {
            "ctc_decoder.decoder_layers.0.weight": torch.from_numpy(weight.astype(np.float32)),
            "ctc_decoder.decoder_layers.0.bias": torch.from_numpy(bias.astype(np.float32)),
        }
        plain, added = head.values()
        self.arrays["hybrid_ctc_logits"] = f32(rows @ plain[:, :, 0].T + added)
        config["target"] = f"{NEMO}hybrid_rnnt_ctc_bpe_models.EncDecHybridRNNTCTCBPEModel"
        config["aux_ctc"] = {"decoder": {"feat_in": self.p["d"], "num_classes": self.labels - 1}}
        path = self.folder / "hybrid_gz.nemo"
        write_nemo(path, front | state | head, yaml_text(config), self.pieces, self.tag)
        return state

    def write_mlx(self, state: dict[str, torch.Tensor]) -> None:
        """Plain, and where asked for quantised to 8 bits with what it then says."""
        config = nemo_config(self.p, self.pieces, self.tag)
        tensors = mlx_tensors(state)
        self.write_mlx_folder("mlx", tensors, config)
        if not self.p.get("quantised"):
            return
        found, values = mlx_quantised(tensors, 8, 8)
        quantisation = {"group_size": 8, "bits": 8}
        self.write_mlx_folder("mlx_q8", found, config | {"quantization": quantisation})
        back = {nemo: theirs for theirs, nemo in _NAMES}
        own = self.model.state_dict()
        for name, value in values.items():
            if value.ndim == 2 and not name.startswith(_LSTM):
                for nemos, theirs in back.items():
                    name = name.replace(nemos, theirs)
                own[name].copy_(torch.from_numpy(value))
        self.outputs("_mlx_q8")

    def write_mlx_folder(
        self, name: str, tensors: dict[str, np.ndarray], config: dict[str, Any]
    ) -> None:
        (self.folder / name).mkdir()
        save_file(tensors, self.folder / name / "model.safetensors")
        (self.folder / name / "config.json").write_text(quoted(config), encoding="utf-8")


def build_formats(
    folder: Path, case: str, seed: int, p: dict[str, Any]
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays and what goes with them."""
    formats = Formats(folder, case, seed, p)
    rows = formats.outputs()
    formats.write_hugging_face()
    formats.write_mlx(formats.write_nemo(rows))
    files = {"hf": "hf", "nemo": "model.nemo", "hybrid": "hybrid_gz.nemo", "mlx": "mlx"}
    if p.get("quantised"):
        files["mlx_q8"] = "mlx_q8"
    meta = {
        "hparams": {name: str(value) for name, value in p.items()},
        "pieces": formats.pieces,
        "blank": len(formats.pieces),
        "files": files,
        "rule": RULE,
    }
    return formats.arrays, meta
