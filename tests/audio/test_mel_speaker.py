"""The speaker encoder's front end: upstream's values, its edges, what is too short."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oscine.audio.mel import mel_filters
from oscine.audio.mel_speaker import (
    HOP_LENGTH,
    MIN_MAGNITUDE,
    MIN_SAMPLES,
    N_FFT,
    SAMPLE_RATE,
    speaker_mel,
)

GOLDEN = Path(__file__).resolve().parents[1] / "goldens" / "qwen3_tts" / "base" / "expected.npz"


def slow_mel(samples: np.ndarray, n_mels: int) -> np.ndarray:
    """The same formulas step by step in float64."""
    x = np.pad(samples.astype(np.float64), 384, mode="reflect")
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(1024) / 1024)
    frames = [x[256 * i : 256 * i + 1024] * window for i in range((len(x) - 1024) // 256 + 1)]
    magnitudes = np.sqrt(np.abs(np.fft.rfft(np.array(frames))) ** 2 + 1e-9)
    bank = mel_filters(n_mels, N_FFT, SAMPLE_RATE).T.astype(np.float64)
    return np.log(np.maximum(magnitudes @ bank, 1e-5))


def test_bank_and_features_are_upstreams() -> None:
    with np.load(GOLDEN) as arrays:
        bank = mel_filters(128, N_FFT, SAMPLE_RATE)
        np.testing.assert_allclose(bank, arrays["mel_filterbank"], rtol=0, atol=1e-7)
        for case in ("spk_a", "spk_b"):
            found = speaker_mel(arrays[f"{case}/wav"], 128)
            np.testing.assert_allclose(found, arrays[f"{case}/mel"], rtol=0, atol=1e-4)


def test_bank_reaches_half_the_rate() -> None:
    bins = np.arange(N_FFT // 2 + 1) * SAMPLE_RATE / N_FFT
    bank = mel_filters(128, N_FFT, SAMPLE_RATE)
    assert bins[bank[-1] > 0].max() > 11_900
    assert not np.array_equal(bank, mel_filters(128, N_FFT))  # that of 16 kHz


@settings(max_examples=20)
@given(st.integers(MIN_SAMPLES, 20_000), st.integers(0, 99))
def test_equals_the_formulas(length: int, seed: int) -> None:
    samples = np.random.default_rng(seed).uniform(-1, 1, length).astype(np.float32)
    found = speaker_mel(samples, 40)
    assert found.shape == (length // HOP_LENGTH, 40)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, slow_mel(samples, 40), rtol=0, atol=2e-5)


def test_silence_is_the_floor_of_power_or_of_bands() -> None:
    silent = speaker_mel(np.zeros(4096, np.float32), 128)
    assert silent.min() >= np.float32(np.log(MIN_MAGNITUDE))
    assert np.ptp(silent, axis=0).max() == 0


def test_what_cannot_be_mirrored_is_refused() -> None:
    assert speaker_mel(np.zeros(MIN_SAMPLES, np.float32), 8).shape == (1, 8)
    with pytest.raises(ValueError, match="384 samples cannot be mirrored"):
        speaker_mel(np.zeros(MIN_SAMPLES - 1, np.float32), 8)
