"""Which adapter a choice stands for, and what is said where there is none."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oscine.backends import parse_device
from oscine.errors import DeviceError, UsageError
from oscine.gpu import device as devices
from oscine.gpu.device import (
    Adapter,
    candidates,
    implementations,
    load_webgpu,
    open_device,
    select_adapter,
)

Machine = Callable[..., None]


def adapter(name: str, kind: str = "DiscreteGPU", implementation: str = "wgpu") -> Adapter:
    return Adapter(
        implementation=implementation,
        name=name,
        adapter_type=kind,
        backend_type="Vulkan",
        driver="",
        features=frozenset(),
        limits={},
        handle=None,
    )


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """machine(wgpu=[...], dawn=[...]): what each implementation lists, best first."""
    monkeypatch.delenv("OSCINE_WEBGPU", raising=False)
    monkeypatch.delenv("OSCINE_DEVICE", raising=False)

    def build(**listed: list[Adapter]) -> None:
        monkeypatch.setattr(devices, "adapters", lambda name: listed.get(name, []))
        monkeypatch.setattr(devices, "installed", lambda name: True)

    return build


FAST = adapter("GeForce RTX 4090")
SLOW = adapter("Intel Graphics", "IntegratedGPU")
SOFTWARE = adapter("llvmpipe", "CPU")


def test_auto_never_takes_software(machine: Machine) -> None:
    machine(wgpu=[SOFTWARE])
    with pytest.raises(
        DeviceError, match=r'no hardware GPU was found; device="gpu" selects llvmpipe \[CPU\]'
    ):
        select_adapter("auto")
    machine(wgpu=[SLOW, SOFTWARE])
    assert select_adapter("auto") is SLOW


def test_gpu_takes_software_where_there_is_nothing_else(machine: Machine) -> None:
    machine(wgpu=[SOFTWARE])
    assert select_adapter("gpu") is SOFTWARE
    machine(wgpu=[FAST, SOFTWARE])
    assert select_adapter("gpu") is FAST


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("gpu:0", FAST), ("gpu:1", SLOW), ("gpu:2", SOFTWARE),
        ("intel", SLOW), ("RTX", FAST), ("4090", FAST), ("pipe", SOFTWARE),
    ],
)  # fmt: skip
def test_by_number_or_part_of_a_name(machine: Machine, choice: str, expected: Adapter) -> None:
    machine(wgpu=[FAST, SLOW, SOFTWARE])
    assert select_adapter(choice) is expected


@pytest.mark.parametrize("choice", ["gpu:7", "radeon"])
def test_an_error_names_what_there_is_once(machine: Machine, choice: str) -> None:
    machine(wgpu=[SOFTWARE], dawn=[adapter("llvmpipe", "CPU", "dawn")])
    with pytest.raises(DeviceError) as raised:
        select_adapter(choice)
    told = str(raised.value)
    assert told == f'device="{choice}": no such adapter; the adapters are: llvmpipe [CPU]'


@pytest.mark.parametrize("choice", ["gpu:", "gpu:one", "gpu:-1", "gpu: 1", "gpu:²", "gpu:٣"])
def test_a_number_that_is_none_is_misuse(machine: Machine, choice: str) -> None:
    machine(wgpu=[FAST])
    for ask in (select_adapter, parse_device):
        with pytest.raises(UsageError, match=rf'^device="{choice}": write gpu:0, gpu:1, …$'):
            ask(choice)


@pytest.mark.parametrize("choice", ["auto", "gpu", "gpu:0", "nvidia"])
def test_no_adapter_at_all(machine: Machine, choice: str) -> None:
    machine()
    with pytest.raises(DeviceError, match=r'no WebGPU adapter; install .* or use device="cpu"'):
        select_adapter(choice)


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ("", 'the package wgpu is not installed; pip install wgpu, or use device="cpu"'),
        (
            "dawn",
            "the package wgpudawn cannot be loaded (No module named 'wgpudawn'); "
            'pip install wgpudawn, or use device="cpu"; OSCINE_WEBGPU=dawn lets no other be used',
        ),
    ],
)
def test_the_package_that_is_missing_is_the_one_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, wanted: str, told: str
) -> None:
    for name in ("wgpu", "wgpudawn"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setenv("OSCINE_WEBGPU", wanted)
    with pytest.raises(DeviceError) as raised:
        select_adapter("gpu")
    assert str(raised.value) == told


def test_dawn_comes_before_wgpu_and_need_not_be_there(machine: Machine) -> None:
    faster = adapter("GeForce RTX 4090", implementation="dawn")
    machine(dawn=[faster], wgpu=[FAST])
    assert select_adapter("auto") is faster
    machine(wgpu=[FAST])  # Dawn lists none
    assert select_adapter("auto") is FAST
    machine(dawn=[adapter("llvmpipe", "CPU", "dawn")], wgpu=[FAST])  # or sees no hardware
    assert select_adapter("auto") is FAST
    assert told("auto") == ["dawn lists llvmpipe [CPU]", FAST.full_name]


def told(choice: str) -> list[str]:
    """What is tried in order, and why an implementation has nothing to try."""
    return [str(step.problem) if step.problem else step.name for step in candidates(choice)]


def test_one_that_is_not_installed_is_none_to_try(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some systems have no wheel of Dawn: there, wgpu is all there is, and no step is taken."""
    machine(wgpu=[FAST])
    monkeypatch.setattr(devices, "installed", lambda name: name == "wgpu")
    assert implementations() == ["wgpu"]
    assert told("auto") == [FAST.full_name]


def test_what_does_not_load_or_list_is_a_step_with_its_reason(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine()

    def adapters(name: str) -> list[Adapter]:
        if name == "dawn":
            raise DeviceError("the package wgpudawn cannot be loaded (bad library)")
        return [FAST]

    monkeypatch.setattr(devices, "adapters", adapters)
    expected = ["the package wgpudawn cannot be loaded (bad library)", FAST.full_name]
    assert told("auto") == told("gpu:0") == told("rtx") == expected
    monkeypatch.setattr(devices, "adapters", lambda name: adapters(name)[:0])
    with pytest.raises(DeviceError, match=r"no WebGPU adapter; .*\(bad library\); install your"):
        select_adapter("auto")


def twins(name: str, implementation: str, *identities: str) -> list[Adapter]:
    one = adapter(name, implementation=implementation)
    return [replace(one, identity=id_, duplicate_index=n) for n, id_ in enumerate(identities)]


def test_each_card_is_tried_under_both_before_the_next(machine: Machine) -> None:
    dawn, wgpu = twins("H200", "dawn", "a", "b"), twins("H200", "wgpu", "", "")
    machine(dawn=dawn, wgpu=[SLOW, *wgpu])
    first = ["H200 (Vulkan, dawn)", "H200 (Vulkan, wgpu)"]
    second = ["H200 #2 (Vulkan, dawn)", "H200 #2 (Vulkan, wgpu)"]
    assert told("gpu") == told("auto") == told("h200") == first + second
    assert told("gpu:0") == first
    assert told("gpu:1") == told("h200 #2") == second
    machine(dawn=dawn[:1], wgpu=wgpu)  # as where Dawn lists one of them
    assert told("gpu") == [*first, second[1]]
    machine(dawn=dawn, wgpu=wgpu[:1])
    assert told("gpu:1") == [second[0], "wgpu lists H200 [DiscreteGPU]"]
    with pytest.raises(
        DeviceError, match=r"the adapters are: H200 \[DiscreteGPU\]; H200 #2 \[Disc"
    ):
        select_adapter("gpu:2")


def test_oscine_webgpu_names_the_only_implementation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OSCINE_WEBGPU", "wgpu")
    assert implementations() == ["wgpu"]
    monkeypatch.setenv("OSCINE_WEBGPU", "dawn")
    assert implementations() == ["dawn"]
    monkeypatch.setenv("OSCINE_WEBGPU", "")
    assert implementations() == ["dawn", "wgpu"]
    monkeypatch.setenv("OSCINE_WEBGPU", " Dawn ")
    assert implementations() == ["dawn"]
    monkeypatch.setenv("OSCINE_WEBGPU", "metal")
    for ask in (select_adapter, parse_device):
        with pytest.raises(UsageError, match="OSCINE_WEBGPU=metal: not one of dawn, wgpu"):
            ask("gpu")


@pytest.mark.parametrize("problem", [ImportError, OSError, RuntimeError, AttributeError])
def test_an_implementation_that_does_not_load_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, problem: type[Exception]
) -> None:
    (tmp_path / "broken_package.py").write_text(f"raise {problem.__name__}('no library')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(devices.PACKAGES, "dawn", "broken_package")
    assert devices.installed("dawn")
    for ask in (load_webgpu, devices.adapters):
        with pytest.raises(DeviceError, match=r"^the package broken_package .*\(no library\)$"):
            ask("dawn")


class Handle:
    """An adapter as the WebGPU module gives it."""

    def __init__(self, name: str, kind: str, backend: str = "Vulkan") -> None:
        self.info = {"device": name, "adapter_type": kind, "backend_type": backend}
        self.features = {"subgroup", "shader-f16", "texture-something"}
        self.limits = dict.fromkeys(devices.LIMITS, 1 << 20)


def module_of(public: list[Handle], **private: Any) -> Any:
    """A WebGPU module that lists these."""
    calls = {name: lambda handles=handles: handles for name, handles in private.items()}
    return SimpleNamespace(gpu=SimpleNamespace(enumerate_adapters_sync=lambda: public, **calls))


def test_dawn_lists_each_of_several_equal_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its public call keeps one of them; a card listed through two drivers has one UUID."""
    everything = [Handle("H200", "DiscreteGPU") for _ in range(3)]
    other = Handle("H200", "DiscreteGPU", "D3D12")
    bytes_of = [b"\1" * 16, b"\2" * 16, b"\1" * 16]
    known: dict[Any, Any] = {
        handle: {"vulkan_uuids": {"device_uuid": each}}
        for handle, each in zip(everything, bytes_of, strict=True)
    }
    known[other] = {"d3d": {"luid": 255}}
    module = module_of(everything[:1], _enumerate_all_adapters=[other, *everything])
    monkeypatch.setattr(devices, "load_webgpu", lambda name: module)
    monkeypatch.setattr(devices, "dawn_adapter_properties", known.__getitem__)
    found = devices.adapters("dawn")
    assert [a.handle for a in found] == [everything[0], everything[1], other]
    assert [a.full_name for a in found] == [
        "H200 (Vulkan, dawn)", "H200 #2 (Vulkan, dawn)", "H200 (D3D12, dawn)",
    ]  # fmt: skip
    assert found[1].identity == "Vulkan 02020202-0202-0202-0202-020202020202"
    monkeypatch.setattr(devices, "load_webgpu", lambda name: module_of([everything[0]]))
    assert len(devices.adapters("dawn")) == 1  # a version without the private call
    monkeypatch.setattr(devices, "load_webgpu", lambda name: module_of(everything))
    assert [a.duplicate_index for a in devices.adapters("wgpu")] == [0, 1, 2]  # which tells no UUID


def test_dawn_opens_the_card_that_was_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = twins("H200", "dawn", "a", "b")[1]
    listed = [replace(a, handle=a.identity) for a in twins("H200", "dawn", "a", "b")]
    monkeypatch.setattr(devices, "adapters", lambda name: listed)
    assert devices.reopen_handle(chosen) == "b"
    del listed[0]
    with pytest.raises(DeviceError, match=r"^H200 #2 \(Vulkan, dawn\) is no longer there$"):
        devices.reopen_handle(replace(chosen, identity="c"))


def test_adapters_that_cannot_be_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "load_webgpu", lambda name: SimpleNamespace(gpu=None))
    with pytest.raises(DeviceError, match=r"^wgpudawn cannot list adapters \('NoneType'"):
        devices.adapters("dawn")


def test_adapters_are_listed_once_and_the_best_first(monkeypatch: pytest.MonkeyPatch) -> None:
    handles = [
        Handle("llvmpipe", "CPU"),
        Handle("Arc", "IntegratedGPU"),
        Handle("Arc", "IntegratedGPU", "OpenGL"),  # the same through another API
        Handle(" ", "something new"),
        Handle("RTX", "DiscreteGPU"),
    ]

    monkeypatch.setattr(devices, "load_webgpu", lambda name: module_of(handles))
    found = devices.adapters("wgpu")
    assert [(a.name, a.adapter_type) for a in found] == [
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
    monkeypatch.setattr(devices, "load_webgpu", lambda name: None)
    with pytest.raises(
        DeviceError, match=r"^Broken \(Vulkan, wgpu\) cannot be opened: device is lost$"
    ):
        open_device(broken)


@pytest.mark.gpu
def test_a_device_is_opened_with_less_than_it_has(adapter: Adapter) -> None:
    device = open_device(adapter, without=frozenset({"subgroups"}))
    assert device.features == adapter.features - {"subgroups"}
    assert device.name.startswith(adapter.name)
    assert device.adapter.limits == adapter.limits


@pytest.mark.gpu
def test_a_tick_is_a_time(device: Any) -> None:
    assert 0 < device.timestamp_ns() < 1e5
