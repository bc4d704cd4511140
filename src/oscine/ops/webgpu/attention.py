"""Attention on the GPU."""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np

from oscine.errors import DeviceError
from oscine.gpu.device import Device
from oscine.gpu.tensor import Tensor
from oscine.ops.reference.attention import sinusoids
from oscine.ops.state import SequenceState, TextDecoderState
from oscine.ops.types import KVCache, QKNorm, RopeTable, SeqLengths
from oscine.ops.webgpu.linear import GpuLinear
from oscine.ops.webgpu.recorder import (
    MAX_WORKGROUPS,
    WORKGROUP,
    is_half,
    store_dtype,
    weights_of,
    window_rows,
)

CROSS_KEYS = 128  # of a workgroup of cross_attention: one an invocation
MATRIX_HEADS = (4, 8, 12, 16)  # widths in vec4s of the heads that attention_matrix takes
REL_POS_MATRIX_HEADS = (16, 32)  # the same of rel_pos_attention_matrix
#: Workgroups of attention on matrix units that keep a large GPU busy, measured on an H200: with
#: fewer, a workgroup has half the queries.
MATRIX_ENOUGH = 96
SMALL_BAND_PITCH = 48  # of rel_pos_attention_matrix, whose small tiles take 32 KiB all but exactly
COARSE_TABLE_STRIDE = 256  # distances between two entries of the coarse table
QUERIES = 32  # of a workgroup of rel_pos_attention
FEW_KEYS = 64  # up to this many keys an invocation takes four values at once, else eight
SPLIT_FROM, SPLIT_KEYS, MAX_SPLITS = 256, 128, 16  # a longer cache is read by several workgroups


def scale_of(head4: int) -> str:
    """1/√W as WGSL."""
    return repr(float((4 * head4) ** -0.5))


def subgroups_of(queries: int, many: int, rows: int, heads: int, *, large: bool) -> int:
    """The subgroups of a workgroup on matrix units, `many` or half: each has some queries."""
    enough = ceil(rows / (queries * many)) * heads >= MATRIX_ENOUGH
    return many if large and enough else many // 2


def words_of(rows: Tensor) -> int:
    """The words of 4 bytes of a state row."""
    return rows.dtype.itemsize // 4


class GpuAttention(GpuLinear):
    """Records the ops of oscine.ops.reference.attention, which has their definitions."""

    def __init__(self, device: Device) -> None:
        super().__init__(device)
        self.lists: dict[tuple[int, ...], Tensor] = {}
        self.sinusoid_tables: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
        self.head_norms: dict[tuple[Tensor, Tensor], Tensor] = {}

    def head4(self, width: int, heads: int) -> int:
        """The width of a head in vec4s; DeviceError where a workgroup has too few invocations."""
        self.check_multiple_of_4("head width", width // heads)
        if width // heads > 4 * WORKGROUP:
            raise DeviceError(
                f"{self.name}: head width {width // heads} is above {4 * WORKGROUP}, "
                "the most that kernels take; NumPy takes any"
            )
        return width // heads // 4

    def lanes_per_key(self, batch: int) -> int:
        """Lanes that share a key of attention.

        Several rows gain by coalesced loads; a single row needs many loads in flight a lane.
        """
        return 4 if batch > 1 and self.workgroup_reduce == "subgroup" else 1

    def attention(self, qkv: Tensor, heads: int, batch: int = 1) -> Tensor:
        length, width = window_rows(qkv, batch), qkv.shape[1] // 3
        y = self.intermediate(batch * length, width)
        head4 = self.head4(width, heads)
        work = 4.0 * batch * length**2 * width
        # With float32 weights all is float32.
        if self.matrix and qkv.may_round_to_f16 and head4 in MATRIX_HEADS:
            subgroups = subgroups_of(32, 8, length, heads * batch, large=self.large_tiles)
            self.dispatch(
                "attention_matrix",
                [self.to_f16(qkv), y],
                (ceil(length / (32 * subgroups)), heads, batch),
                work=work, ROWS=length, HEADS=heads, W8=head4 // 2, SCALE=scale_of(head4),
                SUBGROUPS=subgroups, **self.matrix.parameters(),
            )  # fmt: skip
            return y
        self.dispatch(
            "attention",
            [qkv, y],
            (ceil(length / 64), heads, batch * ceil(head4 / 16)),
            work=work, ROWS=length, HEADS=heads, W4=head4, SCALE=scale_of(head4),
        )  # fmt: skip
        return y

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
        if rope is None:
            grouped = qkv.shape[1] != 3 * cache.keys.shape[2]
            if grouped or norms or window or within_frame or is_half(cache.keys):
                raise DeviceError(
                    f"{self.name}: causal attention without rope takes float32 keys, one key head "
                    "a head, no norms and no window; NumPy takes any"
                )
            return self.plain_attention(qkv, cache, state, heads)
        if state.cache_indirection is not None:
            raise DeviceError(
                f"{self.name}: causal attention with rope takes no cache_indirection; "
                "NumPy takes any"
            )
        return self.rope_attention(qkv, cache, state, heads, rope, norms, window, within_frame)

    def plain_attention(
        self, qkv: Tensor, cache: KVCache, state: SequenceState, heads: int
    ) -> Tensor:
        """Causal attention without rope: scores of all keys are kept in shared memory."""
        rows, width = qkv.shape[0], qkv.shape[1] // 3
        batch, capacity, head4 = state.rows.shape[0], cache.keys.shape[1], self.head4(width, heads)
        indirection = state.cache_indirection
        sizes = {
            "L": rows // batch,
            "MAX_KEYS": capacity if indirection is None else indirection.shape[1],
            "CAPACITY": capacity,
            "WORDS": words_of(state.rows),
        }
        y = self.intermediate(rows, width)
        if rows > batch:  # other rows' keys are needed before any row attends
            self.dispatch(
                "kv_cache_write", [qkv, state.rows, cache.keys, cache.values],
                (ceil(width / 256), rows), WIDTH4=width // 4, **sizes,
            )  # fmt: skip
        self.dispatch(
            "causal_attention",
            [qkv, state.rows, cache.keys, cache.values, indirection, y],
            (heads, rows),
            HEADS=heads, W4=head4, APPEND=rows == batch, CACHE_INDIRECTION=indirection is not None,
            SCALE=scale_of(head4), WORKGROUP_REDUCE=self.workgroup_reduce,
            LANES_PER_KEY=self.lanes_per_key(batch), **sizes,
        )  # fmt: skip
        return y

    def cross_attention(self, q: Tensor, kv: Tensor, state: TextDecoderState, heads: int) -> Tensor:
        (rows, width), keys = q.shape, kv.shape[1]
        head4, splits = self.head4(width, heads), ceil(keys / CROSS_KEYS)
        sums = self.intermediate(rows, heads, splits, width // heads)
        marks = self.intermediate(rows, heads, splits, 2)
        y, length = self.intermediate(rows, width), rows // state.rows.shape[0]
        self.dispatch(
            "cross_attention", [q, kv, kv, state.rows, sums, marks], (splits, heads, rows),
            work=4.0 * rows * keys * width, L=length, KEYS=keys, HEADS=heads, W4=head4,
            MAX_KEYS=CROSS_KEYS, SCALE=scale_of(head4), WEIGHTS=weights_of(kv),
            WORKGROUP_REDUCE=self.workgroup_reduce,
            LANES_PER_KEY=self.lanes_per_key(state.rows.shape[0]),
        )  # fmt: skip
        self.dispatch(
            "attention_reduce", [sums, marks, state.rows, y], (ceil(width / 256), rows),
            L=length, HEADS=heads, W4=head4, SPLITS=splits,
        )  # fmt: skip
        return y

    def cross_attention_weights(
        self, q: Tensor, kv: Tensor, state: TextDecoderState, heads: int, chosen: tuple[int, ...]
    ) -> Tensor:
        (rows, width), keys = q.shape, kv.shape[1]
        head4, count = self.head4(width, heads), len(chosen)
        if chosen not in self.lists:
            self.lists[chosen] = self.upload(np.array(chosen, np.uint32))
        y = self.intermediate(count, rows, keys)
        self.dispatch(
            "cross_attention_weights", [q, kv, state.rows, self.lists[chosen], y], (count, rows),
            work=4.0 * count * rows * keys * width // heads, L=rows // state.rows.shape[0],
            KEYS=keys, HEADS=heads, W4=head4, SCALE=scale_of(head4), WEIGHTS=weights_of(kv),
            WORKGROUP_REDUCE=self.workgroup_reduce,
        )  # fmt: skip
        return y

    def rope_attention(
        self,
        qkv: Tensor,
        cache: KVCache,
        state: SequenceState,
        heads: int,
        rope: RopeTable,
        norms: QKNorm | None,
        window: int | None,
        within_frame: bool,
    ) -> Tensor:
        """Causal attention with rope: keys are read in blocks, long caches by many workgroups."""
        (rows, row_width), (slots, capacity, key_width) = qkv.shape, cache.keys.shape
        width = (row_width - 2 * key_width) // heads
        head4, key_heads = self.head4(width * heads, heads), key_width // width
        single = rows == state.rows.shape[0]
        shape: dict[str, Any] = {
            "SLOTS": slots, "HEADS": heads, "KEY_HEADS": key_heads, "W4": head4,
            "WINDOW": window or 0, "WITHIN_FRAME": within_frame, "NORMS": norms is not None,
            "EPS": repr(norms.eps if norms else 0.0), "CACHE": store_dtype(cache.keys),
            "WORDS": words_of(state.rows),
        }  # fmt: skip
        tensors = [
            qkv, rope.cos, rope.sin, self.stacked_norm_weights(norms), state.rows, cache.keys,
            cache.values,
        ]  # fmt: skip
        if not single:  # other rows' keys are needed before any row attends
            self.dispatch("rope_kv_cache_write", [*tensors], (key_heads, rows), **shape)
        splits = 1
        if single and not within_frame and window is None:
            splits = self.splits(capacity)
        y = self.intermediate(rows, heads * width)
        sums = self.intermediate(rows, heads, splits, width + 4) if splits > 1 else y
        self.dispatch(
            "rope_attention", [*tensors, sums], (heads, rows, splits),
            work=2.0 * rows * min(capacity, window or capacity) * heads * width,
            SCALE=scale_of(head4), APPEND=single, SPLITS=splits > 1,
            WORKGROUP_REDUCE=self.workgroup_reduce,
            LANES_PER_KEY=4 if self.workgroup_reduce == "subgroup" else 1,
            VALUES=4 if capacity <= FEW_KEYS else 8, **shape,
        )  # fmt: skip
        if splits > 1:
            self.dispatch(
                "rope_attention_reduce", [sums, state.rows, y], (ceil(heads * width / 256), rows),
                HEADS=heads, W4=head4, SPLITS=splits, WORDS=words_of(state.rows),
            )  # fmt: skip
        return y

    def splits(self, capacity: int) -> int:
        """Workgroups that share the positions of a long cache, whose sums are then reduced."""
        if self.batch_invariant:
            return MAX_SPLITS
        return min(MAX_SPLITS, ceil(capacity / SPLIT_KEYS)) if capacity > SPLIT_FROM else 1

    def stacked_norm_weights(self, norms: QKNorm | None) -> Tensor | None:
        """The weights of both norms in one tensor [2, W], since kernels may bind only eight."""
        if norms is None:
            return None
        key = norms.q, norms.k
        if key not in self.head_norms:
            size = norms.q.nbytes
            both = self.zeros((2, *norms.q.shape))

            def fill(encoder: Any) -> None:
                for place, weight in enumerate(key):
                    encoder.copy_buffer_to_buffer(weight.buffer, 0, both.buffer, place * size, size)

            self.device.submit(fill)
            self.head_norms[key] = both
        return self.head_norms[key]

    def relative_positions(self, count: int, width: int) -> Tensor:
        self.check_multiple_of_4("position width", width)
        coarse = np.arange(0, count, COARSE_TABLE_STRIDE)
        key = (count, width)
        if key not in self.sinusoid_tables:
            self.sinusoid_tables[key] = (
                self.upload(sinusoids(coarse, width)),
                self.upload(sinusoids(np.arange(COARSE_TABLE_STRIDE), width)),
            )
        y = self.intermediate(2 * count - 1, width)
        self.dispatch(
            "relative_positions", [*self.sinusoid_tables[key], y],
            (ceil(width / 256), min(2 * count - 1, MAX_WORKGROUPS)),
            CENTRE=count - 1, WIDTH4=width // 4, STEP=COARSE_TABLE_STRIDE,
        )  # fmt: skip
        return y

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
        batch, width = lengths.frames.shape[0], qkv.shape[1] // 3
        rows, head4 = qkv.shape[0] // batch, self.head4(width, heads)
        before, after = band or (rows, rows)
        y = self.intermediate(batch * rows, width)
        shape: dict[str, Any] = {
            "ROWS": rows, "HEADS": heads, "SCALE": scale_of(head4), "BEFORE": before,
            "AFTER": after, "PER": lengths.frames_per_row,
        }  # fmt: skip
        if self.matrix and qkv.may_round_to_f16 and head4 in REL_POS_MATRIX_HEADS:
            subgroups = subgroups_of(16, 4, rows, heads * batch, large=self.large_tiles)
            shape |= self.matrix.parameters()
            if not self.large_tiles:
                shape["BAND_PITCH"] = SMALL_BAND_PITCH
            padded, origin = self.padded_positions(positions, rows, before, after)
            self.dispatch(
                "rel_pos_attention_matrix",
                [self.to_f16(qkv), padded, bias_u, bias_v, lengths.frames, y],
                (ceil(rows / (16 * subgroups)), heads, batch),
                work=6.0 * batch * rows * min(rows, before + after + 16 * subgroups) * width,
                W8=head4 // 2, ORIGIN=origin, SUBGROUPS=subgroups, **shape,
            )  # fmt: skip
            return y
        groups = ceil(head4 / 32)
        self.dispatch(
            "rel_pos_attention",
            [qkv, positions, bias_u, bias_v, lengths.frames, y],
            (ceil(rows / QUERIES), heads, batch * groups),
            work=6.0 * batch * rows * min(rows, before + after + QUERIES) * width,
            W4=head4, GROUPS=groups, CENTRE=positions.shape[0] // 2,
            LAST=positions.shape[0] - 1, **shape,
        )  # fmt: skip
        return y

    def padded_positions(
        self, positions: Tensor, rows: int, before: int, after: int
    ) -> tuple[Tensor, int]:
        """Positions in float16 for rel_pos_attention_matrix, and the row of distance 0.

        They reach from the last query of a workgroup of 64 to its first key, and from its first
        query to the last of the 48 distances that its last 32 keys have to 16 queries.
        """
        origin = min(ceil(rows / 64) * 64, before + 96)
        count, width = origin + min(rows, after + 64) + 32, positions.shape[1]
        y = self.intermediate_f16(count, width)
        self.dispatch(
            "pad_positions", [positions, y], (ceil(width / 256), min(count, MAX_WORKGROUPS)),
            COUNT=count, D4=width // 4, FIRST=positions.shape[0] // 2 - origin,
            LAST=positions.shape[0] - 1,
        )  # fmt: skip
        return y, origin
