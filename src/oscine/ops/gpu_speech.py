"""The ops that speak, on the GPU. Shapes and meaning: oscine.ops.speech_ops."""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np

from oscine.errors import DeviceError
from oscine.gpu.device import Device
from oscine.gpu.tensor import Tensor
from oscine.ops import Cache, HeadNorms, Rotary, Utterances
from oscine.ops.gpu_recorder import Recorder, is_half

MOST_HEAD = 512  # values of a head: four an invocation
FEW_KEYS = 64  # of so few an invocation takes four values at once, else eight
SPLIT_FROM, SPLIT_KEYS, MOST_SPLITS = 256, 128, 16  # a longer cache is read by several workgroups
MOST_IDS = 65536  # of a vocabulary: sums of so many masses still fit


class GpuSpeech(Recorder):
    """Recording; shapes and meaning: oscine.ops.Ops."""

    def __init__(self, device: Device) -> None:
        super().__init__(device)
        self.head_norms: dict[tuple[Tensor, Tensor], Tensor] = {}

    def attend_rotary(
        self,
        qkv: Tensor,
        cache: Cache,
        rotary: Rotary,
        utterances: Utterances,
        heads: int,
        *,
        norms: HeadNorms | None = None,
        window: int | None = None,
        inner: bool = False,
    ) -> Tensor:
        (rows, row_width), (slots, room, key_width) = qkv.shape, cache.keys.shape
        width = (row_width - 2 * key_width) // heads
        key_heads, single = key_width // width, rows == utterances.rows.shape[0]
        self.fours("head width", width)
        if width > MOST_HEAD:
            raise DeviceError(
                f"{self.name}: head width {width} is above {MOST_HEAD}, the most that kernels "
                "take; NumPy takes any"
            )
        shape: dict[str, Any] = {
            "SLOTS": slots, "HEADS": heads, "KEY_HEADS": key_heads, "W4": width // 4,
            "WINDOW": window or 0, "INNER": inner, "NORMS": norms is not None, "BLOCK": self.block,
            "EPS": repr(norms.eps if norms else 0.0), "STORE_HALF": is_half(cache.keys),
        }  # fmt: skip
        tensors = [
            qkv, rotary.cos, rotary.sin, self.joined(norms), utterances.rows,
            cache.keys, cache.values,
        ]  # fmt: skip
        if not single:  # other rows' keys are needed before any row attends
            self.add("append_rotary", [*tensors], (key_heads, rows), **shape)
        splits = 1
        if single and not inner and window is None and room > SPLIT_FROM:
            splits = min(MOST_SPLITS, ceil(room / SPLIT_KEYS))
        y = self.new(rows, heads * width)
        sums = self.new(rows, heads, splits, width + 4) if splits > 1 else y
        self.add(
            "attend_rotary", [*tensors, sums], (heads, rows, splits),
            work=2.0 * rows * min(room, window or room) * heads * width,
            SCALE=repr(float(width**-0.5)), APPEND=single, SPLITS=splits > 1,
            NEIGHBOURS=4 if self.block == "subgroup" else 1,
            VALUES=4 if room <= FEW_KEYS else 8, **shape,
        )  # fmt: skip
        if splits > 1:
            self.add(
                "combine_rotary", [sums, utterances.rows, y], (ceil(heads * width / 256), rows),
                HEADS=heads, W4=width // 4, SPLITS=splits,
            )  # fmt: skip
        return y

    def joined(self, norms: HeadNorms | None) -> Tensor | None:
        """The weights of both norms in one tensor [2, W]: kernels may bind eight."""
        if norms is None:
            return None
        key = norms.q, norms.k
        if key not in self.head_norms:
            size = norms.q.nbytes
            both = self.slot((2, *norms.q.shape))

            def fill(encoder: Any) -> None:
                for place, weight in enumerate(key):
                    encoder.copy_buffer_to_buffer(weight.buffer, 0, both.buffer, place * size, size)

            self.device.submit(fill)
            self.head_norms[key] = both
        return self.head_norms[key]

    def last_rows(self, x: Tensor, utterances: Utterances) -> Tensor:
        lines, width = utterances.rows.shape[0], x.shape[1]
        self.fours("width", width)
        y = self.new(lines, width)
        self.add(
            "last_rows", [x, utterances.rows, y], (ceil(width / 256), lines), WIDTH4=width // 4
        )
        return y

    def sample(self, logits: Tensor, rules: Tensor, utterances: Utterances) -> None:
        (rows, vocabulary), lines = logits.shape, utterances.rows.shape[0]
        if vocabulary > MOST_IDS:
            raise DeviceError(
                f"{self.name}: a vocabulary of {vocabulary} codes is above {MOST_IDS}, the most "
                "that kernels take; NumPy takes any"
            )
        self.add(
            "sample",
            [logits, rules, utterances.rows, utterances.codes, utterances.seen],
            (lines,),
            L=rows // lines, GROUPS=utterances.codes.shape[2], BLOCK=self.block, BLOCK_LANES=256,
        )  # fmt: skip

    def embed_code(
        self,
        table: Tensor,
        utterances: Utterances,
        total: Tensor,
        projected: Tensor | None = None,
        first: bool = False,
        before: Tensor | None = None,
    ) -> Tensor:
        lines, width = utterances.rows.shape[0], table.shape[1]
        row = width if projected is None else projected.shape[1]
        self.fours("width of codes' rows", width)
        self.fours("width of projected codes' rows", row)
        y = self.new(lines if before is None else 2 * lines, row)
        self.add(
            "embed_code", [table, projected, before, utterances.rows, total, y],
            (ceil(max(width, row) / 256), lines), WIDTH4=width // 4, ROW4=row // 4,
            TABLE_KIND=self.kind(table), PROJECTED_KIND=self.kind(projected),
            PROJECTED=projected is not None, FIRST=first, BEFORE=before is not None,
        )  # fmt: skip
        return y

    def frame_input(
        self, total: Tensor, table: Tensor, text: Tensor, utterances: Utterances
    ) -> Tensor:
        lines, width = utterances.rows.shape[0], total.shape[1]
        self.fours("width of codes' rows", width)
        y = self.new(lines, width)
        self.add(
            "frame_input", [total, table, text, utterances.rows, y], (ceil(width / 256), lines),
            WIDTH4=width // 4, TABLE_KIND=self.kind(table),
        )  # fmt: skip
        return y

    def kind(self, table: Tensor | None) -> int:
        """How kernels/_table.wgsl names the numbers that a table holds."""
        if table is None or table.dtype == np.float32:
            return 0
        return 1 if table.dtype == np.float16 else 2
