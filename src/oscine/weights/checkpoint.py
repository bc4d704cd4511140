"""The result of every reader: a Checkpoint with its configuration and LazyTensors by name."""

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
    """One tensor of a checkpoint, read on demand.

    `dtype` is that of the array from `read`: bfloat16, float64 and quantised types are converted to
    float32; float16 and integers are kept.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    load: Callable[[], Array]
    load_raw: Callable[[], Array] | None = None  # bfloat16 without conversion
    #: The dtype of oscine.quantized whose blocks hold the same weights; None: there are none.
    block_dtype: np.dtype[Any] | None = None
    load_blocks: Callable[[], Array] | None = None  # these blocks, [..., inputs / 32]

    def raw(self) -> Array:
        """The tensor as `read` gives it, but bfloat16 unconverted: dtype oscine.dtypes.BFLOAT16."""
        return self.read() if self.load_raw is None else self.load_raw()

    def blocks(self) -> Array:
        """The tensor in blocks of `block_dtype`, which must not be None."""
        assert self.load_blocks is not None
        with np.errstate(all="ignore"):
            return self.load_blocks()

    def read(self) -> Array:
        """The tensor as an array of `dtype`: a view of the file if possible, else a copy.

        Infinities are not reported here, but where logits are checked.
        """
        with np.errstate(all="ignore"):
            return self.load()


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """An open checkpoint, whose table of contents has been checked."""

    format: str  # "safetensors", "torch", "ctranslate2", "ggml", "gguf", "mlx" or "nemo"
    path: Path  # the file, or the index of a sharded checkpoint: named in errors
    folder: Path  # of the tokenizer and configuration files
    tensors: dict[str, LazyTensor]
    config: dict[str, Any]  # config.json, or the sizes in the file itself
    vocabulary: tuple[bytes, ...] | None = None  # raw token bytes, if the file contains them
    files: dict[str, bytes] = field(default_factory=dict)  # small ones packed with the weights


FLOAT32, FLOAT16 = np.dtype("<f4"), np.dtype("<f2")


def lazy_tensor(
    shape: tuple[int, ...], kind: np.dtype[Any], raw: Callable[[np.dtype[Any]], Array]
) -> LazyTensor:
    """A LazyTensor from `raw`, which reads it in its stored dtype; converted as LazyTensor says."""
    if kind == BFLOAT16:
        return LazyTensor(shape, FLOAT32, lambda: bf16_to_f32(raw(kind)), lambda: raw(kind))
    if kind == np.dtype("<f8"):
        return LazyTensor(shape, FLOAT32, lambda: raw(kind).astype(FLOAT32))
    return LazyTensor(shape, kind, lambda: raw(kind))


def mapped_tensor(
    file: MappedFile, offset: int, kind: np.dtype[Any], shape: tuple[int, ...], name: str
) -> LazyTensor:
    """A LazyTensor that is stored row-major at `offset` of the file."""
    return lazy_tensor(
        shape, kind, lambda dtype: file.array(offset, dtype, shape, f"tensor {name!r}")
    )
