"""Utterances decoded side by side: what they were encoded to, their state, their recorded plans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from oscine import ops
from oscine.errors import NonFiniteError
from oscine.models.parakeet.model import frame_labels, project_encoder, transducer_step
from oscine.models.parakeet.request import (
    Carried,
    Check,
    Decoded,
    Span,
    collapse,
    emissions_of,
    initial_memory,
    initial_track,
    no_decisions,
    rules_of,
)
from oscine.models.parakeet.weights import TransducerWeights
from oscine.ops import DECISION, TRACK, Boost, Memory, Track

if TYPE_CHECKING:
    from oscine.models.parakeet.decode import Decoder

BURST = 16  # steps between two looks at the state; the next burst runs while the host looks
BLOCK = 8  # frames that a step looks at, as long as all lines together have at most MOST_ROWS
MOST_ROWS = 64


@dataclass(frozen=True, slots=True)
class Shape:
    """What plans are recorded for: utterances of at most so many encoder frames."""

    utterances: int
    frames: int

    @property
    def rows(self) -> int:
        """Encoder frames in all."""
        return self.utterances * self.frames

    @property
    def block(self) -> int:
        """Frames of each line that a step looks at."""
        return max(1, min(BLOCK, MOST_ROWS // self.utterances))


class Lines:
    """Utterances of one shape, encoded: [B·T, d]."""

    def __init__(self, decoder: Decoder, shape: Shape) -> None:
        self.decoder, self.shape = decoder, shape
        self.encoded = decoder.backend.zeros((shape.rows, decoder.config.width))

    def decode(
        self, spans: Sequence[Span], boost: Boost | None, carry: bool, check: Check | None
    ) -> tuple[Decoded, ...]:
        """What the spans say, at most one span a line."""
        raise NotImplementedError

    def nonfinite(self) -> NonFiniteError:
        """What to raise where a logit is no number."""
        return NonFiniteError.of_network("logits", self.decoder.device)

    def slots(self) -> tuple[ops.Tensor, ...]:
        """All that these lines hold."""
        return (self.encoded,)

    def release(self) -> None:
        """Give it back."""
        self.decoder.backend.release(*self.slots())


class CtcLines(Lines):
    """One label a frame, all at once."""

    def __init__(self, decoder: Decoder, shape: Shape, head: ops.Linear) -> None:
        super().__init__(decoder, shape)
        self.head = head
        self.found = decoder.backend.zeros((shape.rows, 2))
        self.plan = decoder.backend.record(self.trace_head, name="ctc")

    def trace_head(self) -> None:
        """The likeliest label of every frame."""
        backend = self.decoder.backend
        backend.keep(frame_labels(backend, self.head, self.encoded), self.found)

    def decode(
        self, spans: Sequence[Span], boost: Boost | None, carry: bool, check: Check | None
    ) -> tuple[Decoded, ...]:
        self.plan.run()
        found = self.decoder.backend.read(self.found).reshape(self.shape.utterances, -1, 2)
        pieces = [found[span.utterance, span.start : span.stop] for span in spans]
        if any((piece[:, 0] < 0).any() for piece in pieces):
            raise self.nonfinite()
        blank = self.decoder.config.blank
        return tuple(Decoded(collapse(piece, blank), no_decisions(), None) for piece in pieces)

    def slots(self) -> tuple[ops.Tensor, ...]:
        return self.encoded, self.found


class TransducerLines(Lines):
    """Frame by frame, driven by the device."""

    def __init__(self, decoder: Decoder, shape: Shape, w: TransducerWeights) -> None:
        super().__init__(decoder, shape)
        config, backend, lines = decoder.config, decoder.backend, shape.utterances
        self.w = w
        self.room = 2 * shape.frames + 16  # decisions; where that is too little, there is a pause
        self.projected = backend.zeros((shape.rows, config.joint))
        self.track = Track(
            backend.zeros((lines,), TRACK), backend.zeros((lines, self.room), DECISION)
        )
        halves = lines, config.predictor_layers, 2, config.predictor
        self.memory = Memory(
            backend.zeros(halves), backend.zeros(halves), backend.zeros((lines, config.joint))
        )
        self.rules = backend.zeros((len(rules_of(config)),), np.uint32)
        backend.write(self.rules, rules_of(config))
        self.project = backend.record(self.trace_project, name="project")
        self.steps: dict[int | None, tuple[ops.Plan, Boost | None]] = {}
        self.step(None)

    def trace_project(self) -> None:
        """The encoder's half of the joint network."""
        backend = self.decoder.backend
        backend.keep(project_encoder(backend, self.w, self.encoded), self.projected)

    def trace_step(self, boost: Boost | None) -> None:
        """Every line on by a label or a block."""
        transducer_step(
            self.decoder.backend, self.w, self.projected, self.memory, self.track, self.rules,
            block=self.shape.block, boost=boost,
        )  # fmt: skip

    def step(self, boost: Boost | None) -> ops.Plan:
        """The plan of a step, made on first use and when the tree has moved."""
        key = None if boost is None else id(boost)
        if key not in self.steps:
            self.steps = {k: v for k, v in self.steps.items() if k is None}
            plan = self.decoder.backend.record(
                lambda: self.trace_step(boost), self.track.rows, "step"
            )
            self.steps[key] = plan, boost
        return self.steps[key][0]

    def decode(
        self, spans: Sequence[Span], boost: Boost | None, carry: bool, check: Check | None
    ) -> tuple[Decoded, ...]:
        config, backend, lines = self.decoder.config, self.decoder.backend, self.shape.utterances
        rows = initial_track(spans, lines, self.shape.frames, self.room, config.blank)
        hidden, cell = initial_memory(spans, lines, config)
        backend.write(self.memory.hidden, hidden)
        backend.write(self.memory.cell, cell)
        self.project.run()
        plan = self.step(boost)
        looks: list[list[NDArray[np.void]]] = [[] for _ in spans]
        while not (rows["done"] == ops.STOP_END).all():
            backend.write(self.track.rows, rows)
            self.walk(plan, check)
            rows, written = backend.snapshot(self.track.rows, self.track.decisions)()
            if (rows["done"] == ops.STOP_NONFINITE).any():
                raise self.nonfinite()
            for line, row, all_of_it in zip(looks, rows, written, strict=False):
                line.append(all_of_it[: row["count"]])
            rows = rows.copy()
            rows["count"] = 0
            rows["done"][rows["done"] == ops.STOP_LENGTH] = 0  # there is room again
        ends = self.ends(rows, len(spans)) if carry else [None] * len(spans)
        found = [np.concatenate([no_decisions(), *line]) for line in looks]
        return tuple(
            Decoded(emissions_of(line, config), line, end)
            for line, end in zip(found, ends, strict=True)
        )

    def walk(self, plan: ops.Plan, check: Check | None) -> None:
        """Step until every line is done. `check` is told frames seen and frames in all."""
        backend = self.decoder.backend
        pending = backend.snapshot(self.track.rows)
        while True:
            plan.run(BURST)
            ahead = backend.snapshot(self.track.rows)
            (rows,) = pending()
            if check is not None:
                seen = np.minimum(rows["position"], rows["length"])
                check(int(seen.sum()), int(rows["length"].sum()))
            if rows["done"].all():
                return
            pending = ahead

    def ends(self, rows: NDArray[np.void], count: int) -> list[Carried | None]:
        """What the first lines have to tell the next piece."""
        hidden, cell = self.decoder.backend.snapshot(self.memory.hidden, self.memory.cell)()
        return [
            Carried(
                hidden[line, :, row["half"]].copy(),
                cell[line, :, row["half"]].copy(),
                int(row["token"]),
                int(row["position"]) - int(row["length"]),
                int(row["node"]),
            )
            for line, row in enumerate(rows[:count])
        ]

    def slots(self) -> tuple[ops.Tensor, ...]:
        track, memory = self.track, self.memory
        state = track.rows, track.decisions, memory.hidden, memory.cell, memory.joint
        return self.encoded, self.projected, *state, self.rules
