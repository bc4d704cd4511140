"""A tensor on the device: a shape over a buffer, or over one that the plan has yet to assign."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np


@dataclass(eq=False, slots=True)
class Tensor:
    """Row-major values. `buffer` is None for a plan's intermediate until the plan is sealed.

    A matrix larger than one binding may be lies in `parts`, each some of its rows.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    buffer: Any = None
    parts: tuple[Tensor, ...] = ()
    rounded: bool = False  # of float16 factors: matrix units may take it on as they took it up

    @property
    def nbytes(self) -> int:
        """Size in bytes, rounded up to the 4 that WebGPU copies in."""
        return (prod(self.shape) * self.dtype.itemsize + 3) // 4 * 4
