"""Several windows in one pass of the encoder: the same as one by one, and fewer where they must."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oscine.audio.features import WhisperFeatures, WhisperSamples
from oscine.audio.sample_window import LogMelStats
from oscine.audio.timeline import InMemory
from oscine.engine.sequence import EncoderInput
from oscine.errors import DeviceMemoryError
from oscine.gpu.plan import Plan
from oscine.models.whisper import model
from oscine.models.whisper.encoder import WHOLE, WIDEST, max_windows
from oscine.models.whisper.runner import WhisperRunner
from oscine.models.whisper.sequences import AlignmentSequence
from oscine.models.whisper.weights import WhisperWeights, load_weights
from oscine.ops.check import MATRIX_LIMIT, difference
from oscine.ops.reference import Reference
from oscine.ops.webgpu import Gpu
from tests.engine.by_hand import ByHand

from .golden import results

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
def inputs(weights: WhisperWeights) -> list[EncoderInput]:
    shape = weights.config.window_frames, weights.config.n_mels
    rng = np.random.default_rng(5)
    return [EncoderInput(rng.standard_normal(shape).astype(np.float32)) for _ in range(WINDOWS)]


@pytest.fixture(params=["numpy", pytest.param("gpu", marks=pytest.mark.gpu)])
def backend(request: pytest.FixtureRequest) -> Any:
    return Reference() if request.param == "numpy" else request.getfixturevalue("gpu")


def memory_of(runner: WhisperRunner) -> list[Any]:
    return [runner.backend.read(layer) for layer in runner.memory.cross_kv]


def one_by_one(runner: WhisperRunner, inputs: list[EncoderInput]) -> list[Any]:
    """Cross keys and values of windows that are encoded one by one."""
    for slot, audio in enumerate(inputs):
        runner.encode([audio], [slot])
    return memory_of(runner)


def test_windows_together_are_as_one_by_one(
    weights: WhisperWeights, inputs: list[EncoderInput], backend: Any
) -> None:
    runner = WhisperRunner(weights, backend)
    runner.reserve(1, WINDOWS)
    alone = one_by_one(runner, inputs)
    runner.reserve(1, 2 * WINDOWS)  # larger buffers, with the contents kept
    for found, expected in zip(memory_of(runner), alone, strict=True):
        np.testing.assert_array_equal(found[:WINDOWS], expected)
    exact, together = backend.name == "NumPy", runner.encode_batch
    for start in range(0, WINDOWS, together):  # into encoder slots from the last to the first
        part = inputs[start : start + together]
        runner.encode(part, [2 * WINDOWS - 1 - start - at for at in range(len(part))])
    assert together == (1 if exact else 4)
    for found, expected in zip(memory_of(runner), alone, strict=True):
        np.testing.assert_array_equal(found[:WINDOWS], expected)  # neighbours are as they were
        error = difference(expected, found[: WINDOWS - 1 : -1])
        print(f"{backend.name}: largest difference {error:.1e} of the largest value")
        assert error <= (0 if exact else MATRIX_LIMIT)


def test_windows_of_samples_are_encoded_as_their_features(
    weights: WhisperWeights, backend: Any
) -> None:
    """Beside a window of features in the same pass."""
    config, runner = weights.config, WhisperRunner(weights, backend)
    noise = np.random.default_rng(3).standard_normal(3 * 160 * config.window_frames)
    recording = InMemory("noise", noise.astype(np.float32))

    def analyse(samples: np.ndarray, frames: int) -> Callable[[], LogMelStats]:
        return lambda: runner.log_mel_stats(samples, frames)

    features = WhisperFeatures(recording, config.n_mels, config.window_frames)
    samples = WhisperSamples(recording, config.n_mels, config.window_frames, analyse)
    spans = (0, config.window_frames), (170, config.window_frames), (40, 50)
    mels = [features.window(*span) for span in spans]
    runner.reserve(1, 6)
    runner.encode([EncoderInput(mel) for mel in mels], [0, 1, 2])
    given = [mels[0], *(samples.window(*span) for span in spans[1:])]
    runner.encode([EncoderInput(window) for window in given], [3, 4, 5])
    runner.release(1, 6, plans=True)  # frees its buffers, and makes them again when needed
    runner.encode([EncoderInput(samples.window(*spans[0]))], [0])
    runner.release(1, 1)
    assert np.abs(
        runner.encode_one(samples.window(*spans[1])) - runner.encode_one(mels[1])
    ).max() < (1e-3)


def test_a_batch_is_encoded_as_its_windows(
    weights: WhisperWeights, inputs: list[EncoderInput]
) -> None:
    """In NumPy too, which does so only where it is asked to."""
    ops, config, mels = Reference(), weights.config, [audio.features for audio in inputs[:3]]
    single = [model.encode(ops, weights.encoder, config, mel) for mel in mels]
    together = model.encode(ops, weights.encoder, config, np.concatenate(mels), 3)
    np.testing.assert_allclose(together, np.concatenate(single), rtol=1e-4, atol=1e-5)


def dispatches(plan: Any) -> list[Any]:
    assert isinstance(plan, Plan)
    return plan.dispatches


def layers(runner: WhisperRunner) -> tuple[Any, ...]:
    """The plans from the output for a window to the cross keys and values of each layer."""
    return runner.encoder.plan(1).layers


@pytest.mark.gpu
def test_the_plan_of_one_window_is_as_ever(weights: WhisperWeights, gpu: Gpu) -> None:
    own = Gpu(gpu.device)
    own.matrix = None
    runner, rounding = WhisperRunner(weights, own, f32_cross_kv=True), WhisperRunner(weights, own)
    recorded, first, second, *rounded = (
        [(step.kernel, None if step.kernel == "layer_norm" else step.grid) for step in plan]
        for plan in map(
            dispatches,
            (runner.encoder.plan(1).encode, *layers(runner), *layers(rounding)),
        )
    )
    stem = [("gemm", (1, 4, 1)), ("gemm", (1, 2, 1))]
    assert recorded == [*stem, *BLOCK, *BLOCK, ("layer_norm", None)]
    assert first == second == [("gemm", (1, 2, 1))]
    assert [[kernel for kernel, _ in layer] for layer in rounded] == [["gemm", "to_f16"]] * 2
    assert not any("ITEM_ROWS" in dict(parameters) for _, parameters in own.pipelines.compiled)


@pytest.mark.gpu
def test_a_batch_takes_no_more_dispatches(weights: WhisperWeights, gpu: Gpu) -> None:
    runner = WhisperRunner(weights, gpu)
    one, four = (
        [step.kernel for step in dispatches(runner.encoder.plan(count).encode)] for count in (1, 4)
    )
    assert four == one


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("windows", "largest", "sizes"), [(3, 4, [1, 2]), (7, 4, [1, 2, 4]), (7, 8, [8])]
)
def test_a_pass_has_little_padding(
    weights: WhisperWeights,
    inputs: list[EncoderInput],
    gpu: Gpu,
    windows: int,
    largest: int,
    sizes: list[int],
) -> None:
    runner = WhisperRunner(weights, gpu)
    runner.reserve(1, WINDOWS)
    alone = one_by_one(runner, inputs)
    runner.encoder.release()
    runner.encoder.max_windows = largest
    runner.encode(inputs[:windows], list(reversed(range(windows))))
    assert sorted(runner.encoder.plans._plans) == sizes
    for found, expected in zip(memory_of(runner), alone, strict=True):
        assert difference(expected[:windows], found[windows - 1 :: -1]) <= MATRIX_LIMIT


@pytest.mark.parametrize(
    ("largest", "free", "expected"), [(999, None, 8), (6, None, 4), (999, 12, 2), (0, 0, 1)]
)
def test_a_pass_takes_as_many_windows_as_fit_in_memory(
    weights: WhisperWeights, largest: int, free: int | None, expected: int
) -> None:
    """`largest`: windows whose widest rows fit one binding; `free`: whose rows fit in memory."""
    backend, config = Reference(), weights.config
    stream = 4 * config.n_audio_ctx * config.n_audio_state
    limits = WIDEST * largest * stream, free and free * WHOLE * stream
    backend.encode_batch = 8
    backend.memory_limits = lambda: limits  # type: ignore[method-assign]
    assert max_windows(backend, config) == expected


def aligned(engine: ByHand, inputs: list[EncoderInput]) -> list[Any]:
    """Where some tokens look in each window."""
    return results(engine, *(AlignmentSequence(audio, (1, 2, 3, 4), 300, 50) for audio in inputs))


@pytest.mark.parametrize(
    ("windows", "together", "sizes"),
    [(1, 4, [1]), (3, 4, [3]), (4, 4, [4]), (11, 4, [4, 4, 3]), (3, 1, [1, 1, 1])],
)
def test_sizes_of_passes(
    weights: WhisperWeights, windows: int, together: int, sizes: list[int]
) -> None:
    runner, passes = WhisperRunner(weights, Reference()), []
    encode, runner.encoder.max_windows = runner.encode, together

    def counted(inputs: Any, encoder_slots: Any) -> None:
        passes.append(len(inputs))
        encode(inputs, encoder_slots)

    runner.encode = counted  # type: ignore[method-assign]
    shape = weights.config.window_frames, weights.config.n_mels
    aligned(ByHand(runner), [EncoderInput(np.zeros(shape, np.float32)) for _ in range(windows)])
    assert passes == sizes


@pytest.mark.gpu
def test_a_batch_that_does_not_fit_is_halved(
    weights: WhisperWeights, inputs: list[EncoderInput], gpu: Gpu, caplog: pytest.LogCaptureFixture
) -> None:
    own, config = Gpu(gpu.device), weights.config
    engine = ByHand(WhisperRunner(weights, own))
    expected = [aligned(engine, [audio])[0] for audio in inputs]
    engine = ByHand(WhisperRunner(weights, own))
    hidden = 4 * 4 * config.n_audio_state * config.n_audio_ctx  # bytes of a window's widest rows
    own.memory.largest_binding = 4 * hidden - 4
    found = aligned(engine, inputs)
    assert [told.split("; ")[-1] for told in caplog.messages] == [
        "going on with 2 windows in a pass"
    ]
    assert sorted(engine.runner.encoder.plans._plans) == [1, 2]  # windows of a pass
    for ours, theirs in zip(found, expected, strict=True):
        assert difference(theirs.weights, ours.weights) <= MATRIX_LIMIT


def test_a_window_that_does_not_fit_is_an_error(
    weights: WhisperWeights, inputs: list[EncoderInput], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, asked = ByHand(WhisperRunner(weights, Reference())), []
    record = engine.runner.backend.record

    def full(trace: Callable[[], None], guard: Any = None, name: str = "") -> Any:
        asked.append(name)
        if name == "encode":
            raise DeviceMemoryError("it", "full")
        return record(trace, guard, name)

    engine.runner.encoder.release()
    with monkeypatch.context() as patch:
        patch.setattr(engine.runner.backend, "record", full)
        with pytest.raises(DeviceMemoryError):
            aligned(engine, inputs[:1])
    assert asked == ["encode"] * 2  # the second time without the plans of others
    assert len(aligned(engine, inputs[:1])) == 1  # and the next is whole
