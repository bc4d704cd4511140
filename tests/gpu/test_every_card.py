"""`--device all` runs an engine on each card: two equal ones, each with its own driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oscine import backends
from oscine.backends import list_gpus
from oscine.errors import DeviceError
from oscine.gpu.device import Adapter

from .conftest import Drivers

GOLDEN = Path(__file__).resolve().parents[1] / "goldens" / "whisper_multi"
#: Encodes once on each card; the calls wait for each other, so that each takes the idle one.
PROGRAM = """
import json, sys
import numpy as np
import oscine

sound = np.sin(np.arange(16000) / 20).astype(np.float32)
alone = oscine.load(sys.argv[1], device="cpu", dtype="f32", offline=True).encode(sound)
model = oscine.load(sys.argv[1], device="all", dtype="f32", offline=True)
found = [model.encode(sound) for _ in range(2)]
print(json.dumps({
    "devices": [about.device for about in model._abouts],
    "served": [worker.served for worker in model.workers.living()],
    "differences": [float(np.abs(each - alone).max()) for each in found],
    "reopens": model._reopen.args[1],
}))
"""


@pytest.mark.gpu
def test_each_card_computes(drivers: Callable[[int], Drivers]) -> None:
    _, environment = drivers(2)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, GOLDEN],
        env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    first, second = found["devices"]
    implementation = os.environ["OSCINE_WEBGPU"]
    assert first.endswith(f"(Vulkan, {implementation})") and second == first.replace(
        " (Vulkan", " #2 (Vulkan"
    )
    assert found["served"] == [1, 1] and max(found["differences"]) < 1e-3
    assert found["reopens"] == "all"


def listed(*found: tuple[str, str, str, int]) -> Any:
    adapters = [
        Adapter("dawn", name, kind, api, "", frozenset(), {}, None, duplicate_index=duplicate_index)
        for name, kind, api, duplicate_index in found
    ]
    return {"dawn": adapters, "wgpu": adapters}, {}


def test_every_card_once_and_software_only_where_there_is_no_hardware(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    card, second = ("H200", "DiscreteGPU", "Vulkan", 0), ("H200", "DiscreteGPU", "Vulkan", 1)
    again, small = ("H200", "DiscreteGPU", "D3D12", 0), ("Iris", "IntegratedGPU", "Vulkan", 0)
    software = ("llvmpipe", "CPU", "Vulkan", 0)
    for adapters, names in (
        ((card, second, again, small, software), ["gpu:0", "gpu:1", "gpu:3"]),
        ((card,), ["gpu:0"]),
        ((software,), ["gpu:0"]),
    ):
        monkeypatch.setattr(backends, "list_adapters", lambda adapters=adapters: listed(*adapters))
        assert list_gpus() == names
    monkeypatch.setattr(backends, "list_adapters", lambda: listed())
    with pytest.raises(DeviceError, match=r"^no WebGPU adapter; install your GPU's"):
        list_gpus()
