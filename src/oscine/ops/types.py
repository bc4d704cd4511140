"""Tensors and the records of weights that ops of every kind take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Tensor: TypeAlias = Any  # numpy.ndarray on the reference side, gpu.tensor.Tensor on the other
Activation: TypeAlias = Literal["gelu", "silu", "relu", "elu", "tanh", "sigmoid"] | None


@dataclass(frozen=True, slots=True)
class Norm:
    """Layer normalisation over the last axis: weight [D], bias [D]."""

    weight: Tensor
    bias: Tensor
    eps: float = 1e-5


@dataclass(frozen=True, slots=True)
class RmsNorm:
    """Root-mean-square normalisation over the last axis: weight [D]."""

    weight: Tensor
    eps: float = 1e-6


@dataclass(frozen=True, slots=True)
class Linear:
    """y = x Wᵀ + b: weight [out, in], bias [out] or None."""

    weight: Tensor
    bias: Tensor | None


@dataclass(frozen=True, slots=True)
class Cache:
    """Keys and values of one layer, each [N, room, D] by slot; a slot has room for at least C."""

    keys: Tensor
    values: Tensor
