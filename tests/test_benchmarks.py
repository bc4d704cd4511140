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


@pytest.mark.parametrize(
    ("script", "options", "figure"),
    [
        ("parakeet.py", "--layers 1 --seconds 2 --batch 1 --runs 1", "encoder_ms"),
        (
            "transducer.py",
            "--layers 1 --seconds 2 --labels 60 --phrases 2 --batch 1 --runs 1",
            "ms",
        ),
    ],
)
def test_the_benchmarks_of_parakeet_run_at_any_size(script: str, options: str, figure: str) -> None:
    (row,) = records(script, "--device", "cpu", *options.split())
    assert row[figure] > 0


def test_prompts_are_measured_together_and_one_by_one() -> None:
    folder = str(ROOT / "tests" / "goldens" / "qwen3_tts" / "custom_voice" / "ckpt")
    (row, stages) = records(
        "prompts.py",
        *("--model", folder, "--device", "cpu", "--counts", "2", "--rows", "9", "--runs", "1"),
    )
    assert row["voices"] == row["equal"] == 2
    assert min(row[f"{stage}_ms"] for stage in ("text", "prefill", "one_by_one", "codec")) > 0
    assert {name for name, _, _, _ in stages["stages"]} >= {"start", "admit", "decode"}
    assert all(begin <= end for _, _, begin, end in stages["stages"])


def test_load_divides_the_time_of_a_new_process(tmp_path: Path) -> None:
    case = "--size", "tiny", "--device", "cpu", "--runs", "1", "--keep", str(tmp_path)
    (row,) = records("load.py", *case, "--no-token")
    parts = row.keys() - {"load_s", "first_s", "whole_s", "import_s", "peak_mb"}
    spent = sum(row[name] for name in parts if name.endswith("_s"))
    assert spent == pytest.approx(row["load_s"], abs=0.01)
    assert row["read_s"] > 0 and row["tokenizer_s"] > 0


def test_two_versions_are_compared_by_what_both_measure(tmp_path: Path) -> None:
    """In turns; the version before may lack a benchmark, and none may fail unseen."""
    figures = {"a": {"gpu": 2.0, "speech": 8.0}, "b": {"gpu": 3.0, "batch": 5.0, "speech": 8.0}}
    for name, scripts in figures.items():
        folder = tmp_path / name / "benchmarks"
        folder.mkdir(parents=True)
        for script, value in scripts.items():
            row = {"case": script, "step_ms": value, "first_audio_ms": value + 1, "device": "none"}
            log = f"open({str(tmp_path / 'order')!r}, 'a').write({name!r})"
            (folder / f"{script}.py").write_text(f"print({json.dumps(row)!r}); {log}")
    command = [sys.executable, str(ROOT / "benchmarks" / "compare.py"), "a", "b"]
    ran = subprocess.run(
        [*command, "--logs", "logs", "--json", "rows"],
        text=True,
        capture_output=True,
        check=True,
        cwd=tmp_path,
    )
    assert (tmp_path / "order").read_text() == "aabbbaabbb"
    rows = {
        row["case"]: row for row in map(json.loads, (tmp_path / "rows").read_text().splitlines())
    }
    assert rows["gpu step_ms"]["a"] == [2.0, 2.0] and rows["gpu step_ms"]["b"] == [3.0, 3.0]
    assert rows.keys() == {
        f"{n} {f}" for n in ("gpu", "speech") for f in ("step_ms", "first_audio_ms")
    }
    (line,) = (line for line in ran.stdout.splitlines() if line.startswith("gpu step_ms"))
    assert line.split()[-2:] == ["1.000", "1.500"]
    assert "only B has it" in ran.stdout and "a: batch.py ended with 2" in ran.stdout


@pytest.mark.gpu
def test_bytes_of_both_families_at_work_are_counted() -> None:
    goldens = ROOT / "tests" / "goldens"
    heard, spoken = records(
        "memory_on_device.py",
        *("--whisper", str(goldens / "whisper_multi"), "--slots", "2"),
        *("--speech", str(goldens / "qwen3_tts" / "custom_voice" / "ckpt"), "--voices", "2"),
        *("--seconds", "1"),
    )
    assert heard["mb"].keys() >= {
        "weights",
        "encoder slots",
        "encoder passes",
        "slots",
        "scratch",
        "staging",
    }
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
    x = gpu.zeros((4, 64))
    norm = recording.LayerNorm(
        gpu.upload(np.ones(64, np.float32)), gpu.upload(np.zeros(64, np.float32))
    )
    before, gpu.profile = gpu.profile, intervals
    try:
        plan = gpu.record(lambda: gpu.store(gpu.layer_norm(x, norm), gpu.zeros((4, 64))))
        plan.run()  # not watched
        count = recording.MAX_QUERIES // 2 + 3
        spans = intervals.watch(lambda: [plan.run() for _ in range(count)])
    finally:
        gpu.profile = before
    assert spans.shape == (count, 2) and len(intervals.submits) == count
    assert (spans[:, 1] >= spans[:, 0]).all() and (np.diff(spans[:, 0]) >= 0).all()
    assert 0 < recording.busy_share(spans) <= 1


@pytest.mark.gpu
@pytest.mark.usefixtures("benchmarks")
def test_bytes_on_a_device_are_counted_by_kind(device: Any) -> None:
    from oscine.ops.webgpu import Gpu

    gpu = Gpu(device)
    ledger = importlib.import_module("device_bytes").Ledger(gpu)

    def work() -> None:
        weights, slot = gpu.upload(np.zeros((64, 64), np.float32)), gpu.zeros((4, 64))
        assert ledger.now == {"weights": 64 * 64 * 4, "slots": 4 * 64 * 4}
        gpu.read(slot)
        assert ledger.now["staging"] == 4 * 64 * 4
        linear = ops.Linear(weights, None)
        gpu.record(lambda: gpu.store(gpu.linear(gpu.linear(slot, linear), linear), slot))
        assert ledger.now["scratch"] == 4 * 64 * 4

    work()
    assert ledger.now["weights"] == ledger.now["slots"] == 0
    assert ledger.most == (64 * 64 + 3 * 4 * 64) * 4
