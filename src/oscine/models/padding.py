"""Widths filled up with zeros to multiples of four, which kernels read at a time.

Before the upload; what a network gives is the same. What a norm goes over, or heads are cut from,
cannot be filled: zeros would change it.
"""

from __future__ import annotations

import numpy as np

from oscine.ops import Linear
from oscine.weights.source import Array


def filled(array: Array, axis: int, groups: int = 1) -> Array:
    """Zeros at the end of every one of `groups` equal parts along an axis."""
    width = array.shape[axis] // groups
    spare = -width % 4
    if not spare:
        return array
    before, after = array.shape[:axis], array.shape[axis + 1 :]
    parts = array.reshape(*before, groups, width, *after)
    margins = [(0, spare if at == axis + 1 else 0) for at in range(parts.ndim)]
    return np.pad(parts, margins).reshape(*before, groups * (width + spare), *after)


def fill(linear: Linear, outputs: int = 1, inputs: int = 1) -> Linear:
    """Outputs and inputs of a layer or convolution, filled in that many groups each; 0: none."""
    weight, bias = linear.weight, linear.bias
    if outputs:
        weight = filled(weight, 0, outputs)
        bias = None if bias is None else filled(bias, 0, outputs)
    return Linear(filled(weight, weight.ndim - 1, inputs) if inputs else weight, bias)
