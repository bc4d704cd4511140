"""Chunks of any callers in the batches of one engine: each says what it says alone."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oscine
from oscine.audio.io import decode as decode_audio
from oscine.engine.scheduler import Engine
from oscine.engine.sequence import Caller, EncoderInput, Priority
from oscine.errors import DeviceMemoryError, NonFiniteError
from oscine.models.parakeet.context_graph_pool import ContextGraphPool, find_free
from oscine.models.parakeet.executors import TransducerExecutor
from oscine.models.parakeet.hotwords import ContextGraph, build_context_graph
from oscine.models.parakeet.pipeline import Parakeet
from oscine.models.parakeet.runner import ParakeetRunner
from oscine.models.parakeet.sequences import ENCODED, Chunk
from oscine.models.parakeet.weights import ParakeetWeights, load_weights
from oscine.ops.reference import Reference

from .test_decode import decoded, engine_of, naive, network, sound, trace_of

GOLDENS = Path(__file__).resolve().parents[2] / "goldens"


class ByHand(Engine[ParakeetRunner]):
    """Turns are taken when the test says so."""

    def __init__(self, weights: ParakeetWeights, backend: Any) -> None:
        super().__init__(ParakeetRunner(weights, backend))
        self._device_thread = self  # type: ignore[assignment]

    is_current = is_shared = False

    def wake(self, engine: object) -> None:
        """No thread."""

    def until_idle(self) -> None:
        for _ in range(10_000):
            if not self.has_work:
                return
            self.run_iteration()
        raise AssertionError("the engine does not come to an end")


@dataclass(frozen=True)
class Arrival:
    """A chunk, the turn at which it is submitted, and the turn at which its caller gives it up."""

    encoded: Any
    tree: ContextGraph | None
    turn: int
    given_up: int | None = None
    priority: Priority = Priority.INTERACTIVE


def play(engine: ByHand, arrivals: list[Arrival]) -> list[Chunk]:
    """Submit, turn and cancel as the arrivals say; their chunks, all of which have ended."""
    chunks = [
        Chunk(EncoderInput(each.encoded, ENCODED), context_graph=each.tree) for each in arrivals
    ]
    last = max(max(each.turn, each.given_up or 0) for each in arrivals)
    for turn in range(last + 1):
        for each, chunk in zip(arrivals, chunks, strict=True):
            if each.turn == turn:
                engine.submit(chunk, Caller(each.priority))
            if each.given_up == turn:
                chunk.cancel()
        engine.run_iteration()
    engine.until_idle()
    check_flat(engine)
    return chunks


def check_flat(engine: ByHand) -> None:
    """Nothing of a chunk is left behind, and every row is done."""
    assert engine.running == engine.waiting == engine._slots.in_use == engine._cache.in_use == 0
    executor = engine.runner.executor(None)
    assert isinstance(executor, TransducerExecutor)
    assert not executor.progress
    assert executor.backend.read(executor.rows)["done"].all()


@st.composite
def problems(draw: st.DrawFn) -> tuple[ParakeetWeights, list[Arrival]]:
    """A network, and chunks without a choice that is close; some have more labels than room."""
    seed = draw(st.integers(0, 999))
    durations = draw(st.sampled_from([(), (0, 1, 2, 3, 4), (1, 2, 4)]))
    blank, most = draw(st.sampled_from([(0, 3), (1, 3), (4, 3), (-50, 10)]))
    weights = network(seed, durations, blank=blank, most=most, layers=draw(st.integers(1, 2)))
    phrase = st.tuples(st.lists(st.integers(0, 5), min_size=1, max_size=4), st.floats(-2, 4))
    trees = [None, *(build_context_graph(draw(st.lists(phrase, max_size=40)), 6) for _ in range(3))]
    lengths = draw(st.lists(st.integers(1, 60), min_size=1, max_size=9))
    arrivals = []
    for encoded in sound(seed, *lengths):
        turn = draw(st.integers(0, 4))
        given_up = draw(st.none() | st.none() | st.integers(turn, turn + 3))
        tree, priority = draw(st.sampled_from(trees)), draw(st.sampled_from(list(Priority)))
        if naive(weights, encoded, tree)[1] > 1e-4:
            arrivals.append(Arrival(encoded, tree, turn, given_up, priority))
    return weights, arrivals


@given(problems())
@settings(max_examples=40, deadline=None)
def test_a_chunk_says_what_the_definition_says_whatever_runs_beside_it(problem: Any) -> None:
    weights, arrivals = problem
    if arrivals:
        check_play(weights, Reference(), arrivals)


def check_play(weights: ParakeetWeights, backend: Any, arrivals: list[Arrival]) -> None:
    """Every chunk that was not given up says what it must, also after others had its slot."""
    engine = ByHand(weights, backend)
    for _ in range(2):
        for each, chunk in zip(arrivals, play(engine, arrivals), strict=True):
            if chunk.exception() is None:
                expected = naive(weights, each.encoded, each.tree)[0]
                assert trace_of(chunk.result()) == expected
            else:
                assert each.given_up is not None


@pytest.mark.gpu
@pytest.mark.parametrize("durations", [(), (0, 1, 2, 3, 4)], ids=["rnnt", "tdt"])
def test_a_gpu_mixes_chunks_and_says_of_each_what_it_says_alone(
    gpu: Any, durations: tuple[int, ...]
) -> None:
    weights = network(3, durations, blank=2)
    trees = [
        None,
        build_context_graph([((1, 2, 3), 1.5), ((2, 2), 2.0), ((3,), -1.0)], 6),
        build_context_graph([((token, 1, 2, token), 2.5) for token in range(6)] * 4, 6),
    ]
    lengths = [17, 40, 9, 130, 21, 1, 33, 64, 90]  # encoder slots grow while rows run
    arrivals = [
        Arrival(encoded, trees[number % 3], number // 2, 6 if number == 7 else None)
        for number, encoded in enumerate(sound(3, *lengths))
    ]
    clear = [each for each in arrivals if naive(weights, each.encoded, each.tree)[1] > 1e-4]
    assert len(clear) > 6
    check_play(weights, gpu, clear)


@pytest.mark.parametrize("kind", ["NumPy", pytest.param("gpu", marks=pytest.mark.gpu)])
def test_a_row_continues_when_its_room_is_read_out(
    request: pytest.FixtureRequest, kind: str
) -> None:
    """Ten labels a frame fill the slot repeatedly, while neighbours run and encoder slots grow."""
    backend = Reference() if kind == "NumPy" else request.getfixturevalue("gpu")
    weights = network(2, most=10, blank=-50)
    arrivals = [
        Arrival(encoded, None, turn)
        for turn, encoded in zip((0, 0, 3, 9), sound(2, 40, 9, 150, 20), strict=True)
    ]
    chunks = play(ByHand(weights, backend), arrivals)
    for each, chunk in zip(arrivals, chunks, strict=True):
        assert len(chunk.result().decisions) == 10 * len(each.encoded)
        assert trace_of(chunk.result()) == naive(weights, each.encoded)[0]


def test_a_logit_that_is_no_number_ends_one_chunk_alone() -> None:
    weights, encoded = network(1, blank=1), sound(1, 30, 30, 30)
    encoded[1][13, 0] = np.nan
    chunks = play(ByHand(weights, Reference()), [Arrival(each, None, 0) for each in encoded])
    assert isinstance(chunks[1].exception(), NonFiniteError)
    for number in (0, 2):
        assert trace_of(chunks[number].result()) == naive(weights, encoded[number])[0]


class Small(Reference):
    """No buffer of a pool of more than `encoder_slots` encoder slots can be had."""

    encoder_slots = 2

    def zeros(self, shape: tuple[int, ...], dtype: Any = np.float32) -> Any:
        if len(shape) == 3 and shape[2] == 12 and shape[0] > self.encoder_slots:
            raise DeviceMemoryError("a small device", "no room")
        return super().zeros(shape, dtype)


def test_where_memory_ends_fewer_run_side_by_side(caplog: pytest.LogCaptureFixture) -> None:
    weights, encoded = network(5, blank=1), sound(5, *[30] * 7)
    engine = ByHand(weights, Small())
    chunks = play(engine, [Arrival(each, None, 0) for each in encoded])
    for each, chunk in zip(encoded, chunks, strict=True):
        assert trace_of(chunk.result()) == naive(weights, each)[0]
    assert engine.occupancy.max_sequences == 2
    assert "no room" in caplog.text


# -- trees ----------------------------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(1, 90), st.integers(0, 30)), min_size=1, max_size=9
    )
)
@settings(deadline=None)
def test_trees_share_tables_that_grow(wanted: list[tuple[int, int, int]]) -> None:
    """Graphs that are in use stay where they are, whatever is placed after them."""
    graphs, used = ContextGraphPool(Reference()), {}
    for seed, count, release in wanted:
        rng = np.random.default_rng(seed)
        graph = build_context_graph(
            [(rng.integers(0, 6, 5).tolist(), 1.0) for _ in range(count)], 6
        )
        used[graph] = graphs.add(graph, list(used))
        assert graphs.add(graph, list(used)) == used[graph]
        for each, root in used.items():
            at = graphs.regions[each]
            placed = each.rebased(root, at.arcs[0])
            assert at.nodes[0] == root > 0
            assert np.array_equal(graphs.boost.nodes[slice(*at.nodes)], placed.nodes)
            assert np.array_equal(graphs.boost.arcs[slice(*at.arcs)], placed.arcs)
        if release < len(used):
            used.pop(list(used)[release])
    assert graphs.boost.nodes[0].tolist() == (0, 0, 0, 0.0)


def test_the_first_gap_is_taken() -> None:
    assert find_free([], 4, 1) == (1, 5)
    assert find_free([(5, 9), (1, 3)], 2, 1) == (3, 5)
    assert find_free([(5, 9), (1, 3)], 3, 1) == (9, 12)
    assert find_free([(2, 4)], 0, 0) == (0, 0)


# -- goldens --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "kind"),
    [
        ("parakeet_tdt", "NumPy"),
        ("parakeet_rnnt", "NumPy"),
        ("parakeet_ctc", "NumPy"),
        pytest.param("parakeet_rnnt", "gpu", marks=pytest.mark.gpu),
    ],
)
def test_goldens_in_mixed_batches(
    request: pytest.FixtureRequest, case: str, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the mel on, beside spans and parts of it and context_graph, in any order."""
    backend: Any = Reference() if kind == "NumPy" else request.getfixturevalue("gpu")
    weights = load_weights(GOLDENS / case)
    with np.load(GOLDENS / case / "golden.npz") as arrays:
        mel, frames = arrays["mel"], len(arrays["enc_out"])
        tokens = arrays["ctc_tokens" if case == "parakeet_ctc" else "tokens"].tolist()
    engine, tree = engine_of(weights, backend), None
    if engine.runner.supports_hotwords:
        tree = build_context_graph([((3, 4), 2.0), ((5,), 9.0)], weights.config.vocab_size)
    whole = EncoderInput(mel)
    # A GPU compiles kernels for each length of mels, so it is given one.
    audios = [whole if kind == "gpu" else EncoderInput(mel[: len(mel) // n]) for n in (1, 2, 3)]
    chunks = [
        Chunk(whole, context_graph=tree),
        Chunk(audios[1]),
        Chunk(whole),
        Chunk(whole, (frames // 3, frames), tree),
        Chunk(audios[2], context_graph=tree),
        Chunk(whole, return_state=True),
        Chunk(whole, (0, frames // 2)),
    ]
    found = decoded(engine, chunks)
    for number in (2, 5):
        assert [e.token for e in found[number].emissions] == tokens
    assert (found[5].decoder_state is not None) == engine.runner.supports_hotwords
    if engine.runner.supports_hotwords:
        assert engine.occupancy.max_sequences > 1
    ties = 0
    for chunk, one in zip(chunks, found, strict=True):
        (alone,) = decoded(engine, [Chunk(chunk.audio, chunk.span, chunk.context_graph)])
        ties += trace_of(alone) != trace_of(one) or len(alone.emissions) != len(one.emissions)
    with capsys.disabled():
        print(f"\n{case} on {kind}: {ties} of {len(found)} chunks by the near-tie rule")
    assert ties == 0


@pytest.fixture(scope="module")
def tdt() -> Parakeet:
    model = oscine.load(GOLDENS / "parakeet_tdt", device="cpu")
    assert isinstance(model, Parakeet)
    return model


def test_eight_threads_share_one_model(tdt: Parakeet) -> None:
    """Each transcribes another recording, some with hotwords, and gets what it gets alone."""
    parts = [
        decode_audio(GOLDENS / "audio" / f"{name}{more}.wav").samples
        for name in ("parakeet_tdt", "parakeet_rnnt")
        for more in ("", "_2")
    ]
    recordings = [np.tile(np.roll(parts[n % 4], 4000 * n), 1 + n % 3) for n in range(8)]
    words = [name[1:] for name in tdt.tokenizer.pieces if len(name) > 2]
    options: list[dict[str, Any]] = [
        {
            "vad_filter": False,
            "word_timestamps": True,
            "hotwords": f"{words[n]}:9" if n % 3 else None,
        }
        for n in range(8)
    ]
    alone = [tdt.transcribe(r, **o) for r, o in zip(recordings, options, strict=True)]
    results: list[Any] = [None] * 8
    start = threading.Barrier(8)
    before = tdt.engine.occupancy.multi_caller_bursts

    def transcribe(number: int) -> None:
        start.wait()
        for _ in range(4):
            results[number] = tdt.transcribe(recordings[number], **options[number])

    threads = [threading.Thread(target=transcribe, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one, expected in zip(results, alone, strict=True):
        assert one.text == expected.text
        assert [s.tokens for s in one.segments] == [s.tokens for s in expected.segments]
        assert [s.start for s in one.segments] == [s.start for s in expected.segments]
        assert set(one.timings) == set(expected.timings)
    assert tdt.engine.occupancy.max_sequences > 1
    assert tdt.engine.occupancy.multi_caller_bursts > before


@pytest.mark.parametrize("failing", range(1, 9))
def test_what_memory_ended_under_is_made_again(failing: int) -> None:
    """Each allocation and each plan of a chunk fails once; the next chunk does not notice."""

    def frames(model: Any, seconds: int) -> Any:
        features = np.random.default_rng(seconds).standard_normal((100 * seconds, 128))
        mel = features[:, : model.runner.config.n_mels].astype(np.float32)
        return model.engine.call(lambda runner: runner.encoded(EncoderInput(mel)).copy())

    expected = frames(oscine.load(GOLDENS / "parakeet_tdt", device="cpu"), 8)
    model: Any = oscine.load(GOLDENS / "parakeet_tdt", device="cpu")
    backend, count = model.runner.backend, 0

    def once(make: Any) -> Any:
        def made(*given: Any, **how: Any) -> Any:
            nonlocal count
            count += 1
            if count == failing:
                raise DeviceMemoryError(backend.name, "a test")
            return make(*given, **how)

        return made

    backend.zeros, backend.record = once(backend.zeros), once(backend.record)
    with contextlib.suppress(DeviceMemoryError):
        frames(model, 8)
    assert count >= failing
    assert np.array_equal(frames(model, 8), expected)
