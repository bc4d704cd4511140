"""The speaker encoder: upstream's stages, the shortest reference, what it refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oscine.errors import NonFiniteError, UsageError
from oscine.models.qwen3_tts.speaker import SpeakerEncoder
from oscine.models.qwen3_tts.weights import SpeakerWeights, load_weights
from oscine.ops.reference import Reference
from oscine.types import Audio

GOLDEN = Path(__file__).resolve().parents[2] / "goldens" / "qwen3_tts" / "base"


@pytest.fixture(scope="module")
def arrays() -> dict[str, np.ndarray]:
    with np.load(GOLDEN / "expected.npz") as stored:
        return dict(stored)


def encoder(backend: Any) -> SpeakerEncoder:
    weights = load_weights(GOLDEN / "ckpt")
    assert isinstance(weights.speaker, SpeakerWeights)
    assert weights.config.speaker is not None
    return SpeakerEncoder(weights.speaker, weights.config.speaker, backend)


@pytest.fixture(scope="module")
def speaker() -> SpeakerEncoder:
    return encoder(Reference())


@pytest.mark.parametrize("case", ["spk_a", "spk_b"])
def test_stages_are_upstreams(
    speaker: SpeakerEncoder, arrays: dict[str, np.ndarray], case: str
) -> None:
    seen: dict[str, np.ndarray] = {}
    vector = speaker.embed_mel(arrays[f"{case}/mel"], lambda name, x: seen.update({name: x}))
    assert set(seen) == {"block0", "block1", "block2", "block3", "mfa", "pooled"}
    for name, found in seen.items():
        want = arrays[f"{case}/{name}"]
        want = want[None] if want.ndim == 1 else want.T
        limit = 1e-5 * max(1.0, float(np.abs(want).max()))
        np.testing.assert_allclose(found, want, rtol=0, atol=limit)
    np.testing.assert_allclose(vector, arrays[f"{case}/embedding"], rtol=0, atol=1e-4)


def test_embeds_references_as_upstream(
    speaker: SpeakerEncoder, arrays: dict[str, np.ndarray]
) -> None:
    vector = speaker.embed(Audio(arrays["ref_wav_short"], 24000))
    assert vector.dtype == np.float32
    np.testing.assert_allclose(vector, arrays["xvec/speaker_embedding"], rtol=0, atol=1e-4)


def test_the_shortest_reference(speaker: SpeakerEncoder) -> None:
    noise = np.random.default_rng(0).normal(0, 0.1, speaker.least_samples).astype(np.float32)
    assert speaker.least_samples == 1280
    assert np.isfinite(speaker.embed(noise)).all()
    with pytest.raises(UsageError, match=r"has 1279 samples; it needs 1280 or more, 0\.053 s"):
        speaker.embed(noise[1:])


@pytest.mark.parametrize(
    ("samples", "error", "message"),
    [
        (np.zeros(0, np.float32), UsageError, "has 0 samples"),
        (np.zeros((2000, 2), np.float32), UsageError, "average its channels first"),
        (np.zeros(2000, np.int16), UsageError, "not int16"),
        (np.full(2000, np.nan), NonFiniteError, "NaN or infinite"),
        (Audio(np.zeros(2000, np.float32), 44100), UsageError, "not 44100; resample it first"),
    ],
)
def test_what_is_no_reference_is_refused(
    speaker: SpeakerEncoder, samples: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        speaker.embed(samples)
    assert "\n" not in str(caught.value)


@pytest.mark.gpu
def test_a_gpu_gives_the_same_vector(gpu: Any, arrays: dict[str, np.ndarray]) -> None:
    want = arrays["spk_b/embedding"]
    found = encoder(gpu).embed(arrays["spk_b/wav"])
    np.testing.assert_allclose(found, want, rtol=0, atol=1e-3 * float(np.abs(want).max()))


def test_damaged_weights_make_no_voice() -> None:
    weights = load_weights(GOLDEN / "ckpt")
    assert weights.speaker is not None and weights.config.speaker is not None
    second = weights.speaker.blocks[0].second
    for part in (second.weight, second.bias):
        assert part is not None
        array = part.copy()
        array.flat[0] = np.nan
        name = "weight" if part is second.weight else "bias"
        linear = replace(second, **{name: array})
        block = replace(weights.speaker.blocks[0], second=linear)
        damaged = replace(weights.speaker, blocks=(block, *weights.speaker.blocks[1:]))
        with pytest.raises(NonFiniteError, match="the speaker encoder has weights that are not"):
            SpeakerEncoder(damaged, weights.config.speaker, Reference())
