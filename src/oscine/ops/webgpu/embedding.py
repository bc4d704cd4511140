"""Embeddings, codebooks and picked rows on the GPU."""

from __future__ import annotations

from math import ceil, prod

import numpy as np

from oscine.gpu.tensor import Tensor
from oscine.ops.state import SequenceState, TalkerState, TextDecoderState
from oscine.ops.webgpu.recorder import Recorder, grid2d, weights_of


class GpuEmbedding(Recorder):
    """Records the ops of oscine.ops.reference.embedding, which has their definitions."""

    def embed(
        self,
        table: Tensor,
        positions: Tensor,
        state: TextDecoderState,
        prompt: Tensor | None = None,
    ) -> Tensor:
        batch, width = state.rows.shape[0], table.shape[1]
        self.check_multiple_of_4("embedding width", width)
        length = 1 if prompt is None else prompt.shape[1]
        y, first = self.intermediate(batch * length, width), 0
        for part in table.parts or (table,):
            self.dispatch(
                "embed", [part, positions, state.rows, prompt, y],
                (ceil(width / 256), batch * length), L=length, WIDTH4=width // 4,
                POSITIONS=positions.shape[0], FIRST=first, COUNTED=part.shape[0],
                PROMPT=prompt is not None, WEIGHTS=weights_of(part),
            )  # fmt: skip
            first += part.shape[0]
        return y

    def code_embedding(
        self,
        table: Tensor,
        state: TalkerState,
        total: Tensor,
        projected: Tensor | None = None,
        overwrite: bool = False,
        preceding_rows: Tensor | None = None,
    ) -> Tensor:
        batch, width = state.rows.shape[0], table.shape[1]
        row = width if projected is None else projected.shape[1]
        self.check_multiple_of_4("width of codes' rows", width)
        self.check_multiple_of_4("width of projected codes' rows", row)
        y = self.intermediate(batch if preceding_rows is None else 2 * batch, row)
        self.dispatch(
            "code_embedding", [table, projected, preceding_rows, state.rows, total, y],
            (ceil(max(width, row) / 256), batch), WIDTH4=width // 4, ROW4=row // 4,
            TABLE_DTYPE=self.dtype_code(table), PROJECTED_DTYPE=self.dtype_code(projected),
            PROJECTED=projected is not None, OVERWRITE=overwrite,
            PRECEDING_ROWS=preceding_rows is not None,
        )  # fmt: skip
        return y

    def sum_embeddings(
        self, total: Tensor, table: Tensor, text: Tensor, state: TalkerState
    ) -> Tensor:
        batch, width = state.rows.shape[0], total.shape[1]
        self.check_multiple_of_4("width of codes' rows", width)
        y = self.intermediate(batch, width)
        self.dispatch(
            "sum_embeddings", [total, table, text, state.rows, y], (ceil(width / 256), batch),
            WIDTH4=width // 4, TABLE_DTYPE=self.dtype_code(table),
        )  # fmt: skip
        return y

    def dtype_code(self, table: Tensor | None) -> int:
        """The number of a table's dtype in kernels/embedding/_unpack_by_dtype.wgsl."""
        if table is None or table.dtype == np.float32:
            return 0
        return 1 if table.dtype == np.float16 else 2

    def codebook_lookup(self, codes: Tensor, tables: Tensor, first: int) -> Tensor:
        count, entries, width = tables.shape
        self.check_multiple_of_4("codebook width", width)
        y = self.intermediate(codes.shape[0], width)
        self.dispatch(
            "codebook_lookup", [codes, tables, y], grid2d(ceil(prod(y.shape) / 512)), COUNT=count,
            ENTRIES=entries, FIRST=first, STRIDE=codes.shape[1], WIDTH4=width // 4,
        )  # fmt: skip
        return y

    def nearest_code(self, x: Tensor, table: Tensor, codes: Tensor, group: int) -> Tensor:
        (rows, width), entries = x.shape, table.shape[0]
        self.check_multiple_of_4("codebook width", width)
        y = self.intermediate(rows, width)
        self.dispatch(
            "nearest_code", [x, table, codes, y], grid2d(rows), work=3.0 * rows * entries * width,
            ENTRIES=entries, WIDTH4=width // 4, GROUP=group, STRIDE=codes.shape[1],
        )  # fmt: skip
        return y

    def gather_rows(self, x: Tensor, state: SequenceState, sot: bool = False) -> Tensor:
        (batch,), row, width = state.rows.shape, state.rows.dtype, x.shape[1]
        self.check_multiple_of_4("width", width)
        y = self.intermediate((1 + sot) * batch, width)
        self.dispatch(
            "gather_rows", [x, state.rows, y], (ceil(width / 256), (1 + sot) * batch),
            LINES=batch, WIDTH4=width // 4, WORDS=row.itemsize // 4,
            SOT=row.fields["sot"][1] // 4 if sot else 0,
        )  # fmt: skip
        return y
