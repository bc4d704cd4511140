"""The network on its engine: bursts, limits, seeds, memory."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oscine.engine.scheduler import Engine
from oscine.errors import DeviceMemoryError, NonFiniteError, UsageError
from oscine.models.qwen3_tts.config import SamplingParams
from oscine.models.qwen3_tts.executors import UtteranceExecutor
from oscine.models.qwen3_tts.prompt import Prompt
from oscine.models.qwen3_tts.runner import Qwen3TtsRunner
from oscine.models.qwen3_tts.sequences import Utterance, UtteranceRequest, UtteranceResult
from oscine.models.qwen3_tts.talker_runner import (
    INITIAL_PROMPT_ROWS,
    MAX_IDLE_POSITIONS,
    POSITION_BLOCK,
    round_up,
)
from oscine.models.qwen3_tts.weights import load_weights
from oscine.ops import Linear
from oscine.ops.reference import Reference

GOLDENS = Path(__file__).resolve().parents[2] / "goldens" / "qwen3_tts"
WEIGHTS = load_weights(GOLDENS / "custom_voice" / "ckpt")
END = WEIGHTS.config.codec_ids.eos
GREEDY, DRAWN = SamplingParams(do_sample=False), SamplingParams(temperature=1.1, top_k=0)

with np.load(GOLDENS / "custom_voice" / "expected.npz") as _stored:
    ARRAYS = dict(_stored)


class Counting(Reference):
    """A NumPy backend that counts allocations, released ones too, and fails on request."""

    def __init__(self, ahead: bool = False) -> None:
        self.is_async = ahead
        self.made = 0
        self.given_back = 0
        self.most = 1 << 62

    def zeros(self, shape: tuple[int, ...], dtype: Any = np.float32) -> Any:
        slot = super().zeros(shape, dtype)
        if slot.nbytes > self.most:
            raise DeviceMemoryError("device", "no room")
        self.made += 1
        return slot

    def release(self, *slots: Any) -> None:
        self.given_back += len(slots)


class Speaking:
    """A runner and its engine; utterances of which the codes are wanted."""

    def __init__(self, weights: Any, backend: Any) -> None:
        self.runner = Qwen3TtsRunner(weights, backend)
        self.engine = Engine(self.runner)

    def begin(self, request: UtteranceRequest) -> Utterance:
        utterance = Utterance(request, returns_audio=False)
        self.runner.check(utterance)
        self.engine.submit(utterance)
        return utterance


@pytest.fixture(scope="module")
def decoder() -> Speaking:
    return Speaking(WEIGHTS, Counting())


def prompt(run: str = "dialect_stream") -> Prompt:
    """A golden's."""
    text, pad = ARRAYS[f"{run}/trailing_text_hidden"], ARRAYS[f"{run}/tts_pad_embed"][None]
    return Prompt(ARRAYS[f"{run}/prompt_embeds"], np.concatenate([text, pad]))


def asked(
    frames: int = 10, sampling: SamplingParams = GREEDY, seed: int = 0, **changes: Any
) -> UtteranceRequest:
    return UtteranceRequest(
        changes.pop("prompt", None) or prompt(), sampling, sampling, seed, frames
    )


def codes_of(run: Utterance) -> list[list[int]]:
    return [frame for burst in run.pieces() for frame in burst.tolist()]


def golden(run: str = "dialect_stream") -> list[list[int]]:
    found: list[list[int]] = ARRAYS[f"{run}/codes"].tolist()
    return found


# -- bursts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("burst", [1, 2, 4, 7])
def test_bursts_do_not_change_what_is_said(
    burst: int, ahead: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(UtteranceExecutor, "steps_per_poll", burst)
    decoder = Speaking(WEIGHTS, Counting(ahead))
    run = decoder.begin(asked())
    bursts = [len(codes) for codes in run.pieces()]
    assert bursts[0] == 1
    assert max(bursts[1:]) <= burst
    assert sum(bursts) == run.result().frames == 10
    assert codes_of(decoder.begin(asked())) == golden()
    drawn = [codes_of(decoder.begin(asked(20, DRAWN, seed=5))) for _ in range(2)]
    assert (
        drawn[0] == drawn[1] == codes_of(Speaking(WEIGHTS, Reference()).begin(asked(20, DRAWN, 5)))
    )


def test_seeds_are_heard_and_only_seeds(decoder: Speaking) -> None:
    found = {
        seed: codes_of(decoder.begin(asked(8, DRAWN, seed=seed))) for seed in (1, 2, -1, 2**32 - 1)
    }
    assert found[1] != found[2]
    assert found[-1] == found[2**32 - 1]


def test_the_end_is_told_from_the_limit(decoder: Speaking) -> None:
    run = decoder.begin(asked(40, prompt=prompt("instruct")))
    assert codes_of(run) == golden("instruct")
    assert run.result() == UtteranceResult("end", len(golden("instruct")))
    short = decoder.begin(asked(3, prompt=prompt("instruct")))
    assert codes_of(short) == golden("instruct")[:3]
    assert short.result() == UtteranceResult("length", 3)


def test_an_end_before_two_frames_does_not_count(decoder: Speaking) -> None:
    """The golden's end is likelier than any code from the first frame on."""
    logits = ARRAYS["instruct/logits0"][:2]
    assert (logits[:, END] > logits[:, : WEIGHTS.config.codebook_size].max(1)).all()
    none = decoder.begin(replace(asked(9, prompt=prompt("instruct")), min_frames=0))
    assert codes_of(none) == []
    assert none.result() == UtteranceResult("end", 0)
    one = decoder.begin(replace(asked(9, prompt=prompt("instruct")), min_frames=1))
    assert codes_of(one) == golden("instruct")[:1]


def test_never_more_frames_than_asked_for(decoder: Speaking) -> None:
    for frames in (1, 2, 5, 6):
        run = decoder.begin(asked(frames))
        assert codes_of(run) == golden()[:frames]
        assert run.result() == UtteranceResult("length", frames)
        assert set(run.caller.timings) == {"prompt", "frames", "codec"}


def test_special_ids_are_never_codes(decoder: Speaking) -> None:
    codes = np.array(codes_of(decoder.begin(asked(60, replace(DRAWN, temperature=50.0)))))
    assert codes.max() < WEIGHTS.config.codebook_size
    assert len(np.unique(codes[:, 0])) > 10


def test_penalties_change_the_talker_alone(decoder: Speaking) -> None:
    harsh = decoder.begin(
        UtteranceRequest(prompt(), replace(GREEDY, repetition_penalty=100.0), GREEDY, 0, 10)
    )
    firsts = [frame[0] for frame in codes_of(harsh)]
    assert len(set(firsts)) == len(firsts)
    same = UtteranceRequest(prompt(), GREEDY, replace(GREEDY, repetition_penalty=100.0), 0, 10)
    assert codes_of(decoder.begin(same)) == golden()


def test_another_request_leaves_the_one_before_alone(decoder: Speaking) -> None:
    first = decoder.begin(asked(40, prompt=prompt("instruct")))
    bursts = first.pieces()
    heard = next(bursts).tolist()
    assert codes_of(decoder.begin(asked())) == golden()
    for burst in bursts:
        heard += burst.tolist()
    assert heard == golden("instruct")


# -- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"max_frames": 0}, "max_frames"),
        ({"max_frames": 1 << 20}, "do not fit"),
        (
            {"prompt": Prompt(np.zeros((0, 48), np.float32), np.zeros((1, 48), np.float32))},
            "prompt",
        ),
        ({"prompt": Prompt(np.zeros((3, 5), np.float32), np.zeros((1, 48), np.float32))}, "prompt"),
        ({"prompt": Prompt(np.zeros((3, 48), np.float32), np.zeros((0, 48), np.float32))}, "text"),
    ],
)
def test_requests_that_the_model_cannot_hold(decoder: Speaking, changes: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        decoder.begin(replace(asked(), **changes))
    assert codes_of(decoder.begin(asked(2))) == golden()[:2]


def test_numbers_that_are_none(decoder: Speaking) -> None:
    head = WEIGHTS.talker.codec_head.weight.copy()
    head.view("<u2")[7] = 0x7FC0
    broken = replace(WEIGHTS, talker=replace(WEIGHTS.talker, codec_head=Linear(head, None)))
    with pytest.raises(NonFiniteError, match="NumPy; the weights are damaged"):
        Speaking(broken, Reference()).begin(asked()).wait()


def test_only_base_models_clone(decoder: Speaking) -> None:
    with pytest.raises(UsageError, match="base"):
        _ = decoder.runner.speaker_encoder
    base = Qwen3TtsRunner(load_weights(GOLDENS / "base" / "ckpt"), Reference())
    assert base.speaker_encoder.embed(np.sin(np.arange(4000.0)).astype(np.float32)).shape == (40,)
    assert (
        base.codec_encoder.encode(np.zeros(4000, np.float32)).shape[1]
        == base.config.num_code_groups
    )


# -- memory ---------------------------------------------------------------------------------------


def test_a_hundred_requests_allocate_nothing() -> None:
    """However long their prompts, once the longest has come."""
    backend = Counting()
    decoder = Speaking(WEIGHTS, backend)
    rows = np.concatenate([prompt().embeddings] * 12)
    for index in range(101):
        length = len(rows) - 5 * (index % 20)
        decoder.runner.tables.embed_text([1] * length)
        few = Prompt(rows[:length], prompt().trailing_text[: 1 + index % 9])
        decoder.begin(asked(1 + index % 3, seed=index, prompt=few)).wait()
        if index == 0:
            made = backend.made
            assert len(rows) > INITIAL_PROMPT_ROWS
    assert backend.made == made


def test_longer_requests_find_room_and_give_back_what_was_there() -> None:
    backend = Counting()
    decoder = Speaking(WEIGHTS, backend)
    talker = decoder.runner.talker
    slots, given_back = len(talker.tensors), backend.given_back
    assert codes_of(decoder.begin(asked(400)))[:10] == golden()
    assert backend.given_back == given_back + slots
    needed = 400 + len(prompt().embeddings)
    assert talker.positions == round_up(needed, POSITION_BLOCK) and needed <= talker.positions
    made = backend.made
    assert codes_of(decoder.begin(asked())) == golden()
    assert backend.made == made
    talker.reserve(8, 3000, 1)
    decoder.runner.release(1, 1)
    assert (talker.slots, talker.positions) == (1, MAX_IDLE_POSITIONS)
    next_voice = {("step", 1), ("prompt", 1, talker.padded_prompt_length(INITIAL_PROMPT_ROWS))}
    assert set(talker.plans._plans) == next_voice
    assert codes_of(decoder.begin(asked())) == golden()


@pytest.mark.parametrize("ahead", [False, True])
def test_who_runs_keeps_what_it_has_while_memory_grows(ahead: bool) -> None:
    """More slots, more positions and more rows of text, in the middle of an utterance."""
    width = WEIGHTS.config.talker.hidden_size
    rows = np.random.default_rng(0).standard_normal((300, width)).astype(np.float32)
    drawn = asked(60, DRAWN, seed=3, prompt=Prompt(prompt().embeddings, rows[:60]))
    expected = codes_of(Speaking(WEIGHTS, Counting(ahead)).begin(drawn))
    decoder = Speaking(WEIGHTS, Counting(ahead))
    first = decoder.begin(drawn)
    bursts = first.pieces()
    heard = next(bursts).tolist()
    others = [
        decoder.begin(asked(5)),
        decoder.begin(asked(400, prompt=Prompt(prompt().embeddings, rows))),
        decoder.begin(asked(5)),
    ]
    for burst in bursts:
        heard += burst.tolist()
    assert heard == expected
    assert codes_of(others[0]) == codes_of(others[2]) == golden()[:5]
    others[1].cancel()


def test_where_there_is_no_room_there_may_be_for_less() -> None:
    backend = Counting()
    decoder = Speaking(WEIGHTS, backend)
    backend.most = 1 << 16
    with pytest.raises(DeviceMemoryError):
        decoder.begin(asked(5000)).wait()
    assert codes_of(decoder.begin(asked())) == golden()


def test_no_more_positions_than_the_model_has() -> None:
    small = replace(WEIGHTS, config=replace(WEIGHTS.config, max_position_embeddings=30))
    decoder = Speaking(small, Reference())
    assert codes_of(decoder.begin(asked(20)))[:10] == golden()
    with pytest.raises(UsageError, match="30 positions"):
        decoder.begin(asked(21))


def test_much_text_finds_room() -> None:
    """Its buffers grow; the audio equals that of a model with large buffers from the start."""
    width = WEIGHTS.config.talker.hidden_size
    rows = np.random.default_rng(0).standard_normal((300, width)).astype(np.float32)
    much = asked(90, prompt=Prompt(prompt().embeddings, rows))
    at_once, grown = Speaking(WEIGHTS, Counting()), Speaking(WEIGHTS, Counting())
    at_once.runner.talker.reserve(1, 1, 300)
    assert codes_of(grown.begin(asked())) == golden()
    assert grown.runner.talker.trailing_text_rows < 300
    assert codes_of(grown.begin(much)) == codes_of(at_once.begin(much))
    assert grown.runner.talker.trailing_text_rows >= 300
    assert codes_of(grown.begin(asked())) == golden()


@given(st.integers(1, 40_000))
def test_rounding_up_wastes_at_most_a_quarter(count: int) -> None:
    assert count <= round_up(count) <= max(8, count * 1.25)
    assert round_up(count, 256) % 256 == 0 and count <= round_up(count, 256)


def test_rows_from_the_host(decoder: Speaking) -> None:
    runner = decoder.runner
    talker, known = runner.networks.talker.codec_embedding, runner.tables
    np.testing.assert_array_equal(known.embed_code(3), talker[3])
    codes = np.array([[1, *range(runner.config.num_code_groups - 1)]] * 2)
    rows = known.embed_reference(codes)
    tables = runner.networks.code_predictor.codec_embeddings
    sums = talker[1] + sum(table[code] for table, code in zip(tables, codes[0, 1:], strict=True))
    np.testing.assert_allclose(rows, [sums, sums], rtol=1e-6)
    assert known.embed_text([]).shape == (0, runner.config.talker.hidden_size)
    pair, single = known.embed_text([4, 5]), known.embed_text([5])
    np.testing.assert_allclose(pair[1:], single, atol=1e-6)


# -- on a GPU -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gpu_decoder(device: Any) -> Speaking:
    from oscine.ops.webgpu import Gpu

    return Speaking(WEIGHTS, Gpu(device))


@pytest.mark.host
@pytest.mark.gpu
def test_a_gpu_says_the_same(gpu_decoder: Speaking, decoder: Speaking) -> None:
    assert codes_of(gpu_decoder.begin(asked())) == golden()
    assert codes_of(gpu_decoder.begin(asked(40, prompt=prompt("instruct")))) == golden("instruct")
    for seed in (1, 2):
        drawn = asked(12, DRAWN, seed=seed)
        assert codes_of(gpu_decoder.begin(drawn)) == codes_of(decoder.begin(drawn))


@pytest.mark.gpu
def test_requests_on_a_gpu_allocate_nothing(
    gpu_decoder: Speaking, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory: Any = gpu_decoder.runner.backend.memory  # type: ignore[attr-defined]
    codes_of(gpu_decoder.begin(asked()))
    made: list[int] = []
    create = memory.create
    monkeypatch.setattr(memory, "create", lambda *size: made.append(1) or create(*size))
    for index in range(20):
        for _ in gpu_decoder.begin(asked(7, seed=index)).pieces():
            if index % 3 == 0:
                break
        while gpu_decoder.engine.running:
            time.sleep(0.001)
    assert made == []
