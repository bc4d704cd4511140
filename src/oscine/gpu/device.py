"""Adapters and devices: the one place that imports a WebGPU implementation.

`wgpudawn` (Dawn) is tried first, `wgpu` (wgpu-native) is what stays where Dawn will not do; both
have the same Python API, and what differs between them is written down here and nowhere else.

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
import importlib.util
import logging
import os
import sys
import traceback
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from oscine.errors import DeviceError, DeviceLostError, DeviceMemoryError, UsageError

log = logging.getLogger(__name__)

#: The package of each implementation, in the order to try them.
MODULES = {"dawn": "wgpudawn", "wgpu": "wgpu"}
#: What a package raises that does not load, or has changed under us: wgpudawn is young.
BROKEN = (ImportError, OSError, RuntimeError, AttributeError, TypeError, KeyError)
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
#: The APIs that a card is taken through, best first; OpenGL only lists cards again.
APIS = ("Vulkan", "Metal", "D3D12", "D3D11")
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
    identity: str = ""  # Vulkan's UUID (nvidia-smi's too) or Windows's LUID; Dawn alone tells it
    twin: int = 0  # how many adapters of the same name and API are listed before it

    @property
    def software(self) -> bool:
        """Computed on the CPU: right for tests, slower than NumPy for work."""
        return self.kind == "CPU"

    @property
    def title(self) -> str:
        """The name; the second of two equal cards has `#2` after it."""
        return f"{self.name} #{self.twin + 1}" if self.twin else self.name

    @property
    def full_name(self) -> str:
        """For people: adapter, API and implementation."""
        return f"{self.title} ({self.backend}, {self.implementation})"

    @property
    def card(self) -> tuple[str, str, int]:
        """The same for both implementations: each lists equal cards in the driver's order."""
        return self.name, self.backend, self.twin


@dataclass(frozen=True, slots=True)
class Step:
    """One attempt on the way to a device: an adapter, or why an implementation has none."""

    implementation: str
    adapter: Adapter | None
    problem: DeviceError | None = None

    @property
    def name(self) -> str:
        """What the step tries, for people."""
        return self.adapter.full_name if self.adapter else self.implementation


@dataclass(frozen=True, slots=True)
class Device:
    """An open device and what its kernels may use, by one thread at a time."""

    adapter: Adapter
    api: Any  # the WebGPU module
    handle: Any

    @property
    def name(self) -> str:
        """For people: adapter, API and implementation."""
        return self.adapter.full_name

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
    """The implementations to try, in order; OSCINE_WEBGPU names the only one.

    One that is not installed is none to try, unless it is named: there are systems without its
    wheel. Raises UsageError for a name that there is not.
    """
    wanted = os.environ.get("OSCINE_WEBGPU", "").strip().lower()
    if wanted:
        if wanted not in MODULES:
            raise UsageError(f"OSCINE_WEBGPU={wanted}: not one of {', '.join(MODULES)}")
        return [wanted]
    return [name for name in MODULES if installed(name)]


def installed(implementation: str) -> bool:
    """Whether its package is there; it may still not load."""
    package = MODULES[implementation]
    try:
        return package in sys.modules or importlib.util.find_spec(package) is not None
    except ImportError:  # a finder of another program's
        return False


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
    """The WebGPU module. Raises DeviceError where it, or its library, does not load."""
    package = MODULES[implementation]
    try:
        with surroundings():
            api = importlib.import_module(package)
            if implementation == "dawn":
                set_toggles(importlib.import_module("wgpudawn.backends.dawn.extras"))
            else:
                importlib.import_module("wgpu.backends.wgpu_native")
    except BROKEN as problem:
        raise DeviceError(f"the package {package} cannot be loaded ({problem})") from problem
    logging.getLogger(package).addFilter(is_news)
    return api


def adapters(implementation: str) -> list[Adapter]:
    """All adapters of one implementation, best first, each once (not again through OpenGL).

    Raises DeviceError where it does not load, or cannot list them.
    """
    with surroundings():
        api = load_api(implementation)
        try:
            found = read_adapters(implementation, api)
        except (*BROKEN, getattr(api, "GPUError", RuntimeError)) as problem:
            told = f"{MODULES[implementation]} cannot list adapters"
            raise DeviceError(f"{told} ({one_line(problem)})") from problem
    return sorted(found, key=lambda adapter: (RANK[adapter.kind], APIS.index(adapter.backend)))


def read_adapters(implementation: str, api: Any) -> list[Adapter]:
    """What `adapters` sorts, in the order of the drivers."""
    found: list[Adapter] = []
    twins: Counter[tuple[str, str]] = Counter()
    for handle in handles(implementation, api):
        info = handle.info
        name, backend = str(info["device"]).strip() or "unnamed adapter", str(info["backend_type"])
        identity = identity_of(implementation, handle)
        if backend not in APIS or (
            identity and identity in {adapter.identity for adapter in found}
        ):
            continue
        names = FEATURES[implementation].items()
        features = {ours for ours, theirs in names if theirs in handle.features}
        if not has_our_matrices(handle, features):
            features.discard("matrix")
        found.append(
            Adapter(
                implementation=implementation,
                name=name,
                kind=str(info["adapter_type"]) if info["adapter_type"] in RANK else "Unknown",
                backend=backend,
                driver=str(info.get("description", "")),
                features=frozenset(features),
                limits={name: int(handle.limits[name]) for name in LIMITS},
                handle=handle,
                identity=identity,
                twin=twins[name, backend],
            )
        )
        twins[name, backend] += 1
    return found


def handles(implementation: str, api: Any) -> list[Any]:
    """All adapters as the module gives them.

    wgpudawn's public call leaves out the second of two equal cards; a version without the private
    one does no worse than that.
    """
    if implementation == "dawn" and hasattr(api.gpu, "_enumerate_all_adapters"):
        return list(api.gpu._enumerate_all_adapters())
    return list(api.gpu.enumerate_adapters_sync())


def identity_of(implementation: str, handle: Any) -> str:
    """What tells an adapter from all others of its API; empty where the implementation does not.

    One card may be listed twice, through two drivers or manifests.
    """
    if implementation != "dawn":
        return ""
    known = dawn_properties(handle)
    backend = str(handle.info["backend_type"])
    if "vulkan_uuids" in known:
        return f"{backend} {uuid.UUID(bytes=known['vulkan_uuids']['device_uuid'])}"
    return f"{backend} {known['d3d']['luid']:x}" if "d3d" in known else ""


def dawn_properties(handle: Any) -> dict[str, Any]:
    """What Dawn knows of an adapter besides WebGPU's own."""
    extras = importlib.import_module("wgpudawn.backends.dawn.extras")
    return dict(extras.get_adapter_properties(handle))


def has_our_matrices(handle: Any, features: set[str]) -> bool:
    """Whether an adapter of Dawn multiplies the matrices of our kernels, in subgroups of 32."""
    if not {"matrix", "f16", "subgroups"} <= features:
        return False
    offered = dawn_properties(handle).get("subgroup_matrix_configs", ())
    return any(config.items() >= (MATRIX | LANES).items() for config in offered)


def choose(choice: str) -> Adapter:
    """The adapter that `auto`, `gpu`, `gpu:N` or a part of a name stands for: the first there is.

    Raises DeviceError if there is none.
    """
    return next(step.adapter for step in candidates(choice) if step.adapter)


def candidates(choice: str) -> list[Step]:
    """What to try, in order: each card of the best kind under Dawn, then under wgpu.

    An implementation that has none of these cards is a step with its reason. `auto` takes
    hardware only; `gpu` the best there is. Raises DeviceError if there is no adapter at all.
    """
    tried = implementations()
    seen, problems = look()
    found = meant(choice, seen)
    if not found:
        raise no_adapter(choice, seen, problems)
    cards = list(dict.fromkeys(adapter.card for adapter in found))
    found.sort(key=lambda adapter: cards.index(adapter.card))  # stable: Dawn stays before wgpu
    steps = [Step(adapter.implementation, adapter) for adapter in found]
    for name in set(tried) - {adapter.implementation for adapter in found}:
        listed = "; ".join(described(seen.get(name, []))) or "no adapter"
        problem = problems.get(name) or DeviceError(f"{name} lists {listed}")
        steps.insert(0 if name == tried[0] else len(steps), Step(name, None, problem))
    return steps


def look() -> tuple[dict[str, list[Adapter]], dict[str, DeviceError]]:
    """What each implementation lists, and why the others cannot."""
    seen: dict[str, list[Adapter]] = {}
    problems: dict[str, DeviceError] = {}
    with surroundings():
        for name in implementations():
            try:
                seen[name] = adapters(name)
            except DeviceError as broken:
                problems[name] = broken
    return seen, problems


def meant(choice: str, seen: dict[str, list[Adapter]]) -> list[Adapter]:
    """The adapters of all implementations that a choice may mean, of the best kind among them."""
    if choice.startswith("gpu:"):  # a number of the list that `oscine doctor` shows first
        first = next((listed for listed in seen.values() if listed), [])
        cards = {adapter.card for adapter in first[number(choice) :][:1]}
        return [a for listed in seen.values() for a in listed if a.card in cards]
    found = [a for listed in seen.values() for a in listed if matches(choice, a)]
    best = min((RANK[adapter.kind] for adapter in found), default=0)
    return [adapter for adapter in found if RANK[adapter.kind] == best]


def number(choice: str) -> int:
    """The N of gpu:N. Raises UsageError where it is none."""
    digits = choice.removeprefix("gpu:")
    if not (digits.isascii() and digits.isdigit()):
        raise UsageError(f"{said(choice)}: write gpu:0, gpu:1, …")
    return int(digits)


def matches(choice: str, adapter: Adapter) -> bool:
    """Whether `auto`, `gpu` or a part of a name may mean an adapter."""
    if choice == "auto":
        return not adapter.software
    return choice == "gpu" or choice.lower() in adapter.title.lower()


def described(listed: list[Adapter]) -> list[str]:
    """Adapters by name and kind, each once."""
    return list(dict.fromkeys(f"{adapter.title} [{adapter.kind}]" for adapter in listed))


def no_adapter(
    choice: str, seen: dict[str, list[Adapter]], problems: dict[str, DeviceError]
) -> DeviceError:
    """Why a choice means no adapter, and what to do."""
    if not seen:  # no implementation loads
        wanted = os.environ.get("OSCINE_WEBGPU", "").strip().lower()
        package = MODULES[wanted or "wgpu"]
        told = "; ".join(str(problem) for problem in problems.values())
        told = told or f"the package {package} is not installed"
        remedy = f"pip install {package}, or --device cpu"
        if wanted:
            remedy += f"; OSCINE_WEBGPU={wanted} lets no other be used"
        return DeviceError(f"{told}; {remedy}")
    everything = [adapter for listed in seen.values() for adapter in listed]
    if not everything:
        remedy = "install your GPU's Vulkan driver (libvulkan and an ICD), or use --device cpu"
        told = "; ".join(["no WebGPU adapter", *(str(problem) for problem in problems.values())])
        return DeviceError(f"{told}; {remedy}")
    names = "; ".join(described(everything))
    if choice == "auto":
        return DeviceError(f"no hardware GPU; there is: {names}, which --device gpu takes")
    return DeviceError(f"{said(choice)}: no such adapter; there is: {names}")


def said(choice: str) -> str:
    """A choice of device as the user made it: by OSCINE_DEVICE where that has it, else --device."""
    by_variable = os.environ.get("OSCINE_DEVICE", "").strip().lower() == choice
    return f"OSCINE_DEVICE={choice}" if by_variable else f"--device {choice}"


def open_device(adapter: Adapter, without: frozenset[str] = frozenset()) -> Device:
    """Open an adapter with every feature of ours that it has, and its real limits."""
    api = load_api(adapter.implementation)
    features = adapter.features - without
    names = FEATURES[adapter.implementation]
    try:
        handle = fresh_handle(adapter)
        wanted = [names[feature] for feature in sorted(features)]
        limits = {**adapter.limits}
        with surroundings():
            device = handle.request_device_sync(required_features=wanted, required_limits=limits)
    except RuntimeError as problem:
        raise DeviceError(f"{adapter.full_name} cannot be opened: {one_line(problem)}") from problem
    return Device(replace(adapter, features=features), api, device)


def fresh_handle(adapter: Adapter) -> Any:
    """The handle of a card that can be opened: Dawn's adapters open one device each.

    Raises DeviceError where it is no longer there.
    """
    if adapter.implementation != "dawn":
        return adapter.handle
    for fresh in adapters("dawn"):
        if (fresh.card, fresh.identity) == (adapter.card, adapter.identity):
            return fresh.handle
    raise DeviceError(f"{adapter.full_name} is no longer there")
