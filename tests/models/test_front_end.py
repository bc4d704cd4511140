"""Features from samples on a backend against those of the host, which are computed in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oscine import ops
from oscine.audio.features import WhisperFeatures, WhisperSamples
from oscine.audio.mel import SAMPLE_RATE
from oscine.audio.timeline import InMemory
from oscine.models.front_end import FeaturePlan
from oscine.models.whisper.front_end import front_end
from oscine.ops.reference import Reference

FRAMES, N_MELS = 300, 80
#: Of features whose float16 neighbours are 5e-4 to 1e-3 apart. Float32 rounds a band that is eight
#: decades below another of its frame.
LIMIT, MEAN_LIMIT = 2e-4, 3e-6
TIME = np.arange(5 * SAMPLE_RATE) / SAMPLE_RATE

RECORDINGS = {
    "tone": 0.9 * np.sin(2 * np.pi * 440.3 * TIME),
    "noise, louder and louder": np.random.default_rng(0).standard_normal(len(TIME)) * TIME / 8,
    "one window": np.sin(2 * np.pi * 3000 * TIME[: 2 * SAMPLE_RATE] ** 2),
    "silence": np.zeros(SAMPLE_RATE),
    "a click, then silence": np.eye(1, 4 * SAMPLE_RATE, 100)[0],
    "shorter than its mirror": 0.1 * TIME[:150],
}


@pytest.fixture(params=["numpy", pytest.param("gpu", marks=pytest.mark.gpu)])
def backend(request: pytest.FixtureRequest) -> Any:
    return Reference() if request.param == "numpy" else request.getfixturevalue("gpu")


@pytest.mark.parametrize("name", RECORDINGS)
def test_features_of_whisper(backend: Any, name: str) -> None:
    plan = FeaturePlan(backend, ops.upload(backend, front_end(N_MELS)), FRAMES)
    recording = InMemory(name, RECORDINGS[name].astype(np.float32))

    def search(samples: np.ndarray, frames: int) -> Any:
        peak = plan.peak(samples, frames)
        return lambda: peak

    expected = WhisperFeatures(recording, N_MELS, FRAMES)
    windows = WhisperSamples(recording, N_MELS, FRAMES, search)
    target = backend.zeros((2 * FRAMES, N_MELS))
    for seek, size, silence in ((0, FRAMES, False), (0, 40, True), (170, FRAMES, False)):
        plan.run(windows.window(seek, size, silence=silence), target, 1)
        found = backend.read(target)
        difference = np.abs(found[FRAMES:] - expected.window(seek, size, silence=silence))
        assert difference.max() < LIMIT
        assert difference.mean() < MEAN_LIMIT
        assert not found[:FRAMES].any()
    plan.release()
