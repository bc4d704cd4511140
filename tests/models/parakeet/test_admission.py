"""Rows of one batch that begin, move and end at different steps say what each says alone.

A row is admitted as continuous batching does it: the encoding goes to a free place of a pool, the
state to a free row, the memory to a free slot, and nothing else is written. It moves by its state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oscine import ops
from oscine.models.parakeet.hotwords import ContextGraph, build_context_graph
from oscine.models.parakeet.model import project_encoder, transducer_step
from oscine.models.parakeet.sequences import transducer_params
from oscine.models.parakeet.weights import ParakeetWeights
from oscine.ops import (
    GRAPH_ARC,
    GRAPH_NODE,
    TRANSDUCER_STATE,
    TRANSDUCER_STEP,
    ContextGraphTensors,
    LstmState,
    TransducerState,
)
from oscine.ops.reference import Reference

from .test_decode import naive, network, sound

ROWS, SLOTS, PLACES, FRAMES, ROOM = 3, 5, 4, 32, 256
UTTERANCES = 2  # of the encoder's plan
STEPS_PER_POLL = 3  # steps between two looks at the state


@dataclass(frozen=True)
class Arrival:
    """A sequence: encodings [T, d], its phrases, and the step from which on it waits for a row."""

    encoded: Any
    tree: ContextGraph | None
    step: int = 0


def tables(trees: Sequence[ContextGraph]) -> tuple[ContextGraph, list[int]]:
    """Tables of all the trees behind a root without arcs, and the root of each."""
    nodes, arcs, roots = [np.zeros(1, GRAPH_NODE)], [np.zeros(0, GRAPH_ARC)], []
    for tree in trees:
        roots.append(sum(map(len, nodes)))
        placed = tree.rebased(roots[-1], sum(map(len, arcs)))
        nodes.append(placed.nodes)
        arcs.append(placed.arcs)
    return ContextGraph(np.concatenate(nodes), np.concatenate(arcs)), roots


class Batch:
    """A step's plan for ROWS rows, and what it works on, which holds noise to begin with."""

    def __init__(
        self, weights: ParakeetWeights, backend: Any, phrases: ContextGraph | None
    ) -> None:
        config, self.backend = weights.config, backend
        self.w, self.blank = ops.upload(backend, weights.transducer), config.blank_id
        self.rng = np.random.default_rng(0)
        layers, width = config.predictor_layers, config.predictor_dim
        self.encoded = backend.zeros((UTTERANCES, FRAMES, config.d_model))
        self.staging = backend.zeros((UTTERANCES, FRAMES, config.joint_dim))
        self.pool = self.noisy(PLACES, FRAMES, config.joint_dim)
        halves = SLOTS, layers, 2, width
        self.memory = LstmState(
            self.noisy(*halves), self.noisy(*halves), self.noisy(SLOTS, config.joint_dim)
        )
        self.track = TransducerState(
            backend.zeros((ROWS,), TRANSDUCER_STATE), backend.zeros((SLOTS, ROOM), TRANSDUCER_STEP)
        )
        self.ended = np.zeros(1, TRANSDUCER_STATE)
        self.ended["done"] = ops.STOP_END
        backend.write(self.track.rows, self.ended.repeat(ROWS))
        self.rules = backend.zeros((len(transducer_params(config)),), np.uint32)
        backend.write(self.rules, transducer_params(config))
        self.boost = self.table_of(phrases)
        self.project = backend.record(self.trace_project)
        self.step = backend.record(self.trace_step, self.track.rows)

    def noisy(self, *shape: int) -> Any:
        slot = self.backend.zeros(shape)
        self.backend.write(slot, self.rng.standard_normal(shape).astype(np.float32))
        return slot

    def table_of(self, phrases: ContextGraph | None) -> ContextGraphTensors | None:
        if phrases is None:
            return None
        boost = ContextGraphTensors(
            self.backend.zeros(phrases.nodes.shape, GRAPH_NODE),
            self.backend.zeros((max(1, len(phrases.arcs)),), GRAPH_ARC),
        )
        self.backend.write(boost.nodes, phrases.nodes)
        self.backend.write(boost.arcs, phrases.arcs)
        return boost

    def flat(self, x: Any) -> Any:
        return self.backend.view(x, (x.shape[0] * x.shape[1], x.shape[2]))

    def trace_project(self) -> None:
        projected = project_encoder(self.backend, self.w, self.flat(self.encoded))
        self.backend.store(projected, self.flat(self.staging))

    def trace_step(self) -> None:
        transducer_step(
            self.backend, self.w, self.flat(self.pool), self.memory, self.track, self.rules,
            block=4, boost=self.boost,
        )  # fmt: skip

    def admit(self, arrival: Arrival, row: int, slot: int, place: int, root: int) -> None:
        """Write what is the sequence's own, and nothing beside it."""
        backend, length = self.backend, len(arrival.encoded)
        padded = np.zeros(self.encoded.shape[1:], np.float32)
        padded[:length] = arrival.encoded
        backend.write(self.encoded, padded[None], at=1)
        self.project.run()
        backend.copy(self.staging, self.pool, [(1, place)])
        for memory in (self.memory.hidden, self.memory.cell):
            backend.write(memory, np.zeros((1, *memory.shape[1:]), np.float32), at=slot)
        state = np.zeros(1, TRANSDUCER_STATE)
        state["length"], state["first"], state["limit"] = length, place * FRAMES, ROOM
        state["token"], state["fresh"], state["slot"] = self.blank, 1, slot
        state["node"] = root
        backend.write(self.track.rows, state, at=row)

    def move(self, row: int, to: int) -> None:
        """A sequence continues in another row."""
        self.backend.copy(self.track.rows, self.track.rows, [(row, to)])
        self.backend.write(self.track.rows, self.ended, at=row)

    def hold(self) -> tuple[Any, ...]:
        """All memory by slot."""
        memory = self.memory
        return self.backend.snapshot(
            memory.hidden, memory.cell, memory.joint, self.track.decisions
        )()


def decoded(
    batch: Batch, arrivals: Sequence[Arrival], roots: Sequence[int], seed: int = 0, spare: int = 0
) -> list[Any]:
    """The decisions of each sequence; the last `spare` slots are left unused."""
    rng, found = Random(seed), [np.zeros(0, TRANSDUCER_STEP)] * len(arrivals)
    waiting = sorted(range(len(arrivals)), key=lambda index: arrivals[index].step)
    running: dict[int, tuple[int, int, int]] = {}  # by row: sequence, slot, place
    step = 0
    while waiting or running:
        state, decisions = batch.backend.snapshot(batch.track.rows, batch.track.decisions)()
        for row in [row for row in running if state[row]["done"]]:
            index, slot, _ = running.pop(row)
            assert state[row]["done"] == ops.STOP_END
            found[index] = decisions[slot, : state[row]["count"]]
        batch.step.run(1)  # rows are under way while one moves and others are admitted
        free_rows = sorted(set(range(ROWS)) - set(running))
        if running and free_rows and rng.random() < 0.5:
            row, to = rng.choice(sorted(running)), rng.choice(free_rows)
            batch.move(row, to)
            running[to] = running.pop(row)
        while waiting and arrivals[waiting[0]].step <= step and len(running) < ROWS:
            free = (
                set(range(total)) - set(used)
                for total, used in (
                    (ROWS, running),
                    (SLOTS - spare, [slot for _, slot, _ in running.values()]),
                    (PLACES, [place for _, _, place in running.values()]),
                )
            )
            row, slot, place = (rng.choice(sorted(places)) for places in free)
            index = waiting.pop(0)
            batch.admit(arrivals[index], row, slot, place, roots[index])
            running[row] = index, slot, place
        batch.step.run(STEPS_PER_POLL - 1)
        step += STEPS_PER_POLL
    return found


def together(
    weights: ParakeetWeights, backend: Any, arrivals: Sequence[Arrival], seed: int
) -> list[Any]:
    """Their decisions in one batch, each with its phrases; no slot but theirs is written."""
    trees = [arrival.tree for arrival in arrivals if arrival.tree is not None]
    phrases, planted = tables(trees)
    roots = iter(planted)
    batch = Batch(weights, backend, phrases if trees else None)
    before = batch.hold()
    found = decoded(
        batch, arrivals, [0 if arrival.tree is None else next(roots) for arrival in arrivals],
        seed, spare=1,
    )  # fmt: skip
    for old, new in zip(before, batch.hold(), strict=True):
        assert np.array_equal(old[-1], new[-1])
        assert not np.array_equal(old, new)
    return found


@st.composite
def problems(draw: st.DrawFn) -> tuple[ParakeetWeights, list[Arrival]]:
    """A network, and sequences without a choice that is close."""
    seed = draw(st.integers(0, 999))
    durations = draw(st.sampled_from([(), (0, 1, 2, 3, 4), (1, 2, 4)]))
    blank = draw(st.sampled_from([0, 1, 4]))
    weights = network(seed, durations, blank=blank, layers=draw(st.integers(1, 2)))
    phrase = st.tuples(st.lists(st.integers(0, 5), min_size=1, max_size=4), st.floats(-2, 4))
    trees = [None, *(build_context_graph(draw(st.lists(phrase, max_size=4)), 6) for _ in range(2))]
    lengths = draw(st.lists(st.integers(1, FRAMES), min_size=2, max_size=7))
    arrivals = [
        Arrival(encoded, draw(st.sampled_from(trees)), draw(st.integers(0, 12)))
        for encoded in sound(seed, *lengths)
    ]
    clear = [one for one in arrivals if naive(weights, one.encoded, one.tree)[1] > 1e-4]
    return weights, clear or [Arrival(sound(seed, 1)[0][:0], None)]


def trace_of(decisions: Any) -> list[tuple[int, ...]]:
    return [tuple(int(word) for word in tuple(look)[:4]) for look in decisions]


@given(problems(), st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_rows_admitted_at_any_step_say_what_the_definition_says(problem: Any, seed: int) -> None:
    weights, arrivals = problem
    arrivals = [arrival for arrival in arrivals if len(arrival.encoded)]
    if arrivals:
        found = together(weights, Reference(), arrivals, seed)
        for one, decisions in zip(arrivals, found, strict=True):
            assert trace_of(decisions) == naive(weights, one.encoded, one.tree)[0]


@pytest.mark.parametrize("kind", ["NumPy", pytest.param("gpu", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("durations", [(), (0, 1, 2, 3, 4)], ids=["rnnt", "tdt"])
def test_rows_admitted_while_others_are_half_way_say_what_each_says_alone(
    request: pytest.FixtureRequest, kind: str, durations: tuple[int, ...]
) -> None:
    backend = Reference() if kind == "NumPy" else request.getfixturevalue("gpu")
    weights = network(3, durations, blank=4)  # steps that pass a block without a label too
    trees = [
        build_context_graph([((1, 2, 3), 1.5), ((2, 2), 2.0), ((3,), -1.0)], 6),
        build_context_graph([((5,), 3.0), ((0, 4), 2.5)], 6),
    ]
    arrivals = [
        Arrival(encoded, tree, step)
        for encoded, tree, step in zip(
            sound(3, 32, 9, 30, 21, 1, 17, 25),
            [trees[0], None, trees[1], trees[0], trees[1], None, trees[1]],
            [0, 0, 4, 5, 9, 9, 30],
            strict=True,
        )
    ]
    mixed = together(weights, backend, arrivals, 7)
    changed = 0
    for arrival, decisions in zip(arrivals, mixed, strict=True):
        batch = Batch(weights, backend, arrival.tree)  # its tree as it is made, or no boost at all
        (alone,) = decoded(batch, [Arrival(arrival.encoded, arrival.tree)], [0])
        assert trace_of(decisions) == trace_of(alone)
        if kind == "gpu":  # a row's sums do not depend on its neighbours
            assert decisions.tobytes() == alone.tobytes()
        else:  # BLAS sums fewer rows in another order
            assert np.allclose(decisions["probability"], alone["probability"], atol=1e-6)
        changed += trace_of(alone) != naive(weights, arrival.encoded)[0]
    assert changed  # phrases count


def test_trees_share_tables() -> None:
    """Arcs and falls of each lead to its own nodes, wherever it is placed."""
    trees = [
        build_context_graph(phrases, 6)
        for phrases in ([((1, 2), 1.0)], [], [((1, 2, 1, 3), 2.0), ((2, 1), 1.0)])
    ]
    phrases, roots = tables(trees)
    assert roots == [1, 4, 5] and phrases.nodes[0].tolist() == (0, 0, 0, 0.0)
    for tree, root in zip(trees, roots, strict=True):
        nodes = phrases.nodes[root : root + len(tree.nodes)]
        assert (nodes["fail"] - root).tolist() == tree.nodes["fail"].tolist()
        assert nodes["back"].tolist() == tree.nodes["back"].tolist()
        for own, placed in zip(tree.nodes, nodes, strict=True):
            before = tree.arcs[own["first"] : own["first"] + own["count"]]
            after = phrases.arcs[placed["first"] : placed["first"] + placed["count"]]
            assert (after["node"] - root).tolist() == before["node"].tolist()
            assert after[["token", "bonus"]].tolist() == before[["token", "bonus"]].tolist()
