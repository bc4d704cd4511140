"""Beam search as a whole, on both sides, against openai-whisper's written out in the plainest way.

Source: whisper/decoding.py, BeamSearchDecoder: a dictionary of sequences. The model is a hash: the
logits that follow a sequence are the same wherever it is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from oscine import ops
from oscine.ops.reference import Reference
from oscine.ops.webgpu import Gpu

Array = NDArray[Any]
Model = Callable[[Sequence[int]], Array]
Sequences = dict[tuple[int, ...], float]

#: Text 0 to 4, end 5, no speech 6, no timestamps 7, timestamps 8 to 11.
VOCABULARY, END, NO_SPEECH, NO_TIMESTAMPS, BEGIN = 12, 5, 6, 7, 8
LIMIT, PROMPT, ROOM = 7, 3, 16
MIN_CANDIDATE_GAP = 1e-4  # between offers, beyond what float32 may turn round


def rules(timestamps: bool, repeat_limit: int = 0) -> Array:
    made = np.zeros(1, ops.DECODE_PARAMS)
    made["vocabulary"], made["end"], made["timestamp_begin"] = VOCABULARY, END, BEGIN
    made["no_timestamps"], made["no_speech"] = NO_TIMESTAMPS, NO_SPEECH
    made["timestamps"], made["max_initial"], made["repetition_penalty"] = timestamps, 2, 1
    made["repeat_limit"] = repeat_limit
    return made


def model(seed: int, spread: float = 2.0) -> Model:
    """Logits [V] that depend on the whole sequence."""

    def logits(picked: Sequence[int]) -> Array:
        rng = np.random.default_rng([seed, *(token + 1 for token in picked)])
        made: Array = rng.normal(0, spread, VOCABULARY).astype(np.float32)
        made[END] += len(picked) / 2 - 1
        return made

    return logits


def filtered(logits: Array, picked: Sequence[int], mask: Array, timestamps: bool) -> Array:
    """Log-probabilities [V] of what may follow; openai's SuppressBlank and -Tokens, and rules."""
    allowed = np.full(VOCABULARY, True)
    allowed &= (mask & (ops.SUPPRESS if picked else ops.SUPPRESS | ops.SUPPRESS_FIRST)) == 0
    stamps = np.arange(VOCABULARY) >= BEGIN
    if timestamps:
        allowed[NO_TIMESTAMPS] = False
        last, before = (len(picked) < n or picked[-n] >= BEGIN for n in (1, 2))
        said = [token for token in picked if token >= BEGIN]
        if picked and last:
            allowed &= ~stamps if before else np.arange(VOCABULARY) >= END
        if said:
            allowed[BEGIN : said[-1] + (0 if last and not before else 1)] = False
        if not picked:
            allowed[:BEGIN] = allowed[BEGIN + 3 :] = False
    scores = np.where(allowed, logits.astype(np.float64), -np.inf)
    if timestamps and np.exp(scores[stamps]).sum() > np.exp(scores[~stamps].max()):
        scores[~stamps] = -np.inf
    if scores.max() == -np.inf:
        return scores
    sum_ = np.log(np.exp(scores).sum())
    return scores - sum_


def offers(of: Model, beams: Sequences, width: int, mask: Array, timestamps: bool) -> Sequences:
    """The width + 1 most likely continuations of each beam, without those of -inf."""
    scores: Sequences = {}
    for picked, total in beams.items():
        logprobs = filtered(of(picked), picked, mask, timestamps)
        if logprobs.max() == -np.inf:
            scores[*picked, END] = total
        for token in np.argsort(-logprobs, kind="stable")[: width + 1]:
            if logprobs[token] > -np.inf:
                scores[*picked, int(token)] = total + float(logprobs[token])
    return scores


def plain_search(
    of: Model, width: int, places: int, mask: Array, timestamps: bool
) -> tuple[Sequences, Sequences, float]:
    """What ended, what was still going, and the narrowest decision."""
    beams: Sequences = {(): 0.0}
    finished: Sequences = {}
    narrowest = float("inf")
    for _ in range(LIMIT):
        scores = offers(of, beams, width, mask, timestamps)
        narrowest = min(narrowest, *np.diff(sorted(scores.values())), np.inf)
        beams = {}
        for picked in sorted(scores, key=lambda picked: scores[picked], reverse=True):
            if picked[-1] != END:
                beams[picked] = scores[picked]
                if len(beams) == width:
                    break
            elif len(finished) < places:
                finished[picked] = scores[picked]
        if len(finished) == places or not beams:
            break
    return finished, beams, narrowest


def search(
    backend: Any, models: Sequence[Model], width: int, places: int, mask: Array, rule: Array
) -> tuple[Array, Array, Array, Array]:
    """The same through beam_search_step, one group a model: rows, their tokens, and each group's
    pool of rows and tokens. The slots of the lines are in no order, and others are free.

    Beside it a cache that holds tokens for keys: through the cache_indirection it must read as the
    tokens do.
    """
    groups, lines, slots = len(models), len(models) * width, len(models) * width + 3
    held = [
        *(backend.zeros((lines,), ops.TEXT_DECODER_STATE), backend.zeros((slots, ROOM), np.uint32)),
        *(
            backend.zeros((slots, places), ops.FINISHED_BEAM),
            backend.zeros((slots, places, ROOM), np.uint32),
        ),
    ]
    own, logits = backend.zeros((slots, ROOM), np.uint32), backend.zeros((lines, VOCABULARY))
    given, masks = (
        backend.zeros((slots,), ops.DECODE_PARAMS),
        backend.zeros((2, VOCABULARY), np.uint32),
    )
    state = ops.TextDecoderState(held[0], held[1], cache_indirection=own)
    pool = ops.FinishedBeams(held[2], held[3])
    rows, asked_rules = np.zeros(lines, ops.TEXT_DECODER_STATE), np.zeros(slots, ops.DECODE_PARAMS)
    rows["length"], rows["limit"], rows["after_pair"] = PROMPT, LIMIT, 1
    rows["slot"] = seats = np.random.default_rng(lines).permutation(slots)[:lines]
    asked_rules[seats] = rule
    asked_rules["mask"] = 1
    cache_indirection = np.repeat(np.arange(slots, dtype=np.uint32)[:, None], ROOM, 1)
    cache_indirection[seats, :PROMPT] = seats[::width].repeat(width)[:, None]
    for slot, array in ((state.rows, rows), (own, cache_indirection), (given, asked_rules)):
        backend.write(slot, array)
    backend.write(masks, mask, at=1)

    def step(rows_per_logits: int) -> Any:
        return backend.record(
            lambda: backend.beam_search_step(
                logits, masks, given, state, pool, width, rows_per_logits
            )
        )

    plan, cache = step(width), np.full((slots, ROOM), 99)
    cache[seats[::width], :PROMPT] = -1  # the prompt
    tokens = np.zeros((lines, ROOM), np.uint32)
    for turn in range(LIMIT + 1):
        asked = np.zeros((lines, VOCABULARY), np.float32)
        for row in range(groups if turn == 0 else lines):
            b = row * width if turn == 0 else row
            asked[row] = models[b // width](tokens[b, : rows[b]["count"]].tolist())
        backend.write(logits, asked)
        plan.run()
        rows, tokens, cache_indirection = (
            backend.read(slot) for slot in (state.rows, state.tokens, own)
        )
        assert rows["slot"].tolist() == seats.tolist()
        tokens, cache_indirection = tokens[seats], cache_indirection[seats]
        for b in np.flatnonzero(rows["done"] == 0):
            places_ = np.arange(rows[b]["position"])
            past = cache[cache_indirection[b, places_], places_]
            assert list(past) == [-1] * PROMPT + list(tokens[b, : rows[b]["count"] - 1])
        for b in np.flatnonzero(rows["done"] == 0):
            cache[seats[b], rows[b]["position"]] = rows[b]["token"]
        if rows["done"].all():
            break
        plan = step(1) if turn == 0 else plan
    assert rows["done"].all()
    rows, tokens, ended, texts = (backend.read(slot) for slot in held)
    return rows, tokens[seats], ended[seats[::width]], texts[seats[::width]]


def told(rows: Array, tokens: Array) -> list[tuple[tuple[int, ...], float]]:
    """Sequences and their sums."""
    return [
        (tuple(line[: row["count"]].tolist()), float(row["sum_logprob"]))
        for row, line in zip(rows, tokens, strict=True)
    ]


def same(found: list[tuple[tuple[int, ...], float]], expected: Sequences) -> None:
    """Equal sequences in equal order, sums within rounding."""
    assert [sequence for sequence, _ in found] == [
        tuple(token for token in sequence if token != END) for sequence in expected
    ]
    sums = [total for _, total in found]
    np.testing.assert_allclose(sums, list(expected.values()), rtol=1e-5, atol=1e-5)


def compare(
    backend: Any, seed: int, width: int, patience: float, timestamps: bool, shut: float
) -> bool:
    """Two searches side by side, each against its own plain one; False where rounding decides."""
    rng = np.random.default_rng(seed)
    places = max(1, round(width * patience))
    mask = np.where(rng.random(VOCABULARY) < shut, rng.integers(1, 4, VOCABULARY), 0)
    mask = mask.astype(np.uint32)
    models = [model(seed), model(seed + 1, 0.7)]
    plain = [plain_search(of, width, places, mask, timestamps) for of in models]
    if min(narrowest for _, _, narrowest in plain) < MIN_CANDIDATE_GAP:
        return False
    rows, tokens, ended, texts = search(backend, models, width, places, mask, rules(timestamps))
    for group, (finished, beams, _) in enumerate(plain):
        lines = slice(group * width, group * width + width)
        going = rows[lines]["sum_logprob"] > ops.NEG_INF / 2
        same(told(rows[lines][going], tokens[lines][going]), beams)
        count = int(ended[group]["filled"].sum())
        assert ended[group]["filled"][:count].all()
        same(told(ended[group, :count], texts[group, :count]), finished)
        full = count == places
        stops = {ops.STOP_END} if full else {ops.STOP_LENGTH, ops.STOP_END}
        assert set(rows[lines]["done"].tolist()) <= stops
        assert full or (rows[lines]["done"][going] == ops.STOP_LENGTH).all()
    return True


@given(
    seed=st.integers(0, 2**32 - 1),
    width=st.integers(1, 5),
    patience=st.sampled_from([0.5, 0.8, 1.0, 1.5, 2.0]),
    timestamps=st.booleans(),
    shut=st.sampled_from([0.0, 0.2, 0.7]),
)
def test_a_whole_search_is_openais(**drawn: Any) -> None:
    assume(compare(Reference(), **drawn))


@pytest.mark.gpu
@pytest.mark.parametrize("timestamps", [True, False])
@pytest.mark.parametrize(("width", "patience", "shut"), [(1, 2.0, 0.2), (4, 0.5, 0.2), (4, 1.5, 0)])
def test_a_whole_search_on_the_gpu(
    gpu: Gpu, width: int, patience: float, timestamps: bool, shut: float
) -> None:
    clear = [compare(gpu, seed, width, patience, timestamps, shut) for seed in range(4)]
    assert any(clear)


def ready(
    backend: Any, width: int, **fields: Any
) -> tuple[ops.TextDecoderState, ops.FinishedBeams]:
    """A group that has picked one token."""
    state = ops.TextDecoderState(
        backend.zeros((width,), ops.TEXT_DECODER_STATE),
        backend.zeros((width, ROOM), np.uint32),
        cache_indirection=backend.zeros((width, ROOM), np.uint32),
    )
    rows = np.zeros(width, ops.TEXT_DECODER_STATE)
    rows["length"], rows["count"], rows["limit"], rows["position"] = 1, 1, 9, 4
    rows["slot"] = np.arange(width)
    for name, value in fields.items():
        rows[name] = value
    backend.write(state.rows, rows)
    pool = ops.FinishedBeams(
        backend.zeros((width, 4), ops.FINISHED_BEAM), backend.zeros((width, 4, ROOM), np.uint32)
    )
    return state, pool


def pick(
    backend: Any, logits: Array, mask: Array, state: ops.TextDecoderState, pool: ops.FinishedBeams
) -> Array:
    """One step; the rows after it."""
    beams = state.rows.shape[0]
    given, masks = (
        backend.zeros((beams,), ops.DECODE_PARAMS),
        backend.zeros((1, VOCABULARY), np.uint32),
    )
    scores = backend.zeros(logits.shape)
    for slot, array in ((given, rules(False, 3).repeat(beams)), (masks, mask), (scores, logits)):
        backend.write(slot, array)
    backend.record(lambda: backend.beam_search_step(scores, masks, given, state, pool, beams)).run()
    rows: Array = backend.read(state.rows)
    return rows


@pytest.fixture(params=["numpy", pytest.param("gpu", marks=pytest.mark.gpu)])
def backend(request: pytest.FixtureRequest) -> Any:
    return Reference() if request.param == "numpy" else request.getfixturevalue("gpu")


NO_MASK = np.zeros(VOCABULARY, np.uint32)


def test_where_nothing_may_follow_beams_end_for_nothing(backend: Any) -> None:
    state, pool = ready(backend, 2, sum_logprob=(-3.0, -2.0))
    mask = np.full(VOCABULARY, ops.SUPPRESS, np.uint32)
    rows = pick(backend, np.zeros((2, VOCABULARY), np.float32), mask, state, pool)
    assert (rows["done"] == ops.STOP_END).all() and (rows["sum_logprob"] <= ops.NEG_INF).all()
    ended = backend.read(pool.rows)[0]
    assert list(ended["filled"]) == [1, 1, 0, 0]
    assert list(ended["sum_logprob"][:2]) == [-2.0, -3.0]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_stops_the_group(backend: Any, bad: float) -> None:
    state, pool = ready(backend, 3)
    logits = np.zeros((3, VOCABULARY), np.float32)
    logits[1, 9] = bad
    rows = pick(backend, logits, NO_MASK, state, pool)
    assert (rows["done"] == ops.STOP_NONFINITE).all() and (rows["count"] == 1).all()


def test_a_beam_that_is_done_offers_nothing_and_gives_its_place(backend: Any) -> None:
    state, pool = ready(backend, 2, done=(ops.STOP_REPEAT, 0), sum_logprob=(0, -1))
    logits = np.zeros((2, VOCABULARY), np.float32)
    logits[0], logits[1, [2, 4]] = np.nan, (6, 7)
    rows = pick(backend, logits, NO_MASK, state, pool)
    assert list(rows["token"]) == [4, 2] and not rows["done"].any()
    assert (rows["sum_logprob"] < -1).all()


def test_a_beam_that_repeats_itself_stops_alone(backend: Any) -> None:
    state, pool = ready(backend, 2, token=(3, 4), repeats=2)
    logits = np.zeros((2, VOCABULARY), np.float32)
    logits[0, 3], logits[1, 1] = 9, 8
    rows = pick(backend, logits, NO_MASK, state, pool)
    assert list(rows["token"]) == [3, 1] and list(rows["done"]) == [ops.STOP_REPEAT, 0]


def test_among_equals_the_lower_beam_comes_first_then_the_lower_id(backend: Any) -> None:
    state, pool = ready(backend, 3)
    logits = np.zeros((3, VOCABULARY), np.float32)
    rows = pick(backend, logits, NO_MASK, state, pool)
    assert list(rows["token"]) == [0, 1, 2]
    assert list(backend.read(state.tokens)[:, 1]) == [0, 1, 2]
