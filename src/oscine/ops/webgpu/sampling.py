"""Logits processors, sampling and beam search on the GPU."""

from __future__ import annotations

from math import ceil

from oscine.errors import DeviceError
from oscine.gpu.tensor import Tensor
from oscine.ops.state import FinishedBeams, TalkerState, TextDecoderState
from oscine.ops.webgpu.recorder import Recorder

CHUNK = 512  # logits a workgroup of a first pass
MAX_CODES = 65536  # of a vocabulary, whose fixed-point sums still fit


class GpuSampling(Recorder):
    """Records the ops of oscine.ops.reference.sampling, which has their definitions."""

    def no_speech(self, logits: Tensor, params: Tensor, state: TextDecoderState) -> None:
        batch = state.rows.shape[0]
        self.dispatch(
            "no_speech",
            [logits, params, state.rows],
            (batch,),
            LINES=batch,
            WORKGROUP_REDUCE=self.workgroup_reduce,
        )

    def apply_penalties(self, logits: Tensor, params: Tensor, state: TextDecoderState) -> Tensor:
        batch, capacity = state.rows.shape[0], state.tokens.shape[1]
        y = self.intermediate(batch, logits.shape[1])
        self.dispatch(
            "apply_penalties", [logits, params, state.rows, state.tokens, y],
            (ceil(logits.shape[1] / CHUNK), batch), CHUNK=CHUNK, CAPACITY=capacity,
        )  # fmt: skip
        return y

    def sample_token(
        self,
        logits: Tensor,
        masks: Tensor,
        params: Tensor,
        state: TextDecoderState,
        rows_per_logits: int = 1,
    ) -> None:
        batch, capacity = state.rows.shape[0], state.tokens.shape[1]
        chunks = ceil(logits.shape[1] / CHUNK)
        parts = self.intermediate(batch, chunks, 2, 6)
        self.dispatch(
            "sample_token_partial", [logits, masks, params, state.rows, parts], (chunks, batch),
            CHUNK=CHUNK, ROWS_PER_LOGITS=rows_per_logits,
        )  # fmt: skip
        self.dispatch(
            "sample_token",
            [parts, params, state.rows, state.tokens],
            (batch,),
            CHUNKS=chunks,
            CAPACITY=capacity,
        )

    def beam_search_step(
        self,
        logits: Tensor,
        masks: Tensor,
        params: Tensor,
        state: TextDecoderState,
        finished: FinishedBeams,
        beams: int,
        rows_per_logits: int = 1,
    ) -> None:
        batch, capacity = state.rows.shape[0], state.tokens.shape[1]
        max_finished = finished.rows.shape[1]
        chunks = ceil(logits.shape[1] / CHUNK)
        ranks, sources = beams + 1, batch // rows_per_logits
        parts = self.intermediate(sources, chunks, 2, 3 + 2 * ranks)
        candidates = self.intermediate(sources, 1 + 2 * ranks)
        self.dispatch(
            "beam_search_partial", [logits, masks, params, state.rows, parts], (chunks, sources),
            CHUNK=CHUNK, ROWS_PER_LOGITS=rows_per_logits, RANKS=ranks,
            WORKGROUP_REDUCE=self.workgroup_reduce,
        )  # fmt: skip
        self.dispatch(
            "beam_search_rank", [parts, params, state.rows, candidates], (sources,),
            CHUNKS=chunks, ROWS_PER_LOGITS=rows_per_logits, RANKS=ranks,
            WORKGROUP_REDUCE=self.workgroup_reduce,
        )  # fmt: skip
        self.dispatch(
            "beam_search_advance",
            [
                *(candidates, params, state.rows, state.tokens, state.cache_indirection),
                *(finished.rows, finished.tokens),
            ],
            (batch // beams,),
            BEAMS=beams, MAX_FINISHED=max_finished, ROWS_PER_LOGITS=rows_per_logits, RANKS=ranks,
            CAPACITY=capacity,
        )  # fmt: skip

    def token_probs(
        self, logits: Tensor, prompt: Tensor, params: Tensor, state: TextDecoderState
    ) -> Tensor:
        rows = logits.shape[0]
        y = self.intermediate(rows)
        self.dispatch(
            "token_probs", [logits, prompt, params, state.rows, y], (rows,),
            L=prompt.shape[1], WORKGROUP_REDUCE=self.workgroup_reduce,
        )  # fmt: skip
        return y

    def sample_code(self, logits: Tensor, params: Tensor, state: TalkerState) -> None:
        (rows, vocabulary), batch = logits.shape, state.rows.shape[0]
        if vocabulary > MAX_CODES:
            raise DeviceError(
                f"{self.name}: a vocabulary of {vocabulary} codes is above {MAX_CODES}, the most "
                "that kernels take; NumPy takes any"
            )
        self.dispatch(
            "sample_code",
            [logits, params, state.rows, state.codes, state.seen],
            (batch,),
            L=rows // batch, GROUPS=state.codes.shape[2],
            WORKGROUP_REDUCE=self.workgroup_reduce, WORKGROUP_LANES=256,
        )  # fmt: skip
