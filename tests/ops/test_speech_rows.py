"""Rows of one batch: none depends on its neighbours or on their options."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oscine import ops
from oscine.ops import SAMPLING_PARAMS, TALKER_STATE, KVCache, QKNorm, RopeTable, TalkerState
from oscine.ops.reference import Reference
from oscine.ops.webgpu import Gpu

B, S, FRAMES, GROUPS, IDS, POSITIONS, W = 6, 9, 6, 3, 40, 12, 4  # two heads of W share a key head
END, UNTOUCHED = 14, 99


def mixed_rules(slots: Any) -> tuple[Any, Any]:
    """Rules of first and of later codes [S]: in the slots of the rows no two are alike."""
    first, later = np.zeros(S, SAMPLING_PARAMS), np.zeros(S, SAMPLING_PARAMS)
    for rules in (first, later):
        rules["end"], rules["suppress"], rules["repetition_penalty"] = IDS, IDS, 1
        rules["temperature"][slots] = 0, 0.9, 1.4, 0.9, 0.5, 2.0
        rules["top_k"][slots] = 0, 12, 5, 0, 40, 3
        rules["top_p"][slots] = 1, 1, 0.9, 0.5, 0.8, 1
    first["end"], first["suppress"] = END, 30
    first["minimum"][slots] = 0, 9, 1, 0, 2, 4
    first["repetition_penalty"][slots] = 1.5, 1, 1.2, 1, 0.7, 3
    return first, later


class Bench:
    """A network of one layer whose every logit depends on all codes before it."""

    def __init__(self, backend: Any) -> None:
        rng = np.random.default_rng(9)

        def noise(*shape: int) -> Any:
            return rng.standard_normal(shape, np.float32)

        def slot(array: Any) -> Any:
            made = backend.zeros(array.shape, array.dtype)
            backend.write(made, array)
            return made

        self.backend, width = backend, 2 * W
        self.slots = rng.permutation(S)[:B]
        tables = [backend.upload(noise(IDS, width)) for _ in range(GROUPS)]
        qkv = ops.Linear(backend.upload(noise(4 * W, width)), None)
        head = ops.Linear(backend.upload(3 * noise(IDS, width)), None)
        angles = np.outer(np.arange(POSITIONS), [1.0, 0.1]).astype(np.float32)
        rotary = RopeTable(backend.upload(np.cos(angles)), backend.upload(np.sin(angles)))
        norms = QKNorm(*(backend.upload(noise(W)) for _ in range(2)))
        text, self.total = slot(noise(S, 2, width)), slot(noise(S, width))
        self.cache = KVCache(slot(noise(S, POSITIONS, W)), slot(noise(S, POSITIONS, W)))
        rules = [slot(made) for made in mixed_rules(self.slots)]
        self.state = TalkerState(
            backend.zeros((B,), TALKER_STATE),
            slot(np.full((S, FRAMES, GROUPS), UNTOUCHED, np.uint32)),
            slot(np.zeros((S, IDS), np.uint32)),
        )
        self.memory = [*(self.state.codes, self.state.seen, self.total, *vars_of(self.cache))]
        self.initial = [backend.read(one).copy() for one in self.memory]

        def frame() -> None:
            x = backend.sum_embeddings(self.total, tables[-1], text, self.state)
            y = backend.causal_attention(
                backend.linear(x, qkv), self.cache, self.state, 2, rope=rotary, norms=norms
            )
            for group in range(GROUPS):
                backend.sample_code(backend.linear(y, head), rules[min(group, 1)], self.state)
                if group < GROUPS - 1:
                    y = backend.code_embedding(
                        tables[group], self.state, self.total, overwrite=group == 0
                    )

        self.plan = backend.record(frame, self.state.rows)

    def run(self, running: list[int]) -> tuple[Any, list[Any]]:
        """All frames of some rows, where the others are done: the rows, and the memory."""
        for one, array in zip(self.memory, self.initial, strict=True):
            self.backend.write(one, array)
        rows = np.zeros(B, TALKER_STATE)
        rows["done"] = ops.STOP_LENGTH
        rows["done"][running] = 0
        rows["slot"], rows["length"], rows["texts"] = self.slots, 1, [1, 2, 2, 1, 2, 1]
        rows["position"], rows["seed"] = [0, 3, 6, 1, 2, 5], np.arange(B) * 7
        rows["limit"] = [6, 2, 4, 9, 5, 1]
        self.backend.write(self.state.rows, rows)
        self.plan.run(FRAMES)
        return self.backend.read(self.state.rows), [self.backend.read(one) for one in self.memory]


def vars_of(cache: KVCache) -> tuple[Any, Any]:
    return cache.keys, cache.values


def holds(backend: Any) -> None:
    """Every row alone equals it among all, bit for bit, and touches no slot but its own."""
    bench = Bench(backend)
    rows, memory = bench.run(list(range(B)))
    assert rows["count"].max() == FRAMES and len(set(rows["count"].tolist())) > 2
    assert set(rows["done"].tolist()) == {ops.STOP_END, ops.STOP_LENGTH}
    assert len({tuple(codes.ravel().tolist()) for codes in memory[0]}) > 4
    for row, slot in enumerate(bench.slots):
        alone, own = bench.run([row])
        assert alone[row] == rows[row]
        for together, apart, before in zip(memory, own, bench.initial, strict=True):
            np.testing.assert_array_equal(apart[slot], together[slot])
            others = np.arange(S) != slot
            np.testing.assert_array_equal(apart[others], before[others])


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    holds(Reference())


@pytest.mark.gpu
def test_a_row_does_not_depend_on_its_neighbours_on_a_gpu(gpu: Gpu) -> None:
    holds(gpu)


@pytest.mark.gpu
def test_both_sides_choose_alike_in_a_mixed_batch(gpu: Gpu) -> None:
    running = list(range(B))
    (rows, memory), (expected, theirs) = Bench(gpu).run(running), Bench(Reference()).run(running)
    assert rows.tolist() == expected.tolist()
    assert memory[0].tolist() == theirs[0].tolist() and memory[1].tolist() == theirs[1].tolist()
