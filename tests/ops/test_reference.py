"""Each op in NumPy against its plain definition in float64."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from oscine import ops
from oscine.ops import decisions, reference
from oscine.ops.reference import Reference

Array = NDArray[Any]

OPS = Reference()


def noise(seed: int, *shape: int) -> Array:
    """Not centred, with a few large values, as activations are."""
    x = np.random.default_rng(seed).standard_normal(shape)
    x.reshape(-1)[:: max(1, x.size // 5)] *= 9
    return (x + 0.5).astype(np.float32)


def assert_near(found: Array, expected: Any, share: float = 3e-6) -> None:
    """Within a share of the largest value."""
    expected = np.asarray(expected)
    assert found.dtype == np.float32
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=0, atol=share * np.abs(expected).max())


def plain_gelu(x: Array) -> Array:
    return x / 2 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def plain_norm(x: Array, norm: ops.Norm) -> Array:
    x = x.astype(np.float64)
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * norm.weight + norm.bias


def plain_attention(q: Array, keys: Array, values: Array) -> Array:
    """One query of one head."""
    scores = keys.astype(np.float64) @ q / math.sqrt(len(q))
    weights = np.exp(scores - scores.max())
    return weights / weights.sum() @ values


def heads_of(row: Array, heads: int) -> list[Array]:
    return np.split(row, heads, axis=-1)


def test_erf() -> None:
    x = np.linspace(-6, 6, 20001, dtype=np.float32)
    expected = np.vectorize(math.erf)(x.astype(np.float64))
    assert np.abs(reference.erf(x) - expected).max() < 5e-7
    assert reference.erf(np.float32([0.0]))[0] == 0


def test_gelu_is_the_exact_one() -> None:
    x = np.linspace(-9, 9, 5001, dtype=np.float32).reshape(-1, 3)
    y = x.copy()
    reference.gelu(y)
    assert np.abs(y - plain_gelu(x.astype(np.float64))).max() < 1e-6


@pytest.mark.parametrize("rows", [1, 7, 500])
def test_layer_norm(rows: int) -> None:
    x, norm = noise(1, rows, 96), ops.Norm(noise(2, 96), noise(3, 96))
    assert_near(OPS.layer_norm(x, norm), plain_norm(x, norm))


@pytest.mark.parametrize("rows", [1, 5, 383, 385, 900])
@pytest.mark.parametrize("all_parts", [False, True])
def test_linear(rows: int, all_parts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "TILE_BYTES", 4 * 40 * 30)  # 30 of the 70 outputs a tile
    x, weight = noise(4, rows, 40), noise(5, 70, 40)
    bias, add = noise(6, 70), noise(7, rows, 70)
    norm = ops.Norm(noise(8, 40), noise(9, 40))
    if not all_parts:
        assert_near(OPS.linear(x, ops.Linear(weight, None)), x.astype(np.float64) @ weight.T)
        return
    y = OPS.linear(x, ops.Linear(weight, bias), norm=norm, activation="gelu", add=add)
    assert_near(y, plain_gelu(plain_norm(x, norm) @ weight.T + bias) + add, 1e-5)


@pytest.mark.parametrize(("frames", "stride"), [(1, 1), (20, 1), (20, 2), (21, 2)])
def test_conv1d(frames: int, stride: int) -> None:
    x, weight, bias = noise(10, frames, 6), noise(11, 5, 3, 6), noise(12, 5)
    count = -(-frames // stride)
    add = noise(13, count, 5)
    expected = np.zeros((count, 5))
    for t in range(count):
        for tap in range(3):
            if 0 <= t * stride + tap - 1 < frames:
                expected[t] += weight[:, tap].astype(np.float64) @ x[t * stride + tap - 1]
    y = OPS.conv1d(x, ops.Linear(weight, bias), stride=stride, activation="gelu", add=add)
    assert_near(y, plain_gelu(expected + bias) + add)


@pytest.mark.parametrize(("length", "heads"), [(1, 1), (9, 3), (600, 2)])
def test_attention(length: int, heads: int) -> None:
    width = 8 * heads
    qkv = noise(14, length, 3 * width)
    q, k, v = np.split(qkv, 3, axis=1)
    rows = sorted({0, length // 2, length - 1})
    expected = [
        np.concatenate(
            [
                plain_attention(q[row, part], k[:, part], v[:, part])
                for part in (slice(8 * h, 8 * h + 8) for h in range(heads))
            ]
        )
        for row in rows
    ]
    assert_near(OPS.attention(qkv, heads)[rows], expected, 1e-5)


def test_large_scores_do_not_overflow() -> None:
    qkv = np.full((3, 12), 1e4, np.float32)
    np.testing.assert_allclose(OPS.attention(qkv, 1), qkv[:, 8:], rtol=1e-6)


@pytest.mark.parametrize("rows", [1, 4])
def test_attend_cross(rows: int) -> None:
    q, kv = noise(15, rows, 12), noise(16, 30, 24)
    keys, values = heads_of(kv[:, :12], 2), heads_of(kv[:, 12:], 2)
    expected = [
        np.concatenate(
            [plain_attention(*one) for one in zip(heads_of(row, 2), keys, values, strict=True)]
        )
        for row in q
    ]
    assert_near(OPS.attend_cross(q, kv, 2), expected, 1e-5)


def test_attend_self_appends_then_looks_back() -> None:
    """Three lines: one token after five, two of a padded prompt of three, one that is done."""
    rows = np.zeros(3, ops.STATE)
    rows["position"], rows["length"], rows["done"] = (5, 0, 2), (1, 2, 3), (0, 0, 1)
    qkv = noise(17, 9, 36)
    before = ops.Cache(noise(18, 3, 10, 12), noise(19, 3, 10, 12))
    cache = ops.Cache(before.keys.copy(), before.values.copy())
    state = ops.State(rows, np.zeros((3, 10), np.uint32))
    y = OPS.attend_self(qkv, cache, state, 2)
    keys, values = before.keys.copy(), before.values.copy()
    for line, start, count in ((0, 5, 1), (1, 0, 2)):
        for at in range(count):
            q, k, v = np.split(qkv[3 * line + at], 3)
            keys[line, start + at], values[line, start + at] = k, v
            seen = slice(0, start + at + 1)
            parts = (heads_of(a, 2) for a in (q, keys[line, seen], values[line, seen]))
            expected = [plain_attention(*one) for one in zip(*parts, strict=True)]
            assert_near(y[3 * line + at], np.concatenate(expected), 1e-5)
    assert np.array_equal(cache.keys, keys)  # the done line's and what lies past the end as before
    assert np.array_equal(cache.values, values)


def test_embed_and_take_rows() -> None:
    rows = np.zeros(2, ops.STATE)
    rows["position"], rows["length"], rows["sot"], rows["token"] = (3, 0), (3, 2), (1, 0), (4, 6)
    state = ops.State(rows, np.zeros((2, 9), np.uint32))
    table, positions = noise(20, 7, 4), noise(21, 9, 4)
    one = OPS.embed(table, positions, state)
    assert np.array_equal(one, [table[4] + positions[3], table[6] + positions[0]])
    prompt = np.array([[1, 2, 3], [5, 6, 0]], np.uint32)
    x = OPS.embed(table, positions, state, prompt)
    assert np.array_equal(x[:3], table[[1, 2, 3]] + positions[3:6])
    assert np.array_equal(x[3:5], table[[5, 6]] + positions[:2])
    assert np.array_equal(OPS.take_rows(x, state), x[[2, 4, 1, 3]])


def test_memory() -> None:
    slot = OPS.slot((2, 3))
    OPS.write(slot, np.float32([[1, 2, 3]]))
    later = OPS.snapshot(slot)
    copy = OPS.read(slot)
    OPS.keep(np.ones((2, 3), np.float32), slot)
    assert np.array_equal(copy, [[1, 2, 3], [0, 0, 0]])
    assert np.array_equal(later()[0], copy)
    assert np.array_equal(slot, np.ones((2, 3)))


@pytest.mark.parametrize("kind", [np.float16, np.float32])
def test_upload_gives_aligned_float32(kind: Any) -> None:
    stored = noise(22, 5, 3).astype(kind)
    unaligned = np.frombuffer(b"\0" + stored.tobytes(), np.uint8)[1:].view(kind).reshape(5, 3)
    for array in (stored, unaligned):
        given = OPS.upload(array)
        assert given.dtype == np.float32 and given.flags.aligned and given.flags.c_contiguous
        assert np.array_equal(given, stored.astype(np.float32))


def test_a_plan_stops_when_its_lines_are_done() -> None:
    state = ops.State(np.zeros(2, ops.STATE), np.zeros((2, 4), np.uint32))
    ran = []

    def trace() -> None:
        ran.append(len(ran))
        state.rows["done"][: len(ran) - 1] = 1

    OPS.record(trace, state).run(9)
    assert len(ran) == 3
    OPS.record(trace).run(2)
    assert len(ran) == 5


# -- decisions --------------------------------------------------------------------------------

VOCABULARY, END, NO_SPEECH, NO_TIMESTAMPS, BEGIN = 40, 20, 22, 23, 24


def rules(timestamps: bool = True, max_initial: int = 5, repeat_limit: int = 0) -> Array:
    made = np.zeros(1, ops.RULES)
    made[0] = (
        *(VOCABULARY, END, BEGIN, NO_TIMESTAMPS, NO_SPEECH),
        *(timestamps, max_initial, repeat_limit),
    )
    return made


def fresh_state(lines: int = 1, limit: int = 30, **fields: Any) -> ops.State:
    rows = np.zeros(lines, ops.STATE)
    rows["length"], rows["limit"], rows["after_pair"] = 3, limit, 1
    for name, value in fields.items():
        rows[name] = value
    return ops.State(rows, np.zeros((lines, 32), np.uint32))


def no_mask() -> Array:
    return np.zeros(VOCABULARY, np.uint32)


def log_softmax(logits: Array) -> Array:
    top = logits.max()
    return logits - top - np.log(np.exp(logits - top).sum())


def openai_filter(logits: Array, picked: Sequence[int], mask: Array, max_initial: int) -> Array:
    """whisper/decoding.py: SuppressBlank, SuppressTokens and ApplyTimestampRules, line by line."""
    logits = logits.astype(np.float64)
    if not picked:
        logits[mask & ops.SUPPRESS_FIRST != 0] = -np.inf
    logits[mask & ops.SUPPRESS != 0] = -np.inf
    logits[NO_TIMESTAMPS] = -np.inf
    last_was_timestamp = len(picked) >= 1 and picked[-1] >= BEGIN
    penultimate_was_timestamp = len(picked) < 2 or picked[-2] >= BEGIN
    if last_was_timestamp:
        if penultimate_was_timestamp:
            logits[BEGIN:] = -np.inf
        else:
            logits[:END] = -np.inf
    timestamps = [token for token in picked if token >= BEGIN]
    if timestamps:
        if last_was_timestamp and not penultimate_was_timestamp:
            timestamp_last = timestamps[-1]
        else:
            timestamp_last = timestamps[-1] + 1
        logits[BEGIN:timestamp_last] = -np.inf
    if not picked:
        logits[:BEGIN] = -np.inf
        logits[BEGIN + max_initial + 1 :] = -np.inf
    logprobs = log_softmax(logits)
    if np.logaddexp.reduce(logprobs[BEGIN:]) > logprobs[:BEGIN].max():
        logits[:BEGIN] = -np.inf
    return logits


@given(seed=st.integers(0, 2**32 - 1), lift=st.floats(-4, 4))
def test_picks_as_openai_does(seed: int, lift: float) -> None:
    """A whole transcript of random logits: same filters, same tokens, same sums."""
    rng = np.random.default_rng(seed)
    mask = rng.choice([0, 0, 0, ops.SUPPRESS, ops.SUPPRESS_FIRST], VOCABULARY).astype(np.uint32)
    mask[END] = mask[BEGIN] = 0  # what can always follow
    state, picked, total = fresh_state(), [], 0.0
    for _ in range(12):
        logits = rng.normal(0, 3, (2, VOCABULARY)).astype(np.float32)
        logits[0, BEGIN:] += lift
        filtered = openai_filter(logits[0], picked, mask, 5)
        token = int(filtered.argmax())
        total += log_softmax(filtered)[token]
        OPS.pick(logits, mask, rules(), state)
        row = state.rows[0]
        assert math.isclose(row["sum_logprob"], total, rel_tol=1e-4, abs_tol=1e-4)
        if token == END:
            assert row["done"] == ops.STOP_END
            break
        picked.append(token)
        assert not row["done"]
        assert row["position"] == 2 + len(picked) and row["length"] == 1
    assert list(state.tokens[0, : state.rows[0]["count"]]) == picked


def test_without_timestamps_only_the_mask_holds() -> None:
    mask, state = no_mask(), fresh_state(lines=2)
    mask[7], mask[9] = ops.SUPPRESS, ops.SUPPRESS_FIRST
    state.rows["count"] = (0, 1)
    logits = np.zeros((2, VOCABULARY), np.float32)
    logits[:, [7, 9, NO_TIMESTAMPS]] = 9, 8, 7
    OPS.pick(logits, mask, rules(timestamps=False), state)
    assert list(state.rows["token"]) == [NO_TIMESTAMPS, 9]


@pytest.mark.parametrize("timestamps", [False, True])
def test_the_first_of_equals_wins(timestamps: bool) -> None:
    state = fresh_state()
    logits = np.zeros((1, VOCABULARY), np.float32)
    logits[0, [12, 5, 30, 27]] = 4.0
    OPS.pick(logits, no_mask(), rules(timestamps), state)
    assert state.rows["token"][0] == (27 if timestamps else 5)


def test_where_nothing_may_follow_it_ends() -> None:
    state = fresh_state(sum_logprob=-2.0)
    mask = np.full(VOCABULARY, ops.SUPPRESS, np.uint32)
    OPS.pick(np.zeros((1, VOCABULARY), np.float32), mask, rules(), state)
    assert (state.rows["done"][0], state.rows["sum_logprob"][0]) == (ops.STOP_END, -2.0)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_stops_its_line_alone(bad: float) -> None:
    state = fresh_state(lines=2)
    logits = np.zeros((2, VOCABULARY), np.float32)
    logits[0, 3] = bad
    OPS.pick(logits, no_mask(), rules(False), state)
    assert list(state.rows["done"]) == [ops.STOP_NONFINITE, 0]
    assert list(state.rows["count"]) == [0, 1]


def test_repetition_and_length_end_a_line_and_done_lines_stay() -> None:
    state = fresh_state(lines=2, limit=[30, 2])
    logits = np.zeros((2, VOCABULARY), np.float32)
    logits[:, 6] = 5
    for _ in range(6):
        OPS.pick(logits, no_mask(), rules(False, repeat_limit=4), state)
    assert list(state.rows["done"]) == [ops.STOP_REPEAT, ops.STOP_LENGTH]
    assert list(state.rows["count"]) == [4, 2]


def test_silence_is_judged_before_any_filter() -> None:
    state = fresh_state(lines=2, no_speech_prob=0.5)
    state.rows["done"] = (0, 1)
    logits = noise(23, 4, VOCABULARY)
    OPS.no_speech(logits, rules(), state)
    expected = np.exp(log_softmax(logits[2].astype(np.float64))[NO_SPEECH])
    assert math.isclose(state.rows["no_speech_prob"][0], expected, rel_tol=1e-5)
    assert state.rows["no_speech_prob"][1] == 0.5


# -- chance -----------------------------------------------------------------------------------


def plain_hash(seed: int, count: int, id: int) -> int:
    """The same in Python's own integers."""

    def pcg(x: int) -> int:
        x = (x * 747796405 + 2891336453) & 0xFFFFFFFF
        word = (((x >> ((x >> 28) + 4)) ^ x) * 277803737) & 0xFFFFFFFF
        return (word >> 22) ^ word

    return pcg(id ^ pcg(pcg(seed) ^ count))


@given(st.integers(0, 2**32 - 1), st.integers(0, 500), st.integers(0, 60000))
def test_the_counter_hash(seed: int, count: int, id: int) -> None:
    assert decisions.counter_hash(seed, count, np.array([id]))[0] == plain_hash(seed, count, id)


@pytest.mark.parametrize("temperature", [0.4, 1.0])
def test_sampling_follows_the_softmax(temperature: float) -> None:
    """Frequencies of 20,000 seeds, within five standard deviations."""
    lines = 20_000
    state = fresh_state(lines=lines, temperature=temperature, seed=np.arange(lines) * 2654435761)
    scores = np.full(VOCABULARY, -60.0, np.float32)
    scores[[1, 4, 8, 15]] = 1.0, 0.5, 0.0, -1.0
    logits = np.broadcast_to(scores, (lines, VOCABULARY))
    OPS.pick(logits, no_mask(), rules(False), state)
    share = np.exp(log_softmax(scores.astype(np.float64) / temperature))
    counts = np.bincount(state.rows["token"], minlength=VOCABULARY)
    spread = np.sqrt(lines * share * (1 - share))
    assert (np.abs(counts - lines * share) <= 5 * spread + 1e-9).all()
    expected = log_softmax(scores.astype(np.float64))[state.rows["token"]]
    np.testing.assert_allclose(state.rows["sum_logprob"], expected, rtol=1e-5)  # no temperature


def test_noise_hangs_on_seed_count_and_id_alone() -> None:
    ids = np.arange(100)
    first = decisions.gumbel(5, 3, ids)
    assert np.array_equal(first[40:60], decisions.gumbel(5, 3, ids[40:60]))
    assert not np.array_equal(first, decisions.gumbel(5, 4, ids))
    assert not np.array_equal(first, decisions.gumbel(6, 3, ids))


def test_noise_is_finite_at_both_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = np.array([0, 2**32 - 1], np.uint32)
    monkeypatch.setattr(decisions, "counter_hash", lambda seed, count, ids: ends)
    low, high = decisions.gumbel(0, 0, np.arange(2))
    assert -3 < low < -2 and 16 < high < 17
