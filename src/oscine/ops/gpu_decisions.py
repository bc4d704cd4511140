"""The ops that decide, on the GPU: filters, picking, sampling and beams.

Shapes and meaning: oscine.ops.Ops.
"""

from __future__ import annotations

from math import ceil

from oscine.gpu.tensor import Tensor
from oscine.ops import State
from oscine.ops.gpu_recorder import Recorder

CHUNK = 512  # logits a workgroup of a scan takes


class GpuDecisions(Recorder):
    """Recording; shapes and meaning: oscine.ops.Ops."""

    def no_speech(self, logits: Tensor, rules: Tensor, state: State) -> None:
        lines = state.rows.shape[0]
        self.add("no_speech", [logits, rules, state.rows], (lines,), LINES=lines, BLOCK=self.block)

    def pick(self, logits: Tensor, mask: Tensor, rules: Tensor, state: State) -> None:
        lines, room = state.tokens.shape
        chunks = ceil(logits.shape[1] / CHUNK)
        parts = self.new(lines, chunks, 2, 6)
        self.add(
            "pick_scan", [logits, mask, rules, state.rows, parts], (chunks, lines), CHUNK=CHUNK
        )
        self.add(
            "pick", [parts, rules, state.rows, state.tokens], (lines,), CHUNKS=chunks, ROOM=room
        )
