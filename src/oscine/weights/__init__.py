"""Weights as people have them: one reader a format, each without conversion and without torch."""

from __future__ import annotations

from pathlib import Path

from oscine.errors import CheckpointError
from oscine.weights.checkpoint import Checkpoint, Entry
from oscine.weights.ctranslate2 import is_ctranslate2, read_ctranslate2
from oscine.weights.safetensors import is_safetensors, read_safetensors, read_sharded

__all__ = ["Checkpoint", "Entry", "read_checkpoint"]

#: What a folder's weights are called, best first.
FOLDER_FILES = (
    "model.safetensors.index.json",
    "model.safetensors",
    "weights.safetensors",
    "weights.npz",
    "model.bin",
)


def read_checkpoint(path: Path | str) -> Checkpoint:
    """Open a checkpoint; what it is, is told from its content, not from its name.

    Raises:
        CheckpointError: nothing there, of no known format, damaged or truncated.
    """
    file = Path(path)
    if file.is_dir():
        file = _weights_in(file)
    if not file.is_file():
        raise CheckpointError(file, "no such file or folder")
    if file.name.endswith(".index.json"):
        return read_sharded(file)
    with file.open("rb") as opened:
        head = opened.read(16)
    if is_safetensors(head):
        return read_safetensors(file)
    if is_ctranslate2(head):
        return read_ctranslate2(file)
    raise CheckpointError(
        file,
        "is of no known format",
        "give a safetensors, CTranslate2, OpenAI .pt, whisper.cpp .bin or MLX checkpoint",
    )


def _weights_in(folder: Path) -> Path:
    for name in FOLDER_FILES:
        if (folder / name).is_file():
            return folder / name
    raise CheckpointError(folder, "holds no weights", "looked for " + ", ".join(FOLDER_FILES))
