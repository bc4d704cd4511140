"""Pads widths with zeros to multiples of four, because kernels read four values at a time.

Weights are padded before the upload and the network's results do not change. Widths that a norm
averages over, or that attention heads are cut from, cannot be padded: zeros would change them.
"""

from __future__ import annotations

import numpy as np

from oscine.ops import Linear
from oscine.weights.mapped_file import Array


def pad_to_multiple(array: Array, axis: int, groups: int = 1) -> Array:
    """Pad each of `groups` equal parts along an axis with zeros at its end."""
    width = array.shape[axis] // groups
    padding = -width % 4
    if not padding:
        return array
    before, after = array.shape[:axis], array.shape[axis + 1 :]
    parts = array.reshape(*before, groups, width, *after)
    margins = [(0, padding if index == axis + 1 else 0) for index in range(parts.ndim)]
    return np.pad(parts, margins).reshape(*before, groups * (width + padding), *after)


def pad_linear(linear: Linear, outputs: int = 1, inputs: int = 1) -> Linear:
    """Pad a layer or convolution: outputs and inputs in that many groups each; 0: not padded."""
    weight, bias = linear.weight, linear.bias
    if outputs:
        weight = pad_to_multiple(weight, 0, outputs)
        bias = None if bias is None else pad_to_multiple(bias, 0, outputs)
    return Linear(pad_to_multiple(weight, weight.ndim - 1, inputs) if inputs else weight, bias)
