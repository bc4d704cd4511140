"""Embeddings for prompts: text embeddings, projected on the device, and code embeddings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oscine import ops
from oscine.dtypes import to_f32
from oscine.engine.plan_cache import PlanCache
from oscine.models.qwen3_tts import model
from oscine.models.qwen3_tts.prompt import Prompt, PromptDraft, Rows
from oscine.models.qwen3_tts.talker_runner import (
    INITIAL_PROMPT_ROWS,
    MAX_PLANS,
    MAX_PREFILL_ROWS,
    round_up,
)
from oscine.models.qwen3_tts.weights import Qwen3TtsWeights, TextWeights
from oscine.quantized import shape_of


class EmbeddingTables:
    """Embedding lookups as `prompt.Embeddings` defines them; the tables stay on the host as
    stored.
    """

    def __init__(self, weights: Qwen3TtsWeights, backend: ops.Backend) -> None:
        self.weights, self.hidden_size = weights, weights.config.talker.hidden_size
        self.text_projection = TextProjection(weights.text, backend)

    def embed_text(self, ids: Sequence[int]) -> Rows:
        """Projected text embeddings: [n, D] float32."""
        rows = embedding_rows(self.weights.text.embedding, np.array(ids, np.intp))
        return self.text_projection.project(rows)

    def embed_code(self, code: int) -> Rows:
        """The talker's embedding of an id of its vocabulary: [D] float32."""
        row: Rows = embedding_rows(self.weights.talker.codec_embedding, np.array([code]))[0]
        return row

    def embed_reference(self, codes: NDArray[Any]) -> Rows:
        """The sum of the embeddings of each frame's codes: [R, G] -> [R, D]."""
        tables = (
            self.weights.talker.codec_embedding,
            *self.weights.code_predictor.codec_embeddings,
        )
        rows = np.zeros((len(codes), self.hidden_size), np.float32)
        for table, column in zip(tables, codes.T, strict=True):
            rows += embedding_rows(table, column)
        return rows

    def build_prompts(self, drafts: Sequence[Prompt | PromptDraft]) -> list[Prompt]:
        """Build the prompts of several voices, whose texts are projected together."""
        ids = [
            text_id
            for draft in drafts
            if isinstance(draft, PromptDraft)
            for text_id in draft.ids_to_embed
        ]
        rows, prompts = self.embed_text(ids), list[Prompt]()
        for draft in drafts:
            if isinstance(draft, Prompt):
                prompts.append(draft)
                continue
            count = len(draft.ids_to_embed)
            prompts.append(draft.build(ProjectedText(self, rows[:count])))
            rows = rows[count:]
        return prompts


class ProjectedText:
    """Embeddings of one prompt, whose text rows are already projected."""

    def __init__(self, tables: EmbeddingTables, rows: Rows) -> None:
        self.rows, self.position = rows, 0
        self.embed_code, self.embed_reference = tables.embed_code, tables.embed_reference

    def embed_text(self, ids: Sequence[int]) -> Rows:
        """The next rows, in the order in which the draft requested them."""
        self.position += len(ids)
        return self.rows[self.position - len(ids) : self.position]


class TextProjection:
    """The text projection (two linear layers) on the device; the text embedding stays on
    the host.
    """

    def __init__(self, weights: TextWeights, backend: ops.Backend) -> None:
        self.backend = backend
        #: Input and output width, by the host's weights: a backend may keep them in blocks.
        self.widths = shape_of(weights.fc1.weight)[1], len(weights.fc2.weight)
        self.weights = replace(
            weights, fc1=ops.upload(backend, weights.fc1), fc2=ops.upload(backend, weights.fc2)
        )
        self.plans = PlanCache[ops.Plan](MAX_PLANS)
        self.inputs, self.outputs = (
            backend.zeros((INITIAL_PROMPT_ROWS, width)) for width in self.widths
        )

    def project(self, rows: Rows) -> Rows:
        """Project rows [n, text_hidden_size] -> [n, D], in passes of MAX_PREFILL_ROWS."""
        waits = [
            self.submit(rows[start : start + MAX_PREFILL_ROWS])
            for start in range(0, len(rows), MAX_PREFILL_ROWS)
        ]
        return np.concatenate([np.zeros((0, self.widths[1]), np.float32), *(w() for w in waits)])

    def submit(self, rows: Rows) -> Callable[[], Rows]:
        """Start projecting rows; the returned function waits for them. Their number is padded."""
        backend, count = self.backend, self.backend.bucket_rows(len(rows))
        if count > self.inputs.shape[0]:
            self.plans.clear()
            backend.release(self.inputs, self.outputs)
            self.inputs, self.outputs = (
                backend.zeros((round_up(count), width)) for width in self.widths
            )
        x, y = (backend.view(slot, (count, slot.shape[1])) for slot in (self.inputs, self.outputs))

        def record() -> ops.Plan:
            return backend.record(
                lambda: backend.store(model.project_text(backend, self.weights, x), y), name="text"
            )

        backend.write(x, rows)
        self.plans.get(count, record).run()
        wait = backend.snapshot(y)

        def projected() -> Rows:
            found: Rows = wait()[0][: len(rows)]
            return found

        return projected


def embedding_rows(table: NDArray[Any], ids: NDArray[Any]) -> Rows:
    """Rows of a stored embedding table as float32: [n, D]."""
    return to_f32(table[ids])
