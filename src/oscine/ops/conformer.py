"""The conformer's ops in NumPy: subsampling, relative positions, gated convolution in time.

Source: Gulati et al. 2020, arXiv:2005.08100; Rekesh et al. 2023, arXiv:2305.05084; Dai et al. 2019,
arXiv:1901.02860 (relative positions). Shapes and meaning: oscine.ops.Ops.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oscine.ops import Lengths, Linear
from oscine.ops.activations import sigmoid
from oscine.ops.conformer_ops import sinusoids
from oscine.threads import each

Array = NDArray[Any]

IMAGE_BYTES = 1 << 21  # of the widest image of a block of subsampling: little of it is halo
SCORE_BYTES = 1 << 19  # of a block of scores: stays in a second-level cache
FEWEST_QUERIES = 32  # of a block of scores, where keys are very many
TIME_BYTES = 1 << 18  # of a block of frames of the gated convolution


def valid(lengths: Lengths) -> list[int]:
    """Rows of each sequence that count."""
    return [-(-int(frames) // lengths.per) for frames in lengths.frames]


def spans(batch: int, rows: int, step: int) -> Iterator[tuple[int, int, int]]:
    """(sequence, first row, end) of blocks of at most `step` rows."""
    for b in range(batch):
        for start in range(0, rows, step):
            yield b, start, min(start + step, rows)


def window(x: Array, start: int, stop: int, count: int) -> Array:
    """A copy of rows start to stop; those outside 0 to count are zero."""
    y = np.zeros((stop - start, *x.shape[1:]), x.dtype)
    first, last = max(start, 0), min(stop, count)
    if first < last:
        y[first - start : last - start] = x[first:last]
    return y


def halve(image: Array, weight: Array, bias: Array | None) -> Array:
    """Depthwise 3x3 with stride 2: image [2R + 1, 2 + F, C], its edges in place -> [R, F', C]."""
    rows, width = (image.shape[0] - 1) // 2, (image.shape[1] - 1) // 2
    y = np.zeros((rows, width, image.shape[2]), np.float32)
    if bias is not None:
        y += bias
    for i in range(3):
        for j in range(3):
            y += image[i : i + 2 * rows : 2, j : j + 2 * width : 2] * weight[i, j]
    return y


def edged(x: Array, outside: Array) -> Array:
    """ReLU, a zero column on either side, and zero rows where `outside` says so."""
    y = np.zeros((x.shape[0], x.shape[1] + 2, x.shape[2]), np.float32)
    np.maximum(x, 0, out=y[:, 1:-1])
    y[outside] = 0
    return y


class Conformer:
    """In NumPy; shapes and meaning: oscine.ops.Ops."""

    def subsample(
        self, mel: Array, lengths: Lengths, first: Linear, halvings: Sequence[tuple[Linear, Linear]]
    ) -> Array:
        batch, channels = len(lengths.frames), first.weight.shape[-1]
        image = np.pad(mel.reshape(batch, -1, mel.shape[1]), ((0, 0), (0, 0), (1, 1)))
        stages = 1 + len(halvings)
        rows, width = image.shape[1], mel.shape[1]
        for _ in range(stages):
            rows, width = -(-rows // 2), -(-width // 2)
        y = np.empty((batch, rows, width, channels), np.float32)
        kernel = first.weight.reshape(9, channels)
        counts = valid(lengths)

        def block(span: tuple[int, int, int]) -> None:
            b, start, stop = span
            ranges = [(start, stop)]  # of rows of each stage, the last first, then of the mel
            for _ in range(stages):
                ranges.append((2 * ranges[-1][0] - 1, 2 * ranges[-1][1]))
            x = window(image[b], *ranges[-1], counts[b])
            taps = np.lib.stride_tricks.sliding_window_view(x, (3, 3))[::2, ::2]
            hidden = taps.reshape(*taps.shape[:2], 9) @ kernel
            if first.bias is not None:
                hidden += first.bias
            for stage, (depthwise, pointwise) in enumerate(halvings, 1):
                at = np.arange(*ranges[stages - stage])
                outside = (at < 0) | (at >= -(-counts[b] >> stage))
                x = halve(edged(hidden, outside), depthwise.weight, depthwise.bias)
                hidden = x @ pointwise.weight.T
                if pointwise.bias is not None:
                    hidden += pointwise.bias
            np.maximum(hidden, 0, out=y[b, start:stop])

        widest = 4 * channels * (mel.shape[1] // 2 + 1) << len(halvings)  # bytes for a row of y
        each(block, spans(batch, rows, max(1, IMAGE_BYTES // widest)))
        return y.reshape(batch * rows, width * channels)

    def relative_positions(self, count: int, width: int) -> Array:
        return sinusoids(np.arange(count - 1, -count, -1), width)

    def attend_relative(
        self,
        qkv: Array,
        positions: Array,
        bias_u: Array,
        bias_v: Array,
        lengths: Lengths,
        heads: int,
        band: tuple[int, int] | None = None,
    ) -> Array:
        batch, width = len(lengths.frames), qkv.shape[1] // 3
        rows, centre = len(qkv) // batch, len(positions) // 2
        scale = np.float32((width // heads) ** -0.5)
        before, after = band if band else (rows, rows)
        packed = qkv.reshape(batch, rows, 3, heads, -1)
        u, v, r = (x.reshape(-1, heads, width // heads) for x in (bias_u, bias_v, positions))
        y = np.zeros((batch, rows, heads, width // heads), np.float32)
        counts = valid(lengths)

        def attend(block: tuple[int, tuple[int, int, int]]) -> None:
            head, (b, start, stop) = block
            stop = min(stop, counts[b])
            if start >= stop:
                return
            first, last = max(0, start - before), min(counts[b], stop + after)
            queries, keys = stop - start, last - first
            q = packed[b, start:stop, 0, head]
            scores = ((q + u[:, head]) * scale) @ packed[b, first:last, 1, head].T
            # Row a of the block meets key j at relative position start + a - j: a Toeplitz band.
            low = centre - (stop - 1) + first
            places = window(r[:, head], low, low + queries + keys - 1, len(r))
            by_place = ((q + v[:, head]) * scale) @ places.T
            step = by_place.itemsize
            scores += np.lib.stride_tricks.as_strided(
                by_place[:, queries - 1 :],
                (queries, keys),
                ((by_place.shape[1] - 1) * step, step),
            )
            if band:
                offset = np.arange(first, last) - np.arange(start, stop)[:, None]
                scores[(offset < -before) | (offset > after)] = -np.inf
            scores -= scores.max(-1, keepdims=True)
            np.exp(scores, out=scores)
            out = np.matmul(scores, packed[b, first:last, 2, head])
            y[b, start:stop, head] = out / scores.sum(-1, keepdims=True)

        keys = min(rows, before + after + 1)
        step = SCORE_BYTES // (4 * keys)
        if band:
            step = min(step, keys // 2)  # a block scores keys that only some of its queries see
        step = max(FEWEST_QUERIES, step)
        pieces = [(h, span) for span in spans(batch, rows, step) for h in range(heads)]
        each(attend, pieces)
        return y.reshape(batch * rows, width)

    def gated_convolution(self, x: Array, conv: Linear, lengths: Lengths) -> Array:
        batch, (taps, width) = len(lengths.frames), conv.weight.shape
        packed = x.reshape(batch, -1, 2 * width)
        y = np.zeros((batch, packed.shape[1], width), np.float32)
        counts = valid(lengths)

        def block(span: tuple[int, int, int]) -> None:
            b, start, stop = span
            stop = min(stop, counts[b])
            if start >= stop:
                return
            part = window(packed[b], start - taps // 2, stop + taps // 2, counts[b])
            gated = part[:, :width] * sigmoid(part[:, width:])
            out = y[b, start:stop]
            if conv.bias is not None:
                out += conv.bias
            for tap in range(taps):
                out += gated[tap : tap + stop - start] * conv.weight[tap]
            out *= sigmoid(out)

        each(block, spans(batch, packed.shape[1], max(taps, TIME_BYTES // (8 * width))))
        return y.reshape(-1, width)

    def padded_frames(self, count: int) -> int:
        return count
