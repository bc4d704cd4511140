"""Frames of a whole recording, in whatever pieces they are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oscine.audio.mel_nemo import log_mel
from oscine.models.parakeet.features import NemoFeatures


class InBlocks:
    def __init__(self, samples: Any, size: int) -> None:
        self.name, self.samples, self.size, self.readings = "test", samples, size, 0

    def blocks(self, rate: int = 16_000) -> Iterator[Any]:
        self.readings += 1
        for start in range(0, len(self.samples), self.size):
            yield self.samples[start : start + self.size]


def noise(count: int) -> Any:
    return np.random.default_rng(0).standard_normal(count).astype(np.float32) * np.float32(0.1)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 700_000), st.integers(4_000, 400_000), st.booleans())
def test_frames_are_those_of_the_whole(count: int, size: int, cached: bool) -> None:
    recording = InBlocks(noise(count), size)
    features = NemoFeatures(recording, 16, cached_seconds=600 if cached else 0)
    whole = log_mel(recording.samples, 16)
    assert features.frames == len(whole)
    assert features.duration == count / 16_000
    step = 700
    for start in range(0, len(whole), step):
        stop = min(start + step + 150, len(whole))
        rows = features.rows(start, stop)
        assert rows.shape == (stop - start, 16)
        np.testing.assert_allclose(rows, whole[start:stop], atol=2e-4)
        features.release(start)
    assert recording.readings == (1 if cached or count < 160 else 2)


def test_what_was_let_go_is_read_again() -> None:
    recording = InBlocks(noise(2_000_000), 30_000)
    features = NemoFeatures(recording, 16, cached_seconds=1)
    first = features.rows(0, 500)
    features.rows(9_000, 12_000)
    features.release(11_000)
    np.testing.assert_array_equal(features.rows(0, 500), first)
    assert recording.readings == 3


def test_little_is_held() -> None:
    features = NemoFeatures(InBlocks(noise(16_000 * 200), 4_000), 16, cached_seconds=10)
    most = 0
    for start in range(0, features.frames - 1000, 500):
        features.rows(start, start + 1000)
        features.release(start)
        most = max(most, sum(map(len, features._held)))
    assert most < 1000 + 2 * 1100


def test_frames_that_are_not_there() -> None:
    features = NemoFeatures(InBlocks(noise(16_000), 16_000), 16)
    with pytest.raises(ValueError, match="101"):
        features.rows(0, 101)
    silence = NemoFeatures(InBlocks(np.zeros(16_000, np.float32), 16_000), 16)
    assert not silence.rows(0, 100).any()
