"""NumPy's backend with its most frequent ops compiled for the processor: the extra `[cpu]`.

Weights in half precision stay as they are in memory: a decoding step reads all of them, and is as
fast as memory is. Every other op is NumPy's.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oscine.ops.compiled.attention import CompiledAttention
from oscine.ops.compiled.library import Library
from oscine.ops.compiled.linear import KINDS, CompiledLinear
from oscine.ops.compiled.sampling import CompiledSampling
from oscine.ops.compiled.team import Team
from oscine.ops.reference import Reference
from oscine.quantized import is_quantized

Array = NDArray[Any]

MIN_HALF_ROWS = 64  # of a matrix that stays in half precision: smaller ones are not for `linear`


class Compiled(CompiledLinear, CompiledAttention, CompiledSampling, Reference):
    """The compiled CPU backend. See oscine.ops.Backend."""

    name = "Numba"
    reads_blocks = True

    def __init__(self, folder: Path) -> None:
        """`folder`: where the machine code is stored.

        Raises ImportError without the extra, RuntimeError for a processor without float16.
        """
        self.team = team(folder)

    def stays(self, array: Array) -> bool:
        """Whether a weight remains in half precision or in blocks."""
        if array.ndim != 2 or array.dtype not in KINDS or array.dtype == np.float32:
            return False
        return is_quantized(array.dtype) or len(array) >= MIN_HALF_ROWS

    def stored_bytes(self, array: Array) -> int:
        return array.nbytes if self.stays(array) else super().stored_bytes(array)

    def upload(self, array: Array) -> Array:
        if not self.stays(array):
            return super().upload(array)
        self.budget.check(array.nbytes)
        ready = np.require(array, requirements=["C", "ALIGNED"])
        self.budget.hold(ready, ready.nbytes)
        return ready


@lru_cache(1)
def team(folder: Path) -> Team:
    """The kernels and threads of this process."""
    return Team(Library(folder))
