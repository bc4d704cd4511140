"""What each op means, in NumPy alone; also the engine where there is no GPU.

Written as formulas. The one concession to speed: work over [rows, width] goes in blocks of rows
that stay in cache, because whole score matrices are bound by memory, not by arithmetic; the blocks
go to all cores.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oscine.bfloat16 import BFLOAT16, widen
from oscine.ops import Activation, Cache, Linear, Norm, RmsNorm, State
from oscine.ops.activations import ACTIVATIONS, blocks, cut, silu
from oscine.ops.codec import Coding
from oscine.ops.conformer import Conformer
from oscine.ops.decisions import Decisions
from oscine.ops.speech import Speaking
from oscine.ops.transducer import Transducing
from oscine.probe import current_probe
from oscine.threads import each, single_threaded_blas

Array = NDArray[Any]

TILE_ROWS = 384  # of a product: with fewer, BLAS spends its time on repacking the weights
TILE_BYTES = 1 << 22  # of weights, for products too narrow to be cut by rows: 0.4 ms of reading
# Of 2 to 32 rows. OpenBLAS multiplies matrices of so few results and products as they lie in
# memory (sgemm_small_matrix_permit); larger ones it copies first, all the weights for a few rows:
# with AVX-512, 512 x 512 weights and 8 rows take 0.16 ms whole, 0.05 ms in strips.
STRIP_ROWS, STRIP_RESULTS, STRIP_PRODUCTS = 32, 1 << 10, 10**6


def tiles(rows: int, weight: Array) -> Iterator[tuple[slice, slice]]:
    """A product's result [rows, outputs] in pieces: rows of it, or else outputs of it."""
    outputs = len(weight)
    step = outputs if rows > TILE_ROWS else max(1, TILE_BYTES // weight[0].nbytes)
    return product(cut(rows, TILE_ROWS), cut(outputs, step))


def strips(rows: int, outputs: slice, inputs: int) -> Iterator[slice]:
    """A tile's outputs in pieces that BLAS is quick with."""
    length = outputs.stop - outputs.start
    step = length
    if 2 <= rows <= STRIP_ROWS:
        step = max(1, min(STRIP_RESULTS // rows, STRIP_PRODUCTS // (rows * inputs)))
    return (slice(outputs.start + s.start, outputs.start + s.stop) for s in cut(length, step))


def weighted_mean(scores: Array, values: Array, out: Array) -> None:
    """softmax(scores) @ values; overwrites the scores.

    Dividing by the sums comes last, because the result is narrower than the scores.
    """
    scores -= scores.max(-1, keepdims=True)
    np.exp(scores, out=scores)
    np.matmul(scores, values, out=out)
    out /= scores.sum(-1, keepdims=True)


def neighbours(rows: Array) -> Iterator[slice]:
    """Runs of lines that listen to one window, those that are done left out."""
    start = 0
    for (done, _), run in groupby(zip(rows["done"] > 0, rows["window"], strict=True)):
        stop = start + len(list(run))
        if not done:
            yield slice(start, stop)
        start = stop


def split_heads(x: Array, heads: int) -> Array:
    """[..., R, H·W] -> [..., H, R, W], a view."""
    view: Array = np.swapaxes(x.reshape(*x.shape[:-1], heads, x.shape[-1] // heads), -2, -3)
    return view


def windows_of(x: Array, batch: int) -> list[Array]:
    """The windows of a batch. Raises ValueError where they are not of the same length."""
    if len(x) % batch:
        raise ValueError(f"{len(x)} rows are not {batch} windows")
    return np.split(x, batch)


class ReferencePlan:
    """A closure: recording costs nothing here, so replaying is calling."""

    def __init__(self, trace: Callable[[], None], guard: Array | None) -> None:
        self.trace, self.guard = trace, guard

    def run(self, times: int = 1) -> None:
        with single_threaded_blas():
            for _ in range(times):
                if self.guard is not None and self.guard["done"].all():
                    return
                self.trace()


class Reference(Conformer, Decisions, Transducing, Speaking, Coding):
    """The op vocabulary in NumPy; shapes and meaning: oscine.ops.Ops."""

    name = "NumPy"
    good_batch = 8
    encode_batch = 1  # one window keeps all cores busy; BLAS may round others' rows another way
    half_memory = False  # NumPy would convert all of it to float32 at each step
    runs_ahead = False

    # -- memory and time ----------------------------------------------------------------------

    def upload(self, array: Array) -> Array:
        if array.dtype == np.float32:
            return np.require(array, requirements=["C", "ALIGNED"])
        copy = np.empty(array.shape, np.float32)

        def convert(rows: slice) -> None:
            with np.errstate(invalid="ignore"):  # a weight that is no number shows in the logits
                copy[rows] = widen(array[rows]) if array.dtype == BFLOAT16 else array[rows]

        each(convert, blocks(len(array), max(1, copy[:1].nbytes)))
        return copy

    def slot(self, shape: tuple[int, ...], dtype: Any = np.float32) -> Array:
        return np.zeros(shape, dtype)

    def view(self, slot: Array, shape: tuple[int, ...]) -> Array:
        return slot.reshape(-1)[: prod(shape)].reshape(shape)

    def copy(self, source: Array, target: Array, pairs: Sequence[tuple[int, int]]) -> None:
        for i, j in pairs:
            target[j] = source[i]

    def release(self, *slots: Array) -> None:
        """Memory goes with the last reference."""

    def room(self) -> tuple[int, int | None]:
        try:
            free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        except (AttributeError, ValueError, OSError):  # Windows has no sysconf, macOS no such name
            free = None
        return sys.maxsize, free

    def write(self, tensor: Array, array: Array, at: int = 0) -> None:
        start = at * prod(tensor.shape[1:])
        tensor.reshape(-1)[start : start + array.size] = array.reshape(-1)

    def read(self, slot: Array) -> Array:
        return slot.copy()

    def wait(self) -> None:
        """Work is done when it is called for."""

    def snapshot(self, *slots: Array) -> Callable[[], tuple[Array, ...]]:
        copies = tuple(slot.copy() for slot in slots)
        return lambda: copies

    def record(
        self,
        trace: Callable[[], None],
        guard: Array | None = None,
        name: str = "",
    ) -> ReferencePlan:
        return ReferencePlan(trace, guard)

    def padded(self, length: int) -> int:
        return length

    def padded_lines(self, count: int) -> int:
        return count

    def keep(self, x: Array, slot: Array) -> None:
        slot[...] = x

    def probe(self, name: str, x: Array) -> None:
        probe = current_probe()
        if probe is not None:
            probe(name, x.copy())

    def reshape(self, x: Array, shape: tuple[int, ...]) -> Array:
        return x.reshape(shape)

    def trace(self) -> dict[str, tuple[int, float]]:
        return {}

    # -- layers -------------------------------------------------------------------------------

    def conv1d(
        self,
        x: Array,
        conv: Linear,
        *,
        stride: int = 1,
        activation: Activation = None,
        add: Array | None = None,
        batch: int = 1,
    ) -> Array:
        if batch > 1:
            each_window = [
                self.conv1d(window, conv, stride=stride, activation=activation, add=add)
                for window in windows_of(x, batch)
            ]
            return np.concatenate(each_window)
        outputs, width, inputs = conv.weight.shape
        padded = np.pad(x, ((width // 2, width // 2), (0, 0)))
        taps = np.lib.stride_tricks.sliding_window_view(padded, width, 0)[::stride]  # [T', I, K]
        columns = taps.swapaxes(1, 2).reshape(-1, width * inputs)
        if add is not None and add.shape != (len(columns), outputs):
            raise ValueError(f"{add.shape} cannot be added to windows of {(len(columns), outputs)}")
        matrix = Linear(conv.weight.reshape(outputs, -1), conv.bias)
        return self.linear(columns, matrix, activation=activation, add=add)

    def layer_norm(self, x: Array, norm: Norm) -> Array:
        y = np.empty_like(x)

        def normalise(rows: slice) -> None:
            part = np.subtract(x[rows], x[rows].mean(-1, keepdims=True), out=y[rows])
            variance = np.square(part).mean(-1, keepdims=True)
            part /= np.sqrt(variance + np.float32(norm.eps))
            part *= norm.weight
            part += norm.bias

        each(normalise, blocks(len(x), x[0].nbytes))
        return y

    def rms_norm(self, x: Array, norm: RmsNorm) -> Array:
        y = np.empty_like(x)

        def normalise(rows: slice) -> None:
            square = np.square(x[rows]).mean(-1, keepdims=True)
            part = np.divide(x[rows], np.sqrt(square + np.float32(norm.eps)), out=y[rows])
            part *= norm.weight

        each(normalise, blocks(len(x), x[0].nbytes))
        return y

    def normed(self, x: Array, norm: Norm | RmsNorm | None) -> Array:
        """x as a layer sees it whose norm is fused."""
        if norm is None:
            return x
        return self.rms_norm(x, norm) if isinstance(norm, RmsNorm) else self.layer_norm(x, norm)

    def gated_linear(
        self, x: Array, linear: Linear, *, norm: Norm | RmsNorm | None = None
    ) -> Array:
        both = self.linear(x, linear, norm=norm)
        gate, up = np.split(both, 2, axis=1)
        silu(gate)
        gate *= up
        return np.ascontiguousarray(gate)

    def linear(
        self,
        x: Array,
        linear: Linear,
        *,
        norm: Norm | RmsNorm | None = None,
        activation: Activation = None,
        add: Array | None = None,
    ) -> Array:
        x = self.normed(x, norm)
        y = np.empty((len(x), len(linear.weight)), np.float32)

        def multiply(tile: tuple[slice, slice]) -> None:
            rows, outputs = tile
            part, taken = y[tile], x[rows]
            for strip in strips(len(taken), outputs, taken.shape[1]):
                np.matmul(taken, linear.weight[strip].T, out=y[rows, strip])
            if linear.bias is not None:
                part += linear.bias[outputs]
            if activation is not None:
                ACTIVATIONS[activation](part)
            if add is not None:
                part += add[tile]

        each(multiply, tiles(len(x), linear.weight))
        return y

    def attention(self, qkv: Array, heads: int, batch: int = 1) -> Array:
        if batch > 1:
            return np.concatenate([self.attention(w, heads) for w in windows_of(qkv, batch)])
        length, width = qkv.shape[0], qkv.shape[1] // 3
        q, k, v = (split_heads(part, heads) for part in np.split(qkv, 3, axis=1))
        keys = np.ascontiguousarray(k.swapaxes(1, 2)) * np.float32((width // heads) ** -0.5)
        values = np.ascontiguousarray(v)
        y = np.empty((length, width), np.float32)
        out = split_heads(y, heads)

        def attend(block: tuple[int, slice]) -> None:
            head, rows = block
            weighted_mean(q[head, rows] @ keys[head], values[head], out[head, rows])

        each(attend, product(range(heads), blocks(length, 4 * length)))
        return y

    def attend_self(self, qkv: Array, cache: Cache, state: State, heads: int) -> Array:
        lines, width = len(state.rows), qkv.shape[1] // 3
        rows = qkv.reshape(lines, -1, 3 * width)
        y = np.zeros((lines, rows.shape[1], width), np.float32)
        scale = np.float32((width // heads) ** -0.5)
        for b, line in enumerate(state.rows):
            start, count, slot = (int(line[name]) for name in ("position", "length", "slot"))
            if line["done"] or count == 0:
                continue
            end = start + count
            cache.keys[slot, start:end] = rows[b, :count, width : 2 * width]
            cache.values[slot, start:end] = rows[b, :count, 2 * width :]
            q = split_heads(rows[b, :count, :width] * scale, heads)
            keys, stored = cache.keys[slot, :end], cache.values[slot, :end]
            if state.origins is not None:
                origins, places = state.origins[slot, :end], np.arange(end)
                keys, stored = cache.keys[origins, places], cache.values[origins, places]
            scores = q @ split_heads(keys, heads).swapaxes(-1, -2)
            if count > 1:
                later = np.arange(end)[None, :] > np.arange(start, end)[:, None]
                scores[:, later] = -np.inf
            weighted_mean(scores, split_heads(stored, heads), split_heads(y[b, :count], heads))
        return y.reshape(-1, width)

    def attend_cross(self, q: Array, kv: Array, state: State, heads: int) -> Array:
        lines, width = len(state.rows), q.shape[1]
        scaled = (q * np.float32((width // heads) ** -0.5)).reshape(lines, -1, width)
        y = np.zeros_like(scaled)

        def attend(same: slice) -> None:
            keys, values = np.split(kv[state.rows["window"][same.start]], 2, axis=1)
            queries = scaled[same].reshape(-1, width)
            scores = split_heads(queries, heads) @ split_heads(keys, heads).swapaxes(-1, -2)
            out = y[same].reshape(-1, width)
            weighted_mean(scores, split_heads(values, heads), split_heads(out, heads))

        each(attend, neighbours(state.rows))
        return y.reshape(-1, width)

    def cross_weights(
        self, q: Array, kv: Array, state: State, heads: int, chosen: tuple[int, ...]
    ) -> Array:
        lines, width = len(state.rows), q.shape[1]
        scaled = q.reshape(lines, -1, width) * np.float32((width // heads) ** -0.5)
        weights = np.zeros((len(chosen), *scaled.shape[:2], kv.shape[1]), np.float32)
        for b, line in enumerate(state.rows):
            keys = split_heads(kv[line["window"], : line["frames"], :width], heads)[list(chosen)]
            scores = split_heads(scaled[b], heads)[list(chosen)] @ keys.swapaxes(-1, -2)
            if scores.size:
                scores = np.exp(scores - scores.max(-1, keepdims=True))
                weights[:, b, :, : line["frames"]] = scores / scores.sum(-1, keepdims=True)
        return weights.reshape(len(chosen), len(q), -1)

    def embed(
        self, table: Array, positions: Array, state: State, prompt: Array | None = None
    ) -> Array:
        tokens = state.rows["token"][:, None] if prompt is None else prompt
        places = state.rows["position"][:, None] + np.arange(tokens.shape[1])
        places = np.minimum(places, len(positions) - 1)  # rows past the length are void
        y: Array = table[tokens] + positions[places]
        return y.reshape(-1, table.shape[1])

    def take_rows(self, x: Array, state: State) -> Array:
        lines = x.reshape(len(state.rows), -1, x.shape[1])
        index = np.arange(len(lines))
        last = lines[index, np.maximum(state.rows["length"].astype(int) - 1, 0)]
        return np.concatenate([last, lines[index, state.rows["sot"]]])
