"""Lines decoded side by side: their state and their recorded plans. Line b has slot b."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from oscine import ops
from oscine.models.whisper import model
from oscine.models.whisper.request import (
    STOPS,
    Decoded,
    Request,
    initial_origins,
    initial_state,
    mask_of,
    rules_of,
)

if TYPE_CHECKING:
    from oscine.models.whisper.decode import Decoder


@dataclass(frozen=True, slots=True)
class Shape:
    """What plans are recorded for: `groups` requests of `width` lines each."""

    groups: int
    width: int = 1
    pool: int = 0  # beams that end a search; 0: no beams
    penalised: bool = False

    @property
    def lines(self) -> int:
        """Rows of one step."""
        return self.groups * self.width


class Lines:
    """Requests of one shape, side by side.

    The prompt of a request is computed once, by the group's `lead`; where a group has several
    lines, `origins` says that its beginning lies in the cache of the first of them.
    """

    def __init__(self, decoder: Decoder, shape: Shape) -> None:
        self.decoder, self.shape = decoder, shape
        config, backend = decoder.config, decoder.backend
        groups, lines, context = shape.groups, shape.lines, config.n_text_ctx
        origins = backend.slot((lines, context), np.uint32) if shape.width > 1 else None
        self.state = ops.State(
            backend.slot((lines,), ops.STATE), backend.slot((lines, context), np.uint32), origins
        )
        self.lead = self.state
        if shape.width > 1:
            self.lead = ops.State(backend.slot((groups,), ops.STATE), self.state.tokens)
        self.pool = None
        if shape.pool:
            self.pool = ops.Pool(
                backend.slot((lines, shape.pool), ops.POOL),
                backend.slot((lines, shape.pool, context), np.uint32),
            )
        self.rules = backend.slot((lines,), ops.RULES)
        self.masks = backend.slot((1, config.n_vocab), np.uint32)
        self.logits = backend.slot((2 * groups, config.n_vocab))
        self.prompts: dict[int, tuple[ops.Tensor, ops.Plan]] = {}
        self.step = backend.record(self.trace_step, self.state.rows, "step")

    def hidden(self, state: ops.State, prompt: ops.Tensor | None = None) -> ops.Tensor:
        """One pass through the decoder's blocks."""
        d = self.decoder
        return model.decode(d.backend, d.weights, d.config, d.caches, d.memory, state, prompt)

    def pick(self, logits: ops.Tensor, share: int) -> None:
        """The next token of every line; `share` lines listen to one row."""
        backend, width = self.decoder.backend, self.shape.width
        if self.pool is None:
            backend.pick(logits, self.masks, self.rules, self.state, share)
        else:
            backend.pick_beams(logits, self.masks, self.rules, self.state, self.pool, width, share)

    def trace_step(self) -> None:
        """The token picked last in, the next one out."""
        backend, w = self.decoder.backend, self.decoder.weights
        logits = model.logits(backend, w, self.hidden(self.state))
        if self.shape.penalised:
            logits = backend.penalise(logits, self.rules, self.state)
        self.pick(logits, 1)

    def trace_prompt(self, prompt: ops.Tensor) -> None:
        """The whole prompt in one pass; silence is judged where the transcript starts."""
        backend, w = self.decoder.backend, self.decoder.weights
        rows = backend.take_rows(self.hidden(self.lead, prompt), self.lead)
        logits = model.logits(backend, w, rows)
        backend.keep(logits, self.logits)
        backend.no_speech(logits, self.rules, self.lead)
        self.pick(logits, self.shape.width)

    def prefill(self, requests: Sequence[Request], windows: Sequence[int]) -> None:
        """Write the requests into states, rules, mask and prompt; run the prompt's plan."""
        config, backend = self.decoder.config, self.decoder.backend
        groups, width, first = self.shape.groups, self.shape.width, requests[0]
        longest = max(len(request.prompt) for request in requests)
        slot, plan = self.prompt_plan(min(backend.padded(longest), config.n_text_ctx))
        prompt = np.zeros(slot.shape, np.uint32)
        for row, request in zip(prompt, requests, strict=False):
            row[: len(request.prompt)] = request.prompt
        backend.write(slot, prompt)
        rows = initial_state(requests, windows, groups, width)
        backend.write(self.state.rows, rows)
        if self.lead is not self.state:
            backend.write(self.lead.rows, rows[::width])
            origins = initial_origins(requests, groups, width, config.n_text_ctx)
            backend.write(self.state.origins, origins)
        if self.pool is not None:
            backend.write(self.pool.rows, np.zeros(self.pool.rows.shape, ops.POOL))
        backend.write(self.rules, rules_of(first, config.n_vocab).repeat(self.shape.lines))
        backend.write(self.masks, mask_of(first, config.n_vocab))
        plan.run()

    def prompt_plan(self, length: int) -> tuple[ops.Tensor, ops.Plan]:
        """The slot [G, length] for prompts so long, and their plan; made on first use."""
        if length not in self.prompts:
            backend = self.decoder.backend
            slot = backend.slot((self.shape.groups, length), np.uint32)
            plan = backend.record(lambda: self.trace_prompt(slot), self.lead.rows, "prompt")
            self.prompts[length] = slot, plan
        return self.prompts[length]

    def slots(self) -> tuple[ops.Tensor, ...]:
        """What `results` wants to see."""
        pool = () if self.pool is None else (self.pool.rows, self.pool.tokens)
        return self.state.rows, self.state.tokens, self.lead.rows, *pool

    def results(
        self, seen: Sequence[NDArray[np.void]], count: int
    ) -> tuple[tuple[Decoded, ...], ...]:
        """What each of the first `count` requests has, from `slots` as they were."""
        rows, tokens, lead, *pool = seen
        width = self.shape.width
        found = []
        for group in range(count):
            silence = float(lead[group]["no_speech_prob"])
            lines = slice(group * width, group * width + width)
            going = [
                Decoded(text_of(row, line), float(row["sum_logprob"]), silence, STOPS[row["done"]])
                for row, line in zip(rows[lines], tokens[lines], strict=True)
                if row["sum_logprob"] > ops.NEVER / 2
            ]
            if not pool:
                found.append(tuple(going))
                continue
            ended = [
                Decoded(text_of(row, line), float(row["sum_logprob"]), silence, "end")
                for row, line in zip(pool[0][lines.start], pool[1][lines.start], strict=True)
                if row["filled"]
            ]
            # As openai-whisper: too few have ended, the likeliest of the others stand in.
            going.sort(key=lambda row: -row.sum_logprob)
            found.append((*ended, *going[: max(0, width - len(ended))]))
        return tuple(found)

    def release(self) -> None:
        """Give back what only these lines use."""
        slots = [*self.slots(), self.rules, self.masks, self.logits]
        slots += [slot for slot, _ in self.prompts.values()]
        slots += [self.state.origins] if self.state.origins is not None else []
        self.decoder.backend.release(*{id(slot): slot for slot in slots}.values())


def text_of(row: NDArray[np.void], tokens: NDArray[np.uint32]) -> tuple[int, ...]:
    """The tokens that a row has picked."""
    return tuple(int(token) for token in tokens[: row["count"]])
