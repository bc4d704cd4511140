"""whisper.cpp's legacy `ggml-*.bin`: sizes, mel bank, vocabulary, then tensors to the end.

Format: ggml-org/whisper.cpp models/convert-pt-to-ggml.py and src/whisper.cpp (whisper_model_load).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from oscine.errors import CheckpointError
from oscine.weights.checkpoint import Checkpoint, LazyTensor
from oscine.weights.ggml_blocks import ggml_tensor, tensor_bytes
from oscine.weights.mapped_file import MAX_TENSORS, Cursor, MappedFile, checked_shape

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


def is_ggml(head: bytes) -> bool:
    """Whether a file begins with whisper.cpp's magic."""
    return head[:4] == MAGIC


def read_ggml(path: Path) -> Checkpoint:
    """Open a whisper.cpp model; `vocabulary` holds the raw bytes of its text tokens.

    Raises:
        CheckpointError: damaged, truncated, or with a tensor of a type that is not read.
    """
    file = MappedFile(path)
    cursor = Cursor(file)
    cursor.take(4, "the magic")
    *numbers, _ = cursor.unpack("11i", "the sizes")
    config = dict(zip(HPARAMS, numbers, strict=True))
    if config["n_text_state"] in (0, 1):  # in Parakeet's header the type of the weights is there
        raise CheckpointError(
            path,
            "is whisper.cpp's own file of a Parakeet, which has another header",
            "give the model as .nemo, safetensors or GGUF",
        )
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
    start = cursor.skip(tensor_bytes(file, name, code, shape), f"tensor {name!r}")
    return name, ggml_tensor(file, name, code, shape, start)
