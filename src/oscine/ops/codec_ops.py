"""What turns codes into sound and sound into codes, of the vocabulary: convolutions over time.

Everything is time first: [T, C]; several voices are [B·T, C], T rows of each. A transposed
convolution of stride s is a convolution whose outputs are s·O wide, seen as [T·s, O]: weights are
arranged so when they are read. What a causal stage needs of the past is in a memory [S, left, C]
that the op reads and advances, so that frames may come one by one and the result is that of the
whole. `state`, rows [B] of UTTERANCE, says for each voice which of the S slots is its own (`slot`),
whether it begins (`position` 0: the rows before it are zeros, whatever its slot holds), and whether
its rows are void (`done`: its slot stays as it is).
Source: Qwen3-TTS, qwen_tts/core/tokenizer_12hz/modeling_qwen3_tts_tokenizer_v2.py; transformers
models/mimi; Desplanques et al. 2020, arXiv:2005.07143 (ECAPA-TDNN).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from oscine.ops.types import Activation, Linear, Tensor

Padding: TypeAlias = Literal["zero", "edge", "reflect"]


@dataclass(frozen=True, slots=True)
class Snake:
    """Per channel [C]: scale = e^alpha, gain = 1 / (e^beta + 1e-9), of the stored logarithms."""

    scale: Tensor
    gain: Tensor


@dataclass(frozen=True, slots=True)
class Taps:
    """Where a convolution looks: its input is first lengthened by `left` and `right` rows, of
    zeros, of its edge repeated, or reflected (the edge not repeated; needs T > left and right)."""

    left: int
    right: int = 0
    stride: int = 1
    dilation: int = 1
    padding: Padding = "zero"

    def rows(self, count: int, width: int) -> int:
        """Results of a convolution over `width` places of `count` rows; ValueError for none."""
        spare = self.left + count + self.right - (width - 1) * self.dilation - 1
        if count < 1 or spare < 0:
            raise ValueError(f"{count} rows are too few for a convolution of {width} and {self}")
        if self.padding == "reflect" and count <= max(self.left, self.right):
            raise ValueError(f"{count} rows are too few to reflect: {self}")
        return spare // self.stride + 1


def voices_of(x: Tensor, state: Tensor | None, memory: Tensor | None = None) -> tuple[int, int]:
    """Voices of x, and rows of each: as many voices as rows of state, one without a state.

    Raises ValueError for rows that the voices cannot share, and for a memory without a state.
    """
    if state is None and memory is not None:
        raise ValueError("a memory needs a state, which says whose it is")
    voices = 1 if state is None else state.shape[0]
    if x.shape[0] % voices:
        raise ValueError(f"{x.shape[0]} rows are no equal number of each of {voices} voices")
    return voices, x.shape[0] // voices


def concat_shape(shapes: Sequence[tuple[int, ...]]) -> tuple[int, int]:
    """The shape of parts side by side.

    Raises ValueError for no parts, parts that are not matrices, and rows that neither agree nor are
    a single one.
    """
    if not shapes or any(len(shape) != 2 for shape in shapes):
        raise ValueError(f"concat takes one or more matrices, not {list(shapes)}")
    rows = max(shape[0] for shape in shapes)
    if any(shape[0] not in (1, rows) for shape in shapes):
        raise ValueError(f"concat takes parts of equal length, or of one row, not {list(shapes)}")
    return rows, sum(shape[1] for shape in shapes)


def check_columns(x: Tensor, first: int, count: int, add: Tensor | None) -> None:
    """Raises ValueError for columns that x does not have, and for another shape of add."""
    if len(x.shape) != 2 or first < 0 or count < 1 or first + count > x.shape[1]:
        raise ValueError(f"{list(x.shape)} has no columns {first} to {first + count}")
    if add is not None and add.shape != (x.shape[0], count):
        raise ValueError(f"{list(add.shape)} cannot be added to {[x.shape[0], count]}")


class CodecOps(Protocol):
    """Shapes: above."""

    def convolve(
        self,
        x: Tensor,
        conv: Linear,
        taps: Taps,
        *,
        memory: Tensor | None = None,
        state: Tensor | None = None,
        activation: Activation = None,
        add: Tensor | None = None,
    ) -> Tensor:
        """activation(conv(x) + b) + add: x [B·T, I], weight [O, K, I] (K places of time; [O, I]:
        one) -> [B·T', O].

        T' = (left + T + right - (K - 1) dilation - 1) // stride + 1. Each voice has its own
        padding; without state there is one voice. With memory [S, left, I] the rows on the left of
        voice b are memory[slot[b]], which then holds the last `left` rows of memory‖x, also where
        T < left.
        Raises ValueError for a memory without a state, and for rows that voices cannot share.
        """
        ...

    def depthwise(self, x: Tensor, conv: Linear, memory: Tensor, state: Tensor) -> Tensor:
        """Causal, each channel by itself: x [B·T, C], weight [K, C], memory [S, K - 1, C] and state
        as in convolve -> [B·T, C]: y[t] = b + Σ_k w[k] (memory‖x)[t + k], voice by voice."""
        ...

    def snake(self, x: Tensor, snake: Snake) -> Tensor:
        """x + gain · sin²(scale · x): x [T, C] -> [T, C]. Arguments are tens of radians: the sine
        is reduced to its first period and then a polynomial, within 1e-6."""
        ...

    def reshape(self, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        """The same values, row by row, under another shape; x itself is not used again."""
        ...

    def activate(self, x: Tensor, activation: Activation) -> Tensor:
        """The activation of every value, any shape."""
        ...

    def concat(self, parts: Sequence[Tensor]) -> Tensor:
        """Parts side by side: [T, c] each -> [T, Σ c]. A part of one row stands in every row.

        Raises ValueError for no parts and for other lengths; a GPU takes widths that are multiples
        of four.
        """
        ...

    def columns(self, x: Tensor, first: int, count: int, add: Tensor | None = None) -> Tensor:
        """x[:, first : first + count] + add: x [T, C], add [T, count] -> [T, count].

        Raises ValueError for columns that x does not have, and for another shape of add; a GPU
        takes multiples of four.
        """
        ...

    def look_up(self, codes: Tensor, tables: Tensor, first: int) -> Tensor:
        """Σ_g tables[g, codes[t, first + g]]: codes [T, G] uint32, tables [n, N, D] -> [T, D]."""
        ...

    def quantise(self, x: Tensor, table: Tensor, codes: Tensor, group: int) -> Tensor:
        """codes[t, group] = the row of table [N, D] nearest to x[t] [T, D], the first among equals;
        returns x less that row. codes is a slot [T, G] uint32. Distances are Σ (x - row)², in f32.
        """
        ...

    def statistics(self, x: Tensor, scores: Tensor | None = None) -> Tensor:
        """Mean and standard deviation over time: x [T, C] -> [1, 2C].

        Weighted by softmax over time of scores [T, C], channel by channel, where given; the
        deviation is √max(Σ w (x - mean)², 1e-12).
        """
        ...

    def scale_channels(self, x: Tensor, factors: Tensor, add: Tensor | None = None) -> Tensor:
        """x · factors + add: x [T, C], factors [1, C], add [T, C]."""
        ...
