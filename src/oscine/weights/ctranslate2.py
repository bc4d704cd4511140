"""CTranslate2 models, as faster-whisper uses them: `model.bin` in a folder with config.json.

Format: OpenNMT/CTranslate2 src/models/model.cc (container version 6). Quantised weights are
read as float32, w = q / scale, with one scale per row (int8) or per tensor (int16).
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from oscine.dtypes import BFLOAT16
from oscine.errors import CheckpointError
from oscine.model_files import read_json
from oscine.quantized import BLOCK, Q8
from oscine.weights.checkpoint import FLOAT32, Checkpoint, LazyTensor, mapped_tensor
from oscine.weights.mapped_file import MAX_TENSORS, Array, Cursor, MappedFile, checked_shape

VERSION, SPEC = 6, "WhisperSpec"
_DTYPES: tuple[np.dtype[Any], ...] = (
    np.dtype("<f4"),
    np.dtype("i1"),
    np.dtype("<i2"),
    np.dtype("<i4"),
    np.dtype("<f2"),
    BFLOAT16,
)


def is_ctranslate2(head: bytes) -> bool:
    """Whether a file begins with a small version number and the name of a specification."""
    return len(head) >= 8 and 2 <= int.from_bytes(head[:4], "little") <= 16 and head[6:8].isalpha()


def read_ctranslate2(path: Path) -> Checkpoint:
    """Open a `model.bin`; config.json of its folder, where there is one, becomes `config`.

    Raises:
        CheckpointError: not a Whisper model, another container version, damaged or truncated.
    """
    file = MappedFile(path)
    cursor = Cursor(file)
    (version,) = cursor.unpack("I", "the version")
    spec = _read_string(cursor, "the specification's name")
    if spec != SPEC:
        raise CheckpointError(path, f"is a CTranslate2 model of {spec!r}, not of {SPEC!r}")
    if version != VERSION:
        raise CheckpointError(
            path, f"has CTranslate2 container version {version}, not {VERSION}", "convert it again"
        )
    _, count = cursor.unpack("2I", "the number of variables")
    if count > MAX_TENSORS:
        raise file.damaged(f"claims {count} variables")
    stored: dict[str, LazyTensor] = {}
    for _ in range(count):
        name, entry = _read_variable(cursor)
        if name in stored:
            raise file.damaged(f"variable {name!r} occurs twice")
        stored[name] = entry
    _read_aliases(cursor, stored)
    if cursor.offset != file.size:
        raise file.damaged(f"{file.size - cursor.offset} bytes follow the last variable")
    config = read_json(path.parent / "config.json")
    return Checkpoint("ctranslate2", path, path.parent, _dequantize(file, stored), config)


def _read_string(cursor: Cursor, what: str) -> str:
    (length,) = cursor.unpack("H", what)
    text = cursor.take(length, what)
    if not 1 < length <= 1024 or text[-1] != 0:
        raise cursor.file.damaged(f"{what} is no string")
    try:
        return text[:-1].decode("utf-8")
    except UnicodeDecodeError:
        raise cursor.file.damaged(f"{what} is no string") from None


def _read_variable(cursor: Cursor) -> tuple[str, LazyTensor]:
    file = cursor.file
    name = _read_string(cursor, "a variable's name")
    (rank,) = cursor.unpack("B", f"the rank of {name!r}")
    if rank > 4:
        raise file.damaged(f"variable {name!r} has {rank} dimensions")
    shape = checked_shape(file, name, cursor.unpack(f"{rank}I", f"the dimensions of {name!r}"))
    code, size = cursor.unpack("BI", f"the type of {name!r}")
    if code >= len(_DTYPES):
        raise file.damaged(f"variable {name!r} has unknown type {code}")
    kind = _DTYPES[code]
    needed = math.prod(shape) * kind.itemsize
    if size != needed:
        raise file.damaged(f"variable {name!r} has {size} bytes, its dimensions need {needed}")
    return name, mapped_tensor(file, cursor.skip(size, f"variable {name!r}"), kind, shape, name)


def _read_aliases(cursor: Cursor, stored: dict[str, LazyTensor]) -> None:
    (count,) = cursor.unpack("I", "the number of aliases")
    if count > MAX_TENSORS:
        raise cursor.file.damaged(f"claims {count} aliases")
    for _ in range(count):
        alias = _read_string(cursor, "an alias")
        target = _read_string(cursor, f"what {alias!r} stands for")
        if target not in stored or alias in stored:
            raise cursor.file.damaged(f"alias {alias!r} stands for unknown {target!r}")
        stored[alias] = stored[target]
        scale = f"{target}_scale"  # the writer names only the weight; the scale goes with it
        if scale in stored:
            stored[f"{alias}_scale"] = stored[scale]


def _dequantize(file: MappedFile, stored: dict[str, LazyTensor]) -> dict[str, LazyTensor]:
    entries = {}
    for name, entry in stored.items():
        scale = stored.get(f"{name}_scale")
        if name.endswith("_scale") and name.removesuffix("_scale") in stored:
            continue
        if entry.dtype.kind == "i" and entry.shape:
            if scale is None:
                raise file.damaged(f"variable {name!r} is quantised and has no scale")
            entries[name] = _dequantized_tensor(file, name, entry, scale)
        elif scale is not None:
            raise file.damaged(f"variable {name!r} has a scale and is not quantised")
        else:
            entries[name] = entry
    return entries


def _dequantized_tensor(
    file: MappedFile, name: str, quantised: LazyTensor, scale: LazyTensor
) -> LazyTensor:
    rows = (quantised.shape[0],)
    if scale.shape not in ((), (1,), rows) or scale.dtype.kind != "f":
        raise file.damaged(f"the scale of {name!r} has shape {list(scale.shape)}, not {list(rows)}")

    def read_factors() -> Array:
        factors = scale.read().astype(FLOAT32)
        if not np.all(np.isfinite(factors) & (factors != 0)):
            raise file.damaged(f"the scale of {name!r} is zero or not finite")
        return factors

    def as_blocks() -> Array:
        """The steps as they are; each block of a row has the row's scale, rounded to float16."""
        blocks = np.empty((rows[0], quantised.shape[1] // BLOCK), Q8)
        blocks["values"] = quantised.read().reshape(*blocks.shape, BLOCK)
        blocks["scale"] = np.broadcast_to(1 / read_factors().reshape(-1, 1), blocks.shape)
        return blocks

    def read() -> Array:
        factors = read_factors()
        wide = quantised.read().astype(FLOAT32)
        wide /= factors.reshape((-1,) + (1,) * (wide.ndim - 1))
        return wide

    if quantised.dtype != np.int8 or len(quantised.shape) != 2 or quantised.shape[1] % BLOCK:
        return LazyTensor(quantised.shape, FLOAT32, read)
    return LazyTensor(quantised.shape, FLOAT32, read, block_dtype=Q8, load_blocks=as_blocks)
