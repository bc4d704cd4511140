"""The doctor: what it lists, what it says of a healthy and of a broken GPU, and exit codes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oscine.cli import doctor, run
from oscine.errors import DeviceError
from oscine.gpu.device import Adapter, Candidate
from oscine.ops.check import CASES, SELF_CHECK, Result, run_case
from oscine.ops.reference import Reference
from oscine.ops.webgpu.thresholds import DEFAULT_THRESHOLDS
from oscine.tuning import Tuning, load_thresholds, tuning_file

Capture = pytest.CaptureFixture[str]

CARD = Adapter(
    implementation="wgpu",
    name="GeForce RTX 4090",
    adapter_type="DiscreteGPU",
    backend_type="Vulkan",
    driver="550.54",
    features=frozenset({"subgroups", "f16"}),
    limits={"max-buffer-size": 1 << 30},
    handle=None,
)
SOFTWARE = replace(CARD, name="llvmpipe", adapter_type="CPU", driver="Mesa")
RIGHT = [Result(case, min(1e-7, case.limit), ("kernel",)) for case in CASES]


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OSCINE_DEVICE", raising=False)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """machine(adapters, results, wrong): what is there, how its kernels do, which fail at loading.

    Each implementation has those adapters that are its own.
    """

    def build(
        adapters: list[Adapter], results: list[Result] = RIGHT, wrong: tuple[str, ...] = ()
    ) -> None:
        def checked(step: Candidate) -> Reference:
            if step.adapter is None:
                assert step.problem is not None
                raise step.problem
            if step.implementation in wrong:
                raise DeviceError(f"{step.name} fails its check against NumPy")
            return Reference()

        monkeypatch.delenv("OSCINE_WEBGPU", raising=False)
        monkeypatch.setattr(
            "oscine.gpu.device.adapters",
            lambda name: [a for a in adapters if a.implementation == name],
        )
        monkeypatch.setattr("oscine.backends.open_checked", checked)
        monkeypatch.setattr(doctor, "check_kernels", lambda adapter: results)

    return build


def steps(found: dict[str, Any]) -> list[tuple[str, str]]:
    """What was tried, and what came of it."""
    return [
        (step["implementation"], "used" if step["used"] else step["problem"] or "not needed")
        for step in found["chain"]
    ]


def test_no_adapter_is_no_illness(machine: Any, capsys: Capture) -> None:
    machine([])
    assert run(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "No WebGPU adapter." in out
    assert "tried, in order:\n  numpy: used\n" in out
    assert "chosen: NumPy: no WebGPU adapter; install" in out
    assert out.endswith("\nno usable GPU: oscine runs on the CPU with NumPy\n")


@pytest.mark.parametrize("choice", ["gpu", "gpu:0", "radeon"])
def test_no_adapter_where_one_is_asked_for(machine: Any, capsys: Capture, choice: str) -> None:
    machine([])
    assert run(["doctor", "--device", choice]) == 1
    out = capsys.readouterr().out
    assert "chosen: nothing: no WebGPU adapter" in out
    assert out.endswith("\nthe requested GPU was not found: use --device auto or --device cpu\n")


def test_a_software_adapter_is_not_taken_unasked(machine: Any, capsys: Capture) -> None:
    machine([SOFTWARE])
    assert run(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["chosen"], found["kernels"], found["passed"]) == (None, [], True)
    assert found["adapters"][0]["kind"] == "software"
    assert run(["doctor", "--json", "--device", "gpu"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["chosen"]["name"] == "llvmpipe"
    assert "used only on request" in found["reason"]


def test_a_healthy_gpu(machine: Any, capsys: Capture) -> None:
    machine([CARD, SOFTWARE, replace(CARD, implementation="dawn")])
    assert run(["doctor"]) == 0
    out = capsys.readouterr().out
    tried = (
        "  dawn: GeForce RTX 4090: used\n  wgpu: GeForce RTX 4090: not needed\n  numpy: not needed"
    )
    assert f"\ntried, in order:\n{tried}\n" in out
    assert "chosen: GeForce RTX 4090: the first that passes its check" in out
    assert "features: f16, subgroups" in out
    assert "max-buffer-size 1073741824" in out
    assert out.count(" ok") == len(CASES)
    assert out.endswith("\nGeForce RTX 4090 computes what NumPy computes\n")


def test_a_look_at_every_card(machine: Any, capsys: Capture) -> None:
    machine([CARD, replace(CARD, duplicate_index=1), SOFTWARE])
    assert run(["doctor", "--device", "all", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(choice, each["chosen"]["name"]) for choice, each in found.items()] == [
        ("gpu:0", "GeForce RTX 4090"), ("gpu:1", "GeForce RTX 4090 #2"),
    ]  # fmt: skip
    assert run(["doctor", "--device", "all"]) == 0
    assert capsys.readouterr().out.count("computes what NumPy computes") == 2
    machine([])
    assert run(["doctor", "--device", "all"]) == 1
    assert capsys.readouterr().err.startswith("oscine: no WebGPU adapter")


@pytest.mark.parametrize("error", [0.5, float("inf")])
def test_a_gpu_that_computes_wrong(machine: Any, capsys: Capture, error: float) -> None:
    machine([CARD], [*RIGHT[1:], Result(CASES[0], error, ("layer_norm",))])
    assert run(["doctor"]) == 1
    out = capsys.readouterr().out
    assert out.count("FAILED") == 1
    assert ("not equal" if error > 1 else "5.0e-01") in out
    assert "does NOT compute what NumPy computes: use --device cpu" in out
    assert run(["doctor", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)  # which knows no infinity
    assert not found["passed"]
    wrong = [row for row in found["kernels"] if not row["passed"]]
    assert [(row["case"], row["kernels"]) for row in wrong] == [(CASES[0].name, ["layer_norm"])]


def test_the_chain_as_far_as_it_goes(machine: Any, capsys: Capture) -> None:
    both = [replace(CARD, implementation="dawn"), CARD]
    fails = "GeForce RTX 4090 (Vulkan, {}) fails its check against NumPy"
    machine(both, RIGHT, ("dawn",))
    assert run(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert steps(found) == [
        ("dawn", fails.format("dawn")), ("wgpu", "used"), ("numpy", "not needed")
    ]  # fmt: skip
    assert found["chosen"]["implementation"] == "wgpu"

    wrong = [Result(CASES[0], 0.5, ("layer_norm",))]
    machine(both, wrong, ("dawn", "wgpu"))
    assert run(["doctor", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [outcome for _, outcome in steps(found)] == [
        fails.format("dawn"), fails.format("wgpu"), "used"
    ]  # fmt: skip
    assert found["chosen"] is None and found["kernels"]  # of the first, which explains it
    assert run(["doctor", "--json", "--device", "gpu"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [name for name, _ in steps(found)] == ["dawn", "wgpu"]

    machine([CARD])
    assert run(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert steps(found)[:2] == [("dawn", "dawn lists no adapter"), ("wgpu", "used")]


def test_a_card_that_fails_at_loading_and_in_no_case(machine: Any, capsys: Capture) -> None:
    """As one whose memory is taken: nothing uses it, so it is no healthy one."""
    machine([CARD], RIGHT, ("wgpu",))
    assert run(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "chosen: NumPy: dawn lists no adapter; GeForce" in out
    assert out.endswith("\nGeForce RTX 4090 cannot be used: use --device cpu\n")


@pytest.mark.parametrize("choice", ["auto", "cpu", "gpu", "radeon"])
@pytest.mark.parametrize("there", [[], [CARD]])
@pytest.mark.parametrize("results", [RIGHT, []])
def test_what_it_says_and_its_exit_code_agree(
    machine: Any, capsys: Capture, choice: str, there: list[Adapter], results: list[Result]
) -> None:
    machine(there, results)
    code = run(["doctor", "--json", "--device", choice])
    assert json.loads(capsys.readouterr().out)["passed"] == (code == 0)


@pytest.mark.parametrize("choice", ["radeon", "gpu:7"])
def test_a_choice_is_named_as_it_was_made(
    machine: Any, capsys: Capture, monkeypatch: pytest.MonkeyPatch, choice: str
) -> None:
    machine([CARD])
    monkeypatch.setenv("OSCINE_DEVICE", f" {choice.upper()}")
    assert run(["doctor"]) == 1
    out = capsys.readouterr().out
    assert f"chosen: nothing: OSCINE_DEVICE={choice}: " in out and "--device auto" not in out
    assert out.endswith(
        "\nthe requested GPU was not found: unset OSCINE_DEVICE or use --device cpu\n"
    )
    assert run(["doctor", "--device", "voodoo"]) == 1
    assert "chosen: nothing: --device voodoo: " in capsys.readouterr().out


def test_oscine_device_is_what_is_looked_at(
    machine: Any, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine([CARD, SOFTWARE])
    monkeypatch.setenv("OSCINE_DEVICE", "llvm")
    assert run(["doctor", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["chosen"]["name"] == "llvmpipe"
    monkeypatch.setenv("OSCINE_DEVICE", "cpu")
    assert run(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["chosen"], found["reason"]) == (None, "requested")


@pytest.mark.parametrize("command", [["doctor"], ["transcribe", "none.wav"], ["speak", "Hello"]])
def test_a_wrong_implementation_or_number_is_misuse_in_one_line(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    assert run([*command, "--device", "gpu:x"]) == 2
    assert capsys.readouterr().err == "oscine: --device gpu:x: write gpu:0, gpu:1, …\n"
    monkeypatch.setenv("OSCINE_WEBGPU", "metal")
    assert run(command) == 2
    assert capsys.readouterr().err == "oscine: OSCINE_WEBGPU=metal: not one of dawn, wgpu\n"


@pytest.mark.gpu
def test_the_adapter_at_hand(
    adapter: Adapter, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cases of the quick check for real; test_parity runs all of them."""
    monkeypatch.setattr(
        doctor,
        "run_case",
        lambda gpu, case: run_case(gpu, case) if case in SELF_CHECK else Result(case, 0.0, ()),
    )
    assert run(["doctor", "--json", "--device", "gpu"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["chosen"]["name"] == adapter.name
    assert found["chosen"] in found["adapters"]
    assert [row["case"] for row in found["kernels"]] == [case.name for case in CASES]
    checked = [row for row in found["kernels"] if row["kernels"]]
    assert len(checked) == len(SELF_CHECK)
    assert all(row["passed"] and 0 <= row["error"] <= row["limit"] for row in checked)


def test_long_checks_tell_how_far_they_are(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """Also where stderr is no terminal; a quick check says nothing."""
    now = iter(range(1000))
    monkeypatch.setattr(doctor, "monotonic", lambda: next(now))
    monkeypatch.setattr(doctor, "PROGRESS_S", len(CASES) / 2)
    monkeypatch.setattr(doctor.gpu_device, "open_device", lambda adapter: None)
    monkeypatch.setattr(doctor, "Gpu", lambda device: SimpleNamespace())
    monkeypatch.setattr(doctor, "run_case", lambda gpu, case: Result(case, 0.0, ()))
    assert len(doctor.check_kernels(CARD)) == len(CASES)
    (first, *_) = lines = capsys.readouterr().err.splitlines()
    half = -(-len(CASES) // 2) - 1
    assert first == f"oscine: {CARD.title}: {half} of {len(CASES)} kernel checks are done"
    assert len(lines) == 1


# -- --tune ---------------------------------------------------------------------------------------


@pytest.fixture
def tuned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """tuned(result): what the measurement of an adapter returns or raises."""
    monkeypatch.setenv("OSCINE_HOME", str(tmp_path))

    def build(result: Tuning | Exception) -> None:
        def tune(gpu: Any) -> Tuning:
            if isinstance(result, Exception):
                raise result
            return result

        monkeypatch.setattr(doctor, "tune", tune)
        monkeypatch.setattr(doctor, "Gpu", lambda device: device)
        monkeypatch.setattr(doctor.gpu_device, "open_device", lambda adapter: SimpleNamespace())

    return build


FASTER = Tuning(replace(DEFAULT_THRESHOLDS, matrix_workgroups=30), {"matrix_workgroups": 0.07})


def test_tune_stores_what_is_faster_and_says_so(machine: Any, tuned: Any, capsys: Capture) -> None:
    machine([CARD])
    tuned(FASTER)
    assert run(["doctor", "--tune"]) == 0
    assert "tuning: matrix_workgroups 30 takes 7% less time" in capsys.readouterr().out
    assert load_thresholds(CARD) == FASTER.thresholds
    tuned(Tuning(DEFAULT_THRESHOLDS, {}))
    assert run(["doctor", "--tune"]) == 0
    assert "tuning: the default tiles are the fastest" in capsys.readouterr().out
    assert load_thresholds(CARD) == DEFAULT_THRESHOLDS


def test_the_report_has_no_tuning_unless_asked(machine: Any, tuned: Any, capsys: Capture) -> None:
    machine([CARD])
    tuned(FASTER)
    assert run(["doctor", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tuning"] is None
    assert run(["doctor", "--json", "--tune"]) == 0
    found = json.loads(capsys.readouterr().out)["tuning"]
    assert found["gains"] == {"matrix_workgroups": 0.07} and not found["problem"]
    assert found["thresholds"]["matrix_workgroups"] == 30


@pytest.mark.parametrize(
    ("adapters", "device", "problem"),
    [
        ([SOFTWARE], "gpu", "only a hardware GPU is tuned"),
        ([], "auto", "only a hardware GPU is tuned"),
        ([CARD], "auto", "no room for 64 MiB"),
    ],
)
def test_a_tuning_that_cannot_be_done_is_one_line_and_exit_code_1(
    machine: Any, tuned: Any, capsys: Capture, adapters: Any, device: str, problem: str
) -> None:
    machine(adapters)
    tuned(DeviceError("no room for 64 MiB"))
    assert run(["doctor", "--tune", "--device", device]) == 1
    assert f"tuning: {problem}\n" in capsys.readouterr().out
    assert not tuning_file().exists()
