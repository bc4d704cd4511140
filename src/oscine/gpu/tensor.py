"""Tensors on the device."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from oscine.quantized import weights_per_item


@dataclass(eq=False, slots=True)
class Tensor:
    """Row-major values in a buffer, which a plan assigns to its intermediates (None until then).

    A matrix in blocks of 8 or 4 bits has its shape in weights and the dtype of a block; its buffer
    has the steps of all blocks, then all scales: kernels/common/_matrix_q8.wgsl, _matrix_q4.wgsl.

    A matrix that is larger than the largest binding is stored in `parts`, each some of its rows.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    buffer: Any = None
    parts: tuple[Tensor, ...] = ()
    may_round_to_f16: bool = False  # computed from float16: matrix units may round it again

    @property
    def nbytes(self) -> int:
        """Size in bytes, rounded up to the 4 that WebGPU copies in."""
        items = prod(self.shape) // weights_per_item(self.dtype)
        return (items * self.dtype.itemsize + 3) // 4 * 4
