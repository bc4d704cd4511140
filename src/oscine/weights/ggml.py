"""whisper.cpp's legacy `ggml-*.bin`: sizes, mel bank, vocabulary, then tensors to the end.

Format: ggml-org/whisper.cpp models/convert-pt-to-ggml.py and src/whisper.cpp (whisper_model_load);
blocks: ggml/src/ggml-quants.c. Quantised tensors are read as float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

from oscine.errors import CheckpointError
from oscine.weights.checkpoint import FLOAT16, FLOAT32, Checkpoint, LazyTensor, mapped_tensor
from oscine.weights.mapped_file import MAX_TENSORS, Array, Cursor, MappedFile, checked_shape

MAGIC: Final = b"lmgg"  # 0x67676d6c, little endian
HPARAMS: Final = (
    "n_vocab",
    "n_audio_ctx",
    "n_audio_state",
    "n_audio_head",
    "n_audio_layer",
    "n_text_ctx",
    "n_text_state",
    "n_text_head",
    "n_text_layer",
    "n_mels",
)
_MAX_TOKENS: Final = 1 << 20
_BLOCK_VALUES: Final = 32
_CHUNK_BLOCKS: Final = 1 << 15  # turned to float32 at a time, so that the scratch stays in cache

_HEAD, _NIBBLES = ("scale", "<f2"), ("nibbles", "u1", 16)
_LAYOUTS: Final[dict[int, tuple[str, np.dtype[Any]]]] = {
    2: ("q4_0", np.dtype([_HEAD, _NIBBLES])),
    3: ("q4_1", np.dtype([_HEAD, ("low", "<f2"), _NIBBLES])),
    6: ("q5_0", np.dtype([_HEAD, ("high", "u1", 4), _NIBBLES])),
    7: ("q5_1", np.dtype([_HEAD, ("low", "<f2"), ("high", "u1", 4), _NIBBLES])),
    8: ("q8_0", np.dtype([_HEAD, ("values", "i1", 32)])),
}
_UNSUPPORTED_TYPES: Final = {
    9: "q8_1",
    10: "q2_K",
    11: "q3_K",
    12: "q4_K",
    13: "q5_K",
    14: "q6_K",
    15: "q8_K",
    30: "bf16",
}


def is_ggml(head: bytes) -> bool:
    """Whether a file begins with whisper.cpp's magic."""
    return head[:4] == MAGIC


def read_ggml(path: Path) -> Checkpoint:
    """Open a whisper.cpp model; `vocabulary` holds the raw bytes of its text tokens.

    Raises:
        CheckpointError: damaged, truncated, or quantised in a way that cannot be read (k-quants).
    """
    file = MappedFile(path)
    cursor = Cursor(file)
    cursor.take(4, "the magic")
    *numbers, _ = cursor.unpack("11i", "the sizes")
    config = dict(zip(HPARAMS, numbers, strict=True))
    rows, bins = cursor.unpack("2i", "the size of the mel bank")
    if min(rows, bins) < 0:
        raise file.damaged(f"its mel bank has {rows} x {bins} numbers")
    cursor.skip(rows * bins * 4, "the mel bank")  # it is computed here, to more digits
    vocabulary = _read_vocabulary(cursor)
    tensors: dict[str, LazyTensor] = {}
    while cursor.offset < file.size:
        name, entry = _read_tensor(cursor)
        if name in tensors:
            raise file.damaged(f"tensor {name!r} occurs twice")
        tensors[name] = entry
        if len(tensors) > MAX_TENSORS:
            raise file.damaged(f"holds more than {MAX_TENSORS} tensors")
    return Checkpoint("ggml", path, path.parent, tensors, config, vocabulary)


def _read_vocabulary(cursor: Cursor) -> tuple[bytes, ...]:
    (count,) = cursor.unpack("i", "the size of the vocabulary")
    if not 0 <= count <= min(_MAX_TOKENS, (cursor.file.size - cursor.offset) // 4):
        raise cursor.file.damaged(f"claims {count} tokens")
    tokens = []
    for number in range(count):
        (length,) = cursor.unpack("I", f"the length of token {number}")
        tokens.append(cursor.take(length, f"token {number}"))
    return tuple(tokens)


def _read_tensor(cursor: Cursor) -> tuple[str, LazyTensor]:
    file = cursor.file
    rank, length, code = cursor.unpack("3i", "a tensor's header")
    if not 1 <= rank <= 4 or not 1 <= length <= 1024:
        raise file.damaged(f"a tensor has {rank} dimensions and a name of {length} bytes")
    dims = cursor.unpack(f"{rank}i", "a tensor's dimensions")
    try:
        name = cursor.take(length, "a tensor's name").decode("utf-8")
    except UnicodeDecodeError:
        raise file.damaged("a tensor's name is not UTF-8") from None
    shape = checked_shape(file, name, dims[::-1])  # stored fastest first
    what = f"tensor {name!r}"
    if code in (0, 1):
        kind = FLOAT16 if code else FLOAT32
        start = cursor.skip(math.prod(shape) * kind.itemsize, what)
        return name, mapped_tensor(file, start, kind, shape, name)
    if code not in _LAYOUTS:
        known = ", ".join(["f32", "f16", *(label for label, _ in _LAYOUTS.values())])
        raise CheckpointError(
            file.path,
            f"{what} has type {_UNSUPPORTED_TYPES.get(code, code)}",
            f"types that can be read: {known}",
        )
    label, layout = _LAYOUTS[code]
    if shape[-1] % _BLOCK_VALUES:
        raise file.damaged(
            f"{what} has rows of {shape[-1]}, {label} needs a multiple of {_BLOCK_VALUES}"
        )
    blocks = math.prod(shape) // _BLOCK_VALUES
    start = cursor.skip(blocks * layout.itemsize, what)
    widen = _widen_bytes if label == "q8_0" else _widen_nibbles

    def read() -> Array:
        size = blocks * layout.itemsize
        return _dequantise(file.array(start, "u1", (size,), what).view(layout), widen, shape)

    return name, LazyTensor(shape, FLOAT32, read)


def _dequantise(
    packed: Array, widen: Callable[[Array, Array], None], shape: tuple[int, ...]
) -> Array:
    values = np.empty((len(packed), _BLOCK_VALUES), FLOAT32)
    for first in range(0, len(packed), _CHUNK_BLOCKS):
        chunk = packed[first : first + _CHUNK_BLOCKS]
        widen(chunk, values[first : first + _CHUNK_BLOCKS])
    return values.reshape(shape)


def _widen_bytes(packed: Array, out: Array) -> None:
    out[:] = packed["values"]
    out *= packed["scale"].astype(FLOAT32)[:, None]


def _widen_nibbles(packed: Array, out: Array) -> None:
    """q4 and q5: element j in the low half of byte j, element j + 16 in its high half."""
    fields = packed.dtype.names or ()
    nibbles = packed["nibbles"]
    half = _BLOCK_VALUES // 2
    out[:, :half] = nibbles & 15
    out[:, half:] = nibbles >> 4
    middle = 8.0
    if "high" in fields:  # the fifth bit of all 32 elements, element 0 in the lowest
        bits = np.unpackbits(np.ascontiguousarray(packed["high"]), axis=1, bitorder="little")
        out += bits * np.float32(16)
        middle = 16.0
    if "low" not in fields:
        out -= np.float32(middle)
    out *= packed["scale"].astype(FLOAT32)[:, None]
    if "low" in fields:
        out += packed["low"].astype(FLOAT32)[:, None]
