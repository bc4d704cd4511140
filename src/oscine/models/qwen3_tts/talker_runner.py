"""Talker and code predictor on a device for many voices: their buffers, and the plans over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oscine import ops
from oscine.engine.passes import pass_size
from oscine.engine.plan_cache import PlanCache
from oscine.errors import DeviceMemoryError
from oscine.models.qwen3_tts import model
from oscine.models.qwen3_tts.buffers import (
    TalkerBuffers,
    allocate_buffers,
    buffer_bytes,
    write_rope_tables,
)
from oscine.models.qwen3_tts.prompt import Prompt
from oscine.models.qwen3_tts.sequences import UtteranceRequest, initial_state, pack_sampling_params
from oscine.ops import Tensor

#: Initial sizes: positions of a slot, rows of trailing text, rows of a prompt, state rows.
INITIAL_POSITIONS, INITIAL_TEXT_ROWS, INITIAL_PROMPT_ROWS, MIN_STATE_ROWS = 256, 64, 64, 64
POSITION_BLOCK = 128  # positions are a multiple, copied at once when buffers grow
MAX_IDLE_POSITIONS = 1024  # positions of a slot that are kept while nothing runs
MAX_PREFILL_ROWS = 1024  # of all prompts in a prefill, for which running voices wait
MAX_PLANS = 32  # steps of 1 to 64 rows, and prefills of 1 to 16 prompts in five lengths

Admission = tuple[int, int, UtteranceRequest, Prompt]  # a row of the batch and a slot


class TalkerRunner:
    """Runs the talker and code predictor over S slots of P positions each; batch rows refer to
    slots.

    Buffers grow by need. The KV caches are float32: 16 voices of 60 s of the largest model take 3
    GB. Raises DeviceMemoryError if the device has less.
    """

    def __init__(self, networks: model.TalkerNetworks, backend: ops.Backend) -> None:
        self.networks, self.backend = networks, backend
        self.plans = PlanCache[ops.Plan](MAX_PLANS)
        self.slots = self.positions = self.trailing_text_rows = 0
        self.tensors: list[Tensor] = []
        self.prompt_buffer = backend.zeros(
            (INITIAL_PROMPT_ROWS, networks.config.talker.hidden_size)
        )
        self.reserve(1, INITIAL_POSITIONS, INITIAL_TEXT_ROWS)

    # -- memory -------------------------------------------------------------------------------

    def reserve(self, slots: int, positions: int, trailing_text_rows: int) -> None:
        """Grow the buffers to at least these sizes; contents of slots and rows are kept.

        Raises DeviceMemoryError, after which nothing is changed.
        """
        slots = max(slots, self.slots)
        positions = max(round_up(positions, POSITION_BLOCK), self.positions, INITIAL_POSITIONS)
        trailing_text_rows = max(
            round_up(trailing_text_rows, INITIAL_TEXT_ROWS), self.trailing_text_rows
        )
        if (slots, positions, trailing_text_rows) != (
            self.slots,
            self.positions,
            self.trailing_text_rows,
        ):
            self.allocate(slots, positions, trailing_text_rows, keep=True)

    def release(self, slots: int) -> None:
        """Free the memory beyond that of `slots` short utterances; no row may be running.

        The plans of the next voice are recorded again.
        """
        positions = min(self.positions, MAX_IDLE_POSITIONS)
        if (self.slots, self.positions) != (slots, positions):
            self.allocate(slots, positions, self.trailing_text_rows, keep=False)
            self.record_plans()

    def record_plans(self) -> None:
        """Record the plans of one voice with a short prompt."""
        self.step_plan(1)
        self.prompt_plan(1, self.padded_prompt_length(INITIAL_PROMPT_ROWS))

    def allocate(self, slots: int, positions: int, trailing_text_rows: int, *, keep: bool) -> None:
        """Allocate the buffers; keep: copy the contents of the present ones."""
        backend, made = self.backend, list[Tensor]()

        def allocate(shape: tuple[int, ...], dtype: Any = np.float32) -> Tensor:
            made.append(backend.zeros(shape, dtype))
            return made[-1]

        rows = max(MIN_STATE_ROWS, 2 * slots)
        backend.budget.check(
            buffer_bytes(self.networks.config, slots, positions, trailing_text_rows)
        )
        try:
            buffers = allocate_buffers(
                allocate, self.networks.config, slots, positions, trailing_text_rows
            )
            state, prompt_state = (allocate((rows,), ops.TALKER_STATE) for _ in range(2))
        except (DeviceMemoryError, MemoryError) as problem:
            backend.release(*made)
            if isinstance(problem, DeviceMemoryError):
                raise
            shape = f"{slots} slots of {positions} positions"
            raise DeviceMemoryError(backend.name, f"no room for {shape}") from problem
        write_rope_tables(backend, self.networks.config, buffers)
        backend.write(state, finished_rows(rows))
        buffers = replace(buffers, state=replace(buffers.state, rows=state))
        if keep and self.slots:
            self.copy_running(buffers)
        self.buffers, self.prompt_state = buffers, prompt_state
        self.slots, self.positions, self.trailing_text_rows = slots, positions, trailing_text_rows
        self.plans.clear()
        old, self.tensors = self.tensors, made
        backend.release(*old)

    def copy_running(self, new: TalkerBuffers) -> None:
        """Copy the data that running voices need between two frames: all but the code predictor's
        KV caches.
        """
        old = self.buffers
        self.backend.copy(
            old.state.rows,
            new.state.rows,
            [(row, row) for row in range(old.state.rows.shape[0])],
        )
        for source, target in zip(slot_tensors(old), slot_tensors(new), strict=True):
            pairs = [(slot, slot) for slot in range(self.slots)]
            ops.copy_starts(self.backend, source, target, pairs)

    # -- plans --------------------------------------------------------------------------------

    def rows(self, count: int) -> TalkerBuffers:
        """The buffers for a batch of that many rows."""
        return self.with_state(self.buffers.state.rows, count)

    def with_state(self, state: Tensor, count: int) -> TalkerBuffers:
        """The buffers with the first `count` rows of a state."""
        rows = self.backend.view(state, (count,))
        return replace(self.buffers, state=replace(self.buffers.state, rows=rows))

    def step_plan(self, count: int) -> ops.Plan:
        """The plan that generates one frame for the first `count` rows, recorded on first use."""
        return self.plans.get(("step", count), lambda: self.record_step(count))

    def record_step(self, count: int) -> ops.Plan:
        buffers = self.rows(count)
        return self.record(
            lambda: model.decode_step(self.backend, self.networks, buffers), buffers, "step"
        )

    def record(self, trace: Callable[[], None], buffers: TalkerBuffers, name: str) -> ops.Plan:
        """Record a plan that does nothing once all of its rows are done."""
        return self.backend.record(trace, buffers.state.rows, name)

    def prompt_plan(self, count: int, length: int) -> tuple[Tensor, ops.Plan]:
        """The input for `count` prompts of `length` rows, and the plan that prefills them."""
        total, width = count * length, self.prompt_buffer.shape[1]
        if total > self.prompt_buffer.shape[0]:
            old, self.prompt_buffer = (
                self.prompt_buffer,
                self.backend.zeros((round_up(total), width)),
            )
            self.plans.clear()
            self.backend.release(old)
        prompt = self.backend.view(self.prompt_buffer, (total, width))
        return prompt, self.plans.get(
            ("prompt", count, length), lambda: self.record_prompt(count, prompt)
        )

    def record_prompt(self, count: int, prompt: Tensor) -> ops.Plan:
        buffers = self.with_state(self.prompt_state, count)
        return self.record(
            lambda: model.prefill(self.backend, self.networks, buffers, prompt), buffers, "prompt"
        )

    # -- voices -------------------------------------------------------------------------------

    def padded_prompt_length(self, length: int) -> int:
        """The padded number of prompt rows, for which a plan is recorded."""
        return min(self.backend.bucket_rows(length), self.positions)

    def admit(self, voices: Sequence[Admission]) -> None:
        """Prefill prompts and sample first frames; prompts of one padded length share a prefill."""
        buckets: dict[int, list[Admission]] = {}
        for voice in voices:
            buckets.setdefault(self.padded_prompt_length(voice[2].prompt_length), []).append(voice)
        for length, together in buckets.items():
            max_prompts = max(1, MAX_PREFILL_ROWS // length)
            while together:
                size = pass_size(len(together), max_prompts, self.backend.bucket_rows)
                self.prefill(together[:size], length)
                together = together[size:]

    def prefill(self, voices: Sequence[Admission], length: int) -> None:
        """Prefill prompts that are padded to `length` rows."""
        backend, count = self.backend, self.backend.bucket_rows(len(voices))
        prompt, plan = self.prompt_plan(count, length)
        prompt_state = finished_rows(count)
        rows = np.zeros((count, length, prompt.shape[1]), np.float32)
        for number, (_, slot, request, own) in enumerate(voices):
            self.write_request(slot, request, own)
            prompt_state[number] = initial_state(request, slot)[0]
            rows[number, : len(own.embeddings)] = own.embeddings
        backend.write(self.prompt_state, prompt_state)
        backend.write(prompt, rows)
        plan.run()
        pairs = [(number, row) for number, (row, *_) in enumerate(voices)]
        backend.copy(self.prompt_state, self.buffers.state.rows, pairs)

    def write_request(self, slot: int, request: UtteranceRequest, prompt: Prompt) -> None:
        """Write the data that an utterance starts with, except its state and prompt."""
        write, buffers, config = self.backend.write, self.buffers, self.networks.config
        talker, predictor = pack_sampling_params(request, config)
        write(buffers.sampling_params, talker, slot)
        write(buffers.code_predictor_sampling_params, predictor, slot)
        write(buffers.state.seen, np.zeros((1, config.vocab_size), np.uint32), slot)
        write(buffers.trailing_text, prompt.trailing_text, slot)  # rows beyond it are not read

    def outputs(self, count: int, slots: int) -> tuple[Tensor, Tensor]:
        """State of the first `count` rows, and codes [.., P, G] of at least that many slots."""
        utterances = self.rows(count).state
        shape = (min(self.slots, 1 << (slots - 1).bit_length()), *utterances.codes.shape[1:])
        return utterances.rows, self.backend.view(utterances.codes, shape)

    def move(self, moves: Sequence[tuple[int, int]]) -> None:
        """Copy state from row to row."""
        state = self.buffers.state.rows
        self.backend.copy(state, state, moves)

    def stop(self, rows: Sequence[int]) -> None:
        """Mark rows as done."""
        for row in rows:
            self.backend.write(self.buffers.state.rows, finished_rows(1), row)


def finished_rows(count: int) -> NDArray[np.void]:
    """State rows [count] that are done, for which nothing is computed."""
    rows = np.zeros(count, ops.TALKER_STATE)
    rows["done"] = ops.STOP_LENGTH
    return rows


def slot_tensors(buffers: TalkerBuffers) -> list[Tensor]:
    """Every tensor that keeps a voice's data from frame to frame."""
    caches = [tensor for cache in buffers.kv_caches for tensor in (cache.keys, cache.values)]
    return [
        *(buffers.state.codes, buffers.state.seen, buffers.embedding_sum, buffers.trailing_text),
        *(buffers.sampling_params, buffers.code_predictor_sampling_params, *caches),
    ]


def round_up(count: int, minimum: int = 1) -> int:
    """A multiple of `minimum`, at least `count`: four sizes for each doubling.

    A slightly larger request then fits without allocation.
    """
    count = max(count, minimum)
    step = max(minimum, 1 << max(0, (count - 1).bit_length() - 3))
    return -(-count // step) * step
