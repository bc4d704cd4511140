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
from oscine.models.parakeet.features import NemoFeatures
from oscine.models.parakeet.front_end import front_end as nemo_front_end
from oscine.models.parakeet.samples import NemoSamples, Preemphasized
from oscine.models.whisper.front_end import front_end
from oscine.ops.reference import Reference

FRAMES, N_MELS = 300, 80
#: Of features whose float16 neighbours are 5e-4 to 1e-3 apart. Float32 rounds a band that is eight
#: decades below another of its frame.
LIMIT, MEAN_LIMIT = 2e-4, 3e-6
#: NeMo divides by the deviation of a band, which is small where nothing changes.
NEMO_LIMIT, NEMO_MEAN_LIMIT = 1e-3, 3e-5
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

    def analyse(samples: np.ndarray, frames: int) -> Any:
        found = plan.statistics(samples, frames)
        return lambda: found

    expected = WhisperFeatures(recording, N_MELS, FRAMES)
    windows = WhisperSamples(recording, N_MELS, FRAMES, analyse)
    target = backend.zeros((2 * FRAMES, N_MELS))
    for seek, size, silence in ((0, FRAMES, False), (0, 40, True), (170, FRAMES, False)):
        plan.run(windows.window(seek, size, silence=silence), target, 1)
        found = backend.read(target)
        difference = np.abs(found[FRAMES:] - expected.window(seek, size, silence=silence))
        assert difference.max() < LIMIT
        assert difference.mean() < MEAN_LIMIT
        assert not found[:FRAMES].any()
    plan.release()


@pytest.mark.parametrize("cached_seconds", [600, 0])
@pytest.mark.parametrize(
    "name", [name for name in RECORDINGS if name not in ("tone", "one window")]
)
def test_features_of_nemo(backend: Any, name: str, cached_seconds: int) -> None:
    """Without the tones: most bands of them have no deviation but that of rounding."""
    plan = FeaturePlan(backend, ops.upload(backend, nemo_front_end(N_MELS)), FRAMES)
    recording = InMemory(name, RECORDINGS[name].astype(np.float32))

    def analyse(samples: np.ndarray, frames: int) -> Any:
        found = plan.statistics(samples, frames)
        return lambda: found

    expected = NemoFeatures(recording, N_MELS)
    windows = NemoSamples(
        Preemphasized(recording), N_MELS, FRAMES, analyse, cached_seconds=cached_seconds
    )
    count = expected.frames
    assert (windows.frames, windows.duration) == (count, expected.duration)
    target = backend.zeros((2 * FRAMES, N_MELS))
    for first, last, own in (
        (0, min(count, FRAMES), False), (count // 2, count // 2 + 100, False),
        (count // 3, count // 3 + 50, True), (max(0, count - 100), count, False),
    ):  # fmt: skip
        if not first < last <= count:
            continue
        window = windows.window(first, last, self_normalised=own)
        assert window.shape == (last - first, N_MELS)
        plan.run(window, target, 1)
        found = backend.read(target)[FRAMES : FRAMES + last - first]
        difference = np.abs(found - expected.window(first, last, self_normalised=own))
        assert difference.max() < NEMO_LIMIT
        assert difference.mean() < NEMO_MEAN_LIMIT
        windows.release(first)
        expected.release(first)
    with pytest.raises(ValueError, match="frames 0 to"):
        windows.window(0, count + 1)
