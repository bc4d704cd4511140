"""The encoder as a whole: batches, bands, channels that kernels do not take."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from oscine import ops
from oscine.engine.sequence import EncoderInput
from oscine.models.parakeet import model
from oscine.models.parakeet.config import ParakeetConfig
from oscine.models.parakeet.encoder import EncoderRunner, HeadProjection
from oscine.models.parakeet.weights import (
    ConformerBlock,
    ConvModule,
    EncoderWeights,
    FeedForward,
    RelPosAttention,
    SubsamplingLayer,
    pad_channels,
)
from oscine.ops import LayerNorm, Linear
from oscine.ops.reference import Reference
from oscine.probe import probing

Array = NDArray[Any]

CONFIG = ParakeetConfig(
    n_mels=20,
    d_model=24,
    n_heads=3,
    n_layers=2,
    ff_dim=96,
    conv_kernel_size=5,
    subsampling_channels=6,
    subsampling_factor=8,
    xscaling=False,
    vocab_size=9,
    predictor_dim=0,
    predictor_layers=0,
    joint_dim=0,
    durations=(),
    max_symbols=10,
    has_ctc=True,
)


def made_up(config: ParakeetConfig) -> EncoderWeights:
    """An encoder of random weights, of the size that keeps its activations near one."""
    rng = np.random.default_rng(5)

    def noise(*shape: int) -> Array:
        return rng.standard_normal(shape).astype(np.float32)

    def linear(outputs: int, inputs: int) -> Linear:
        return Linear(noise(outputs, inputs) / np.float32(inputs**0.5), noise(outputs) / 8)

    def norm() -> LayerNorm:
        return LayerNorm(1 + noise(config.d_model) / 8, noise(config.d_model) / 8)

    def block() -> ConformerBlock:
        d = config.d_model

        def feed_forward() -> FeedForward:
            return FeedForward(norm(), linear(config.ff_dim, d), linear(d, config.ff_dim))

        return ConformerBlock(
            feed_forward(),
            RelPosAttention(
                norm(), linear(3 * d, d), linear(d, d), linear(d, d), noise(d), noise(d)
            ),
            ConvModule(
                norm(),
                linear(2 * d, d),
                Linear(noise(config.conv_kernel_size, d), noise(d)),
                linear(d, d),
            ),
            feed_forward(),
            norm(),
        )

    channels, width = config.subsampling_channels, config.n_mels
    halvings = tuple(
        SubsamplingLayer(
            Linear(noise(3, 3, channels) / 3, noise(channels)), linear(channels, channels)
        )
        for _ in range(2)
    )
    for _ in range(3):
        width = -(-width // 2)
    first = Linear(noise(3, 3, channels) / 3, noise(channels))
    blocks = tuple(block() for _ in range(config.n_layers))
    return EncoderWeights(first, halvings, linear(config.d_model, width * channels), blocks)


def encoded(
    backend: Any,
    mels: list[Array],
    n: int,
    attention_window: tuple[int, int] | None = None,
    weights: EncoderWeights | None = None,
) -> list[Array]:
    """Utterances padded with noise to n frames, encoded side by side; each one's own rows."""
    w = ops.upload(backend, weights or pad_channels(made_up(CONFIG)))
    rows = -(-n // CONFIG.subsampling_factor)
    mel = np.full((len(mels), n, CONFIG.n_mels), 9, np.float32)
    for b, one in enumerate(mels):
        mel[b, : len(one)] = one
    mel_slot = backend.zeros((len(mels) * n, CONFIG.n_mels))
    frames = backend.zeros((len(mels),), np.uint32)
    count = rows if attention_window is None else max(attention_window) + 1
    distances = [backend.zeros((2 * count - 1, CONFIG.d_model)) for _ in range(CONFIG.n_layers)]
    out = backend.zeros((len(mels) * rows, CONFIG.d_model))

    def prepare() -> None:
        for x, slot in zip(
            model.project_positions(backend, w, CONFIG, count), distances, strict=True
        ):
            backend.store(x, slot)

    def trace() -> None:
        backend.store(
            model.encode(backend, w, CONFIG, mel_slot, frames, distances, attention_window), out
        )

    backend.write(mel_slot, mel)
    backend.write(frames, np.array([len(one) for one in mels], np.uint32))
    backend.record(prepare, name="positions").run()
    backend.record(trace, name="encoder").run()
    y = backend.read(out).reshape(len(mels), rows, -1)
    return [y[b, : -(-len(one) // CONFIG.subsampling_factor)] for b, one in enumerate(mels)]


def sounds(*lengths: int) -> list[Array]:
    rng = np.random.default_rng(1)
    return [rng.standard_normal((n, CONFIG.n_mels)).astype(np.float32) for n in lengths]


def alike(got: list[Array], want: list[Array]) -> None:
    for a, b in zip(got, want, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=0, atol=2e-4)


def test_a_padded_batch_gives_what_each_gives_alone() -> None:
    mels = sounds(97, 1, 64, 9)
    alone = [encoded(Reference(), [mel], len(mel))[0] for mel in mels]
    alike(encoded(Reference(), mels, 97 + 24), alone)


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        ([384] * 9, [8, 1]),
        ([384] * 5, [4, 1]),
        ([384] * 7, [7]),  # a pass of 8 with an eighth of padding
        ([384] * 20, [16, 4]),
        ([512] * 16, [8, 8]),  # 6,144 encoder frames are the most
        ([9000, 200], [1, 1]),
        ([400, 16, 390, 30, 380], [4, 1]),
    ],
)
def test_passes_have_little_padding_and_bounded_size(
    frames: list[int], expected: list[int]
) -> None:
    """Where plans are recorded for powers of two of inputs."""
    backend = Reference()
    backend.bucket_rows = lambda count: 1 << (count - 1).bit_length()  # type: ignore[method-assign]
    head = HeadProjection(CONFIG.d_model, lambda x: x)
    runner = EncoderRunner(backend, CONFIG, made_up(CONFIG), head)
    inputs = [EncoderInput(np.zeros((8 * count, CONFIG.n_mels), np.float32)) for count in frames]
    passes = list(runner.batches(inputs))
    assert [len(group) for group in passes] == expected
    together = [number for group in passes for number in group]
    assert sorted(together) == list(range(len(frames)))
    assert [frames[number] for number in together] == sorted(frames, reverse=True)


def test_a_band_that_reaches_everywhere_is_no_band() -> None:
    mels = sounds(120)
    alike(
        encoded(Reference(), mels, 120, attention_window=(15, 14)), encoded(Reference(), mels, 120)
    )


def test_a_band_hides_what_is_far() -> None:
    near, far = sounds(400, 400)
    far[:160] = near[:160]
    # Two blocks, each one reaching 2 frames of attention and 2 of convolution; 2 of subsampling.
    a, b = (encoded(Reference(), [mel], 400, attention_window=(2, 2))[0] for mel in (near, far))
    np.testing.assert_array_equal(a[:10], b[:10])
    assert np.abs(a[20:] - b[20:]).max() > 0.1
    whole, other = (encoded(Reference(), [mel], 400)[0] for mel in (near, far))
    assert np.abs(whole[:10] - other[:10]).max() > 1e-3


def test_channels_of_zeros_change_nothing() -> None:
    mels, weights = sounds(75), made_up(CONFIG)
    assert pad_channels(weights).subsampling_first_conv.weight.shape == (3, 3, 8)
    alike(encoded(Reference(), mels, 75, weights=weights), encoded(Reference(), mels, 75))
    fours = pad_channels(weights)
    assert pad_channels(fours) is fours


def test_stages_are_those_of_the_layers() -> None:
    backend, weights = Reference(), made_up(CONFIG)
    (mel,) = sounds(40)
    frames = np.array([40], np.uint32)
    distances = model.project_positions(backend, weights, CONFIG, 5)
    seen: dict[str, Array] = {}
    with probing(seen.__setitem__):
        whole = model.encode(backend, weights, CONFIG, mel, frames, distances)
    subsampled = model.conv_subsampling(backend, weights, mel, frames)
    np.testing.assert_array_equal(seen["encoder.subsampled"], subsampled)
    assert np.abs(seen["encoder.layer0"] - seen["encoder.layer1"]).max() > 0.1
    np.testing.assert_array_equal(seen["encoder.layer1"], whole)
    halfway = model.feed_forward(backend, subsampled, weights.blocks[0].feed_forward1)
    np.testing.assert_array_equal(seen["encoder.layer0.ff1"], halfway)
    assert {"encoder.layer0.attn", "encoder.layer1.conv"} <= set(seen)


@pytest.mark.host
@pytest.mark.gpu
@pytest.mark.parametrize("attention_window", [None, (3, 2)])
def test_the_gpu_agrees(gpu: Any, attention_window: tuple[int, int] | None) -> None:
    mels = sounds(310, 17, 1, 200)
    want = encoded(Reference(), mels, 328, attention_window)
    for a, b in zip(encoded(gpu, mels, 328, attention_window), want, strict=True):
        cosine = np.vdot(a, b) / np.linalg.norm(a) / np.linalg.norm(b)
        print(f"largest difference {np.abs(a - b).max():.2e}, cosine {cosine:.7f}")
        assert cosine >= 0.99999
