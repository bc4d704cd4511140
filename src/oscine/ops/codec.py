"""What the ops of codecs mean, in NumPy. Shapes and meaning: oscine.ops.codec_ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oscine.ops import Activation, Linear, Snake, Taps
from oscine.ops.activations import ACTIVATIONS, blocks, cut
from oscine.ops.codec_ops import check_columns, concat_shape, voices_of
from oscine.threads import each

Array = NDArray[Any]

COLUMN_BYTES = 1 << 25  # of the rows of a convolution that are multiplied at once
GATHERED_ROWS = 384  # of these that a thread gathers at a time
DISTANCES = 1 << 16  # differences of a block of a codebook search, times its width


def lengthen(x: Array, taps: Taps, memory: Array | None, state: Array | None) -> Array:
    """What a convolution sees: x [B, T, I] with rows on both sides; the memory moves on."""
    if memory is not None and state is not None:
        begun, running = state["position"] > 0, state["done"] == 0
        before = np.where(begun[:, None, None], memory[state["slot"]], np.float32(0))
        y = np.concatenate([before, x], axis=1)
        memory[state["slot"][running]] = y[running, x.shape[1] :]
        return np.pad(y, ((0, 0), (0, taps.right), (0, 0))) if taps.right else y
    if taps.left == taps.right == 0:
        return x
    sides = ((0, 0), (taps.left, taps.right), (0, 0))
    return np.pad(x, sides) if taps.padding == "zero" else np.pad(x, sides, mode=taps.padding)


def windows(seen: Array, rows: int, width: int, taps: Taps) -> Array:
    """What each result is made of, seen [B, N, I] -> [B, rows, width, I], a view."""
    voice, row, value = seen.strides
    return np.lib.stride_tricks.as_strided(
        seen, (len(seen), rows, width, seen.shape[2]),
        (voice, taps.stride * row, taps.dilation * row, value), writeable=False,
    )  # fmt: skip


def gather(looks: Array, first: int, columns: Array) -> None:
    """Copy windows [B, rows, width, I], from number `first` on, to columns [n, width, I]."""
    done, rows = 0, looks.shape[1]
    while done < len(columns):
        voice, row = divmod(first + done, rows)
        count = min(len(columns) - done, rows - row)
        columns[done : done + count] = looks[voice, row : row + count]
        done += count


def weighted(values: Array, weights: Array | None) -> Array:
    """Mean over time, channel by channel, in float64: rows are many."""
    mean: Array
    if weights is None:
        mean = values.mean(0, dtype=np.float64)
    else:
        mean = np.einsum("tc,tc->c", values, weights, dtype=np.float64)
    return mean


class Coding:
    """Shapes and meaning: oscine.ops.Ops."""

    linear: Callable[..., Array]  # what Reference gives

    def convolve(
        self,
        x: Array,
        conv: Linear,
        taps: Taps,
        *,
        memory: Array | None = None,
        state: Array | None = None,
        activation: Activation = None,
        add: Array | None = None,
    ) -> Array:
        outputs, *places, inputs = conv.weight.shape
        width, (voices, count) = prod(places), voices_of(x, state, memory)
        rows = taps.rows(count, width)
        matrix = Linear(conv.weight.reshape(outputs, -1), conv.bias)
        seen = lengthen(x.reshape(voices, count, inputs), taps, memory, state)
        if width == taps.stride == 1:
            flat = seen[:, :rows].reshape(-1, inputs)
            return self.linear(flat, matrix, activation=activation, add=add)
        y, looks = np.empty((voices * rows, outputs), np.float32), windows(seen, rows, width, taps)
        step = max(GATHERED_ROWS, COLUMN_BYTES // (4 * width * inputs))
        for part in cut(len(y), step):
            columns = np.empty((part.stop - part.start, width, inputs), np.float32)

            def work(to: slice, columns: Array = columns, first: int = part.start) -> None:
                gather(looks, first + to.start, columns[to])

            each(work, cut(len(columns), GATHERED_ROWS))
            y[part] = self.linear(
                columns.reshape(len(columns), -1),
                matrix,
                activation=activation,
                add=None if add is None else add[part],
            )
        return y

    def depthwise(self, x: Array, conv: Linear, memory: Array, state: Array) -> Array:
        width, (voices, count) = len(conv.weight), voices_of(x, state, memory)
        seen = lengthen(x.reshape(voices, count, -1), Taps(width - 1), memory, state)
        y = np.empty((voices, count, x.shape[1]), np.float32)

        def work(rows: slice) -> None:
            part = y[:, rows]
            part[...] = 0 if conv.bias is None else conv.bias
            for tap in range(width):
                part += seen[:, rows.start + tap : rows.stop + tap] * conv.weight[tap]

        each(work, blocks(count, voices * x[:1].nbytes))
        return y.reshape(x.shape)

    def snake(self, x: Array, snake: Snake) -> Array:
        y = np.empty_like(x)

        def work(rows: slice) -> None:
            part = np.multiply(x[rows], snake.scale, out=y[rows])
            np.sin(part, out=part)
            part *= part
            part *= snake.gain
            part += x[rows]

        each(work, blocks(len(x), x[:1].nbytes))
        return y

    def activate(self, x: Array, activation: Activation) -> Array:
        y = x.copy()
        if activation is not None:
            wide = y.reshape(len(y), -1)
            each(lambda rows: ACTIVATIONS[activation](wide[rows]), blocks(len(y), y[:1].nbytes))
        return y

    def concat(self, parts: Sequence[Array]) -> Array:
        rows, _ = concat_shape([part.shape for part in parts])
        return np.concatenate([np.broadcast_to(p, (rows, p.shape[1])) for p in parts], axis=1)

    def columns(self, x: Array, first: int, count: int, add: Array | None = None) -> Array:
        check_columns(x, first, count, add)
        y: Array = x[:, first : first + count].copy()
        if add is not None:
            y += add
        return y

    def look_up(self, codes: Array, tables: Array, first: int) -> Array:
        y = np.zeros((len(codes), tables.shape[2]), np.float32)
        for table, code in zip(tables, codes[:, first : first + len(tables)].T, strict=True):
            y += table[code]
        return y

    def quantise(self, x: Array, table: Array, codes: Array, group: int) -> Array:
        y = np.empty_like(x)

        def work(rows: slice) -> None:
            distances = np.empty((rows.stop - rows.start, len(table)), np.float32)
            for part in cut(len(table), max(1, DISTANCES // table.shape[1])):
                difference = x[rows, None] - table[part]
                np.einsum("tnd,tnd->tn", difference, difference, out=distances[:, part])
            found = distances.argmin(1)
            codes[rows, group] = found
            np.subtract(x[rows], table[found], out=y[rows])

        each(work, cut(len(x), 4))
        return y

    def statistics(self, x: Array, scores: Array | None = None) -> Array:
        weights = None
        if scores is not None:
            weights = np.exp(scores - scores.max(0))
            weights /= weights.sum(0, dtype=np.float64).astype(np.float32)
        mean = weighted(x, weights)
        deviation = np.square(x - mean.astype(np.float32))
        variance = np.maximum(weighted(deviation, weights), 1e-12)
        return np.concatenate([mean, np.sqrt(variance)])[None].astype(np.float32)

    def scale_channels(self, x: Array, factors: Array, add: Array | None = None) -> Array:
        y: Array = x * factors
        if add is not None:
            y += add
        return y
