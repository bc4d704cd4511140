"""Adapters and devices: the one place that imports a WebGPU implementation.

`wgpu` (wgpu-native) is the standard one, `wgpudawn` (Dawn) the optional one; both have the same
Python API, and what differs between them is written down here and nowhere else.

What happens when a device is lost or full, found with wgpu-native 29 and Dawn over a driver that
fails on request (tests/gpu/faulty_driver.c):

- `device.destroy()`, from anywhere. Both refuse every later call with a validation error: "Parent
  device is lost" (wgpu), "[Device] is lost" (Dawn). A read that waits ends: wgpu still hands over
  the data, Dawn fails the map.
- A loss by the driver (VK_ERROR_DEVICE_LOST, as after a watchdog's reset). Dawn notices at the
  submit or in a tick; a wait without ticks never ends, and once it has noticed, calls may succeed
  and do nothing. So `wait` ticks the device, and `check` asks the promise of the loss.
  wgpu-native ends the whole process, in the submit or the poll (`handle_error_fatal`, its issue
  588), and no caller can help it: one more reason to take Dawn where there is a choice.
- No memory. Both refuse the buffer and go on. Dawn gives the memory of destroyed buffers back only
  at a later submit: `settle`. Where it runs out in a buffer of its own, as for an upload, it gives
  up the device: a loss, whose reason says so.
- A submit that uses a destroyed buffer. A validation error in Dawn, the end of the process in
  wgpu-native: plans over released memory are refused before (gpu/plan.py).
"""

from __future__ import annotations

import importlib
import logging
import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from oscine.errors import DeviceError, DeviceLostError, DeviceMemoryError

log = logging.getLogger(__name__)

MODULES = {"wgpu": "wgpu", "dawn": "wgpudawn"}
#: How each implementation spells the features that kernels can use, by our name.
FEATURES = {
    "wgpu": {"subgroups": "subgroup", "f16": "shader-f16", "timestamps": "timestamp-query"},
    "dawn": {
        "subgroups": "subgroups",
        "f16": "shader-f16",
        "timestamps": "timestamp-query",
        "matrix": "chromium-experimental-subgroup-matrix",
    },
}
#: What the kernels for matrix units are written for, in Dawn's words.
MATRIX = {"component_type": "f16", "result_component_type": "f32", "m": 16, "n": 16, "k": 16}
LANES = {"min_subgroup_size": 32, "max_subgroup_size": 32}
#: What Dawn hides behind switches: matrix units, and half precision on NVIDIA's driver.
DAWN_TOGGLES = ("allow_unsafe_apis", "vulkan_enable_f16_on_nvidia")
#: Index checks go: docs/indexes.md has what bounds each, and checked loops are not unrolled.
DAWN_UNCHECKED = "disable_robustness"
#: How messages of either, and of the drivers under them, tell of a lost device.
LOST = ("is lost", "was lost", "DEVICE_LOST", "DeviceLost", "Could not map buffer")
LOSS_LOGGED = ("DEVICE LOST", "The WGPU device was lost")
WAIT_NANOSECONDS = 100_000_000  # of one wait in Dawn, between which Python may be interrupted
WAITS = 10  # in vain before a tick
RANK = {"DiscreteGPU": 0, "IntegratedGPU": 1, "Unknown": 2, "CPU": 3}
LIMITS = (
    "max-buffer-size",
    "max-storage-buffer-binding-size",
    "max-storage-buffers-per-shader-stage",
    "max-compute-workgroup-storage-size",
    "max-compute-invocations-per-workgroup",
    "max-compute-workgroup-size-x",
)


#: Made and entered around calls in which drivers print to stderr. A command puts something here
#: that keeps it back; a library leaves its process's stderr alone.
surroundings: Callable[[], AbstractContextManager[object]] = nullcontext


@dataclass(frozen=True, slots=True)
class Adapter:
    """One adapter as one implementation sees it."""

    implementation: str  # "wgpu" or "dawn"
    name: str
    kind: str  # DiscreteGPU, IntegratedGPU, CPU (software) or Unknown
    backend: str  # Vulkan, Metal, D3D12
    driver: str
    features: frozenset[str]  # our names: FEATURES
    limits: dict[str, int]
    handle: Any

    @property
    def software(self) -> bool:
        """Computed on the CPU: right for tests, slower than NumPy for work."""
        return self.kind == "CPU"


@dataclass(frozen=True, slots=True)
class Device:
    """An open device and what its kernels may use, by one thread at a time."""

    adapter: Adapter
    api: Any  # the WebGPU module
    handle: Any

    @property
    def name(self) -> str:
        """For people: adapter, API and implementation."""
        a = self.adapter
        return f"{a.name} ({a.backend}, {a.implementation})"

    @property
    def features(self) -> frozenset[str]:
        """What the device was opened with."""
        return self.adapter.features

    @property
    def failures(self) -> tuple[type[Exception], ...]:
        """What calls of the implementation raise where they fail."""
        return self.api.GPUError, self.api.GPUPipelineError, RuntimeError

    def lost(self) -> str:
        """Why the device is lost, as far as the implementation says so; empty while it is not."""
        promise = getattr(self.handle, "_lost_promise", None)
        if promise is not None and promise._state != "pending":
            first, *_ = str(getattr(promise._value, "message", "")).splitlines() or [""]
            return first.strip() or "no reason given"
        if getattr(self.handle, "_poller", self) is None:  # wgpu: closed by device.destroy()
            return "destroyed"
        return ""

    def close(self) -> None:
        """Give back all its memory, also where it is lost; nothing on it can be used any more."""
        try:
            self.handle.destroy()
        except self.failures as problem:
            log.debug("%s: %s", self.name, one_line(problem))
        self.ask_why()

    def ask_why(self) -> None:
        """Have Dawn, which keeps the reason of a loss until asked, call the promise of it."""
        if self.adapter.implementation == "dawn":
            wait_any(dawn().libf.wgpuDeviceGetLostFuture(self.handle._internal).id, 0)

    def check(self) -> None:
        """Raise DeviceLostError if it is known to be lost: Dawn's calls may not say so."""
        reason = self.lost()
        if reason:
            raise DeviceLostError(self.name, reason)

    def failure(
        self,
        problem: Exception,
        doing: str = "",
        kind: type[DeviceLostError] | type[DeviceMemoryError] | None = None,
    ) -> DeviceError:
        """One of `failures` as an error of ours: lost, no memory, or what else was refused.

        `doing` begins the line; `kind` is what it is where the device is not lost.
        """
        # Dawn's errors are in a cycle with the frames of the call, and CPython's collector may
        # crash on the memory views that those hold.
        traceback.clear_frames(problem.__traceback__)
        told = one_line(problem)
        lost = any(sign in told for sign in LOST)
        if lost:
            self.ask_why()
        reason = self.lost()
        if lost or reason:
            return DeviceLostError(self.name, reason or told)
        told = f"{doing}: {told}" if doing else told
        if kind is None and isinstance(problem, MemoryError):
            kind = DeviceMemoryError
        return kind(self.name, told) if kind else DeviceError(f"{self.name}: {told}")

    def submit(self, fill: Callable[[Any], None]) -> None:
        """Hand over the commands that `fill` puts into an encoder.

        Raises DeviceLostError, and DeviceError for commands that are refused.
        """
        self.check()
        try:
            encoder = self.handle.create_command_encoder()
            fill(encoder)
            self.handle.queue.submit([encoder.finish()])
        except self.failures as problem:
            raise self.failure(problem) from problem

    def map_read(self, buffer: Any) -> None:
        """Map a staging buffer once the submits so far are done: waits.

        Raises DeviceLostError.
        """
        self.check()
        closed: tuple[type[Exception], ...] = (AttributeError,)  # wgpu, closed a moment ago
        try:
            self.wait(buffer.map_async("READ_NOSYNC"))  # else wgpu submits once more, for nothing
        except self.failures + closed as problem:
            raise self.failure(problem, kind=DeviceLostError) from problem

    def settle(self) -> None:
        """Wait for all submits, and let what was destroyed go. Raises DeviceLostError."""
        self.check()
        queue = self.handle.queue
        try:
            if self.adapter.implementation == "wgpu":  # whose on_submitted_work_done fails
                self.handle._poll_wait()
                return
            for _ in range(2):  # Dawn frees at a submit after the one that was last to use it
                queue.submit([self.handle.create_command_encoder().finish()])
                self.wait(queue.on_submitted_work_done_async())
        except self.failures as problem:
            raise self.failure(problem) from problem

    def wait(self, promise: Any) -> None:
        """Wait for an operation of the queue, also where the device is lost meanwhile."""
        future = getattr(promise, "_wgpu_future_id", None)
        if self.adapter.implementation == "dawn" and future is not None:
            waits = 0
            while promise._state == "pending" and not wait_any(future, WAIT_NANOSECONDS):
                waits += 1
                if waits % WAITS == 0:  # in a tick a loss comes to light
                    dawn().libf.wgpuDeviceTick(self.handle._internal)
        if self.adapter.implementation == "wgpu":
            while promise._state == "pending" and not promise._thread_event.wait(0.1):
                if self.lost():  # closed by another thread, which has ended the one that polls
                    raise DeviceLostError(self.name, self.lost())
        promise.sync_wait()

    def tick(self) -> float:
        """Nanoseconds a timestamp counts in: one by WebGPU, the hardware's own by wgpu-native."""
        if self.adapter.implementation != "wgpu":
            return 1.0
        functions = importlib.import_module("wgpu.backends.wgpu_native._api").libf
        return float(functions.wgpuQueueGetTimestampPeriod(self.handle.queue._internal))

    def compile(self, label: str, source: str) -> Any:
        """A shader module, without the index checks and loop counters that naga would add.

        With them under OSCINE_ROBUST.
        """
        if self.adapter.implementation == "wgpu" and not robust():
            with trusted_shaders():
                return self.handle.create_shader_module(label=label, code=source)
        return self.handle.create_shader_module(label=label, code=source)


@cache
def dawn() -> Any:
    """The module in which wgpudawn calls Dawn."""
    return importlib.import_module("wgpudawn.backends.dawn._api")


def wait_any(future: int, nanoseconds: int) -> bool:
    """Wait for a future of Dawn; whether it has come. Its callback runs in here."""
    native = dawn()
    waiting = native.ffi.new("WGPUFutureWaitInfo *")
    waiting.future.id = future
    native.libf.wgpuInstanceWaitAny(native.get_wgpu_instance(), 1, waiting, nanoseconds)
    return bool(waiting.completed)


def robust() -> bool:
    """Whether OSCINE_ROBUST asks for the implementations' own index checks."""
    return os.environ.get("OSCINE_ROBUST", "0") not in ("", "0")


def one_line(problem: object) -> str:
    """An implementation's message, of many lines, as part of ours; without places in its source."""
    lines = (line.strip() for line in str(problem).splitlines())
    return " ".join(" ".join(line for line in lines if not line.startswith("at ")).split())


def is_news(record: logging.LogRecord) -> bool:
    """Whether to log what an implementation logs: a loss is told by our own error."""
    return not record.getMessage().startswith(LOSS_LOGGED)


def implementations() -> list[str]:
    """The implementations to try, in order; OSCINE_WEBGPU names the only one."""
    wanted = os.environ.get("OSCINE_WEBGPU", "")
    if wanted:
        if wanted not in MODULES:
            raise DeviceError(f"OSCINE_WEBGPU={wanted}: not one of {', '.join(MODULES)}")
        return [wanted]
    return ["dawn", "wgpu"]


@contextmanager
def trusted_shaders() -> Iterator[None]:
    """wgpu-native compiles what it trusts as written; its Python binding lacks the call.

    Kernels of ours guard every index themselves. Where a version has another shape, they compile
    with checks: slower, and as right.
    """
    functions = importlib.import_module("wgpu.backends.wgpu_native._api").libf
    trusted = getattr(functions, "wgpuDeviceCreateShaderModuleTrusted", None)
    usual = functions.wgpuDeviceCreateShaderModule
    if trusted is not None:
        functions.wgpuDeviceCreateShaderModule = lambda device, what: trusted(device, what, 0)
    try:
        yield
    finally:
        functions.wgpuDeviceCreateShaderModule = usual


@cache
def set_toggles(extras: Any) -> None:
    """Once, before Dawn's instance is made."""
    unchecked = () if robust() else (DAWN_UNCHECKED,)
    extras.set_instance_extras(enable_toggles=DAWN_TOGGLES + unchecked)


def load_api(implementation: str) -> Any:
    """The WebGPU module, or None where it is not installed or its library does not load."""
    try:
        with surroundings():
            api = importlib.import_module(MODULES[implementation])
            if implementation == "dawn":
                set_toggles(importlib.import_module("wgpudawn.backends.dawn.extras"))
            else:
                importlib.import_module("wgpu.backends.wgpu_native")
    except (ImportError, OSError, RuntimeError) as problem:
        log.debug("%s cannot be used: %s", implementation, problem)
        return None
    logging.getLogger(MODULES[implementation]).addFilter(is_news)
    return api


def adapters(implementation: str) -> list[Adapter]:
    """All adapters of one implementation, best first, each once (not again through OpenGL)."""
    with surroundings():
        api = load_api(implementation)
        handles = [] if api is None else api.gpu.enumerate_adapters_sync()
    found = []
    for handle in handles:
        info = handle.info
        backend = str(info["backend_type"])
        if backend in ("OpenGL", "OpenGLES", "Null"):
            continue
        names = FEATURES[implementation].items()
        features = {ours for ours, theirs in names if theirs in handle.features}
        if not has_our_matrices(handle, features):
            features.discard("matrix")
        found.append(
            Adapter(
                implementation=implementation,
                name=str(info["device"]).strip() or "unnamed adapter",
                kind=str(info["adapter_type"]) if info["adapter_type"] in RANK else "Unknown",
                backend=backend,
                driver=str(info.get("description", "")),
                features=frozenset(features),
                limits={name: int(handle.limits[name]) for name in LIMITS},
                handle=handle,
            )
        )
    return sorted(found, key=lambda adapter: RANK[adapter.kind])


def has_our_matrices(handle: Any, features: set[str]) -> bool:
    """Whether an adapter of Dawn multiplies the matrices of our kernels, in subgroups of 32."""
    if not {"matrix", "f16", "subgroups"} <= features:
        return False
    extras = importlib.import_module("wgpudawn.backends.dawn.extras")
    offered = extras.get_adapter_properties(handle).get("subgroup_matrix_configs", ())
    return any(config.items() >= (MATRIX | LANES).items() for config in offered)


def choose(choice: str) -> Adapter:
    """The adapter that `auto`, `gpu`, `gpu:N` or a part of a name stands for: the first candidate.

    Raises DeviceError if there is none.
    """
    return candidates(choice)[0]


def candidates(choice: str) -> list[Adapter]:
    """That adapter, then the same kind as the other implementation has it.

    `auto` takes hardware only; `gpu` the best there is. Raises DeviceError if there is none.
    """
    with surroundings():
        seen = {name: adapters(name) for name in implementations()}
    if choice.startswith("gpu:"):  # a number of the list that `oscine doctor` shows first
        first = next((listed for listed in seen.values() if listed), [])
        seen = {"": first}
    found = [a for listed in seen.values() for a in matching(choice, listed)]
    found.sort(key=lambda adapter: RANK[adapter.kind])  # stable: Dawn stays before wgpu
    if found:
        return [adapter for adapter in found if adapter.kind == found[0].kind]
    everything = [adapter for listed in seen.values() for adapter in listed]
    if not any(load_api(name) for name in implementations()):
        package = MODULES[implementations()[-1]]  # the one that OSCINE_WEBGPU names, or wgpu
        remedy = f"pip install {package}, or --device cpu"
        if os.environ.get("OSCINE_WEBGPU"):
            remedy += f"; OSCINE_WEBGPU={os.environ['OSCINE_WEBGPU']} lets no other be used"
        raise DeviceError(f"the package {package} cannot be loaded; {remedy}")
    if not everything:
        remedy = "install your GPU's Vulkan driver (libvulkan and an ICD), or use --device cpu"
        raise DeviceError(f"no WebGPU adapter; {remedy}")
    names = "; ".join(dict.fromkeys(f"{a.name} [{a.kind}]" for a in everything))
    if choice == "auto":
        raise DeviceError(f"no hardware GPU; there is: {names}, which --device gpu takes")
    raise DeviceError(f"{said(choice)}: no such adapter; there is: {names}")


def said(choice: str) -> str:
    """A choice of device as the user made it: by OSCINE_DEVICE where that has it, else --device."""
    by_variable = os.environ.get("OSCINE_DEVICE", "").strip().lower() == choice
    return f"OSCINE_DEVICE={choice}" if by_variable else f"--device {choice}"


def matching(choice: str, listed: list[Adapter]) -> list[Adapter]:
    """Those of one implementation's adapters that a choice may mean."""
    if choice == "auto":
        return [adapter for adapter in listed if not adapter.software]
    if choice == "gpu":
        return listed
    if choice.startswith("gpu:"):
        number = choice[4:]
        if not (number.isascii() and number.isdigit()):
            raise DeviceError(f"{said(choice)}: write gpu:0, gpu:1, …")
        return listed[int(number) : int(number) + 1]
    return [adapter for adapter in listed if choice.lower() in adapter.name.lower()]


def open_device(adapter: Adapter, without: frozenset[str] = frozenset()) -> Device:
    """Open an adapter with every feature of ours that it has, and its real limits."""
    api = load_api(adapter.implementation)
    features = adapter.features - without
    names = FEATURES[adapter.implementation]
    handle = adapter.handle
    try:
        if adapter.implementation == "dawn":  # Dawn's adapters open one device each
            handle = next(
                fresh.handle
                for fresh in adapters("dawn")
                if (fresh.name, fresh.backend) == (adapter.name, adapter.backend)
            )
        wanted = [names[feature] for feature in sorted(features)]
        limits = {**adapter.limits}
        with surroundings():
            device = handle.request_device_sync(required_features=wanted, required_limits=limits)
    except (RuntimeError, StopIteration) as problem:
        raise DeviceError(f"{adapter.name} cannot be opened: {one_line(problem)}") from problem
    return Device(replace(adapter, features=features), api, device)
