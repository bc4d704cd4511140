"""Checkpoints of Qwen3-TTS, to be changed: the goldens' with other tensors or settings."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oscine.weights import read_checkpoint
from oscine.weights.safetensors import serialize

GOLDENS = Path(__file__).resolve().parents[2] / "goldens" / "qwen3_tts"

Arrays = dict[str, np.ndarray]


def write_tensors(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write a safetensors file; mappings of an older file of that name stay valid."""
    path.unlink(missing_ok=True)
    path.write_bytes(serialize(arrays))


@dataclass
class Model:
    """A copy of a golden's checkpoint; each change is written at once."""

    folder: Path

    def at(self, part: str) -> Path:
        return self.folder / "speech_tokenizer" if part == "codec" else self.folder

    def tensors(self, part: str = "talker") -> Arrays:
        """The tensors of a part, as stored."""
        tensors = read_checkpoint(self.at(part)).tensors
        return {name: entry.raw().copy() for name, entry in tensors.items()}

    def rewrite(self, arrays: Arrays, part: str = "talker") -> None:
        write_tensors(self.at(part) / "model.safetensors", arrays)

    def set(self, key: str, value: Any, file: str = "config.json") -> None:
        """Set a dotted key of a configuration; ... removes it."""
        path = self.folder / file
        config = json.loads(path.read_text("utf-8"))
        *parents, last = key.split(".")
        inner = config
        for parent in parents:
            inner = inner[parent]
        if value is ...:
            del inner[last]
        else:
            inner[last] = value
        path.write_text(json.dumps(config), "utf-8")


@pytest.fixture
def model(tmp_path: Path) -> Callable[[str], Model]:
    """Copies the checkpoint of a case; twice the same case is two copies."""
    made: list[Model] = []

    def copy(case: str) -> Model:
        folder = tmp_path / f"{case}_{len(made)}"
        shutil.copytree(GOLDENS / case / "ckpt", folder)
        made.append(Model(folder))
        return made[-1]

    return copy
