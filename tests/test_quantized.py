"""Blocks of 8 and 4 bits: what they hold, how far they round, and ggml's layout."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from oscine.dtypes import dtype_name, to_f32
from oscine.quantized import BLOCK, BLOCK_DTYPES, Q4, Q8, dequantize, quantize, shape_of

MATRICES = arrays(np.float32, st.tuples(st.integers(1, 4), st.sampled_from([32, 96])),
                  elements=st.floats(-8, 8, width=32))  # fmt: skip


def gaussian(*shape: int) -> np.ndarray:
    """Weights like a network's."""
    return np.random.default_rng(4).standard_normal(shape).astype(np.float32) / 16


@pytest.mark.parametrize(("name", "nbytes"), [("q8", 34), ("q4", 20)])
def test_a_block_has_its_shape_in_weights_and_its_bytes(name: str, nbytes: int) -> None:
    blocks = quantize(gaussian(5, 96), BLOCK_DTYPES[name])
    assert blocks.shape == (5, 3) and blocks.nbytes == 15 * nbytes
    assert shape_of(blocks) == (5, 96) == dequantize(blocks).shape
    assert dtype_name(blocks.dtype) == name
    np.testing.assert_array_equal(to_f32(blocks), dequantize(blocks))


@given(MATRICES)
@settings(deadline=None)
def test_how_far_a_weight_may_move(matrix: np.ndarray) -> None:
    """Half a step, beside the rounding of the scale, 2^-11 of the range, or below 2^-24."""
    rows = matrix.reshape(len(matrix), -1, BLOCK)
    for dtype, spread, steps in ((Q8, np.abs(rows).max(-1), 244), (Q4, np.ptp(rows, axis=-1), 30)):
        difference = np.abs(dequantize(quantize(matrix, dtype)) - matrix).reshape(rows.shape)
        largest = np.abs(rows).max(-1)
        allowed = spread / steps + largest / 1024 + steps * 2.0**-24
        assert (difference.max(-1) <= allowed).all()


@pytest.mark.parametrize("dtype", [Q8, Q4], ids=["q8", "q4"])
def test_what_blocks_hold_they_hold_again(dtype: np.dtype) -> None:
    """So weights from a file in blocks that have reached both ends of their range are kept."""
    blocks = quantize(gaussian(8, 64), dtype)
    np.testing.assert_array_equal(
        dequantize(quantize(dequantize(blocks), dtype)), dequantize(blocks)
    )


@pytest.mark.parametrize(("dtype", "most"), [(Q8, 0.007), (Q4, 0.09)], ids=["q8", "q4"])
def test_gaussian_weights_lose_as_much_as_measured(dtype: np.dtype, most: float) -> None:
    matrix = gaussian(64, 512)
    lost = np.linalg.norm(dequantize(quantize(matrix, dtype)) - matrix) / np.linalg.norm(matrix)
    assert most / 2 < lost < most


@pytest.mark.parametrize("dtype", [Q8, Q4], ids=["q8", "q4"])
@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
def test_a_broken_weight_shows_in_its_block_alone(dtype: np.dtype, broken: float) -> None:
    matrix = gaussian(2, 64)
    matrix[1, 40] = broken
    found = np.isnan(dequantize(quantize(matrix, dtype)))
    assert found[1, 32:].all() and found.sum() == BLOCK


@pytest.mark.parametrize("dtype", [Q8, Q4], ids=["q8", "q4"])
def test_equal_weights(dtype: np.dtype) -> None:
    for value in (0.0, 0.5, -2.0):
        same = np.full((1, 32), value, np.float32)
        np.testing.assert_allclose(dequantize(quantize(same, dtype)), same, rtol=1e-4)


def test_the_bytes_are_ggmls() -> None:
    """block_q8_0 is {half d; int8 qs[32]}; block_q4_1 {half d, m; uint8 qs[16]}."""
    ramp = np.arange(96, 128, dtype=np.float32)[None]
    assert quantize(ramp, Q8).tobytes() == b"\x00\x3c" + bytes(range(96, 128))
    packed = quantize(np.tile(np.arange(16, dtype=np.float32), 2)[None] - 3, Q4).tobytes()
    assert packed == b"\x00\x3c\x00\xc2" + bytes(17 * value for value in range(16))
