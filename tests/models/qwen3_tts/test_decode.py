"""The resident engine: bursts, limits, seeds, memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oscine.errors import DeviceMemoryError, NonFiniteError, UsageError
from oscine.models.qwen3_tts import decode
from oscine.models.qwen3_tts.config import Sampling
from oscine.models.qwen3_tts.decode import Decoder, Run
from oscine.models.qwen3_tts.lines import USUAL_PROMPT, rounded_up
from oscine.models.qwen3_tts.prompt import Prompt
from oscine.models.qwen3_tts.request import Request
from oscine.models.qwen3_tts.weights import load_weights
from oscine.ops import Linear
from oscine.ops.reference import Reference

GOLDENS = Path(__file__).resolve().parents[2] / "goldens" / "qwen3_tts"
WEIGHTS = load_weights(GOLDENS / "custom_voice" / "ckpt")
END = WEIGHTS.config.codec_ids.eos
GREEDY, DRAWN = Sampling(do_sample=False), Sampling(temperature=1.1, top_k=0)

with np.load(GOLDENS / "custom_voice" / "expected.npz") as _stored:
    ARRAYS = dict(_stored)


class Counting(Reference):
    """NumPy that counts slots, given back ones too, and fails when it shall."""

    def __init__(self, ahead: bool = False) -> None:
        self.runs_ahead = ahead
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


@pytest.fixture(scope="module")
def decoder() -> Decoder:
    return Decoder(WEIGHTS, Counting())


def prompt(run: str = "dialect_stream") -> Prompt:
    """A golden's."""
    text, pad = ARRAYS[f"{run}/trailing_text_hidden"], ARRAYS[f"{run}/tts_pad_embed"][None]
    return Prompt(ARRAYS[f"{run}/prompt_embeds"], np.concatenate([text, pad]))


def asked(frames: int = 10, sampling: Sampling = GREEDY, seed: int = 0, **changes: Any) -> Request:
    return Request(changes.pop("prompt", None) or prompt(), sampling, sampling, seed, frames)


def codes_of(run: Run) -> list[list[int]]:
    return [frame for burst in run for frame in burst.tolist()]


def golden(run: str = "dialect_stream") -> list[list[int]]:
    found: list[list[int]] = ARRAYS[f"{run}/codes"].tolist()
    return found


# -- bursts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("burst", [1, 2, 4, 7])
def test_bursts_do_not_change_what_is_said(
    burst: int, ahead: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decode, "BURST", burst)
    decoder = Decoder(WEIGHTS, Counting(ahead))
    run = decoder.begin(asked())
    bursts = [len(codes) for codes in run]
    assert bursts[0] == 1
    assert max(bursts[1:]) <= burst
    assert sum(bursts) == run.seen_frames == 10
    assert codes_of(decoder.begin(asked())) == golden()
    drawn = [codes_of(decoder.begin(asked(20, DRAWN, seed=5))) for _ in range(2)]
    assert (
        drawn[0] == drawn[1] == codes_of(Decoder(WEIGHTS, Reference()).begin(asked(20, DRAWN, 5)))
    )


def test_seeds_are_heard_and_only_seeds(decoder: Decoder) -> None:
    found = {
        seed: codes_of(decoder.begin(asked(8, DRAWN, seed=seed))) for seed in (1, 2, -1, 2**32 - 1)
    }
    assert found[1] != found[2]
    assert found[-1] == found[2**32 - 1]


def test_the_end_is_told_from_the_limit(decoder: Decoder) -> None:
    run = decoder.begin(asked(40, prompt=prompt("instruct")))
    assert run.finish_reason is None
    assert codes_of(run) == golden("instruct")
    assert run.finish_reason == "end"
    short = decoder.begin(asked(3, prompt=prompt("instruct")))
    assert codes_of(short) == golden("instruct")[:3]
    assert short.finish_reason == "length"
    assert codes_of(short) == []


def test_an_end_before_two_frames_does_not_count(decoder: Decoder) -> None:
    """The golden's end is likelier than any code from the first frame on."""
    logits = ARRAYS["instruct/logits0"][:2]
    assert (logits[:, END] > logits[:, : WEIGHTS.config.codes].max(1)).all()
    none = decoder.begin(replace(asked(9, prompt=prompt("instruct")), min_frames=0))
    assert codes_of(none) == []
    assert none.finish_reason == "end"
    one = decoder.begin(replace(asked(9, prompt=prompt("instruct")), min_frames=1))
    assert codes_of(one) == golden("instruct")[:1]


def test_never_more_frames_than_asked_for(decoder: Decoder) -> None:
    for frames in (1, 2, 5, 6):
        run = decoder.begin(asked(frames))
        assert codes_of(run) == golden()[:frames]
        assert run.asked == frames
        assert set(run.timings) <= {"prompt", "frames"}


def test_special_ids_are_never_codes(decoder: Decoder) -> None:
    codes = np.array(codes_of(decoder.begin(asked(60, replace(DRAWN, temperature=50.0)))))
    assert codes.max() < WEIGHTS.config.codes
    assert len(np.unique(codes[:, 0])) > 10


def test_penalties_change_the_talker_alone(decoder: Decoder) -> None:
    harsh = decoder.begin(
        Request(prompt(), replace(GREEDY, repetition_penalty=100.0), GREEDY, 0, 10)
    )
    firsts = [frame[0] for frame in codes_of(harsh)]
    assert len(set(firsts)) == len(firsts)
    same = Request(prompt(), GREEDY, replace(GREEDY, repetition_penalty=100.0), 0, 10)
    assert codes_of(decoder.begin(same)) == golden()


def test_another_request_gives_up_the_one_before(decoder: Decoder) -> None:
    first = decoder.begin(asked())
    bursts = iter(first)
    next(bursts)
    assert codes_of(decoder.begin(asked())) == golden()
    assert list(bursts) == []
    assert first.stopped
    assert first.finish_reason is None


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
def test_requests_that_the_model_cannot_hold(decoder: Decoder, changes: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        decoder.begin(replace(asked(), **changes))
    assert codes_of(decoder.begin(asked(2))) == golden()[:2]


def test_numbers_that_are_none(decoder: Decoder) -> None:
    head = WEIGHTS.talker.head.weight.copy()
    head.view("<u2")[7] = 0x7FC0
    broken = replace(WEIGHTS, talker=replace(WEIGHTS.talker, head=Linear(head, None)))
    with pytest.raises(NonFiniteError, match="NumPy; the weights are damaged"):
        list(Decoder(broken, Reference()).begin(asked()))


def test_only_base_models_clone(decoder: Decoder) -> None:
    with pytest.raises(UsageError, match="base"):
        _ = decoder.speaker
    base = Decoder(load_weights(GOLDENS / "base" / "ckpt"), Reference())
    assert base.speaker.embed(np.sin(np.arange(4000.0)).astype(np.float32)).shape == (40,)
    assert base.codec_encoder.encode(np.zeros(4000, np.float32)).shape[1] == base.config.groups


# -- memory ---------------------------------------------------------------------------------------


def test_a_hundred_requests_allocate_nothing() -> None:
    """However long their prompts, once the longest has come."""
    backend = Counting()
    decoder = Decoder(WEIGHTS, backend)
    rows = np.concatenate([prompt().rows] * 12)
    for index in range(101):
        length = len(rows) - 5 * (index % 20)
        decoder.embed_text([1] * length)
        few = Prompt(rows[:length], prompt().text[: 1 + index % 9])
        list(decoder.begin(asked(1 + index % 3, seed=index, prompt=few)))
        if index == 0:
            made = backend.made
            assert len(rows) > USUAL_PROMPT
    assert backend.made == made


def test_longer_requests_find_room_and_give_back_what_was_there() -> None:
    backend = Counting()
    decoder = Decoder(WEIGHTS, backend)
    assert decoder.line is not None
    before, slots = decoder.line, len(decoder.line.slots)
    given_back = backend.given_back
    assert codes_of(decoder.begin(asked(400)))[:10] == golden()
    assert decoder.line is not before
    assert backend.given_back == given_back + slots
    assert decoder.line.positions == rounded_up(400 + len(prompt().rows))
    line = decoder.line
    assert codes_of(decoder.begin(asked())) == golden()
    assert decoder.line is line


def test_where_there_is_no_room_there_may_be_for_less() -> None:
    backend = Counting()
    decoder = Decoder(WEIGHTS, backend)
    backend.most = 1 << 16
    with pytest.raises(DeviceMemoryError):
        decoder.begin(asked(5000))
    assert codes_of(decoder.begin(asked())) == golden()


def test_no_more_positions_than_the_model_has() -> None:
    small = replace(WEIGHTS, config=replace(WEIGHTS.config, context=30))
    decoder = Decoder(small, Reference())
    assert decoder.line is not None
    assert decoder.line.positions == 30
    assert codes_of(decoder.begin(asked(20)))[:10] == golden()
    with pytest.raises(UsageError, match="30 positions"):
        decoder.begin(asked(21))


def test_much_text_finds_room() -> None:
    """Its memory is made anew; what is heard of it is that of a decoder that had it at once."""
    width = WEIGHTS.config.talker.width
    rows = np.random.default_rng(0).standard_normal((300, width)).astype(np.float32)
    much = asked(90, prompt=Prompt(prompt().rows, rows))
    at_once, grown = Decoder(WEIGHTS, Counting()), Decoder(WEIGHTS, Counting())
    at_once.reserve(1, 300)
    assert codes_of(grown.begin(asked())) == golden()
    line = grown.line
    assert line is not None and line.texts < 300
    assert codes_of(grown.begin(much)) == codes_of(at_once.begin(much))
    assert grown.line is line and line.texts >= 300
    assert codes_of(grown.begin(asked())) == golden()


@given(st.integers(1, 40_000))
def test_rounding_up_wastes_at_most_a_quarter(count: int) -> None:
    assert count <= rounded_up(count) <= max(8, count * 1.25)


def test_rows_from_the_host(decoder: Decoder) -> None:
    talker = decoder.networks.talker.embedding
    np.testing.assert_array_equal(decoder.code_row(3), talker[3])
    codes = np.array([[1, *range(decoder.config.groups - 1)]] * 2)
    rows = decoder.reference_rows(codes)
    tables = decoder.networks.predictor.embeddings
    sums = talker[1] + sum(table[code] for table, code in zip(tables, codes[0, 1:], strict=True))
    np.testing.assert_allclose(rows, [sums, sums], rtol=1e-6)
    assert decoder.embed_text([]).shape == (0, decoder.config.talker.width)
    pair, single = decoder.embed_text([4, 5]), decoder.embed_text([5])
    np.testing.assert_allclose(pair[1:], single, atol=1e-6)


# -- on a GPU -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gpu_decoder(device: Any) -> Decoder:
    from oscine.ops.webgpu import Gpu

    return Decoder(WEIGHTS, Gpu(device))


@pytest.mark.host
@pytest.mark.gpu
def test_a_gpu_says_the_same(gpu_decoder: Decoder, decoder: Decoder) -> None:
    assert codes_of(gpu_decoder.begin(asked())) == golden()
    assert codes_of(gpu_decoder.begin(asked(40, prompt=prompt("instruct")))) == golden("instruct")
    for seed in (1, 2):
        drawn = asked(12, DRAWN, seed=seed)
        assert codes_of(gpu_decoder.begin(drawn)) == codes_of(decoder.begin(drawn))


@pytest.mark.gpu
def test_requests_on_a_gpu_allocate_nothing(
    gpu_decoder: Decoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory: Any = gpu_decoder.backend.memory  # type: ignore[attr-defined]
    codes_of(gpu_decoder.begin(asked()))
    made: list[int] = []
    create = memory.create
    monkeypatch.setattr(memory, "create", lambda *size: made.append(1) or create(*size))
    for index in range(20):
        run = gpu_decoder.begin(asked(7, seed=index))
        for _ in run:
            if index % 3 == 0:
                break
    assert made == []
