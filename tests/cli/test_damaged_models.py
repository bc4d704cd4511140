"""The command with damaged models: one line on stderr that names what is wrong, exit code 1."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oscine.weights import read_checkpoint
from oscine.weights.safetensors import serialize

GOLDENS = Path(__file__).resolve().parents[1] / "goldens"
RECORDING = GOLDENS / "audio" / "whisper_multi.wav"


def noisy(folder: Path) -> None:
    """Numbers of one layer are not finite, as damaged bytes of float16 mostly are somewhere."""
    tensors = {name: entry.read().copy() for name, entry in read_checkpoint(folder).tensors.items()}
    name = next(n for n in tensors if n.endswith("encoder.layers.0.fc1.weight"))
    tensors[name][3] = np.inf
    tensors[name][4] = np.nan
    (folder / "model.safetensors").write_bytes(serialize(tensors))


def without_content(value: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "tokenizer.json"
        tokenizer = json.loads(path.read_text("utf-8"))
        tokenizer["added_tokens"][1]["content"] = value
        path.write_text(json.dumps(tokenizer))

    return change


def cut(folder: Path) -> None:
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[:-1])


def longer(folder: Path) -> None:
    with (folder / "model.safetensors").open("ab") as file:
        file.write(b"\0")


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "numbers": (noisy, "on NumPy; the weights are damaged or not those of this model"),
    "null": (without_content(None), "tokenizer.json: not a tokenizer: a token is 'None'"),
    "number": (without_content(5), "tokenizer.json: not a tokenizer: a token is '5'"),
    "nested": (
        lambda folder: (folder / "tokenizer.json").write_text("[" * 100_000) and None,
        "tokenizer.json: is not valid JSON",
    ),
    "cut": (cut, "the file is damaged or truncated"),
    "longer": (longer, "1 bytes follow the last tensor"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_model_is_one_line(tmp_path: Path, name: str) -> None:
    damage, problem = DAMAGES[name]
    folder = tmp_path / "model"
    shutil.copytree(GOLDENS / "whisper_multi", folder)
    damage(folder)
    options = ["--model", str(folder), "--device", "cpu", "--no-vad", "-f", "txt"]
    run = subprocess.run(
        [sys.executable, "-m", "oscine", "transcribe", str(RECORDING), *options],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert run.returncode == 1, run.stderr
    assert run.stdout == "" and problem in run.stderr
    assert run.stderr.startswith("oscine: ") and run.stderr.count("\n") == 1
