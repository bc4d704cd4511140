"""Conversions to float16 move into the store of the kernel before them, if nothing else reads."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from oscine import ops
from oscine.gpu.kernels import choices_of, kernel_files
from oscine.gpu.plan import Dispatch, ProbePoint
from oscine.gpu.tensor import Tensor
from oscine.ops.webgpu import Gpu
from oscine.ops.webgpu.fuse import fuse_f16_stores

HALF, SINGLE = np.dtype(np.float16), np.dtype(np.float32)


def dispatch(kernel: str, *tensors: Tensor, **parameters: str) -> Dispatch:
    return Dispatch(kernel, tensors, (1, 1, 1), parameters=dict(parameters))


def chain(buffer: object = None) -> tuple[list[Dispatch], Tensor, Tensor]:
    """A product whose result is converted and then read by a second one."""
    w, x, y, z = (Tensor((8, 8), kind) for kind in (HALF, HALF, SINGLE, HALF))
    z.buffer = buffer
    found = [
        dispatch("gemm_matrix", x, w, y, STORE="f32"),
        dispatch("to_f16", y, z),
        dispatch("gemm_matrix", z, w, Tensor((8, 8), SINGLE), STORE="f32"),
    ]
    return found, y, z


@pytest.mark.parametrize("buffer", [None, object()], ids=["intermediate", "slot"])
def test_the_kernel_before_stores_float16(buffer: object) -> None:
    found, _, z = chain(buffer)
    fuse_f16_stores(found, [])
    assert [d.kernel for d in found] == ["gemm_matrix", "gemm_matrix"]
    assert found[0].tensors[-1] is z and found[0].parameters == {"STORE": "f16"}
    assert found[1].tensors[0] is z and found[1].parameters == {"STORE": "f32"}


def kept(kind: str) -> list[Dispatch]:
    """Dispatches of which no conversion may be dropped, by the reason."""
    found, y, z = chain()
    other = Tensor((8, 8), SINGLE)
    if kind == "another reads the float32":
        found.append(dispatch("layer_norm", y, other, STORE="f32"))
    elif kind == "two kernels compute it":
        found.insert(1, dispatch("gemm_matrix", z, other, y, STORE="f32"))
    elif kind == "it outlives the plan":
        y.buffer = object()
    elif kind == "the kernel has no choice":
        found[0] = dispatch("gemm", *found[0].tensors)
    elif kind == "a choice of something else":
        found[0] = dispatch("rope_attention", *found[0].tensors, CACHE="f32")
    elif kind == "not its result":
        found[0] = dispatch("gemm_matrix", y, other, STORE="f32")
    elif kind == "a part of it is converted":
        y.shape = (16, 8)
    elif kind == "the slot is read in between":
        z.buffer = object()
        view = Tensor((64,), HALF, z.buffer)
        found.insert(1, dispatch("layer_norm", view, other, STORE="f32"))
    return found


@pytest.mark.parametrize(
    "kind",
    [
        "another reads the float32", "two kernels compute it", "it outlives the plan",
        "the kernel has no choice", "a choice of something else", "not its result",
        "a part of it is converted", "the slot is read in between",
    ],
)  # fmt: skip
def test_a_conversion_is_kept_where(kind: str) -> None:
    found = kept(kind)
    before = [(d.kernel, d.tensors, dict(d.parameters)) for d in found]
    fuse_f16_stores(found, [])
    assert [(d.kernel, d.tensors, d.parameters) for d in found] == before


def test_probes_show_the_float16_at_the_same_place() -> None:
    found, y, z = chain()
    last = found[-1].tensors[-1]
    points = [ProbePoint("y", y, (8, 8), 1), ProbePoint("z", z, (8, 8), 2),
              ProbePoint("last", last, (8, 8), 3)]  # fmt: skip
    fuse_f16_stores(found, points)
    assert [(p.name, p.tensor is (last if p.name == "last" else z), p.after) for p in points] == [
        ("y", True, 1), ("z", True, 1), ("last", True, 2)
    ]  # fmt: skip


def normalise(gpu: Gpu) -> Tensor:
    norm = ops.LayerNorm(gpu.upload(noise(64)), gpu.upload(noise(64)))
    return gpu.layer_norm(gpu.upload(noise(70, 64)), norm)


def convolve(gpu: Gpu) -> Tensor:
    conv = ops.Linear(gpu.upload(noise(9, 64)), gpu.upload(noise(64)))
    lengths = ops.SeqLengths(gpu.upload(np.array([20, 35], np.uint32)))
    return gpu.conformer_conv(gpu.upload(noise(70, 128)), conv, lengths)


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.gpu
@pytest.mark.parametrize("op", [normalise, convolve])
def test_the_store_rounds_as_the_conversion_does(gpu: Gpu, op: Callable[[Gpu], Tensor]) -> None:
    single, half = gpu.zeros((70, 64)), gpu.zeros((70, 64), np.float16)
    gpu.record(lambda: gpu.store(op(gpu), single)).run()
    plan = gpu.record(lambda: gpu.store(op(gpu), half))
    plan.run()
    assert [d.parameters["STORE"] for d in plan.dispatches] == ["f16"]
    np.testing.assert_array_equal(gpu.read(half), gpu.read(single).astype(np.float16))


@pytest.mark.gpu
def test_every_kernel_with_the_choice_compiles_with_it(gpu: Gpu) -> None:
    names = [name for name in kernel_files() if name[0] != "_" and "STORE" in choices_of(name)]
    plain = [name for name in names if "matrix" not in name]
    assert {"layer_norm", "conformer_conv", "conv_subsampling_first"} <= set(plain)
    for name in names if gpu.matrix else plain:
        gpu.pipelines.get(name, STORE="f16").wait()
