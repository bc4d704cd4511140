"""The ops that speak: what they mean, and that both sides choose alike over whole frames."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oscine import ops
from oscine.errors import DeviceError
from oscine.ops import SAMPLING_PARAMS, TALKER_STATE, KVCache, QKNorm, RopeTable, TalkerState
from oscine.ops.reference import Reference
from oscine.ops.reference.sampling import process_logits
from oscine.ops.webgpu import Gpu

ORACLE = Path(__file__).resolve().parents[3] / "shared" / "oracles" / "tts-seed0" / "sampler"


def utterances(lines: int = 1, groups: int = 4, vocabulary: int = 8, **fields: Any) -> TalkerState:
    """Rows at their beginning, each in the slot of its number, but for the fields given; room for
    five frames."""
    rows = np.zeros(lines, TALKER_STATE)
    rows["slot"] = np.arange(lines)
    rows["length"], rows["limit"], rows["texts"] = 1, 5, 1
    for name, value in fields.items():
        rows[name] = value
    codes = np.full((lines, 5, groups), 99, np.uint32)
    return TalkerState(rows, codes, np.zeros((lines, vocabulary), np.uint32))


def sampling(vocabulary: int = 8, **fields: Any) -> Any:
    """Greedy and without rules, but for the fields given."""
    rules = np.zeros(1, SAMPLING_PARAMS)
    rules["end"], rules["suppress"] = vocabulary, vocabulary
    rules["top_p"], rules["repetition_penalty"] = 1, 1
    for name, value in fields.items():
        rules[name] = value
    return rules


# -- attention ------------------------------------------------------------------------------------

H, K, W = 6, 2, 12


def angles(count: int) -> RopeTable:
    product = np.outer(np.arange(count), 100.0 ** (-np.arange(W // 2) / (W // 2)))
    return RopeTable(np.cos(product).astype(np.float32), np.sin(product).astype(np.float32))


def plain_attention(qkv: Any, norms: QKNorm | None, window: int | None) -> Any:
    """A whole sequence at once, in float64, with rotation as a product of complex numbers."""
    rows = qkv.astype(np.float64).reshape(len(qkv), -1, W)
    q, k, v = rows[:, :H], rows[:, H : H + K], rows[:, H + K :]
    if norms is not None:
        q = q / np.sqrt((q**2).mean(-1, keepdims=True) + norms.eps) * norms.q
        k = k / np.sqrt((k**2).mean(-1, keepdims=True) + norms.eps) * norms.k
    frequency = 100.0 ** (-np.arange(W // 2) / (W // 2))
    turns = np.exp(1j * np.outer(np.arange(len(qkv)), frequency))[:, None]
    q, k = ((x[..., : W // 2] + 1j * x[..., W // 2 :]) * turns for x in (q, k))
    k, v = np.repeat(k, H // K, 1), np.repeat(v, H // K, 1)
    scores = np.einsum("ihw,jhw->hij", q, k.conj()).real / np.sqrt(W)
    apart = np.subtract.outer(np.arange(len(qkv)), np.arange(len(qkv)))
    scores[:, (apart < 0) | (apart >= (window or len(qkv)))] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return np.einsum("hij,jhw->ihw", weights, v).reshape(len(qkv), -1)


@pytest.mark.parametrize(
    "blocks", [[40], [1] * 40, [17, 1, 1, 9, 12]], ids=["whole", "rows", "both"]
)
@pytest.mark.parametrize(("window", "room"), [(None, 40), (7, 24), (40, 57)])
@pytest.mark.parametrize("normed", [True, False])
def test_attention_equals_a_plain_one_however_it_is_fed(
    blocks: list[int], window: int | None, room: int, normed: bool
) -> None:
    rng = np.random.default_rng(5)
    if window == 7 and blocks == [40]:
        room = 46
    qkv = rng.standard_normal((40, (H + 2 * K) * W)).astype(np.float32)
    norms = None
    if normed:
        weights = rng.uniform(0.5, 2, (2, W)).astype(np.float32)
        norms = QKNorm(weights[0], weights[1], 1e-3)
    cache = KVCache(*np.full((2, 1, room, K * W), np.nan, np.float32))
    found, start = [], 0
    for count in blocks:
        line = utterances(position=start, length=count)
        padded = np.concatenate([qkv[start : start + count], np.full((2, qkv.shape[1]), np.nan)])
        padded = padded[:count] if window else padded.astype(np.float32)
        y = Reference().causal_attention(
            padded, cache, line, H, rope=angles(40), norms=norms, window=window
        )
        found.append(y[:count])
        start += count
    expected = plain_attention(qkv, norms, window)
    assert np.abs(np.concatenate(found) - expected).max() < 1e-5


def test_within_a_frame_rows_stand_at_their_codes() -> None:
    rng = np.random.default_rng(6)
    qkv = rng.standard_normal((5, (H + 2 * K) * W)).astype(np.float32)
    cache = KVCache(*np.zeros((2, 2, 5, K * W), np.float32))
    found = []
    for group, rows in ((1, [0, 1]), (2, [2]), (3, [3]), (4, [4])):
        both = utterances(2, position=1000, length=3, group=group, done=[0, ops.STOP_END])
        x = np.concatenate([qkv[rows], qkv[rows]])
        y = Reference().causal_attention(x, cache, both, H, rope=angles(5), within_frame=True)
        found.append(y[: len(rows)])
    assert np.abs(np.concatenate(found) - plain_attention(qkv, None, None)).max() < 1e-5
    assert not cache.keys[1].any()


# -- choosing -------------------------------------------------------------------------------------


def oracle_cases() -> list[Any]:
    """Rules, logits, history and what transformers made of them."""
    if not ORACLE.exists():
        return []
    meta = json.loads((ORACLE / "meta.json").read_text("utf-8"))
    with np.load(ORACLE / "expected.npz") as stored:
        arrays = dict(stored)
    cases = []
    for i, case in enumerate(meta["cases"]):
        names = "top_k", "top_p", "temperature", "repetition_penalty"
        rules = sampling(
            case["vocab"],
            end=case["eos"],
            suppress=case["vocab"] - 1024,
            minimum=case["min_new_tokens"],
            **{name: case[name] for name in names},
        )
        own = [arrays[f"s{i}/{name}"] for name in ("logits", "history", "probs", "greedy")]
        cases.append((rules, *own))
    return cases


@pytest.mark.skipif(not ORACLE.exists(), reason=f"no oracles in {ORACLE}")
def test_probabilities_are_those_of_transformers() -> None:
    for rules, logits, history, probabilities, greedy in oracle_cases():
        seen = np.zeros(len(logits), np.uint32)
        seen[history] = 1
        scores = process_logits(logits, rules[0], len(history), seen)
        found = np.exp(scores - scores.max())
        assert np.abs(found / found.sum() - probabilities).max() < 1e-6
        rules["temperature"] = 0
        assert process_logits(logits, rules[0], len(history), seen).argmax() == greedy


@pytest.mark.parametrize("temperature", [0.0, 1e-3, 1.0, 1e3])
@pytest.mark.parametrize("penalty", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("largest", [20.0, 1e25, 1e37, 3e38, -3e38])
def test_a_score_above_all_numbers_is_told_from_a_choice(
    temperature: float, penalty: float, largest: float
) -> None:
    rules = sampling(40, end=3, suppress=30, top_k=20, top_p=0.9, temperature=temperature)
    rules["repetition_penalty"] = penalty
    logits = np.linspace(-5, 5, 40, dtype=np.float32)
    logits[7] = largest
    line = utterances(1, vocabulary=40, seed=1, count=2)
    line.seen[:, 7] = 1
    Reference().sample_code(logits[None], rules, line)
    with np.errstate(over="ignore"):
        score = np.float32(largest) / np.float32(penalty if largest > 0 else 1 / penalty)
        score = score if temperature == 0 else score / np.float32(temperature)
    if score == np.inf:
        assert line.rows["done"][0] == ops.STOP_NONFINITE
    else:
        assert line.rows["done"][0] == 0 and line.codes[0, 2, 0] < 30
        assert line.codes[0, 2, 0] == 7 or score < 1e6


def test_samples_come_as_often_as_they_should() -> None:
    rng = np.random.default_rng(1)
    logits = rng.standard_normal(40).astype(np.float32) * 2
    rules = sampling(40, end=3, suppress=30, top_k=20, top_p=0.9, temperature=1.2)
    rules["repetition_penalty"] = 1.3
    lines = 20_000
    many = utterances(lines, vocabulary=40, seed=np.arange(lines), count=2)
    many.seen[:, ::2] = 1
    scores = process_logits(logits, rules[0], 2, many.seen[0])
    expected = np.exp(scores - scores.max())
    expected /= expected.sum()
    Reference().sample_code(np.tile(logits, (lines, 1)), np.tile(rules, lines), many)
    counts = np.bincount(many.rows["token"][many.rows["done"] == 0], minlength=40)
    counts[3] += (many.rows["done"] == ops.STOP_END).sum()
    assert (counts[expected == 0] == 0).all() and 5 < (expected > 0).sum() < 20
    spread = np.sqrt(lines * expected * (1 - expected))
    assert (np.abs(counts - lines * expected) <= 4 * spread).all()


def test_rules_hold_in_their_order() -> None:
    logits = np.array([4.0, 3.5, -2.0, 3.9, 3.8, 9.0, 1.0, 8.0], np.float32)
    rules = sampling(end=5, suppress=4, minimum=1, repetition_penalty=2, temperature=0.5, top_k=3)
    seen = np.array([1, 0, 1, 0, 0, 1, 0, 0], np.uint32)
    out = -np.inf
    # Penalty before suppression before temperature before top-k.
    found = process_logits(logits, rules[0], 0, seen)
    assert found.tolist() == [4, 7, out, pytest.approx(7.8), out, out, out, out]
    found = process_logits(logits, rules[0], 1, seen)  # the end may come, penalised like any other
    assert found.tolist() == [out, 7, out, pytest.approx(7.8), out, 9, out, out]
    # Later codes of a frame know none of the rules of the first.
    found = process_logits(logits, rules[0], 0, None)
    assert found.tolist() == [8, out, out, out, out, 18, out, 16]


def test_ties_stay_at_the_border_of_top_k_and_the_likeliest_under_any_top_p() -> None:
    logits = np.array([1, 3, 2, 2, 2, 0], np.float32)
    left = process_logits(logits, sampling(6, temperature=1, top_k=2)[0], 0, None) > -np.inf
    assert left.tolist() == [False, True, True, True, True, False]
    left = process_logits(logits, sampling(6, temperature=1, top_p=1e-9)[0], 0, None) > -np.inf
    assert left.tolist() == [False, True, False, False, False, False]
    left = process_logits(logits, sampling(6, temperature=1, top_k=99)[0], 0, None) > -np.inf
    assert left.all()


def step(line: TalkerState, likely: int, **rules: Any) -> None:
    logits = np.zeros((len(line.rows), 8), np.float32)
    logits[:, likely] = 5
    Reference().sample_code(logits, np.tile(sampling(**rules), len(line.rows)), line)


def test_a_frame_moves_its_line_on_and_the_limit_pauses_it() -> None:
    line = utterances(groups=3, position=7, length=4, limit=2)
    for code in (5, 1, 2):
        step(line, code)
        assert line.rows["token"][0] == code
    row = line.rows[0]
    assert (row["count"], row["group"], row["position"], row["length"]) == (1, 0, 11, 1)
    assert line.codes[0, 0].tolist() == [5, 1, 2] and row["done"] == 0
    assert line.seen[0].tolist() == [0, 0, 0, 0, 0, 1, 0, 0]  # of first codes alone
    for code in (6, 6, 6):
        step(line, code)
    assert (row["done"], row["position"]) == (ops.STOP_LENGTH, 12)
    step(line, 3)
    assert line.codes[0, 2].tolist() == [99] * 3
    row["done"], row["limit"] = 0, 99
    for _ in range(9):
        step(line, 3)
    assert (row["done"], row["count"]) == (ops.STOP_LENGTH, 5)  # no room for more


def test_the_end_stops_a_line_at_a_first_code_alone() -> None:
    line = utterances(groups=2)
    step(line, 4, end=4, minimum=1)
    assert (line.rows["token"][0], line.rows["done"][0]) == (0, 0)  # too early: the lowest id
    step(line, 4, end=4)
    assert (line.rows["token"][0], line.rows["done"][0]) == (4, 0)
    step(line, 4, end=4, minimum=1)
    assert line.rows["done"][0] == ops.STOP_END and line.codes[0, 1].tolist() == [99, 99]
    assert line.rows["count"][0] == 1 and line.seen[0].tolist() == [1] + [0] * 7


def test_a_logit_that_is_no_number_stops_its_own_line() -> None:
    lines = utterances(3, group=[0, 2, 1])
    logits = np.zeros((6, 8), np.float32)
    logits[[1, 2], [3, 3]] = np.nan, np.inf  # the last of each two rows speaks
    Reference().sample_code(logits, np.tile(sampling(), 3), lines)
    assert lines.rows["done"].tolist() == [ops.STOP_NONFINITE, 0, 0]


# -- rows for codes -------------------------------------------------------------------------------


def test_rows_of_codes_are_summed_and_the_last_two_go_to_the_talker() -> None:
    table = np.arange(32, dtype=np.float32).reshape(8, 4)
    lines = utterances(2, token=[3, 99], done=[0, ops.STOP_END], count=2, texts=9)
    total = np.ones((2, 4), np.float32)
    row = Reference().code_embedding(table, lines, total)
    assert row[0].tolist() == table[3].tolist()
    assert total.tolist() == [(1 + table[3]).tolist(), [1] * 4]  # the other row is done
    ahead = np.full((2, 2), 7, np.float32)
    pair = Reference().code_embedding(
        table, lines, total, table[:, :2], overwrite=True, preceding_rows=ahead
    )
    assert pair[:2].tolist() == [[7, 7], table[3, :2].tolist()] and pair.shape == (4, 2)
    assert total[0].tolist() == table[3].tolist()
    text = np.zeros((2, 3, 4), np.float32)
    text[0] = [[100] * 4, [200] * 4, [300] * 4]
    for count, texts, first in ((1, 3, 100), (2, 3, 200), (9, 3, 300), (3, 2, 200), (9, 1, 100)):
        lines.rows["count"], lines.rows["texts"] = count, texts
        found = Reference().sum_embeddings(total, table, text, lines)
        assert found[0].tolist() == (2 * table[3] + first).tolist()


def test_the_last_rows_are_those_that_count() -> None:
    x = np.arange(24, dtype=np.float32).reshape(6, 4)
    lines = utterances(2, length=[2, 3])
    assert Reference().gather_rows(x, lines).tolist() == x[[1, 5]].tolist()


# -- both sides -----------------------------------------------------------------------------------


def frames(backend: Any, temperature: float) -> tuple[Any, Any]:
    """Frames whose logits all depend on the code before: the codes and the final rows."""
    rng = np.random.default_rng(9)
    width, vocabulary, groups, lines = 8, 40, 3, 2
    tables = [backend.upload(noise) for noise in rng.standard_normal((3, 40, 8), np.float32)]
    head = ops.Linear(backend.upload(3 * rng.standard_normal((40, 8), np.float32)), None)
    text_rows = backend.upload(rng.standard_normal((lines, 4, width), np.float32))
    start = utterances(lines, groups, vocabulary, seed=[5, 6], limit=[5, 3], texts=4, length=2)
    slots = [backend.zeros(a.shape, a.dtype) for a in (start.rows, start.codes, start.seen)]
    state, total = TalkerState(*slots), backend.zeros((lines, width))
    for slot, array in zip(slots, (start.rows, start.codes, start.seen), strict=True):
        backend.write(slot, array)
    first, later = sampling(vocabulary), sampling(vocabulary)
    first["end"], first["suppress"], first["minimum"], first["repetition_penalty"] = 33, 30, 5, 1.5
    for rules in (first, later):
        rules["temperature"], rules["top_k"] = temperature, 12
    stored = [backend.zeros((lines,), SAMPLING_PARAMS) for _ in range(2)]
    for slot, rules in zip(stored, (first, later), strict=True):
        backend.write(slot, np.tile(rules, lines))

    def frame() -> None:
        row = backend.sum_embeddings(total, tables[2], text_rows, state)
        for group in range(groups):
            backend.sample_code(backend.linear(row, head), stored[min(group, 1)], state)
            if group < groups - 1:
                row = backend.code_embedding(tables[group], state, total, overwrite=group == 0)

    plan = backend.record(frame, state.rows)
    plan.run(4)
    plan.run(4)
    return backend.read(state.codes), backend.read(state.rows)


@pytest.mark.gpu
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_the_same_seed_gives_the_same_codes_on_both_sides(gpu: Gpu, temperature: float) -> None:
    codes, rows = frames(gpu, temperature)
    expected, stopped = frames(Reference(), temperature)
    assert codes.tolist() == expected.tolist() and rows.tolist() == stopped.tolist()
    assert rows["count"].tolist() == [5, 3] and (codes[0] < 40).all()
    assert (codes[1, :3] < 40).all() and (codes[1, 3:] == 99).all()  # done: a no-op in every op
    assert len(np.unique(codes[0])) > 4


@pytest.mark.gpu
def test_what_kernels_do_not_take_is_said(gpu: Gpu) -> None:
    line = utterances()
    state = TalkerState(*(gpu.zeros(a.shape, a.dtype) for a in (line.rows, line.codes, line.seen)))
    rotary = RopeTable(gpu.zeros((4, 3)), gpu.zeros((4, 3)))

    def attend(width: int) -> None:
        cache = ops.KVCache(gpu.zeros((1, 4, width)), gpu.zeros((1, 4, width)))
        gpu.causal_attention(gpu.zeros((1, 3 * width)), cache, state, 1, rope=rotary)

    for width, word in ((6, "head width 6"), (516, "above 512")):
        with pytest.raises(DeviceError, match=word):
            gpu.record(lambda width=width: attend(width))
    with pytest.raises(DeviceError, match="65537 codes"):
        rules = gpu.zeros((1,), SAMPLING_PARAMS)
        gpu.record(lambda: gpu.sample_code(gpu.zeros((1, 65537)), rules, state))
    with pytest.raises(DeviceError, match="codes' rows 6"):
        gpu.record(lambda: gpu.code_embedding(gpu.zeros((8, 6)), state, gpu.zeros((1, 6))))
