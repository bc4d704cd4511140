"""The ops that decide, in NumPy, against openai-whisper's rules written out in the plainest way.

For beams see test_beams.py.
"""

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
from oscine.ops.reference import Reference, sampling

Array = NDArray[Any]
OPS = Reference()

VOCABULARY, END, NO_SPEECH, NO_TIMESTAMPS, BEGIN = 40, 20, 22, 23, 24


def rules(
    timestamps: bool = True, max_initial: int = 5, repeat_limit: int = 0, slots: int = 1, **own: Any
) -> Array:
    made = np.zeros(slots, ops.DECODE_PARAMS)
    fields = {
        "vocabulary": VOCABULARY,
        "end": END,
        "timestamp_begin": BEGIN,
        "no_timestamps": NO_TIMESTAMPS,
        "no_speech": NO_SPEECH,
        "timestamps": timestamps,
        "max_initial": max_initial,
        "repeat_limit": repeat_limit,
        "repetition_penalty": 1,
    }
    for name, value in (fields | own).items():
        made[name] = value
    return made


def fresh_state(lines: int = 1, limit: int = 30, **fields: Any) -> ops.TextDecoderState:
    rows = np.zeros(lines, ops.TEXT_DECODER_STATE)
    rows["length"], rows["limit"], rows["after_pair"] = 3, limit, 1
    rows["slot"] = np.arange(lines)
    for name, value in fields.items():
        rows[name] = value
    return ops.TextDecoderState(rows, np.zeros((lines, 32), np.uint32))


def no_mask() -> Array:
    return np.zeros((1, VOCABULARY), np.uint32)


def log_softmax(logits: Array) -> Array:
    top = logits.max()
    return logits - top - np.log(np.exp(logits - top).sum())


def openai_filter(
    logits: Array, picked: Sequence[int], mask: Array, rule: Array, initial: int = 5
) -> Array:
    """whisper/decoding.py: SuppressBlank, SuppressTokens and ApplyTimestampRules, line by line."""
    logits, end = logits.astype(np.float64), int(rule["end"])
    begin, no_timestamps = int(rule["timestamp_begin"]), int(rule["no_timestamps"])
    if not picked:
        logits[mask & ops.SUPPRESS_FIRST != 0] = -np.inf
    logits[mask & ops.SUPPRESS != 0] = -np.inf
    if not rule["timestamps"]:
        return logits
    logits[no_timestamps] = -np.inf
    last_was_timestamp = len(picked) >= 1 and picked[-1] >= begin
    penultimate_was_timestamp = len(picked) < 2 or picked[-2] >= begin
    if last_was_timestamp:
        if penultimate_was_timestamp:
            logits[begin:] = -np.inf
        else:
            logits[:end] = -np.inf
    timestamps = [token for token in picked if token >= begin]
    if timestamps:
        if last_was_timestamp and not penultimate_was_timestamp:
            timestamp_last = timestamps[-1]
        else:
            timestamp_last = timestamps[-1] + 1
        logits[begin:timestamp_last] = -np.inf
    if not picked:
        logits[:begin] = -np.inf
        logits[begin + initial + 1 :] = -np.inf
    if logits.max() > -np.inf:
        logprobs = log_softmax(logits)
        if np.logaddexp.reduce(logprobs[begin:]) > logprobs[:begin].max():
            logits[:begin] = -np.inf
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
        filtered = openai_filter(logits[0], picked, mask, rules()[0])
        token = int(filtered.argmax())
        total += log_softmax(filtered)[token]
        OPS.sample_token(logits, mask[None], rules(), state)
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
    mask[0, 7], mask[0, 9] = ops.SUPPRESS, ops.SUPPRESS_FIRST
    state.rows["count"] = (0, 1)
    logits = np.zeros((2, VOCABULARY), np.float32)
    logits[:, [7, 9, NO_TIMESTAMPS]] = 9, 8, 7
    OPS.sample_token(logits, mask, rules(timestamps=False, slots=2), state)
    assert list(state.rows["token"]) == [NO_TIMESTAMPS, 9]


@pytest.mark.parametrize("timestamps", [False, True])
def test_the_first_of_equals_wins(timestamps: bool) -> None:
    state = fresh_state()
    logits = np.zeros((1, VOCABULARY), np.float32)
    logits[0, [12, 5, 30, 27]] = 4.0
    OPS.sample_token(logits, no_mask(), rules(timestamps), state)
    assert state.rows["token"][0] == (27 if timestamps else 5)


def test_where_nothing_may_follow_it_ends() -> None:
    state = fresh_state(sum_logprob=-2.0)
    mask = np.full((1, VOCABULARY), ops.SUPPRESS, np.uint32)
    OPS.sample_token(np.zeros((1, VOCABULARY), np.float32), mask, rules(), state)
    assert (state.rows["done"][0], state.rows["sum_logprob"][0]) == (ops.STOP_END, -2.0)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_stops_its_line_alone(bad: float) -> None:
    state = fresh_state(lines=2)
    logits = np.zeros((2, VOCABULARY), np.float32)
    logits[0, 3] = bad
    OPS.sample_token(logits, no_mask(), rules(False, slots=2), state)
    assert list(state.rows["done"]) == [ops.STOP_NONFINITE, 0]
    assert list(state.rows["count"]) == [0, 1]


def test_repetition_and_length_end_a_line_and_done_lines_stay() -> None:
    state = fresh_state(lines=2, limit=[30, 2])
    logits = np.zeros((2, VOCABULARY), np.float32)
    logits[:, 6] = 5
    for _ in range(6):
        OPS.sample_token(logits, no_mask(), rules(False, repeat_limit=4, slots=2), state)
    assert list(state.rows["done"]) == [ops.STOP_REPEAT, ops.STOP_LENGTH]
    assert list(state.rows["count"]) == [4, 2]


def test_silence_is_judged_before_any_filter() -> None:
    state = fresh_state(lines=2, no_speech_prob=0.5)
    state.rows["done"] = (0, 1)
    logits = np.random.default_rng(23).normal(0, 3, (4, VOCABULARY)).astype(np.float32)
    OPS.no_speech(logits, rules(slots=2), state)
    expected = np.exp(log_softmax(logits[2].astype(np.float64))[NO_SPEECH])
    assert math.isclose(state.rows["no_speech_prob"][0], expected, rel_tol=1e-5)
    assert state.rows["no_speech_prob"][1] == 0.5


# -- what was said -----------------------------------------------------------------------------


@given(st.data())
def test_penalties_are_those_of_transformers(data: st.DataObject) -> None:
    """generation/logits_process.py: RepetitionPenalty and NoRepeatNGram, of text, with loops."""
    size = data.draw(st.integers(0, 4))
    penalty = data.draw(st.sampled_from([1.0, 0.5, 1.3]))
    said = data.draw(st.lists(st.integers(END - 3, END + 2), max_size=25))
    logits = np.random.default_rng(len(said)).normal(0, 3, VOCABULARY).astype(np.float32)
    expected = logits.copy()
    for id in {id for id in said if id < END}:
        expected[id] = logits[id] / penalty if logits[id] > 0 else logits[id] * np.float32(penalty)
    for start in range(len(said) - size + 1 if size else 0):
        *begin, last = said[start : start + size]
        if begin == said[len(said) - size + 1 :] and last < END:
            expected[last] = ops.NEG_INF
    state = fresh_state(count=len(said))
    state.tokens[0, : len(said)] = said
    given = rules(no_repeat_ngram=size, repetition_penalty=penalty)
    found = OPS.apply_penalties(logits[None], given, state)
    np.testing.assert_allclose(found[0], expected, rtol=1e-6)
    assert state.tokens[0, len(said) :].max() == 0


def test_what_is_penalised_most_is_never_picked_where_anything_else_may_be() -> None:
    state = fresh_state(count=2)
    state.tokens[0, :2] = (3, 3)
    logits = np.full((1, VOCABULARY), -9.0, np.float32)
    logits[0, 3] = 9
    given = rules(timestamps=False, no_repeat_ngram=2)
    OPS.sample_token(OPS.apply_penalties(logits, given, state), no_mask(), given, state)
    assert state.rows["token"][0] == 0 and state.rows["sum_logprob"][0] > -4


def test_probability_of_what_follows_among_text() -> None:
    logits = np.random.default_rng(4).normal(0, 3, (5, VOCABULARY)).astype(np.float32)
    logits[:, END:] = 30
    prompt = np.uint32([[BEGIN, 7, END, 3, END - 1]])
    shares = OPS.token_probs(logits, prompt, rules(), fresh_state())
    for row, token in ((0, 7), (2, 3), (3, END - 1)):
        text = np.exp(logits[row, :END].astype(np.float64))
        np.testing.assert_allclose(shares[row], text[token] / text.sum(), rtol=1e-5)
    assert shares[1] == shares[4] == 0


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
    assert sampling.counter_hash(seed, count, np.array([id]))[0] == plain_hash(seed, count, id)


@pytest.mark.parametrize("temperature", [0.4, 1.0])
def test_sampling_follows_the_softmax(temperature: float) -> None:
    """Frequencies of 20,000 seeds, within five standard deviations."""
    lines = 20_000
    state = fresh_state(lines=lines, temperature=temperature, seed=np.arange(lines) * 2654435761)
    scores = np.full(VOCABULARY, -60.0, np.float32)
    scores[[1, 4, 8, 15]] = 1.0, 0.5, 0.0, -1.0
    logits = np.broadcast_to(scores, (lines, VOCABULARY))
    OPS.sample_token(logits, no_mask(), rules(False, slots=lines), state)
    share = np.exp(log_softmax(scores.astype(np.float64) / temperature))
    counts = np.bincount(state.rows["token"], minlength=VOCABULARY)
    spread = np.sqrt(lines * share * (1 - share))
    assert (np.abs(counts - lines * share) <= 5 * spread + 1e-9).all()
    expected = log_softmax(scores.astype(np.float64))[state.rows["token"]]
    np.testing.assert_allclose(state.rows["sum_logprob"], expected, rtol=1e-5)  # no temperature


def test_noise_hangs_on_seed_count_and_id_alone() -> None:
    ids = np.arange(100)
    first = sampling.gumbel(5, 3, ids)
    assert np.array_equal(first[40:60], sampling.gumbel(5, 3, ids[40:60]))
    assert not np.array_equal(first, sampling.gumbel(5, 4, ids))
    assert not np.array_equal(first, sampling.gumbel(6, 3, ids))


def test_noise_is_finite_at_both_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = np.array([0, 2**32 - 1], np.uint32)
    monkeypatch.setattr(sampling, "counter_hash", lambda seed, count, ids: ends)
    low, high = sampling.gumbel(0, 0, np.arange(2))
    assert -3 < low < -2 and 16 < high < 17
