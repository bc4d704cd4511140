"""A Vulkan driver that fails on request, as a watchdog's reset and a full card do.

The driver is faulty_driver.c over the software one, made here if there is a C compiler; what meets
it runs in a process of its own: on_faulty_driver.py.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oscine.gpu.device import Adapter

from .conftest import Drivers

HERE = Path(__file__).resolve().parent
pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def faulty(drivers: Callable[[int], Drivers]) -> dict[str, str]:
    """The environment of a process whose Vulkan driver is the software one, made to fail."""
    [library], environment = drivers(1)
    return environment | {"FAULTY_DRIVER": str(library)}


def run(case: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, HERE / "on_faulty_driver.py", case],
        env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def outcome(case: str, environment: dict[str, str]) -> Any:
    """What the case printed."""
    ended = run(case, environment)
    assert ended.returncode == 0, ended.stderr[-2000:]
    return json.loads(ended.stdout)


@pytest.fixture
def dawn(adapter: Adapter) -> None:
    if adapter.implementation != "dawn":
        pytest.skip("wgpu-native ends the process: test_wgpu_native_ends_the_process")


@pytest.mark.usefixtures("dawn")
def test_a_driver_that_loses_the_device_while_a_read_waits(faulty: dict[str, str]) -> None:
    told = outcome("lost in a read", faulty)
    assert len(told) == 5
    assert all("the device was lost (vk" in line for line in told)
    assert all("VK_ERROR_DEVICE_LOST" in line and "\n" not in line for line in told)


@pytest.mark.usefixtures("dawn")
def test_a_driver_that_loses_the_device_at_a_submit(faulty: dict[str, str]) -> None:
    told = outcome("lost at a submit", faulty)
    assert all("(vkQueueSubmit failed with VK_ERROR_DEVICE_LOST)" in line for line in told)


@pytest.mark.usefixtures("dawn")
def test_a_transcript_outlives_a_reset_of_the_driver(faulty: dict[str, str]) -> None:
    same, device, told = outcome("lost and opened again", faulty)
    assert same and "llvmpipe" in device
    assert len(told) == 1 and "VK_ERROR_DEVICE_LOST" in told[0]


@pytest.mark.usefixtures("dawn")
def test_a_transcript_outlives_its_device(faulty: dict[str, str]) -> None:
    same, device, told = outcome("lost for good", faulty)
    assert same and device == "NumPy"
    assert len(told) == 2
    assert "not opened again" in told[1] and told[1].endswith("using NumPy on the CPU")


@pytest.mark.usefixtures("dawn")
def test_wgpu_is_kept_from_a_driver_that_takes_devices_away(faulty: dict[str, str]) -> None:
    """While a model is loaded: it would end the process, where NumPy is still to be had."""
    both = {name: value for name, value in faulty.items() if name != "OSCINE_WEBGPU"}
    name, told, refused = outcome("lost while loading", both)
    assert name == "NumPy" and len(told) == 1
    assert "VK_ERROR_DEVICE_LOST" in told[0] and "VK_ERROR_DEVICE_LOST" in refused
    assert told[0].endswith(", wgpu): not tried, as another loss would end the process")


def test_wgpu_native_ends_the_process(adapter: Adapter, faulty: dict[str, str]) -> None:
    """Its issue 588, which no caller can help; when this fails, that is good news."""
    if adapter.implementation != "wgpu":
        pytest.skip("Dawn tells of the loss")
    for case in ("lost at a submit", "lost in a read"):
        ended = run(case, faulty)
        assert ended.returncode == -signal.SIGABRT
        assert "Parent device is lost" in ended.stderr


def test_a_driver_without_memory_is_told_and_goes_on(faulty: dict[str, str]) -> None:
    told, goes_on, room_before, released, room_after = outcome("full", faulty)
    assert ": no room for 8.0 MiB: " in told and told.endswith('or device="cpu"')
    assert "\n" not in told
    assert goes_on
    assert not room_before
    assert released and room_after


@pytest.mark.usefixtures("dawn")
def test_no_memory_for_an_upload_loses_dawns_device(faulty: dict[str, str]) -> None:
    told = outcome("full in an upload", faulty)
    assert any("OUT_OF_DEVICE_MEMORY" in line for line in told)
    assert "OUT_OF_DEVICE_MEMORY" in told[-1]
