"""Safetensors: a JSON table of contents, then raw little-endian tensors; one file or many.

Format: huggingface/safetensors README; limits as in its `safetensors/src/tensor.rs`.
"""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from oscine.dtypes import BFLOAT16
from oscine.errors import CheckpointError
from oscine.model_files import MAX_BYTES, parse_json, read_json
from oscine.weights.checkpoint import Checkpoint, LazyTensor, mapped_tensor
from oscine.weights.mapped_file import (
    MAX_TENSORS,
    Cursor,
    MappedFile,
    checked_shape,
    printable_name,
)

MAX_HEADER_BYTES = 100_000_000  # bytes that the format allows; read are MAX_BYTES

_DTYPES: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": BFLOAT16,
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
    "U64": np.dtype("<u8"),
    "U32": np.dtype("<u4"),
    "U16": np.dtype("<u2"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}
_DTYPE_NAMES = {kind: name for name, kind in _DTYPES.items()}


def is_safetensors(head: bytes) -> bool:
    """Whether the first 16 bytes of a file are a header length and the brace of its JSON."""
    return (
        len(head) >= 9
        and int.from_bytes(head[:8], "little") <= MAX_HEADER_BYTES
        and head[8:9] == b"{"
    )


def read_safetensors(path: Path) -> Checkpoint:
    """Open one `.safetensors` file, with config.json beside it.

    Raises:
        CheckpointError: the header is damaged, or offsets overlap or point outside the file.
    """
    config = read_json(path.parent / "config.json")
    return Checkpoint("safetensors", path, path.parent, _read_entries(path), config)


def read_metadata(path: Path) -> dict[str, Any]:
    """The `__metadata__` of a file; {} if it has none.

    Raises:
        CheckpointError: the header is damaged.
    """
    details = _read_header(Cursor(MappedFile(path))).get("__metadata__")
    return details if isinstance(details, dict) else {}


def serialize(
    tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None
) -> bytes:
    """The bytes of a safetensors file with these tensors, in order; data is aligned to 8 bytes."""
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
    end = 0
    for name, array in tensors.items():
        span = [end, end := end + array.nbytes]
        kind = _DTYPE_NAMES[array.dtype]
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": span}
    text = json.dumps(header, ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    front = struct.pack("<Q", len(text)), text
    return b"".join([*front, *(array.tobytes() for array in tensors.values())])


def read_sharded(index: Path) -> Checkpoint:
    """Open the shards that a `model.safetensors.index.json` names.

    Raises:
        CheckpointError: a shard or a tensor that the index names is not there.
    """
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(index, "has no weight_map", "fetch it again")
    shards: dict[str, dict[str, LazyTensor]] = {}
    tensors: dict[str, LazyTensor] = {}
    missing = []
    for name, shard in weight_map.items():
        if not isinstance(shard, str) or Path(shard).name != shard:
            raise CheckpointError(
                index, f"names a shard outside its folder: {printable_name(str(shard))}"
            )
        if shard not in shards:
            if not os.path.isfile(index.parent / shard):  # Path's own raises for a long name
                raise CheckpointError(
                    index, f"shard {printable_name(shard)} is missing", "fetch the whole folder"
                )
            shards[shard] = _read_entries(index.parent / shard)
        if name in shards[shard]:
            tensors[name] = shards[shard][name]
        else:
            missing.append(f"{printable_name(name)} (in {shard})")
    if missing:
        raise CheckpointError.tensors(index, missing=missing)
    config = read_json(index.parent / "config.json")
    return Checkpoint("safetensors", index, index.parent, tensors, config)


def _read_header(cursor: Cursor) -> dict[str, Any]:
    """Read the table of contents; the cursor is then at the data."""
    (length,) = cursor.unpack("Q", "the header's length")
    if length > MAX_BYTES:
        raise cursor.file.damaged(f"its header claims {length} bytes, more than {MAX_BYTES}")
    return parse_json(cursor.file.path, cursor.take(length, "the header"))


def _read_entries(path: Path) -> dict[str, LazyTensor]:
    file = MappedFile(path)
    cursor = Cursor(file)
    header = _read_header(cursor)
    header.pop("__metadata__", None)
    if len(header) > MAX_TENSORS:
        raise file.damaged(f"holds {len(header)} tensors, more than {MAX_TENSORS}")
    entries = {}
    spans = []
    for name, record in header.items():
        begin, end, entry = _read_entry(file, cursor.offset, name, record)
        entries[name] = entry
        spans.append((begin, end, name))
    _check_layout(file, file.size - cursor.offset, spans)
    return entries


def _check_layout(file: MappedFile, size: int, spans: list[tuple[int, int, str]]) -> None:
    """Check that the tensors fill all `size` bytes of data without gaps or overlaps.

    Hugging Face's reader checks the same (`Metadata::validate`): a file with other bytes could be
    interpreted in two ways.
    """
    reached, owner = 0, ""
    for begin, end, name in sorted(spans):
        if begin < reached:
            raise file.damaged(f"tensors {owner!r} and {name!r} overlap")
        if begin > reached:
            raise file.damaged(f"{begin - reached} bytes before tensor {name!r} belong to none")
        reached, owner = end, name
    if reached != size:
        raise file.damaged(f"{size - reached} bytes follow the last tensor")


def _read_entry(
    file: MappedFile, base: int, name: str, record: object
) -> tuple[int, int, LazyTensor]:
    if not isinstance(record, dict):
        raise file.damaged(f"tensor {name!r} has no description")
    kind = _DTYPES.get(str(record.get("dtype")))
    if kind is None:
        raise CheckpointError(
            file.path,
            f"tensor {name!r} has type {record.get('dtype')!r}",
            "types that can be read: " + " ".join(_DTYPES),
        )
    dims, offsets = record.get("shape"), record.get("data_offsets")
    if not isinstance(dims, list):
        raise file.damaged(f"tensor {name!r} has no shape")
    shape = checked_shape(file, name, dims)
    size = math.prod(shape) * kind.itemsize
    if not isinstance(offsets, list) or [type(o) for o in offsets] != [int, int]:
        raise file.damaged(f"tensor {name!r} has no offsets")
    begin, end = offsets
    if end - begin != size:
        raise file.damaged(
            f"tensor {name!r} has {end - begin} bytes, its shape {list(shape)} needs {size}"
        )
    file.require(base + begin, size, f"tensor {name!r}")
    if begin < 0:
        raise file.damaged(f"tensor {name!r} begins before the data")
    return begin, end, mapped_tensor(file, base + begin, kind, shape, name)
