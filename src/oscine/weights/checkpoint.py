"""What every reader returns: named tensors, read when asked for, and what goes with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from oscine.dtypes import BFLOAT16, bf16_to_f32
from oscine.weights.mapped_file import Array, MappedFile


@dataclass(frozen=True, slots=True, eq=False)
class LazyTensor:
    """One tensor and the way to it.

    `dtype` is what `read` gives: bfloat16, float64 and every quantised type become float32,
    integers stay what they are.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    load: Callable[[], Array]
    load_raw: Callable[[], Array] | None = None  # bfloat16 as it is stored

    def raw(self) -> Array:
        """As `read`, but bfloat16 as it is stored: oscine.dtypes.BFLOAT16, a view of the file."""
        return self.read() if self.load_raw is None else self.load_raw()

    def read(self) -> Array:
        """The numbers: a view of the file where it stores them so, else new memory.

        Infinities pass silently; they are caught where logits are.
        """
        with np.errstate(all="ignore"):
            return self.load()


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """A checkpoint that has been opened and whose table of contents has been checked."""

    format: str  # "safetensors", "torch", "ctranslate2", "ggml", "mlx" or "nemo"
    path: Path  # the file, or the index of a sharded checkpoint: named in errors
    folder: Path  # where tokenizer and configuration files lie
    tensors: dict[str, LazyTensor]
    config: dict[str, Any]  # config.json, or the sizes that the file itself states
    vocabulary: tuple[bytes, ...] | None = None  # raw token bytes, where the file carries them
    files: dict[str, bytes] = field(default_factory=dict)  # small ones packed with the weights


FLOAT32, FLOAT16 = np.dtype("<f4"), np.dtype("<f2")


def lazy_tensor(
    shape: tuple[int, ...], kind: np.dtype[Any], raw: Callable[[np.dtype[Any]], Array]
) -> LazyTensor:
    """A tensor that `raw` gives in the type in which it is stored, widened where it must be."""
    if kind == BFLOAT16:
        return LazyTensor(shape, FLOAT32, lambda: bf16_to_f32(raw(kind)), lambda: raw(kind))
    if kind == np.dtype("<f8"):
        return LazyTensor(shape, FLOAT32, lambda: raw(kind).astype(FLOAT32))
    return LazyTensor(shape, kind, lambda: raw(kind))


def mapped_tensor(
    file: MappedFile, offset: int, kind: np.dtype[Any], shape: tuple[int, ...], name: str
) -> LazyTensor:
    """A tensor that lies row-major in the file."""
    return lazy_tensor(
        shape, kind, lambda dtype: file.array(offset, dtype, shape, f"tensor {name!r}")
    )
