"""The speaker encoder: upstream's stages, the shortest reference, refused input."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from oscine.errors import NonFiniteError, UsageError
from oscine.models.loader import ArrayLoader, ShapeCheckLoader
from oscine.models.qwen3_tts import layers
from oscine.models.qwen3_tts.config import SpeakerEncoderConfig
from oscine.models.qwen3_tts.speaker import SpeakerEncoder
from oscine.models.qwen3_tts.weights import (
    SpeakerEncoderWeights,
    build_speaker_encoder,
    load_weights,
)
from oscine.ops import Linear
from oscine.ops.reference import Reference
from oscine.probe import probing
from oscine.types import Audio
from oscine.weights import LazyTensor

GOLDEN = Path(__file__).resolve().parents[2] / "goldens" / "qwen3_tts" / "base"


@pytest.fixture(scope="module")
def arrays() -> dict[str, np.ndarray]:
    with np.load(GOLDEN / "expected.npz") as stored:
        return dict(stored)


def encoder(backend: Any) -> SpeakerEncoder:
    weights = load_weights(GOLDEN / "ckpt")
    assert isinstance(weights.speaker, SpeakerEncoderWeights)
    assert weights.config.speaker_encoder is not None
    return SpeakerEncoder(weights.speaker, weights.config.speaker_encoder, backend)


@pytest.fixture(scope="module")
def speaker() -> SpeakerEncoder:
    return encoder(Reference())


@pytest.mark.parametrize("case", ["spk_a", "spk_b"])
def test_stages_are_upstreams(
    speaker: SpeakerEncoder, arrays: dict[str, np.ndarray], case: str
) -> None:
    seen: dict[str, np.ndarray] = {}
    with probing(seen.__setitem__):
        vector = speaker.embed_mel(arrays[f"{case}/mel"])
    stages = ["block0", "block1", "block2", "block3", "mfa", "pooled"]
    assert list(seen) == [f"speaker.{stage}" for stage in stages]
    for name in stages:
        found, want = seen[f"speaker.{name}"], arrays[f"{case}/{name}"]
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
    noise = np.random.default_rng(0).normal(0, 0.1, speaker.min_samples).astype(np.float32)
    assert speaker.min_samples == 1280
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


def small(
    parts: int, part: int, squeeze: int, attention: int
) -> tuple[SpeakerEncoderWeights, SpeakerEncoderWeights, SpeakerEncoderConfig]:
    """A speaker encoder of random weights, two blocks of `parts` parts of `part` channels.

    As it is loaded, and without the zeros that fill up widths.
    """
    width = parts * part
    config = SpeakerEncoderConfig(
        8, 12, (width, width, width, 2 * width), (5, 3, 3, 1), (1, 2, 3, 1), attention, parts,
        squeeze,
    )  # fmt: skip
    rng, expect = np.random.default_rng(parts * part), ShapeCheckLoader(Path("made"), {})
    build_speaker_encoder(expect, config)
    entries = {}
    for name, shape in expect.expected.items():
        array = rng.standard_normal(shape).astype(np.float32)
        array /= np.float32(8 if array.ndim == 1 else array[0].size ** 0.5)
        entries[name] = LazyTensor(shape, array.dtype, partial(np.copy, array))
    read = ArrayLoader(Path("made"), entries)
    with mock.patch.object(layers, "pad_linear", lambda linear, *_: linear):
        plain = build_speaker_encoder(read, config)
    return build_speaker_encoder(read, config), plain, config


def by_the_paper(w: SpeakerEncoderWeights, mel: np.ndarray) -> np.ndarray:
    """The network of arXiv:2005.07143, figure 2, in float64 and channels first."""

    def conv(x: np.ndarray, layer: Linear, dilation: int = 1) -> np.ndarray:
        weight = layer.weight.astype(np.float64).reshape(len(layer.weight), -1, len(x))
        reach = dilation * (weight.shape[1] - 1)
        wide = np.pad(x, ((0, 0), (reach // 2, reach - reach // 2)), mode="reflect") if reach else x
        taps = [
            weight[:, place] @ wide[:, place * dilation : place * dilation + x.shape[1]]
            for place in range(weight.shape[1])
        ]
        assert layer.bias is not None
        return np.sum(taps, axis=0) + layer.bias[:, None]

    def tdnn(x: np.ndarray, layer: Linear, dilation: int = 1) -> np.ndarray:
        return np.maximum(conv(x, layer, dilation), 0)

    def mean_and_deviation(x: np.ndarray, weights: np.ndarray) -> np.ndarray:
        mean = (x * weights).sum(1, keepdims=True)
        return np.concatenate([mean, np.sqrt(((x - mean) ** 2 * weights).sum(1, keepdims=True))])

    x = tdnn(mel.T.astype(np.float64), w.tdnn)
    outputs = []
    for block in w.blocks:
        parts = np.split(tdnn(x, block.tdnn1), len(block.res2net) + 1)
        for index, layer in enumerate(block.res2net, 1):
            before = parts[index - 1] if index > 1 else 0
            parts[index] = tdnn(parts[index] + before, layer, block.dilation)
        y = tdnn(np.concatenate(parts), block.tdnn2)
        gate = conv(tdnn(y.mean(1, keepdims=True), block.se_conv1), block.se_conv2)
        x = x + y / (1 + np.exp(-gate))
        outputs.append(x)
    x = tdnn(np.concatenate(outputs), w.mfa)
    even = np.full_like(x, 1 / x.shape[1])
    beside = np.concatenate([x, np.repeat(mean_and_deviation(x, even), x.shape[1], axis=1)])
    scores = conv(np.tanh(tdnn(beside, w.asp_tdnn)), w.asp_conv)
    attention = np.exp(scores - scores.max(1, keepdims=True))
    attention /= attention.sum(1, keepdims=True)
    return conv(mean_and_deviation(x, attention), w.fc)[:, 0]


#: Of parts, channels of each, squeeze and attention; kernels take multiples of four.
SIZES = [(4, 8, 8, 8), (4, 6, 5, 7), (12, 3, 6, 2), (2, 2, 4, 4), (1, 12, 4, 4)]


@pytest.mark.parametrize("sizes", SIZES)
def test_the_network_is_the_papers_whatever_its_sizes(sizes: tuple[int, int, int, int]) -> None:
    weights, plain, config = small(*sizes)
    mel = np.random.default_rng(1).standard_normal((41, 12)).astype(np.float32)
    found = SpeakerEncoder(weights, config, Reference()).embed_mel(mel)
    want = by_the_paper(plain, mel)
    np.testing.assert_allclose(found, want, rtol=0, atol=1e-5 * np.abs(want).max())


@pytest.mark.gpu
@pytest.mark.parametrize("sizes", SIZES[1:3])
def test_a_gpu_takes_parts_of_any_width(gpu: Any, sizes: tuple[int, int, int, int]) -> None:
    weights, plain, config = small(*sizes)
    mel = np.random.default_rng(1).standard_normal((41, 12)).astype(np.float32)
    want = by_the_paper(plain, mel)
    found = SpeakerEncoder(weights, config, gpu).embed_mel(mel)
    np.testing.assert_allclose(found, want, rtol=0, atol=1e-4 * np.abs(want).max())


def test_damaged_weights_make_no_voice() -> None:
    weights = load_weights(GOLDEN / "ckpt")
    assert weights.speaker is not None and weights.config.speaker_encoder is not None
    second = weights.speaker.blocks[0].tdnn2
    for part in (second.weight, second.bias):
        assert part is not None
        array = part.copy()
        array.flat[0] = np.nan
        name = "weight" if part is second.weight else "bias"
        linear = replace(second, **{name: array})
        block = replace(weights.speaker.blocks[0], tdnn2=linear)
        damaged = replace(weights.speaker, blocks=(block, *weights.speaker.blocks[1:]))
        with pytest.raises(NonFiniteError, match="the speaker encoder has weights that are not"):
            SpeakerEncoder(damaged, weights.config.speaker_encoder, Reference())
