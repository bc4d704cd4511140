"""Dawn, then wgpu, then NumPy: each step, each way to fail, and the one line that tells of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import oscine
from oscine import backends
from oscine.backends import build_with_fallback, choose_backend, parse_device
from oscine.errors import (
    DeviceError,
    DeviceLostError,
    DeviceMemoryError,
    UsageError,
)
from oscine.gpu import device as devices
from oscine.gpu.device import Adapter, Candidate, Device
from oscine.ops.reference import Reference
from oscine.ops.webgpu import Gpu

GOLDEN = Path(__file__).resolve().parent / "goldens" / "whisper_multi"
DAWN, WGPU = "a card (Vulkan, dawn)", "a card (Vulkan, wgpu)"


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OSCINE_DEVICE", "OSCINE_CHECK", "OSCINE_WEBGPU"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[Any]:
    """Warnings so far."""
    with caplog.at_level(logging.WARNING):
        yield lambda: [record.getMessage() for record in caplog.records]


# -- the order, with made-up adapters -------------------------------------------------------------


def listed(implementation: str) -> Candidate:
    adapter = Adapter(
        implementation, "a card", "DiscreteGPU", "Vulkan", "", frozenset(), {}, handle=None
    )
    return Candidate(implementation, adapter)


class Card(Reference):
    """An open adapter that says whether it was closed."""

    def __init__(self, name: str) -> None:
        self.name, self.closed = name, 0
        self.device = self

    def close(self) -> None:
        self.closed += 1


MISSING = {
    "import": DeviceError("the package wgpudawn cannot be loaded (no library)"),
    "no adapter": DeviceError("dawn lists no adapter"),
}
FAILURES = {
    "wrong": DeviceError(f"{DAWN} fails its check against NumPy (linear: 1.0e-01)"),
    "memory": DeviceMemoryError(DAWN, "no room for 8.0 MiB"),
    "lost": DeviceLostError(DAWN, "a watchdog"),
}


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """steps(dawn=problem, wgpu=problem): how each implementation fails; None where it does not."""

    def build_with_fallback(**problems: DeviceError | None) -> None:
        chain = [
            Candidate(name, None, problem) if problem in MISSING.values() else listed(name)
            for name, problem in problems.items()
        ]

        def checked(step: Candidate) -> Card:
            if problem := problems[step.implementation]:
                raise problem
            return Card(step.name)

        monkeypatch.setattr(devices, "candidates", lambda choice: chain)
        monkeypatch.setattr(backends, "open_checked", checked)

    return build_with_fallback


@pytest.mark.parametrize("device", ["auto", "gpu", "gpu:0"])
@pytest.mark.parametrize("kind", [*MISSING, *FAILURES])
def test_wgpu_follows_dawn_and_one_line_says_why(
    steps: Any, lines: Any, kind: str, device: str
) -> None:
    problem = (MISSING | FAILURES)[kind]
    steps(dawn=problem, wgpu=None)
    assert choose_backend(device).name == WGPU
    assert lines() == [f"using {WGPU}: {problem}"]


def test_no_step_is_no_line(steps: Any, lines: Any) -> None:
    steps(dawn=None, wgpu=MISSING["no adapter"])
    assert choose_backend("auto").name == DAWN
    assert lines() == []


@pytest.mark.parametrize("kind", [*MISSING, *FAILURES])
def test_numpy_comes_last_and_only_where_the_choice_is_ours(
    steps: Any, lines: Any, kind: str
) -> None:
    first, second = (MISSING | FAILURES)[kind], DeviceError("no luck")
    steps(dawn=first, wgpu=second)
    for device in ("gpu", "gpu:1", "a card"):
        with pytest.raises(type(first)) as raised:
            choose_backend(device)
        assert raised.value is first
    assert lines() == []
    assert isinstance(choose_backend("auto"), Reference)
    assert lines() == [f"using NumPy on the CPU: {first}; {WGPU}: no luck"]


@pytest.mark.parametrize("kind", [*FAILURES, "other"])
def test_a_model_that_one_cannot_do_is_done_by_the_next(steps: Any, lines: Any, kind: str) -> None:
    """The first gives its memory back before the next is opened."""
    problem = FAILURES.get(kind, DeviceError("no room"))
    told = str(problem) if kind in FAILURES else f"{DAWN}: no room"
    made: list[Any] = []

    def make(backend: Any) -> str:
        made.append(backend)
        assert all(other.closed for other in made[:-1])
        if len(made) <= failing:
            raise problem
        return str(backend.name)

    steps(dawn=None, wgpu=None)
    failing = 1
    assert build_with_fallback(make, choose_backend("gpu"), "gpu") == WGPU
    assert lines() == [f"using {WGPU}: {told}"]
    made.clear()
    failing = 2
    with pytest.raises(type(problem)):
        build_with_fallback(make, choose_backend("gpu"), "gpu")
    assert [backend.closed for backend in made] == [1, 1]
    made.clear()
    assert build_with_fallback(make, choose_backend("auto"), "auto") == "NumPy"
    assert lines()[-1].startswith("using NumPy on the CPU: ") and DAWN in lines()[-1]
    made.clear()
    with pytest.raises(type(problem)):  # NumPy itself has nothing after it
        build_with_fallback(make, Reference(), "cpu")
    assert len(made) == 1


def test_numpy_that_fails_is_not_tried_for_ever(steps: Any) -> None:
    steps(dawn=None)

    def make(backend: Any) -> None:
        raise DeviceError(f"not on {backend.name}")

    with pytest.raises(DeviceError, match="not on NumPy"):
        build_with_fallback(make, choose_backend("auto"), "auto")


def test_a_lost_device_is_opened_again_as_it_was_or_the_next(
    monkeypatch: pytest.MonkeyPatch, steps: Any, lines: Any
) -> None:
    monkeypatch.setattr(backends, "LOSS_COUNTS", type(backends.LOSS_COUNTS)())
    steps(dawn=None, wgpu=None)
    assert backends.reopen(DAWN, "gpu").name == DAWN
    assert lines() == []
    steps(dawn=FAILURES["lost"], wgpu=None)
    assert backends.reopen(DAWN, "gpu").name == WGPU
    assert lines() == [f"using {WGPU}: {FAILURES['lost']}"]


@pytest.mark.parametrize("device", ["auto", "cpu", "gpu"])
def test_a_wrong_implementation_is_misuse(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    monkeypatch.setenv("OSCINE_WEBGPU", "metal")
    with pytest.raises(UsageError, match=r"^OSCINE_WEBGPU=metal: not one of dawn, wgpu$"):
        parse_device(device)


@pytest.mark.parametrize("device", ["gpu:", "gpu:x", "GPU:1.5"])
def test_a_wrong_number_is_misuse(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    named = device.lower()
    with pytest.raises(UsageError, match=rf'^device="{named}": write gpu:0'):
        parse_device(device)
    monkeypatch.setenv("OSCINE_DEVICE", device)
    with pytest.raises(UsageError, match=rf"^OSCINE_DEVICE={named}: write gpu:0"):
        parse_device("auto")


# -- the same on adapters that are there ----------------------------------------------------------


def not_loading(monkeypatch: pytest.MonkeyPatch, failing: str, tmp_path: Path) -> None:
    (tmp_path / "broken_package.py").write_text("raise ImportError('no library')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(devices.PACKAGES, failing, "broken_package")


def not_listing(monkeypatch: pytest.MonkeyPatch, failing: str, tmp_path: Path) -> None:
    handles = devices.enumerate_handles
    monkeypatch.setattr(
        devices,
        "enumerate_handles",
        lambda name, api: [] if name == failing else handles(name, api),
    )


def computing_wrong(monkeypatch: pytest.MonkeyPatch, failing: str, tmp_path: Path) -> None:
    right = Gpu.linear

    def linear(self: Gpu, x: Any, weight: Any, **norm: Any) -> Any:
        wrong = self.device.adapter.implementation == failing
        return right(self, x, weight, **({} if wrong else norm))

    monkeypatch.setattr(Gpu, "linear", linear)


def opened(monkeypatch: pytest.MonkeyPatch, failing: str, spoil: Callable[[Device], None]) -> None:
    """Every device of one implementation is spoilt as soon as it is open."""
    open_device = devices.open_device

    def spoilt(adapter: Adapter, **more: Any) -> Device:
        device = open_device(adapter, **more)
        if adapter.implementation == failing:
            spoil(device)
        return device

    monkeypatch.setattr(devices, "open_device", spoilt)


def full(monkeypatch: pytest.MonkeyPatch, failing: str, tmp_path: Path) -> None:
    def spoil(device: Device) -> None:
        def refuse(**options: Any) -> Any:
            raise device.api.GPUOutOfMemoryError("Out of memory")

        monkeypatch.setattr(device.handle, "create_buffer", refuse, raising=False)

    opened(monkeypatch, failing, spoil)


def lost(monkeypatch: pytest.MonkeyPatch, failing: str, tmp_path: Path) -> None:
    opened(monkeypatch, failing, lambda device: device.handle.destroy())


WAYS: dict[str, tuple[Callable[..., None], str]] = {
    "import": (not_loading, "the package broken_package cannot be loaded (no library)"),
    "no adapter": (not_listing, " lists no adapter"),
    "wrong": (computing_wrong, "fails its check against NumPy (linear 1x"),
    "memory": (full, "no room for"),
    "lost": (lost, "the device was lost"),
}


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch, adapter: Adapter) -> Adapter:
    """Both implementations, and their adapters for `auto` as well."""
    for name in devices.PACKAGES:
        if not devices.adapters(name):
            pytest.skip(f"{name} lists no adapter here")
    monkeypatch.setattr(devices, "matches_choice", lambda choice, adapter: True)
    return adapter


@pytest.mark.gpu
@pytest.mark.host
@pytest.mark.parametrize("way", WAYS)
def test_each_failure_of_dawn_leads_to_wgpu(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, both: Adapter, lines: Any, way: str
) -> None:
    fail, told = WAYS[way]
    fail(monkeypatch, "dawn", tmp_path)
    model = oscine.load(GOLDEN, "gpu")
    assert model.device.endswith(", wgpu)")
    assert len(lines()) == 1
    assert lines()[0].startswith(f"using {model.device}: ") and told in lines()[0]


@pytest.mark.gpu
@pytest.mark.host
@pytest.mark.parametrize("way", WAYS)
def test_each_failure_of_both_leads_to_numpy_or_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, both: Adapter, lines: Any, way: str
) -> None:
    fail, told = WAYS[way]
    fail(monkeypatch, "dawn", tmp_path)
    fail(monkeypatch, "wgpu", tmp_path)
    with pytest.raises(DeviceError) as raised:
        choose_backend("gpu")
    expected = "no WebGPU adapter" if way == "no adapter" else told
    assert expected in str(raised.value) and "\n" not in str(raised.value)
    assert lines() == []
    assert isinstance(choose_backend("auto"), Reference)
    assert len(lines()) == 1
    assert lines()[0].startswith("using NumPy on the CPU: ") and expected in lines()[0]


@pytest.mark.gpu
@pytest.mark.parametrize("way", WAYS)
def test_the_only_implementation_that_is_let_be_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, both: Adapter, lines: Any, way: str
) -> None:
    """OSCINE_WEBGPU: the other is neither loaded nor taken instead."""
    fail, told = WAYS[way]
    monkeypatch.setenv("OSCINE_WEBGPU", both.implementation)
    fail(monkeypatch, both.implementation, tmp_path)
    with pytest.raises(DeviceError) as raised:
        choose_backend("gpu")
    assert ("no WebGPU adapter" if way == "no adapter" else told) in str(raised.value)
    assert lines() == []
    assert isinstance(choose_backend("auto"), Reference)
