"""Attention of an encoder, causal with a cache, to an encoder's output, by relative position.

Source: Vaswani et al. 2017, arXiv:1706.03762; transformers models/qwen3/modeling_qwen3.py (rotary);
Dai et al. 2019, arXiv:1901.02860 (relative positions).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, product
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from oscine.ops.effects import op
from oscine.ops.reference.blocks import (
    blocks,
    chunk_slices,
    spans,
    valid_lengths,
    windows_of,
    zero_padded_rows,
)
from oscine.ops.state import SequenceState, TextDecoderState
from oscine.ops.types import KVCache, QKNorm, RopeTable, SeqLengths, Tensor
from oscine.threads import parallel_for

Array = NDArray[Any]

SCORE_BYTES = 1 << 19  # of a block of scores, which stays in the second-level cache
KEY_BYTES = 1 << 20  # of keys that a piece of work reads for its rows: less is not worth a thread
MIN_QUERIES = 32  # of a block of scores, where there are many keys


def weighted_mean(scores: Array, values: Array, out: Array) -> None:
    """softmax(scores) @ values; overwrites the scores.

    Dividing by the sums comes last, because the result is narrower than the scores.
    """
    scores -= scores.max(-1, keepdims=True)
    np.exp(scores, out=scores)
    np.matmul(scores, values, out=out)
    out /= scores.sum(-1, keepdims=True)


def windows_in_use(rows: Array) -> Iterator[slice]:
    """Slices of consecutive running rows with the same window."""
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


def head_norm(x: Array, weight: Array, eps: float) -> Array:
    """Root-mean-square norm over a head: x [..., W] -> [..., W]."""
    y: Array = x / np.sqrt(np.square(x).mean(-1, keepdims=True) + np.float32(eps))
    y *= weight
    return y


def apply_rope(x: Array, rotary: RopeTable, positions: Array) -> Array:
    """Rotate the pairs (i, i + W/2) of x [R, heads, W] by the angles at the rows' positions."""
    cos, sin = rotary.cos[positions][:, None], rotary.sin[positions][:, None]
    low, high = np.split(x, 2, axis=-1)
    return np.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1)


def gather_cached_kv(
    cache: KVCache, indirection: Array | None, slot: int, first: int, stop: int
) -> tuple[Array, Array]:
    """Keys and values of positions first to stop - 1 as the slot sees them, [C, K·W] each."""
    capacity = cache.keys.shape[1]
    where: Any = (slot, slice(first, stop))
    if indirection is not None:
        where = indirection[slot, first:stop], np.arange(first, stop)
    elif first > 0:
        where = slot, np.arange(first, stop) % capacity
    return cache.keys[where], cache.values[where]


def attend_rows(
    q: Array, keys: Array, values: Array, first: int, window: int | None, y: Array
) -> None:
    """Causal attention of rows q [R, H, W], scaled, over the last of C keys [C, K, W] into y.

    The first row sees keys 0 to `first`, each row after it one key more; window: the most keys that
    a row sees.
    """
    rows, heads, width = q.shape
    group = heads // keys.shape[1]
    step = max(1, SCORE_BYTES // (4 * group * len(keys)))
    key_heads = max(1, KEY_BYTES // (4 * width * len(keys) * rows))  # in a piece

    def piece(block: tuple[slice, int]) -> None:
        head, start = block
        stop = min(start + step, rows)
        low = 0 if window is None else max(0, first + start - window + 1)
        high = first + stop  # keys that none of these rows sees are left out
        mine = slice(head.start * group, head.stop * group)
        queries = split_groups(q[start:stop, mine], group)
        scores = queries @ keys[low:high, head].transpose(1, 2, 0)
        if stop - start > 1:
            positions, own = np.arange(low, high), first + np.arange(start, stop)[:, None]
            hidden = positions > own
            if window is not None:
                hidden |= positions <= own - window
            by_row = scores.reshape(-1, stop - start, group, high - low)
            np.copyto(by_row, -np.inf, where=hidden[:, None])
        scores -= scores.max(-1, keepdims=True)
        np.exp(scores, out=scores)
        sums = scores @ values[low:high, head].swapaxes(0, 1)
        sums /= scores.sum(-1, keepdims=True)
        shape = -1, stop - start, group, width
        y[start:stop, mine] = sums.reshape(shape).swapaxes(0, 1).reshape(stop - start, -1, width)

    parallel_for(piece, product(chunk_slices(keys.shape[1], key_heads), range(0, rows, step)))


def split_groups(q: Array, group: int) -> Array:
    """[R, K·G, W] -> [K, R·G, W]: the queries of each key head together."""
    rows, heads, width = q.shape
    by_key = q.reshape(rows, heads // group, group, width).swapaxes(0, 1)
    return by_key.reshape(heads // group, rows * group, width)


def sinusoids(positions: NDArray[Any], width: int) -> NDArray[np.float32]:
    """sin(p wᵢ) and cos(p wᵢ) interleaved, wᵢ = 10000^(-2i/width): [P, width] float32.

    Exact, while upstream rounds each angle to float32: they differ by 3e-4 at distances of an hour.
    """
    angles = positions[:, None] * 10000.0 ** (-np.arange(0, width, 2) / width)
    pairs = np.stack([np.sin(angles), np.cos(angles)], -1)
    return pairs.reshape(len(positions), -1)[:, :width].astype(np.float32)


class AttentionOps(Protocol):
    """Attention: B sequences of L rows, a row of state each; S encoder positions, C positions of a
    cache; D width, H heads of W values."""

    @op()
    def attention(self, qkv: Tensor, heads: int, batch: int = 1) -> Tensor:
        """Unmasked self-attention: packed q‖k‖v [N·S, 3D] -> [N·S, D].

        Each of the N = `batch` windows attends to itself. Raises ValueError where N does not
        divide the rows.
        """
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

        parallel_for(attend, product(range(heads), blocks(length, 4 * length)))
        return y

    @op(writes=("cache",), row_mask="state")
    def causal_attention(
        self,
        qkv: Tensor,
        cache: KVCache,
        state: SequenceState,
        heads: int,
        *,
        rope: RopeTable | None = None,
        norms: QKNorm | None = None,
        window: int | None = None,
        within_frame: bool = False,
    ) -> Tensor:
        """Append each row's k and v to its cache, then attend causally with scale 1/√W.

        qkv [B·L, (H + 2K)·W] -> [B·L, H·W]; cache [S, P, K·W], float32 or float16, which rounds k
        and v; head h reads key head h // (H/K). norms normalise q and k per head, then rope rotates
        them by their positions. Row l of sequence b is at position[b] + l; results of rows at or
        past length[b] are undefined. within_frame: the row's place in its frame counts instead; the
        last row is at group[b] of a talker's state, the one before it at group[b] - 1, and all rows
        count. The key of position p is stored at p mod P of the slot of b. window: position i sees
        j only where i - j < window; P is then at least window + L - 1, and positions may exceed P.

        On a GPU, DeviceError: without rope for norms, a window, key heads that are shared or a
        float16 cache; with rope for a cache_indirection.
        """
        batch, (_, capacity, key_width) = len(state.rows), cache.keys.shape
        width = (qkv.shape[1] - 2 * key_width) // heads
        key_heads = key_width // width
        rows = qkv.reshape(batch, -1, heads + 2 * key_heads, width)
        y = np.zeros((batch, rows.shape[1], heads, width), np.float32)
        for b, row in enumerate(state.rows):
            slot, start, count = (int(row[name]) for name in ("slot", "position", "length"))
            if within_frame:
                count = rows.shape[1]
                start = int(row["group"]) + 1 - count
            if row["done"] or count == 0:
                continue
            positions = np.arange(start, start + count)
            q, k, v = np.split(rows[b, :count], [heads, heads + key_heads], axis=1)
            if norms is not None:
                q, k = head_norm(q, norms.q, norms.eps), head_norm(k, norms.k, norms.eps)
            if rope is not None:
                q, k = apply_rope(q, rope, positions), apply_rope(k, rope, positions)
            q = q * np.float32(width**-0.5)
            cache.keys[slot, positions % capacity] = k.reshape(count, -1)
            cache.values[slot, positions % capacity] = v.reshape(count, -1)
            first = 0 if window is None else max(0, start - window + 1)
            keys, values = (
                part.astype(np.float32, copy=False).reshape(-1, key_heads, width)
                for part in gather_cached_kv(
                    cache, state.cache_indirection, slot, first, start + count
                )
            )
            attend_rows(q, keys, values, start - first, window, y[b, :count])
        return y.reshape(-1, heads * width)

    @op(row_mask="state")
    def cross_attention(self, q: Tensor, kv: Tensor, state: TextDecoderState, heads: int) -> Tensor:
        """Each sequence attends to its window of k‖v [W, S, 2D]: q [B·L, D] -> [B·L, D].

        kv may be a float16 buffer here and in cross_attention_weights.
        """
        batch, width = len(state.rows), q.shape[1]
        scaled = (q * np.float32((width // heads) ** -0.5)).reshape(batch, -1, width)
        y = np.zeros_like(scaled)

        def attend(same: slice) -> None:
            keys, values = np.split(kv[state.rows["window"][same.start]], 2, axis=1)
            queries = scaled[same].reshape(-1, width)
            scores = split_heads(queries, heads) @ split_heads(keys, heads).swapaxes(-1, -2)
            out = y[same].reshape(-1, width)
            weighted_mean(scores, split_heads(values, heads), split_heads(out, heads))

        parallel_for(attend, windows_in_use(state.rows))
        return y.reshape(-1, width)

    @op()
    def cross_attention_weights(
        self, q: Tensor, kv: Tensor, state: TextDecoderState, heads: int, chosen: tuple[int, ...]
    ) -> Tensor:
        """The attention weights of A chosen heads of cross_attention: [A, B·L, S].

        softmax over the first state.frames positions; 0 beyond them.
        """
        batch, width = len(state.rows), q.shape[1]
        scaled = q.reshape(batch, -1, width) * np.float32((width // heads) ** -0.5)
        weights = np.zeros((len(chosen), *scaled.shape[:2], kv.shape[1]), np.float32)
        for b, row in enumerate(state.rows):
            keys = split_heads(kv[row["window"], : row["frames"], :width], heads)[list(chosen)]
            scores = split_heads(scaled[b], heads)[list(chosen)] @ keys.swapaxes(-1, -2)
            if scores.size:
                scores = np.exp(scores - scores.max(-1, keepdims=True))
                weights[:, b, :, : row["frames"]] = scores / scores.sum(-1, keepdims=True)
        return weights.reshape(len(chosen), len(q), -1)

    @op()
    def relative_positions(self, count: int, width: int) -> Tensor:
        """[2 count - 1, D]: row r encodes the distance p = count - 1 - r of a query to a key
        before it, by sin(p wᵢ) and cos(p wᵢ) interleaved, wᵢ = 10000^(-2i/D).
        """
        return sinusoids(np.arange(count - 1, -count, -1), width)

    @op()
    def rel_pos_attention(
        self,
        qkv: Tensor,
        positions: Tensor,
        bias_u: Tensor,
        bias_v: Tensor,
        lengths: SeqLengths,
        heads: int,
        band: tuple[int, int] | None = None,
    ) -> Tensor:
        """Self-attention with relative positions: packed q‖k‖v [B·T, 3D] -> [B·T, D].

        Row i gives key j the score ((qᵢ + u)·kⱼ + (qᵢ + v)·r[i - j]) / √W per head, u and v [D];
        positions [2M - 1, D] holds r, with distance 0 at row M - 1; M exceeds every distance.
        band (l, r): only keys i - l to i + r, at a cost that grows with l + r instead of T. Rows
        past the lengths are zero. Source: Dai et al. 2019, arXiv:1901.02860; NeMo
        multi_head_attention.py.
        """
        batch, width = len(lengths.frames), qkv.shape[1] // 3
        rows, centre = len(qkv) // batch, len(positions) // 2
        scale = np.float32((width // heads) ** -0.5)
        before, after = band if band else (rows, rows)
        packed = qkv.reshape(batch, rows, 3, heads, -1)
        u, v, r = (x.reshape(-1, heads, width // heads) for x in (bias_u, bias_v, positions))
        y = np.zeros((batch, rows, heads, width // heads), np.float32)
        counts = valid_lengths(lengths)

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
            distances = zero_padded_rows(r[:, head], low, low + queries + keys - 1, len(r))
            by_distance = ((q + v[:, head]) * scale) @ distances.T
            step = by_distance.itemsize
            scores += np.lib.stride_tricks.as_strided(
                by_distance[:, queries - 1 :],
                (queries, keys),
                ((by_distance.shape[1] - 1) * step, step),
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
        step = max(MIN_QUERIES, step)
        pieces = [(h, span) for span in spans(batch, rows, step) for h in range(heads)]
        parallel_for(attend, pieces)
        return y.reshape(batch * rows, width)
