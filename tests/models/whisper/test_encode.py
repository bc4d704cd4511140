"""Several windows in one pass of the encoder: the same as one by one, and fewer where they must."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oscine.models.whisper.decode import Decoder

from oscine.errors import DeviceMemoryError
from oscine.gpu.plan import Plan
from oscine.models.whisper import model
from oscine.models.whisper.weights import WhisperWeights, load_weights
from oscine.ops.check import MATRIX_LIMIT, difference
from oscine.ops.gpu import Gpu
from oscine.ops.reference import Reference

GOLDEN = Path(__file__).resolve().parents[2] / "goldens" / "whisper_multi"
WINDOWS = 7

#: A block of one window without matrix units: kernels and grids, as they were when a pass took no
#: more than one. The grid of a norm is the hardware's.
BLOCK = [
    ("layer_norm", None),
    ("gemm", (2, 2, 1)),
    ("attention", (2, 3, 1)),
    ("gemm", (1, 2, 1)),
    ("layer_norm", None),
    ("gemm", (2, 2, 1)),
    ("gemm", (1, 2, 1)),
]


@pytest.fixture(scope="module")
def weights() -> WhisperWeights:
    return load_weights(GOLDEN)


@pytest.fixture(scope="module")
def mels(weights: WhisperWeights) -> list[Any]:
    shape = weights.config.window_frames, weights.config.n_mels
    rng = np.random.default_rng(5)
    return [rng.standard_normal(shape).astype(np.float32) for _ in range(WINDOWS)]


@pytest.fixture(params=["numpy", pytest.param("gpu", marks=pytest.mark.gpu)])
def backend(request: pytest.FixtureRequest) -> Any:
    return Reference() if request.param == "numpy" else request.getfixturevalue("gpu")


def memory_of(decoder: Decoder) -> list[Any]:
    return [decoder.backend.read(slot) for slot in decoder.memory]


def one_by_one(decoder: Decoder, mels: list[Any]) -> list[Any]:
    """What each window leaves in the memory when it is encoded alone."""
    found = []
    for mel in mels:
        decoder.encode([mel])
        found.append([layer[0] for layer in memory_of(decoder)])
    return [np.stack(layer) for layer in zip(*found, strict=True)]


def test_windows_together_are_as_one_by_one(
    weights: WhisperWeights, mels: list[Any], backend: Any
) -> None:
    decoder = Decoder(weights, backend)
    decoder.reserve(WINDOWS, 1)  # first, as the memory of several may be float16
    alone = one_by_one(decoder, mels)
    decoder.encode(mels)
    exact = backend.name == "NumPy"
    assert sorted(decoder.passes) == ([1] if exact else [1, 2, 4])
    for found, expected in zip(memory_of(decoder), alone, strict=True):
        error = difference(expected, found)
        print(f"{backend.name}: largest difference {error:.1e} of the largest value")
        assert error <= (0 if exact else MATRIX_LIMIT)
    before = memory_of(decoder)
    decoder.encode(mels[:3])  # of which the first two go together
    for found, expected in zip(memory_of(decoder), before, strict=True):
        np.testing.assert_array_equal(found[3:], expected[3:])
        assert difference(expected[:3], found[:3]) <= (0 if exact else MATRIX_LIMIT)


def test_a_batch_is_encoded_as_its_windows(weights: WhisperWeights, mels: list[Any]) -> None:
    """In NumPy too, which does so only where it is asked to."""
    ops, config = Reference(), weights.config
    single = [model.encode(ops, weights.encoder, config, mel) for mel in mels[:3]]
    together = model.encode(ops, weights.encoder, config, np.concatenate(mels[:3]), 3)
    np.testing.assert_allclose(together, np.concatenate(single), rtol=1e-4, atol=1e-5)


def dispatches(decoder: Decoder, count: int) -> list[Any]:
    plan = decoder.passes[count]
    assert isinstance(plan, Plan)
    return plan.dispatches


@pytest.mark.gpu
def test_the_plan_of_one_window_is_as_ever(weights: WhisperWeights, gpu: Gpu) -> None:
    own = Gpu(gpu.device)
    own.matrix = False
    decoder = Decoder(weights, own)
    recorded = [
        (step.kernel, None if step.kernel == "layer_norm" else step.grid)
        for step in dispatches(decoder, 1)
    ]
    stem = [("gemm", (1, 4, 1)), ("gemm", (1, 2, 1))]
    memory = [("gemm", (1, 2, 1))] * len(decoder.memory)
    assert recorded == [*stem, *BLOCK, *BLOCK, ("layer_norm", None), *memory]
    assert not any("WINDOW" in dict(parameters) for _, parameters in own.kernels.made)


@pytest.mark.gpu
def test_a_batch_takes_no_more_dispatches(weights: WhisperWeights, gpu: Gpu) -> None:
    decoder = Decoder(weights, gpu)
    decoder.reserve(4, 1)
    decoder.prepare(4)
    one, four = ([step.kernel for step in dispatches(decoder, count)] for count in (1, 4))
    assert four == one


@pytest.mark.parametrize(
    ("windows", "together", "sizes"),
    [(1, 4, [1]), (3, 4, [2, 1]), (4, 4, [4]), (11, 4, [4, 4, 2, 1]), (3, 1, [1, 1, 1])],
)
def test_sizes_of_passes(
    weights: WhisperWeights, windows: int, together: int, sizes: list[int]
) -> None:
    decoder = Decoder(weights, Reference())
    decoder.reserve(windows, 1)
    decoder.together = together
    assert decoder.pass_sizes(windows) == sizes


@pytest.mark.gpu
def test_a_batch_that_does_not_fit_is_halved(
    weights: WhisperWeights, mels: list[Any], gpu: Gpu, caplog: pytest.LogCaptureFixture
) -> None:
    own = Gpu(gpu.device)
    decoder = Decoder(weights, own)
    decoder.reserve(WINDOWS, 1)
    expected, config = one_by_one(decoder, mels), weights.config
    own.copy(decoder.memory[0], decoder.memory[0], [(0, 1)])  # makes room of its own for copies
    hidden = 4 * 4 * config.n_audio_state * config.n_audio_ctx  # bytes of a window's widest rows
    own.memory.largest_binding = 4 * hidden - 4
    with caplog.at_level("INFO"):
        decoder.encode(mels)
    (told,) = caplog.messages
    assert told.endswith("; windows are encoded 2 at a time")
    assert sorted(decoder.passes) == [1, 2]
    for found, alone in zip(memory_of(decoder), expected, strict=True):
        assert difference(alone, found) <= MATRIX_LIMIT


def test_a_window_that_does_not_fit_is_an_error(
    weights: WhisperWeights, mels: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder, asked = Decoder(weights, Reference()), []

    def full(trace: Callable[[], None], guard: Any = None, name: str = "") -> Any:
        asked.append(name)
        raise DeviceMemoryError("it", "full")

    monkeypatch.setattr(decoder.backend, "record", full)
    decoder.passes.clear()
    decoder.together = 4
    with pytest.raises(DeviceMemoryError):
        decoder.encode(mels[:1])
    assert asked == ["encode"]
