"""Convolutions over time, time first: [T, C].

B sequences of T rows are [B·T, C]. A transposed convolution of stride s is a convolution with s·O
outputs, reshaped to [T·s, O]: the loader arranges the weights for it. The past that a causal layer
needs is in a memory [S, left, C], which the op reads and updates, so frames may come one by one
with the result of the whole sequence. `state`, rows [B] of TALKER_STATE, has for each sequence its
slot of the memory (`slot`), whether it begins (`position` 0: the rows before it are zeros, whatever
its slot holds), and whether it is done (`done`: its result is undefined, its slot unchanged).
Source: transformers models/mimi; Gulati et al. 2020, arXiv:2005.08100; Rekesh et al. 2023,
arXiv:2305.05084.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from oscine.ops.effects import op
from oscine.ops.reference.activations import sigmoid
from oscine.ops.reference.blocks import blocks, chunk_slices, spans, valid_lengths, zero_padded_rows
from oscine.ops.reference.linear import LinearOps
from oscine.ops.types import Activation, ConvParams, Linear, SeqLengths, Tensor
from oscine.threads import parallel_for

Array = NDArray[Any]

COLUMN_BYTES = 1 << 25  # of the unfolded rows that are multiplied at once
GATHERED_ROWS = 384  # of these that a thread gathers at a time
IMAGE_BYTES = 1 << 21  # of the widest image of a block of conv_subsampling: its halo is small
TIME_BYTES = 1 << 18  # of a block of frames of conformer_conv


def sequences_of(
    x: Tensor, state: Tensor | None, memory: Tensor | None = None, batch: int = 1
) -> tuple[int, int]:
    """The number of sequences of x (rows of state, else `batch`), and of rows of each.

    Raises ValueError where the rows do not divide, and for a memory without a state.
    """
    if state is None and memory is not None:
        raise ValueError("a memory needs a state, which names its slots")
    count = batch if state is None else state.shape[0]
    if x.shape[0] % count:
        raise ValueError(f"{x.shape[0]} rows do not divide into {count} sequences")
    return count, x.shape[0] // count


def added_to_each(add: Tensor | None, counts: tuple[int, int], outputs: int, same: bool) -> bool:
    """Whether one `add` is added to each of counts[0] sequences of counts[1] results.

    Raises ValueError for another shape, and for padding that is not `same`.
    """
    if add is None or add.shape == (counts[0] * counts[1], outputs):
        return False
    if add.shape != (counts[1], outputs) or not same:
        raise ValueError(f"{add.shape} cannot be added to windows of {(counts[1], outputs)}")
    return True


def pad(x: Array, params: ConvParams, memory: Array | None, state: Array | None) -> Array:
    """x [B, T, I] padded in time, on the left from the memory where there is one, which is
    updated."""
    if memory is not None and state is not None:
        begun, running = state["position"] > 0, state["done"] == 0
        before = np.where(begun[:, None, None], memory[state["slot"]], np.float32(0))
        y = np.concatenate([before, x], axis=1)
        memory[state["slot"][running]] = y[running, x.shape[1] :]
        return np.pad(y, ((0, 0), (0, params.right), (0, 0))) if params.right else y
    if params.left == params.right == 0:
        return x
    sides = ((0, 0), (params.left, params.right), (0, 0))
    return np.pad(x, sides) if params.padding == "zero" else np.pad(x, sides, mode=params.padding)


def windows(seen: Array, rows: int, width: int, params: ConvParams) -> Array:
    """The inputs of each result: seen [B, N, I] -> [B, rows, width, I], a view."""
    sequence, row, value = seen.strides
    return np.lib.stride_tricks.as_strided(
        seen, (len(seen), rows, width, seen.shape[2]),
        (sequence, params.stride * row, params.dilation * row, value), writeable=False,
    )  # fmt: skip


def gather(looks: Array, first: int, columns: Array) -> None:
    """Copy n windows of [B, rows, width, I], from window `first` on, to columns [n, width, I]."""
    done, rows = 0, looks.shape[1]
    while done < len(columns):
        sequence, row = divmod(first + done, rows)
        count = min(len(columns) - done, rows - row)
        columns[done : done + count] = looks[sequence, row : row + count]
        done += count


def depthwise_stride_2(image: Array, weight: Array, bias: Array | None) -> Array:
    """Depthwise 3x3 with stride 2: image [2R + 1, 2 + F, C], already padded -> [R, F', C]."""
    rows, width = (image.shape[0] - 1) // 2, (image.shape[1] - 1) // 2
    y = np.zeros((rows, width, image.shape[2]), np.float32)
    if bias is not None:
        y += bias
    for i in range(3):
        for j in range(3):
            y += image[i : i + 2 * rows : 2, j : j + 2 * width : 2] * weight[i, j]
    return y


def padded_relu(x: Array, outside: Array) -> Array:
    """ReLU, then zero padding of a column on both sides and of the rows in `outside`."""
    y = np.zeros((x.shape[0], x.shape[1] + 2, x.shape[2]), np.float32)
    np.maximum(x, 0, out=y[:, 1:-1])
    y[outside] = 0
    return y


class ConvOps(LinearOps, Protocol):
    """Convolutions over time: K kernel size, I input and O output channels."""

    @op(writes=("memory",))
    def conv1d(
        self,
        x: Tensor,
        conv: Linear,
        params: ConvParams,
        *,
        batch: int = 1,
        memory: Tensor | None = None,
        state: Tensor | None = None,
        activation: Activation = None,
        add: Tensor | None = None,
    ) -> Tensor:
        """activation(conv(x) + b) + add: x [B·T, I], weight [O, K, I], or [O, I] for K = 1 ->
        [B·T', O].

        T' = (left + T + right - (K - 1) dilation - 1) // stride + 1. Each of the B sequences is
        padded by itself; B is the number of rows of state, else `batch`. add [B·T', O], or, with
        zero padding that is `same`, [T', O] for each sequence. With memory [S, left, I] sequence b
        is padded on the left by memory[slot[b]], which then holds the last `left` rows of memory‖x,
        also where T < left. Raises ValueError for a memory without a state, for rows that do not
        divide into sequences, and for another shape of add.
        """
        outputs, *kernel, inputs = conv.weight.shape
        width, (sequences, count) = prod(kernel), sequences_of(x, state, memory, batch)
        rows = params.rows(count, width)
        if added_to_each(add, (sequences, rows), outputs, params.is_same(width)):
            assert add is not None
            add = np.tile(add, (sequences, 1))
        matrix = Linear(conv.weight.reshape(outputs, -1), conv.bias)
        seen = pad(x.reshape(sequences, count, inputs), params, memory, state)
        if width == params.stride == 1:
            flat = seen[:, :rows].reshape(-1, inputs)
            return self.linear(flat, matrix, activation=activation, add=add)
        y, looks = (
            np.empty((sequences * rows, outputs), np.float32),
            windows(seen, rows, width, params),
        )
        step = max(GATHERED_ROWS, COLUMN_BYTES // (4 * width * inputs))
        for part in chunk_slices(len(y), step):
            columns = np.empty((part.stop - part.start, width, inputs), np.float32)

            def work(to: slice, columns: Array = columns, first: int = part.start) -> None:
                gather(looks, first + to.start, columns[to])

            parallel_for(work, chunk_slices(len(columns), GATHERED_ROWS))
            y[part] = self.linear(
                columns.reshape(len(columns), -1),
                matrix,
                activation=activation,
                add=None if add is None else add[part],
            )
        return y

    @op(writes=("memory",))
    def depthwise(self, x: Tensor, conv: Linear, memory: Tensor, state: Tensor) -> Tensor:
        """Causal depthwise convolution: x [B·T, C], weight [K, C], memory [S, K - 1, C], state as
        in conv1d -> [B·T, C]: y[t] = b + Σ_k w[k] (memory‖x)[t + k] per channel and sequence."""
        width, (sequences, count) = len(conv.weight), sequences_of(x, state, memory)
        seen = pad(x.reshape(sequences, count, -1), ConvParams(width - 1), memory, state)
        y = np.empty((sequences, count, x.shape[1]), np.float32)

        def work(rows: slice) -> None:
            part = y[:, rows]
            part[...] = 0 if conv.bias is None else conv.bias
            for tap in range(width):
                part += seen[:, rows.start + tap : rows.stop + tap] * conv.weight[tap]

        parallel_for(work, blocks(count, sequences * x[:1].nbytes))
        return y.reshape(x.shape)

    @op()
    def conv_subsampling(
        self,
        mel: Tensor,
        lengths: SeqLengths,
        first: Linear,
        layers: Sequence[tuple[Linear, Linear]],
    ) -> Tensor:
        """mel [B·n, F] -> [B·T, F'·C], frequency first; each layer halves n and F, rounded up.

        `first`: 3x3 convolution, stride 2, one channel to C: weight [3, 3, C] (time, frequency,
        channel). Each of `layers`: depthwise 3x3, stride 2, weight [3, 3, C], then pointwise
        [C, C]. ReLU after `first` and after each pointwise one; padding and frames past the length
        are zero.
        Source: NeMo ConvSubsampling, "dw_striding".
        """
        batch, channels = len(lengths.frames), first.weight.shape[-1]
        image = np.pad(mel.reshape(batch, -1, mel.shape[1]), ((0, 0), (0, 0), (1, 1)))
        stages = 1 + len(layers)
        rows, width = image.shape[1], mel.shape[1]
        for _ in range(stages):
            rows, width = -(-rows // 2), -(-width // 2)
        y = np.empty((batch, rows, width, channels), np.float32)
        kernel = first.weight.reshape(9, channels)
        counts = valid_lengths(lengths)

        def block(span: tuple[int, int, int]) -> None:
            b, start, stop = span
            ranges = [(start, stop)]  # of rows of each stage, the last first, then of the mel
            for _ in range(stages):
                ranges.append((2 * ranges[-1][0] - 1, 2 * ranges[-1][1]))
            x = zero_padded_rows(image[b], *ranges[-1], counts[b])
            taps = np.lib.stride_tricks.sliding_window_view(x, (3, 3))[::2, ::2]
            hidden = taps.reshape(*taps.shape[:2], 9) @ kernel
            if first.bias is not None:
                hidden += first.bias
            for stage, (depthwise, pointwise) in enumerate(layers, 1):
                at = np.arange(*ranges[stages - stage])
                outside = (at < 0) | (at >= -(-counts[b] >> stage))
                x = depthwise_stride_2(
                    padded_relu(hidden, outside), depthwise.weight, depthwise.bias
                )
                hidden = x @ pointwise.weight.T
                if pointwise.bias is not None:
                    hidden += pointwise.bias
            np.maximum(hidden, 0, out=y[b, start:stop])

        widest = 4 * channels * (mel.shape[1] // 2 + 1) << len(layers)  # bytes for a row of y
        parallel_for(block, spans(batch, rows, max(1, IMAGE_BYTES // widest)))
        return y.reshape(batch * rows, width * channels)

    @op()
    def conformer_conv(self, x: Tensor, conv: Linear, lengths: SeqLengths) -> Tensor:
        """silu(depthwise(glu(x))) in time, "same" padding: value‖gate [B·T, 2D] -> [B·T, D].

        glu = value · sigmoid(gate); conv.weight [K, D], K odd. Rows past the lengths are zero.
        """
        batch, (taps, width) = len(lengths.frames), conv.weight.shape
        packed = x.reshape(batch, -1, 2 * width)
        y = np.zeros((batch, packed.shape[1], width), np.float32)
        counts = valid_lengths(lengths)

        def block(span: tuple[int, int, int]) -> None:
            b, start, stop = span
            stop = min(stop, counts[b])
            if start >= stop:
                return
            part = zero_padded_rows(packed[b], start - taps // 2, stop + taps // 2, counts[b])
            gated = part[:, :width] * sigmoid(part[:, width:])
            out = y[b, start:stop]
            if conv.bias is not None:
                out += conv.bias
            for tap in range(taps):
                out += gated[tap : tap + stop - start] * conv.weight[tap]
            out *= sigmoid(out)

        parallel_for(block, spans(batch, packed.shape[1], max(taps, TIME_BYTES // (8 * width))))
        return y.reshape(-1, width)
