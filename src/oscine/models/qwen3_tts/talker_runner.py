"""Talker and predictor for voices side by side: their memory, and the plans recorded over it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oscine import ops
from oscine.engine.slots import PlanCache
from oscine.errors import DeviceMemoryError
from oscine.models.qwen3_tts import model
from oscine.models.qwen3_tts.buffers import Buffers, make_buffers, write_tables
from oscine.models.qwen3_tts.prompt import Prompt
from oscine.models.qwen3_tts.sequences import Request, initial_state, rules_of
from oscine.ops import Tensor

#: What there is room for at once: positions of a slot, rows of text, rows of a prompt, state rows.
SHORTEST, FEWEST_TEXTS, USUAL_PROMPT, LEAST_ROWS = 256, 64, 64, 64
BLOCK = 128  # positions come in that many, which are copied at once where memory grows
MOST_KEPT = 1024  # positions of a slot that stay while nothing runs
MOST_PROMPT_ROWS = 1024  # of all prompts in a prefill: running voices wait for no more than that
MOST_PLANS = 16

Admitted = tuple[int, int, Request, Prompt]  # a row of the batch, a slot, and what is said there


class Talker:
    """S slots of P positions each, of which the rows of a batch are some.

    All of them grow by need. The caches are float32: 16 voices of 60 s of the largest model then
    take 3 GB. Raises DeviceMemoryError where the device has not that much.
    """

    def __init__(self, networks: model.Networks, backend: ops.Backend) -> None:
        self.networks, self.backend = networks, backend
        self.plans = PlanCache[ops.Plan](MOST_PLANS)
        self.slots = self.positions = self.texts = 0
        self.made: list[Tensor] = []
        self.prompt = backend.zeros((USUAL_PROMPT, networks.config.talker.width))
        self.reserve(1, SHORTEST, FEWEST_TEXTS)

    # -- memory -------------------------------------------------------------------------------

    def reserve(self, slots: int, positions: int, texts: int) -> None:
        """Have room for that much, if there is less; what slots and rows hold is kept.

        Raises DeviceMemoryError, after which all is as before.
        """
        slots = max(slots, self.slots)
        positions = max(rounded_up(positions, BLOCK), self.positions, SHORTEST)
        texts = max(rounded_up(texts, FEWEST_TEXTS), self.texts)
        if (slots, positions, texts) != (self.slots, self.positions, self.texts):
            self.allocate(slots, positions, texts, keep=True)

    def release(self, slots: int) -> None:
        """Give back the memory beyond that of `slots` usual utterances; no row is running.

        The next voice finds its plan recorded.
        """
        positions = min(self.positions, MOST_KEPT)
        if (self.slots, self.positions) != (slots, positions):
            self.allocate(slots, positions, self.texts, keep=False)
            self.step(1)

    def allocate(self, slots: int, positions: int, texts: int, *, keep: bool) -> None:
        """Make the buffers; keep: and move into them what there is."""
        backend, made = self.backend, list[Tensor]()

        def allocate(shape: tuple[int, ...], dtype: Any = np.float32) -> Tensor:
            made.append(backend.zeros(shape, dtype))
            return made[-1]

        rows = max(LEAST_ROWS, 2 * slots)
        try:
            buffers = make_buffers(allocate, self.networks.config, slots, positions, texts)
            state, lead = (allocate((rows,), ops.TALKER_STATE) for _ in range(2))
        except (DeviceMemoryError, MemoryError) as problem:
            backend.release(*made)
            if isinstance(problem, DeviceMemoryError):
                raise
            shape = f"{slots} slots of {positions} positions"
            raise DeviceMemoryError(backend.name, f"no room for {shape}") from problem
        write_tables(backend, self.networks.config, buffers)
        backend.write(state, done_rows(rows))
        buffers = replace(buffers, utterances=replace(buffers.utterances, rows=state))
        if keep and self.slots:
            self.carry_over(buffers)
        self.buffers, self.lead = buffers, lead
        self.slots, self.positions, self.texts = slots, positions, texts
        self.plans.clear()
        old, self.made = self.made, made
        backend.release(*old)

    def carry_over(self, new: Buffers) -> None:
        """Copy what running voices hold between two frames: all but the predictor's caches."""
        old = self.buffers
        self.backend.copy(
            old.utterances.rows,
            new.utterances.rows,
            [(row, row) for row in range(old.utterances.rows.shape[0])],
        )
        for source, target in zip(held_by_slots(old), held_by_slots(new), strict=True):
            pairs = [(slot, slot) for slot in range(self.slots)]
            ops.copy_starts(self.backend, source, target, pairs)

    # -- plans --------------------------------------------------------------------------------

    def rows(self, count: int) -> Buffers:
        """The buffers of a batch of that many rows."""
        return self.over(self.buffers.utterances.rows, count)

    def over(self, state: Tensor, count: int) -> Buffers:
        """The buffers with the first `count` of some state rows."""
        rows = self.backend.view(state, (count,))
        return replace(self.buffers, utterances=replace(self.buffers.utterances, rows=rows))

    def step(self, count: int) -> ops.Plan:
        """A frame more for the first `count` rows; recorded on first use."""
        return self.plans.get(("step", count), lambda: self.record_step(count))

    def record_step(self, count: int) -> ops.Plan:
        buffers = self.rows(count)
        return self.record(
            lambda: model.step(self.backend, self.networks, buffers), buffers, "step"
        )

    def record(self, trace: Callable[[], None], buffers: Buffers, name: str) -> ops.Plan:
        """A plan that does nothing once all of its rows are done."""
        return self.backend.record(trace, buffers.utterances.rows, name)

    def prompt_plan(self, count: int, length: int) -> tuple[Tensor, ops.Plan]:
        """Where `count` prompts of `length` rows go, and the plan to their first frames."""
        total, width = count * length, self.prompt.shape[1]
        if total > self.prompt.shape[0]:
            old, self.prompt = self.prompt, self.backend.zeros((rounded_up(total), width))
            self.plans.clear()
            self.backend.release(old)
        prompt = self.backend.view(self.prompt, (total, width))
        return prompt, self.plans.get(
            ("prompt", count, length), lambda: self.record_prompt(count, prompt)
        )

    def record_prompt(self, count: int, prompt: Tensor) -> ops.Plan:
        buffers = self.over(self.lead, count)
        return self.record(
            lambda: model.start(self.backend, self.networks, buffers, prompt), buffers, "prompt"
        )

    # -- voices -------------------------------------------------------------------------------

    def padded_prompt(self, length: int) -> int:
        """The number of prompt rows to record a plan for."""
        return min(self.backend.bucket_rows(length), self.positions)

    def admit(self, voices: Sequence[Admitted]) -> None:
        """Run prompts and choose first frames: those of a bucket of lengths in one prefill."""
        buckets: dict[int, list[Admitted]] = {}
        for voice in voices:
            buckets.setdefault(self.padded_prompt(voice[2].length), []).append(voice)
        for length, together in buckets.items():
            most = max(1, MOST_PROMPT_ROWS // length)
            for start in range(0, len(together), most):
                self.prefill(together[start : start + most], length)

    def prefill(self, voices: Sequence[Admitted], length: int) -> None:
        """One pass over prompts that are padded to `length` rows."""
        backend, count = self.backend, self.backend.bucket_rows(len(voices))
        prompt, plan = self.prompt_plan(count, length)
        lead = done_rows(count)
        rows = np.zeros((count, length, prompt.shape[1]), np.float32)
        for number, (_, slot, request, own) in enumerate(voices):
            self.prepare(slot, request, own)
            lead[number] = initial_state(request, slot)[0]
            rows[number, : len(own.rows)] = own.rows
        backend.write(self.lead, lead)
        backend.write(prompt, rows)
        plan.run()
        pairs = [(number, row) for number, (row, *_) in enumerate(voices)]
        backend.copy(self.lead, self.buffers.utterances.rows, pairs)

    def prepare(self, slot: int, request: Request, prompt: Prompt) -> None:
        """Write down all that an utterance begins with but its state and its prompt."""
        write, buffers, config = self.backend.write, self.buffers, self.networks.config
        talker, predictor = rules_of(request, config)
        write(buffers.rules, talker, slot)
        write(buffers.predictor_rules, predictor, slot)
        write(buffers.utterances.seen, np.zeros((1, config.vocabulary), np.uint32), slot)
        write(buffers.text, prompt.text, slot)  # what is behind it is not read

    def outputs(self, count: int, slots: int) -> tuple[Tensor, Tensor]:
        """State of the first `count` rows, and the codes [.., P, G] of at least that many slots."""
        utterances = self.rows(count).utterances
        shape = (min(self.slots, 1 << (slots - 1).bit_length()), *utterances.codes.shape[1:])
        return utterances.rows, self.backend.view(utterances.codes, shape)

    def move(self, moves: Sequence[tuple[int, int]]) -> None:
        """Copy state from row to row."""
        state = self.buffers.utterances.rows
        self.backend.copy(state, state, moves)

    def stop(self, rows: Sequence[int]) -> None:
        """Mark rows as done."""
        for row in rows:
            self.backend.write(self.buffers.utterances.rows, done_rows(1), row)


def done_rows(count: int) -> NDArray[np.void]:
    """State rows [count] that compute nothing."""
    rows = np.zeros(count, ops.TALKER_STATE)
    rows["done"] = ops.STOP_LENGTH
    return rows


def held_by_slots(buffers: Buffers) -> list[Tensor]:
    """Every tensor in which a voice keeps something from frame to frame."""
    caches = [tensor for cache in buffers.caches for tensor in (cache.keys, cache.values)]
    return [
        *(buffers.utterances.codes, buffers.utterances.seen, buffers.total, buffers.text),
        *(buffers.rules, buffers.predictor_rules, *caches),
    ]


def rounded_up(count: int, least: int = 1) -> int:
    """A multiple of `least`: four lengths for each doubling, so that slightly longer ones find
    room."""
    count = max(count, least)
    step = max(least, 1 << max(0, (count - 1).bit_length() - 3))
    return -(-count // step) * step
