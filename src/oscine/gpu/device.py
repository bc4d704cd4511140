"""Adapters and devices: the one place that imports a WebGPU implementation.

`wgpudawn` (Dawn) is tried first, `wgpu` (wgpu-native) where Dawn cannot be used. Both have the same
Python API; this file alone knows how they differ.

Behaviour of a lost or full device, observed with wgpu-native 29 and Dawn over a driver that fails
on request (tests/gpu/faulty_driver.c):

- `device.destroy()`, from any thread. Both refuse every later call with a validation error: "Parent
  device is lost" (wgpu), "[Device] is lost" (Dawn). A pending read ends: wgpu still returns the
  data, Dawn fails the map.
- A loss reported by the driver (VK_ERROR_DEVICE_LOST, as after a watchdog's reset). Dawn notices at
  the submit or in a tick; a wait without ticks never ends, and afterwards calls may succeed without
  effect. So `wait` ticks the device, and `raise_if_lost` reads the promise of the loss.
  wgpu-native aborts the process in the submit or the poll (`handle_error_fatal`, its issue 588);
  this cannot be caught, which is one more reason to prefer Dawn.
- Out of memory. Both refuse the buffer and remain usable. Dawn frees the memory of destroyed
  buffers only at a later submit: `wait_idle`. Where an internal buffer cannot be allocated, as for
  an upload, Dawn loses the device, with that reason.
- A submit that uses a destroyed buffer. A validation error in Dawn, an abort of the process in
  wgpu-native: plans over released memory are refused earlier (gpu/plan.py).
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
from oscine.gpu.matrix_units import MatrixUnits, choose_matrix_units

log = logging.getLogger(__name__)

#: The package of each implementation, in the order to try them.
PACKAGES = {"dawn": "wgpudawn", "wgpu": "wgpu"}
NATIVE_API = {"dawn": "wgpudawn.backends.dawn._api", "wgpu": "wgpu.backends.wgpu_native._api"}
#: Errors of a package that does not load or whose private API has changed: wgpudawn is young.
LOAD_ERRORS = (ImportError, OSError, RuntimeError, AttributeError, TypeError, KeyError)
#: Each implementation's name of the features that kernels can use, by our name.
FEATURES = {
    "wgpu": {"subgroups": "subgroup", "f16": "shader-f16", "timestamps": "timestamp-query"},
    "dawn": {
        "subgroups": "subgroups",
        "f16": "shader-f16",
        "timestamps": "timestamp-query",
        "matrix": "chromium-experimental-subgroup-matrix",
        "subgroup_size": "subgroup-size-control",
    },
}
#: Dawn's toggles for matrix units, and for float16 on NVIDIA's driver.
DAWN_TOGGLES = ("allow_unsafe_apis", "vulkan_enable_f16_on_nvidia")
#: Dawn's toggle that omits index checks, as loops with checks are not unrolled. docs/indexes.md
#: shows what bounds each index.
DAWN_NO_ROBUSTNESS = "disable_robustness"
#: Parts of messages of either implementation, and of drivers, that mean a lost device.
LOSS_MESSAGES = ("is lost", "was lost", "DEVICE_LOST", "DeviceLost", "Could not map buffer")
LOSS_LOG_PREFIXES = ("DEVICE LOST", "The WGPU device was lost")
WAIT_TIMEOUT_NS = 100_000_000  # of one wait in Dawn: Python handles signals between two
WAITS_PER_TICK = 10  # waits that time out before the device is ticked
TYPE_RANK = {"DiscreteGPU": 0, "IntegratedGPU": 1, "Unknown": 2, "CPU": 3}
#: The APIs to open a GPU with, best first; OpenGL would list the same GPUs again.
APIS = ("Vulkan", "Metal", "D3D12", "D3D11")
LIMITS = (
    "max-buffer-size",
    "max-storage-buffer-binding-size",
    "max-storage-buffers-per-shader-stage",
    "max-compute-workgroup-storage-size",
    "max-compute-invocations-per-workgroup",
    "max-compute-workgroup-size-x",
)


#: Makes the context of calls in which drivers print to stderr. The command line sets one that
#: captures stderr; a library does not touch the stderr of its process.
around_driver_calls: Callable[[], AbstractContextManager[object]] = nullcontext


@dataclass(frozen=True, slots=True)
class Adapter:
    """A GPU, or a software renderer, as one implementation lists it."""

    implementation: str  # "wgpu" or "dawn"
    name: str
    adapter_type: str  # DiscreteGPU, IntegratedGPU, CPU (software) or Unknown
    backend_type: str  # Vulkan, Metal, D3D12
    driver: str
    features: frozenset[str]  # our names: FEATURES
    limits: dict[str, int]
    handle: Any
    identity: str = ""  # Vulkan's UUID, as in nvidia-smi, or Windows's LUID; only Dawn reports it
    duplicate_index: int = 0  # number of adapters of the same name and API listed before this one
    matrix_units: MatrixUnits | None = None  # which the feature "matrix" goes with

    @property
    def software(self) -> bool:
        """Whether it computes on the CPU: fit for tests, slower than NumPy for work."""
        return self.adapter_type == "CPU"

    @property
    def title(self) -> str:
        """The name; that of the second of two equal GPUs ends in `#2`."""
        return f"{self.name} #{self.duplicate_index + 1}" if self.duplicate_index else self.name

    @property
    def full_name(self) -> str:
        """Adapter, API and implementation, for messages."""
        return f"{self.title} ({self.backend_type}, {self.implementation})"

    @property
    def card(self) -> tuple[str, str, int]:
        """The key of the GPU, the same under both implementations: both keep the driver's order."""
        return self.name, self.backend_type, self.duplicate_index


@dataclass(frozen=True, slots=True)
class Candidate:
    """An adapter to try for a device, or the reason why an implementation has none."""

    implementation: str
    adapter: Adapter | None
    problem: DeviceError | None = None

    @property
    def name(self) -> str:
        """The adapter, or else the implementation, for messages."""
        return self.adapter.full_name if self.adapter else self.implementation


@dataclass(frozen=True, slots=True)
class Device:
    """An open WebGPU device, its queue and its features; used by one thread at a time."""

    adapter: Adapter
    api: Any  # the module wgpu or wgpudawn
    handle: Any

    @property
    def name(self) -> str:
        """Adapter, API and implementation, for messages."""
        return self.adapter.full_name

    @property
    def features(self) -> frozenset[str]:
        """The features that the device was opened with, by our names."""
        return self.adapter.features

    @property
    def error_types(self) -> tuple[type[Exception], ...]:
        """The exceptions that calls of the implementation raise."""
        return self.api.GPUError, self.api.GPUPipelineError, RuntimeError

    def lost_reason(self) -> str:
        """Why the device is lost, as the implementation reports it; empty while it is not lost."""
        promise = getattr(self.handle, "_lost_promise", None)
        if promise is not None and promise._state != "pending":
            first, *_ = str(getattr(promise._value, "message", "")).splitlines() or [""]
            return first.strip() or "no reason given"
        if getattr(self.handle, "_poller", self) is None:  # wgpu: closed by device.destroy()
            return "destroyed"
        return ""

    def close(self) -> None:
        """Destroy the device and free its memory, also where it is lost."""
        try:
            self.handle.destroy()
        except self.error_types as problem:
            log.debug("%s: %s", self.name, one_line(problem))
        self.poll_lost_reason()

    def poll_lost_reason(self) -> None:
        """Make Dawn resolve the promise of a loss, which it does only when polled."""
        if self.adapter.implementation == "dawn":
            wait_any_future(
                native_api("dawn").libf.wgpuDeviceGetLostFuture(self.handle._internal).id, 0
            )

    def raise_if_lost(self) -> None:
        """Raise DeviceLostError if the device is lost: calls of Dawn may succeed all the same."""
        reason = self.lost_reason()
        if reason:
            raise DeviceLostError(self.name, reason)

    def wrap_error(
        self,
        problem: Exception,
        doing: str = "",
        kind: type[DeviceLostError] | type[DeviceMemoryError] | None = None,
    ) -> DeviceError:
        """A DeviceError for one of `error_types`: DeviceLostError where the device is lost.

        `doing` begins the message; `kind` is the class of the error where the device is not lost.
        """
        # Dawn's errors are in a cycle with the frames of the call, and CPython's collector may
        # crash on the memory views that those hold.
        traceback.clear_frames(problem.__traceback__)
        message = one_line(problem)
        is_lost = any(part in message for part in LOSS_MESSAGES)
        if is_lost:
            self.poll_lost_reason()
        reason = self.lost_reason()
        if is_lost or reason:
            return DeviceLostError(self.name, reason or message)
        message = f"{doing}: {message}" if doing else message
        if kind is None and isinstance(problem, MemoryError):
            kind = DeviceMemoryError
        return kind(self.name, message) if kind else DeviceError(f"{self.name}: {message}")

    def submit(self, encode: Callable[[Any], None]) -> None:
        """Submit the commands that `encode` writes to a command encoder.

        Raises DeviceLostError, and DeviceError for commands that are refused.
        """
        self.raise_if_lost()
        try:
            encoder = self.handle.create_command_encoder()
            encode(encoder)
            self.handle.queue.submit([encoder.finish()])
        except self.error_types as problem:
            raise self.wrap_error(problem) from problem

    def map_read(self, buffer: Any) -> None:
        """Wait for all submits so far, and map a staging buffer. Raises DeviceLostError."""
        self.raise_if_lost()
        closed: tuple[type[Exception], ...] = (AttributeError,)  # wgpu, closed a moment ago
        try:
            self.wait(buffer.map_async("READ_NOSYNC"))  # else wgpu makes an empty submission
        except self.error_types + closed as problem:
            raise self.wrap_error(problem, kind=DeviceLostError) from problem

    def wait_idle(self) -> None:
        """Wait until the queue is idle and destroyed buffers are freed. Raises DeviceLostError."""
        self.raise_if_lost()
        queue = self.handle.queue
        try:
            if self.adapter.implementation == "wgpu":  # whose on_submitted_work_done fails
                self.handle._poll_wait()
                return
            for _ in range(2):  # Dawn frees a buffer at a submit after the last that used it
                queue.submit([self.handle.create_command_encoder().finish()])
                self.wait(queue.on_submitted_work_done_async())
        except self.error_types as problem:
            raise self.wrap_error(problem) from problem

    def wait(self, promise: Any) -> Any:
        """The result of a promise; also returns or raises where the device gets lost."""
        future = getattr(promise, "_wgpu_future_id", None)
        if self.adapter.implementation == "dawn" and future is not None:
            waits = 0
            while promise._state == "pending" and not wait_any_future(future, WAIT_TIMEOUT_NS):
                waits += 1
                if waits % WAITS_PER_TICK == 0:  # in a tick a loss comes to light
                    native_api("dawn").libf.wgpuDeviceTick(self.handle._internal)
        if self.adapter.implementation == "wgpu":
            while promise._state == "pending" and not promise._thread_event.wait(0.1):
                if (
                    self.lost_reason()
                ):  # closed by another thread, which has ended the one that polls
                    raise DeviceLostError(self.name, self.lost_reason())
        return promise.sync_wait()

    def timestamp_ns(self) -> float:
        """Nanoseconds of one unit of a timestamp: 1 in WebGPU, the hardware's in wgpu-native."""
        if self.adapter.implementation != "wgpu":
            return 1.0
        functions = native_api("wgpu").libf
        return float(functions.wgpuQueueGetTimestampPeriod(self.handle.queue._internal))

    def compile(self, label: str, source: str) -> Any:
        """A shader module, without the index checks and loop counters that naga would add.

        OSCINE_ROBUST=1 keeps them.
        """
        if self.adapter.implementation == "wgpu" and not checks_indexes():
            with without_shader_checks():
                return self.handle.create_shader_module(label=label, code=source)
        return self.handle.create_shader_module(label=label, code=source)


@cache
def native_api(implementation: str) -> Any:
    """The private module of an implementation's package that calls its library."""
    return importlib.import_module(NATIVE_API[implementation])


def wait_any_future(future: int, nanoseconds: int) -> bool:
    """Wait for a future of Dawn and run its callback; whether it has completed."""
    native = native_api("dawn")
    waiting = native.ffi.new("WGPUFutureWaitInfo *")
    waiting.future.id = future
    native.libf.wgpuInstanceWaitAny(native.get_wgpu_instance(), 1, waiting, nanoseconds)
    return bool(waiting.completed)


def checks_indexes() -> bool:
    """Whether OSCINE_ROBUST asks for the index checks of the implementations."""
    return os.environ.get("OSCINE_ROBUST", "0") not in ("", "0")


def one_line(problem: object) -> str:
    """The message of an error on one line, without locations in the implementation's source."""
    lines = (line.strip() for line in str(problem).splitlines())
    return " ".join(" ".join(line for line in lines if not line.startswith("at ")).split())


def is_not_loss(record: logging.LogRecord) -> bool:
    """Whether a log record is not about a lost device, which our own error reports."""
    return not record.getMessage().startswith(LOSS_LOG_PREFIXES)


def implementations() -> list[str]:
    """The names of the implementations to try, in order; OSCINE_WEBGPU names the only one.

    Those that are not installed are left out, unless named: some systems have no wheel of one.
    Raises UsageError for an unknown name.
    """
    wanted = os.environ.get("OSCINE_WEBGPU", "").strip().lower()
    if wanted:
        if wanted not in PACKAGES:
            raise UsageError(f"OSCINE_WEBGPU={wanted}: not one of {', '.join(PACKAGES)}")
        return [wanted]
    return [name for name in PACKAGES if installed(name)]


def installed(implementation: str) -> bool:
    """Whether the package of an implementation is installed; it may still not load."""
    package = PACKAGES[implementation]
    try:
        return package in sys.modules or importlib.util.find_spec(package) is not None
    except ImportError:  # a finder of another program's
        return False


@contextmanager
def without_shader_checks() -> Iterator[None]:
    """Within it wgpu-native compiles shaders as written; its Python binding lacks the call.

    Our kernels check every index themselves. A version of wgpu-native without the call adds its
    checks: kernels are slower, and results the same.
    """
    functions = native_api("wgpu").libf
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
    """Set Dawn's toggles, once, before its instance is created."""
    unchecked = () if checks_indexes() else (DAWN_NO_ROBUSTNESS,)
    extras.set_instance_extras(enable_toggles=DAWN_TOGGLES + unchecked)


def load_webgpu(implementation: str) -> Any:
    """The module of an implementation. Raises DeviceError where it or its library does not load."""
    package = PACKAGES[implementation]
    try:
        with around_driver_calls():
            api = importlib.import_module(package)
            if implementation == "dawn":
                set_toggles(importlib.import_module("wgpudawn.backends.dawn.extras"))
            else:
                importlib.import_module("wgpu.backends.wgpu_native")
    except LOAD_ERRORS as problem:
        raise DeviceError(f"the package {package} cannot be loaded ({problem})") from problem
    logging.getLogger(package).addFilter(is_not_loss)
    return api


def adapters(implementation: str) -> list[Adapter]:
    """All adapters of one implementation, best first, each once (not again through OpenGL).

    Raises DeviceError where it does not load, or cannot list them.
    """
    with around_driver_calls():
        api = load_webgpu(implementation)
        try:
            adapters = read_adapter_list(implementation, api)
        except (*LOAD_ERRORS, getattr(api, "GPUError", RuntimeError)) as problem:
            message = f"{PACKAGES[implementation]} cannot list adapters"
            raise DeviceError(f"{message} ({one_line(problem)})") from problem
    return sorted(adapters, key=lambda a: (TYPE_RANK[a.adapter_type], APIS.index(a.backend_type)))


def read_adapter_list(implementation: str, api: Any) -> list[Adapter]:
    """The adapters of an implementation in the drivers' order, each once."""
    adapters: list[Adapter] = []
    twins: Counter[tuple[str, str]] = Counter()
    for handle in enumerate_handles(implementation, api):
        info = handle.info
        name, backend = str(info["device"]).strip() or "unnamed adapter", str(info["backend_type"])
        adapter_type = str(info["adapter_type"])
        identity = adapter_id(implementation, handle)
        if backend not in APIS or (
            identity and identity in {adapter.identity for adapter in adapters}
        ):
            continue
        names = FEATURES[implementation].items()
        features = {name for name, feature in names if feature in handle.features}
        matrix_units = None
        if {"matrix", "f16", "subgroups"} <= features:
            matrix_units = choose_matrix_units(dawn_adapter_properties(handle), features, backend)
        if matrix_units is None:
            features.discard("matrix")
        if matrix_units is None or not matrix_units.request_lanes:
            features.discard("subgroup_size")
        adapters.append(
            Adapter(
                implementation=implementation,
                name=name,
                adapter_type=adapter_type if adapter_type in TYPE_RANK else "Unknown",
                backend_type=backend,
                driver=str(info.get("description", "")),
                features=frozenset(features),
                limits={name: int(handle.limits[name]) for name in LIMITS},
                handle=handle,
                identity=identity,
                duplicate_index=twins[name, backend],
                matrix_units=matrix_units,
            )
        )
        twins[name, backend] += 1
    return adapters


def enumerate_handles(implementation: str, api: Any) -> list[Any]:
    """The adapters that the module lists.

    wgpudawn's public call leaves out the second of two equal GPUs, so its private call is preferred
    where the version has it.
    """
    if implementation == "dawn" and hasattr(api.gpu, "_enumerate_all_adapters"):
        return list(api.gpu._enumerate_all_adapters())
    return list(api.gpu.enumerate_adapters_sync())


def adapter_id(implementation: str, handle: Any) -> str:
    """An id of the GPU, unique within its API; empty where the implementation has none."""
    if implementation != "dawn":
        return ""
    known = dawn_adapter_properties(handle)
    backend = str(handle.info["backend_type"])
    if "vulkan_uuids" in known:
        return f"{backend} {uuid.UUID(bytes=known['vulkan_uuids']['device_uuid'])}"
    return f"{backend} {known['d3d']['luid']:x}" if "d3d" in known else ""


def dawn_adapter_properties(handle: Any) -> dict[str, Any]:
    """Dawn's properties of an adapter that WebGPU does not define."""
    extras = importlib.import_module("wgpudawn.backends.dawn.extras")
    return dict(extras.get_adapter_properties(handle))


def select_adapter(choice: str) -> Adapter:
    """The first adapter that `auto`, `gpu`, `gpu:N` or a part of a name selects.

    Raises DeviceError if there is none.
    """
    return next(step.adapter for step in candidates(choice) if step.adapter)


def candidates(choice: str) -> list[Candidate]:
    """The adapters to try, in order: each GPU of the best type under Dawn, then under wgpu.

    An implementation that lists none of these GPUs is a candidate with a reason. `auto` selects
    hardware only. Raises DeviceError if there is no adapter.
    """
    tried = implementations()
    seen, problems = list_adapters()
    adapters = matching_adapters(choice, seen)
    if not adapters:
        raise no_adapter_error(choice, seen, problems)
    cards = list(dict.fromkeys(adapter.card for adapter in adapters))
    adapters.sort(key=lambda adapter: cards.index(adapter.card))  # stable: Dawn stays before wgpu
    steps = [Candidate(adapter.implementation, adapter) for adapter in adapters]
    for name in set(tried) - {adapter.implementation for adapter in adapters}:
        listed = "; ".join(describe_adapters(seen.get(name, []))) or "no adapter"
        problem = problems.get(name) or DeviceError(f"{name} lists {listed}")
        steps.insert(0 if name == tried[0] else len(steps), Candidate(name, None, problem))
    return steps


def list_adapters() -> tuple[dict[str, list[Adapter]], dict[str, DeviceError]]:
    """The adapters of each implementation, and the errors of those that cannot list any."""
    seen: dict[str, list[Adapter]] = {}
    problems: dict[str, DeviceError] = {}
    with around_driver_calls():
        for name in implementations():
            try:
                seen[name] = adapters(name)
            except DeviceError as broken:
                problems[name] = broken
    return seen, problems


def matching_adapters(choice: str, seen: dict[str, list[Adapter]]) -> list[Adapter]:
    """The adapters of all implementations that a choice selects, of the best type among them."""
    if choice.startswith("gpu:"):  # an index into the first list that `oscine doctor` shows
        first = next((listed for listed in seen.values() if listed), [])
        cards = {adapter.card for adapter in first[parse_index(choice) :][:1]}
        return [a for listed in seen.values() for a in listed if a.card in cards]
    adapters = [a for listed in seen.values() for a in listed if matches_choice(choice, a)]
    best = min((TYPE_RANK[adapter.adapter_type] for adapter in adapters), default=0)
    return [adapter for adapter in adapters if TYPE_RANK[adapter.adapter_type] == best]


def parse_index(choice: str) -> int:
    """The N of gpu:N. Raises UsageError where N is not a number."""
    digits = choice.removeprefix("gpu:")
    if not (digits.isascii() and digits.isdigit()):
        raise UsageError(f"{format_choice(choice)}: write gpu:0, gpu:1, …")
    return int(digits)


def matches_choice(choice: str, adapter: Adapter) -> bool:
    """Whether `auto`, `gpu` or a part of a name may select an adapter."""
    if choice == "auto":
        return not adapter.software
    return choice == "gpu" or choice.lower() in adapter.title.lower()


def describe_adapters(listed: list[Adapter]) -> list[str]:
    """Name and type of each adapter, without duplicates, for messages."""
    return list(dict.fromkeys(f"{adapter.title} [{adapter.adapter_type}]" for adapter in listed))


def no_adapter_error(
    choice: str, seen: dict[str, list[Adapter]], problems: dict[str, DeviceError]
) -> DeviceError:
    """The error of a choice that selects no adapter, with a remedy."""
    if not seen:  # no implementation loads
        wanted = os.environ.get("OSCINE_WEBGPU", "").strip().lower()
        package = PACKAGES[wanted or "wgpu"]
        message = "; ".join(str(problem) for problem in problems.values())
        message = message or f"the package {package} is not installed"
        remedy = f'pip install {package}, or use device="cpu"'
        if wanted:
            remedy += f"; OSCINE_WEBGPU={wanted} lets no other be used"
        return DeviceError(f"{message}; {remedy}")
    everything = [adapter for listed in seen.values() for adapter in listed]
    if not everything:
        remedy = 'install your GPU\'s Vulkan driver (libvulkan and an ICD), or use device="cpu"'
        message = "; ".join(["no WebGPU adapter", *(str(problem) for problem in problems.values())])
        return DeviceError(f"{message}; {remedy}")
    names = "; ".join(describe_adapters(everything))
    if choice == "auto":
        return DeviceError(f'no hardware GPU was found; device="gpu" selects {names}')
    return DeviceError(f"{format_choice(choice)}: no such adapter; the adapters are: {names}")


def format_choice(choice: str) -> str:
    """A choice of device as the user made it: OSCINE_DEVICE=... or device="..."."""
    by_variable = os.environ.get("OSCINE_DEVICE", "").strip().lower() == choice
    return f"OSCINE_DEVICE={choice}" if by_variable else f'device="{choice}"'


def open_device(adapter: Adapter, without: frozenset[str] = frozenset()) -> Device:
    """Open an adapter with its limits and all of FEATURES that it has, but for those `without`.

    Raises DeviceError where it cannot be opened.
    """
    api = load_webgpu(adapter.implementation)
    features = adapter.features - without
    names = FEATURES[adapter.implementation]
    try:
        handle = reopen_handle(adapter)
        wanted = [names[feature] for feature in sorted(features)]
        limits = {**adapter.limits}
        with around_driver_calls():
            device = handle.request_device_sync(required_features=wanted, required_limits=limits)
    except RuntimeError as problem:
        raise DeviceError(f"{adapter.full_name} cannot be opened: {one_line(problem)}") from problem
    return Device(replace(adapter, features=features), api, device)


def reopen_handle(adapter: Adapter) -> Any:
    """A handle to open, as Dawn's open one device only. Raises DeviceError where it is gone."""
    if adapter.implementation != "dawn":
        return adapter.handle
    for fresh in adapters("dawn"):
        if (fresh.card, fresh.identity) == (adapter.card, adapter.identity):
            return fresh.handle
    raise DeviceError(f"{adapter.full_name} is no longer there")
