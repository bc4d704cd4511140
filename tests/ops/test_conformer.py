"""The conformer's ops against their formulas, spelled out entry by entry in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from oscine.ops import Linear, SeqLengths
from oscine.ops.reference import Reference, attention, conv
from oscine.ops.webgpu.conv import GpuConv

Array = NDArray[Any]

OPS = Reference()


def close(got: Array, want: Array) -> None:
    assert got.shape == want.shape
    assert got.dtype == np.float32
    np.testing.assert_allclose(
        got, want, rtol=0, atol=2e-5 * max(1.0, np.abs(want).max(initial=0.0))
    )


def noise(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def convolved(x: Array, weight: Array, bias: Array) -> Array:
    """3x3, stride 2, edges of zeros: x [n, F, I], weight [3, 3, I, O] or depthwise [3, 3, I]."""
    n, width = x.shape[:2]
    rows = []
    for t in range(0, n, 2):
        row = []
        for f in range(0, width, 2):
            total = bias.astype(np.float64)
            for i in range(3):
                for j in range(3):
                    a, b = t - 1 + i, f - 1 + j
                    if 0 <= a < n and 0 <= b < width:
                        w = weight[i, j].astype(np.float64)
                        total = total + (x[a, b] * w if w.ndim == 1 else x[a, b] @ w)
            row.append(total)
        rows.append(row)
    return np.array(rows)


def subsampled(mel: Array, first: Linear, halvings: list[tuple[Linear, Linear]]) -> Array:
    """One utterance without padding: [n, F] -> [T, F'·C]."""
    assert first.bias is not None
    x = np.maximum(convolved(mel[:, :, None], first.weight[:, :, None], first.bias), 0)
    for depthwise, pointwise in halvings:
        x = convolved(x, depthwise.weight, depthwise.bias) @ pointwise.weight.T.astype(np.float64)
        x = np.maximum(x + pointwise.bias, 0)
    return x.reshape(len(x), -1)


def stem(seed: int, channels: int, halvings: int) -> tuple[Linear, list[tuple[Linear, Linear]]]:
    first = Linear(noise(seed, 3, 3, channels), noise(seed + 1, channels))
    return first, [
        (
            Linear(noise(seed + 2 + k, 3, 3, channels), noise(seed + 5 + k, channels)),
            Linear(noise(seed + 8 + k, channels, channels), noise(seed + 11 + k, channels)),
        )
        for k in range(halvings)
    ]


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=3),
    st.integers(1, 13),
    st.integers(1, 3),
    st.integers(0, 2),
    st.integers(0, 9),
)
def test_subsampling_of_a_padded_batch_is_that_of_each_alone(
    lengths: list[int], width: int, channels: int, halvings: int, spare: int
) -> None:
    first, pairs = stem(width, channels, halvings)
    n = max(lengths) + spare
    mel = noise(3, len(lengths), n, width)  # frames past the lengths hold noise
    got = OPS.conv_subsampling(
        mel.reshape(-1, width), SeqLengths(np.array(lengths, np.uint32)), first, pairs
    ).reshape(len(lengths), -(-n >> 1 + halvings), -1)
    for b, length in enumerate(lengths):
        want = subsampled(mel[b, :length], first, pairs)
        assert len(want) == -(-length >> 1 + halvings)
        close(got[b, : len(want)], want)
    assert np.isfinite(got).all()


def test_subsampling_in_blocks_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    first, pairs = stem(1, 4, 2)
    mel, lengths = noise(2, 300, 16), SeqLengths(np.array([290], np.uint32))
    whole = OPS.conv_subsampling(mel, lengths, first, pairs)
    monkeypatch.setattr(conv, "IMAGE_BYTES", 5 * 4 * 4 * 9 << 2)
    np.testing.assert_array_equal(OPS.conv_subsampling(mel, lengths, first, pairs), whole)


@pytest.mark.parametrize("width", [4, 32])
def test_positions_run_from_far_before_to_far_after(width: int) -> None:
    table = OPS.relative_positions(700, width)
    assert table.shape == (1399, width)
    for row, distance in ((0, 699), (699, 0), (700, -1), (1398, -699)):
        for i in range(width // 2):
            angle = distance * 10000 ** (-2 * i / width)
            assert table[row, 2 * i] == pytest.approx(np.sin(angle), abs=1e-4)
            assert table[row, 2 * i + 1] == pytest.approx(np.cos(angle), abs=1e-4)


def attended(
    qkv: Array, r: Array, u: Array, v: Array, heads: int, band: tuple[int, int] | None
) -> Array:
    """One utterance without padding: [T, 3D] -> [T, D]."""
    rows, width = qkv.shape[0], qkv.shape[1] // 3
    q, k, value = (x.astype(np.float64) for x in np.split(qkv, 3, 1))
    before, after = band or (rows, rows)
    y = np.zeros((rows, width))
    size = width // heads
    for h in range(heads):
        part = slice(h * size, (h + 1) * size)
        for i in range(rows):
            keys = [j for j in range(rows) if i - before <= j <= i + after]
            places = [len(r) // 2 - (i - j) for j in keys]
            scores = k[keys, part] @ (q[i, part] + u[part]) + r[places, part] @ (
                q[i, part] + v[part]
            )
            weights = np.exp(scores / np.sqrt(size) - (scores / np.sqrt(size)).max())
            y[i, part] = weights @ value[keys, part] / weights.sum()
    return y


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.integers(0, 23), min_size=1, max_size=3),
    st.integers(1, 3),
    st.sampled_from([1, 4, 6]),
    st.none() | st.tuples(st.integers(0, 9), st.integers(0, 9)),
    st.integers(0, 5),
)
def test_attention_by_distance_is_its_formula(
    lengths: list[int], heads: int, size: int, band: tuple[int, int] | None, spare: int
) -> None:
    width, per = heads * size, 3
    rows = max(1, *lengths, 1) + spare
    qkv = noise(1, len(lengths), rows, 3 * width)
    count = rows + 2 if band is None else max(band) + 1
    r, u, v = noise(2, 2 * count - 1, width), noise(3, width), noise(4, width)
    frames = np.array([max(0, per * length - 1) for length in lengths], np.uint32)
    got = OPS.rel_pos_attention(
        qkv.reshape(-1, 3 * width), r, u, v, SeqLengths(frames, per), heads, band
    ).reshape(len(lengths), rows, width)
    for b, length in enumerate(lengths):
        close(got[b, :length], attended(qkv[b, :length], r, u, v, heads, band))
        assert not got[b, length:].any()


@pytest.mark.parametrize("band", [None, (5, 5), (7, 0)])
def test_attention_in_blocks_is_whole(
    monkeypatch: pytest.MonkeyPatch, band: tuple[int, int] | None
) -> None:
    qkv, r, u, v = noise(1, 90, 24), noise(2, 199, 8), noise(3, 8), noise(4, 8)
    lengths = SeqLengths(np.array([83], np.uint32))
    monkeypatch.setattr(attention, "MIN_QUERIES", 7)
    monkeypatch.setattr(attention, "SCORE_BYTES", 1)
    got = OPS.rel_pos_attention(qkv, r, u, v, lengths, 2, band)
    close(got[:83], attended(qkv[:83], r, u, v, 2, band))


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=3),
    st.sampled_from([1, 3, 9]),
    st.integers(1, 5),
    st.booleans(),
)
def test_gated_convolution_is_its_formula(
    lengths: list[int], taps: int, width: int, biased: bool
) -> None:
    rows = max(1, *lengths, 1) + 2
    x = noise(1, len(lengths), rows, 2 * width)
    x[0, 0] = 200  # a gate that overflows float32's exponential
    x[0, 0, width:] = -200
    conv = Linear(noise(2, taps, width), noise(3, width) if biased else None)
    got = OPS.conformer_conv(
        x.reshape(-1, 2 * width), conv, SeqLengths(np.array(lengths, np.uint32))
    ).reshape(len(lengths), rows, width)
    for b, length in enumerate(lengths):
        part = x[b, :length].astype(np.float64)
        gated = np.pad(
            part[:, :width] / (1 + np.exp(-part[:, width:])), ((taps // 2, taps // 2), (0, 0))
        )
        want = sum(gated[k : k + length] * conv.weight[k] for k in range(taps))
        want = want + (0 if conv.bias is None else conv.bias)
        close(got[b, :length], want / (1 + np.exp(-want)))
        assert not got[b, length:].any()


def test_activations_of_linear() -> None:
    x, linear = noise(1, 5, 4) * 60, Linear(np.eye(4, dtype=np.float32), None)
    close(OPS.linear(x, linear, activation="relu"), np.maximum(x, 0))
    exact = x.astype(np.float64)
    close(OPS.linear(x, linear, activation="silu"), exact / (1 + np.exp(-exact)))


def test_lengths_to_record_plans_for_are_few_and_near() -> None:
    gpu = object.__new__(GpuConv)  # asked of no device
    padded = [gpu.bucket_frames(count) for count in range(1, 20001)]
    assert all(length >= count for count, length in enumerate(padded, 1))
    assert all(length <= 1.25 * count for count, length in enumerate(padded, 1) if count > 64)
    assert all(gpu.bucket_frames(length) == length for length in padded)
    assert len(set(padded)) < 40
