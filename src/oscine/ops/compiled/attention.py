"""Attention, compiled: the softmax of an encoder, and a decoder's rows over keys in memory."""

from __future__ import annotations

import ctypes
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oscine.ops.compiled.linear import address
from oscine.ops.compiled.team import Team
from oscine.ops.reference import Reference
from oscine.ops.reference.attention import split_heads, windows_in_use
from oscine.ops.reference.blocks import blocks, windows_of
from oscine.ops.state import SequenceState, TextDecoderState
from oscine.ops.types import KVCache, QKNorm, RopeTable
from oscine.threads import parallel_for

Array = NDArray[Any]

FEW_ROWS = 8  # that attend together; BLAS is faster beyond
PIECE_BYTES = 1 << 23  # of keys and values that a piece reads: heads apart are slower to read


class CompiledAttention(Reference):
    """The ops of oscine.ops.reference.attention that Whisper uses."""

    team: Team

    def attention(self, qkv: Array, heads: int, batch: int = 1) -> Array:
        if batch > 1:
            return np.concatenate([self.attention(w, heads) for w in windows_of(qkv, batch)])
        length, width = qkv.shape[0], qkv.shape[1] // 3
        q, k, v = (split_heads(part, heads) for part in np.split(qkv, 3, axis=1))
        keys = np.ascontiguousarray(k.swapaxes(1, 2)) * np.float32((width // heads) ** -0.5)
        values = np.ascontiguousarray(v)
        y = np.empty((length, width), np.float32)
        out = split_heads(y, heads)
        softmax = self.team.library.call["softmax_weights"]

        def attend(block: tuple[int, slice]) -> None:
            head, rows = block
            scores = q[head, rows] @ keys[head]
            inverse = np.empty(len(scores), np.float32)
            softmax((ctypes.c_int64 * 3)(address(scores), address(inverse), length), 0, len(scores))
            np.matmul(scores, values[head], out=out[head, rows])
            out[head, rows] *= inverse[:, None]

        parallel_for(attend, product(range(heads), blocks(length, 4 * length)))
        return y

    def causal_attention(
        self,
        qkv: Array,
        cache: KVCache,
        state: SequenceState,
        heads: int,
        *,
        rope: RopeTable | None = None,
        norms: QKNorm | None = None,
        window: int | None = None,
        within_frame: bool = False,
    ) -> Array:
        batch, width = len(state.rows), qkv.shape[1] // 3
        special = within_frame or any(
            x is not None for x in (rope, norms, window, state.cache_indirection)
        )
        plain = cache.keys.dtype == np.float32 and cache.keys.shape[2] == width
        if special or not plain or len(qkv) > batch:
            whole: Array = super().causal_attention(
                *(qkv, cache, state, heads),
                rope=rope,
                norms=norms,
                window=window,
                within_frame=within_frame,
            )
            return whole
        y = np.zeros((batch, width), np.float32)
        for b, row in enumerate(state.rows):
            slot, position = int(row["slot"]), int(row["position"])
            if row["done"] or not row["length"]:
                continue
            keys, values = cache.keys[slot], cache.values[slot]
            keys[position], values[position] = qkv[b, width : 2 * width], qkv[b, 2 * width :]
            self._attend(qkv[b : b + 1, :width], keys[: position + 1], values, heads, y[b : b + 1])
        return y

    def cross_attention(self, q: Array, kv: Array, state: TextDecoderState, heads: int) -> Array:
        batch, width = len(state.rows), q.shape[1]
        groups = list(windows_in_use(state.rows))
        each = len(q) // batch
        if kv.dtype != np.float32 or any((g.stop - g.start) * each > FEW_ROWS for g in groups):
            many: Array = super().cross_attention(q, kv, state, heads)
            return many
        y = np.zeros((len(q), width), np.float32)
        for group in groups:
            rows = slice(each * group.start, each * group.stop)
            window = kv[state.rows["window"][group.start]]
            self._attend(q[rows], window[:, :width], window[:, width:], heads, y[rows])
        return y

    def _attend(self, q: Array, keys: Array, values: Array, heads: int, y: Array) -> None:
        """softmax(q Kᵀ / √W) V of each head: q, y [R, D], keys [C, D], values [C or more, D]."""
        (rows, width), count = q.shape, len(keys)
        scaled = q * np.float32((width // heads) ** -0.5)
        scores = np.empty((heads, rows, count), np.float32)
        words = (
            *(address(scaled), address(keys), address(values), keys.strides[0], address(y)),
            *(address(scores), rows, count, width, width // heads),
        )
        grain = max(1, PIECE_BYTES // (8 * count * (width // heads)))
        self.team.run("attend_64" if width == 64 * heads else "attend_any", words, heads, grain)
