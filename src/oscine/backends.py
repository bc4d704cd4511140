"""Chooses a backend by a device's name: the CPU's, or a GPU whose results agree with NumPy's."""

from __future__ import annotations

import logging
import os
import sys
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from oscine.errors import DeviceError, MemoryBudgetError, UsageError
from oscine.gpu.device import implementations, list_adapters, no_adapter_error, parse_index
from oscine.hub import home
from oscine.ops import Backend
from oscine.ops.reference import Reference

if TYPE_CHECKING:
    from oscine.gpu.device import Candidate

log = logging.getLogger(__name__)

Made = TypeVar("Made")

#: Device name -> how often it was lost in this process. After MAX_LOSSES it is not opened again.
LOSS_COUNTS: Counter[str] = Counter()
MAX_LOSSES = 2

ALL = "all"  # as a device: every GPU, each with a process of its own


def parse_device(device: str) -> str:
    """The requested device in lower case; for `auto` or an empty name that of OSCINE_DEVICE.

    Raises UsageError for a value that is not text, `gpu:` without a number, names of APIs that are
    not used here, and for an OSCINE_WEBGPU that names no implementation.
    """
    if not isinstance(device, str):
        raise UsageError(f"device must be text such as auto, cpu or gpu, not {device!r}")
    wanted, source = device.strip().lower() or "auto", 'device="{}"'
    if wanted == "auto":
        wanted = os.environ.get("OSCINE_DEVICE", "").strip().lower() or "auto"
        source = "OSCINE_DEVICE={}"
    if wanted.partition(":")[0] in ("cuda", "rocm", "mps"):
        given, remedy = source.format(wanted), source.format("gpu")
        raise UsageError(f"{given}: oscine needs no CUDA, ROCm or MPS; use {remedy}")
    if wanted.startswith("gpu:"):
        parse_index(wanted)
    implementations()
    return wanted


def list_gpus() -> list[str]:
    """`gpu:N` of each hardware GPU, only once if several APIs list it.

    Without hardware, software adapters are listed. Raises DeviceError if there is no adapter.
    """
    seen, problems = list_adapters()
    listed = next((found for found in seen.values() if found), [])
    if not listed:
        raise no_adapter_error(ALL, seen, problems)
    cards: dict[tuple[str, int], int] = {}
    for place, adapter in enumerate(listed):
        cards.setdefault((adapter.name, adapter.duplicate_index), place)
    hardware = [place for place in cards.values() if not listed[place].software]
    return [f"gpu:{place}" for place in hardware or cards.values()]


def choose_backend(device: str) -> Backend:
    """The CPU, or the first GPU of `candidates` that passes its check; `auto` ends with the CPU.

    Raises DeviceError where a GPU was asked for and none will do.
    """
    return cpu_backend() if device == "cpu" else next_backend(device, {})


def cpu_backend() -> Backend:
    """The compiled backend where the extra `[cpu]` is installed, else NumPy.

    OSCINE_CPU=numpy or numba chooses one of them. Raises UsageError for other values, and
    DeviceError where numba is asked for and cannot be used.
    """
    wanted = os.environ.get("OSCINE_CPU", "").strip().lower()
    if wanted not in ("", "numpy", "numba"):
        raise UsageError(f"OSCINE_CPU={wanted}: it must be numpy or numba")
    if wanted == "numpy" or (sys.platform == "win32" and not wanted):  # not tried there
        return Reference()
    try:
        from oscine.ops.compiled import Compiled

        return Compiled(home() / "kernels")
    except ImportError as problem:
        missing = f"the extra [cpu] is not installed ({problem})"
    except Exception as problem:  # the compiler's, of many kinds
        missing = f"the kernels cannot be compiled ({problem})"
        if not wanted:
            log.warning("using NumPy: %s", missing)
    if wanted:
        raise DeviceError(f"OSCINE_CPU=numba: {missing}")
    return Reference()


def build_with_fallback(make: Callable[[Backend], Made], backend: Backend, device: str) -> Made:
    """The engine on a backend, or on the next that can do this model.

    A backend that cannot is closed, so that its memory is there for the next.
    Raises MemoryBudgetError where the model exceeds its budget, as it would on any backend, and
    DeviceError where a GPU was asked for and none can.
    """
    failed: dict[str, DeviceError] = {}
    while True:
        try:
            return make(backend)
        except MemoryBudgetError:
            raise
        except DeviceError as problem:
            name = getattr(backend, "gpu", backend).name  # in shadow mode that of the adapter too
            if device == "cpu" or name in failed:
                raise
            failed[name] = problem
        close(backend)
        backend = next_backend(device, failed)


def next_backend(device: str, failed: dict[str, DeviceError]) -> Backend:
    """The next GPU that was not in `failed`; with `auto` the CPU after the last, with a warning."""
    try:
        return open_gpu(device, failed)
    except DeviceError as problem:
        if device != "auto":
            raise
        cpu = cpu_backend()
        log.warning("using %s on the CPU: %s", cpu.name, failure_reasons(failed) or problem)
        return cpu


def open_gpu(device: str, failed: dict[str, DeviceError] | None = None) -> Backend:
    """The first working GPU not in `failed`, as `find_gpu`; a warning names those that failed."""
    failed = {} if failed is None else failed
    backend = find_gpu(device, failed)
    if failed:
        log.warning("using %s: %s", backend.name, failure_reasons(failed))
    return backend


def find_gpu(device: str, failed: dict[str, DeviceError]) -> Backend:
    """The first candidate not in `failed` that opens and passes the self-check against NumPy.

    Candidates that fail are added to `failed` by name. Raises the first DeviceError if none works.
    """
    from oscine.gpu.device import candidates

    for step in candidates(device):
        if step.name in failed:
            continue
        try:
            if step.implementation == "wgpu":
                refuse_after_loss(failed)
            return open_checked(step)
        except DeviceError as problem:
            failed[step.name] = problem
    raise next(iter(failed.values()))


def refuse_after_loss(failed: dict[str, DeviceError]) -> None:
    """Keep wgpu-native from a driver that has just taken a device away from Dawn.

    If it did so again, wgpu-native would end the process (its issue 588). Raises DeviceError.
    """
    if any("DEVICE_LOST" in str(problem) for problem in failed.values()):
        raise DeviceError("not tried, as another loss would end the process")


def failure_reasons(failed: dict[str, DeviceError]) -> str:
    """Why each backend failed, with its name."""
    messages = {name: str(problem) for name, problem in failed.items()}
    each = [text if name in text else f"{name}: {text}" for name, text in messages.items()]
    return "; ".join(dict.fromkeys(each))


def open_checked(step: Candidate) -> Backend:
    """One adapter, open and right; in shadow mode where OSCINE_CHECK asks for it.

    Raises DeviceError.
    """
    from oscine.gpu.device import open_device
    from oscine.ops.check import self_check
    from oscine.ops.webgpu import Gpu
    from oscine.tuning import load_thresholds

    if step.adapter is None:
        raise step.problem or DeviceError(f"{step.name}: no adapter")
    gpu = Gpu(open_device(step.adapter))
    gpu.thresholds = load_thresholds(step.adapter)
    try:
        self_check(gpu)
    except DeviceError:
        gpu.device.close()
        raise
    if os.environ.get("OSCINE_CHECK", "0") not in ("", "0"):
        from oscine.ops.shadow import Shadow

        return Shadow(gpu)
    return gpu


def reopen(lost: str, device: str) -> Backend:
    """The backend that `device` asks for, after the one of that name was `lost`.

    Raises DeviceError where it was lost more than MAX_LOSSES times, or cannot be opened.
    """
    LOSS_COUNTS[lost] += 1
    if LOSS_COUNTS[lost] > MAX_LOSSES:
        raise DeviceError(f"lost {LOSS_COUNTS[lost]} times")
    return open_gpu(device)


def fall_back_to_cpu(lost: str, problem: DeviceError) -> Backend:
    """The CPU's backend, with a warning that gives the reason."""
    cpu = cpu_backend()
    log.warning("%s: not opened again (%s); using %s on the CPU", lost, problem, cpu.name)
    return cpu


def close(backend: Backend) -> None:
    """Release all memory of a GPU backend, also in shadow mode; does nothing for NumPy."""
    device = getattr(getattr(backend, "gpu", backend), "device", None)
    if device is not None:
        device.close()
