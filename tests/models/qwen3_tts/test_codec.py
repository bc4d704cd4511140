"""The codec: chunks of any size equal one pass, upstream's arrays, and refused input."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oscine.errors import NonFiniteError, UsageError
from oscine.models.loader import ArrayLoader, Loader, ShapeCheckLoader
from oscine.models.padding import pad_to_multiple
from oscine.models.qwen3_tts import codec, codec_runner, layers
from oscine.models.qwen3_tts.codec_runner import CodecDecoder, CodecEncoder, CodecStream
from oscine.models.qwen3_tts.codec_weights import DecoderBlock, decoder_block, load_codec
from oscine.models.qwen3_tts.rope import rope_table
from oscine.ops import TALKER_STATE, Linear, TalkerState
from oscine.ops.reference import Reference
from oscine.types import Audio
from oscine.weights import LazyTensor

GOLDEN = Path(__file__).resolve().parents[2] / "goldens" / "qwen3_tts" / "codec"
CONFIG, DECODER, ENCODER = load_codec(GOLDEN / "ckpt")
ROUNDING = 1e-5  # between two ways to cut, whose sums differ in order

with np.load(GOLDEN / "expected.npz") as _stored:
    ARRAYS = dict(_stored)


def pool(*calls: int, weights: Any = DECODER, backend: Any = None) -> CodecDecoder:
    return CodecDecoder(weights, CONFIG, backend or Reference(), calls or (64, 16, 4, 1))


def decoder(*calls: int, **options: Any) -> CodecStream:
    return CodecStream(pool(*calls, **options))


def near(found: np.ndarray, want: np.ndarray, limit: float = 1e-4) -> None:
    np.testing.assert_allclose(found, want, rtol=0, atol=limit)


# -- codes to waveform ------------------------------------------------------------------------


def test_decodes_as_upstream() -> None:
    d = decoder()
    near(d.decode(ARRAYS["dec_codes"]), ARRAYS["dec_wav"])
    d.reset()
    whole = d.decode(ARRAYS["long_codes"])
    near(whole, ARRAYS["long_wav_whole"])
    assert whole.dtype == np.float32
    assert d.position == len(ARRAYS["long_codes"])


def test_chunks_are_upstreams() -> None:
    codes, d = ARRAYS["long_codes"], decoder(8, 1)
    near(d.chunked_decode(codes, 7, 3), ARRAYS["long_wav_chunk7_ctx3"])
    assert np.abs(d.chunked_decode(codes, 7, 3) - ARRAYS["long_wav_whole"]).max() > 0.01
    d.reset()
    near(d.chunked_decode(codes, len(codes), 3), ARRAYS["long_wav_whole"])
    longest = d.chunked_decode(ARRAYS["xl_codes"])
    near(longest[::37], ARRAYS["xl_wav_every37"])


@settings(max_examples=12)
@given(st.data())
def test_any_cut_into_calls_gives_the_whole(data: Any) -> None:
    codes = ARRAYS["long_codes"]
    calls = data.draw(st.sets(st.integers(2, 26), max_size=3)) | {1}
    d, pieces, start = decoder(*calls), [], 0
    while start < len(codes):
        step = data.draw(st.integers(1, len(codes) - start))
        pieces.append(d.decode(codes[start : start + step]))
        start += step
    near(np.concatenate(pieces), ARRAYS["long_wav_whole"])


def test_what_was_begun_may_be_awaited_later() -> None:
    codes, d = ARRAYS["long_codes"], decoder(4, 1)
    waiting = [d.submit(codes[:9]), d.submit(codes[9:])]
    near(np.concatenate([wait() for wait in waiting]), ARRAYS["long_wav_whole"])


def test_a_reference_lies_before_what_is_heard() -> None:
    codes, d = ARRAYS["long_codes"], decoder()
    d.warm_up(codes[:11])
    near(d.decode(codes[11:]), ARRAYS["long_wav_whole"][11 * CONFIG.hop_length :])


def test_a_saved_stream_goes_on_as_often_as_one_likes() -> None:
    codes, d = ARRAYS["long_codes"], decoder()
    d.warm_up(codes[:11])
    saved = d.save_state()
    for between in (codes, codes[:3]):
        d.decode(between)
        d.restore_state(saved)
        near(d.decode(codes[11:]), ARRAYS["long_wav_whole"][11 * CONFIG.hop_length :])


def test_reset_leaves_no_trace() -> None:
    d = decoder(16, 1)
    first = d.decode(ARRAYS["long_codes"])
    d.reset()
    np.testing.assert_array_equal(d.decode(ARRAYS["long_codes"]), first)


def test_goes_on_past_the_tables_it_began_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec_runner, "INITIAL_POSITIONS", 6)
    d, codes = decoder(4, 1), ARRAYS["long_codes"]
    found = np.concatenate([d.decode(codes[:5]), d.decode(codes[5:8]), d.decode(codes[8:])])
    near(found, ARRAYS["long_wav_whole"])
    assert d.decoder.max_positions > len(codes)


def test_the_waveform_is_clamped() -> None:
    loud = replace(DECODER, conv_out=Linear(DECODER.conv_out.weight * 50, DECODER.conv_out.bias))
    wave = decoder(weights=loud).decode(ARRAYS["dec_codes"])
    assert wave.min() == -1.0
    assert wave.max() == 1.0


def test_damaged_weights_are_no_sound() -> None:
    damaged = replace(
        DECODER, conv_out=Linear(DECODER.conv_out.weight * np.nan, DECODER.conv_out.bias)
    )
    with pytest.raises(NonFiniteError, match="not finite; the weights are damaged"):
        decoder(weights=damaged).decode(ARRAYS["dec_codes"])


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        (np.zeros(6, int), r"codes must be \[frames, 6\], at least one frame, not \[6\]"),
        (np.zeros((3, 5), int), r"not \[3, 5\]"),
        (np.zeros((0, 6), int), r"at least one frame, not \[0, 6\]"),
        (np.zeros((2, 6), np.float32), "codes must be whole numbers, not float32"),
        (np.zeros((2, 6), bool), "codes must be whole numbers, not bool"),
        (np.full((2, 6), -1), "codes must be 0 to 31, not -1"),
        (np.full((2, 6), 32, np.uint64), "codes must be 0 to 31, not 32"),
        ([], "at least one frame"),
    ],
)
def test_codes_that_are_none_are_refused(codes: Any, message: str) -> None:
    d = decoder()
    for use in (d.decode, d.warm_up, d.chunked_decode):
        with pytest.raises(UsageError, match=message) as caught:
            use(codes)
        assert "\n" not in str(caught.value)
    assert d.position == 0


def test_calls_need_one_of_one_frame() -> None:
    with pytest.raises(ValueError, match="must include 1"):
        decoder(4, 2)


# -- several voices ---------------------------------------------------------------------------

VOICES = 3
#: Of each voice, its codes and the samples that they are alone.
STREAMS = [np.roll(ARRAYS["long_codes"], voice, axis=0) for voice in range(VOICES)]
ALONE = [decoder(1).decode(codes) for codes in STREAMS]


def pieces_of(voice: int, start: int, stop: int) -> np.ndarray:
    """Samples of some frames of a voice alone."""
    found: np.ndarray = ALONE[voice][start * CONFIG.hop_length : stop * CONFIG.hop_length]
    return found


@settings(max_examples=15)
@given(st.data())
def test_each_voice_sounds_as_alone(data: Any) -> None:
    """Voices that come, pause, end and come again, in calls of any length."""
    d = pool(*data.draw(st.sets(st.integers(2, 12), max_size=2)), 1)
    slots = {voice: d.acquire_slot() for voice in data.draw(st.permutations(range(VOICES)))}
    for _ in range(data.draw(st.integers(1, 8))):
        chosen = data.draw(st.lists(st.sampled_from(sorted(slots)), min_size=1, unique=True))
        starts = {voice: d.positions[slots[voice]] for voice in chosen}
        left = min(len(STREAMS[voice]) - start for voice, start in starts.items())
        frames = data.draw(st.integers(1, left)) if left else 0
        if frames:
            codes = [STREAMS[v][start : start + frames] for v, start in starts.items()]
            found = d.decode([slots[voice] for voice in chosen], codes)
            assert found.shape == (len(chosen), frames * CONFIG.hop_length)
            for samples, (voice, start) in zip(found, starts.items(), strict=True):
                near(samples, pieces_of(voice, start, start + frames), ROUNDING)
        if data.draw(st.booleans()):
            gone = data.draw(st.sampled_from(chosen))
            d.release_slot(slots[gone])
            slots[gone] = d.acquire_slot()


def beside(d: CodecDecoder, row: int, voice: int, others: Any, frames: int) -> np.ndarray:
    """The first frames of a voice in row `row` of calls that `others`, two (voice, position),
    share; calls of two frames."""
    slots = [d.acquire_slot() for _ in range(VOICES)]
    codes = [STREAMS[v][first:] for v, first in others]
    for slot, (v, first) in zip(slots[1:], others, strict=True):
        if first:
            d.warm_up([slot], [STREAMS[v][:first]])
    slots, codes = [*slots[1:], slots[0]], [*codes, STREAMS[voice]]
    slots.insert(row, slots.pop())
    codes.insert(row, codes.pop())
    found = []
    for start in range(0, frames, 2):
        found.append(d.decode(slots, [own[start : start + 2] for own in codes])[row])
    for slot in slots:
        d.release_slot(slot)
    return np.concatenate(found)


@pytest.mark.parametrize("row", range(VOICES))
def test_neighbours_change_no_bit_of_a_voice(row: int) -> None:
    d = pool(2, 1)
    first = beside(d, row, 0, ((1, 0), (2, 0)), 12)
    for others in (((2, 5), (1, 9)), ((0, 3), (0, 0))):
        np.testing.assert_array_equal(beside(d, row, 0, others, 12), first)
    near(first, pieces_of(0, 0, 12), ROUNDING)


def test_a_slot_that_was_used_is_as_a_fresh_one() -> None:
    d = pool(4, 1)
    slot = d.acquire_slot()
    first = d.decode([slot], [STREAMS[0]])
    d.release_slot(slot)
    assert d.acquire_slot() == slot
    d.decode([slot], [STREAMS[1][:7]])
    d.reset(slot)
    np.testing.assert_array_equal(d.decode([slot], [STREAMS[0]]), first)


def test_voices_continue_while_there_come_to_be_more() -> None:
    d = pool(4, 1)
    slots = [d.acquire_slot()]
    found = d.decode(slots, [STREAMS[0][:5]])
    taken = d.states.bytes_per_slot()
    slots += [d.acquire_slot() for _ in range(4)]
    assert len({*slots}) == 5 <= d.states.slots
    assert d.states.bytes_per_slot() == taken > 0
    rest = d.decode(slots, [STREAMS[0][5:10], *[STREAMS[1][:5]] * 4])
    near(np.concatenate([found[0], rest[0]]), pieces_of(0, 0, 10), ROUNDING)
    for samples in rest[1:]:
        near(samples, pieces_of(1, 0, 5), ROUNDING)


def test_no_room_for_more_voices_leaves_those_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    d = pool(4, 1)
    slot, room = d.acquire_slot(), iter(range(5))
    found = [d.decode([slot], [STREAMS[0][:5]])]

    def no_room(shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray:
        if next(room, None) is None:
            raise MemoryError
        return np.zeros(shape, dtype)

    with monkeypatch.context() as patch:
        patch.setattr(d.backend, "zeros", no_room)
        with pytest.raises(MemoryError):
            d.acquire_slot()
    found.append(d.decode([slot], [STREAMS[0][5:9]]))
    near(np.concatenate(found, axis=1)[0], pieces_of(0, 0, 9), ROUNDING)
    assert d.acquire_slot() != slot


def test_a_voice_can_continue_from_where_another_is() -> None:
    d = pool(4, 1)
    source, target = d.acquire_slot(), d.acquire_slot()
    d.warm_up([source], [STREAMS[0][:9]])
    d.decode([target], [STREAMS[1][:4]])
    d.copy(source, target)
    found = d.decode([target, source], [STREAMS[0][9:14]] * 2)
    for samples in found:
        near(samples, pieces_of(0, 9, 14), ROUNDING)


def test_many_voices_take_shorter_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec_runner, "MAX_BATCH_FRAMES", 8)
    d = pool(16, 4, 1)
    found = d.decode([d.acquire_slot(), d.acquire_slot()], [STREAMS[0][:9], STREAMS[1][:9]])
    near(found[1], pieces_of(1, 0, 9), ROUNDING)
    assert sorted(d.recorded) == [(1, 2), (4, 2)]


def test_a_call_has_no_tensor_larger_than_the_device_binds() -> None:
    frame = (
        4 * CONFIG.hop_length * (CONFIG.decoder.decoder_dim >> len(CONFIG.decoder.upsample_rates))
    )
    assert codec_runner.max_batch_frames(CONFIG, 1 << 62) == codec_runner.MAX_BATCH_FRAMES
    for frames in (2, 9, 100):
        most = codec_runner.max_batch_frames(CONFIG, frames * frame)
        assert 0 < most < frames
    assert codec_runner.max_batch_frames(CONFIG, 1) == 1


def test_voices_need_a_slot_each() -> None:
    d = pool(1)
    slot = d.acquire_slot()
    for slots in ([slot, slot], [slot]):
        with pytest.raises(ValueError, match="2 voices need 2 different slots"):
            d.decode(slots, [STREAMS[0][:2], STREAMS[1][:2]])
    assert d.positions[slot] == 0


# -- waveform to codes ------------------------------------------------------------------------


@pytest.mark.parametrize("frames", [1, 3, 25])
@pytest.mark.parametrize("case", ["enc", "encshort", "encexact"])
def test_codes_are_upstreams(case: str, frames: int) -> None:
    encoder = CodecEncoder(ENCODER, CONFIG, Reference(), frames)
    for _ in range(2):  # and nothing stays of the first time
        found = encoder.encode(ARRAYS[f"{case}_wav"])
        np.testing.assert_array_equal(found, ARRAYS[f"{case}_codes"])
    assert found.dtype == np.uint32


def test_a_long_reference_is_heard_as_in_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec_runner, "INITIAL_ENCODER_ROWS", 4)
    samples = np.random.default_rng(3).normal(0, 0.3, CONFIG.hop_length * 41 + 7).astype(np.float32)
    encoder = CodecEncoder(ENCODER, CONFIG, Reference(), 4)
    short = encoder.encode(samples[: CONFIG.hop_length])
    whole = CodecEncoder(ENCODER, CONFIG, Reference(), 64).encode(samples)
    np.testing.assert_array_equal(encoder.encode(Audio(samples, 24000)), whole)
    assert whole.shape == (42, CONFIG.num_code_groups)
    assert short.shape == (1, CONFIG.num_code_groups)


@pytest.mark.parametrize(
    ("samples", "error", "message"),
    [
        (np.zeros(0, np.float32), UsageError, "has 0 samples; it needs 1 or more"),
        (np.zeros((9, 2), np.float32), UsageError, r"mono samples \[n\], not \[9, 2\]"),
        (np.zeros(9, np.int16), UsageError, r"floating-point numbers in \[-1, 1\], not int16"),
        (np.array([0, np.nan]), NonFiniteError, "NaN or infinite"),
        (np.array([0, np.inf]), NonFiniteError, "NaN or infinite"),
        (Audio(np.zeros(99, np.float32), 16000), UsageError, "24000 samples a second, not 16000"),
    ],
)
def test_what_is_no_reference_is_refused(
    samples: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        CodecEncoder(ENCODER, CONFIG, Reference()).encode(samples)
    assert "\n" not in str(caught.value)


def leaves(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where the arrays of a tree are."""
    if isinstance(tree, np.ndarray):
        return [path]
    if isinstance(tree, tuple):
        return [leaf for i, part in enumerate(tree) for leaf in leaves(part, (*path, i))]
    if is_dataclass(tree):
        names = [field.name for field in fields(tree)]
        return [leaf for n in names for leaf in leaves(getattr(tree, n), (*path, n))]
    return []


def changed(tree: Any, path: tuple[Any, ...], value: float) -> Any:
    """Weights with the last number of one array changed."""
    if not path:
        array = tree.copy()
        array.flat[-1] = value
        return array
    if isinstance(tree, tuple):
        return tuple(changed(t, path[1:], value) if i == path[0] else t for i, t in enumerate(tree))
    return replace(tree, **{path[0]: changed(getattr(tree, path[0]), path[1:], value)})


@pytest.mark.parametrize("path", leaves(ENCODER), ids=str)
def test_damaged_weights_make_no_codes(path: tuple[Any, ...]) -> None:
    for value in (np.nan, np.inf, -np.inf):
        damaged = changed(ENCODER, path, value)
        with pytest.raises(NonFiniteError, match="the codec's encoder has weights that are not"):
            CodecEncoder(damaged, CONFIG, Reference())


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_what_overflows_makes_no_codes() -> None:
    weight = ENCODER.conv_in.weight.copy()
    weight[-1, -1, 0] = 3e38  # the samples' channel; the other channels are padding
    damaged = replace(ENCODER, conv_in=Linear(weight, ENCODER.conv_in.bias))
    with pytest.raises(NonFiniteError, match="latents are not finite; its weights are damaged"):
        CodecEncoder(damaged, CONFIG, Reference()).encode(np.ones(4000, np.float32))


# -- widths that are not multiples of 4 ------------------------------------------------------


@given(st.integers(1, 9), st.integers(1, 4), st.integers(0, 1))
def test_zeros_come_at_the_end_of_every_group(width: int, groups: int, axis: int) -> None:
    array = np.arange(1, 1 + 3 * width * groups, dtype=np.float32).reshape(
        (3, width * groups) if axis else (width * groups, 3)
    )
    found = np.moveaxis(pad_to_multiple(array, axis, groups), axis, 0)
    parts = found.reshape(groups, -1, 3)
    assert parts.shape[1] % 4 == 0
    np.testing.assert_array_equal(parts[:, :width].reshape(-1, 3), np.moveaxis(array, axis, 0))
    assert not parts[:, width:].any()


def test_a_padded_stage_is_the_same_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, rate, inputs, outputs = np.random.default_rng(1), 3, 10, 5

    def build(t: Loader) -> DecoderBlock:
        return decoder_block(t, "stage", inputs, rate)

    expect = ShapeCheckLoader(Path("made"), {})
    build(expect)
    arrays = {
        name: rng.normal(0, 0.2, shape).astype(np.float32)
        for name, shape in expect.expected.items()
    }
    read = ArrayLoader(
        Path("made"),
        {name: LazyTensor(a.shape, a.dtype, partial(np.copy, a)) for name, a in arrays.items()},
    )
    padded = build(read)
    assert padded.conv_transpose.weight.shape == (rate * 8, 2, 12)
    assert padded.residual_units[0].conv2.weight.shape == (8, 8)
    monkeypatch.setattr(layers, "pad_linear", lambda linear, *_: linear)
    monkeypatch.setattr(layers, "pad_to_multiple", lambda array, axis: array)
    plain = build(read)
    assert plain.conv_transpose.weight.shape == (rate * outputs, 2, inputs)
    x, found = rng.normal(0, 1, (7, inputs)).astype(np.float32), []
    for one, taken in ((plain, x), (padded, pad_to_multiple(x, 1))):
        memories: dict[str, np.ndarray] = {}

        def rows(name: str, count: int, width: int, kept: Any = memories) -> np.ndarray:
            return kept.setdefault(name, np.zeros((1, count, width), np.float32))

        place = TalkerState(np.zeros(1, TALKER_STATE), np.zeros((1, 1, 1)), np.zeros((1, 1)))
        past = codec.StreamingState(rows, (), rope_table(1, 4, 1e4), place)
        found.append(codec.decoder_block(Reference(), taken, one, rate, past, "stage"))
    assert found[0].shape == (21, outputs)
    assert found[1].shape == (21, 8)
    near(found[1][:, :outputs], found[0], 1e-5)
    assert not found[1][:, outputs:].any()
    assert np.abs(found[0]).max() > 0.1


# -- on a GPU ---------------------------------------------------------------------------------


@pytest.mark.host
@pytest.mark.gpu
def test_a_gpu_decodes_frame_by_frame(gpu: Any) -> None:
    d, codes = decoder(1, backend=gpu), ARRAYS["dec_codes"]
    d.warm_up(codes[:2])
    saved = d.save_state()
    for _ in range(2):
        d.restore_state(saved)
        near(d.decode(codes[2:]), ARRAYS["dec_wav"][2 * CONFIG.hop_length :], 1e-3)
    d.reset()
    near(d.decode(codes), ARRAYS["dec_wav"], 1e-3)


@pytest.mark.gpu
def test_voices_on_a_gpu_sound_as_alone(gpu: Any) -> None:
    """Three voices in a bucket of four, in any row of it, then from a copy."""
    d = pool(1, backend=gpu)
    first = beside(d, 0, 0, ((1, 0), (2, 0)), 6)
    near(first, pieces_of(0, 0, 6), 1e-3)
    for row, others in ((0, ((2, 5), (1, 3))), (2, ((0, 3), (0, 0)))):
        np.testing.assert_array_equal(beside(d, row, 0, others, 6), first)
    source, target, other = d.acquire_slot(), d.acquire_slot(), d.acquire_slot()
    d.warm_up([source], [STREAMS[1][:3]])
    d.copy(source, target)
    for samples in d.decode([other, target, source], [STREAMS[1][3:5]] * 3)[1:]:
        near(samples, pieces_of(1, 3, 5), 1e-3)


@pytest.mark.host
@pytest.mark.gpu
def test_a_gpu_hears_the_same_codes(gpu: Any) -> None:
    encoder = CodecEncoder(ENCODER, CONFIG, gpu, 3)
    found = encoder.encode(ARRAYS["enc_wav"])
    np.testing.assert_array_equal(found, ARRAYS["enc_codes"])
