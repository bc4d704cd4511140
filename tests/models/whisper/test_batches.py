"""Whisper's sequences beside any others, at any time, are as each alone; goldens in such company.

Tokens are equal; where a greedy one differs, the two must be a near tie, and the run says how often
that was.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oscine.engine.sequence import Caller, EncoderInput, Priority, Sequence
from oscine.models.whisper.executors import DecodingExecutor
from oscine.models.whisper.network import tokenizer_of
from oscine.models.whisper.runner import WhisperRunner
from oscine.models.whisper.sequences import (
    AlignmentSequence,
    DecodingRequest,
    DecodingSequence,
    Hypothesis,
    LanguageSequence,
)
from oscine.models.whisper.tokens import SpecialTokens, resolve_special_tokens
from oscine.models.whisper.weights import load_weights
from oscine.ops.reference import Reference
from tests.engine.by_hand import ByHand, play

from .golden import results

GOLDENS = Path(__file__).resolve().parents[2] / "goldens"
TIE = 1e-3  # of log-probability: as much as two sizes of a batch may differ by
WINDOWS, FINISHED_BEAM = 4, 60
PINNED = 8


@dataclass(repr=False)
class World:
    """A golden checkpoint on a backend: an engine for all requests, and the requests."""

    case: str
    backend: Any
    fixed_rows: int | None = None
    ties: Counter[str] = field(default_factory=Counter)
    known: dict[int, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder = GOLDENS / self.case
        self.meta = json.loads((self.folder / "golden.json").read_text(encoding="utf-8"))
        with np.load(self.folder / "golden.npz") as arrays:
            self.golden = dict(arrays)
        mel = np.ascontiguousarray(self.golden["mel"].T, np.float32)
        self.windows = [EncoderInput(np.roll(mel, 40 * at, axis=0)) for at in range(WINDOWS)]
        self.weights = load_weights(self.folder)
        self.shared, self.quiet = self.engine(), self.engine()
        self.asked = list(self.pool())

    def engine(self) -> ByHand:
        engine = ByHand(WhisperRunner(self.weights, self.backend))
        if self.fixed_rows is not None:
            engine.fix_rows(self.fixed_rows)
        return engine

    @cached_property
    def tokens(self) -> SpecialTokens:
        tokenizer = tokenizer_of(self.weights, offline=True)
        assert tokenizer is not None
        return resolve_special_tokens(tokenizer, self.weights.config)

    def request(self, prompt: Any, **options: Any) -> DecodingRequest:
        tokens, meta = self.tokens, self.meta
        usual: dict[str, Any] = {
            "sot_index": 0,
            "suppress_tokens": tuple(meta["suppress_tokens"]),
            "begin_suppress_tokens": tuple(meta["begin_suppress_tokens"]),
            "eot": tokens.eot,
            "timestamp_begin": tokens.timestamp_begin,
            "no_timestamps": tokens.no_timestamps,
            "no_speech": tokens.no_speech,
            "timestamps": False,
            "max_initial_timestamp_index": meta["max_initial_timestamp_index"],
            "max_new_tokens": meta["max_new_tokens"],
        }
        return DecodingRequest(prompt=tuple(int(id) for id in prompt), **(usual | options))

    def pool(self) -> Iterator[Callable[[], Sequence[Any]]]:
        """Requests of all kinds, with different options."""
        rng = np.random.default_rng(13)
        for number in range(FINISHED_BEAM):
            audio = self.windows[rng.integers(WINDOWS)]
            if number % 6 == 4:
                prompt = (*self.meta["sot_sequence"], *rng.integers(3, 200, rng.integers(1, 9)))
                forced = tuple(map(int, prompt))
                yield lambda a=audio, p=forced: AlignmentSequence(a, p, self.tokens.eot, 40)  # type: ignore[misc]
            elif number % 12 == 5 and self.tokens.multilingual:
                yield lambda a=audio: LanguageSequence(a, self.tokens)  # type: ignore[misc]
            else:
                request = self.drawn(rng)
                yield lambda a=audio, r=request: DecodingSequence(a, r)  # type: ignore[misc]

    def drawn(self, rng: np.random.Generator) -> DecodingRequest:
        """A request of any options."""
        tokens, timestamps = self.tokens, bool(rng.integers(2))
        language = str(rng.choice(list(tokens.languages) or ["en"]))
        task = str(rng.choice(["transcribe", "translate"]))
        start = tokens.sot_sequence(language, task, timestamps)
        before = rng.integers(3, 200, rng.choice([0, 0, 1, 7]))
        sot = len(before) + 1 if len(before) else 0
        prompt = (tokens.sot_prev, *before, *start) if sot else start
        beams, warm = int(rng.choice([1, 1, 1, 2, 3])), bool(rng.integers(2))
        suppress = tuple(self.meta["suppress_tokens"])
        lists = [suppress, (*suppress, 70, 80), tuple(sorted(tokens.always_suppressed()))]
        return self.request(
            prompt,
            sot_index=sot,
            suppress_tokens=(*lists[rng.integers(3)], *[tokens.eot] * int(rng.integers(2))),
            begin_suppress_tokens=((), tuple(self.meta["begin_suppress_tokens"]))[rng.integers(2)],
            timestamps=timestamps,
            max_initial_timestamp_index=(None, 9, 22)[rng.integers(3)],
            max_new_tokens=int(rng.choice([1, 5, 16, 17, 30])),
            temperature=float(rng.choice([0.3, 1.0])) if warm else 0.0,
            best_of=int(rng.choice([1, 2, 3])) if warm else 1,
            beam_size=1 if warm else beams,
            max_candidates=1 if warm else beams + int(rng.integers(2)),
            repetition_penalty=float(rng.choice([1.0, 1.0, 1.3])),
            no_repeat_ngram_size=int(rng.choice([0, 0, 2])),
            stop_loops=bool(rng.integers(2)) and (warm or beams == 1),
            seed=int(rng.integers(2**32)),
        )

    def alone(self, number: int) -> Any:
        """The result of a request of the pool that runs alone."""
        if number not in self.known:
            (self.known[number],) = results(self.quiet, self.asked[number]())
        return self.known[number]

    def check(self, number: int, sequence: Sequence[Any]) -> None:
        """Check that a request's result is the one that it has alone."""
        found, expected = sequence.result(0), self.alone(number)
        self.ties["results"] += 1
        if self.fixed_rows is not None:
            assert_same(found, expected)
        elif isinstance(sequence, LanguageSequence):
            assert found == pytest.approx(expected, abs=1e-4)
        elif isinstance(sequence, AlignmentSequence):
            np.testing.assert_allclose(found.weights, expected.weights, atol=1e-5)
            np.testing.assert_allclose(found.probabilities, expected.probabilities, atol=1e-5)
        else:
            assert isinstance(sequence, DecodingSequence)
            assert len(found) == len(expected)
            for ours, theirs in zip(found, expected, strict=True):
                self.check_row(sequence, ours, theirs)

    def check_row(
        self, sequence: DecodingSequence, found: Hypothesis, expected: Hypothesis
    ) -> None:
        if found.tokens != expected.tokens:
            margin = self.margin(sequence, found.tokens, expected.tokens)
            assert margin < TIE, f"{found.tokens} is not {expected.tokens}; margin {margin}"
            self.ties["near ties"] += 1
            return
        assert found.finish_reason == expected.finish_reason
        assert found.sum_logprob == pytest.approx(expected.sum_logprob, abs=1e-3)
        assert found.no_speech_prob == pytest.approx(expected.no_speech_prob, rel=1e-3, abs=1e-9)

    def margin(
        self, sequence: DecodingSequence, found: tuple[int, ...], expected: tuple[int, ...]
    ) -> float:
        """How far apart the first two tokens are that differ; of a greedy row without penalties."""
        request = sequence.request
        if request.temperature or request.beam_size > 1 or request.has_penalties:
            return math.inf
        ours, theirs = (*found, request.eot), (*expected, request.eot)
        at = next(at for at, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b)
        pair = {ours[at], theirs[at]}
        vocabulary = range(self.weights.config.n_vocab)
        both = replace(
            request,
            prompt=(*request.prompt, *found[:at]),
            suppress_tokens=tuple(id for id in vocabulary if id not in pair),
            begin_suppress_tokens=(),
            timestamps=False,
            max_new_tokens=1,
        )
        ((row,),) = results(self.quiet, DecodingSequence(sequence.audio, both))
        share = math.exp(row.sum_logprob)
        return abs(math.log(share / max(1 - share, 1e-30)))

    def check_flat(self) -> None:
        """Nothing of a sequence is left behind."""
        engine = self.shared
        assert engine._slots.in_use == engine._cache.in_use == 0
        assert engine.running == engine.waiting == 0


def assert_same(found: Any, expected: Any) -> None:
    """To the last bit."""
    if hasattr(found, "weights"):
        np.testing.assert_array_equal(found.weights, expected.weights)
        np.testing.assert_array_equal(found.probabilities, expected.probabilities)
    elif isinstance(found, np.ndarray):
        np.testing.assert_array_equal(found, expected)
    else:
        assert found == expected


@pytest.fixture(scope="module")
def worlds() -> Iterator[dict[Any, World]]:
    made: dict[Any, World] = {}
    yield made
    for (case, name, fixed_rows), world in made.items():
        print(f"\n{case}, {name}, fixed_rows {fixed_rows}: {dict(world.ties)}")


@pytest.fixture(params=["whisper_multi", "whisper_en"])
def case(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def world_of(
    worlds: dict[Any, World], case: str, backend: Any, fixed_rows: int | None = None
) -> World:
    key = case, backend.name, fixed_rows
    if key not in worlds:
        worlds[key] = World(case, backend, fixed_rows)
    return worlds[key]


@st.composite
def arrivals(draw: st.DrawFn, most: int) -> list[tuple[int, int, int]]:
    """When each sequence is submitted, its number in the pool, its caller."""
    turn = st.integers(0, 12)
    found = [
        (draw(turn), draw(st.integers(0, FINISHED_BEAM - 1)), draw(st.integers(0, 2)))
        for _ in range(draw(st.integers(1, most)))
    ]
    return sorted(found, key=lambda one: one[0])


def play_out(
    world: World, plan: list[tuple[int, int, int]], victims: dict[int, int], steps_per_poll: int
) -> None:
    """Submit at their turns, cancel the victims at theirs; all others are as they are alone."""
    callers = [Caller(Priority(number)) for number in range(3)]
    sequences = [world.asked[number]() for _, number, _ in plan]
    for sequence, (_, _, caller) in zip(sequences, plan, strict=True):
        sequence.caller = callers[caller]
    for _, number, _ in plan:
        world.alone(number)
    gone = {turn: sequences[at % len(sequences)] for turn, at in victims.items()}
    with patch.object(DecodingExecutor, "steps_per_poll", steps_per_poll):
        arriving = [(turn, each) for (turn, _, _), each in zip(plan, sequences, strict=True)]
        play(world.shared, arriving, gone)
    for sequence, (_, number, _) in zip(sequences, plan, strict=True):
        assert sequence.done()
        if not any(sequence is one for one in gone.values()):
            world.check(number, sequence)
    world.check_flat()


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    plan=arrivals(14),
    victims=st.dictionaries(st.integers(0, 20), st.integers(0, 99), max_size=3),
    steps_per_poll=st.integers(1, 20),
    slots=st.integers(3, 16),
    rest=st.booleans(),
)
def test_a_result_does_not_depend_on_neighbours(
    worlds: dict[Any, World],
    case: str,
    plan: list[tuple[int, int, int]],
    victims: dict[int, int],
    steps_per_poll: int,
    slots: int,
    rest: bool,
) -> None:
    world = world_of(worlds, case, Reference())
    world.shared.max_slots = slots
    if rest:  # memory grows again
        world.shared.release_idle_memory()
    play_out(world, plan, victims, steps_per_poll)
    assert not world.ties["near ties"]


def some_arrivals(seed: int, count: int) -> list[tuple[int, int, int]]:
    """Like `arrivals`, of one number, and the same in every run: a software GPU is slow."""
    rng = np.random.default_rng(seed)
    rows = [[rng.integers(most) for most in (5, FINISHED_BEAM, 3)] for _ in range(count)]
    return sorted((int(turn), int(number), int(caller)) for turn, number, caller in rows)


@pytest.mark.gpu
def test_nor_on_a_gpu(worlds: dict[Any, World], case: str, gpu: Any) -> None:
    world = world_of(worlds, case, gpu)
    for seed, steps_per_poll in enumerate((16, 3)):
        play_out(world, some_arrivals(seed, 8), {2: seed}, steps_per_poll)


@pytest.mark.gpu
def test_with_one_bucket_a_gpu_says_the_same_to_the_last_bit(
    worlds: dict[Any, World], case: str, gpu: Any
) -> None:
    world = world_of(worlds, case, gpu, PINNED)
    world.shared.max_slots = PINNED
    for seed, steps_per_poll in enumerate((16, 5)):
        play_out(world, some_arrivals(seed, 8), {2: seed}, steps_per_poll)


@pytest.mark.parametrize("name", ["numpy", pytest.param("gpu", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("seed", range(2))
def test_goldens_hold_in_mixed_batches(
    worlds: dict[Any, World], case: str, request: pytest.FixtureRequest, name: str, seed: int
) -> None:
    backend = Reference() if name == "numpy" else request.getfixturevalue("gpu")
    world = world_of(worlds, case, backend)
    meta, golden, window = world.meta, world.golden, world.windows[0]
    plain = world.request(golden["greedy_nots_prompt"])
    beams, patience = meta["own_beam"]["beam_size"], meta["own_beam"]["patience"]
    text = golden["greedy_nots_tokens"].tolist()
    frames = meta["own_align"]["num_frames"] // 2
    asked: dict[str, Sequence[Any]] = {
        "nots": DecodingSequence(window, plain),
        "ts": DecodingSequence(window, world.request(golden["greedy_ts_prompt"], timestamps=True)),
        "beams": DecodingSequence(
            window, replace(plain, beam_size=beams, max_candidates=round(beams * patience))
        ),
        "align": AlignmentSequence(window, (*plain.prompt, *text, plain.eot), plain.eot, frames),
    }
    if world.tokens.multilingual:
        asked["detect"] = LanguageSequence(window, world.tokens)
    rng = np.random.default_rng(seed)
    others = [world.asked[number]() for number in rng.integers(0, FINISHED_BEAM, 9)]
    arriving = [(int(turn), each) for turn, each in zip(rng.integers(0, 5, 9), others, strict=True)]
    arriving += [(int(rng.integers(0, 5)), each) for each in asked.values()]
    world.shared.max_slots = 16
    play(world.shared, arriving)
    for key in ("nots", "ts"):
        (row,) = asked[key].result(0)
        assert list(row.tokens) == golden[f"greedy_{key}_tokens"].tolist()
        assert row.sum_logprob == pytest.approx(meta[f"greedy_{key}"]["sum_logprob"], abs=0.02)
    row = max(asked["beams"].result(0), key=lambda row: row.sum_logprob / max(1, len(row.tokens)))
    assert list(row.tokens) == golden["own_beam_tokens"].tolist()
    assert row.sum_logprob == pytest.approx(meta["own_beam"]["sum_logprob"], abs=0.02)
    start = len(plain.prompt) - 1
    shares = asked["align"].result(0).probabilities[start : start + len(text)]
    assert shares == pytest.approx(golden["own_align_prob"], abs=1e-3)
    if "detect" in asked:
        shares = dict(zip(world.tokens.languages, asked["detect"].result(0), strict=True))
        assert shares == pytest.approx(meta["language_probs"], abs=2e-3)
    world.check_flat()
