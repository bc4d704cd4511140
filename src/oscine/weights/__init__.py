"""Readers of checkpoint formats, one for each; nothing is converted, and torch is not needed."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from oscine.errors import CheckpointError
from oscine.weights.archive import ZipArchive
from oscine.weights.checkpoint import Checkpoint, LazyTensor
from oscine.weights.ctranslate2 import is_ctranslate2, read_ctranslate2
from oscine.weights.ggml import is_ggml, read_ggml
from oscine.weights.gguf import is_gguf, read_gguf
from oscine.weights.mapped_file import MappedFile
from oscine.weights.mlx import dequantize, is_mlx, read_npz
from oscine.weights.nemo import is_nemo, read_nemo
from oscine.weights.safetensors import is_safetensors, read_safetensors, read_sharded
from oscine.weights.torch_pickle import is_torch, read_torch

__all__ = ["READERS", "Checkpoint", "LazyTensor", "Reader", "read_checkpoint"]

#: File names of a folder's weights, in order of preference.
FOLDER_FILES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "weights.safetensors",
    "weights.npz",
    "model.bin",
    "pytorch_model.bin",
)
PERMISSIONS_REMEDY = "check its permissions"
REMEDY = (
    "give a safetensors, CTranslate2, OpenAI .pt, whisper.cpp .bin, GGUF, MLX or .nemo checkpoint"
)


@dataclass(frozen=True, slots=True)
class Reader:
    """A checkpoint format. `matches` recognises a file by its content, `read` opens it.

    A single file with one of its `suffixes` is taken as the weights of a folder.
    """

    matches: Callable[[MappedFile], bool]
    read: Callable[[MappedFile], Checkpoint]
    suffixes: tuple[str, ...]


def read_checkpoint(path: Checkpoint | Path | str) -> Checkpoint:
    """Open a checkpoint; its format is detected from its content, not its name.

    An open Checkpoint is returned unchanged.

    Raises:
        CheckpointError: the file is missing, of an unknown format, damaged or truncated.
    """
    if isinstance(path, Checkpoint):
        return path
    file = Path(path)
    if os.path.isdir(file):  # Path.is_dir raises without permission
        file = _weights_in(file)
    if not os.path.isfile(file):
        raise CheckpointError(file, "no such file or folder")
    if file.name.endswith(".index.json"):
        return _as_mlx(read_sharded(file))
    mapped = MappedFile(file)
    for reader in READERS:
        if reader.matches(mapped):
            return reader.read(mapped)
    raise CheckpointError(file, f"is {_guess(mapped.head)}", REMEDY)


def _is_zip(file: MappedFile) -> bool:
    return file.head[:4] == b"PK\x03\x04"


def _read_zip(file: MappedFile) -> Checkpoint:
    archive = ZipArchive(file.path)
    return read_torch(archive) if is_torch(archive) else read_npz(archive)


def _as_mlx(checkpoint: Checkpoint) -> Checkpoint:
    if checkpoint.format == "safetensors" and is_mlx(checkpoint.tensors):
        return dequantize(checkpoint)
    return checkpoint


def _guess(head: bytes) -> str:
    if head[:1] == b"\x80":
        return "a pickle without a zip archive (torch before 1.6), which is not read"
    if head.startswith((b"version https://git-lfs", b"<")):
        return "a web page or a Git LFS pointer instead of the weights"
    return "of no known format"


def _weights_in(folder: Path) -> Path:
    if not os.access(folder, os.X_OK):
        raise CheckpointError(folder, "may not be opened", PERMISSIONS_REMEDY)
    for name in FOLDER_FILES:
        if os.path.isfile(folder / name):
            return folder / name
    suffixes = {suffix for reader in READERS for suffix in reader.suffixes}
    try:
        there = sorted(folder.iterdir())
    except OSError as error:
        raise CheckpointError(
            folder, f"cannot be listed ({error.strerror})", PERMISSIONS_REMEDY
        ) from None
    single = [path for path in there if path.suffix in suffixes and os.path.isfile(path)]
    if len(single) == 1:
        return single[0]
    if single:
        found = ", ".join(path.name for path in single[:5])
        raise CheckpointError(folder, f"holds several files of weights: {found}", "name one")
    raise CheckpointError(folder, "holds no weights", "looked for " + ", ".join(FOLDER_FILES))


#: Every format, in the order in which they are tried.
READERS = [
    Reader(is_nemo, read_nemo, (".nemo",)),
    Reader(_is_zip, _read_zip, (".npz", ".pt")),
    Reader(lambda file: is_ggml(file.head), lambda file: read_ggml(file.path), (".bin",)),
    Reader(is_gguf, read_gguf, (".gguf",)),
    Reader(
        lambda file: is_safetensors(file.head),
        lambda file: _as_mlx(read_safetensors(file.path)),
        (".safetensors",),
    ),
    Reader(
        lambda file: is_ctranslate2(file.head), lambda file: read_ctranslate2(file.path), (".bin",)
    ),
]
