"""Tiles that are measured on a device: the choice, its file, and that every value is right."""

from __future__ import annotations

import json
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oscine import backends, tuning
from oscine.errors import OscineError
from oscine.gpu.device import Adapter, Device
from oscine.ops.check import CASES, run_case
from oscine.ops.webgpu import Gpu
from oscine.ops.webgpu.thresholds import DEFAULT_THRESHOLDS, TileThresholds
from oscine.tuning import (
    NEVER,
    TRIALS,
    Trial,
    choose,
    load_thresholds,
    save_thresholds,
    tune,
    tuning_file,
)

CARD = Adapter(
    implementation="wgpu",
    name="Card",
    adapter_type="DiscreteGPU",
    backend_type="Vulkan",
    driver="1.0",
    features=frozenset(),
    limits={},
    handle=None,
)
OTHER = TileThresholds(**{name: n for n, name in enumerate(asdict(DEFAULT_THRESHOLDS), 1)})


@pytest.fixture(autouse=True)
def own_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OSCINE_HOME", str(tmp_path / "home"))


# -- the choice -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("times", "value", "gain"),
    [
        ({0: [2.0, 8.0], 90: [4.0, 4.0], 200: [4.0, 4.0]}, 90, 0.0),  # equal by products
        ({0: [1.0, 4.0], 90: [4.0, 4.0], 200: [4.0, 4.0]}, 0, 0.5),
        ({0: [3.9, 4.0], 90: [4.0, 4.0], 200: [4.0, 4.0]}, 90, 0.0),  # too small a gain
        ({0: [2.0, 2.0], 60: [2.0, 2.0], 90: [4.0, 4.0], 200: [4.0, 4.0]}, 60, 0.5),
    ],
)
def test_a_value_is_chosen_by_its_times(
    times: dict[int, list[float]], value: int, gain: float
) -> None:
    assert choose(times, 90) == (value, pytest.approx(gain))


def test_a_trial_has_the_default_of_each_threshold() -> None:
    assert {trial.field for trial in TRIALS} == {field.name for field in fields(TileThresholds)}
    for trial in TRIALS:
        assert getattr(DEFAULT_THRESHOLDS, trial.field) in trial.values


@pytest.mark.gpu
def test_tune_times_equal_dispatches_once_and_leaves_the_gpu_as_it_was(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu, timed = Gpu(device), []

    def time_replay(gpu: Gpu, plan: Any) -> float:
        timed.append((plan.dispatches[0].kernel, plan.dispatches[0].grid))
        return 1.0 if plan.dispatches[0].grid[0] == 2 else 2.0

    monkeypatch.setattr(tuning, "time_replay", time_replay)
    monkeypatch.setattr(tuning, "COLD_BYTES", 1)
    trials = (
        Trial("broad_workgroups", (0, 4, 250), ((65, 68, 12),), np.float32),
        Trial("matrix_workgroups", (0, 90), ((65, 68, 12),), np.float16),
        Trial("narrow_outputs", (0, 2048), ((16, 128, 12),), np.float32),
    )
    gpu.matrix = None
    found = tune(gpu, trials)
    assert timed[:2] == [("gemm", (1, 2, 1)), ("gemm", (2, 2, 1))] and len(timed) == 4
    assert found.thresholds == DEFAULT_THRESHOLDS  # tiles of 64x64 are the default here
    monkeypatch.setattr(tuning, "time_replay", lambda gpu, plan: float(plan.dispatches[0].grid[0]))
    found = tune(gpu, trials[:1])
    assert found.thresholds == replace(DEFAULT_THRESHOLDS, broad_workgroups=0)
    assert found.gains == {"broad_workgroups": pytest.approx(0.5)}
    assert gpu.thresholds is DEFAULT_THRESHOLDS


@pytest.mark.gpu
def test_tune_measures_with_the_clock(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "COLD_BYTES", 1 << 16)
    gpu = Gpu(device)
    gpu.workgroup_rows = True
    products = {1: ((1, 64, 1024),), 16: ((16, 128, 128),)}
    trials = [
        replace(trial, products=products.get(trial.products[0][0], ((65, 68, 128),)))
        for trial in TRIALS
    ]
    found = tune(gpu, trials)
    assert tuning.parse_thresholds(asdict(found.thresholds)) == found.thresholds
    changed = {
        name
        for name, value in asdict(found.thresholds).items()
        if value != getattr(DEFAULT_THRESHOLDS, name)
    }
    assert changed == set(found.gains)


@pytest.mark.gpu
@pytest.mark.parametrize("value", [0, 1, NEVER])
@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case.name.startswith(("linear", "layer_norm"))][::3],
    ids=lambda case: case.name,
)
def test_every_threshold_gives_right_results(device: Device, case: Any, value: int) -> None:
    gpu = Gpu(device)
    gpu.workgroup_rows = True
    gpu.thresholds = TileThresholds(**dict.fromkeys(asdict(DEFAULT_THRESHOLDS), value))
    assert run_case(gpu, case).passed


# -- the file -------------------------------------------------------------------------------------


def test_thresholds_are_those_of_the_adapter_its_driver_and_the_versions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert load_thresholds(CARD) == DEFAULT_THRESHOLDS
    save_thresholds(CARD, OTHER)
    second = replace(CARD, name="Second")
    save_thresholds(second, DEFAULT_THRESHOLDS)
    assert (load_thresholds(CARD), load_thresholds(second)) == (OTHER, DEFAULT_THRESHOLDS)
    for change in ({"driver": "2.0"}, {"implementation": "dawn"}, {"backend_type": "D3D12"}):
        assert load_thresholds(replace(CARD, **change)) == DEFAULT_THRESHOLDS
    monkeypatch.setattr(tuning, "version", lambda package: "9")
    assert load_thresholds(CARD) == DEFAULT_THRESHOLDS


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"[]",
        b"\xff",
        b"[" * 100_000,
        "1",
        [],
        {},
        asdict(OTHER) | {"more": 1},
        asdict(OTHER) | {"broad_outputs": -1},
        asdict(OTHER) | {"broad_outputs": True},
        asdict(OTHER) | {"broad_outputs": 1.5},
        asdict(OTHER) | {"broad_outputs": NEVER + 1},
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_damaged_file_costs_a_warning_and_is_replaced(
    damage: Any, caplog: pytest.LogCaptureFixture
) -> None:
    file = tuning_file()
    file.parent.mkdir()
    entries = {tuning.adapter_key(CARD): damage}
    file.write_bytes(damage if isinstance(damage, bytes) else json.dumps(entries).encode())
    assert load_thresholds(CARD) == DEFAULT_THRESHOLDS
    (line,) = caplog.messages
    assert line.startswith(f"{file} is not used (") and "\n" not in line
    save_thresholds(CARD, OTHER)
    assert load_thresholds(CARD) == OTHER


def test_a_folder_that_cannot_be_written_is_an_error_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file")
    with pytest.raises(OscineError, match=r"tuning\.json") as raised:
        save_thresholds(CARD, OTHER)
    assert "\n" not in str(raised.value)


@pytest.mark.gpu
def test_a_gpu_is_opened_with_its_thresholds(adapter: Adapter) -> None:
    save_thresholds(adapter, OTHER)
    gpu: Any = backends.open_gpu("gpu")
    try:
        assert gpu.thresholds == OTHER
    finally:
        backends.close(gpu)
