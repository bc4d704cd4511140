"""Decoding one window, in NumPy and on a GPU: the same tokens, and nothing left of a request."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from oscine.engine.sequence import EncoderInput
from oscine.errors import (
    Cancelled,
    UsageError,
)
from oscine.models.whisper import sequences
from oscine.models.whisper.executors import STEPS_PER_POLL, DecodingExecutor
from oscine.models.whisper.repetition import MAX_TOKEN_REPEATS
from oscine.models.whisper.runner import WhisperRunner
from oscine.models.whisper.sequences import (
    LOOP_CHECK_TOKENS,
    AlignmentSequence,
    DecodingRequest,
    DecodingSequence,
    LanguageSequence,
)
from oscine.models.whisper.weights import WhisperWeights
from oscine.probe import probing
from tests.engine.by_hand import ByHand

from .golden import (
    BEAMS,
    CONTEXT,
    META,
    PLAIN,
    SAMPLED,
    START,
    TIMED,
    Backends,
    Decoding,
    Engines,
    Windows,
    backends,
    request_of,
    results,
    side_by_side,
    time_first,
    tokens_of,
)

# -- the tokens -----------------------------------------------------------------------------------


@backends
@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("case", ["greedy_nots", "greedy_ts"])
def test_greedy_tokens_of_the_upstream_program(
    engine: Engines,
    windows: Windows,
    golden: dict[str, Any],
    name: str,
    exact: bool,
    case: str,
) -> None:
    request = request_of(golden[f"{case}_prompt"], timestamps=case == "greedy_ts")
    ((found,),) = results(engine(name, exact=exact), DecodingSequence(windows[0], request))
    assert list(found.tokens) == golden[f"{case}_tokens"].tolist()
    assert found.sum_logprob == pytest.approx(META[case]["sum_logprob"], abs=0.02)
    assert found.avg_logprob == pytest.approx(META[case]["avg_logprob"], abs=1e-3)
    assert found.finish_reason == "end"


@pytest.mark.host
@pytest.mark.gpu
@pytest.mark.parametrize(
    "request_",
    [
        TIMED,
        CONTEXT,
        replace(TIMED, max_initial_timestamp_index=None),
        replace(PLAIN, suppress_tokens=(), begin_suppress_tokens=(), max_new_tokens=60),
        replace(TIMED, temperature=0.7, seed=5),
        replace(PLAIN, temperature=1.0, seed=2**32 - 1),
        SAMPLED,
    ],
    ids=["timed", "context", "any first time", "long", "0.7", "1.0", "best of 4"],
)
def test_a_gpu_picks_what_numpy_picks(decode: Decoding, request_: DecodingRequest) -> None:
    (expected,), (found,) = (decode(name, request_) for name in ("numpy", "gpu"))
    assert len(expected[0].tokens) > 3
    assert [row.tokens for row in found] == [row.tokens for row in expected]
    assert [row.finish_reason for row in found] == [row.finish_reason for row in expected]
    for a, b in zip(expected, found, strict=True):
        assert b.sum_logprob == pytest.approx(a.sum_logprob, abs=1e-3)
        assert b.no_speech_prob == pytest.approx(a.no_speech_prob, rel=1e-3)


@backends
def test_timestamps_come_in_pairs_and_rise(decode: Decoding, name: str) -> None:
    begin = TIMED.timestamp_begin
    for row in decode(name, replace(SAMPLED, max_new_tokens=60))[0]:
        assert begin <= row.tokens[0] <= begin + META["max_initial_timestamp_index"]
        stamps = [token for token in row.tokens if token >= begin]
        assert stamps == sorted(stamps)
        inner = "".join("t" if token >= begin else "." for token in row.tokens[1:])
        assert "ttt" not in inner
        assert not set(row.tokens) & set(TIMED.suppress_tokens)


@backends
def test_rows_differ_and_a_seed_makes_them_again(decode: Decoding, name: str) -> None:
    first, again = decode(name, SAMPLED, SAMPLED)
    assert first == again
    assert len({row.tokens for row in first}) == 4
    (other,) = decode(name, replace(SAMPLED, seed=12))
    assert {row.tokens for row in other}.isdisjoint(row.tokens for row in first)
    (alone,) = decode(name, replace(SAMPLED, best_of=1))
    assert alone[0].tokens == first[0].tokens  # the first row has the seed itself
    assert len({row.no_speech_prob for row in first}) == 1  # all rows read the same prompt


# -- side by side ---------------------------------------------------------------------------------


def in_float32(golden_weights: WhisperWeights) -> WhisperWeights:
    """Weights with a float32 embedding, so that cross keys and values are not rounded."""
    decoder = golden_weights.decoder
    assert decoder is not None
    return replace(
        golden_weights,
        decoder=replace(decoder, token_embedding=decoder.token_embedding.astype(np.float32)),
    )


@pytest.mark.host
@backends
def test_windows_side_by_side_are_as_each_alone(
    engine: Engines, windows: Windows, name: str
) -> None:
    requests = [TIMED, CONTEXT, replace(TIMED, max_new_tokens=7), replace(TIMED, seed=9)]
    together = side_by_side(engine(name), windows, requests)
    alone = [
        results(engine(name), DecodingSequence(*pair))[0]
        for pair in zip(windows, requests, strict=True)
    ]
    assert [[row.tokens for row in rows] for rows in together] == [
        [row.tokens for row in rows] for rows in alone
    ]
    assert [rows[0].finish_reason for rows in together] == [rows[0].finish_reason for rows in alone]
    assert len({rows[0].tokens for rows in together}) > 1  # windows do differ
    for rows, other in zip(together, alone, strict=True):
        assert rows[0].sum_logprob == pytest.approx(other[0].sum_logprob, abs=1e-3)
        assert rows[0].no_speech_prob == pytest.approx(other[0].no_speech_prob, rel=1e-3)


SEARCHES = [
    BEAMS,
    replace(BEAMS, max_candidates=6),
    replace(BEAMS, max_candidates=2),
    replace(BEAMS, max_new_tokens=4),
    replace(CONTEXT, beam_size=3, max_candidates=3),
    replace(PLAIN, repetition_penalty=1.3, max_new_tokens=40),
    replace(PLAIN, no_repeat_ngram_size=2, suppress_tokens=(), max_new_tokens=40),
    replace(BEAMS, repetition_penalty=1.2, no_repeat_ngram_size=3),
]


@pytest.mark.host
@pytest.mark.gpu
@pytest.mark.parametrize("request_", SEARCHES)
def test_a_gpu_finds_what_numpy_finds(
    engine: Engines, windows: Windows, request_: DecodingRequest
) -> None:
    order = [windows[at] for at in (2, 0, 1)]
    plain, expected, found = (
        side_by_side(engine(name, exact=False), order, [request_] * 3)
        for name in ("numpy", "halved", "gpu")
    )
    assert [[row.tokens for row in rows] for rows in found] == [
        [row.tokens for row in rows] for rows in plain
    ]
    for ours, theirs in zip(expected, found, strict=True):
        assert [row.tokens for row in theirs] == [row.tokens for row in ours]
        for a, b in zip(ours, theirs, strict=True):
            assert b.sum_logprob == pytest.approx(a.sum_logprob, abs=1e-3)
            assert b.finish_reason == a.finish_reason


@backends
def test_beams_find_likelier_text_than_greed(decode: Decoding, name: str) -> None:
    (greedy,), beams, again = decode(name, PLAIN, BEAMS, BEAMS)
    assert len(beams) == 4
    assert len({row.tokens for row in beams}) == 4
    ended = [row for row in beams if row.finish_reason == "end"]
    assert max(row.sum_logprob for row in ended) >= greedy.sum_logprob - 1e-3
    assert again == beams  # and nothing is left of a search


@backends
def test_one_beam_is_greedy(decode: Decoding, name: str) -> None:
    one, greedy = decode(name, replace(PLAIN, beam_size=1, max_candidates=1), PLAIN)
    assert one == greedy


@backends
def test_no_run_of_tokens_comes_twice(decode: Decoding, name: str) -> None:
    request = replace(
        PLAIN, no_repeat_ngram_size=2, suppress_tokens=(PLAIN.eot,), max_new_tokens=50
    )
    ((row,),) = decode(name, request)
    pairs = [pair for pair in zip(row.tokens, row.tokens[1:], strict=False) if pair[1] < PLAIN.eot]
    assert len(pairs) == len(set(pairs)) > 10


@pytest.mark.host
@backends
def test_room_grows_and_what_is_encoded_stays(
    golden_weights: WhisperWeights, backend: Backends, windows: Windows, name: str
) -> None:
    hand = ByHand(WhisperRunner(golden_weights, backend(name)))
    before = results(hand, DecodingSequence(windows[2], TIMED))
    encoded, encode = [], hand.runner.encode

    def counted(inputs: Any, encoder_slots: Any) -> None:
        encoded.extend(inputs)
        encode(inputs, encoder_slots)

    hand.runner.encode = counted
    assert (hand.runner.memory.encoder_slots, hand.runner.memory.slots) == (1, 1)
    # The first is in the middle of its text when the memory grows under it.
    running = hand.submit(
        DecodingSequence(
            windows[2], replace(CONTEXT, suppress_tokens=(PLAIN.eot,), max_new_tokens=40)
        )
    )
    hand.run_iteration()
    more = [
        DecodingSequence(one, replace(TIMED, temperature=0.5, best_of=3)) for one in windows[:2]
    ]
    results(hand, *more)
    assert (hand.runner.memory.encoder_slots, hand.runner.memory.slots) == (4, 8)
    assert results(hand, DecodingSequence(windows[2], TIMED)) == before
    assert encoded == windows[:2]
    (alone,) = results(hand, DecodingSequence(windows[2], running.request))
    assert [row.tokens for row in running.result(0)] == [row.tokens for row in alone]


@pytest.mark.gpu
def test_keys_and_values_are_float16_where_weights_are(
    golden_weights: WhisperWeights, gpu: Any
) -> None:
    for given, kind in ((golden_weights, np.float16), (in_float32(golden_weights), np.float32)):
        runner = WhisperRunner(given, gpu)
        fits = runner.max_batch_size(1)
        runner.reserve(2, 2)
        slots = *runner.memory.cross_kv, runner.encoder.plan(1).cross_kv
        assert {slot.dtype for slot in slots} == {np.dtype(kind)}
        assert runner.max_batch_size(1) == fits


@pytest.mark.host
@backends
def test_more_requests_than_slots_take_turns(
    golden_weights: WhisperWeights, backend: Backends, windows: Windows, name: str
) -> None:
    hand = ByHand(WhisperRunner(golden_weights, backend(name)), max_slots=4)
    long = replace(TIMED, suppress_tokens=(*TIMED.suppress_tokens, TIMED.eot), max_new_tokens=60)
    found = results(hand, *(DecodingSequence(windows[at % 4], long) for at in range(6)))
    assert hand.occupancy.max_sequences == hand.runner.memory.slots == 4
    # Not to the last bit: other numbers of rows take other kernels.
    assert [rows[0].tokens for rows in found[:2]] == [rows[0].tokens for rows in found[4:]]
    for first, again in zip(found[:2], found[4:], strict=True):
        assert again[0].sum_logprob == pytest.approx(first[0].sum_logprob, abs=1e-3)


@backends
def test_alignment_is_the_upstream_programs(
    engine: Engines, windows: Windows, golden: dict[str, Any], name: str
) -> None:
    hand, text = engine(name), golden["greedy_nots_tokens"].tolist()
    prompt = (*PLAIN.prompt, *text, PLAIN.eot)
    frames = META["own_align"]["num_frames"] // 2
    (found,) = results(hand, AlignmentSequence(windows[0], prompt, PLAIN.eot, frames))
    assert found.weights.shape[1:] == (len(prompt), frames)
    assert found.weights.sum(-1) == pytest.approx(1, abs=1e-4)
    start = len(PLAIN.prompt) - 1
    shares = found.probabilities[start : start + len(text)]
    assert shares == pytest.approx(golden["own_align_prob"], abs=1e-3)
    whole, more = (
        results(hand, AlignmentSequence(windows[0], prompt, PLAIN.eot, frames))[0]
        for frames in (110, 999)
    )
    np.testing.assert_array_equal(more.weights, whole.weights)  # at most 110
    with pytest.raises(UsageError, match="cannot be aligned"):
        hand.submit(AlignmentSequence(windows[0], (1,) * 73, PLAIN.eot, 5))


@pytest.mark.host
@pytest.mark.gpu
def test_a_gpu_aligns_other_windows_as_numpy_does(
    golden_weights: WhisperWeights, backend: Backends, windows: Windows
) -> None:
    prompt, given = (*PLAIN.prompt, 70, 80, 90, PLAIN.eot), in_float32(golden_weights)
    ours, theirs = (
        results(
            ByHand(WhisperRunner(given, backend(name))),
            *(AlignmentSequence(audio, prompt, PLAIN.eot, 37) for audio in windows),
        )
        for name in ("numpy", "gpu")
    )
    for our, their in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(their.weights, our.weights, atol=1e-5)
        np.testing.assert_allclose(their.probabilities, our.probabilities, atol=1e-5)
    assert np.abs(ours[0].weights - ours[3].weights).max() > 1e-3


# -- requests and their limits --------------------------------------------------------------------


@backends
def test_a_request_leaves_nothing_behind(decode: Decoding, name: str) -> None:
    requests = (
        TIMED,
        replace(PLAIN, suppress_tokens=(), max_new_tokens=3),
        CONTEXT,
        replace(TIMED, seed=3),
    )
    alone = decode(name, *requests)
    for order in ([3, 2, 1, 0], [1, 0, 1, 2], [0, 0, 3, 1]):
        assert decode(name, *(requests[at] for at in order)) == [alone[at] for at in order]
    assert alone[0] == alone[3]  # greedy does not ask the seed


@backends
def test_cancelling_stops_at_the_next_poll_and_the_next_request_is_whole(
    engine: Engines, decode: Decoding, windows: Windows, name: str
) -> None:
    hand, long = engine(name), replace(SAMPLED, suppress_tokens=(SAMPLED.eot,), max_new_tokens=60)
    whole = decode(name, long)
    given_up = hand.submit(DecodingSequence(windows[0], long))
    hand.run_iteration()
    assert hand.running == 1
    given_up.cancel()
    hand.run_iteration()
    assert isinstance(given_up.exception(0), Cancelled) and not hand.has_work
    rows = hand.runner.backend.read(hand.runner.executor(given_up.batch_key).rows)
    assert rows["done"].all() and rows["count"][:4].max() <= 2 * STEPS_PER_POLL + 1
    assert decode(name, long) == whole
    assert decode(name, TIMED)[0][0].finish_reason == "end"


@backends
def test_the_state_is_read_every_burst(
    engine: Engines, decode: Decoding, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    seen: list[int] = []
    executor = engine(name).runner.executor(("decode", 1, 0))
    collect = executor.collect

    def looking(looks: Any, arrays: Any) -> Any:
        seen.extend(int(arrays[0][row]["count"]) for _, row in looks)
        return collect(looks, arrays)

    monkeypatch.setattr(executor, "collect", looking)
    request = replace(
        PLAIN, suppress_tokens=(PLAIN.eot,), max_new_tokens=60, temperature=1.0, seed=1
    )
    ((found,),) = decode(name, request)
    assert len(found.tokens) == 60
    assert seen == sorted(seen)
    assert max(b - a for a, b in zip([1, *seen], seen, strict=False)) <= STEPS_PER_POLL
    assert seen[-1] == 60


@backends
def test_a_limit_stops(decode: Decoding, name: str) -> None:
    ((whole,),) = decode(name, PLAIN)
    for limit in (1, 5, STEPS_PER_POLL, STEPS_PER_POLL + 1):
        ((found,),) = decode(name, replace(PLAIN, max_new_tokens=limit))
        assert found.tokens == whole.tokens[:limit]
        assert found.finish_reason == ("length" if limit < len(whole.tokens) else "end")


@backends
def test_a_cache_filled_to_its_end(engine: Engines, decode: Decoding, name: str) -> None:
    room = engine(name).runner.config.n_text_ctx - len(PLAIN.prompt)
    request = replace(
        PLAIN, suppress_tokens=(PLAIN.eot,), max_new_tokens=room, temperature=1.0, seed=4
    )
    ((found,),) = decode(name, request)
    assert (len(found.tokens), found.finish_reason) == (room, "length")


@backends
def test_the_same_token_again_and_again_stops(decode: Decoding, name: str) -> None:
    others = tuple(id for id in range(META["vocab_size"]) if id != 65)
    ((found,),) = decode(name, replace(PLAIN, suppress_tokens=others, max_new_tokens=60))
    assert found.tokens == (65,) * MAX_TOKEN_REPEATS
    assert found.finish_reason == "repeat"


@backends
def test_a_loop_ends_at_the_same_token_whenever_the_state_is_read(
    engine: Engines, windows: Windows, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(sequences, "ends_in_loop", lambda tokens, end: len(tokens) > 20)
    hand, plain = (
        engine(name),
        replace(SAMPLED, suppress_tokens=(PLAIN.eot,), max_new_tokens=60, best_of=2),
    )
    loop, whole = (
        replace(plain, stop_loops=True),
        results(hand, DecodingSequence(windows[0], plain))[0],
    )
    assert [row.finish_reason for row in whole] == ["length"] * 2
    for burst in (1, 7, STEPS_PER_POLL):
        monkeypatch.setattr(DecodingExecutor, "steps_per_poll", burst)
        (alone,) = results(hand, DecodingSequence(windows[0], loop))
        beside, other = results(
            hand, DecodingSequence(windows[0], loop), DecodingSequence(windows[0], plain)
        )
        for found in (alone, beside):
            assert [row.finish_reason for row in found] == ["repeat"] * 2
            assert [row.tokens for row in found] == [
                row.tokens[: 2 * LOOP_CHECK_TOKENS] for row in whole
            ]
        assert [row.tokens for row in other] == [row.tokens for row in whole]


@backends
def test_where_nothing_may_follow_the_window_ends(decode: Decoding, name: str) -> None:
    everything = tuple(range(META["vocab_size"]))
    ((found,),) = decode(name, replace(PLAIN, suppress_tokens=everything))
    assert (found.tokens, found.finish_reason, found.sum_logprob) == ((), "end", 0.0)


@pytest.mark.parametrize(
    ("prompt", "limit", "told"),
    [
        ((), 5, "1 to 71 tokens, not 0"),
        (tuple(range(72)), 1, "1 to 71 tokens, not 72"),
        (START, 70, "70 new tokens after a prompt of 3 do not fit; the model has room for 69"),
        (START, 0, "0 new tokens"),
        ((1, 434), 1, "434 is not a token id; this model has 0 to 433"),
    ],
)
def test_what_the_caches_cannot_hold_is_refused(
    decode: Decoding, prompt: tuple[int, ...], limit: int, told: str
) -> None:
    with pytest.raises(UsageError, match=told):
        decode("numpy", replace(PLAIN, prompt=prompt, max_new_tokens=limit))
    assert decode("numpy", PLAIN)[0][0].finish_reason == "end"


@backends
def test_detection_chooses_among_the_languages(
    engine: Engines, windows: Windows, golden_weights: WhisperWeights, name: str
) -> None:
    tokens = tokens_of(golden_weights)
    one, *others = results(engine(name), *(LanguageSequence(audio, tokens) for audio in windows))
    shares = dict(zip(tokens.languages, one, strict=True))
    assert max(shares, key=lambda code: shares[code]) == META["detected_language"]
    assert shares == pytest.approx(META["language_probs"], abs=2e-3)
    for audio, found in zip(windows[1:], others, strict=True):  # beside others as alone
        (alone,) = results(engine(name), LanguageSequence(audio, tokens))
        assert found == pytest.approx(alone, abs=1e-4)
        assert found.sum() == pytest.approx(1, abs=1e-5)


# -- the encoder ----------------------------------------------------------------------------------


@backends
def test_the_encoder_layer_by_layer(
    engine: Engines, windows: Windows, golden: dict[str, Any], name: str
) -> None:
    runner, mel = engine(name).runner, windows[0].features
    stride = META["frame_stride_of_enc_stem_and_layers"]
    seen: dict[str, np.ndarray] = {}
    with probing(seen.__setitem__):
        encoded = runner.encode_one(mel)
    assert list(seen) == ["encoder.stem", "encoder.layer0", "encoder.layer1", "encoder.out"]
    assert np.array_equal(seen["encoder.out"], encoded)
    for name, found in seen.items():
        assert found.shape == (runner.config.n_audio_ctx, runner.config.n_audio_state)
        rows = found if name == "encoder.out" else found[::stride]
        wanted = golden[name.replace("encoder.", "enc_")]
        np.testing.assert_allclose(rows, wanted, rtol=2e-3, atol=2e-3)


@backends
def test_an_encoder_alone_and_one_without_its_last_norm(
    engine: Engines,
    golden_weights: WhisperWeights,
    golden: dict[str, Any],
    backend: Backends,
    name: str,
) -> None:
    mel = time_first(golden["mel"])
    alone = WhisperRunner(replace(golden_weights, decoder=None), backend(name))
    np.testing.assert_allclose(alone.encode_one(mel), golden["enc_out"], rtol=2e-3, atol=2e-3)
    bare = replace(
        golden_weights, decoder=None, encoder=replace(golden_weights.encoder, ln_post=None)
    )
    found = WhisperRunner(bare, backend(name)).encode_one(mel)
    seen: dict[str, np.ndarray] = {}
    with probing(seen.__setitem__):
        engine(name).runner.encode_one(mel)
    assert np.array_equal(found, seen["encoder.layer1"])


@pytest.mark.parametrize("shape", [(220, 23), (219, 24), (24, 220)])
def test_a_window_of_another_size_is_refused(engine: Engines, shape: tuple[int, int]) -> None:
    hand, mel = engine("numpy"), np.zeros(shape, np.float32)
    for call in (
        lambda: hand.submit(DecodingSequence(EncoderInput(mel), PLAIN)),
        lambda: hand.runner.encode_one(mel),
    ):
        with pytest.raises(UsageError, match=r"shape \(220, 24\)"):
            call()


def test_time_is_kept_by_stage(engine: Engines, decode: Decoding) -> None:
    decode("numpy", TIMED)
    timings = engine("numpy").runner.timings
    before = timings["decode"]
    decode("numpy", TIMED)
    assert timings["decode"] > before > 0
    assert timings["encode"] > 0
    assert engine("numpy").runner.trace() == {}


@pytest.mark.host
@backends
def test_the_encoder_alone_leaves_the_encoded_windows(
    engine: Engines, decode: Decoding, windows: Windows, name: str
) -> None:
    before, stages, hand = decode(name, TIMED), set(), engine(name)
    other = np.roll(windows[0].features, 80, axis=0)
    hand.runner.encode_one(other)
    with probing(lambda stage, values: stages.add(stage)):
        hand.runner.encode_one(other)
    assert len(stages) == 4
    assert decode(name, TIMED) == before
