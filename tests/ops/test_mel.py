"""The ops of log-mel features against their formulas in float64."""

from __future__ import annotations

import numpy as np
import pytest

from oscine.audio.mel import HANN_WINDOW, fourier_basis
from oscine.ops import MelBank, SeqLengths
from oscine.ops.reference import Reference

OPS = Reference()


def test_a_fourier_basis_has_the_power_of_a_transform_with_zeros_anywhere() -> None:
    samples = np.random.default_rng(1).standard_normal(400)
    both = fourier_basis(HANN_WINDOW, 512) @ samples
    power = both[:257] ** 2 + both[257:] ** 2
    centred = np.fft.rfft(np.pad(HANN_WINDOW * samples, 56))
    assert np.allclose(power, np.abs(centred) ** 2, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"scale": 1 / np.log(10), "floor": 1e-10}, [np.log10(50), np.log10(8.0), -10.0]),
        ({"guard": 2.0**-24}, [np.log(50 + 2.0**-24), np.log(8.0 + 2.0**-24), np.log(2.0**-24)]),
        ({"floor": 1e-5, "magnitude_epsilon": 1e-9}, [np.log(10), np.log(4), np.log(2e-4)]),
    ],
)  # fmt: skip
def test_log_mel(fields: dict[str, float], expected: list[float]) -> None:
    """Bins of magnitude 5 and 0 with weights 2 and 1; the third band takes the silent bin alone."""
    spectrum = np.array([[3, 0, 4, 0]], np.float32)
    bank = np.array([[2, 0.32, 0], [1, 0, 1]], np.float32)
    if "magnitude_epsilon" in fields:
        bank[0, 1], bank[1, 2] = 0.8, 2e-4 / 10**-4.5
    found = OPS.log_mel(spectrum, MelBank(bank, **fields))
    assert found.dtype == np.float32
    assert np.allclose(found, [expected], atol=2e-5)
    with pytest.raises(ValueError, match="spectrum"):
        OPS.log_mel(spectrum[:, :3], MelBank(bank))


def test_feature_stats_are_of_the_rows_that_a_length_counts() -> None:
    x = np.random.default_rng(2).standard_normal((3, 8, 5)).astype(np.float32)
    x[:, :, 4] = -16.635532
    lengths = SeqLengths(np.array([8, 5, 0], np.uint32), 2)
    found = OPS.feature_stats(x.reshape(24, 5), lengths).reshape(3, 3, 5)
    for rows, count, (top, mean, deviation) in zip(x, (4, 3, 1), found, strict=True):
        part = rows[:count].astype(np.float64)
        assert np.array_equal(top, part.max(axis=0))
        assert np.allclose(mean, part.mean(axis=0), atol=1e-6)
        wanted = part.std(axis=0, ddof=1) if count > 1 else np.zeros(5)
        assert np.allclose(deviation, wanted, atol=1e-6)
        assert mean[4] == rows[0, 4] and deviation[4] == 0


def test_normalise_features() -> None:
    x = np.array([[1, -9], [0, 3]], np.float32)
    stats = np.array([[1, 2, 5, 6, 0.5, 2], [-1, -2, 1, 1, 0, 1]], np.float32)
    peak = OPS.normalise_features(x, stats, "peak")
    assert np.allclose(peak, [[1.25, -0.5], [1, 1.75]])
    standard = OPS.normalise_features(x, stats, "standard")
    assert np.allclose(standard[0], [-4 / 0.50001, -15 / 2.00001])
    assert np.allclose(standard[1], [-1 / 1e-5, 2 / 1.00001])
    with pytest.raises(ValueError, match="statistics"):
        OPS.normalise_features(x, stats[:, :4], "peak")
