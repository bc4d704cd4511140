"""From the name of a device to a backend: NumPy, or a GPU that computes what NumPy computes."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from oscine.errors import DeviceError, UsageError
from oscine.ops import Backend
from oscine.ops.reference import Reference

if TYPE_CHECKING:
    from oscine.gpu.device import Adapter

log = logging.getLogger(__name__)

Made = TypeVar("Made")

#: How often each device was lost in this process, by name. From the third time on it is no glitch.
LOSSES: Counter[str] = Counter()
MAX_LOSSES = 2


def wanted_device(device: str) -> str:
    """The device asked for, in small letters; OSCINE_DEVICE stands in for `auto`, as does nothing.

    Raises UsageError for what is no text, and for names of APIs that are not used here.
    """
    if not isinstance(device, str):
        raise UsageError(f"device must be text such as auto, cpu or gpu, not {device!r}")
    wanted, source = device.strip().lower() or "auto", "--device "
    if wanted == "auto":
        wanted, source = (
            os.environ.get("OSCINE_DEVICE", "").strip().lower() or "auto",
            "OSCINE_DEVICE=",
        )
    if wanted.partition(":")[0] in ("cuda", "rocm", "mps"):
        raise UsageError(f"{source}{wanted}: oscine needs no CUDA, ROCm or MPS; use {source}gpu")
    return wanted


def choose_backend(device: str) -> Backend:
    """NumPy or a GPU that passed its check.

    Raises DeviceError where a GPU was asked for and none will do.
    """
    if device == "cpu":
        return Reference()
    try:
        return open_gpu(device)
    except DeviceError as problem:
        return fall_back(device, problem)


def build(make: Callable[[Backend], Made], backend: Backend, device: str) -> Made:
    """The engine; on NumPy where `auto` has chosen a GPU that cannot do this model.

    Raises DeviceError where a GPU was asked for.
    """
    try:
        return make(backend)
    except DeviceError as problem:
        return make(fall_back(device, problem))


def fall_back(device: str, problem: DeviceError) -> Backend:
    """NumPy, with a line that says why; the problem itself unless the choice was left to us."""
    if device != "auto":
        raise problem
    log.warning("using NumPy on the CPU: %s", problem)
    return Reference()


def open_gpu(device: str) -> Backend:
    """The adapter that was asked for, opened and checked against NumPy.

    Where Dawn's fails, wgpu's of the same kind is tried. Raises the first DeviceError.
    """
    from oscine.gpu.device import candidates

    problems: list[DeviceError] = []
    for adapter in candidates(device):
        try:
            return checked(adapter)
        except DeviceError as problem:
            log.info("%s under %s: %s", adapter.name, adapter.implementation, problem)
            problems.append(problem)
    raise problems[0]


def checked(adapter: Adapter) -> Backend:
    """One adapter, open and right; in shadow mode where OSCINE_CHECK asks for it."""
    from oscine.gpu.device import open_device
    from oscine.ops.check import self_check
    from oscine.ops.gpu import Gpu

    gpu = Gpu(open_device(adapter))
    self_check(gpu)
    if os.environ.get("OSCINE_CHECK", "0") not in ("", "0"):
        from oscine.ops.shadow import Shadow

        return Shadow(gpu)
    return gpu


def reopen(lost: str, device: str) -> Backend:
    """The backend that `device` asks for, after the one of that name was `lost`.

    Raises DeviceError where it was lost more than MAX_LOSSES times, or cannot be opened.
    """
    LOSSES[lost] += 1
    if LOSSES[lost] > MAX_LOSSES:
        raise DeviceError(f"lost {LOSSES[lost]} times")
    return open_gpu(device)


def fall_back_to_cpu(lost: str, problem: DeviceError) -> Backend:
    """NumPy, with a line that says why."""
    log.warning("%s: not opened again (%s); using NumPy on the CPU", lost, problem)
    return Reference()


def close(backend: Backend) -> None:
    """Give back all memory of a GPU, also through its shadow; NumPy has nothing to close."""
    device = getattr(getattr(backend, "gpu", backend), "device", None)
    if device is not None:
        device.close()
