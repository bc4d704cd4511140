"""Kernels run without index checks: docs/indexes.md says what bounds each index, and it does."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from oscine import ops
from oscine.engine.scheduler import Engine
from oscine.engine.sequence import EncoderInput
from oscine.errors import UsageError
from oscine.gpu import device as devices
from oscine.models.parakeet.config import ParakeetConfig
from oscine.models.parakeet.hotwords import ContextGraph, build_context_graph
from oscine.models.parakeet.sequences import ENCODED, Chunk, DecoderState
from oscine.models.parakeet.weights import load_weights as load_parakeet
from oscine.models.whisper.runner import WhisperRunner
from oscine.models.whisper.sequences import (
    AlignmentSequence,
    DecodingRequest,
    DecodingSequence,
    LanguageSequence,
)
from oscine.models.whisper.weights import load_weights
from oscine.ops.cases.transducer import LstmLayer
from oscine.ops.check import CASES
from oscine.ops.reference import Reference
from oscine.ops.webgpu import Gpu

ROOT = Path(__file__).resolve().parent.parent
KERNELS = ROOT / "src" / "oscine" / "kernels"
GOLDENS = ROOT / "tests" / "goldens"
PAGE = (ROOT / "docs" / "indexes.md").read_text("utf-8")
ROWS = [line.strip("|").split("|") for line in PAGE.splitlines() if line.startswith("| `")]
FAR = 0x7FFFFFF0  # beside every array

Array = np.ndarray[Any, Any]


# -- the page -------------------------------------------------------------------------------------


def test_every_kernel_that_reads_whole_numbers_has_a_row() -> None:
    bound = re.compile(r"var<storage, \w+> \w+: array<(?:u32|vec\d<u32>)>")
    reading = {
        file.stem for file in KERNELS.rglob("[!_]*.wgsl") if bound.search(file.read_text("utf-8"))
    }
    named = {name for row in ROWS for name in re.findall(r"`(\w+)`", row[0])}
    assert named == reading


def test_every_row_names_tests_that_are_there() -> None:
    code = "\n".join(file.read_text("utf-8") for file in (ROOT / "tests").rglob("test_*.py"))
    there = set(re.findall(r"^def (test_\w+)\(", code, re.M))
    assert set(re.findall(r"`(test_\w+)`", PAGE)) <= there
    assert all(re.search(r"`test_\w+`", row[-1]) for row in ROWS)


# -- the host -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whisper() -> Engine[WhisperRunner]:
    return Engine(WhisperRunner(load_weights(GOLDENS / "whisper_en"), Reference()))


PLAIN = DecodingRequest(
    prompt=(1, 2),
    sot_index=0,
    suppress_tokens=(3,),
    begin_suppress_tokens=(),
    eot=4,
    timestamp_begin=6,
    no_timestamps=5,
    no_speech=3,
    timestamps=False,
    max_initial_timestamp_index=None,
    max_new_tokens=3,
)


def window(engine: Engine[WhisperRunner]) -> EncoderInput:
    config = engine.runner.config
    return EncoderInput(np.zeros((config.window_frames, config.n_mels), np.float32))


@pytest.mark.parametrize("value", [-1, "vocabulary", FAR, 1 << 40])
@pytest.mark.parametrize(
    "field", ["prompt", "suppress_tokens", "begin_suppress_tokens", "eot", "no_speech"]
)
def test_a_request_beside_the_vocabulary_is_refused(
    whisper: Engine[WhisperRunner], field: str, value: int | str
) -> None:
    id = whisper.runner.config.n_vocab if value == "vocabulary" else int(value)
    wrong: Any = id if field in ("eot", "no_speech") else (1, id)
    with pytest.raises(UsageError, match=f"^{id} is not a token id; this model has 0 to "):
        whisper.submit(DecodingSequence(window(whisper), replace(PLAIN, **{field: wrong})))
    for sot in (2, -1):
        with pytest.raises(UsageError, match=f"sot_index must be below 2, not {sot}"):
            whisper.submit(DecodingSequence(window(whisper), replace(PLAIN, sot_index=sot)))


def test_what_is_aligned_or_detected_is_checked(whisper: Engine[WhisperRunner]) -> None:
    beside = whisper.runner.config.n_vocab
    for prompt, end in (((1, beside), 4), ((-1,), 4), ((1, 2), beside)):
        with pytest.raises(UsageError, match="is not a token id"):
            whisper.submit(AlignmentSequence(window(whisper), prompt, end, 4))
    tokens = SimpleNamespace(languages={"en": beside}, sot=1)
    with pytest.raises(UsageError, match="is not a token id"):
        whisper.submit(LanguageSequence(window(whisper), tokens))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="mel window must have shape"):
        whisper.submit(DecodingSequence(EncoderInput(np.zeros((3, 2), np.float32)), PLAIN))


@pytest.fixture(scope="module")
def parakeet() -> ParakeetConfig:
    return load_parakeet(GOLDENS / "parakeet_tdt").config


def chunk(config: ParakeetConfig, **how: Any) -> Chunk:
    return Chunk(EncoderInput(np.zeros((6, config.d_model), np.float32), ENCODED), **how)


@pytest.mark.parametrize(
    ("token", "skip", "node", "told"),
    [
        (-1, 0, 0, "token -1"), (FAR, 0, 0, f"token {FAR}"), (None, 0, 0, "token"),
        (0, -1, 0, "-1 frames"), (0, 0, 3, "node 3"), (0, 0, -1, "node -1"),
    ],
)  # fmt: skip
def test_what_is_carried_on_is_checked(
    parakeet: ParakeetConfig, token: int | None, skip: int, node: int, told: str
) -> None:
    config = parakeet
    state = np.zeros((config.predictor_layers, config.predictor_dim), np.float32)
    first_beside = config.vocab_size + 1 if token is None else token
    decoder_state = DecoderState(state, state, first_beside, skip, node)
    tree = build_context_graph([((1, 2), 1.0)], config.vocab_size)
    with pytest.raises(UsageError, match=told):
        chunk(config, context_graph=tree, decoder_state=decoder_state).check(
            config, supports_hotwords=True
        )
    good = replace(
        decoder_state, last_token=config.vocab_size, skip_frames=0, graph_node=2
    )  # the blank, the last node
    chunk(config, context_graph=tree, decoder_state=good).check(config, supports_hotwords=True)


@pytest.mark.parametrize(
    ("table", "field", "row", "value"),
    [
        ("nodes", "first", 1, FAR), ("nodes", "count", 0, 4), ("nodes", "count", 2, 0xFFFFFFFF),
        ("nodes", "fail", 1, 1), ("nodes", "fail", 2, 3), ("nodes", "fail", 0, 1),
        ("arcs", "node", 0, 4),
    ],
)  # fmt: skip
def test_tables_of_phrases_are_checked(
    parakeet: ParakeetConfig, table: str, field: str, row: int, value: int
) -> None:
    tree = build_context_graph([((1, 2), 1.0), ((3,), 1.0)], parakeet.vocab_size)
    tables = {"nodes": tree.nodes.copy(), "arcs": tree.arcs.copy()}
    tables[table][field][row] = value
    with pytest.raises(UsageError, match="invalid context graph"):
        chunk(parakeet, context_graph=ContextGraph(**tables)).check(
            parakeet, supports_hotwords=True
        )
    chunk(parakeet, context_graph=tree).check(parakeet, supports_hotwords=True)


# -- the kernels ----------------------------------------------------------------------------------


class Bench:
    """Runs ops on a GPU with state that lies beside everything."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu, self.rng = gpu, np.random.default_rng(0)

    def noise(self, *shape: int) -> tuple[Array, Any]:
        made = self.rng.standard_normal(shape).astype(np.float32)
        return made, self.up(made)

    def up(self, array: Array) -> Any:
        slot = self.gpu.zeros(array.shape, array.dtype)
        self.gpu.write(slot, array)
        return slot

    def state(self, kind: Any = ops.TEXT_DECODER_STATE, **fields: Any) -> Any:
        rows = np.zeros(2, kind)
        if "slot" in (rows.dtype.names or ()):
            rows["slot"] = (0, 1)
        for name, value in fields.items():
            rows[name] = value
        return self.up(rows)

    def run(self, call: Callable[[], Any], shape: tuple[int, ...]) -> Array:
        out = self.gpu.zeros(shape)
        self.gpu.record(lambda: self.gpu.store(call(), out)).run()
        found: Array = self.gpu.read(out)
        return found


def embed(b: Bench) -> None:
    (table, table_), (places, places_) = b.noise(5, 8), b.noise(3, 8)
    state = ops.TextDecoderState(b.state(position=FAR, length=2), b.up(np.zeros((2, 3), np.uint32)))
    prompt = b.up(np.array([[1, 4], [0, FAR]], np.uint32))
    found = b.run(lambda: b.gpu.embed(table_, places_, state, prompt), (4, 8))
    np.testing.assert_allclose(found[:3], table[[1, 4, 0]] + places[2], rtol=1e-6)


def gather_rows(b: Bench) -> None:
    x, x_ = b.noise(6, 8)
    state = ops.TextDecoderState(b.state(length=FAR, sot=FAR), b.up(np.zeros((2, 3), np.uint32)))
    found = b.run(lambda: b.gpu.gather_rows(x_, state, sot=True), (4, 8))
    np.testing.assert_array_equal(found, x[[2, 5, 2, 5]])
    last = b.run(lambda: b.gpu.gather_rows(x_, talker_state(b, length=FAR)), (2, 8))
    np.testing.assert_array_equal(last, x[[2, 5]])


def plain_attention(b: Bench) -> None:
    (keys, keys_), (values, values_) = b.noise(2, 4, 8), b.noise(2, 4, 8)
    for length, position in ((1, FAR), (1, 4), (3, FAR), (3, 2)):
        _, qkv = b.noise(2 * length, 24)
        state = ops.TextDecoderState(
            b.state(length=length, position=position), b.up(np.zeros((2, 4), np.uint32))
        )
        cache = ops.KVCache(keys_, values_)
        b.run(lambda: b.gpu.causal_attention(qkv, cache, state, 2), (2 * length, 8))  # noqa: B023
        untouched = slice(0, min(position, 4))
        np.testing.assert_array_equal(b.gpu.read(keys_)[:, untouched], keys[:, untouched])
        np.testing.assert_array_equal(b.gpu.read(values_)[:, untouched], values[:, untouched])


def cross_attention_weights(b: Bench) -> None:
    (_, q), (_, kv) = b.noise(2, 8), b.noise(1, 5, 16)
    state = ops.TextDecoderState(b.state(frames=FAR), b.up(np.zeros((2, 4), np.uint32)))
    found = b.run(lambda: b.gpu.cross_attention_weights(q, kv, state, 2, (1,)), (1, 2, 5))
    np.testing.assert_allclose(found.sum(-1), 1, rtol=1e-5)


def rules(b: Bench, vocabulary: int) -> Any:
    made = np.zeros(2, ops.DECODE_PARAMS)
    made["vocabulary"], made["end"], made["timestamp_begin"] = vocabulary, vocabulary - 1, FAR
    made["repetition_penalty"], made["no_repeat_ngram"] = 2, 2
    return b.up(made)


def penalise(b: Bench) -> None:
    logits, logits_ = b.noise(2, 7)
    tokens = b.up(np.array([[2, FAR, FAR], [FAR, 3, 0xFFFFFFFF]], np.uint32))
    state = ops.TextDecoderState(b.state(count=FAR), tokens)
    found = b.run(lambda: b.gpu.apply_penalties(logits_, rules(b, 7), state), (2, 7))
    changed = found != logits
    assert changed[0, 2] and changed[1, 3] and changed.sum() == 2


def probability(b: Bench) -> None:
    _, logits = b.noise(3, 7)
    prompt = b.up(np.array([[1, FAR, 2]], np.uint32))
    state = ops.TextDecoderState(b.state(), b.up(np.zeros((2, 3), np.uint32)))
    found = b.run(lambda: b.gpu.token_probs(logits, prompt, rules(b, 7), state), (3,))
    assert found[0] == 0 and 0 < found[1] < 1 and found[2] == 0


def pick(b: Bench) -> None:
    (_, logits), mask = b.noise(2, 7), b.up(np.zeros((1, 7), np.uint32))
    state = ops.TextDecoderState(b.state(count=FAR, limit=9), b.up(np.zeros((2, 3), np.uint32)))
    given = rules(b, 7)
    b.gpu.record(lambda: b.gpu.sample_token(logits, mask, given, state)).run()
    assert (b.gpu.read(state.rows)["done"] != 0).all()


def talker_state(b: Bench, **fields: Any) -> ops.TalkerState:
    return ops.TalkerState(
        b.state(ops.TALKER_STATE, **fields),
        b.up(np.zeros((2, 3, 4), np.uint32)),
        b.up(np.zeros((2, 9), np.uint32)),
    )


def rope_attention(b: Bench) -> None:
    (keys, keys_), (values, values_) = b.noise(2, 4, 8), b.noise(2, 4, 8)
    (_, cosines), (_, sines) = b.noise(4, 4), b.noise(4, 4)
    for length, position, slot in ((1, FAR, 0), (3, FAR, 1), (1, 0, FAR), (3, 0, 2)):
        _, qkv = b.noise(2 * length, 24)
        told = talker_state(b, position=position, length=length, slot=slot)
        rotary, cache = ops.RopeTable(cosines, sines), ops.KVCache(keys_, values_)
        b.run(lambda: b.gpu.causal_attention(qkv, cache, told, 1, rope=rotary), (2 * length, 8))  # noqa: B023
        np.testing.assert_array_equal(b.gpu.read(keys_), keys)
        np.testing.assert_array_equal(b.gpu.read(values_), values)


def utterances_in_slots_that_are_not_there(b: Bench) -> None:
    (table, table_), (total, total_), (_, text) = b.noise(5, 8), b.noise(2, 8), b.noise(2, 3, 8)
    told = talker_state(b, slot=[1, 2], token=3, limit=9)
    b.run(lambda: b.gpu.code_embedding(table_, told, total_), (2, 8))
    total[1] += table[3]
    np.testing.assert_allclose(b.gpu.read(total_), total, rtol=1e-6)
    found = b.run(lambda: b.gpu.sum_embeddings(total_, table_, text, told), (2, 8))
    np.testing.assert_allclose(found[0], total[1] + table[3] + b.gpu.read(text)[1, 0], rtol=1e-5)
    _, logits = b.noise(2, 7)
    rules = b.up(np.zeros(2, ops.SAMPLING_PARAMS))
    b.gpu.record(lambda: b.gpu.sample_code(logits, rules, told)).run()
    assert b.gpu.read(told.rows)["done"].tolist() == [ops.STOP_END, 0]  # of its own rules


def voices_in_slots_that_are_not_there(b: Bench) -> None:
    (x, x_), (memory, memory_) = b.noise(6, 8), b.noise(2, 2, 8)
    (taps, taps_), (_, conv) = b.noise(3, 8), b.noise(4, 3, 8)
    single, wide, look = ops.Linear(taps_, None), ops.Linear(conv, None), ops.ConvParams(2)
    for slot in (2, FAR):
        state = b.state(ops.TALKER_STATE, slot=slot, position=5)
        found = b.run(lambda: b.gpu.depthwise(x_, single, memory_, state), (6, 8))  # noqa: B023
        np.testing.assert_allclose(found[[0, 3]], taps[2] * x[[0, 3]], rtol=1e-5)
        options = {"memory": memory_, "state": state}
        b.run(lambda: b.gpu.conv1d(x_, wide, look, **options), (6, 4))  # noqa: B023
        np.testing.assert_array_equal(b.gpu.read(memory_), memory)


def codebook_lookup(b: Bench) -> None:
    tables, tables_ = b.noise(2, 5, 8)
    codes = b.up(np.array([[0, FAR, 4], [3, 0xFFFFFFFF, FAR]], np.uint32))
    found = b.run(lambda: b.gpu.codebook_lookup(codes, tables_, 1), (2, 8))
    expected = tables[0, [4, 4]] + tables[1, [4, 4]]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def transduce(b: Bench) -> None:
    """Both rows at the last of three slots."""
    (hidden, hidden_), (cell, cell_), (joint, joint_) = (
        b.noise(*shape) for shape in ((3, 1, 2, 8), (3, 1, 2, 8), (3, 4))
    )
    decisions = b.up(np.zeros((3, 5), ops.TRANSDUCER_STEP))
    track = ops.TransducerState(
        b.state(ops.TRANSDUCER_STATE, slot=FAR, length=6, limit=5, fresh=1), decisions
    )
    memory, (_, x) = ops.LstmState(hidden_, cell_, joint_), b.noise(6, 4)
    rules, (_, logits) = b.up(np.array([3, 2], np.uint32)), b.noise(4, 4)
    layer = LstmLayer(
        ops.Linear(b.noise(32, 8)[1], b.noise(32)[1]), ops.Linear(b.noise(32, 8)[1], None)
    )
    table, project = b.noise(4, 8)[1], ops.Linear(b.noise(4, 8)[1], None)

    def step() -> Any:
        b.gpu.prediction_network(table, (layer,), memory, track)
        joined = b.gpu.joint_network(x, project, memory, track, 2)
        b.gpu.transducer_step(logits, rules, track)
        return joined

    b.run(step, (4, 4))
    for before, slot in ((hidden[:, 0, 1], hidden_), (cell[:, 0, 1], cell_), (joint, joint_)):
        after = b.gpu.read(slot)
        changed = (after if slot is joint_ else after[:, 0, 1]) != before
        assert changed.any(1).tolist() == [False, False, True]
    written = b.gpu.read(decisions)["probability"] > 0
    assert written.any(1).tolist() == [False, False, True]


@pytest.mark.gpu
@pytest.mark.parametrize(
    "bounded",
    [
        embed, gather_rows, plain_attention, cross_attention_weights, penalise, probability, pick,
        rope_attention, utterances_in_slots_that_are_not_there,
        voices_in_slots_that_are_not_there, codebook_lookup, transduce,
    ],
)  # fmt: skip
def test_kernels_bound_what_they_read(gpu: Gpu, bounded: Callable[[Bench], None]) -> None:
    bounded(Bench(gpu))


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("start", "most"),
    [("rel_pos_attention 3", 320), ("conformer_conv 3", 70)],
)
def test_frames_past_an_utterance_are_those_that_there_are(gpu: Gpu, start: str, most: int) -> None:
    case = next(case for case in CASES if case.name.startswith(start))
    rng = np.random.default_rng(0)
    weights, values = case.weights(rng), case.inputs(rng)
    whole = values | {"frames": np.full_like(values["frames"], most)}
    reference = Reference()
    ours = {name: ops.upload(reference, value) for name, value in weights.items()}
    theirs = {name: ops.upload(gpu, value) for name, value in weights.items()}
    expected = case.call(reference, whole, ours)
    slots = {name: gpu.zeros(value.shape, value.dtype) for name, value in values.items()}
    out = gpu.zeros(expected.shape)
    for name, value in (values | {"frames": np.full_like(values["frames"], FAR)}).items():
        gpu.write(slots[name], value)
    gpu.record(lambda: gpu.store(case.call(gpu, slots, theirs), out)).run()
    assert np.abs(gpu.read(out) - expected).max() <= case.limit * np.abs(expected).max()


# -- the checks of the implementations -------------------------------------------------------------


@pytest.mark.parametrize(("asked", "checks"), [("", False), ("0", False), ("1", True)])
def test_robust_is_asked_of_the_implementation(
    monkeypatch: pytest.MonkeyPatch, asked: str, checks: bool
) -> None:
    """Of Dawn by its toggles, of wgpu-native by which of its functions compiles."""
    monkeypatch.setenv("OSCINE_ROBUST", asked)
    toggled: list[tuple[str, ...]] = []

    class Extras:
        @staticmethod
        def set_instance_extras(*, enable_toggles: tuple[str, ...]) -> None:
            toggled.append(enable_toggles)

    devices.set_toggles.__wrapped__(Extras)
    assert ("disable_robustness" not in toggled[0]) == checks
    entered: list[bool] = []

    class Trusted:
        def __enter__(self) -> None:
            entered.append(True)

        def __exit__(self, *problem: object) -> None:
            pass

    class Handle:
        @staticmethod
        def create_shader_module(label: str, code: str) -> str:
            return code

    monkeypatch.setattr(devices, "without_shader_checks", Trusted)
    adapter = devices.Adapter("wgpu", "x", "CPU", "Vulkan", "", frozenset(), {}, None)
    devices.Device(adapter, None, Handle()).compile("label", "code")
    assert entered == ([] if checks else [True])


@pytest.mark.gpu
def test_robust_checks_change_no_result(adapter: Any) -> None:
    """And a code beside its table, which a kernel trusts, then reads an entry of it, or zero."""
    ran = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "on_robust_gpu.py")],
        env=os.environ | {"OSCINE_ROBUST": "1"}, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout.splitlines()[-1])
    assert told["error"] <= 1
    assert told["checked"] in ((True,) if adapter.implementation == "dawn" else (None,))
    assert told["found"] and set(told["found"]) <= {0.0, *told["table"]}
