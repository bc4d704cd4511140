"""Activations in NumPy: x -> f(x), in place, float32 of any shape."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from oscine.ops.reference.blocks import blocks

Array = NDArray[Any]


# erf(x) ≈ x P(x²)/Q(x²) on [-4, 4], within 4.2e-7 in float32: the coefficients of XLA and Eigen.
ERF_P = (
    -2.72614225801306e-10,
    2.77068142495902e-08,
    -2.10102402082508e-06,
    -5.69250639462346e-05,
    -7.34990630326855e-04,
    -2.95459980854025e-03,
    -1.60960333262415e-02,
)
ERF_Q = (
    -1.45660718464996e-05,
    -2.13374055278905e-04,
    -1.68282697438203e-03,
    -7.37332916720468e-03,
    -1.42647390514189e-02,
)


def polynomial(x: Array, coefficients: tuple[float, ...]) -> Array:
    """Horner's rule, highest power first."""
    y = np.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        y *= x
        y += np.float32(c)
    return y


def erf(x: Array) -> Array:
    """The error function, float32."""
    x = np.clip(x, -4, 4)
    square = x * x
    x *= polynomial(square, ERF_P)
    x /= polynomial(square, ERF_Q)
    return x


def gelu(x: Array) -> None:
    """x/2 (1 + erf(x/√2)), in place: the exact form that Whisper is trained with."""
    for rows in blocks(len(x), x[0].nbytes):
        part = x[rows]
        gate = erf(part * np.float32(np.sqrt(0.5)))
        gate += 1
        gate *= np.float32(0.5)
        part *= gate


def sigmoid(x: Array) -> Array:
    """1 / (1 + e^-x); the exponent is cut off where float32 would overflow."""
    y = np.exp(np.minimum(-x, np.float32(80)))
    y += 1
    return np.divide(1, y, out=y)


def silu(x: Array) -> None:
    """x / (1 + e^-x), in place."""
    for rows in blocks(len(x), x[0].nbytes):
        x[rows] *= sigmoid(x[rows])


def relu(x: Array) -> None:
    """The larger of x and 0, in place."""
    np.maximum(x, 0, out=x)


def elu(x: Array) -> None:
    """x where positive, else e^x - 1, in place."""
    np.copyto(x, np.expm1(np.minimum(x, 0)), where=x < 0)


def tanh(x: Array) -> None:
    """The hyperbolic tangent, in place."""
    np.tanh(x, out=x)


def logistic(x: Array) -> None:
    """1 / (1 + e^-x), in place."""
    x[...] = sigmoid(x)


ACTIVATIONS = {
    "gelu": gelu,
    "silu": silu,
    "relu": relu,
    "elu": elu,
    "tanh": tanh,
    "sigmoid": logistic,
}
