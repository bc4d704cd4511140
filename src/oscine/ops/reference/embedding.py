"""Embeddings, vector quantisation, and rows picked out of a result.

Source: transformers models/mimi (vector quantisation); Qwen3-TTS,
qwen_tts/core/models/modeling_qwen3_tts.py.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from oscine.dtypes import to_f32
from oscine.ops.effects import op
from oscine.ops.reference.blocks import chunk_slices
from oscine.ops.state import SequenceState, TalkerState, TextDecoderState
from oscine.ops.types import Tensor
from oscine.threads import parallel_for

Array = NDArray[Any]

MAX_BLOCK_DISTANCES = 1 << 16  # values of the differences in a block of a codebook search


class EmbeddingOps(Protocol):
    """Embeddings and codebooks: B sequences of L rows, a row of state each, S slots, width D."""

    @op(row_mask="state")
    def embed(
        self,
        table: Tensor,
        positions: Tensor,
        state: TextDecoderState,
        prompt: Tensor | None = None,
    ) -> Tensor:
        """table[token] + positions[p] -> [B·L, D]; tokens of prompt [B, L], or else state.token."""
        tokens = state.rows["token"][:, None] if prompt is None else prompt
        indices = state.rows["position"][:, None] + np.arange(tokens.shape[1])
        indices = np.minimum(indices, len(positions) - 1)  # rows past the length are undefined
        y: Array = to_f32(table[tokens]) + positions[indices]
        return y.reshape(-1, y.shape[-1])

    @op(writes=("total",), row_mask="state")
    def code_embedding(
        self,
        table: Tensor,
        state: TalkerState,
        total: Tensor,
        projected: Tensor | None = None,
        overwrite: bool = False,
        preceding_rows: Tensor | None = None,
    ) -> Tensor:
        """Add table[token] to total [S, D], or overwrite it; return the token's row.

        The row is projected[token] [B, D'] where given, else table[token] [B, D]. With
        preceding_rows [B, D'] each of them precedes the row of its token: [2B, D']. Tables may be
        float32, float16 or bfloat16.
        """
        running = state.rows["done"] == 0
        codes = np.where(running, state.rows["token"], 0)
        rows, slots = to_f32(table[codes]), state.rows["slot"][running]
        total[slots] = rows[running] + (0 if overwrite else total[slots])
        y: Array = rows if projected is None else to_f32(projected[codes])
        if preceding_rows is None:
            return y
        return np.stack([preceding_rows, y], axis=1).reshape(-1, y.shape[1])

    @op(row_mask="state")
    def sum_embeddings(
        self, total: Tensor, table: Tensor, text: Tensor, state: TalkerState
    ) -> Tensor:
        """The talker's input for the next frame: total + table[token] + text row: [B, D].

        total [S, D] holds the sum of the rows of all codes but the last; text [S, N, D] has a row
        for each frame, and row min(count - 1, texts - 1) is taken.
        """
        rows, slots = state.rows, state.rows["slot"]
        codes = np.where(rows["done"] == 0, rows["token"], 0)
        indices = np.minimum(rows["count"].astype(int), rows["texts"]) - 1
        y: Array = total[slots] + to_f32(table[codes]) + text[slots, np.maximum(indices, 0)]
        return y

    @op()
    def codebook_lookup(self, codes: Tensor, tables: Tensor, first: int) -> Tensor:
        """Σ_g tables[g, codes[t, first + g]]: codes [T, G] uint32, tables [n, N, D] -> [T, D]."""
        y = np.zeros((len(codes), tables.shape[2]), np.float32)
        for table, code in zip(tables, codes[:, first : first + len(tables)].T, strict=True):
            y += table[code]
        return y

    @op(writes=("codes",))
    def nearest_code(self, x: Tensor, table: Tensor, codes: Tensor, group: int) -> Tensor:
        """codes[t, group] = the index of the row of table [N, D] nearest to x[t], x [T, D].

        Returns the residual x - row [T, D]. codes is a buffer [T, G] uint32. The distance is
        Σ (x - row)² in float32; the lowest index among equals.
        """
        y = np.empty_like(x)

        def work(rows: slice) -> None:
            distances = np.empty((rows.stop - rows.start, len(table)), np.float32)
            for part in chunk_slices(len(table), max(1, MAX_BLOCK_DISTANCES // table.shape[1])):
                difference = x[rows, None] - table[part]
                np.einsum("tnd,tnd->tn", difference, difference, out=distances[:, part])
            found = distances.argmin(1)
            codes[rows, group] = found
            np.subtract(x[rows], table[found], out=y[rows])

        parallel_for(work, chunk_slices(len(x), 4))
        return y

    @op(row_mask="state")
    def gather_rows(self, x: Tensor, state: SequenceState, sot: bool = False) -> Tensor:
        """Row length[b] - 1 of each sequence: x [B·L, D] -> [B, D].

        sot: followed by row state.sot[b] of each sequence of a TextDecoderState: [2B, D].
        """
        sequences = x.reshape(len(state.rows), -1, x.shape[1])
        index = np.arange(len(sequences))
        last: Array = sequences[index, np.maximum(state.rows["length"].astype(int) - 1, 0)]
        return np.concatenate([last, sequences[index, state.rows["sot"]]]) if sot else last
