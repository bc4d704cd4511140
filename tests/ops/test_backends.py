"""What both sides do with memory, besides ops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oscine.errors import DeviceError
from oscine.ops import gpu_recorder
from oscine.ops.gpu import Gpu
from oscine.ops.reference import Reference
from oscine.ops.shadow import Shadow


@pytest.fixture(
    params=["numpy", *(pytest.param(n, marks=pytest.mark.gpu) for n in ("gpu", "both"))]
)
def backend(request: pytest.FixtureRequest) -> Any:
    if request.param == "numpy":
        return Reference()
    gpu = request.getfixturevalue("gpu")
    return gpu if request.param == "gpu" else Shadow(gpu)


def test_a_view_is_the_start_of_the_same_memory(backend: Any) -> None:
    slot = backend.slot((4, 6))
    view = backend.view(slot, (2, 3, 2))
    backend.write(slot, np.arange(24, dtype=np.float32))
    assert np.array_equal(backend.read(view).reshape(-1), np.arange(12))
    backend.write(view, np.full((2, 3, 2), -1, np.float32))
    assert list(backend.read(slot).reshape(-1)) == [-1] * 12 + list(range(12, 24))
    with pytest.raises(ValueError):
        backend.view(slot, (5, 6))


@pytest.mark.parametrize("at_once", [8, 1 << 20])
def test_the_first_item_is_copied(
    backend: Any, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(gpu_recorder, "COPY_BYTES", at_once)  # by pieces, and whole
    monkeypatch.setattr(getattr(backend, "gpu", backend), "between", None, raising=False)
    slot = backend.slot((3, 5), np.uint32)
    backend.write(slot, np.arange(15, dtype=np.uint32).reshape(3, 5))
    backend.copy_first(slot, 2)
    assert backend.read(slot).tolist() == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [0, 1, 2, 3, 4]]


def test_release_takes_several(backend: Any) -> None:
    kept = backend.slot((2, 2))
    backend.release(backend.slot((2, 2)), backend.slot((5,), np.uint32))
    backend.write(kept, np.ones((2, 2), np.float32))
    assert backend.read(kept).sum() == 4


@pytest.mark.gpu
def test_released_memory_is_gone(gpu: Gpu) -> None:
    slot = gpu.slot((2, 2))
    gpu.release(slot)
    with pytest.raises(DeviceError, match="released"):
        gpu.read(slot)


@pytest.mark.gpu
def test_lines_are_padded_to_powers_of_two(gpu: Gpu) -> None:
    assert [gpu.padded_lines(n) for n in (1, 2, 3, 5, 8, 9)] == [1, 2, 4, 8, 8, 16]
    assert Reference().padded_lines(7) == 7 == Shadow(gpu).padded_lines(7)
