"""The memory that one utterance is spoken in, and the plans recorded over it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oscine import ops
from oscine.errors import DeviceMemoryError
from oscine.models.qwen3_tts import model
from oscine.models.qwen3_tts.buffers import make_buffers, write_tables
from oscine.models.qwen3_tts.request import Request, initial_state, rules_of
from oscine.models.qwen3_tts.weights import TextWeights

Rows = NDArray[np.float32]

USUAL_PROMPT = 64  # rows that there is room for at once


class Line:
    """One utterance: `positions` of the talker at most, and as many frames; `texts` rows of text.

    Raises DeviceMemoryError where the device has not that much.
    """

    def __init__(
        self, networks: model.Networks, backend: ops.Backend, positions: int, texts: int
    ) -> None:
        self.networks, self.backend = networks, backend
        self.positions = positions
        self.prompts: dict[int, ops.Plan] = {}
        self.slots: list[ops.Tensor] = []
        try:
            self.prompt = self.zeros((min(USUAL_PROMPT, positions), networks.config.talker.width))
            self.buffers = make_buffers(self.zeros, networks.config, 1, positions, texts)
        except DeviceMemoryError:
            self.release()
            raise
        write_tables(backend, networks.config, self.buffers)
        self.step = self.record_step()

    # -- memory -------------------------------------------------------------------------------

    @property
    def texts(self) -> int:
        """Rows of text that there is room for."""
        return int(self.buffers.text.shape[1])

    def zeros(self, shape: tuple[int, ...], dtype: Any = np.float32) -> ops.Tensor:
        """Memory that is given back with the line."""
        self.slots.append(self.backend.zeros(shape, dtype))
        return self.slots[-1]

    def make_room(self, texts: int) -> None:
        """For so many rows of text; what was written is lost, and the step is recorded anew."""
        old = self.buffers.text
        self.buffers = replace(self.buffers, text=self.zeros((1, texts, old.shape[2])))
        self.step = self.record_step()
        self.give_back(old)

    def give_back(self, old: ops.Tensor) -> None:
        """One slot that no plan uses any more."""
        self.slots = [slot for slot in self.slots if slot is not old]
        self.backend.release(old)

    def release(self) -> None:
        """Give back all of it; the plans may run no more."""
        self.backend.release(*self.slots)
        self.slots.clear()
        self.prompts.clear()

    # -- plans --------------------------------------------------------------------------------

    def record_step(self) -> ops.Plan:
        """A frame after another."""
        return self.record(lambda: model.step(self.backend, self.networks, self.buffers), "step")

    def record(self, trace: Callable[[], None], name: str) -> ops.Plan:
        """A plan that does nothing once the utterance is done."""
        return self.backend.record(trace, self.buffers.utterances.rows, name)

    def prompt_plan(self, length: int) -> tuple[ops.Tensor, ops.Plan]:
        """Where prompts so long go, and the plan to the first frame; made on first use.

        Powers of two where recording costs: each length may want kernels of its own, and to
        compile them takes longer than the rows that are void. All share the memory of the longest.
        """
        rows, width = min(self.backend.padded_lines(length), self.positions), self.prompt.shape[1]
        if rows > self.prompt.shape[0]:
            old, self.prompt = self.prompt, self.zeros((rounded_up(rows), width))
            self.prompts.clear()
            self.give_back(old)
        slot = self.backend.view(self.prompt, (rows, width))
        if rows not in self.prompts:
            self.prompts[rows] = self.record(
                lambda: model.start(self.backend, self.networks, self.buffers, slot), "prompt"
            )
        return slot, self.prompts[rows]

    # -- an utterance -------------------------------------------------------------------------

    def prepare(self, request: Request) -> None:
        """Write down all that an utterance begins with but its prompt."""
        write, buffers, config = self.backend.write, self.buffers, self.networks.config
        for slot, rules in zip(
            (buffers.rules, buffers.predictor_rules), rules_of(request, config), strict=True
        ):
            write(slot, rules)
        write(buffers.utterances.seen, np.zeros(config.vocabulary, np.uint32))
        write(buffers.text, request.prompt.text)
        write(buffers.utterances.rows, initial_state(request))

    def prefill(self, prompt: Rows) -> None:
        """Hear the prompt and choose the first frame."""
        slot, plan = self.prompt_plan(len(prompt))
        self.backend.write(slot, prompt)  # rows behind it are void
        plan.run()

    def snapshot(self) -> Callable[[], tuple[NDArray[np.void], NDArray[np.uint32]]]:
        """Where it stands [1] and its codes [F, G], once what was asked for is done."""
        wait = self.backend.snapshot(self.buffers.utterances.rows, self.buffers.utterances.codes)

        def seen() -> tuple[NDArray[np.void], NDArray[np.uint32]]:
            rows, codes = wait()
            return rows, codes[0]

        return seen


class TextRows:
    """The projection of rows of the text embedding, which stays on the host."""

    def __init__(self, weights: TextWeights, backend: ops.Backend) -> None:
        self.backend = backend
        self.weights = replace(
            weights, fc1=ops.upload(backend, weights.fc1), fc2=ops.upload(backend, weights.fc2)
        )
        self.plans: dict[int, ops.Plan] = {}
        self.inputs, self.outputs = (backend.zeros((USUAL_PROMPT, width)) for width in self.widths)

    @property
    def widths(self) -> tuple[int, int]:
        """Of what comes in and of what goes out."""
        return int(self.weights.fc1.weight.shape[1]), int(self.weights.fc2.weight.shape[0])

    def run(self, rows: Rows) -> Rows:
        """Rows [n, text width], n at least 1 -> [n, D]. Lengths as in Line.prompt_plan."""
        backend, count = self.backend, self.backend.padded_lines(len(rows))
        if count > self.inputs.shape[0]:
            self.plans.clear()
            backend.release(self.inputs, self.outputs)
            self.inputs, self.outputs = (
                backend.zeros((rounded_up(count), width)) for width in self.widths
            )
        x, y = (backend.view(slot, (count, slot.shape[1])) for slot in (self.inputs, self.outputs))
        if count not in self.plans:
            self.plans[count] = backend.record(
                lambda: backend.keep(model.project_text(backend, self.weights, x), y), name="text"
            )
        backend.write(x, rows)
        self.plans[count].run()
        found: Rows = backend.read(y)[: len(rows)]
        return found


def rounded_up(count: int) -> int:
    """Four lengths for each doubling, so that slightly longer ones find room."""
    step = max(1, 1 << max(0, (count - 1).bit_length() - 3))
    return -(-count // step) * step
