"""What a batch does to its neighbours: nothing, whatever slots, options and company a row has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from oscine import ops
from oscine.ops.reference import Reference

Array = NDArray[Any]

VOCABULARY, END, NO_SPEECH, NO_TIMESTAMPS, BEGIN = 1100, 900, 902, 903, 904
ROOM, STEPS = 12, 6
#: By row: temperature, timestamps, mask, penalty, length of runs that do not come again.
OPTIONS = (
    (0.0, True, 0, 1.0, 0),
    (0.8, False, 1, 1.0, 0),
    (0.0, False, 2, 1.4, 0),
    (0.3, True, 1, 0.7, 2),
    (0.0, True, 2, 1.0, 1),
)
SLOTS = (4, 0, 6, 1, 3)  # of seven


@pytest.fixture(params=["numpy", pytest.param("gpu", marks=pytest.mark.gpu)])
def backend(request: pytest.FixtureRequest) -> Any:
    return Reference() if request.param == "numpy" else request.getfixturevalue("gpu")


def put(backend: Any, array: Array) -> Any:
    slot = backend.zeros(array.shape, array.dtype)
    backend.write(slot, array)
    return slot


def rules_of(slots: int, row: int, slot: int, made: Array | None = None) -> Array:
    """The rules of a row of OPTIONS, in a slot of many."""
    rules = np.zeros(slots, ops.DECODE_PARAMS) if made is None else made
    _, timestamps, mask, penalty, runs = OPTIONS[row]
    rules[slot] = (
        *(VOCABULARY, END, BEGIN, NO_TIMESTAMPS, NO_SPEECH, timestamps, 50, 4, runs, penalty, mask),
    )
    return rules


def masks() -> Array:
    rng = np.random.default_rng(8)
    made = rng.choice([0, 0, 0, ops.SUPPRESS, ops.SUPPRESS_FIRST], (3, VOCABULARY))
    made[:, [END, BEGIN]] = 0
    return made.astype(np.uint32)


def decode(backend: Any, rows: Array, rules: Array, logits: Array) -> tuple[Array, Array]:
    """STEPS steps of apply_penalties and sample_token over logits [STEPS, B, V]: rows and
    tokens."""
    slots = len(rules)
    tokens = np.full((slots, ROOM), 77, np.uint32)
    state = ops.TextDecoderState(put(backend, rows), put(backend, tokens))
    given, suppressed, scores = (put(backend, x) for x in (rules, masks(), logits[0]))

    def trace() -> None:
        backend.sample_token(
            backend.apply_penalties(scores, given, state), suppressed, given, state
        )

    plan = backend.record(trace, state.rows)
    for step in logits:
        backend.write(scores, step)
        plan.run()
    return backend.read(state.rows).copy(), backend.read(state.tokens)


def test_rows_with_options_of_their_own_are_each_as_alone(backend: Any) -> None:
    """Between them is a row that is done, in a slot whose tokens stay."""
    rng = np.random.default_rng(3)
    count = len(OPTIONS)
    logits = rng.normal(0, 2, (STEPS, count + 1, VOCABULARY)).astype(np.float32)
    logits[:, :, rng.integers(0, END, 4)] += 5  # few words, so that they come again
    rows, rules = np.zeros(count + 1, ops.TEXT_DECODER_STATE), None
    rows["length"], rows["limit"], rows["after_pair"] = 1, 9, 1
    rows["seed"] = rng.integers(0, 2**32, count + 1)
    places = [0, 1, 3, 4, 5]  # the third is the one that is done
    rows["done"][2], rows["slot"][2] = ops.STOP_END, 2
    for row, place in enumerate(places):
        rows["slot"][place], rows["temperature"][place] = SLOTS[row], OPTIONS[row][0]
        rules = rules_of(7, row, SLOTS[row], rules)
    assert rules is not None
    together, tokens = decode(backend, rows.copy(), rules, logits)
    for row, place in enumerate(places):
        one = rows[[place]].copy()
        one["slot"] = 0
        alone, said = decode(backend, one, rules_of(1, row, 0), logits[:, [place]].copy())
        alone["slot"] = SLOTS[row]
        assert together[place] == alone[0]
        assert tokens[SLOTS[row]].tolist() == said[0].tolist()
        assert together[place]["count"] > 0
    assert together[2] == rows[2]
    assert (tokens[[2, 5]] == 77).all()


def test_a_row_without_penalties_stays_bit_for_bit(backend: Any) -> None:
    rng = np.random.default_rng(5)
    rows = np.zeros(2, ops.TEXT_DECODER_STATE)
    rows["count"], rows["slot"] = ROOM, (1, 0)
    rules = rules_of(2, 2, 0, rules_of(2, 0, 1))  # slot 0 has a penalty, slot 1 none
    logits = (rng.normal(0, 3, (2, VOCABULARY)) * 10.0 ** rng.integers(-30, 30, VOCABULARY)).astype(
        np.float32
    )
    logits[:, 5] = -0.0
    tokens = np.tile(np.arange(ROOM, dtype=np.uint32), (2, 1))
    state = ops.TextDecoderState(put(backend, rows), put(backend, tokens))
    given, scores = put(backend, rules), put(backend, logits)
    out = backend.zeros(logits.shape)
    backend.record(lambda: backend.store(backend.apply_penalties(scores, given, state), out)).run()
    found = backend.read(out)
    assert found[0].tobytes() == logits[0].tobytes()
    changed = np.flatnonzero(found[1] != logits[1])
    assert set(changed.tolist()) == set(range(ROOM)) - {5}


@pytest.mark.parametrize("length", [1, 3])
def test_attention_writes_its_own_slots_alone(backend: Any, length: int) -> None:
    """Slots of rows that are done, and those of no row, keep what they hold."""
    rng = np.random.default_rng(length)
    rows = np.zeros(3, ops.TEXT_DECODER_STATE)
    rows["slot"], rows["done"], rows["position"], rows["length"] = (4, 1, 0), (0, 1, 0), 2, length
    cache = rng.normal(0, 1, (2, 6, 9, 8)).astype(np.float32)
    held = ops.KVCache(*(put(backend, part) for part in cache))
    state = ops.TextDecoderState(put(backend, rows), put(backend, np.zeros((6, 9), np.uint32)))
    qkv = rng.normal(0, 1, (3 * length, 24)).astype(np.float32)
    given, out = put(backend, qkv), backend.zeros((3 * length, 8))
    backend.record(
        lambda: backend.store(backend.causal_attention(given, held, state, 2), out)
    ).run()
    expected = cache.copy()
    for line, slot in ((0, 4), (2, 0)):
        new = qkv[line * length : (line + 1) * length]
        expected[0, slot, 2 : 2 + length] = new[:, 8:16]
        expected[1, slot, 2 : 2 + length] = new[:, 16:]
    assert np.array_equal(backend.read(held.keys), expected[0])
    assert np.array_equal(backend.read(held.values), expected[1])


def test_beams_leave_the_slots_and_pools_of_others(backend: Any) -> None:
    """A running group and a finished one, of two beams each, in eight slots."""
    rng = np.random.default_rng(2)
    rows = np.zeros(4, ops.TEXT_DECODER_STATE)
    rows["slot"], rows["done"], rows["limit"] = (6, 1, 3, 4), (0, 0, 1, 1), 9
    rows["length"], rows["position"], rows["count"] = 1, 4, 2
    rules = np.zeros(8, ops.DECODE_PARAMS)
    for slot in (1, 3, 4, 6):
        rules = rules_of(8, 1, slot, rules)
    slots = [
        rng.integers(0, 99, (8, ROOM)).astype(np.uint32),
        np.repeat(np.arange(8, dtype=np.uint32)[:, None], ROOM, 1),
        np.zeros((8, 3), ops.FINISHED_BEAM),
        rng.integers(0, 99, (8, 3, ROOM)).astype(np.uint32),
    ]
    tokens, cache_indirection, pool, texts = (put(backend, array) for array in slots)
    logits = rng.normal(0, 1, (4, VOCABULARY)).astype(np.float32)
    logits[0, END] = 30  # the first beam ends for certain
    state = ops.TextDecoderState(put(backend, rows), tokens, cache_indirection=cache_indirection)
    given, suppressed, scores = put(backend, rules), put(backend, masks()), put(backend, logits)
    ended = ops.FinishedBeams(pool, texts)
    backend.record(
        lambda: backend.beam_search_step(scores, suppressed, given, state, ended, beams=2)
    ).run()
    found = backend.read(state.rows)
    assert found["slot"].tolist() == [6, 1, 3, 4]
    assert (found[2:] == rows[2:]).all() and (found["count"][:2] == 3).all()
    free = [0, 2, 3, 4, 5, 7]
    for slot, before in zip((tokens, cache_indirection), slots, strict=False):
        after = backend.read(slot)
        assert np.array_equal(after[free], before[free])
    filled = backend.read(pool)["filled"]
    assert filled[6].tolist() == [1, 0, 0] and filled.sum() == 1
    kept = backend.read(texts).copy()
    assert kept[6, 0, :2].tolist() == slots[0][6, :2].tolist()
    kept[6, 0] = slots[3][6, 0]
    assert np.array_equal(kept, slots[3])
