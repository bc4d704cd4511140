"""What both sides do with memory, besides ops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oscine.errors import DeviceError
from oscine.gpu import memory
from oscine.ops import TEXT_DECODER_STATE
from oscine.ops.reference import Reference
from oscine.ops.shadow import Shadow
from oscine.ops.webgpu import Gpu


@pytest.fixture(
    params=["numpy", *(pytest.param(n, marks=pytest.mark.gpu) for n in ("gpu", "both"))]
)
def backend(request: pytest.FixtureRequest) -> Any:
    if request.param == "numpy":
        return Reference()
    gpu = request.getfixturevalue("gpu")
    return gpu if request.param == "gpu" else Shadow(gpu)


def test_a_view_is_the_start_of_the_same_memory(backend: Any) -> None:
    slot = backend.zeros((4, 6))
    view = backend.view(slot, (2, 3, 2))
    backend.write(slot, np.arange(24, dtype=np.float32))
    assert np.array_equal(backend.read(view).reshape(-1), np.arange(12))
    backend.write(view, np.full((2, 3, 2), -1, np.float32))
    assert list(backend.read(slot).reshape(-1)) == [-1] * 12 + list(range(12, 24))
    with pytest.raises(ValueError):
        backend.view(slot, (5, 6))


@pytest.mark.parametrize("at_once", [8, 1 << 20])
def test_items_are_copied_one_after_another(
    backend: Any, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(memory, "COPY_BUFFER_BYTES", at_once)  # by pieces, and whole
    if not isinstance(backend, Reference):
        monkeypatch.setattr(getattr(backend, "gpu", backend).memory, "scratch", None)
    slot, other = backend.zeros((4, 5), np.uint32), backend.zeros((2, 5), np.uint32)
    backend.write(slot, np.arange(20, dtype=np.uint32).reshape(4, 5))
    backend.copy(slot, slot, ((1, 0), (3, 1)))
    assert backend.read(slot)[:, 0].tolist() == [5, 15, 10, 15]
    backend.copy(slot, slot, ((0, 2), (2, 3)))  # one after another
    assert backend.read(slot).tolist() == [list(range(n, n + 5)) for n in (5, 15, 5, 5)]
    backend.copy(slot, other, ((1, 0), (2, 1)))
    assert backend.read(other).tolist() == [list(range(n, n + 5)) for n in (15, 5)]
    backend.copy(other, slot, ())
    assert backend.read(slot)[:, 0].tolist() == [5, 15, 5, 5]
    with pytest.raises(IndexError):
        backend.copy(slot, other, ((0, 2),))


def test_some_items_are_written_and_the_others_stay(backend: Any) -> None:
    slot = backend.zeros((4, 2, 3), np.float16)
    backend.write(slot, np.arange(24, dtype=np.float16))
    backend.write(slot, np.full((2, 2, 3), -1, np.float16), at=1)
    assert backend.read(slot).reshape(-1).tolist() == [*range(6), *[-1] * 12, *range(18, 24)]
    rows = backend.zeros((3,), TEXT_DECODER_STATE)
    row = np.zeros(1, TEXT_DECODER_STATE)
    row["slot"] = 7
    backend.write(rows, row, at=2)
    assert backend.read(rows)["slot"].tolist() == [0, 0, 7]


@pytest.mark.gpu
def test_what_cannot_be_written_or_copied_alone_is_refused(gpu: Gpu) -> None:
    odd, whole = gpu.zeros((3, 3), np.float16), gpu.zeros((3, 3))
    gpu.write(odd, np.zeros((1, 3), np.float16), at=2)
    with pytest.raises(ValueError, match="cannot be written alone"):
        gpu.write(odd, np.zeros((1, 3), np.float16), at=1)
    for source, target in ((odd, odd), (odd, whole)):
        with pytest.raises(ValueError, match="cannot be copied"):
            gpu.copy(source, target, ((0, 1),))


def test_release_takes_several(backend: Any) -> None:
    kept = backend.zeros((2, 2))
    backend.release(backend.zeros((2, 2)), backend.zeros((5,), np.uint32))
    backend.write(kept, np.ones((2, 2), np.float32))
    assert backend.read(kept).sum() == 4


@pytest.mark.gpu
def test_released_memory_is_gone(gpu: Gpu) -> None:
    slot = gpu.zeros((2, 2))
    gpu.release(slot)
    with pytest.raises(DeviceError, match="released"):
        gpu.read(slot)


@pytest.mark.gpu
def test_lines_are_padded_to_powers_of_two(gpu: Gpu) -> None:
    assert [gpu.bucket_rows(n) for n in (1, 2, 3, 5, 8, 9)] == [1, 2, 4, 8, 8, 16]
    assert Reference().bucket_rows(7) == 7 == Shadow(gpu).bucket_rows(7)
