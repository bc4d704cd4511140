"""The case `whisper_formats`: one network in every file format, and its outputs from each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save_file
from transformers import WhisperFeatureExtractor, WhisperForConditionalGeneration
from whisper_files import (
    EMBEDDING,
    GGML_FTYPE,
    POSITIONS,
    State,
    halved,
    mlx_quantised,
    mlx_tensors,
    openai_name,
    write_ct2,
    write_ggml,
)
from whisper_tokenizer import bytes_to_unicode
from whisper_upstream import Upstream

RULE = (
    "run encoder on `mel` and decoder on `tokens` in float32 with the (de)quantised weights of "
    "each file; <key>_enc and <key>_logits are the answers"
)


class Formats:
    """Writes checkpoint files, and records the upstream program's outputs with their weights."""

    def __init__(self, folder: Path, p: dict, model: WhisperForConditionalGeneration) -> None:
        self.folder, self.p, self.model = folder, p, model
        self.state: State = {
            name: value.numpy().copy()
            for name, value in model.state_dict().items()
            if name != "proj_out.weight"
        }
        self.arrays: dict[str, np.ndarray] = {}
        self.files: dict[str, str] = {}
        c = model.config
        self.sizes = {
            "n_mels": p["mels"],
            "n_vocab": c.vocab_size,
            "n_audio_ctx": p["msp"],
            "n_audio_state": p["d"],
            "n_audio_head": p["heads"],
            "n_audio_layer": p["enc"],
            "n_text_ctx": p["mtp"],
            "n_text_state": p["d"],
            "n_text_head": p["heads"],
            "n_text_layer": p["dec"],
        }

    def inputs(self, ids: dict[str, int], n_text: int, rng: np.random.Generator) -> None:
        """Draw features and tokens."""
        shape = (self.p["mels"], 2 * self.p["msp"])
        self.arrays["mel"] = rng.uniform(-1, 1.2, shape).astype(np.float32)
        language = [ids["<|en|>"], ids["<|transcribe|>"]] if self.p["multi"] else []
        text = [int(id) for id in rng.integers(0, n_text - 1, 4)]
        tokens = [ids["<|startoftranscript|>"], *language, ids["<|notimestamps|>"], *text]
        self.arrays["tokens"] = np.asarray(tokens, np.int32)

    def answer(self, key: str, name: str, state: State) -> None:
        """Record the network's outputs with these weights."""
        tensors = {n: torch.from_numpy(np.array(value, np.float32)) for n, value in state.items()}
        tensors["proj_out.weight"] = tensors[EMBEDDING]
        self.model.load_state_dict(tensors)
        upstream = Upstream(self.model)
        encoded = upstream.encode(self.arrays["mel"])["out"]
        logits = upstream.logits(encoded, self.arrays["tokens"].tolist())
        self.arrays[f"{key}_enc"] = encoded.numpy().copy()
        self.arrays[f"{key}_logits"] = logits.numpy().copy()
        self.files[key] = name

    def hugging_face(self) -> None:
        """float16 in one file, bfloat16 in several."""
        for kind, name, shard in (
            (torch.float16, "hf", None),
            (torch.bfloat16, "hf_bf16_sharded", "50KB"),
        ):
            state = {n: torch.from_numpy(value).to(kind) for n, value in self.state.items()}
            state["proj_out.weight"] = state[EMBEDDING]
            how = {"max_shard_size": shard} if shard else {}
            self.model.save_pretrained(self.folder / name, state_dict=dict(state), **how)
            key = "hf_f16" if name == "hf" else name
            self.answer(key, f"{name}/", {n: state[n].float().numpy() for n in self.state})

    def openai(self) -> None:
        """torch.save, as openai/whisper loads it."""
        state = {openai_name(n): torch.from_numpy(v).half() for n, v in self.state.items()}
        torch.save({"dims": self.sizes, "model_state_dict": state}, self.folder / "openai.pt")
        self.answer("openai_pt", "openai.pt", halved(self.state))

    def ggml(self, n_text: int) -> None:
        """whisper.cpp."""
        order, characters = bytes_to_unicode()
        byte_of = dict(zip(characters, order, strict=True))
        vocabulary = json.loads((self.folder / "hf" / "vocab.json").read_text("utf-8"))
        piece = {id: text for text, id in vocabulary.items()}
        words = [bytes(byte_of[c] for c in piece[id]) for id in range(n_text)]
        bank = WhisperFeatureExtractor(feature_size=self.p["mels"]).mel_filters.T
        kinds = [kind for kind in GGML_FTYPE if kind != "f32" or self.p.get("more")]
        for kind in kinds:
            path = self.folder / f"ggml-{kind}.bin"
            self.answer(
                f"ggml_{kind}", path.name, write_ggml(path, self.sizes, bank, words, self.state)
            )

    def ctranslate2(self, ids: dict[str, int], n_text: int) -> None:
        """Folders as faster-whisper has them."""
        hf = self.folder / "hf"
        vocabulary = json.loads((hf / "vocab.json").read_text("utf-8"))
        piece = {id: text for text, id in vocabulary.items()}
        listed = [piece.get(id, "") for id in range(n_text)]
        listed += sorted(ids, key=ids.__getitem__)
        config = {
            "alignment_heads": [[self.p["dec"] - 1, 0]],
            "lang_ids": [ids[f"<|{c}|>"] for c in self.p["langs"]] if self.p["multi"] else [],
            "suppress_ids": [ids["<|startoftranscript|>"]],
            "suppress_ids_begin": [220, ids["<|endoftext|>"]],
        }
        more = ("float32",) if self.p.get("more") else ()
        for kind in ("float16", "int8", "int8_float16", *more):
            folder = self.folder / f"ct2_{kind}"
            folder.mkdir()
            (folder / "config.json").write_text(json.dumps(config, indent=2))
            text = json.dumps(listed, ensure_ascii=False)
            (folder / "vocabulary.json").write_text(text, encoding="utf-8")
            if kind == "float16":
                (folder / "tokenizer.json").write_bytes((hf / "tokenizer.json").read_bytes())
            found = write_ct2(folder / "model.bin", self.sizes, self.state, kind)
            self.answer(f"ct2_{kind}", f"{folder.name}/", found)

    def mlx(self) -> None:
        """mlx-examples/whisper, plain and quantised."""
        (self.folder / "mlx_npz").mkdir()
        heads = np.array([[self.p["dec"] - 1, 0]])
        plain = self.folder / "mlx_npz" / "weights.npz"
        np.savez(plain, alignment_heads=heads, **mlx_tensors(self.state))
        self.write_sizes("mlx_npz")
        self.answer("mlx_npz", "mlx_npz/", halved(self.state) | {POSITIONS: self.state[POSITIONS]})
        for bits in (4, 3) if self.p.get("more") else (4,):
            name = f"mlx_q{bits}"
            (self.folder / name).mkdir()
            tensors, found = mlx_quantised(self.state, 32, bits)
            save_file(tensors, self.folder / name / "weights.safetensors")
            self.write_sizes(name, quantization={"group_size": 32, "bits": bits})
            self.answer(name, f"{name}/", found)

    def write_sizes(self, name: str, **more: Any) -> None:
        """MLX's config.json."""
        config = {**self.sizes, "model_type": "whisper", **more}
        (self.folder / name / "config.json").write_text(json.dumps(config, indent=2))


def build_formats(
    folder: Path,
    p: dict,
    model: WhisperForConditionalGeneration,
    written: tuple[Any, dict[str, int], int],
    rng: np.random.Generator,
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Write every file; arrays and description of the goldens."""
    _, ids, n_text = written
    formats = Formats(folder, p, model)
    formats.inputs(ids, n_text, rng)
    formats.hugging_face()
    formats.openai()
    formats.ggml(n_text)
    formats.ctranslate2(ids, n_text)
    formats.mlx()
    parameters = {name: str(value) for name, value in p.items()}
    meta = {"hparams": parameters, "vocab_size": model.config.vocab_size}
    return formats.arrays, meta | {"files": formats.files, "rule": RULE}
