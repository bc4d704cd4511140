"""What benchmarks share: timing without times asserted, what the work is, what a device reaches."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oscine import bench, ops
from oscine.backends import choose_backend
from oscine.models.parakeet.bench import encoder_flop as parakeet_flop
from oscine.models.parakeet.weights import load_weights as load_parakeet
from oscine.models.whisper.bench import StepBench, encoder_flop, step_bytes
from oscine.models.whisper.network import NETWORK
from oscine.models.whisper.weights import load_weights
from oscine.ops.reference import Reference
from oscine.tree import tree_leaves, tree_paths
from oscine.weights import read_checkpoint

GOLDENS = Path(__file__).resolve().parent / "goldens"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "WARM_UP_S", 0.0)
    monkeypatch.setattr(bench, "MIN_RUN_S", 0.0)
    monkeypatch.setattr(bench, "COPY_MIB", (1,))
    monkeypatch.setattr(bench, "PRODUCT_SIZES", (64,))


class Counter:
    """A plan and a backend that write down what is done with them."""

    def __init__(self) -> None:
        self.log, self.copies = list[str](), 0

    def run(self, times: int = 1) -> None:
        self.log.append(f"run {times}")

    def wait(self) -> None:
        self.log.append("wait")

    def snapshot(self, *state: Any) -> Any:
        self.copies += 1
        return partial(self.log.append, f"read {self.copies}")


def test_runs_are_timed_after_a_warm_up() -> None:
    calls: list[int] = []
    times = bench.time_runs(lambda: calls.append(0), 3)
    assert len(times) == 3 and len(calls) == 4 and min(times) >= 0


def test_steps_are_read_one_burst_behind() -> None:
    counter = Counter()
    backend: Any = counter
    prepare = partial(counter.log.append, "prepare")
    times = bench.time_steps(backend, counter, (), prepare, 1, bursts=3, steps_per_burst=5)
    assert len(times) == 1
    warm_up = ["prepare", "wait", "run 5", "run 5", "read 1", "run 5", "read 2", "read 3"]
    assert counter.log[:8] == warm_up
    assert counter.log[8:] == [*warm_up[:4], "read 4", "run 5", "read 5", "read 6"]


def test_calls_run_together() -> None:
    from threading import Barrier

    ready = Barrier(3, timeout=20)
    assert sorted(bench.run_together([ready.wait] * 3)) == [0, 1, 2]


def test_made_sound_is_the_same_each_time_and_as_loud_as_speech() -> None:
    sound = bench.made_sound(2.0)
    assert sound.dtype == np.float32 and sound.shape == (32_000,)
    assert (sound == bench.made_sound(2.0)).all()
    assert 0.02 < np.sqrt(np.square(sound).mean()) < 0.3 and np.abs(sound).max() < 1


def test_shares_are_of_what_the_device_reaches() -> None:
    found = bench.Measurement(
        case="step", per="step", times_ms=[3.0, 2.0, 1.0], batch=2, audio_s=1.0, flop=4e9,
        nbytes=2e6, dtype="f16", details={"dispatches": 41},
    )  # fmt: skip
    row = found.to_dict(bench.DeviceLimits(4.0, {"f16": 8.0, "f32": 1.0}))
    assert row == {
        "case": "step", "batch": 2, "per": "step", "dtype": "f16", "ms": 2.0,
        "spread_ms": [1.0, 3.0], "repeats": 3, "times_real_time": 500.0, "tflops": 2.0,
        "product_share": 0.25, "bandwidth_gbs": 1.0, "bandwidth_share": 0.25, "dispatches": 41,
    }  # fmt: skip


def test_numpy_reaches_something() -> None:
    limits = bench.measure_limits(Reference())
    assert limits.bandwidth_gbs > 0
    assert limits.product_tflops.keys() == {"f32"} and limits.product_tflops["f32"] > 0


@pytest.mark.gpu
def test_a_gpu_reaches_something_by_plans_that_compute_what_they_say(gpu: Any) -> None:
    limits = bench.measure_limits(gpu)
    assert limits.bandwidth_gbs > 0
    assert (
        limits.product_tflops.keys() == {"f16", "f32"} and min(limits.product_tflops.values()) > 0
    )
    values = np.random.default_rng(0).standard_normal((8, 64), np.float32)
    source, target = gpu.zeros((8, 64)), gpu.zeros((8, 64))
    gpu.write(source, values)
    bench.copy_plan(gpu, source, target).run()
    assert (gpu.read(target) == values).all()


def test_the_host_copies_every_row() -> None:
    source, target = np.arange(70, dtype=np.float32).reshape(7, 10), np.zeros((7, 10), np.float32)
    bench.copy_plan(Reference(), source, target).run()
    assert (source == target).all()


def test_operations_of_whispers_encoder_are_those_of_its_weights() -> None:
    weights = load_weights(read_checkpoint(GOLDENS / "whisper_multi"), "auto")
    config, encoder = weights.config, weights.encoder
    s, d = config.n_audio_ctx, config.n_audio_state
    assert weights.decoder is not None
    layers = [*tree_leaves(encoder.blocks, ops.Linear)]
    layers += [block.cross_kv for block in weights.decoder.blocks]
    counted = sum(2.0 * s * layer.weight.size for layer in layers)
    counted += 2.0 * s * (2 * encoder.conv1.weight.size + encoder.conv2.weight.size)
    counted += 4.0 * s * s * d * config.n_audio_layer
    assert encoder_flop(config) == counted


def test_operations_of_parakeets_encoder_are_those_of_its_weights() -> None:
    weights = load_parakeet(read_checkpoint(GOLDENS / "parakeet_tdt"), "auto")
    config = weights.config
    frames = -(-3000 // config.subsampling_factor)
    counted = 0.0
    for block in weights.encoder.blocks:
        found = tree_paths(block, ops.Linear).items()
        once = ("linear_pos", "depthwise_conv")  # for all windows; not a product of matrices
        layers = [layer for path, layer in found if not path.endswith(once)]
        counted += sum(2.0 * frames * layer.weight.size for layer in layers)
        counted += 6.0 * frames * frames * config.d_model
    assert parakeet_flop(config, 30.0) == counted


@pytest.mark.gpu
def test_a_step_binds_the_weights_whose_bytes_are_counted() -> None:
    gpu = choose_backend("gpu")
    weights = load_weights(read_checkpoint(GOLDENS / "whisper_multi"), "auto")
    runner = NETWORK.runner(weights, gpu)
    steps = StepBench(runner, 2)
    plan: Any = steps.step
    bound = {id(tensor.buffer) for dispatch in plan.dispatches for tensor in dispatch.tensors}
    read = [runner.decoder.token_embedding, runner.decoder.ln]
    for block in runner.decoder.blocks:
        read += [block.qkv, block.attn_out, block.cross_q, block.cross_attn_out]
        read += [block.fc1, block.fc2, block.attn_ln, block.cross_attn_ln, block.mlp_ln]
    leaves = [*tree_leaves(tuple(read), type(runner.decoder.token_embedding))]
    assert {id(leaf.buffer) for leaf in leaves} <= bound
    size = sum(leaf.nbytes for leaf in leaves)
    memory, config = runner.memory, runner.config
    row = memory.encoder_slot_bytes + 8 * config.n_text_layer * config.n_text_state * 7.0
    assert step_bytes(runner, 2, 7.0) == pytest.approx(size + 2 * row)
    assert len(steps.time(1)) == 1
