"""Benchmarks run in their smallest form, and what they compute themselves is right."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
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
        (
            "parakeet_whole.py",
            "--layers 1 --seconds 2 --labels 60 --batch 2 --runs 1",
            "recording_ms",
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


@pytest.mark.gpu
@pytest.mark.host
@pytest.mark.usefixtures("adapter")
def test_attention_is_that_of_numpy_as_it_is_timed() -> None:
    rows = records("attention.py", "--cases", "small,small-parakeet", "--repeat", "1")
    assert {row["case"] for row in rows} == {"small", "small-parakeet"}
    assert all(row["us"] > 0 and row["difference"] < 2e-3 for row in rows)


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


FAKES: dict[str, list[dict[str, Any]]] = {
    "limits.py": [{"bandwidth_gbs": 100.0, "product_tflops": {"f16": 10.0, "f32": 1.0}}],
    "gpu.py": [{"device": "card", "encoder_ms": 20.0, "encoder_flop": 1e11}],
    "batch.py": [
        {
            "device": "card",
            "batch": n,
            "step_ms": 0.5 * n,
            "step_spread_ms": [1, 1.02],
            "bytes": 2e7,
        }
        for n in (1, 16)
    ],
    "peer_torch.py": [
        {"part": "encoder", "batch": 1, "encoder_ms": 10.0},
        {"part": "step", "batch": 1, "graph_step_ms": 0.25},
    ],
}


def run_table(folder: Path, *arguments: str) -> tuple[subprocess.CompletedProcess[str], Any]:
    """table.py over the fake benchmarks of a folder, and its file of ratios by case."""
    names = "--implementations", "dawn", "--logs", "logs", "--ratios", "ratios.json"
    command = [sys.executable, "benchmarks/table.py", *names, *arguments]
    ran = subprocess.run(command, text=True, capture_output=True, cwd=folder)
    rows = json.loads((folder / "ratios.json").read_text())
    return ran, {row["case"]: row for row in rows}


@pytest.fixture
def fakes(tmp_path: Path) -> Callable[..., Path]:
    """A checkout whose benchmarks print what they are given; those that are missing fail."""
    place = tmp_path / "benchmarks"
    place.mkdir()
    for name in ("table.py", "table_rows.py"):
        text = (ROOT / "benchmarks" / name).read_text("utf-8")
        (place / name).write_text(text.replace('("torch", "transformers")', '("json",)'), "utf-8")

    def build(**changes: float) -> Path:
        for name, rows in FAKES.items():
            lines = [
                json.dumps(row | {n: changes[n] for n in row.keys() & changes}) for row in rows
            ]
            (place / name).write_text(f"print({chr(10).join(lines)!r})", "utf-8")
        return tmp_path

    return build


def test_a_table_beside_peers_and_limits_and_its_ratios(fakes: Callable[..., Path]) -> None:
    """A benchmark that fails or has no time costs one line, and the other rows go on."""
    ran, ratios = run_table(fakes(), "--rows", "encoder,step,parakeet loop")
    assert ran.returncode == 0, ran.stderr
    one = ratios["turbo encoder, one window"]
    assert (one["ours"], one["peers"], one["over_peer"]) == (20, {"PyTorch": 10}, {"PyTorch": 2})
    assert one["limit"] == pytest.approx(10) and one["over_limit"] == pytest.approx(2)
    step = ratios["turbo step, batch 1"]
    assert step["limit"] == pytest.approx(0.2) and step["over_peer"] == {"PyTorch": 2}
    assert ratios["turbo step, batch 16"]["peers"] == {}
    assert ratios.keys() == {one["case"], step["case"], "turbo step, batch 16"}
    assert "| turbo encoder, one window, ms | 20 | PyTorch 10 | 10 |" in ran.stdout.splitlines()
    for script in ("encoder.py", "transducer.py"):
        (line,) = (each for each in ran.stderr.splitlines() if script in each)
        assert "ended with 2" in line
    assert len([line for line in ran.stdout.splitlines() if line.startswith("{")]) == 3
    ran, ratios = run_table(fakes(), "--rows", "step", "--seconds", "0")
    assert ran.returncode == 1 and "no time is left" in ran.stderr and len(ratios) == 3


def test_what_is_slower_than_before_is_marked(fakes: Callable[..., Path]) -> None:
    """By ratios to peers: a slower machine slows both sides."""
    folder = fakes()
    run_table(folder, "--rows", "encoder,step")
    (folder / "ratios.json").rename(folder / "before.json")
    again = "--rows", "encoder,step", "--compare", "before.json"
    assert run_table(fakes(encoder_ms=40.0, step_ms=0.51), *again)[0].returncode == 0
    ran, _ = run_table(fakes(step_ms=0.6), *again)
    assert ran.returncode == 1 and "slower than before: turbo step, batch 1" in ran.stderr
    (line,) = (
        each for each in ran.stdout.splitlines() if each.startswith("| turbo step, batch 1,")
    )
    assert line.endswith("| 1.20 **slower** |")


@pytest.mark.usefixtures("benchmarks")
def test_every_figure_of_the_table_is_of_a_benchmark_that_is_there() -> None:
    rows = importlib.import_module("table_rows")
    assert len({case.name for case in rows.CASES}) == len(rows.CASES)
    for case in rows.CASES:
        for figure in (case.ours, *case.peers.values()):
            text = (ROOT / "benchmarks" / figure.job.script).read_text("utf-8")
            named = {figure.field, figure.divided_by, *figure.where} - {""}
            missing = {n for n in named if f'"{n}"' not in text and n not in INDIRECT}
            assert not missing, f"{figure.job.script} prints no {missing}"
            flags = {each.partition("=")[0] for each in figure.job.arguments.split()}
            unknown = {n for n in flags if n.startswith("--") and f'"{n}"' not in text}
            assert not unknown, f"{figure.job.script} has no {unknown}"


INDIRECT = ("load_s", "first_s")  # load.py makes the names of its columns


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
