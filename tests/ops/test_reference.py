"""Each op in NumPy against its plain definition in float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from oscine import ops
from oscine.dtypes import BFLOAT16
from oscine.ops.reference import Reference, activations, linear

Array = NDArray[Any]

OPS = Reference()


def noise(seed: int, *shape: int) -> Array:
    """Not centred, with a few large values, as activations are."""
    x = np.random.default_rng(seed).standard_normal(shape)
    x.reshape(-1)[:: max(1, x.size // 5)] *= 9
    return (x + 0.5).astype(np.float32)


def assert_near(found: Array, expected: Any, share: float = 3e-6) -> None:
    """Within a share of the largest value."""
    expected = np.asarray(expected)
    assert found.dtype == np.float32
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=0, atol=share * np.abs(expected).max())


def plain_gelu(x: Array) -> Array:
    return x / 2 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def plain_norm(x: Array, norm: ops.LayerNorm) -> Array:
    x = x.astype(np.float64)
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt(x.var(-1, keepdims=True) + norm.eps) * norm.weight + norm.bias


def plain_rms(x: Array, norm: ops.RmsNorm) -> Array:
    x = x.astype(np.float64)
    square: Array = np.square(x).mean(-1, keepdims=True)
    return x / np.sqrt(square + norm.eps) * norm.weight


def plain_attention(q: Array, keys: Array, values: Array) -> Array:
    """One query of one head."""
    scores = keys.astype(np.float64) @ q / math.sqrt(len(q))
    weights = np.exp(scores - scores.max())
    return weights / weights.sum() @ values


def heads_of(row: Array, heads: int) -> list[Array]:
    return np.split(row, heads, axis=-1)


def test_erf() -> None:
    x = np.linspace(-6, 6, 20001, dtype=np.float32)
    expected = np.vectorize(math.erf)(x.astype(np.float64))
    assert np.abs(activations.erf(x) - expected).max() < 5e-7
    assert activations.erf(np.float32([0.0]))[0] == 0


def test_gelu_is_the_exact_one() -> None:
    x = np.linspace(-9, 9, 5001, dtype=np.float32).reshape(-1, 3)
    y = x.copy()
    activations.gelu(y)
    assert np.abs(y - plain_gelu(x.astype(np.float64))).max() < 1e-6


@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        ("silu", lambda x: x / (1 + np.exp(-x))),
        ("relu", lambda x: np.where(x > 0, x, 0)),
        ("elu", lambda x: np.where(x > 0, x, np.exp(np.minimum(x, 0)) - 1)),
        ("tanh", np.tanh),
        ("sigmoid", lambda x: 1 / (1 + np.exp(-x))),
    ],
)
def test_activations(name: str, meaning: Any) -> None:
    x = np.concatenate([np.linspace(-90, 90, 2000), np.linspace(-1, 1, 1000)]).astype(np.float32)
    y = x.reshape(-1, 3).copy()
    activations.ACTIVATIONS[name](y)
    np.testing.assert_allclose(y.reshape(-1), meaning(x.astype(np.float64)), rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("eps", [1e-5, 0.3])
@pytest.mark.parametrize("rows", [1, 7, 500])
def test_layer_norm(rows: int, eps: float) -> None:
    x, norm = noise(1, rows, 96), ops.LayerNorm(noise(2, 96), noise(3, 96), eps)
    assert_near(OPS.layer_norm(x, norm), plain_norm(x, norm))


@pytest.mark.parametrize("eps", [1e-6, 0.3])
@pytest.mark.parametrize("rows", [1, 7, 500])
def test_rms_norm(rows: int, eps: float) -> None:
    x, norm = noise(1, rows, 96), ops.RmsNorm(noise(2, 96), eps)
    assert_near(OPS.rms_norm(x, norm), plain_rms(x, norm))


@pytest.mark.parametrize("rows", [1, 5, 400])
def test_gated_linear(rows: int) -> None:
    """The first half of the outputs is the gate."""
    x, weight = noise(1, rows, 40), noise(2, 60, 40) / 6
    norm = ops.RmsNorm(noise(3, 40))
    gate, up = np.split(plain_rms(x, norm) @ weight.T.astype(np.float64), 2, axis=1)
    y = OPS.swiglu_linear(x, ops.Linear(weight, None), norm=norm)
    assert_near(y, gate / (1 + np.exp(-gate)) * up)
    assert y.flags.c_contiguous
    unnormed = OPS.swiglu_linear(OPS.rms_norm(x, norm), ops.Linear(weight, None))
    assert np.array_equal(unnormed, y)


def test_bfloat16_is_widened() -> None:
    bits = np.array([[0x3FC0, 0xC000], [0x0001, 0xFF7F]], np.uint16).view(BFLOAT16)
    found = OPS.upload(bits)
    assert found.dtype == np.float32
    assert found.tolist() == [[1.5, -2], [2.0**-133, -(2 - 2**-7) * 2.0**127]]


@pytest.mark.parametrize("rows", [1, 5, 383, 385, 900])
@pytest.mark.parametrize("all_parts", [False, True])
def test_linear(rows: int, all_parts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "TILE_BYTES", 4 * 40 * 30)  # 30 of the 70 outputs a tile,
    monkeypatch.setattr(linear, "STRIP_RESULTS", 64)  # for 5 rows in strips of 12
    x, weight = noise(4, rows, 40), noise(5, 70, 40)
    bias, add = noise(6, 70), noise(7, rows, 70)
    norm = ops.LayerNorm(noise(8, 40), noise(9, 40))
    if not all_parts:
        assert_near(OPS.linear(x, ops.Linear(weight, None)), x.astype(np.float64) @ weight.T)
        return
    y = OPS.linear(x, ops.Linear(weight, bias), norm=norm, activation="gelu", add=add)
    assert_near(y, plain_gelu(plain_norm(x, norm) @ weight.T + bias) + add, 1e-5)


@pytest.mark.parametrize(("frames", "stride"), [(1, 1), (20, 1), (20, 2), (21, 2)])
def test_conv1d(frames: int, stride: int) -> None:
    x, weight, bias = noise(10, frames, 6), noise(11, 5, 3, 6), noise(12, 5)
    count = -(-frames // stride)
    add = noise(13, count, 5)
    expected = np.zeros((count, 5))
    for t in range(count):
        for tap in range(3):
            if 0 <= t * stride + tap - 1 < frames:
                expected[t] += weight[:, tap].astype(np.float64) @ x[t * stride + tap - 1]
    taps = ops.ConvParams.same(3, stride)
    y = OPS.conv1d(x, ops.Linear(weight, bias), taps, activation="gelu", add=add)
    assert_near(y, plain_gelu(expected + bias) + add)


@pytest.mark.parametrize(("length", "heads"), [(1, 1), (9, 3), (600, 2)])
def test_attention(length: int, heads: int) -> None:
    width = 8 * heads
    qkv = noise(14, length, 3 * width)
    q, k, v = np.split(qkv, 3, axis=1)
    rows = sorted({0, length // 2, length - 1})
    expected = [
        np.concatenate(
            [
                plain_attention(q[row, part], k[:, part], v[:, part])
                for part in (slice(8 * h, 8 * h + 8) for h in range(heads))
            ]
        )
        for row in rows
    ]
    assert_near(OPS.attention(qkv, heads)[rows], expected, 1e-5)


def test_large_scores_do_not_overflow() -> None:
    qkv = np.full((3, 12), 1e4, np.float32)
    np.testing.assert_allclose(OPS.attention(qkv, 1), qkv[:, 8:], rtol=1e-6)


def test_attend_cross_listens_to_the_lines_own_window() -> None:
    """Two rows a sequence; the third sequence is done, the last two share a window."""
    rows = np.zeros(5, ops.TEXT_DECODER_STATE)
    rows["window"], rows["done"] = (1, 0, 0, 2, 2), (0, 0, 1, 0, 0)
    q, kv = noise(15, 10, 12), noise(16, 3, 30, 24)
    y = OPS.cross_attention(q, kv, ops.TextDecoderState(rows, np.zeros((5, 9), np.uint32)), 2)
    for row in (0, 1, 2, 3, 6, 7, 8, 9):
        window = kv[rows["window"][row // 2]]
        parts = (heads_of(a, 2) for a in (q[row], window[:, :12], window[:, 12:]))
        expected = [plain_attention(*one) for one in zip(*parts, strict=True)]
        assert_near(y[row], np.concatenate(expected), 1e-5)


def test_cross_weights() -> None:
    """Heads in the order asked for; nothing beyond the sound."""
    rows = np.zeros(2, ops.TEXT_DECODER_STATE)
    rows["window"], rows["frames"] = (1, 0), (7, 0)
    q, kv = noise(31, 4, 12), noise(32, 2, 10, 24)
    state = ops.TextDecoderState(rows, np.zeros((2, 9), np.uint32))
    y = OPS.cross_attention_weights(q, kv, state, 3, (2, 0))
    assert y.shape == (2, 4, 10)
    for place, head in enumerate((2, 0)):
        part = slice(4 * head, 4 * head + 4)
        for row in (0, 1):
            scores = kv[1, :7, part].astype(np.float64) @ q[row, part] / 2
            weights = np.exp(scores) / np.exp(scores).sum()
            np.testing.assert_allclose(y[place, row, :7], weights, rtol=1e-5)
    assert not y[:, :2, 7:].any() and not y[:, 2:].any()


def test_causal_attention_appends_then_looks_back() -> None:
    """One token after five, two of a padded prompt of three, a finished sequence: of four slots."""
    rows = np.zeros(3, ops.TEXT_DECODER_STATE)
    rows["position"], rows["length"], rows["done"] = (5, 0, 2), (1, 2, 3), (0, 0, 1)
    rows["slot"] = slots = (3, 0, 1)
    qkv = noise(17, 9, 36)
    before = ops.KVCache(noise(18, 4, 10, 12), noise(19, 4, 10, 12))
    cache = ops.KVCache(before.keys.copy(), before.values.copy())
    state = ops.TextDecoderState(rows, np.zeros((4, 10), np.uint32))
    y = OPS.causal_attention(qkv, cache, state, 2)
    keys, values = before.keys.copy(), before.values.copy()
    for line, start, count in ((0, 5, 1), (1, 0, 2)):
        for at in range(count):
            q, k, v = np.split(qkv[3 * line + at], 3)
            slot = slots[line]
            keys[slot, start + at], values[slot, start + at] = k, v
            seen = slice(0, start + at + 1)
            parts = (heads_of(a, 2) for a in (q, keys[slot, seen], values[slot, seen]))
            expected = [plain_attention(*one) for one in zip(*parts, strict=True)]
            assert_near(y[3 * line + at], np.concatenate(expected), 1e-5)
    assert np.array_equal(cache.keys, keys)  # other slots and positions past the end are unchanged
    assert np.array_equal(cache.values, values)


def test_causal_attention_looks_where_beams_keep_their_past() -> None:
    """Two beams that were one until position 3 read its slot and append to their own."""
    rows = np.zeros(2, ops.TEXT_DECODER_STATE)
    rows["position"], rows["length"], rows["slot"] = 4, 1, (0, 1)
    qkv = noise(33, 2, 36)
    cache = ops.KVCache(noise(34, 2, 14, 12), noise(35, 2, 14, 12))  # of which 10 are positions
    cache_indirection = np.uint32([[1] * 3 + [0] * 7, [1] * 10])
    state = ops.TextDecoderState(
        rows, np.zeros((2, 10), np.uint32), cache_indirection=cache_indirection
    )
    y = OPS.causal_attention(qkv, cache, state, 2)
    for line in range(2):
        q, k, v = np.split(qkv[line], 3)
        assert np.array_equal(cache.keys[line, 4], k) and np.array_equal(cache.values[line, 4], v)
        past = (
            [cache.keys[1, :3], cache.keys[line, 3:5]],
            [cache.values[1, :3], cache.values[line, 3:5]],
        )
        keys, values = (np.concatenate(part) for part in past)
        parts = (heads_of(a, 2) for a in (q, keys, values))
        expected = [plain_attention(*one) for one in zip(*parts, strict=True)]
        assert_near(y[line], np.concatenate(expected), 1e-5)


def test_embed_and_gather_rows() -> None:
    rows = np.zeros(2, ops.TEXT_DECODER_STATE)
    rows["position"], rows["length"], rows["sot"], rows["token"] = (3, 0), (3, 2), (1, 0), (4, 6)
    state = ops.TextDecoderState(rows, np.zeros((2, 9), np.uint32))
    table, positions = noise(20, 7, 4), noise(21, 9, 4)
    one = OPS.embed(table, positions, state)
    assert np.array_equal(one, [table[4] + positions[3], table[6] + positions[0]])
    prompt = np.array([[1, 2, 3], [5, 6, 0]], np.uint32)
    x = OPS.embed(table, positions, state, prompt)
    assert np.array_equal(x[:3], table[[1, 2, 3]] + positions[3:6])
    assert np.array_equal(x[3:5], table[[5, 6]] + positions[:2])
    assert np.array_equal(OPS.gather_rows(x, state, sot=True), x[[2, 4, 1, 3]])


def test_memory() -> None:
    slot = OPS.zeros((2, 3))
    OPS.write(slot, np.float32([[1, 2, 3]]))
    later = OPS.snapshot(slot)
    copy = OPS.read(slot)
    OPS.store(np.ones((2, 3), np.float32), slot)
    assert np.array_equal(copy, [[1, 2, 3], [0, 0, 0]])
    assert np.array_equal(later()[0], copy)
    assert np.array_equal(slot, np.ones((2, 3)))


@pytest.mark.parametrize("kind", [np.float16, np.float32])
def test_upload_gives_aligned_float32(kind: Any) -> None:
    stored = noise(22, 5, 3).astype(kind)
    unaligned = np.frombuffer(b"\0" + stored.tobytes(), np.uint8)[1:].view(kind).reshape(5, 3)
    for array in (stored, unaligned):
        given = OPS.upload(array)
        assert given.dtype == np.float32 and given.flags.aligned and given.flags.c_contiguous
        assert np.array_equal(given, stored.astype(np.float32))


def test_a_plan_stops_when_its_lines_are_done() -> None:
    state = ops.TextDecoderState(np.zeros(2, ops.TEXT_DECODER_STATE), np.zeros((2, 4), np.uint32))
    ran = []

    def trace() -> None:
        ran.append(len(ran))
        state.rows["done"][: len(ran) - 1] = 1

    OPS.record(trace, state.rows).run(9)
    assert len(ran) == 3
    OPS.record(trace).run(2)
    assert len(ran) == 5
