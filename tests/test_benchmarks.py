"""Benchmarks run in their smallest form, and what they compute themselves is right."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oscine import ops

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def benchmarks() -> Iterator[None]:
    """The folder's scripts can be imported."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    yield
    sys.path.remove(str(ROOT / "benchmarks"))


def records(script: str, *arguments: str) -> list[dict[str, Any]]:
    """The JSON lines that a benchmark ends with."""
    command = [sys.executable, str(ROOT / "benchmarks" / script), *arguments]
    ran = subprocess.run(command, text=True, capture_output=True)
    assert ran.returncode == 0, ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]


def test_recording_decodes_windows_of_one_length() -> None:
    (row,) = records(
        "recording.py",
        *("--size", "tiny", "--device", "cpu", "--dtype", "f32", "--minutes", "0.6"),
        *("--batches", "2", "--tokens", "12", "--runs", "1"),
    )
    assert row["case"] == "recording tiny batch 2"
    assert (row["windows"], row["tokens"]) == (2, 12)
    assert row["times"] == pytest.approx(36_000 / row["wall_ms"])
    assert row["busy"] is None


@pytest.mark.gpu
def test_bytes_of_both_families_at_work_are_counted() -> None:
    goldens = ROOT / "tests" / "goldens"
    heard, spoken = records(
        "memory_on_device.py",
        *("--whisper", str(goldens / "whisper_multi"), "--slots", "2"),
        *("--speech", str(goldens / "qwen3_tts" / "custom_voice" / "ckpt"), "--voices", "2"),
        *("--seconds", "1"),
    )
    assert heard["mb"].keys() >= {"weights", "encoder places", "slots", "scratch", "staging"}
    assert spoken["mb"].keys() >= {"weights", "codec", "slots", "scratch", "staging"}
    for row in (heard, spoken):
        assert row["total_mb"] == pytest.approx(sum(row["mb"].values()))
        assert row["peak_mb"] >= row["total_mb"] >= row["mb"]["weights"] > 0


@pytest.mark.usefixtures("benchmarks")
def test_the_share_of_time_within_spans_counts_overlaps_once() -> None:
    busy_share = importlib.import_module("recording").busy_share
    assert busy_share(np.array([[0.0, 10.0]])) == 1.0
    assert busy_share(np.array([[6.0, 10.0], [0.0, 4.0]])) == pytest.approx(0.8)
    assert busy_share(np.array([[0.0, 8.0], [1.0, 2.0], [6.0, 10.0]])) == 1.0


@pytest.mark.gpu
@pytest.mark.usefixtures("benchmarks")
def test_passes_of_a_watched_run_are_in_order_on_one_clock(gpu: Any) -> None:
    """Also where they are more than a query set holds."""
    recording = importlib.import_module("recording")
    if "timestamps" not in gpu.device.features:
        pytest.skip("the adapter has no timestamps")
    intervals = recording.Intervals(gpu.device)
    x = gpu.slot((4, 64))
    norm = recording.Norm(gpu.upload(np.ones(64, np.float32)), gpu.upload(np.zeros(64, np.float32)))
    before, gpu.profile = gpu.profile, intervals
    try:
        plan = gpu.record(lambda: gpu.keep(gpu.layer_norm(x, norm), gpu.slot((4, 64))))
        plan.run()  # not watched
        count = recording.QUERIES // 2 + 3
        spans = intervals.watch(lambda: [plan.run() for _ in range(count)])
    finally:
        gpu.profile = before
    assert spans.shape == (count, 2) and len(intervals.submits) == count
    assert (spans[:, 1] >= spans[:, 0]).all() and (np.diff(spans[:, 0]) >= 0).all()
    assert 0 < recording.busy_share(spans) <= 1


@pytest.mark.gpu
@pytest.mark.usefixtures("benchmarks")
def test_bytes_on_a_device_are_counted_by_kind(device: Any) -> None:
    from oscine.ops.gpu import Gpu

    gpu = Gpu(device)
    ledger = importlib.import_module("device_bytes").Ledger(gpu)

    def work() -> None:
        weights, slot = gpu.upload(np.zeros((64, 64), np.float32)), gpu.slot((4, 64))
        assert ledger.now == {"weights": 64 * 64 * 4, "slots": 4 * 64 * 4}
        gpu.read(slot)
        assert ledger.now["staging"] == 4 * 64 * 4
        linear = ops.Linear(weights, None)
        gpu.record(lambda: gpu.keep(gpu.linear(gpu.linear(slot, linear), linear), slot))
        assert ledger.now["scratch"] == 4 * 64 * 4

    work()
    assert ledger.now["weights"] == ledger.now["slots"] == 0
    assert ledger.most == (64 * 64 + 3 * 4 * 64) * 4
