"""Runs one case of test_faulty_driver.py in a process whose driver is faulty_driver.c.

Prints what happened as JSON, unless the process is ended, as wgpu-native does at a loss.
"""

from __future__ import annotations

import ctypes
import gc
import json
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from oscine import ops
from oscine.backends import choose_backend
from oscine.errors import DeviceLostError, DeviceMemoryError
from oscine.gpu import device as devices
from oscine.gpu.device import open_device, select_adapter
from oscine.loading import load
from oscine.ops.webgpu import Gpu

GOLDEN = Path(__file__).resolve().parents[1] / "goldens" / "whisper_multi"
PIECE = 8 << 20
OPTIONS: dict[str, Any] = {
    "language": "en", "temperature": 0, "vad_filter": False, "condition_on_previous_text": False,
    "no_speech_threshold": None, "logprob_threshold": None, "compression_ratio_threshold": None,
}  # fmt: skip

driver = ctypes.CDLL(os.environ["FAULTY_DRIVER"])
driver.faulty_driver_used.restype = ctypes.c_uint64
driver.faulty_driver_room.argtypes = [ctypes.c_uint64]


def gpu_with_work() -> tuple[Gpu, Any, Any]:
    """An open device, a plan, and the plan's output."""
    gpu = Gpu(open_device(select_adapter("gpu")))
    x, out = gpu.upload(np.ones((256, 256), np.float32)), gpu.zeros((256, 256))
    weight = gpu.upload(np.ones((256, 256), np.float32))
    plan = gpu.record(lambda: gpu.store(gpu.linear(x, ops.Linear(weight, None)), out))
    plan.run()
    assert (gpu.read(out) == 256).all()
    return gpu, plan, out


def refusals(*calls: Callable[[], Any]) -> list[str]:
    """The lines of the DeviceLostErrors of these calls; "" for one that goes through."""
    told = []
    for call in calls:
        try:
            call()
            told.append("")
        except DeviceLostError as lost:
            told.append(str(lost))
    return told


def lost_in_a_read() -> Any:
    gpu, plan, out = gpu_with_work()
    told: list[str] = []
    for _ in range(20):  # the work may be done before the driver is told to fail
        plan.run(20)
        wait = gpu.snapshot(out)
        driver.faulty_driver_lose(1)
        told = refusals(wait)
        if told[0]:
            break
        driver.faulty_driver_lose(0)
    one = np.ones((256, 256), np.float32)
    return told + refusals(
        plan.run, lambda: gpu.write(out, one), lambda: gpu.upload(one), lambda: gpu.read(out)
    )


def lost_at_a_submit() -> Any:
    gpu, plan, out = gpu_with_work()
    driver.faulty_driver_lose(1)
    plan.run()  # Dawn submits later than it says
    return refusals(plan.run, lambda: gpu.read(out))


def full() -> Any:
    gpu, plan, out = gpu_with_work()
    driver.faulty_driver_room(driver.faulty_driver_used() + 8 * PIECE)
    kept, told = [], ""
    try:
        while len(kept) < 64:
            kept.append(gpu.zeros((PIECE // 4,)))
    except DeviceMemoryError as problem:
        told = str(problem)
    plan.run()
    goes_on = bool((gpu.read(out) == 256).all())
    before = gpu.memory.can_allocate(4 * PIECE)
    gpu.memory.release(*kept[: len(kept) // 2])
    released = gpu.memory.can_allocate(PIECE)
    del kept
    gc.collect()
    return [told, goes_on, before, released, gpu.memory.can_allocate(2 * PIECE)]


def full_in_an_upload() -> Any:
    """Into a slot that the GPU may be reading, so that Dawn must keep the values meanwhile."""
    gpu, plan, out = gpu_with_work()
    driver.faulty_driver_room(driver.faulty_driver_used())
    values = np.ones((256, 256), np.float32)
    told: list[str] = []
    for _ in range(40):
        told += refusals(plan.run, lambda: gpu.write(out, values))
    return told + refusals(lambda: gpu.read(out))


def transcribed(recovers: bool) -> Any:
    """A transcript whose device is lost after the first window, and what was said about it."""
    told: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("oscine").addHandler(handler)
    audio = (np.random.default_rng(0).standard_normal(16000 * 9) * 0.1).astype(np.float32)
    model = load(GOLDEN, "gpu")
    expected = model.transcribe(audio, **OPTIONS).text
    done = False

    def progress(seconds: float, total: float) -> None:
        nonlocal done
        if seconds > 0 and not done:
            done = True
            driver.faulty_driver_lose(1)

    rebuild = model.engine._rebuild
    assert rebuild is not None

    def repaired() -> Any:
        driver.faulty_driver_lose(0)
        return rebuild()

    if recovers:
        model.engine._rebuild = repaired
    found = model.transcribe(audio, progress=progress, **OPTIONS)
    return [bool(expected) and found.text == expected, found.device, told]


def lost_while_loading() -> Any:
    """By the driver, as soon as Dawn's device is open, and for good; `auto` takes software here."""
    told: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("oscine").addHandler(handler)
    open_device = devices.open_device

    def opened(adapter: devices.Adapter, **more: Any) -> devices.Device:
        device = open_device(adapter, **more)
        driver.faulty_driver_lose(1)
        return device

    devices.open_device = opened
    devices.matches_choice = lambda choice, adapter: True
    return [choose_backend("auto").name, told, *refusals(lambda: choose_backend("gpu"))]


CASES: dict[str, Callable[[], Any]] = {
    "lost in a read": lost_in_a_read,
    "lost at a submit": lost_at_a_submit,
    "lost while loading": lost_while_loading,
    "full": full,
    "full in an upload": full_in_an_upload,
    "lost and opened again": lambda: transcribed(recovers=True),
    "lost for good": lambda: transcribed(recovers=False),
}

if __name__ == "__main__":
    print(json.dumps(CASES[sys.argv[1]]()))
