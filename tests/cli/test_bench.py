"""`oscine bench`: what it reports of every family, and what it refuses. No time is asserted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oscine import bench, registry
from oscine.cli import bench as command
from oscine.cli import run

Capture = pytest.CaptureFixture[str]

GOLDENS = Path(__file__).resolve().parents[1] / "goldens"
CASES = {
    "whisper_multi": {"encoder", "step", "recording"},
    "parakeet_tdt": {"encoder", "loop", "recording"},
    "parakeet_ctc": {"encoder", "recording"},
    "qwen3_tts/custom_voice/ckpt": {"frame", "first audio", "talker", "predictor", "codec"},
    "qwen3_tts/base/ckpt": {"frame", "first audio", "talker", "predictor", "codec"},
    "qwen3_tts/voice_design/ckpt": {"frame", "first audio", "talker", "predictor", "codec"},
}
ON_A_GPU = ("whisper_multi", "parakeet_tdt", "qwen3_tts/custom_voice/ckpt")
SHORT = ("--repeats", "1", "--seconds", "0.2")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "WARM_UP_S", 0.0)
    monkeypatch.setattr(bench, "COPY_MIB", (1,))
    monkeypatch.setattr(bench, "PRODUCT_SIZES", (64,))


def report(capsys: Capture, name: str, *arguments: str) -> dict[str, Any]:
    """What the command prints with --json."""
    assert run(["bench", str(GOLDENS / name), "--json", *SHORT, *arguments]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def check(found: dict[str, Any], cases: set[str]) -> None:
    assert found.keys() == {"model", "family", "device", "load_s", "limits", "cases"}
    assert found["load_s"] > 0 and found["limits"]["bandwidth_gbs"] > 0
    assert all(rate > 0 for rate in found["limits"]["product_tflops"].values())
    assert {row["case"] for row in found["cases"]} == cases
    for row in found["cases"]:
        assert row["ms"] > 0 and row["repeats"] >= 1 and row["batch"] >= 1
        assert row["spread_ms"][0] <= row["ms"] <= row["spread_ms"][1]
        assert row["dtype"] in ("f32", "f16", "bf16")
        for name in ("times_real_time", "tflops", "product_share", "bandwidth_gbs"):
            assert row.get(name, 1) > 0
        assert (row["case"] == "encoder") == ("product_share" in row)
        if row["case"] in ("step", "frame", "talker", "predictor", "codec"):
            assert row["bandwidth_share"] > 0


@pytest.mark.parametrize("name", CASES)
def test_every_family_is_measured_in_numpy(capsys: Capture, name: str) -> None:
    found = report(capsys, name, "--device", "cpu", "--batches", "2,1")
    check(found, CASES[name])
    assert found["device"] == "NumPy"
    for case in CASES[name] & {"step", "loop", "frame"}:
        assert [row["batch"] for row in found["cases"] if row["case"] == case] == [1, 2]


@pytest.mark.gpu
@pytest.mark.host
@pytest.mark.parametrize("name", ON_A_GPU)
def test_every_family_is_measured_on_a_gpu(capsys: Capture, name: str) -> None:
    found = report(capsys, name, "--device", "gpu", "--batches", "1")
    check(found, CASES[name])
    assert any(row.get("dispatches", 0) > 0 for row in found["cases"])


def test_a_table_without_json(capsys: Capture) -> None:
    assert run(["bench", str(GOLDENS / "whisper_multi"), "--device", "cpu", *SHORT]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("whisper_multi on NumPy\nloaded in ")
    (line,) = (each for each in printed.out.splitlines() if each.startswith("encoder, a window"))
    assert line.split()[3] == "1" and "%" in line and max(map(len, printed.out.splitlines())) <= 80
    assert "step, batch 1: " in printed.err


def test_precision_is_that_of_the_option(capsys: Capture) -> None:
    found = report(capsys, "whisper_multi", "--device", "cpu", "--dtype", "f16")
    assert {row["dtype"] for row in found["cases"]} == {"f32"}  # which NumPy computes in


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--device", "all"), "bench measures one device: use gpu:N"),
        (("--batches", "0"), "oscine: --batches must be 1 to 128, not 0"),
        (("--batches", "1,x"), "oscine: --batches: 'x' is not a whole number"),
        (("--batches", ""), "oscine: --batches: '' is not a whole number"),
        (("--repeats", "0"), "oscine: --repeats must be 1 to 1000, not 0"),
        (("--seconds", "0"), "oscine: --seconds must be 0.1 to 7200, not 0"),
    ],
)
def test_values_that_cannot_be(capsys: Capture, arguments: tuple[str, ...], said: str) -> None:
    assert run(["bench", str(GOLDENS / "whisper_multi"), *arguments]) == 2
    printed = capsys.readouterr()
    assert said in printed.err and printed.err.count("\n") == 1 and not printed.out


def test_an_empty_name_is_not_the_default_model(capsys: Capture) -> None:
    assert run(["bench", "", "--device", "cpu"]) == 2
    assert capsys.readouterr().err == "oscine: the name of a model is empty\n"


def test_a_family_without_a_benchmark_is_refused_before_it_is_loaded(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = replace(registry.built_in()[0], bench=None)
    monkeypatch.setattr(registry, "detect_family", lambda *_: family)
    monkeypatch.setattr(command, "load_model", None)
    assert run(["bench", str(GOLDENS / "whisper_multi"), "--device", "cpu"]) == 2
    assert f"its family, {family.title}, has no benchmark" in capsys.readouterr().err


def test_the_command_names_no_family_and_every_built_in_one_has_a_benchmark() -> None:
    text = Path(command.__file__).read_text("utf-8").lower()
    for family in registry.built_in():
        assert family.bench is not None and callable(family.bench())
        assert family.name not in text and family.title.lower() not in text
