"""A weight format is added by the steps of CONTRIBUTING.md, without a line changed in `src/`."""

from __future__ import annotations

import re
import shutil
import struct
from pathlib import Path
from typing import Final

import numpy as np
import pytest

import oscine
from oscine import weights
from oscine.errors import CheckpointError
from oscine.model_files import read_json
from oscine.models.whisper.weights import load_weights
from oscine.tree import tree_paths
from oscine.weights import Checkpoint, LazyTensor, Reader, read_checkpoint
from oscine.weights.checkpoint import mapped_tensor
from oscine.weights.mapped_file import MAX_TENSORS, Cursor, MappedFile, checked_shape

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = ROOT / "tests" / "goldens" / "whisper_formats" / "hf"

# -- steps 1 and 2: the file that would be weights/crate.py ---------------------------------------

MAGIC: Final = b"CRATE1"
_TYPES: Final = {2: np.dtype("<f2"), 4: np.dtype("<f4")}


def is_crate(file: MappedFile) -> bool:
    """Whether a file begins with the magic of a crate."""
    return file.head.startswith(MAGIC)


def read_crate(file: MappedFile) -> Checkpoint:
    """Tensors one after another: length and letters of the name, bytes a number, rank, sizes, data.

    Raises:
        CheckpointError: a damaged or truncated file.
    """
    cursor = Cursor(file, len(MAGIC))
    (count,) = cursor.unpack("I", "the number of tensors")
    if count > MAX_TENSORS:
        raise file.damaged(f"says that it has {count} tensors")
    tensors: dict[str, LazyTensor] = {}
    for _ in range(count):
        (length,) = cursor.unpack("H", "the length of a name")
        name = cursor.take(length, "a name").decode("utf-8", "replace")
        size, rank = cursor.unpack("BB", f"the header of tensor {name!r}")
        shape = checked_shape(file, name, cursor.unpack(f"{rank}I", f"the shape of {name!r}"))
        if size not in _TYPES or name in tensors:
            raise file.damaged(f"tensor {name!r} is there twice or of no known type")
        offset = cursor.skip(size * int(np.prod(shape, dtype=object)), f"tensor {name!r}")
        tensors[name] = mapped_tensor(file, offset, _TYPES[size], shape, name)
    folder = file.path.parent
    return Checkpoint("crate", file.path, folder, tensors, read_json(folder / "config.json"))


# -- step 3: its row ------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        weights, "READERS", [*weights.READERS, Reader(is_crate, read_crate, (".crate",))]
    )


# -- step 5: its tests ----------------------------------------------------------------------------


def crate(arrays: dict[str, np.ndarray]) -> bytes:
    parts = [MAGIC, struct.pack("<I", len(arrays))]
    for name, array in arrays.items():
        letters = name.encode()
        parts += [struct.pack("<H", len(letters)), letters]
        parts += [struct.pack(f"<BB{array.ndim}I", array.itemsize, array.ndim, *array.shape)]
        parts += [array.tobytes()]
    return b"".join(parts)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The golden of transformers in a crate, which alone in its folder may have any name."""
    shutil.copytree(GOLDEN, tmp_path / "model")
    arrays = {n: entry.read() for n, entry in read_checkpoint(GOLDEN).tensors.items()}
    (tmp_path / "model" / "model.safetensors").unlink()
    (tmp_path / "model" / "mine.crate").write_bytes(crate(arrays))
    return tmp_path / "model"


def test_the_format_gives_the_same_tensors(folder: Path) -> None:
    checkpoint = read_checkpoint(folder)
    assert checkpoint.format == "crate" and checkpoint.path == folder / "mine.crate"
    for name, entry in read_checkpoint(GOLDEN).tensors.items():
        np.testing.assert_array_equal(checkpoint.tensors[name].read(), entry.read())


def test_a_model_in_the_format_is_the_same_model(folder: Path) -> None:
    found, known = (tree_paths(load_weights(path)) for path in (folder, GOLDEN))
    assert found.keys() == known.keys()
    assert all(np.array_equal(found[path], array) for path, array in known.items())
    assert oscine.load(folder, "cpu").device == "NumPy"


def test_a_file_cut_at_each_byte_is_named(tmp_path: Path) -> None:
    whole = crate({"a.weight": np.ones((2, 3), np.float16), "b": np.ones(1, np.float32)})
    path = tmp_path / "m.crate"
    for length in range(1, len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(CheckpointError) as caught:
            read_checkpoint(path)
        assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_the_steps_name_what_is_used_here() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    steps = page[page.index("- *A weight format*") : page.index("- *A family of models*")]
    assert Path(__file__).name in steps
    used = re.findall(r"`(?:weights|mapped_file|checkpoint|model_files|file)\.(\w+)[^`]*`", steps)
    text = Path(__file__).read_text("utf-8")
    assert len(used) == 7 and all(re.search(rf"\b{name}\b", text) for name in used)


def test_other_formats_are_told_from_it_still() -> None:
    for name, kind in (("hf", "safetensors"), ("openai.pt", "torch"), ("ggml-f16.bin", "ggml")):
        assert read_checkpoint(GOLDEN.parent / name).format == kind
