"""Which adapter a choice stands for, and what is said where there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from oscine.errors import DeviceError
from oscine.gpu import device as devices
from oscine.gpu.device import Adapter, choose, implementations, load_api, open_device

Machine = Callable[..., None]


def adapter(name: str, kind: str = "DiscreteGPU", implementation: str = "wgpu") -> Adapter:
    return Adapter(
        implementation=implementation,
        name=name,
        kind=kind,
        backend="Vulkan",
        driver="",
        features=frozenset(),
        limits={},
        handle=None,
    )


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """machine(wgpu=[...], dawn=[...]): what each implementation lists, best first."""
    monkeypatch.delenv("OSCINE_WEBGPU", raising=False)

    def build(**listed: list[Adapter]) -> None:
        monkeypatch.setattr(devices, "adapters", lambda name: listed.get(name, []))

    return build


FAST = adapter("GeForce RTX 4090")
SLOW = adapter("Intel Graphics", "IntegratedGPU")
SOFTWARE = adapter("llvmpipe", "CPU")


def test_auto_never_takes_software(machine: Machine) -> None:
    machine(wgpu=[SOFTWARE])
    with pytest.raises(DeviceError, match=r"no hardware GPU; there is: llvmpipe \[CPU\], which"):
        choose("auto")
    machine(wgpu=[SLOW, SOFTWARE])
    assert choose("auto") is SLOW


def test_gpu_takes_software_where_there_is_nothing_else(machine: Machine) -> None:
    machine(wgpu=[SOFTWARE])
    assert choose("gpu") is SOFTWARE
    machine(wgpu=[FAST, SOFTWARE])
    assert choose("gpu") is FAST


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("gpu:0", FAST), ("gpu:1", SLOW), ("gpu:2", SOFTWARE),
        ("intel", SLOW), ("RTX", FAST), ("4090", FAST), ("pipe", SOFTWARE),
    ],
)  # fmt: skip
def test_by_number_or_part_of_a_name(machine: Machine, choice: str, expected: Adapter) -> None:
    machine(wgpu=[FAST, SLOW, SOFTWARE])
    assert choose(choice) is expected


@pytest.mark.parametrize("choice", ["gpu:7", "radeon"])
def test_an_error_names_what_there_is_once(machine: Machine, choice: str) -> None:
    machine(wgpu=[SOFTWARE], dawn=[adapter("llvmpipe", "CPU", "dawn")])
    with pytest.raises(DeviceError) as raised:
        choose(choice)
    told = str(raised.value)
    assert told == f"--device {choice}: no such adapter; there is: llvmpipe [CPU]"


@pytest.mark.parametrize("choice", ["gpu:", "gpu:one", "gpu:-1", "gpu: 1", "gpu:²", "gpu:٣"])
def test_a_number_that_is_none(machine: Machine, choice: str) -> None:
    machine(wgpu=[FAST])
    with pytest.raises(DeviceError, match=r"write gpu:0, gpu:1"):
        choose(choice)


@pytest.mark.parametrize("choice", ["auto", "gpu", "gpu:0", "nvidia"])
def test_no_adapter_at_all(machine: Machine, choice: str) -> None:
    machine()
    with pytest.raises(DeviceError, match=r"no WebGPU adapter; install .* or use --device cpu"):
        choose(choice)


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ("", "the package wgpu cannot be loaded; pip install wgpu, or --device cpu"),
        (
            "dawn",
            "the package wgpudawn cannot be loaded; pip install wgpudawn, or --device cpu; "
            "OSCINE_WEBGPU=dawn lets no other be used",
        ),
    ],
)
def test_the_package_that_is_missing_is_the_one_that_is_asked_for(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, wanted: str, told: str
) -> None:
    machine()
    monkeypatch.setattr("oscine.gpu.device.load_api", lambda name: None)
    monkeypatch.setenv("OSCINE_WEBGPU", wanted)
    with pytest.raises(DeviceError) as raised:
        choose("gpu")
    assert str(raised.value) == told


def test_dawn_comes_before_wgpu_and_need_not_be_there(machine: Machine) -> None:
    faster = adapter("GeForce RTX 4090", implementation="dawn")
    machine(dawn=[faster], wgpu=[FAST])
    assert choose("auto") is faster
    machine(wgpu=[FAST])  # Dawn is not installed
    assert choose("auto") is FAST
    machine(dawn=[adapter("llvmpipe", "CPU", "dawn")], wgpu=[FAST])  # or sees no hardware
    assert choose("auto") is FAST


def test_oscine_webgpu_names_the_only_implementation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OSCINE_WEBGPU", "wgpu")
    assert implementations() == ["wgpu"]
    monkeypatch.setenv("OSCINE_WEBGPU", "dawn")
    assert implementations() == ["dawn"]
    monkeypatch.setenv("OSCINE_WEBGPU", "")
    assert implementations() == ["dawn", "wgpu"]
    monkeypatch.setenv("OSCINE_WEBGPU", "metal")
    with pytest.raises(DeviceError, match="OSCINE_WEBGPU=metal: not one of wgpu, dawn"):
        choose("gpu")


def test_an_implementation_that_is_not_installed_lists_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(devices.MODULES, "dawn", "a_module_that_is_not_there")
    assert load_api("dawn") is None
    assert devices.adapters("dawn") == []


class Handle:
    """An adapter as the WebGPU module gives it."""

    def __init__(self, name: str, kind: str, backend: str = "Vulkan") -> None:
        self.info = {"device": name, "adapter_type": kind, "backend_type": backend}
        self.features = {"subgroup", "shader-f16", "texture-something"}
        self.limits = dict.fromkeys(devices.LIMITS, 1 << 20)


def test_adapters_are_listed_once_and_the_best_first(monkeypatch: pytest.MonkeyPatch) -> None:
    handles = [
        Handle("llvmpipe", "CPU"),
        Handle("Arc", "IntegratedGPU"),
        Handle("Arc", "IntegratedGPU", "OpenGL"),  # the same through another API
        Handle(" ", "something new"),
        Handle("RTX", "DiscreteGPU"),
    ]

    class Module:
        class gpu:  # noqa: N801
            @staticmethod
            def enumerate_adapters_sync() -> list[Handle]:
                return handles

    monkeypatch.setattr(devices, "load_api", lambda name: Module)
    found = devices.adapters("wgpu")
    assert [(a.name, a.kind) for a in found] == [
        ("RTX", "DiscreteGPU"),
        ("Arc", "IntegratedGPU"),
        ("unnamed adapter", "Unknown"),
        ("llvmpipe", "CPU"),
    ]
    assert found[0].features == {"subgroups", "f16"}
    assert [a.software for a in found] == [False, False, False, True]


def test_a_device_that_cannot_be_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing:
        def request_device_sync(self, **options: Any) -> Any:
            raise RuntimeError("device is\n  lost")

    broken = adapter("Broken")
    object.__setattr__(broken, "handle", Refusing())
    monkeypatch.setattr(devices, "load_api", lambda name: None)
    with pytest.raises(DeviceError, match=r"^Broken cannot be opened: device is lost$"):
        open_device(broken)


@pytest.mark.gpu
def test_a_device_is_opened_with_less_than_it_has(adapter: Adapter) -> None:
    device = open_device(adapter, without=frozenset({"subgroups"}))
    assert device.features == adapter.features - {"subgroups"}
    assert device.name.startswith(adapter.name)
    assert device.adapter.limits == adapter.limits


@pytest.mark.gpu
def test_a_tick_is_a_time(device: Any) -> None:
    assert 0 < device.tick() < 1e5
