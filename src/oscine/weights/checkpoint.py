"""What every reader returns: named tensors that are read when asked for, and what goes with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from oscine.weights.source import Array, MappedFile


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """One tensor. `read` gives it in `dtype`: a view of the file where the file stores it so.

    bfloat16, float64 and every quantised type become float32; integers stay what they are.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    read: Callable[[], Array]


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """A checkpoint that has been opened and whose table of contents has been checked."""

    format: str  # "safetensors", "torch", "ctranslate2", "ggml" or "mlx"
    path: Path  # the file, or the index of a sharded checkpoint: named in errors
    folder: Path  # where tokenizer and configuration files lie
    tensors: dict[str, Entry]
    config: dict[str, Any]  # config.json, or the sizes that the file itself states
    vocabulary: tuple[bytes, ...] | None = None  # raw token bytes, where the file carries them


FLOAT32, FLOAT16 = np.dtype("<f4"), np.dtype("<f2")
BFLOAT16 = "bfloat16"  # NumPy has no such type: two bytes, the upper half of a float32


def stored_entry(
    file: MappedFile, offset: int, kind: np.dtype[Any] | str, shape: tuple[int, ...], name: str
) -> Entry:
    """A tensor that lies row-major in the file; `kind` is its NumPy type there, or BFLOAT16."""
    if kind == BFLOAT16:

        def widen() -> Array:
            half = file.array(offset, "<u2", shape, f"tensor {name!r}")
            wide = half.astype("<u4")
            wide <<= 16
            return wide.view(FLOAT32)

        return Entry(shape, FLOAT32, widen)
    stored = np.dtype(kind)
    target = FLOAT32 if stored == np.dtype("<f8") else stored

    def read() -> Array:
        found = file.array(offset, stored, shape, f"tensor {name!r}")
        return found if target == stored else found.astype(target)

    return Entry(shape, target, read)
