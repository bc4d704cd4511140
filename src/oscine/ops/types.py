"""Tensors and the records of weights that ops of every kind take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

Tensor: TypeAlias = Any  # numpy.ndarray on the reference side, gpu.tensor.Tensor on the other
Activation: TypeAlias = Literal["gelu", "silu", "relu", "elu", "tanh", "sigmoid"] | None
Padding: TypeAlias = Literal["zero", "edge", "reflect"]


@dataclass(frozen=True, slots=True)
class LayerNorm:
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


@dataclass(frozen=True, slots=True)
class Snake:
    """Per channel [C]: scale = e^alpha, gain = 1 / (e^beta + 1e-9), of the stored logarithms."""

    scale: Tensor
    gain: Tensor


@dataclass(frozen=True, slots=True)
class ConvParams:
    """Where a convolution looks: its input is first padded by `left` and `right` rows, of
    zeros, of its edge repeated, or reflected (the edge not repeated; needs T > left and right)."""

    left: int
    right: int = 0
    stride: int = 1
    dilation: int = 1
    padding: Padding = "zero"

    @classmethod
    def same(cls, width: int, stride: int = 1) -> ConvParams:
        """Zeros on both sides, so that T rows give ceil(T / stride); width: odd."""
        return cls(width // 2, width // 2, stride)

    def is_same(self, width: int) -> bool:
        """Whether these are the zeros of `same`, for a convolution of more than one place."""
        return width % 2 == 1 and width > 1 and self == ConvParams.same(width, self.stride)

    def rows(self, count: int, width: int) -> int:
        """Results of a convolution over `width` places of `count` rows; ValueError for none."""
        spare = self.left + count + self.right - (width - 1) * self.dilation - 1
        if count < 1 or spare < 0:
            raise ValueError(f"{count} rows are too few for a convolution of {width} and {self}")
        if self.padding == "reflect" and count <= max(self.left, self.right):
            raise ValueError(f"{count} rows are too few to reflect: {self}")
        return spare // self.stride + 1


@dataclass(frozen=True, slots=True)
class SeqLengths:
    """How much of B sequences of equal padded length counts: ceil(frames[b] / per) rows of each.

    Rows beyond are void: finite, and without influence on others.
    """

    frames: Tensor  # [B] uint32
    per: int = 1  # frames that a row stands for


@dataclass(frozen=True, slots=True)
class RopeTable:
    """Cosines and sines of position p times frequency i, each [P', W / 2] float32, made on the
    host: the angle is the float32 product of the two, as upstream has it."""

    cos: Tensor
    sin: Tensor


@dataclass(frozen=True, slots=True)
class QKNorm:
    """Root-mean-square norms of every query head and every key head: weights [W]."""

    q: Tensor
    k: Tensor
    eps: float = 1e-6


class Cell(Protocol):
    """One LSTM layer: input [4P, P] with the sum of both biases, hidden [4P, P]; gates i f g o."""

    @property
    def input(self) -> Linear: ...

    @property
    def hidden(self) -> Linear: ...
