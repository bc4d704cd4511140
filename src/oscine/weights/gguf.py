"""GGUF, ggml's container: metadata by key, a table of tensors, then their data, aligned.

Format: ggml-org/ggml docs/gguf.md, versions 2 and 3, little-endian. The metadata are the
checkpoint's config, under the file's own keys; which model's they are is known by
`general.architecture`, and each family reads its own.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from oscine.errors import CheckpointError
from oscine.weights.checkpoint import Checkpoint, LazyTensor
from oscine.weights.ggml_blocks import ggml_tensor, tensor_bytes
from oscine.weights.mapped_file import MAX_TENSORS, Cursor, MappedFile, checked_shape

MAGIC: Final = b"GGUF"
VERSIONS: Final = (2, 3)
TOKENS: Final = "tokenizer.ggml.tokens"  # the key of the vocabulary in most files
_MAX_KEYS, _MAX_TEXT = 1 << 16, 1 << 24
_MAX_ITEMS = 1 << 22  # of a list
_BOOL, _STRING, _ARRAY = 7, 8, 9
_NUMBERS: dict[int, str] = {
    **{0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", _BOOL: "?"},
    **{10: "Q", 11: "q", 12: "d"},
}


def is_gguf(file: MappedFile) -> bool:
    """Whether a file begins with GGUF's magic."""
    return file.head[:4] == MAGIC


def read_gguf(file: MappedFile) -> Checkpoint:
    """Open a GGUF file; `config` has its metadata by key.

    Raises:
        CheckpointError: damaged, truncated, of version 1 or big-endian, or with a tensor of a type
            that is not read.
    """
    cursor = Cursor(file, len(MAGIC))
    (version,) = cursor.unpack("I", "the version")
    if version not in VERSIONS:
        raise CheckpointError(
            file.path,
            f"is a GGUF file of version {version}",
            "versions 2 and 3, little-endian, are read",
        )
    tensor_count, key_count = cursor.unpack("2Q", "the number of tensors and keys")
    if tensor_count > MAX_TENSORS or key_count > _MAX_KEYS:
        raise file.damaged(f"claims {tensor_count} tensors and {key_count} keys")
    metadata: dict[str, Any] = {}
    for _ in range(key_count):
        key = _read_string(cursor, "a key")
        (code,) = cursor.unpack("I", f"the type of {key!r}")
        if key in metadata:
            raise file.damaged(f"key {key!r} occurs twice")
        metadata[key] = _read_value(cursor, key, code)
    return Checkpoint(
        "gguf", file.path, file.path.parent, _read_tensors(cursor, tensor_count, metadata), metadata
    )


def _read_string(cursor: Cursor, what: str) -> str:
    (length,) = cursor.unpack("Q", f"the length of {what}")
    if length > _MAX_TEXT:
        raise cursor.file.damaged(f"{what} has {length} bytes")
    return cursor.take(length, what).decode("utf-8", "replace")


def _read_value(cursor: Cursor, key: str, code: int) -> Any:
    """A number, a truth value, a text, or a list of one of these."""
    what = f"the value of {key!r}"
    if code == _STRING:
        return _read_string(cursor, what)
    if code in _NUMBERS:
        return cursor.unpack(_NUMBERS[code], what)[0]
    if code != _ARRAY:
        raise cursor.file.damaged(f"{what} has unknown type {code}")
    item, count = cursor.unpack("IQ", what)
    if count > _MAX_ITEMS or (item != _STRING and item not in _NUMBERS):
        raise cursor.file.damaged(f"{what} is a list of {count} items of type {item}")
    if item == _STRING:
        cursor.file.require(cursor.offset, 8 * count, what)
        return [_read_string(cursor, what) for _ in range(count)]
    kind = np.dtype("<" + _NUMBERS[item])
    return np.frombuffer(cursor.take(count * kind.itemsize, what), kind).tolist()


def _read_tensors(cursor: Cursor, count: int, metadata: dict[str, Any]) -> dict[str, LazyTensor]:
    """The table of tensors, whose offsets count from the end of the table, aligned."""
    file, listed = cursor.file, dict[str, tuple[int, tuple[int, ...], int]]()
    for _ in range(count):
        name = _read_string(cursor, "a tensor's name")
        (rank,) = cursor.unpack("I", f"the rank of {name!r}")
        if rank > 4:
            raise file.damaged(f"tensor {name!r} has {rank} dimensions")
        dims = cursor.unpack(f"{rank}Q", f"the dimensions of {name!r}")
        code, offset = cursor.unpack("IQ", f"the type of {name!r}")
        if name in listed:
            raise file.damaged(f"tensor {name!r} occurs twice")
        listed[name] = code, checked_shape(file, name, dims[::-1]), offset  # stored fastest first
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or not 0 < alignment <= 1 << 16:
        raise file.damaged(f"general.alignment is {str(alignment)[:40]}")
    data = math.ceil(cursor.offset / alignment) * alignment
    tensors = {}
    for name, (code, shape, offset) in listed.items():
        file.require(data + offset, tensor_bytes(file, name, code, shape), f"tensor {name!r}")
        tensors[name] = ggml_tensor(file, name, code, shape, data + offset)
    return tensors
