"""Adapters and devices: the one place that imports a WebGPU implementation.

`wgpu` (wgpu-native) is the standard one, `wgpudawn` (Dawn) the optional one; both have the same
Python API, and what differs between them is written down here and nowhere else.
"""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from oscine.errors import DeviceError

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
#: What Dawn hides behind switches: matrix units, and half precision on NVIDIA's driver.
#: Index checks go: every kernel of ours guards its own, and checked loops are not unrolled.
DAWN_TOGGLES = ("allow_unsafe_apis", "vulkan_enable_f16_on_nvidia", "disable_robustness")
RANK = {"DiscreteGPU": 0, "IntegratedGPU": 1, "Unknown": 2, "CPU": 3}
LIMITS = (
    "max-buffer-size",
    "max-storage-buffer-binding-size",
    "max-storage-buffers-per-shader-stage",
    "max-compute-workgroup-storage-size",
    "max-compute-invocations-per-workgroup",
    "max-compute-workgroup-size-x",
)


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
    """An open device and what its kernels may use."""

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

    def tick(self) -> float:
        """Nanoseconds a timestamp counts in: one by WebGPU, the hardware's own by wgpu-native."""
        if self.adapter.implementation != "wgpu":
            return 1.0
        functions = importlib.import_module("wgpu.backends.wgpu_native._api").libf
        return float(functions.wgpuQueueGetTimestampPeriod(self.handle.queue._internal))

    def compile(self, label: str, source: str) -> Any:
        """A shader module, without the index checks and loop counters that naga would add."""
        if self.adapter.implementation == "wgpu":
            with trusted_shaders():
                return self.handle.create_shader_module(label=label, code=source)
        return self.handle.create_shader_module(label=label, code=source)


def one_line(problem: Exception) -> str:
    """An implementation's message, which runs over many lines, as part of ours."""
    return " ".join(str(problem).split())


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
    extras.set_instance_extras(enable_toggles=DAWN_TOGGLES)


def load_api(implementation: str) -> Any:
    """The WebGPU module, or None where it is not installed or its library does not load."""
    try:
        api = importlib.import_module(MODULES[implementation])
        if implementation == "dawn":
            extras = importlib.import_module("wgpudawn.backends.dawn.extras")
            set_toggles(extras)
        else:
            importlib.import_module("wgpu.backends.wgpu_native")
    except (ImportError, OSError, RuntimeError) as problem:
        log.debug("%s cannot be used: %s", implementation, problem)
        return None
    return api


def adapters(implementation: str) -> list[Adapter]:
    """All adapters of one implementation, best first, each once (not again through OpenGL)."""
    api = load_api(implementation)
    if api is None:
        return []
    found = []
    for handle in api.gpu.enumerate_adapters_sync():
        info = handle.info
        backend = str(info["backend_type"])
        if backend in ("OpenGL", "OpenGLES", "Null"):
            continue
        names = FEATURES[implementation].items()
        found.append(
            Adapter(
                implementation=implementation,
                name=str(info["device"]).strip() or "unnamed adapter",
                kind=str(info["adapter_type"]) if info["adapter_type"] in RANK else "Unknown",
                backend=backend,
                driver=str(info.get("description", "")),
                features=frozenset(ours for ours, theirs in names if theirs in handle.features),
                limits={name: int(handle.limits[name]) for name in LIMITS},
                handle=handle,
            )
        )
    return sorted(found, key=lambda adapter: RANK[adapter.kind])


def choose(choice: str) -> Adapter:
    """The adapter that `auto`, `gpu`, `gpu:N` or a part of a name stands for: the first candidate.

    Raises DeviceError if there is none.
    """
    return candidates(choice)[0]


def candidates(choice: str) -> list[Adapter]:
    """That adapter, then the same kind as the other implementation has it.

    `auto` takes hardware only; `gpu` the best there is. Raises DeviceError if there is none.
    """
    seen = {name: adapters(name) for name in implementations()}
    if choice.startswith("gpu:"):  # a number of the list that `oscine doctor` shows first
        first = next((listed for listed in seen.values() if listed), [])
        seen = {"": first}
    found = [a for listed in seen.values() for a in matching(choice, listed)]
    found.sort(key=lambda adapter: RANK[adapter.kind])  # stable: Dawn stays before wgpu
    if found:
        return [adapter for adapter in found if adapter.kind == found[0].kind]
    everything = [adapter for listed in seen.values() for adapter in listed]
    if not everything:
        remedy = "install your GPU's Vulkan driver (libvulkan and an ICD), or use --device cpu"
        raise DeviceError(f"no WebGPU adapter; {remedy}")
    names = "; ".join(dict.fromkeys(f"{a.name} [{a.kind}]" for a in everything))
    if choice == "auto":
        raise DeviceError(f"no hardware GPU; there is: {names}, which --device gpu takes")
    raise DeviceError(f"--device {choice}: no such adapter; there is: {names}")


def matching(choice: str, listed: list[Adapter]) -> list[Adapter]:
    """Those of one implementation's adapters that a choice may mean."""
    if choice == "auto":
        return [adapter for adapter in listed if not adapter.software]
    if choice == "gpu":
        return listed
    if choice.startswith("gpu:"):
        number = choice[4:]
        if not (number.isascii() and number.isdigit()):
            raise DeviceError(f"--device {choice}: write gpu:0, gpu:1, …")
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
        device = handle.request_device_sync(
            required_features=[names[feature] for feature in sorted(features)],
            required_limits={**adapter.limits},
        )
    except (RuntimeError, StopIteration) as problem:
        raise DeviceError(f"{adapter.name} cannot be opened: {one_line(problem)}") from problem
    return Device(replace(adapter, features=features), api, device)
