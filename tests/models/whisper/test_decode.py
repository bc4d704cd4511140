"""Decoding one window, in NumPy and on a GPU: the same tokens, and nothing left of a request."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oscine.models.whisper.decode import BURST, Decoder
from oscine.models.whisper.request import REPEAT_LIMIT, Request

from oscine.errors import Cancelled, NonFiniteError, UsageError
from oscine.models.whisper.weights import WhisperWeights, load_weights
from oscine.ops.reference import Reference
from oscine.probe import probing

GOLDEN = Path(__file__).resolve().parents[2] / "goldens" / "whisper_multi"
META = json.loads((GOLDEN / "golden.json").read_text(encoding="utf-8"))
BACKENDS = ["numpy", pytest.param("gpu", marks=pytest.mark.gpu)]

backends = pytest.mark.parametrize("name", BACKENDS)
Engines = Callable[[str], Decoder]


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    with np.load(GOLDEN / "golden.npz") as arrays:
        return dict(arrays)


@pytest.fixture(scope="module")
def weights() -> WhisperWeights:  # hides the fixture of real ones
    return load_weights(GOLDEN)


@pytest.fixture
def backend(request: pytest.FixtureRequest) -> Callable[[str], Any]:
    return lambda name: Reference() if name == "numpy" else request.getfixturevalue("gpu")


@pytest.fixture(scope="module")
def made() -> dict[str, Decoder]:
    return {}


@pytest.fixture
def engine(
    made: dict[str, Decoder],
    weights: WhisperWeights,
    golden: dict[str, Any],
    backend: Callable[[str], Any],
) -> Engines:
    """engine(name): the golden model on that backend, holding the golden's window."""

    def build(name: str) -> Decoder:
        if name not in made:
            made[name] = Decoder(weights, backend(name))
            made[name].encode([time_first(golden["mel"])])
        return made[name]

    return build


def time_first(mel: Any) -> Any:
    return np.ascontiguousarray(mel.T, np.float32)


def request_of(prompt: Any, timestamps: bool = False, **options: Any) -> Request:
    ids = META["ids"]
    usual: dict[str, Any] = {
        "sot": 0,
        "suppress": tuple(META["suppress_tokens"]),
        "suppress_first": tuple(META["begin_suppress_tokens"]),
        "end": ids["<|endoftext|>"],
        "timestamp_begin": ids["<|0.00|>"],
        "no_timestamps": ids["<|notimestamps|>"],
        "no_speech": ids["<|nospeech|>"],
        "max_initial_timestamp": META["max_initial_timestamp_index"],
        "limit": META["max_new_tokens"],
    }
    chosen = tuple(int(token) for token in prompt)
    return Request(prompt=chosen, timestamps=timestamps, **(usual | options))


START = tuple(META["sot_sequence"])
PLAIN = request_of((*START, META["ids"]["<|notimestamps|>"]))
TIMED = request_of(START, timestamps=True)
SAMPLED = replace(TIMED, temperature=0.8, samples=4, seed=11)
#: Some text before, as from a window before this one.
CONTEXT = request_of((META["ids"]["<|startofprev|>"], 70, 80, 90, *START), timestamps=True, sot=4)


# -- the tokens -----------------------------------------------------------------------------------


@backends
@pytest.mark.parametrize("case", ["greedy_nots", "greedy_ts"])
def test_greedy_tokens_of_the_upstream_program(
    engine: Engines, golden: dict[str, Any], name: str, case: str
) -> None:
    request = request_of(golden[f"{case}_prompt"], timestamps=case == "greedy_ts")
    ((found,),) = engine(name).decode([request])
    assert list(found.tokens) == golden[f"{case}_tokens"].tolist()
    assert found.sum_logprob == pytest.approx(META[case]["sum_logprob"], abs=0.02)
    assert found.avg_logprob == pytest.approx(META[case]["avg_logprob"], abs=1e-3)
    assert found.stop == "end"


@pytest.mark.host
@pytest.mark.gpu
@pytest.mark.parametrize(
    "request_",
    [
        TIMED,
        CONTEXT,
        replace(TIMED, max_initial_timestamp=None),
        replace(PLAIN, suppress=(), suppress_first=(), limit=60),
        replace(TIMED, temperature=0.7, seed=5),
        replace(PLAIN, temperature=1.0, seed=2**32 - 1),
        SAMPLED,
    ],
    ids=["timed", "context", "any first time", "long", "0.7", "1.0", "best of 4"],
)
def test_a_gpu_picks_what_numpy_picks(engine: Engines, request_: Request) -> None:
    expected, found = (engine(name).decode([request_])[0] for name in ("numpy", "gpu"))
    assert len(expected[0].tokens) > 3
    assert [row.tokens for row in found] == [row.tokens for row in expected]
    assert [row.stop for row in found] == [row.stop for row in expected]
    for a, b in zip(expected, found, strict=True):
        assert b.sum_logprob == pytest.approx(a.sum_logprob, abs=1e-3)
        assert b.no_speech_prob == pytest.approx(a.no_speech_prob, rel=1e-3)


@backends
def test_timestamps_come_in_pairs_and_rise(engine: Engines, name: str) -> None:
    begin = TIMED.timestamp_begin
    for row in engine(name).decode([replace(SAMPLED, limit=60)])[0]:
        assert begin <= row.tokens[0] <= begin + META["max_initial_timestamp_index"]
        stamps = [token for token in row.tokens if token >= begin]
        assert stamps == sorted(stamps)
        inner = "".join("t" if token >= begin else "." for token in row.tokens[1:])
        assert "ttt" not in inner
        assert not set(row.tokens) & set(TIMED.suppress)


@backends
def test_rows_differ_and_a_seed_makes_them_again(engine: Engines, name: str) -> None:
    decoder = engine(name)
    first, again = (decoder.decode([SAMPLED])[0] for _ in range(2))
    assert first == again
    assert len({row.tokens for row in first}) == 4
    other = decoder.decode([replace(SAMPLED, seed=12)])[0]
    assert {row.tokens for row in other}.isdisjoint(row.tokens for row in first)
    alone = decoder.decode([replace(SAMPLED, samples=1)])[0]
    assert alone[0].tokens == first[0].tokens  # the first row has the seed itself
    assert len({row.no_speech_prob for row in first}) == 1  # all rows read the same prompt


# -- side by side ---------------------------------------------------------------------------------


class Halved(Reference):
    """NumPy that rounds the keys and values of a batch, as a GPU does where weights are float16."""

    half_memory = True


def in_float32(weights: WhisperWeights) -> WhisperWeights:
    """Weights whose embedding says that they are no float16: nothing is rounded for a batch."""
    decoder = weights.decoder
    assert decoder is not None
    return replace(
        weights, decoder=replace(decoder, embedding=decoder.embedding.astype(np.float32))
    )


@pytest.fixture
def crowd(
    weights: WhisperWeights, golden: dict[str, Any], backend: Callable[[str], Any]
) -> Callable[[str], Decoder]:
    """crowd(name): four windows that differ, encoded side by side."""

    def build(name: str, given: WhisperWeights = weights) -> Decoder:
        engine = Halved() if name == "halved" else backend(name)
        decoder, mel = Decoder(given, engine), time_first(golden["mel"])
        decoder.reserve(4, 4)
        decoder.encode([np.roll(mel, 40 * at, axis=0) for at in range(4)])
        return decoder

    return build


@pytest.mark.host
@backends
def test_windows_side_by_side_are_as_each_alone(crowd: Engines, name: str) -> None:
    decoder = crowd(name)
    requests = [TIMED, CONTEXT, replace(TIMED, limit=7), replace(TIMED, seed=9)]
    together = decoder.decode(requests, windows=range(4))
    alone = [decoder.decode([one], windows=[at])[0] for at, one in enumerate(requests)]
    assert [[row.tokens for row in rows] for rows in together] == [
        [row.tokens for row in rows] for rows in alone
    ]
    assert [rows[0].stop for rows in together] == [rows[0].stop for rows in alone]
    assert len({rows[0].tokens for rows in together}) > 1  # windows do differ
    for rows, other in zip(together, alone, strict=True):
        assert rows[0].sum_logprob == pytest.approx(other[0].sum_logprob, abs=1e-3)
        assert rows[0].no_speech_prob == pytest.approx(other[0].no_speech_prob, rel=1e-3)


BEAMS = replace(PLAIN, beams=4, pool=4)
SEARCHES = [
    BEAMS,
    replace(BEAMS, pool=6),
    replace(BEAMS, pool=2),
    replace(BEAMS, limit=4),
    replace(CONTEXT, beams=3, pool=3),
    replace(PLAIN, repetition_penalty=1.3, limit=40),
    replace(PLAIN, no_repeat_ngram=2, suppress=(), limit=40),
    replace(BEAMS, repetition_penalty=1.2, no_repeat_ngram=3),
]


@pytest.mark.host
@pytest.mark.gpu
@pytest.mark.parametrize("request_", SEARCHES)
def test_a_gpu_finds_what_numpy_finds(crowd: Engines, request_: Request) -> None:
    plain, expected, found = (
        crowd(name).decode([request_] * 3, windows=[2, 0, 1]) for name in ("numpy", "halved", "gpu")
    )
    assert [[row.tokens for row in rows] for rows in found] == [
        [row.tokens for row in rows] for rows in plain
    ]
    for ours, theirs in zip(expected, found, strict=True):
        assert [row.tokens for row in theirs] == [row.tokens for row in ours]
        for a, b in zip(ours, theirs, strict=True):
            assert b.sum_logprob == pytest.approx(a.sum_logprob, abs=1e-3)
            assert b.stop == a.stop


@backends
def test_beams_find_likelier_text_than_greed(crowd: Engines, name: str) -> None:
    decoder = crowd(name)
    (greedy,) = decoder.decode([PLAIN])[0]
    beams = decoder.decode([BEAMS])[0]
    assert len(beams) == 4
    assert len({row.tokens for row in beams}) == 4
    ended = [row for row in beams if row.stop == "end"]
    assert max(row.sum_logprob for row in ended) >= greedy.sum_logprob - 1e-3
    assert decoder.decode([BEAMS])[0] == beams  # and nothing is left of a search


@backends
def test_one_beam_is_greedy(crowd: Engines, name: str) -> None:
    decoder = crowd(name)
    assert decoder.decode([replace(PLAIN, beams=1, pool=1)]) == decoder.decode([PLAIN])


@backends
def test_no_run_of_tokens_comes_twice(crowd: Engines, name: str) -> None:
    request = replace(PLAIN, no_repeat_ngram=2, suppress=(PLAIN.end,), limit=50)
    ((row,),) = crowd(name).decode([request])
    pairs = [pair for pair in zip(row.tokens, row.tokens[1:], strict=False) if pair[1] < PLAIN.end]
    assert len(pairs) == len(set(pairs)) > 10


@pytest.mark.host
@backends
def test_room_grows_and_what_is_encoded_stays(crowd: Engines, name: str) -> None:
    decoder = crowd(name)
    before = decoder.decode([TIMED], windows=[2])
    decoder.decode([replace(TIMED, temperature=0.5, samples=7)], windows=[2])
    assert (decoder.windows, decoder.most_lines) == (4, 7)
    assert decoder.decode([TIMED], windows=[2]) == before


@pytest.mark.gpu
def test_keys_and_values_are_float16_where_weights_and_windows_say_so(
    weights: WhisperWeights, gpu: Any
) -> None:
    decoder = Decoder(weights, gpu)
    assert {slot.dtype for slot in decoder.memory} == {np.dtype(np.float32)}
    alone = decoder.batch_that_fits()
    decoder.reserve(2, 2)
    assert {slot.dtype for slot in decoder.memory} == {np.dtype(np.float16)}
    assert decoder.batch_that_fits() == alone  # it is told of the batch to come
    decoder = Decoder(in_float32(weights), gpu)
    decoder.reserve(2, 2)
    assert {slot.dtype for slot in decoder.memory} == {np.dtype(np.float32)}


@pytest.mark.host
@backends
def test_more_requests_than_lines_take_turns(crowd: Engines, name: str) -> None:
    decoder = crowd(name)
    found = decoder.decode([TIMED] * 6, windows=[at % 4 for at in range(6)])
    assert len(found) == 6
    # Not to the last bit: other numbers of lines take other kernels.
    assert [rows[0].tokens for rows in found[:2]] == [rows[0].tokens for rows in found[4:]]
    for first, again in zip(found[:2], found[4:], strict=True):
        assert again[0].sum_logprob == pytest.approx(first[0].sum_logprob, abs=1e-3)


def test_requests_of_other_rules_are_not_decoded_together(crowd: Engines) -> None:
    with pytest.raises(ValueError, match="same rules"):
        crowd("numpy").decode([TIMED, PLAIN])


@backends
def test_alignment_is_the_upstream_programs(
    engine: Engines, golden: dict[str, Any], name: str
) -> None:
    decoder, text = engine(name), golden["greedy_nots_tokens"].tolist()
    prompt = [*PLAIN.prompt, *text, PLAIN.end]
    frames = META["own_align"]["num_frames"] // 2
    found = decoder.align(prompt, PLAIN.end, frames)
    assert found.weights.shape[1:] == (len(prompt), frames)
    assert found.weights.sum(-1) == pytest.approx(1, abs=1e-4)
    start = len(PLAIN.prompt) - 1
    shares = found.probabilities[start : start + len(text)]
    assert shares == pytest.approx(golden["own_align_prob"], abs=1e-3)
    with pytest.raises(UsageError, match="cannot be aligned"):
        decoder.align([1] * 73, PLAIN.end, 5)


@pytest.mark.host
@pytest.mark.gpu
def test_a_gpu_aligns_other_windows_as_numpy_does(
    crowd: Callable[..., Decoder], weights: WhisperWeights
) -> None:
    prompt, given = [*PLAIN.prompt, 70, 80, 90, PLAIN.end], in_float32(weights)
    ours, theirs = (crowd(name, given).align(prompt, PLAIN.end, 37, 3) for name in ("numpy", "gpu"))
    np.testing.assert_allclose(theirs.weights, ours.weights, atol=1e-5)
    np.testing.assert_allclose(theirs.probabilities, ours.probabilities, atol=1e-5)


# -- requests and their limits --------------------------------------------------------------------


@backends
def test_a_request_leaves_nothing_behind(engine: Engines, name: str) -> None:
    decoder = engine(name)
    requests = (TIMED, replace(PLAIN, suppress=(), limit=3), CONTEXT, replace(TIMED, seed=3))
    alone = [decoder.decode([request]) for request in requests]
    for order in ([3, 2, 1, 0], [1, 0, 1, 2], [0, 0, 3, 1]):
        assert [decoder.decode([requests[at]]) for at in order] == [alone[at] for at in order]
    assert alone[0] == alone[3]  # greedy does not ask the seed


@backends
def test_cancelling_stops_within_a_burst_and_the_next_request_is_whole(
    engine: Engines, name: str
) -> None:
    decoder = engine(name)
    long = replace(SAMPLED, suppress=(SAMPLED.end,), limit=60)
    whole, calls = decoder.decode([long]), []

    def stop(emitted: int, budget: int) -> None:
        calls.append((emitted, budget))
        raise Cancelled("stop")

    with pytest.raises(Cancelled):
        decoder.decode([long], stop)
    assert len(calls) == 1
    assert calls[0][0] <= BURST + 1
    assert calls[0][1] == 60
    assert decoder.decode([long]) == whole
    ((timed,),) = decoder.decode([TIMED])
    assert timed.stop == "end"


@backends
def test_check_is_asked_every_burst(engine: Engines, name: str) -> None:
    seen: list[int] = []
    request = replace(PLAIN, suppress=(PLAIN.end,), limit=60, temperature=1.0, seed=1)
    ((found,),) = engine(name).decode([request], lambda emitted, budget: seen.append(emitted))
    assert len(found.tokens) == 60
    assert seen == sorted(seen)
    assert max(b - a for a, b in zip([0, *seen], seen, strict=False)) <= BURST
    assert seen[-1] == 60


@backends
def test_a_limit_stops(engine: Engines, name: str) -> None:
    whole = engine(name).decode([PLAIN])[0][0]
    for limit in (1, 5, BURST, BURST + 1):
        ((found,),) = engine(name).decode([replace(PLAIN, limit=limit)])
        assert found.tokens == whole.tokens[:limit]
        assert found.stop == ("length" if limit < len(whole.tokens) else "end")


@backends
def test_a_cache_filled_to_its_end(engine: Engines, name: str) -> None:
    decoder = engine(name)
    room = decoder.config.n_text_ctx - len(PLAIN.prompt)
    request = replace(PLAIN, suppress=(PLAIN.end,), limit=room, temperature=1.0, seed=4)
    ((found,),) = decoder.decode([request])
    assert (len(found.tokens), found.stop) == (room, "length")


@backends
def test_the_same_token_again_and_again_stops(engine: Engines, name: str) -> None:
    decoder = engine(name)
    others = tuple(id for id in range(decoder.config.n_vocab) if id != 65)
    ((found,),) = decoder.decode([replace(PLAIN, suppress=others, limit=60)])
    assert found.tokens == (65,) * REPEAT_LIMIT
    assert found.stop == "repeat"


@backends
def test_where_nothing_may_follow_the_window_ends(engine: Engines, name: str) -> None:
    decoder = engine(name)
    everything = tuple(range(decoder.config.n_vocab))
    ((found,),) = decoder.decode([replace(PLAIN, suppress=everything)])
    assert (found.tokens, found.stop, found.sum_logprob) == ((), "end", 0.0)


@pytest.mark.parametrize(
    ("prompt", "limit", "told"),
    [
        ((), 5, "1 to 71 tokens, not 0"),
        (tuple(range(72)), 1, "1 to 71 tokens, not 72"),
        (START, 70, "70 new tokens after a prompt of 3 do not fit; the model has room for 69"),
        (START, 0, "0 new tokens"),
    ],
)
def test_what_the_caches_cannot_hold_is_refused(
    engine: Engines, prompt: tuple[int, ...], limit: int, told: str
) -> None:
    decoder = engine("numpy")
    with pytest.raises(UsageError, match=told):
        decoder.decode([replace(PLAIN, prompt=prompt, limit=limit)])
    assert decoder.decode([PLAIN])[0][0].stop == "end"


@backends
def test_detection_chooses_among_the_ids_given(engine: Engines, name: str) -> None:
    decoder, codes = engine(name), ["en", "zh", "de", "es"]
    ids = [META["ids"][f"<|{code}|>"] for code in codes]
    others = tuple(id for id in range(decoder.config.n_vocab) if id not in ids)
    request = request_of(START[:1], suppress=others, suppress_first=(), limit=1)
    picked, shares = decoder.detect(request, ids)
    assert codes[ids.index(picked)] == META["detected_language"]
    for share, code in zip(shares, codes, strict=True):
        assert share == pytest.approx(META["language_probs"][code], abs=2e-3)


# -- numbers that are none ------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@backends
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_overflow_are_told(
    weights: WhisperWeights,
    golden: dict[str, Any],
    backend: Callable[[str], Any],
    name: str,
    value: float,
) -> None:
    assert weights.decoder is not None
    bias = weights.decoder.norm.bias.copy()
    bias[3] = value
    norm = replace(weights.decoder.norm, bias=bias)
    broken = Decoder(replace(weights, decoder=replace(weights.decoder, norm=norm)), backend(name))
    broken.encode([time_first(golden["mel"])])
    for call in (lambda: broken.decode([PLAIN]), lambda: broken.detect(PLAIN, [1, 2])):
        with pytest.raises(NonFiniteError, match=r"non-finite logits on ") as caught:
            call()
        message = str(caught.value)
        assert message.endswith(
            "the weights are damaged or not those of this model: fetch them again"
        )
        assert ("--device cpu" in message) == (broken.device != "NumPy")


@backends
def test_a_broken_window_is_told_and_forgotten(
    engine: Engines, golden: dict[str, Any], name: str
) -> None:
    decoder, mel = engine(name), time_first(golden["mel"])
    before = decoder.decode([TIMED])
    decoder.encode([np.full_like(mel, np.nan)])
    with pytest.raises(NonFiniteError):
        decoder.decode([TIMED])
    decoder.encode([mel])
    assert decoder.decode([TIMED]) == before


# -- the encoder ----------------------------------------------------------------------------------


@backends
def test_the_encoder_layer_by_layer(engine: Engines, golden: dict[str, Any], name: str) -> None:
    decoder, mel = engine(name), time_first(golden["mel"])
    stride = META["frame_stride_of_enc_stem_and_layers"]
    seen: dict[str, np.ndarray] = {}
    with probing(seen.__setitem__):
        encoded = decoder.encode_audio(mel)
    assert list(seen) == ["encoder.stem", "encoder.layer0", "encoder.layer1", "encoder.out"]
    assert np.array_equal(seen["encoder.out"], encoded)
    for name, found in seen.items():
        assert found.shape == (decoder.config.n_audio_ctx, decoder.config.n_audio_state)
        rows = found if name == "encoder.out" else found[::stride]
        wanted = golden[name.replace("encoder.", "enc_")]
        np.testing.assert_allclose(rows, wanted, rtol=2e-3, atol=2e-3)


@backends
def test_an_encoder_alone_and_one_without_its_last_norm(
    engine: Engines,
    weights: WhisperWeights,
    golden: dict[str, Any],
    backend: Callable[[str], Any],
    name: str,
) -> None:
    mel = time_first(golden["mel"])
    alone = Decoder(replace(weights, decoder=None), backend(name))
    np.testing.assert_allclose(alone.encode_audio(mel), golden["enc_out"], rtol=2e-3, atol=2e-3)
    bare = replace(weights, decoder=None, encoder=replace(weights.encoder, norm=None))
    found = Decoder(bare, backend(name)).encode_audio(mel)
    seen: dict[str, np.ndarray] = {}
    with probing(seen.__setitem__):
        engine(name).encode_audio(mel)
    assert np.array_equal(found, seen["encoder.layer1"])


@pytest.mark.parametrize("shape", [(220, 23), (219, 24), (24, 220)])
def test_a_window_of_another_size_is_refused(engine: Engines, shape: tuple[int, int]) -> None:
    decoder, mel = engine("numpy"), np.zeros(shape, np.float32)
    for call in (lambda: decoder.encode([mel]), lambda: decoder.encode_audio(mel)):
        with pytest.raises(UsageError, match=r"shape \(220, 24\)"):
            call()


def test_time_is_kept_by_stage(engine: Engines) -> None:
    decoder = engine("numpy")
    decoder.decode([TIMED])
    before = decoder.timings["decode"]
    decoder.decode([TIMED])
    assert decoder.timings["decode"] > before > 0
    assert decoder.timings["encode"] > 0
    assert decoder.trace() == {}


def test_an_engine_that_encodes_or_makes_new_room_holds_nothing(weights: WhisperWeights) -> None:
    decoder = Decoder(weights, Reference())
    decoder.held = "these"
    decoder.reserve(1, 3)  # more lines, the same windows
    assert decoder.held == "these"
    decoder.encode([np.zeros((weights.config.window_frames, weights.config.n_mels), np.float32)])
    assert decoder.held is None
    decoder.held = "these"
    decoder.reserve(2, 2)
    assert decoder.held is None


@pytest.mark.host
@backends
def test_the_encoder_alone_leaves_the_held_windows(
    engine: Engines, golden: dict[str, Any], name: str
) -> None:
    decoder, mel = engine(name), time_first(golden["mel"])
    before, stages = decoder.decode([TIMED]), set()
    decoder.encode_audio(np.roll(mel, 80, axis=0))
    with probing(lambda stage, values: stages.add(stage)):
        decoder.encode_audio(np.roll(mel, 80, axis=0))
    assert len(stages) == 4
    assert decoder.decode([TIMED]) == before
