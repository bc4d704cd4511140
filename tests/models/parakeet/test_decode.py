"""The loop over frames: upstream's traces, and a definition of its own, in plain Python."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oscine import ops
from oscine.engine.scheduler import Engine
from oscine.engine.sequence import EncoderInput
from oscine.errors import DeviceMemoryError, NonFiniteError, UsageError
from oscine.models.parakeet import executors
from oscine.models.parakeet.config import ParakeetConfig
from oscine.models.parakeet.encoder import MAX_SHAPES, EncoderShape
from oscine.models.parakeet.executors import TransducerExecutor
from oscine.models.parakeet.hotwords import ContextGraph, build_context_graph
from oscine.models.parakeet.memory import Size
from oscine.models.parakeet.model import joint_logits
from oscine.models.parakeet.runner import ParakeetRunner
from oscine.models.parakeet.sequences import (
    ENCODED,
    Chunk,
    DecoderState,
    Hypothesis,
    Span,
    ctc_collapse,
)
from oscine.models.parakeet.weights import (
    EncoderWeights,
    LstmLayer,
    ParakeetWeights,
    SubsamplingLayer,
    TransducerWeights,
    load_weights,
)
from oscine.ops import TRANSDUCER_STATE, Linear, LstmState, TransducerState
from oscine.ops.reference import Reference
from oscine.ops.reference.transducer import context_graph_scores, next_graph_node

GOLDENS = Path(__file__).resolve().parents[2] / "goldens"
CASES = ("parakeet_tdt", "parakeet_rnnt")
LOGITS = 2e-3

# -- models ---------------------------------------------------------------------------------------


def golden(case: str) -> tuple[ParakeetWeights, Any, dict[str, Any]]:
    """An oracle's weights, arrays and facts."""
    facts = json.loads((GOLDENS / case / "golden.json").read_text())
    with np.load(GOLDENS / case / "golden.npz") as stored:
        return load_weights(GOLDENS / case), dict(stored), facts


def no_encoder(width: int, n_mels: int) -> EncoderWeights:
    """For tests that begin at its output: no blocks, a subsampling by 4 to nothing."""

    def nothing(*shape: int) -> Linear:
        return Linear(np.zeros(shape, np.float32), np.zeros(shape[-1], np.float32))

    halving = SubsamplingLayer(nothing(3, 3, 4), nothing(4, 4))
    project = Linear(np.zeros((width, -(-n_mels // 4) * 4), np.float32), None)
    return EncoderWeights(nothing(3, 3, 4), (halving,), project, ())


def heads_of(weights: ParakeetWeights) -> ParakeetWeights:
    """The same model without its encoder's blocks, whose heads may be too narrow for kernels."""
    config, encoder = weights.config, weights.encoder
    return replace(weights, config=replace(config, n_layers=0), encoder=replace(encoder, blocks=()))


def network(
    seed: int,
    durations: tuple[int, ...] = (),
    *,
    most: int = 3,
    blank: float = 0.5,
    layers: int = 2,
    labels: int = 6,
) -> ParakeetWeights:
    """A transducer of random weights; `blank` is added to its logit."""
    rng, width, joint = np.random.default_rng(seed), 8, 12

    def noise(*shape: int) -> Any:
        return rng.standard_normal(shape).astype(np.float32)

    table, head = noise(labels + 1, width), noise(labels + 1 + len(durations), joint)
    table[labels] = 0
    bias = noise(len(head))
    bias[labels] += blank
    cells = tuple(
        LstmLayer(Linear(noise(32, width), noise(32)), Linear(noise(32, width), None))
        for _ in range(layers)
    )
    w = TransducerWeights(
        table,
        cells,
        Linear(noise(joint, width), noise(joint)),
        Linear(noise(joint, width), noise(joint)),
        Linear(head, bias),
    )
    config = ParakeetConfig(
        n_mels=8, d_model=width, n_heads=2, n_layers=0, ff_dim=8, conv_kernel_size=9,
        subsampling_channels=4, subsampling_factor=4, xscaling=False, vocab_size=labels,
        predictor_dim=width, predictor_layers=layers, joint_dim=joint, durations=durations,
        max_symbols=most, has_ctc=False,
    )  # fmt: skip
    encoder = no_encoder(width, config.n_mels)
    return ParakeetWeights(config, encoder, w, None, Path("m"), Path("."), "made up", (), "f32")


def sound(seed: int, *lengths: int) -> list[Any]:
    """Encodings [T, d] of so many frames."""
    rng = np.random.default_rng(seed + 1)
    return [rng.standard_normal((length, 8)).astype(np.float32) for length in lengths]


def chunk(encoded: Any, span: Span | None = None, **how: Any) -> Chunk:
    """Of encodings [T, d]; of none, a span of none."""
    if not len(encoded):
        encoded, span = np.zeros((1, encoded.shape[1]), np.float32), (0, 0)
    return Chunk(EncoderInput(encoded, ENCODED), span, **how)


def engine_of(weights: ParakeetWeights, backend: Any = None) -> Engine[ParakeetRunner]:
    return Engine(ParakeetRunner(weights, backend or Reference()))


def decoded(engine: Engine[ParakeetRunner], chunks: Sequence[Chunk]) -> list[Hypothesis]:
    """What the chunks say, all submitted before the first is waited for."""
    for each in chunks:
        engine.submit(each)
    return [each.wait() for each in chunks]


def decode(
    weights: ParakeetWeights, encoded: Sequence[Any], backend: Any = None, **how: Any
) -> list[Hypothesis]:
    """What each of the encodings says, side by side."""
    return decoded(engine_of(weights, backend), [chunk(each, **how) for each in encoded])


def trace_of(found: Hypothesis) -> list[tuple[int, ...]]:
    """Frame, token, duration and frames advanced of each decision."""
    return [tuple(int(word) for word in tuple(look)[:4]) for look in found.decisions]


@contextmanager
def block_of(frames: int) -> Iterator[None]:
    """Plans recorded inside look at so many frames in a step."""
    before, executors.MAX_FRAMES_PER_ROW = executors.MAX_FRAMES_PER_ROW, frames
    try:
        yield
    finally:
        executors.MAX_FRAMES_PER_ROW = before


# -- the definition, one frame at a time ----------------------------------------------------------


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def predictor(w: TransducerWeights, token: int, state: list[Any]) -> tuple[Any, list[Any]]:
    x, after = w.embedding[token].astype(float), []
    for cell, (h, c) in zip(w.lstm, state, strict=True):
        i, f, g, o = np.split(cell.input.weight @ x + cell.input.bias + cell.hidden.weight @ h, 4)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        x = sigmoid(o) * np.tanh(c)
        after.append((x, c))
    return w.joint_pred.weight @ x + w.joint_pred.bias, after


def naive(weights: ParakeetWeights, encoded: Any, tree: ContextGraph | None = None) -> Any:
    """Greedy decoding as specified, and the smallest margin between two choices."""
    w, config = weights.transducer, weights.config
    assert w is not None
    state = [(np.zeros(8), np.zeros(8)) for _ in w.lstm]
    prediction, state = predictor(w, config.blank_id, state)
    t, m, node, trace, margin = 0, 0, 0, [], np.inf

    def best(scores: Any) -> int:
        nonlocal margin
        top = np.sort(scores)[::-1]
        margin = min(margin, top[0] - top[1]) if len(top) > 1 else margin
        return int(np.argmax(scores))

    while t < len(encoded):
        joint = np.maximum(w.joint_enc.weight @ encoded[t] + w.joint_enc.bias + prediction, 0)
        logits = w.joint_out.weight @ joint + w.joint_out.bias
        k = best(logits[: config.vocab_size + 1])
        if tree is not None and k != config.blank_id:
            boost = ops.ContextGraphTensors(tree.nodes, tree.arcs)
            labels = config.vocab_size
            k = best(logits[:labels] + context_graph_scores(boost, node, labels))
            node = next_graph_node(boost, node, k)
        duration = 1 if k == config.blank_id else 0
        if config.durations:
            duration = config.durations[best(logits[config.vocab_size + 1 :])]
        moved = duration
        if k == config.blank_id:
            moved = max(1, duration)
        else:
            prediction, state = predictor(w, k, state)
            m += 1
            if duration == 0 and m >= config.max_symbols:
                moved = 1
        trace.append((t, k, duration if config.durations else 0, moved))
        t += moved
        m = 0 if moved else m
    return trace, margin


@st.composite
def problems(draw: st.DrawFn) -> tuple[ParakeetWeights, list[Any], ContextGraph | None]:
    """A network, some utterances, perhaps phrases: none of them with a choice that is close."""
    seed = draw(st.integers(0, 999))
    durations = draw(st.sampled_from([(), (0, 1, 2, 3, 4), (0, 2), (1, 2, 4), (0,)]))
    weights = network(
        seed, durations, most=draw(st.integers(1, 5)), blank=draw(st.sampled_from([-9, 0, 1, 4])),
        layers=draw(st.integers(1, 2)),
    )  # fmt: skip
    phrase = st.tuples(st.lists(st.integers(0, 5), min_size=1, max_size=4), st.floats(-2, 4))
    tree = None
    if draw(st.booleans()):
        tree = build_context_graph(draw(st.lists(phrase, max_size=4)), 6)
    encoded = sound(seed, *draw(st.lists(st.integers(0, 30), min_size=1, max_size=4)))
    clear = [x for x in encoded if naive(weights, x, tree)[1] > 1e-4]
    return weights, clear or sound(seed, 0), tree


@given(problems(), st.integers(1, 9))
@settings(max_examples=60, deadline=None)
def test_lines_side_by_side_say_what_the_definition_says_of_each(problem: Any, block: int) -> None:
    weights, encoded, tree = problem
    with block_of(block):
        found = decode(weights, encoded, context_graph=tree)
    assert len(found) == len(encoded)
    for one, x in zip(found, encoded, strict=True):
        assert trace_of(one) == naive(weights, x, tree)[0]


@given(problems(), st.lists(st.integers(0, 30), max_size=4))
@settings(max_examples=40, deadline=None)
def test_pieces_carried_on_say_what_the_whole_says(problem: Any, cuts: list[int]) -> None:
    weights, (encoded, *_), tree = problem
    engine, pieces = engine_of(weights), []
    decoder_state: DecoderState | None = None
    audio = chunk(encoded).audio
    (whole,) = decoded(engine, [chunk(encoded, context_graph=tree)])
    bounds = sorted({0, len(encoded), *(min(cut, len(encoded)) for cut in cuts)})
    for start, stop in pairwise(bounds):
        (piece,) = decoded(
            engine, [Chunk(audio, (start, stop), tree, decoder_state, return_state=True)]
        )
        decoder_state = piece.decoder_state
        pieces += [(frame + start, *rest) for frame, *rest in trace_of(piece)]
    assert pieces == trace_of(whole)


@pytest.mark.gpu
@pytest.mark.parametrize("durations", [(), (0, 1, 2, 3, 4)], ids=["rnnt", "tdt"])
@pytest.mark.parametrize("seed", [3, 4])
def test_the_gpu_says_what_numpy_says(gpu: Any, seed: int, durations: tuple[int, ...]) -> None:
    weights, encoded = network(seed, durations, blank=2), sound(seed, 40, 9, 0, 33, 1)
    tree = build_context_graph([((1, 2, 3), 1.5), ((2, 2), 2.0), ((3,), -1.0)], 6)
    for graph in (None, tree):
        ours = decode(weights, encoded, context_graph=graph)
        theirs = decode(weights, encoded, gpu, context_graph=graph)
        for a, b in zip(ours, theirs, strict=True):
            assert trace_of(a) == trace_of(b)
            assert np.allclose(a.decisions["probability"], b.decisions["probability"], atol=1e-5)


# -- upstream -------------------------------------------------------------------------------------


@pytest.fixture(params=["NumPy", pytest.param("gpu", marks=pytest.mark.gpu)])
def backend(request: pytest.FixtureRequest) -> Any:
    return Reference() if request.param == "NumPy" else request.getfixturevalue("gpu")


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("most", [None, 2])
def test_traces_are_upstreams(backend: Any, case: str, most: int | None) -> None:
    weights, arrays, _ = golden(case)
    if most is not None:
        weights = replace(weights, config=replace(weights.config, max_symbols=most))
    (found,) = decode(heads_of(weights), [arrays["enc_out"]], backend)
    wanted, durations = (
        arrays["trace" if most is None else f"own_trace_maxsym{most}"],
        weights.config.durations,
    )
    assert trace_of(found) == [
        (frame, token, durations[index] if durations else 0, moved)
        for frame, token, index, moved in wanted.tolist()
    ]
    if most is None:
        assert [emission.token for emission in found.emissions] == arrays["tokens"].tolist()
        seconds = weights.config.frame_seconds
        starts = [emission.frame * seconds for emission in found.emissions]
        ends = [(emission.frame + emission.duration) * seconds for emission in found.emissions]
        assert np.allclose(starts, arrays["token_start_s"], atol=1e-5)
        assert np.allclose(ends, arrays["token_end_s"], atol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_prediction_and_joint_networks_are_upstreams(backend: Any, case: str) -> None:
    weights, arrays, _ = golden(case)
    config, w = weights.config, ops.upload(backend, weights.transducer)
    frames = len(arrays["enc_proj"])
    halves = 1, config.predictor_layers, 2, config.predictor_dim
    memory = LstmState(
        backend.zeros(halves), backend.zeros(halves), backend.zeros((1, config.joint_dim))
    )
    track = TransducerState(backend.zeros((1,), TRANSDUCER_STATE), backend.zeros((1, 8), np.uint32))
    projected = backend.zeros((frames, config.joint_dim))
    backend.write(projected, arrays["enc_proj"])
    out = backend.zeros((frames, config.vocab_size + 1 + len(config.durations)))

    def trace() -> None:
        scores = joint_logits(backend, w, projected, memory, track, frames)
        backend.store(scores, out)

    plan, row = backend.record(trace), np.zeros(1, TRANSDUCER_STATE)
    row["length"], row["fresh"] = frames, 1
    for index, token in enumerate(arrays["pred_tokens"]):
        row["token"] = token
        backend.write(track.rows, row)
        plan.run()
        row["half"] ^= 1
        half = int(row["half"][0])
        hidden, cell = backend.read(memory.hidden), backend.read(memory.cell)
        assert np.abs(hidden[0, -1, half] - arrays["pred_lstm"][index]).max() < 1e-4
        joint = backend.read(memory.joint)[0]
        assert np.abs(joint - arrays["pred_proj"][index]).max() < 1e-4
        found = backend.read(out)[arrays["joint_frames"]]
        assert np.abs(found - arrays["joint_logits"][:, index]).max() < LOGITS
    assert np.abs(hidden[0, :, half] - arrays["pred_state_h"]).max() < 1e-4
    assert np.abs(cell[0, :, half] - arrays["pred_state_c"]).max() < 1e-4


def test_ctc_is_upstreams(backend: Any) -> None:
    weights, arrays, _ = golden("parakeet_ctc")
    (found,) = decode(weights, [arrays["enc_out"]], backend)
    assert [e.token for e in found.emissions] == arrays["ctc_tokens"].tolist()
    assert [e.frame for e in found.emissions] == arrays["ctc_start_frame"].tolist()
    assert [e.frame + e.duration for e in found.emissions] == arrays["ctc_end_frame"].tolist()
    scores = arrays["ctc_logits"]
    shares = np.exp(scores - scores.max(1, keepdims=True))
    shares = (shares / shares.sum(1, keepdims=True)).max(1)
    for e in found.emissions:
        assert abs(e.probability - shares[e.frame : e.frame + e.duration].max()) < 1e-4


@pytest.mark.parametrize(
    "case",
    [
        "parakeet_tdt",
        # On a GPU test_pipeline has these from the recording on.
        *(pytest.param(case, marks=pytest.mark.host) for case in ("parakeet_rnnt", "parakeet_ctc")),
    ],
)
def test_a_batch_from_mels_is_encoded_and_decoded(backend: Any, case: str) -> None:
    weights, arrays, _ = golden(case)
    if weights.config.d_model // weights.config.n_heads % 4 and not isinstance(backend, Reference):
        pytest.skip("the kernels of attention take heads of a multiple of four")
    engine, mel = engine_of(weights, backend), np.asarray(arrays["mel"])
    encoded = engine.runner.encoded(EncoderInput(mel))
    assert encoded.shape == arrays["enc_out"].shape
    assert np.abs(encoded - arrays["enc_out"]).max() < 1e-3
    tokens = arrays["ctc_tokens" if case == "parakeet_ctc" else "tokens"].tolist()
    whole = EncoderInput(mel)
    chunks = [Chunk(EncoderInput(mel[:100])), Chunk(whole), Chunk(whole, (0, len(encoded)))]
    _, *found = decoded(engine, chunks)
    for each in found:
        assert [e.token for e in each.emissions] == tokens


# -- phrases --------------------------------------------------------------------------------------

phrases_strategy = st.lists(
    st.tuples(
        st.lists(st.integers(0, 3), min_size=1, max_size=5), st.sampled_from([0.5, 1.0, 2.0])
    ),
    min_size=1,
    max_size=6,
)


@given(phrases_strategy, st.lists(st.integers(0, 3), max_size=12))
def test_the_tree_stands_at_the_longest_beginning_that_was_just_said(
    phrases: Any, said: list[int]
) -> None:
    tree = build_context_graph(phrases, 4)
    boost, node = ops.ContextGraphTensors(tree.nodes, tree.arcs), 0
    beginnings = {tuple(ids[:n]) for ids, _ in phrases for n in range(len(ids) + 1)}
    whole = {tuple(ids) for ids, _ in phrases}
    depth = {(): 0}
    for at, token in enumerate(said):
        earned = context_graph_scores(boost, node, 4)
        node = next_graph_node(boost, node, token)
        history = tuple(said[: at + 1])
        longest = next(history[n:] for n in range(at + 2) if history[n:] in beginnings)
        depth.setdefault(longest, node)
        assert depth[longest] == node  # one node for one beginning, whatever came before
        assert (node == 0) == (longest == ())
        # What was earned is returned where a beginning comes to nothing, kept at a phrase's end.
        if history[-2:-1] and longest == () and not any(history[n:at] in whole for n in range(at)):
            assert earned[token] <= 1e-5


def test_bonuses_of_a_path() -> None:
    phrases = [((0, 1, 2), 1.0), ((0, 3), 2.0), ((1, 0), 0.5)]
    tree = build_context_graph(phrases, 4, depth_scaling=2.0)
    boost = ops.ContextGraphTensors(tree.nodes, tree.arcs)
    scores = partial(context_graph_scores, boost, labels=4)
    assert np.allclose(scores(0), [2, 0.5, 0, 0])  # shared: the higher bonus
    first = next_graph_node(boost, 0, 0)
    second, third = 2 + np.log(2), 2 + np.log(3)
    assert np.allclose(scores(first), [0, second, -2, 4 + np.log(2)])
    both = next_graph_node(boost, first, 1)  # 0 1: falls back to 1, the beginning of 1 0
    back = 0.5 - (2 + second)
    assert np.allclose(scores(both), [back + 1 + np.log(2), back, third, back - 0.5])
    assert np.allclose(scores(next_graph_node(boost, both, 2)), [2, 0.5, 0, 0])  # complete


def test_a_phrase_is_heard_where_it_was_nearly_said() -> None:
    for seed in range(40):
        weights, encoded = network(seed, (0, 1, 2), blank=1), sound(seed, 30)
        (plain,) = decode(weights, encoded)
        tokens = [e.token for e in plain.emissions]
        if len(tokens) > 3 and len(set(tokens)) > 1:
            break
    wanted = next(label for label in range(6) if label != tokens[1])
    tree = build_context_graph([((tokens[0], wanted), 40.0)], 6)
    (boosted,) = decode(weights, encoded, context_graph=tree)
    assert [e.token for e in boosted.emissions][:2] == [tokens[0], wanted]
    assert boosted.emissions[1].probability < plain.emissions[1].probability
    nothing = build_context_graph([], 6)
    assert trace_of(decode(weights, encoded, context_graph=nothing)[0]) == trace_of(plain)


@pytest.mark.parametrize(
    ("phrase", "told"),
    [(((), 1.0), "token ids"), (((6,), 1.0), "ids from 0 to 5"), (((1,), np.nan), "be finite")],
)
def test_phrases_of_nothing_are_refused(phrase: Any, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        build_context_graph([phrase], 6)


# -- edges ----------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 3), max_size=30))
def test_ctc_merges_runs_and_drops_blanks(ids: list[int]) -> None:
    frames = np.array([(token, (at % 7) / 10) for at, token in enumerate(ids)], np.float32)
    found = ctc_collapse(frames.reshape(-1, 2), 3)
    expected = []
    for at, token in enumerate(ids):
        if token != 3 and (at == 0 or ids[at - 1] != token):
            expected.append([token, at, 0])
        if token != 3:
            expected[-1][2] += 1
    assert [[e.token, e.frame, e.duration] for e in found] == expected


def test_a_logit_that_is_no_number_is_an_error(backend: Any) -> None:
    weights, encoded = network(1, blank=9), sound(1, 20, 20)
    encoded[1][13, 0] = np.nan
    with pytest.raises(NonFiniteError, match="non-finite"):
        decode(weights, encoded, backend)


def test_more_labels_than_there_is_room_for(backend: Any) -> None:
    weights, encoded = network(2, most=10, blank=-50), sound(2, 30, 3)
    found = decode(weights, encoded, backend)
    assert [len(one.decisions) for one in found] == [300, 30]
    assert len(found[0].decisions) > Size(frames=32).max_decisions
    assert trace_of(found[0]) == naive(weights, encoded[0])[0]


def test_what_is_asked_for_must_be_there() -> None:
    engine = engine_of(network(1))
    for mel in (np.zeros((10, 9)), np.zeros((0, 8)), np.zeros(8)):
        with pytest.raises(UsageError, match="a mel must be"):
            decoded(engine, [Chunk(EncoderInput(mel.astype(np.float32)))])
    with pytest.raises(UsageError, match="an encoding must be"):
        decoded(engine, [Chunk(EncoderInput(np.zeros((5, 9), np.float32), ENCODED))])
    (encoded,) = sound(1, 5)
    for span in ((0, 6), (4, 3), (-1, 2)):
        with pytest.raises(UsageError, match="are outside the audio"):
            decoded(engine, [chunk(encoded, span)])
    with pytest.raises(UsageError, match="has no ctc head"):
        ParakeetRunner(network(1), Reference(), head="ctc")


def test_a_check_may_stop_the_loop() -> None:
    engine, seen = engine_of(network(2, most=10, blank=-50)), []

    def check() -> None:
        seen.append(engine.running)
        if len(seen) == 2:
            raise KeyboardInterrupt

    slow = chunk(np.tile(sound(2, 60)[0], (500, 1)))
    engine.submit(slow)
    with pytest.raises(KeyboardInterrupt):
        slow.wait(check)
    (after,) = decoded(engine, [chunk(sound(2, 3)[0])])
    assert len(after.decisions) == 30
    assert engine.running == engine.waiting == 0


@pytest.mark.gpu
@pytest.mark.parametrize("layers", [1, 2])
def test_a_step_is_a_dispatch_a_layer_and_four_more(gpu: Any, layers: int) -> None:
    executor = ParakeetRunner(network(1, (0, 1, 2), layers=layers), gpu).executor(None)
    plan: Any = executor.step_plan(1, ())
    assert [step.kernel for step in plan.dispatches] == [
        *["lstm"] * layers, "joint_network", "gemm_skinny",
        "transducer_step_partial", "transducer_step",
    ]  # fmt: skip


class Tight(Reference):
    """Memory for no more than there is, until some is given back."""

    full = False

    def zeros(self, shape: tuple[int, ...], dtype: Any = np.float32) -> Any:
        if self.full:
            raise DeviceMemoryError("a small device", "no room")
        return super().zeros(shape, dtype)

    def release(self, *slots: Any) -> None:
        self.full = self.full and not slots


def test_where_memory_is_short_other_shapes_give_back_theirs() -> None:
    backend, mel = Tight(), EncoderInput(np.zeros((40, 8), np.float32))
    encoder = ParakeetRunner(network(1), backend).encoder
    encoder.run([mel])
    backend.full = True
    assert encoder.run([mel, mel]).shape == EncoderShape(2, 10)
    assert len(encoder.plans) == 1
    backend.full = True
    backend.release = lambda *slots: None  # type: ignore[method-assign]
    with pytest.raises(DeviceMemoryError, match="no room"):
        encoder.run([mel, mel, mel])
    assert len(encoder.plans) == 0


def test_shapes_used_longest_ago_make_room() -> None:
    encoder = ParakeetRunner(network(1), Reference()).encoder
    first = encoder.run([EncoderInput(np.zeros((4, 8), np.float32))])
    for frames in range(2, 20):
        encoder.run([EncoderInput(np.zeros((frames, 8), np.float32), ENCODED)])
    assert len(encoder.plans) == MAX_SHAPES
    assert encoder.run([EncoderInput(np.zeros((4, 8), np.float32))]) is not first


def test_memory_that_cannot_grow_is_as_before() -> None:
    backend = Tight()
    runner = ParakeetRunner(network(1), backend)
    executor, before, held = runner.executor(None), runner.memory.size, dict(runner.memory.buffers)
    wanted = chunk(sound(1, 30)[0])
    backend.full = True
    with pytest.raises(DeviceMemoryError):
        runner.reserve(4, 2, wanted)
    assert runner.memory.size == before
    assert all(runner.memory[name] is buffer for name, buffer in held.items())
    backend.full = False
    runner.reserve(4, 2, wanted)
    assert runner.memory.size == Size(4, 2, 30)
    assert isinstance(executor, TransducerExecutor)
    held_bytes = sum(buffer.nbytes for buffer in runner.memory.buffers.values())
    assert runner.bytes_held(runner.memory.size) == held_bytes
    runner.release(1, 1)
    assert runner.memory.size == Size(1, 1, 30)


def test_memory_for_more_than_there_is_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reference, "memory_limits", lambda self: (1 << 40, 1 << 20))
    runner = ParakeetRunner(network(1), Reference())
    with pytest.raises(DeviceMemoryError, match="no room for"):
        runner.reserve(4096, 1, chunk(sound(1, 30)[0]))
    assert runner.memory.size == Size(1, 1, 1)
