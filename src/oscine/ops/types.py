"""Tensors, and the records of weights and parameters that ops take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

Tensor: TypeAlias = Any  # numpy.ndarray on the reference side, gpu.tensor.Tensor on the other
Activation: TypeAlias = Literal["gelu", "silu", "relu", "elu", "tanh", "sigmoid"] | None
Padding: TypeAlias = Literal["zero", "edge", "reflect"]
FeatureNorm: TypeAlias = Literal["peak", "standard"]


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
class KVCache:
    """Keys and values of one layer, [N, P, D] each by slot, for at most P positions a slot."""

    keys: Tensor
    values: Tensor


@dataclass(frozen=True, slots=True)
class Snake:
    """SnakeBeta per channel [C]: scale = e^alpha, gain = 1 / (e^beta + 1e-9), of stored alpha and
    beta."""

    scale: Tensor
    gain: Tensor


@dataclass(frozen=True, slots=True)
class ConvParams:
    """Padding, stride and dilation of a convolution over time.

    The input is first padded by `left` and `right` rows: zeros, the edge repeated, or reflected
    without the edge (which needs T > left and right).
    """

    left: int
    right: int = 0
    stride: int = 1
    dilation: int = 1
    padding: Padding = "zero"

    @classmethod
    def same(cls, width: int, stride: int = 1) -> ConvParams:
        """Zero padding with which T rows give ceil(T / stride); width: the kernel size, odd."""
        return cls(width // 2, width // 2, stride)

    def is_same(self, width: int) -> bool:
        """Whether this is `same` padding of a kernel size above 1."""
        return width % 2 == 1 and width > 1 and self == ConvParams.same(width, self.stride)

    def rows(self, count: int, width: int) -> int:
        """The number of results for `count` rows and kernel size `width`. Raises ValueError for
        none."""
        spare = self.left + count + self.right - (width - 1) * self.dilation - 1
        if count < 1 or spare < 0:
            raise ValueError(f"{count} rows are too few for a convolution of {width} and {self}")
        if self.padding == "reflect" and count <= max(self.left, self.right):
            raise ValueError(f"{count} rows are too few to reflect: {self}")
        return spare // self.stride + 1


@dataclass(frozen=True, slots=True)
class SeqLengths:
    """The lengths of B sequences padded to one length.

    Sequence b has ceil(frames[b] / frames_per_row) rows. Rows past a length are padding:
    finite, and without influence on other rows.
    """

    frames: Tensor  # [B] uint32
    frames_per_row: int = 1


@dataclass(frozen=True, slots=True)
class MelBank:
    """A mel filter bank [F, M], and the logarithm of its bands.

    scale, floor and guard: scale · ln(max(band, floor) + guard). magnitude_epsilon: the bands are
    sums of √(power + epsilon); None: of the power.
    """

    bank: Tensor
    scale: float = 1.0
    floor: float = 0.0
    guard: float = 0.0
    magnitude_epsilon: float | None = None


@dataclass(frozen=True, slots=True)
class RopeTable:
    """Cosines and sines of position p times frequency i, [P', W / 2] float32 each.

    The angle is the float32 product of the two, as upstream computes it.
    """

    cos: Tensor
    sin: Tensor


@dataclass(frozen=True, slots=True)
class QKNorm:
    """Root-mean-square norms of each query head and each key head: weights [W]."""

    q: Tensor
    k: Tensor
    eps: float = 1e-6


class LstmCell(Protocol):
    """One LSTM layer: input [4P, P] with the sum of both biases, hidden [4P, P]; gates i f g o."""

    @property
    def input(self) -> Linear: ...

    @property
    def hidden(self) -> Linear: ...
