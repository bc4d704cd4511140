"""Which of an adapter's subgroup matrices are used, and that Tint takes the kernels for them."""

from __future__ import annotations

import importlib
import re
from types import SimpleNamespace
from typing import Any

import pytest

from oscine.errors import DeviceError
from oscine.gpu import device as devices
from oscine.gpu.device import load_webgpu
from oscine.gpu.kernels import adapt_to_compiler, load, request_lanes
from oscine.gpu.matrix_units import LANES, MatrixUnits, choose_matrix_units
from oscine.ops.webgpu import LARGE_TILE_STORAGE, MATRIX_STORAGE, Gpu
from oscine.ops.webgpu.attention import SMALL_BAND_PITCH


def config(*sizes: int, sums: str = "f32", factors: str = "f16", lanes: Any = (32, 32)) -> Any:
    """A configuration as Dawn lists it."""
    types = {"component_type": factors, "result_component_type": sums}
    subgroups = dict(zip(("min_subgroup_size", "max_subgroup_size"), lanes, strict=True))
    return types | dict(zip("mnk", sizes, strict=True)) | subgroups


NVIDIA = (config(16, 8, 16), config(16, 16, 16, sums="f16"), config(16, 16, 16), config(16, 8, 8))
INTEL = (config(8, 16, 16, sums="f16", lanes=(16, 32)), config(8, 16, 16, lanes=(16, 32)))
APPLE = (config(8, 8, 8, factors="f32", lanes=(4, 64)), config(8, 8, 8, lanes=(4, 64)))


@pytest.mark.parametrize(
    ("configs", "backend", "features", "expected"),
    [
        (NVIDIA, "Vulkan", set(), MatrixUnits(16, 16, 16)),
        (NVIDIA[:2], "Vulkan", set(), MatrixUnits(16, 8, 16)),
        (INTEL, "Vulkan", {"subgroup_size"}, MatrixUnits(8, 16, 16, request_lanes=True)),
        (INTEL, "Vulkan", set(), None),  # their size of subgroups would be the driver's choice
        (APPLE, "Metal", set(), MatrixUnits(8, 8, 8)),
        (APPLE[:1], "Metal", set(), None),  # float32 factors
        ((config(8, 8, 8, sums="f16"),), "Metal", set(), None),
        ((config(8, 16, 16, lanes=(16, 16)),), "Vulkan", {"subgroup_size"}, None),
        ((config(16, 16, 16, lanes=(64, 64)),), "Vulkan", {"subgroup_size"}, None),
        ((config(32, 8, 16), config(16, 16, 4)), "Vulkan", set(), None),  # no part of a block
        ((), "Vulkan", set(), None),
    ],
)
def test_the_matrices_with_the_most_products_of_those_that_kernels_can_use(
    configs: Any, backend: str, features: set[str], expected: MatrixUnits | None
) -> None:
    properties = {"subgroup_matrix_configs": list(configs)}
    assert choose_matrix_units(properties, features, backend) == expected


def test_an_adapter_has_the_features_that_its_matrix_units_need(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handles = [
        SimpleNamespace(
            info={"device": name, "adapter_type": "DiscreteGPU", "backend_type": "Vulkan"},
            features=set(devices.FEATURES["dawn"].values()),
            limits=dict.fromkeys(devices.LIMITS, 1 << 20),
        )
        for name in ("NVIDIA", "Intel", "other")
    ]
    configs = {"NVIDIA": NVIDIA, "Intel": INTEL, "other": ()}
    module = SimpleNamespace(gpu=SimpleNamespace(enumerate_adapters_sync=lambda: handles))
    monkeypatch.setattr(devices, "load_webgpu", lambda name: module)
    monkeypatch.setattr(
        devices, "dawn_adapter_properties",
        lambda handle: {"subgroup_matrix_configs": configs[handle.info["device"]]},
    )  # fmt: skip
    monkeypatch.setattr(devices, "adapter_id", lambda implementation, handle: "")
    found = {adapter.name: adapter for adapter in devices.adapters("dawn")}
    matrix = {"matrix", "subgroup_size"}
    assert {name: matrix & adapter.features for name, adapter in found.items()} == {
        "NVIDIA": {"matrix"}, "Intel": matrix, "other": set(),
    }  # fmt: skip
    assert [str(adapter.matrix_units) for adapter in found.values()] == [
        "16x16x16", "8x16x16", "None",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("units", "lanes", "storage", "used"),
    [
        (MatrixUnits(), 32, LARGE_TILE_STORAGE, True),
        (MatrixUnits(8, 8, 8), 32, MATRIX_STORAGE, True),
        (MatrixUnits(), 64, LARGE_TILE_STORAGE, False),
        (MatrixUnits(8, 16, 16, request_lanes=True), 16, MATRIX_STORAGE, True),
        (MatrixUnits(), 32, MATRIX_STORAGE - 1, False),
        (None, 32, LARGE_TILE_STORAGE, False),
    ],
)
def test_matrix_units_are_used_where_their_kernels_fit(
    units: MatrixUnits | None, lanes: int, storage: int, used: bool
) -> None:
    limits = {
        "max-compute-workgroup-storage-size": storage,
        "max-compute-invocations-per-workgroup": 256,
    }
    adapter = SimpleNamespace(matrix_units=units, limits=limits)
    gpu: Any = SimpleNamespace(
        device=SimpleNamespace(adapter=adapter, features={"matrix"}), lanes=lanes
    )
    assert Gpu.usable_matrix_units(gpu) == (units if used else None)
    gpu.device.features = set()
    assert Gpu.usable_matrix_units(gpu) is None


# -- Tint -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tint() -> Any:
    """A device of Dawn's that computes nothing, and whose compiler knows matrix units."""
    try:
        api = load_webgpu("dawn")
        listed = api.gpu._enumerate_all_adapters()
    except (DeviceError, AttributeError) as problem:
        pytest.skip(f"no wgpudawn with a list of all adapters: {problem}")
    null = [adapter for adapter in listed if adapter.info["backend_type"] == "Null"]
    names = [devices.FEATURES["dawn"][name] for name in ("matrix", "f16", "subgroups")]
    names.append(devices.FEATURES["dawn"]["subgroup_size"])
    if not null or not set(names) <= set(null[0].features):
        pytest.skip("a wgpudawn without the Null backend")
    return null[0].request_device_sync(required_features=names)


SMALL = {
    "gemm_matrix": {"SUBGROUPS": 2},
    "attention_matrix": {"SUBGROUPS": 4},
    "rel_pos_attention_matrix": {"SUBGROUPS": 2, "BAND_PITCH": SMALL_BAND_PITCH},
}


@pytest.mark.parametrize("sizes", [(16, 16, 16), (16, 8, 16), (8, 16, 16), (8, 8, 8)])
@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("large", [True, False])
def test_tint_takes_kernels_for_matrix_units(
    tint: Any, name: str, sizes: tuple[int, int, int], large: bool
) -> None:
    """All but their need of shared memory, of which this device has 16 KiB: it states it."""
    parameters: dict[str, Any] = MatrixUnits(*sizes).parameters()
    source = load(name, **parameters, **({} if large else SMALL[name]))
    for text in (source, request_lanes(source, LANES)):
        module = tint.create_shader_module(code=adapt_to_compiler(text, "dawn"))
        errors = importlib.import_module("wgpudawn").GPUError
        with pytest.raises(errors, match="total use of workgroup storage") as raised:
            tint.create_compute_pipeline(
                layout="auto", compute={"module": module, "entry_point": "main"}
            )
        needed = int(re.findall(r"\((\d+) bytes\) is larger", str(raised.value))[0])
        assert needed <= (LARGE_TILE_STORAGE if large else MATRIX_STORAGE)


def test_tint_refuses_what_is_wrong_with_them(tint: Any) -> None:
    """So that the tests above can fail."""
    source = adapt_to_compiler(load("gemm_matrix", MATRIX="smaller", M=8), "dawn")
    wrong = source.replace("subgroup_matrix_left<f16, K, M>", "subgroup_matrix_left<f16, M, 16>")
    with pytest.raises(importlib.import_module("wgpudawn").GPUError, match="no matching call"):
        tint.create_shader_module(code=wrong)
