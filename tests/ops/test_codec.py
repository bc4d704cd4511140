"""The ops of codecs against plain sums over every term, in float64, and against their own past."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from oscine.errors import DeviceError
from oscine.gpu.device import Device
from oscine.ops import TALKER_STATE, ConvParams, Linear, Snake
from oscine.ops.cases import noise
from oscine.ops.reference import Reference
from oscine.ops.webgpu import Gpu
from oscine.ops.webgpu.conv import tiles

Array = NDArray[Any]
REFERENCE = Reference()


def seen(x: Array, at: int, padding: str) -> Array:
    """Row `at` of x lengthened on both sides without end."""
    if not 0 <= at < len(x):
        if padding == "zero":
            return np.zeros(x.shape[1])
        if padding == "edge":
            at = 0 if at < 0 else len(x) - 1
        else:
            at = -at if at < 0 else 2 * (len(x) - 1) - at
    return x[at].astype(np.float64)


def convolved(x: Array, conv: Linear, taps: ConvParams) -> Array:
    """Term by term."""
    rows = []
    for row in range(taps.rows(len(x), conv.weight.shape[1])):
        total = np.zeros(len(conv.weight)) if conv.bias is None else conv.bias.astype(np.float64)
        for place in range(conv.weight.shape[1]):
            at = row * taps.stride + place * taps.dilation - taps.left
            total = total + conv.weight[:, place].astype(np.float64) @ seen(x, at, taps.padding)
        rows.append(total)
    return np.array(rows)


def convolution(outputs: int, width: int, inputs: int) -> Linear:
    rng = np.random.default_rng(width)
    return Linear(noise(rng, outputs, width, inputs), noise(rng, outputs))


def state_of(*voices: tuple[int, int], done: tuple[int, ...] = ()) -> Array:
    """Rows of (slot, position); those in `done` are finished."""
    rows = np.zeros(len(voices), TALKER_STATE)
    rows["slot"], rows["position"] = np.array(voices).T
    rows["done"][list(done)] = 1
    return rows


@pytest.mark.parametrize(
    ("count", "width", "taps"),
    [
        (1, 7, ConvParams(6)),
        (40, 7, ConvParams(54, dilation=9)),
        (30, 3, ConvParams(2, 1, padding="edge")),
        (30, 5, ConvParams(8, 8, dilation=4, padding="reflect")),
        (31, 16, ConvParams(8, 5, 8)),
        (9, 4, ConvParams(2, 1, 2, padding="edge")),
        (800, 10, ConvParams(5, 0, 5)),
        (500, 2, ConvParams(1)),
        (20, 1, ConvParams(0, 0, 3)),
    ],
)
def test_conv1d_is_the_sum_of_its_terms(count: int, width: int, taps: ConvParams) -> None:
    x, conv = noise(np.random.default_rng(0), count, 6), convolution(5, width, 6)
    expected = convolved(x, conv, taps)
    found = REFERENCE.conv1d(x, conv, taps)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)
    add = noise(np.random.default_rng(1), *expected.shape)
    full = REFERENCE.conv1d(x, conv, taps, activation="relu", add=add)
    np.testing.assert_allclose(full, np.maximum(expected, 0) + add, rtol=0, atol=2e-5)


def test_conv1d_in_blocks_is_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    x, conv, taps = (
        noise(np.random.default_rng(0), 5000, 4),
        convolution(3, 7, 4),
        ConvParams(6, 0, 2),
    )
    whole = REFERENCE.conv1d(x, conv, taps, add=np.ones((2500, 3), np.float32))
    monkeypatch.setattr("oscine.ops.reference.conv.COLUMN_BYTES", 1)
    again = REFERENCE.conv1d(x, conv, taps, add=np.ones((2500, 3), np.float32))
    np.testing.assert_allclose(again, whole, rtol=0, atol=1e-5)


def test_a_weight_of_one_place_may_be_a_matrix() -> None:
    x, conv = noise(np.random.default_rng(0), 20, 6), convolution(5, 1, 6)
    flat = Linear(conv.weight[:, 0], conv.bias)
    found = REFERENCE.conv1d(x, flat, ConvParams(0))
    np.testing.assert_array_equal(found, REFERENCE.conv1d(x, conv, ConvParams(0)))


@given(
    cuts=st.lists(st.integers(1, 40), max_size=6),
    width=st.integers(1, 8),
    dilation=st.integers(1, 9),
    stride=st.integers(1, 4),
)
def test_pieces_of_any_length_give_the_whole(
    cuts: list[int], width: int, dilation: int, stride: int
) -> None:
    """Calls of a multiple of the stride, as codecs make them, over one memory."""
    lengths = [stride * count for count in (*cuts, 3)]
    left = max(0, (width - 1) * dilation + 1 - stride)
    taps = ConvParams(left, 0, stride, dilation)
    if taps.left + stride <= (width - 1) * dilation:
        return
    x, conv = noise(np.random.default_rng(5), sum(lengths), 3), convolution(4, width, 3)
    memory = noise(np.random.default_rng(6), 3, left, 3)
    others, parts, begin = memory[[0, 2]].copy(), [], 0
    for length in lengths:
        piece, state = x[begin : begin + length], state_of((1, begin))
        parts.append(REFERENCE.conv1d(piece, conv, taps, memory=memory, state=state))
        begin += length
    np.testing.assert_allclose(np.concatenate(parts), convolved(x, conv, taps), atol=2e-5)
    past = np.concatenate([np.zeros((left, 3), np.float32), x])
    np.testing.assert_array_equal(memory[1], past[len(past) - left :])
    np.testing.assert_array_equal(memory[[0, 2]], others)


@settings(max_examples=25)
@given(cuts=st.lists(st.integers(1, 12), min_size=1, max_size=8), taps=st.integers(2, 9))
def test_depthwise_in_pieces_is_each_channel_by_itself(cuts: list[int], taps: int) -> None:
    rng = np.random.default_rng(taps)
    x, weight, bias = noise(rng, sum(cuts), 5), noise(rng, taps, 5), noise(rng, 5)
    memory, parts, begin = noise(rng, 2, taps - 1, 5), [], 0
    for length in cuts:
        piece, state = x[begin : begin + length], state_of((1, begin))
        parts.append(REFERENCE.depthwise(piece, Linear(weight, bias), memory, state))
        begin += length
    past = np.concatenate([np.zeros((taps - 1, 5)), x.astype(np.float64)])
    expected = [np.convolve(past[:, c], weight[::-1, c], "valid") + bias[c] for c in range(5)]
    np.testing.assert_allclose(np.concatenate(parts), np.stack(expected, 1), atol=1e-5)
    np.testing.assert_array_equal(memory[1], past[len(past) - taps + 1 :].astype(np.float32))


@pytest.mark.parametrize(
    ("count", "width", "taps"),
    [
        (5, 7, ConvParams(6)),
        (30, 3, ConvParams(2, 1, padding="edge")),
        (30, 5, ConvParams(8, 8, dilation=4, padding="reflect")),
        (31, 16, ConvParams(8, 5, 8)),
        (20, 1, ConvParams(0, 0, 3)),
        (500, 2, ConvParams(1)),
        (4, 1, ConvParams(0)),
    ],
)
def test_voices_are_convolved_each_by_itself(count: int, width: int, taps: ConvParams) -> None:
    x, conv = noise(np.random.default_rng(0), 3, count, 6), convolution(5, width, 6)
    rows = state_of((0, 0), (1, 1), (2, 2))
    found = REFERENCE.conv1d(x.reshape(-1, 6), conv, taps, state=rows)
    expected = [convolved(one, conv, taps) for one in x]
    np.testing.assert_allclose(found, np.concatenate(expected), rtol=0, atol=2e-5)


@settings(max_examples=25)
@given(st.data())
def test_voices_in_one_call_each_have_their_own_past(data: Any) -> None:
    """Voices that come and leave: each one's results are those of its rows alone."""
    rng, conv, taps = np.random.default_rng(3), convolution(4, 3, 8), ConvParams(6, dilation=3)
    single = Linear(noise(rng, 7, 8), None)
    streams = noise(rng, 4, 60, 8)
    whole = [convolved(x, conv, taps) for x in streams]
    alone = [REFERENCE.depthwise(x, single, noise(rng, 1, 6, 8), state_of((0, 0))) for x in streams]
    memory, deep, places = noise(rng, 6, 6, 8), noise(rng, 6, 6, 8), [0] * 4
    slots = data.draw(st.permutations(range(6)))[:4]
    for _ in range(data.draw(st.integers(1, 6))):
        length = data.draw(st.integers(1, 9))
        voices = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=4, unique=True))
        rows = state_of(*((slots[v], places[v]) for v in voices))
        x = np.concatenate([streams[v, places[v] : places[v] + length] for v in voices])
        found = REFERENCE.conv1d(x, conv, taps, memory=memory, state=rows)
        other = REFERENCE.depthwise(x, single, deep, rows)
        for index, v in enumerate(voices):
            here, there = (slice(at, at + length) for at in (index * length, places[v]))
            np.testing.assert_allclose(found[here], whole[v][there], rtol=0, atol=2e-5)
            np.testing.assert_allclose(other[here], alone[v][there], rtol=0, atol=2e-5)
            places[v] += length


def test_a_voice_that_is_done_keeps_its_place() -> None:
    rng, conv = np.random.default_rng(3), convolution(4, 3, 8)
    memory = noise(rng, 2, 2, 8)
    before, rows = memory.copy(), state_of((1, 5), (0, 5), done=(0,))
    REFERENCE.conv1d(noise(rng, 6, 8), conv, ConvParams(2), memory=memory, state=rows)
    np.testing.assert_array_equal(memory[1], before[1])
    assert (memory[0] != before[0]).all()


def test_rows_and_memories_that_belong_to_no_voice_are_refused() -> None:
    x, conv = noise(np.random.default_rng(0), 5, 6), convolution(5, 3, 6)
    with pytest.raises(ValueError, match="a memory needs a state"):
        REFERENCE.conv1d(x, conv, ConvParams(2), memory=np.zeros((1, 2, 6), np.float32))
    with pytest.raises(ValueError, match="5 rows do not divide into 2 sequences"):
        REFERENCE.conv1d(x, conv, ConvParams(2), state=state_of((0, 0), (1, 0)))


def test_too_few_rows_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="too few for a convolution of 7"):
        ConvParams(2).rows(3, 7)
    with pytest.raises(ValueError, match="too few to reflect"):
        ConvParams(3, 3, padding="reflect").rows(3, 4)


@given(
    st.lists(st.floats(-1e3, 1e3, width=32), min_size=1, max_size=30),
    st.floats(0.125, 1, width=32),
    st.floats(0.5, 4, width=32),
)
def test_snake_is_the_sine_of_mathematics(values: list[float], scale: float, gain: float) -> None:
    """Of the product as float32 has it: near 1,000 that alone is 3e-5 off."""
    x = np.array(values, np.float32)[:, None]
    factors = np.array([scale], np.float32), np.array([gain], np.float32)
    found = REFERENCE.snake(x, Snake(*factors))[:, 0]
    for one, y in zip(x[:, 0], found, strict=True):
        rise = gain * math.sin(float(one * factors[0][0])) ** 2
        assert abs(float(y) - (float(one) + rise)) <= 4e-7 * gain + abs(one) * 1.3e-7


def test_codebook_lookup_adds_the_rows_of_its_groups() -> None:
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 9, (11, 4)).astype(np.uint32)
    tables = noise(rng, 2, 9, 5)
    expected = [tables[0][row[1]] + tables[1][row[2]] for row in codes]
    np.testing.assert_allclose(REFERENCE.codebook_lookup(codes, tables, 1), expected, atol=1e-6)


def test_quantise_takes_the_nearest_row_and_the_first_of_equals() -> None:
    rng = np.random.default_rng(0)
    table, x = noise(rng, 70, 8), noise(rng, 30, 8)
    table[40] = table[3]
    x[5] = table[3]
    codes = np.full((30, 3), 99, np.uint32)
    rest = REFERENCE.nearest_code(x, table, codes, 1)
    nearest = [min(range(70), key=lambda n: math.dist(row, table[n])) for row in x.astype(float)]
    assert codes[:, 1].tolist() == nearest and codes[5, 1] == 3
    assert (codes[:, ::2] == 99).all()
    np.testing.assert_array_equal(rest, x - table[nearest])


@pytest.mark.parametrize("scored", [False, True])
def test_statistics_are_those_of_each_channel(scored: bool) -> None:
    rng = np.random.default_rng(0)
    x, scores = noise(rng, 4000, 6) + 100, noise(rng, 4000, 6) * 3
    x[:, 2] = 7
    found = REFERENCE.stats_pool(x, scores if scored else None)
    for c in range(6):
        share = np.exp(scores[:, c].astype(float)) if scored else np.ones(4000)
        share /= share.sum()
        mean = (share * x[:, c].astype(float)).sum()
        variance = (share * (x[:, c] - mean) ** 2).sum()
        assert found[0, c] == pytest.approx(mean, rel=1e-6)
        assert found[0, 6 + c] == pytest.approx(math.sqrt(max(variance, 1e-12)), rel=1e-4, abs=2e-5)


def test_activate_leaves_its_input_alone() -> None:
    x = noise(np.random.default_rng(0), 7, 3, 2)
    before = x.copy()
    found = REFERENCE.activate(x, "elu")
    np.testing.assert_array_equal(x, before)
    np.testing.assert_allclose(found, np.where(x > 0, x, np.expm1(x)), atol=1e-6)


def test_concat_is_the_parts_side_by_side() -> None:
    rng = np.random.default_rng(2)
    parts = [noise(rng, 5, 3), noise(rng, 1, 2), noise(rng, 5, 4)]
    y = REFERENCE.concat(parts)
    assert y.shape == (5, 9) and y.dtype == np.float32 and y.flags.c_contiguous
    for row in range(5):
        expected = [*parts[0][row], *parts[1][0], *parts[2][row]]
        assert y[row].tolist() == expected
    assert REFERENCE.concat(parts[1:2]).tolist() == parts[1].tolist()


@given(st.lists(st.integers(1, 6), min_size=1, max_size=9), st.integers(1, 4))
def test_columns_take_a_concat_apart(widths: list[int], rows: int) -> None:
    rng = np.random.default_rng(rows)
    parts = [noise(rng, rows, width) for width in widths]
    y, first = REFERENCE.concat(parts), 0
    for part in parts:
        width = part.shape[1]
        taken = REFERENCE.slice_columns(y, first, width)
        np.testing.assert_array_equal(taken, part)
        assert not np.shares_memory(taken, y)
        np.testing.assert_array_equal(
            REFERENCE.slice_columns(y, first, width, add=part), part + part
        )
        first += width


@pytest.mark.parametrize("shapes", [[], [(2, 3), (4, 3)], [(0, 3), (2, 3)], [(3,)], [(1, 2, 3)]])
def test_parts_that_do_not_fit_are_refused_by_name(shapes: list[tuple[int, ...]]) -> None:
    with pytest.raises(ValueError, match=r"^concat takes "):
        REFERENCE.concat([np.zeros(shape, np.float32) for shape in shapes])


@pytest.mark.parametrize(("first", "count"), [(-1, 2), (0, 0), (3, 2), (4, 1), (0, 5)])
def test_columns_beside_a_matrix_are_refused_by_name(first: int, count: int) -> None:
    with pytest.raises(ValueError, match=rf"^\[2, 4\] has no columns {first} to {first + count}"):
        REFERENCE.slice_columns(np.zeros((2, 4), np.float32), first, count)


@pytest.mark.parametrize("shape", [(1, 3), (2, 1), (3,), (2, 4)])
def test_only_as_many_columns_can_be_added(shape: tuple[int, ...]) -> None:
    x, add = np.zeros((2, 4), np.float32), np.zeros(shape, np.float32)
    with pytest.raises(ValueError, match=r"cannot be added to \[2, 3\]"):
        REFERENCE.slice_columns(x, 0, 3, add)


def test_scale_channels() -> None:
    x, factors = noise(np.random.default_rng(0), 7, 3), np.array([[1, 0, -2]], np.float32)
    np.testing.assert_array_equal(REFERENCE.scale_channels(x, factors, x), x * factors[0] + x)


# -- the GPU's side; that it computes the same is tests/ops/test_parity.py's -------------------


@given(st.integers(1, 200_000), st.integers(1, 7000), st.integers(1, 60_000))
def test_tiles_split_no_sum_into_nothing(rows: int, outputs: int, depth: int) -> None:
    columns, splits = tiles(rows, outputs, depth)
    assert columns in (64, 96, 128)
    assert 1 <= splits <= max(1, depth // 64)


@pytest.mark.gpu
def test_calls_of_every_length_share_their_kernels(device: Device) -> None:
    """Lengths of one choice of tile: no call compiles what another has compiled before."""
    gpu = Gpu(device)
    conv = convolution(36, 7, 8)
    weight = Linear(gpu.upload(conv.weight), gpu.upload(conv.bias))
    memory, state, taps = (
        gpu.zeros((1, 54, 8)),
        gpu.zeros((1,), TALKER_STATE),
        ConvParams(54, dilation=9),
    )
    made = []
    snake = Snake(gpu.upload(conv.bias), gpu.upload(conv.bias))
    for count in (70, 64, 301):
        x, y = gpu.zeros((count, 8)), gpu.zeros((count, 36))

        def trace(x: Any = x, y: Any = y) -> None:
            found = gpu.conv1d(x, weight, taps, memory=memory, state=state)
            gpu.store(gpu.snake(found, snake), y)

        gpu.record(trace).run()
        made.append(set(gpu.pipelines.compiled))
    assert made[1] - made[0] == set() == made[2] - made[1]


@pytest.mark.gpu
def test_a_stream_on_the_gpu_is_the_whole(device: Device) -> None:
    """Calls of 1, 4 and 70 rows in turn over one memory of 54."""
    gpu, conv, taps = Gpu(device), convolution(36, 7, 8), ConvParams(54, dilation=9)
    weight = Linear(gpu.upload(conv.weight), gpu.upload(conv.bias))
    memory, state = gpu.zeros((2, 54, 8)), gpu.zeros((1,), TALKER_STATE)
    lengths = (1, 4, 70, 1, 1, 4, 70, 4)
    x, found, begin = noise(np.random.default_rng(0), sum(lengths), 8), [], 0
    for length in lengths:
        slot, y = gpu.zeros((length, 8)), gpu.zeros((length, 36))
        gpu.write(slot, x[begin : begin + length])
        gpu.write(state, state_of((1, begin)))

        def trace(x: Any = slot, y: Any = y) -> None:
            gpu.store(gpu.conv1d(x, weight, taps, memory=memory, state=state), y)

        gpu.record(trace).run()
        found.append(gpu.read(y))
        begin += length
    np.testing.assert_allclose(np.concatenate(found), convolved(x, conv, taps), atol=2e-5)


@pytest.mark.gpu
def test_widths_that_kernels_cannot_take_are_refused(device: Device) -> None:
    gpu, conv = Gpu(device), convolution(4, 3, 6)
    weight = Linear(gpu.upload(conv.weight), gpu.upload(conv.bias))
    with pytest.raises(DeviceError, match="6 is not a multiple of 4"):
        gpu.conv1d(gpu.zeros((9, 6)), weight, ConvParams(2))
    with pytest.raises(DeviceError, match="width of a part 6 is not a multiple of 4"):
        gpu.concat([gpu.zeros((9, 4)), gpu.zeros((9, 6))])
    for first, count, what in ((2, 4, "first column 2"), (4, 2, "columns 2")):
        with pytest.raises(DeviceError, match=f"{what} is not a multiple of 4"):
            gpu.slice_columns(gpu.zeros((9, 8)), first, count)


@pytest.mark.gpu
def test_the_gpu_refuses_the_same_parts_and_columns(device: Device) -> None:
    gpu = Gpu(device)
    with pytest.raises(ValueError, match=r"^concat takes parts of equal length"):
        gpu.concat([gpu.zeros((2, 4)), gpu.zeros((4, 4))])
    with pytest.raises(ValueError, match="has no columns 4 to 12"):
        gpu.slice_columns(gpu.zeros((2, 8)), 4, 8)
    with pytest.raises(ValueError, match="cannot be added"):
        gpu.slice_columns(gpu.zeros((2, 8)), 4, 4, gpu.zeros((1, 4)))
