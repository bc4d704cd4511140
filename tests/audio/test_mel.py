"""The front end against its published check values and a second, slow definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oscine.audio.mel import log_mel, log_power, mel_filters


def slow_log_mel(samples: np.ndarray, n_mels: int) -> np.ndarray:
    """The same features in float64 from an explicit Fourier matrix and triangles drawn singly."""
    padded = np.pad(samples.astype(np.float64), 200, mode="reflect")
    n, k = np.arange(400), np.arange(201)
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * n / 400)
    fourier = np.exp(-2j * np.pi * np.outer(k, n) / 400) * hann
    frames = len(samples) // 160
    power = np.array(
        [np.abs(fourier @ padded[160 * t : 160 * t + 400]) ** 2 for t in range(frames)]
    )
    top = 15 + 27 * np.log(8.0) / np.log(6.4)
    mels = np.arange(n_mels + 2) * top / (n_mels + 1)
    hertz = [m * 200 / 3 if m < 15 else 1000 * 6.4 ** ((m - 15) / 27) for m in mels]
    bank = np.zeros((n_mels, 201))
    for row in range(n_mels):
        low, centre, high = hertz[row : row + 3]
        for bin_ in range(201):
            f = 40.0 * bin_
            if low < f < high:
                slope = (f - low) / (centre - low) if f <= centre else (high - f) / (high - centre)
                bank[row, bin_] = slope * 2 / (high - low)
    logs = np.log10(np.maximum(power @ bank.T, 1e-10))
    return (np.maximum(logs, logs.max() - 8) + 4) / 4


@pytest.mark.parametrize(
    ("n_mels", "total", "largest", "first"),
    [(80, 1.999024, 0.0258807, 0.0248626), (128, 3.190986, 0.0416817, 0.0123740)],
)
def test_filter_bank_has_the_published_sums(n_mels, total, largest, first):
    bank = mel_filters(n_mels)
    assert bank.shape == (n_mels, 201)
    assert bank.dtype == np.float32
    assert bank.sum(dtype=np.float64) == pytest.approx(total, abs=2e-6)
    assert bank.max() == pytest.approx(largest, abs=1e-7)
    assert np.flatnonzero(bank[0]).tolist() == [1]
    assert bank[0, 1] == pytest.approx(first, abs=1e-7)


@pytest.mark.parametrize(("n_mels", "largest", "row"), [(80, 1.43820, 11), (128, 1.48535, 18)])
def test_a_tone_has_the_published_peak(n_mels, largest, row):
    t = np.arange(480_000) / 16_000
    tone = np.where(t < 1, 0.5 * np.sin(2 * np.pi * 440 * t), 0).astype(np.float32)
    features = log_mel(tone, n_mels)
    assert features.shape == (3000, n_mels)
    assert features.dtype == np.float32
    assert features.max() == pytest.approx(largest, abs=1e-5)
    assert features.min() == pytest.approx(largest - 2, abs=1e-5)
    assert features[50].argmax() == row


@pytest.mark.parametrize("n_mels", [80, 128])
@pytest.mark.parametrize("samples", [201, 320, 3999, 4000, 4001, 21_000])
def test_equals_the_slow_definition(n_mels, samples):
    rng = np.random.default_rng(samples)
    # Loud and quiet stretches with a tone: the clamp and the quiet bands both matter.
    x = rng.standard_normal(samples) * np.where(np.arange(samples) % 4000 < 1500, 0.2, 1e-4)
    x = (x + 0.3 * np.sin(np.arange(samples) * 0.7)).astype(np.float32)
    assert np.abs(log_mel(x, n_mels) - slow_log_mel(x, n_mels)).max() < 1e-6


@given(st.integers(0, 2000))
@settings(max_examples=60, deadline=None)
def test_frames_are_whole_hops(samples):
    features = log_mel(np.full(samples, 0.25, np.float32), 80)
    assert features.shape == (max(samples, 201) // 160, 80)
    assert np.isfinite(features).all()


def test_silence_is_flat_and_lies_below_the_filler():
    assert np.unique(log_mel(np.zeros(16_000, np.float32), 80)).tolist() == [-1.5]


@given(st.integers(0, 3000))
@settings(max_examples=60, deadline=None)
def test_log_power_takes_whole_frames_only(samples):
    rows = log_power(np.zeros(samples, np.float32), 80)
    assert len(rows) == len(range(0, samples - 399, 160))
    assert (rows == -10).all()
