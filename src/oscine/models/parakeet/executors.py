"""Executors of batches of chunks: CTC and transducers.

A step of a transducer's row searches a block of frames for the next token. Decisions are read when
the row ends or its capacity is full; in the latter case the row then continues.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from oscine import ops
from oscine.engine.plan_cache import PlanCache
from oscine.engine.runner import Arrays, BatchEntry, SinglePassExecutor, SnapshotRow
from oscine.errors import NonFiniteError
from oscine.models.parakeet.config import ParakeetConfig
from oscine.models.parakeet.context_graph_pool import ContextGraphPool
from oscine.models.parakeet.hotwords import ContextGraph
from oscine.models.parakeet.memory import Memory
from oscine.models.parakeet.model import transducer_step
from oscine.models.parakeet.sequences import (
    Chunk,
    DecoderState,
    Hypothesis,
    ctc_collapse,
    empty_decisions,
    to_emissions,
    transducer_params,
)
from oscine.models.parakeet.weights import TransducerWeights
from oscine.ops import TRANSDUCER_STATE, Backend, Plan, Tensor, TransducerState

STEPS_PER_POLL = 16  # the next burst runs on the device while the host reads the state
MAX_FRAMES_PER_ROW = 8  # that one step searches for the next token of a row
MAX_FRAMES_PER_STEP = 64  # that one step searches in all rows together
MAX_PLANS = 16
MIN_STATE_ROWS = 64


def step_frames(rows: int) -> int:
    """Frames of each row that one step searches."""
    return max(1, min(MAX_FRAMES_PER_ROW, MAX_FRAMES_PER_STEP // rows))


class CtcExecutor(SinglePassExecutor):
    """CTC: reads the most probable token of each frame, which the encoder's pass has computed."""

    stage = "decode"

    def __init__(self, backend: Backend, config: ParakeetConfig, memory: Memory) -> None:
        self.backend, self.config, self.memory = backend, config, memory
        self.prefill_batch = backend.preferred_batch

    def start(self, entries: Sequence[BatchEntry]) -> None:
        pairs = [
            (entry.encoder_slot, entry.row) for entry in entries if entry.encoder_slot is not None
        ]
        self.backend.copy(self.memory["pool"], self.memory["found"], pairs)

    def outputs(self, rows: int, entries: Sequence[BatchEntry]) -> tuple[Tensor, ...]:
        found = self.memory["found"]
        return (self.backend.view(found, (rows, *found.shape[1:])),)

    def collect(self, snapshot_rows: Sequence[SnapshotRow], arrays: Arrays) -> Iterator[BatchEntry]:
        for entry, row in snapshot_rows:
            chunk: Chunk = entry.sequence
            frames = arrays[0][row, slice(*chunk.frames(self.config))]
            if (frames[:, 0] < 0).any():
                chunk.fail(NonFiniteError.of_network("logits", self.backend.name))
            else:
                chunk.finish(
                    Hypothesis(ctc_collapse(frames, self.config.blank_id), empty_decisions(), None)
                )
            yield entry

    def ensure_rows(self, slots: int) -> None:
        """Nothing to do: the rows are part of the memory."""

    def rebase_frame_indices(self, before: int) -> None:
        """Nothing to do: no row refers to frames by index."""


@dataclass(slots=True)
class ChunkProgress:
    """What the host knows of a running chunk.

    graph_root: root of its context graph. decisions: those read so far. polls: how often the row
    has continued after a read; the row has it as its `seed`, so an older snapshot shows an older
    number.
    """

    graph_root: int
    decisions: list[NDArray[np.void]] = field(default_factory=list)
    polls: int = 0


class TransducerExecutor:
    """Transducers: each step advances every row to its next token; the device drives the loop."""

    stage, steps_per_poll, group_size, poll_after_prefill = (
        "decode",
        STEPS_PER_POLL,
        1,
        False,
    )

    def __init__(
        self, backend: Backend, config: ParakeetConfig, w: TransducerWeights, memory: Memory
    ) -> None:
        self.backend, self.config, self.w, self.memory = backend, config, w, memory
        self.steps_per_poll, self.prefill_batch = STEPS_PER_POLL, backend.preferred_batch
        self.graphs = ContextGraphPool(backend)
        self.params = backend.zeros((len(transducer_params(config)),), np.uint32)
        backend.write(self.params, transducer_params(config))
        self.ended = np.zeros(1, TRANSDUCER_STATE)
        self.ended["done"] = ops.STOP_END
        self.rows = backend.zeros((MIN_STATE_ROWS,), TRANSDUCER_STATE)
        backend.write(self.rows, self.ended.repeat(MIN_STATE_ROWS))
        self.plans: PlanCache[Plan] = PlanCache(MAX_PLANS)
        self.progress: dict[BatchEntry, ChunkProgress] = {}

    # -- plans --------------------------------------------------------------------------------

    def step_plan(self, rows: int, entries: Sequence[BatchEntry]) -> Plan:
        boost = None
        if any(entry.sequence.context_graph is not None for entry in entries):
            boost = self.graphs.boost

        def trace() -> None:
            transducer_step(
                self.backend, self.w, self.projected_frames(), self.lstm_state(),
                self.transducer_state(rows), self.params, block=step_frames(rows), boost=boost,
            )  # fmt: skip

        return self.plans.get(
            (rows, boost is not None),
            lambda: self.backend.record(trace, self.transducer_state(rows).rows, "step"),
        )

    def transducer_state(self, rows: int) -> TransducerState:
        """The first `rows` rows of the state, and the decisions by slot."""
        return TransducerState(self.backend.view(self.rows, (rows,)), self.memory["decisions"])

    def lstm_state(self) -> ops.LstmState:
        """The state of the prediction network, by slot."""
        return ops.LstmState(self.memory["hidden"], self.memory["cell"], self.memory["joint"])

    def projected_frames(self) -> Tensor:
        """The projected encoder frames of all encoder slots, [P·T, J]."""
        slots, frames, joint_dim = self.memory["pool"].shape
        return self.backend.view(self.memory["pool"], (slots * frames, joint_dim))

    # -- rows ---------------------------------------------------------------------------------

    def start(self, entries: Sequence[BatchEntry]) -> None:
        shape = 1, self.config.predictor_layers, 2, self.config.predictor_dim
        for entry in entries:
            (slot,) = entry.slots
            chunk: Chunk = entry.sequence
            root = 0 if chunk.context_graph is None else self.graph_root(chunk.context_graph)
            self.progress[entry] = ChunkProgress(root)
            hidden, cell = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
            if chunk.decoder_state is not None:
                hidden[0, :, 0], cell[0, :, 0] = (
                    chunk.decoder_state.hidden,
                    chunk.decoder_state.cell,
                )
            self.backend.write(self.memory["hidden"], hidden, at=slot)
            self.backend.write(self.memory["cell"], cell, at=slot)
            self.backend.write(self.rows, self.initial_state(entry, root), at=entry.row)

    def graph_root(self, context_graph: ContextGraph) -> int:
        """The root of a context graph; plans over tables that were replaced are dropped."""
        before = self.graphs.boost
        used = [entry.sequence.context_graph for entry in self.progress]
        root = self.graphs.add(context_graph, [each for each in used if each is not None])
        if self.graphs.boost is not before:
            self.plans.clear()
        return root

    def initial_state(self, entry: BatchEntry, root: int) -> NDArray[np.void]:
        """The state [1] of a row at the start of its chunk."""
        row = np.zeros(1, TRANSDUCER_STATE)
        chunk: Chunk = entry.sequence
        start, stop = chunk.frames(self.config)
        row["slot"], row["first"] = entry.slots[0], self.first_frame(entry)
        row["length"], row["limit"] = stop - start, self.memory.size.max_decisions
        row["token"], row["fresh"], row["node"] = self.config.blank_id, 1, root
        if chunk.decoder_state is not None:
            row["position"], row["token"] = (
                chunk.decoder_state.skip_frames,
                chunk.decoder_state.last_token,
            )
            row["node"] = root + (
                chunk.decoder_state.graph_node if chunk.context_graph is not None else 0
            )
        row["done"] = np.where(row["position"] < row["length"], 0, ops.STOP_END)
        return row

    def first_frame(self, entry: BatchEntry) -> int:
        """Index in `projected_frames` of the chunk's first frame."""
        assert entry.encoder_slot is not None
        chunk: Chunk = entry.sequence
        return entry.encoder_slot * self.memory.size.frames + chunk.frames(self.config)[0]

    def move_rows(self, moves: Sequence[tuple[int, int]]) -> None:
        self.backend.copy(self.rows, self.rows, moves)

    def stop_rows(self, rows: Iterable[int]) -> None:
        for row in rows:
            self.backend.write(self.rows, self.ended, at=row)
        self.progress = {
            entry: known for entry, known in self.progress.items() if not entry.removed
        }

    def ensure_rows(self, slots: int) -> None:
        """Make state rows for that many sequences."""
        count, before = self.backend.bucket_rows(slots), self.rows.shape[0]
        if count <= before:
            return
        old, self.rows = self.rows, self.backend.zeros((count,), TRANSDUCER_STATE)
        self.backend.write(self.rows, self.ended.repeat(count))
        self.backend.copy(old, self.rows, [(row, row) for row in range(before)])
        self.plans.clear()
        self.backend.release(old)

    def rebase_frame_indices(self, before: int) -> None:
        """Adapt state rows to a memory whose encoder slots had `before` frames and now have more.

        State rows refer to frames by index, so they are read, changed and written.
        """
        self.plans.clear()
        now = self.memory.size.frames
        if before in (0, now):
            return
        rows = self.backend.read(self.rows).copy()
        rows["first"] = rows["first"] // before * now + rows["first"] % before
        self.backend.write(self.rows, rows)

    # -- polls --------------------------------------------------------------------------------

    def outputs(self, rows: int, entries: Sequence[BatchEntry]) -> tuple[Tensor, ...]:
        names = ["decisions"]
        if any(entry.sequence.return_state for entry in entries):
            names += ["hidden", "cell"]
        last = self.backend.bucket_rows(1 + max(entry.slots[0] for entry in entries))
        buffers = [self.memory[name] for name in names]
        return self.transducer_state(rows).rows, *(
            self.backend.view(buffer, (min(last, buffer.shape[0]), *buffer.shape[1:]))
            for buffer in buffers
        )

    def collect(self, snapshot_rows: Sequence[SnapshotRow], arrays: Arrays) -> Iterator[BatchEntry]:
        rows, decisions, *memory = arrays
        for entry, row in snapshot_rows:
            state, progress, (slot,) = rows[row : row + 1], self.progress[entry], entry.slots
            done = state["done"][0]
            if not done or state["seed"][0] != progress.polls:
                continue
            if done == ops.STOP_NONFINITE:
                entry.sequence.fail(NonFiniteError.of_network("logits", self.backend.name))
            else:
                progress.decisions.append(decisions[slot, : state["count"][0]].copy())
                if done == ops.STOP_LENGTH:
                    self.resume(entry, state)
                    continue
                end = None
                if entry.sequence.return_state:
                    end = read_decoder_state(
                        state[0], memory[0][slot], memory[1][slot], progress.graph_root
                    )
                found = np.concatenate([empty_decisions(), *progress.decisions])
                entry.sequence.finish(Hypothesis(to_emissions(found, self.config), found, end))
            del self.progress[entry]
            yield entry

    def resume(self, entry: BatchEntry, state: NDArray[np.void]) -> None:
        """Let a row continue after its decisions were read and its capacity is free again."""
        progress, row = self.progress[entry], state.copy()
        progress.polls += 1
        row["done"], row["count"], row["seed"] = 0, 0, progress.polls
        row["first"], row["limit"] = self.first_frame(entry), self.memory.size.max_decisions
        self.backend.write(self.rows, row, at=entry.row)


def read_decoder_state(
    state: np.void, hidden: NDArray[np.float32], cell: NDArray[np.float32], root: int
) -> DecoderState:
    """The decoder state at the end of a chunk; hidden and cell [Y, 2, P]."""
    half = int(state["half"])
    return DecoderState(
        hidden[:, half].copy(),
        cell[:, half].copy(),
        int(state["token"]),
        int(state["position"]) - int(state["length"]),
        int(state["node"]) - root,
    )
