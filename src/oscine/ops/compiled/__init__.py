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

from oscine.dtypes import BFLOAT16
from oscine.ops.compiled.attention import CompiledAttention
from oscine.ops.compiled.library import Library, has_half_conversion
from oscine.ops.compiled.linear import CompiledLinear
from oscine.ops.compiled.sampling import CompiledSampling
from oscine.ops.compiled.team import Team
from oscine.ops.reference import Reference

Array = NDArray[Any]

MIN_HALF_ROWS = 64  # of a matrix that stays in half precision: smaller ones are not for `linear`


class Compiled(CompiledLinear, CompiledAttention, CompiledSampling, Reference):
    """The compiled CPU backend. See oscine.ops.Backend."""

    name = "Numba"

    def __init__(self, folder: Path) -> None:
        """`folder`: where the machine code is stored. Raises ImportError without the extra."""
        self.team = team(folder)

    def stays_half(self, array: Array) -> bool:
        """Whether a weight remains in half precision."""
        if array.ndim != 2 or len(array) < MIN_HALF_ROWS:
            return False
        return array.dtype == BFLOAT16 or (array.dtype == np.float16 and has_half_conversion())

    def stored_bytes(self, array: Array) -> int:
        return array.nbytes if self.stays_half(array) else super().stored_bytes(array)

    def upload(self, array: Array) -> Array:
        if not self.stays_half(array):
            return super().upload(array)
        self.budget.check(array.nbytes)
        ready = np.require(array, requirements=["C", "ALIGNED"])
        self.budget.hold(ready, ready.nbytes)
        return ready


@lru_cache(1)
def team(folder: Path) -> Team:
    """The kernels and threads of this process."""
    return Team(Library(folder))
