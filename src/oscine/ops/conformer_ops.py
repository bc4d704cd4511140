"""The conformer's part of the op vocabulary: oscine.ops has the rest.

B sequences side by side, padded to one length: n mel frames, T encoder frames; D width, K taps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from oscine.ops.types import Linear, Tensor


@dataclass(frozen=True, slots=True)
class Lengths:
    """How much of B sequences of equal padded length counts: ceil(frames[b] / per) rows of each.

    Rows beyond are void: finite, and without influence on others.
    """

    frames: Tensor  # [B] uint32
    per: int = 1  # frames that a row stands for


class ConformerOps(Protocol):
    """What an encoder of conformer blocks needs beside linear layers and norms."""

    def subsample(
        self,
        mel: Tensor,
        lengths: Lengths,
        first: Linear,
        halvings: Sequence[tuple[Linear, Linear]],
    ) -> Tensor:
        """mel [B·n, F] -> [B·T, F'·C], frequency first; n and F are halved, rounded up, each time.

        `first`: 3x3 convolution, stride 2, one channel to C: weight [3, 3, C] (time, frequency,
        channel). Each halving: depthwise 3x3, stride 2, weight [3, 3, C], then pointwise [C, C].
        ReLU after the first and each pointwise one; frames past the length and edges are zero.
        Source: NeMo ConvSubsampling, "dw_striding".
        """
        ...

    def relative_positions(self, count: int, width: int) -> Tensor:
        """[2 count - 1, D]: row r encodes the distance p = count - 1 - r of a query to a key
        before it, by sin(p wᵢ) and cos(p wᵢ) in turn, wᵢ = 10000^(-2i/D).
        """
        ...

    def attend_relative(
        self,
        qkv: Tensor,
        positions: Tensor,
        bias_u: Tensor,
        bias_v: Tensor,
        lengths: Lengths,
        heads: int,
        band: tuple[int, int] | None = None,
    ) -> Tensor:
        """Self-attention by content and distance: packed q‖k‖v [B·T, 3D] -> [B·T, D].

        Row i gives key j the score ((qᵢ + u)·kⱼ + (qᵢ + v)·r[i - j]) / √W per head, u and v [D];
        positions [2M - 1, D] holds r with distance 0 at row M - 1, M above every distance met.
        band (l, r): only keys i - l to i + r, at a cost that grows with l + r instead of T. Void
        rows are zero. Source: Dai et al. 2019, arXiv:1901.02860; NeMo multi_head_attention.py.
        """
        ...

    def gated_convolution(self, x: Tensor, conv: Linear, lengths: Lengths) -> Tensor:
        """silu(depthwise(glu(x))) in time, "same" padding: value‖gate [B·T, 2D] -> [B·T, D].

        glu = value · sigmoid(gate); conv.weight [K, D], K odd. Void rows are zero.
        """
        ...


def sinusoids(places: NDArray[Any], width: int) -> NDArray[np.float32]:
    """sin(p wᵢ) and cos(p wᵢ) in turn, wᵢ = 10000^(-2i/width): [places, width].

    Exact, where upstream rounds each angle to float32: 3e-4 apart at an hour's distances.
    """
    angles = places[:, None] * 10000.0 ** (-np.arange(0, width, 2) / width)
    turned = np.stack([np.sin(angles), np.cos(angles)], -1)
    return turned.reshape(len(places), -1)[:, :width].astype(np.float32)
