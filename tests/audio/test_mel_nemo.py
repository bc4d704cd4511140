"""NeMo's front end: the values of its formulas, the edges of a recording, silence, blocks."""

from __future__ import annotations

import json
import wave
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oscine.audio.mel import mel_filters
from oscine.audio.mel_nemo import (
    LOG_FLOOR,
    N_FFT,
    FeatureStats,
    frame_count,
    log_mel,
    raw_log_mel,
    statistics,
)

GOLDENS = Path(__file__).resolve().parents[1] / "goldens"
CASES = ("parakeet_ctc", "parakeet_tdt", "parakeet_rnnt")


def tone(seconds: float = 1.0) -> np.ndarray:
    t = np.arange(round(16000 * seconds)) / 16000
    return (0.5 * np.sin(2 * np.pi * 440 * t)).astype(np.float32)


def slow_raw(samples: np.ndarray, n_mels: int) -> np.ndarray:
    """The same formulas step by step in float64, as specs and papers write them."""
    x = samples.astype(np.float64)
    y = np.concatenate([x[:1], x[1:] - 0.97 * x[:-1]])
    y = np.pad(y, 256)
    window = np.pad(0.5 - 0.5 * np.cos(2 * np.pi * np.arange(400) / 399), 56)
    frames = [y[160 * i : 160 * i + 512] * window for i in range(len(x) // 160)]
    power = np.abs(np.fft.rfft(np.array(frames))) ** 2
    return np.log(power @ mel_filters(n_mels, N_FFT).T.astype(np.float64) + 2.0**-24)


@pytest.mark.parametrize(
    ("n_mels", "total", "largest", "row", "bins"),
    [
        (80, 2.558261, 0.0264066, 0, {1: 0.0225346, 2: 0.0086377}),
        (128, 4.090488, 0.0423661, 0, {1: 0.0283775}),
    ],
)
def test_the_bank_is_slaneys(
    n_mels: int, total: float, largest: float, row: int, bins: dict[int, float]
) -> None:
    bank = mel_filters(n_mels, N_FFT)
    assert bank.shape == (n_mels, 257)
    assert bank.sum(dtype=np.float64) == pytest.approx(total, abs=2e-6)
    assert bank.max() == pytest.approx(largest, abs=1e-7)
    assert {i: v for i, v in enumerate(bank[row]) if v} == pytest.approx(bins, abs=1e-7)


@pytest.mark.parametrize(
    ("n_mels", "peak", "at", "mean"), [(80, 0.63908, 11, -14.61354), (128, 0.80642, 18, -14.71809)]
)
def test_a_tone_gives_the_known_values(n_mels: int, peak: float, at: int, mean: float) -> None:
    raw = raw_log_mel(tone(), n_mels)
    assert raw.shape == (100, n_mels) and raw.dtype == np.float32
    assert raw[50].max() == pytest.approx(peak, abs=2e-5)
    assert raw[50].argmax() == at
    assert raw.mean(dtype=np.float64) == pytest.approx(mean, abs=2e-5)


@pytest.mark.parametrize("case", CASES)
def test_features_are_upstreams(case: str) -> None:
    with (
        np.load(GOLDENS / case / "golden.npz") as golden,
        wave.open(str(GOLDENS / "audio" / f"{case}.wav")) as file,
    ):
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2") / np.float32(32768)
        n_mels = golden["mel"].shape[1]
        raw = raw_log_mel(samples, n_mels)
        assert np.abs(raw[:64] - golden["mel_raw_first64"]).max() < 5e-4
        assert np.abs(raw[-16:] - golden["mel_raw_last17"][:16]).max() < 5e-4
        assert np.abs(log_mel(samples, n_mels) - golden["mel"]).max() < 2e-3
    assert len(raw) == json.loads((GOLDENS / case / "golden.json").read_text())["mel_frames"]


@settings(max_examples=30, deadline=None)
@given(st.integers(160, 3000), st.integers(0, 2**32 - 1))
def test_every_length_follows_the_formulas(length: int, seed: int) -> None:
    samples = np.random.default_rng(seed).standard_normal(length).astype(np.float32) * 0.1
    raw = raw_log_mel(samples, 16)
    assert np.abs(raw - slow_raw(samples, 16)).max() < 1e-4


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 40_000), st.integers(1, 90), st.integers(0, 2**32 - 1))
def test_blocks_are_the_whole(length: int, block: int, seed: int) -> None:
    samples = np.random.default_rng(seed).standard_normal(length).astype(np.float32)
    whole = raw_log_mel(samples, 8)
    starts = range(0, len(whole), block)
    parts = [raw_log_mel(samples, 8, start, start + block) for start in starts]
    assert len(whole) == frame_count(length)
    assert np.allclose(np.concatenate([whole[:0], *parts]), whole, atol=1e-5)
    if parts:
        once, split = FeatureStats.of([whole]), FeatureStats.of(parts)
        assert np.allclose(once.mean, split.mean, atol=1e-5)
        assert np.allclose(once.deviation, split.deviation, atol=1e-5)


def test_normalised_features_have_mean_zero_and_deviation_one() -> None:
    samples = np.random.default_rng(0).standard_normal(32_000).astype(np.float32)
    features = log_mel(samples, 80).astype(np.float64)
    assert np.abs(features.mean(axis=0)).max() < 1e-6
    assert np.abs(features.std(axis=0, ddof=1) - 1).max() < 1e-4
    known = statistics(samples, 80)
    assert np.array_equal(known.normalised(raw_log_mel(samples, 80)), log_mel(samples, 80))


def test_statistics_of_long_recordings_come_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = np.random.default_rng(1).standard_normal(50_000).astype(np.float32)
    once = statistics(samples, 8)
    monkeypatch.setattr("oscine.audio.mel_nemo._FRAMES_PER_BLOCK", 7)
    # Features are float32, whose last place depends on how BLAS goes about so many rows.
    assert np.allclose(statistics(samples, 8).deviation, once.deviation, rtol=1e-6)
    assert np.allclose(once.normalised(raw_log_mel(samples, 8)), log_mel(samples, 8), atol=1e-6)


@pytest.mark.parametrize("length", [160, 161, 16_000, 700_001])
def test_digital_silence_is_exactly_zero(length: int) -> None:
    silence = np.zeros(length, np.float32)
    assert (raw_log_mel(silence, 80) == np.float32(LOG_FLOOR)).all()
    assert (log_mel(silence, 80) == 0).all()


def test_one_frame_has_no_deviation() -> None:
    assert (log_mel(tone(0.01), 80) == 0).all()
    assert log_mel(tone(0.01), 80).shape == (1, 80)


@pytest.mark.parametrize("length", [0, 1, 159])
def test_less_than_a_hop_has_no_frame(length: int) -> None:
    assert log_mel(np.ones(length, np.float32), 128).shape == (0, 128)
    with pytest.raises(ValueError, match="no frame"):
        statistics(np.ones(length, np.float32), 128)


def test_infinite_loudness_stays_visible() -> None:
    """Whoever feeds NaN gets NaN, not a silent zero."""
    samples = tone()
    samples[8000] = np.nan
    with np.errstate(invalid="ignore"):
        assert np.isnan(log_mel(samples, 80)).any()
