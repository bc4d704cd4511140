"""The base of the GPU's ops: buffers, plans and recorded dispatches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import ceil, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oscine.dtypes import dtype_name
from oscine.errors import DeviceError
from oscine.gpu.device import Device
from oscine.gpu.kernels import Parameter, PipelineCache
from oscine.gpu.memory import Memory
from oscine.gpu.plan import BufferPool, Dispatch, Plan, ProbePoint
from oscine.gpu.profile import profile_from_env
from oscine.gpu.tensor import Tensor
from oscine.ops.webgpu.fuse import fuse_f16_stores
from oscine.ops.webgpu.thresholds import DEFAULT_THRESHOLDS

MAX_WORKGROUPS = 65535  # workgroups along one axis
WORKGROUP = 128  # invocations, unless a kernel has reasons of its own
MIN_BUCKET, LONG_BUCKET = 16, 64  # encoder frames


class Recorder:
    """The buffers and plans of one device, and what ops record. See oscine.ops.Backend."""

    preferred_batch = 16
    encode_batch = 4  # the products of one window are too few tiles for a large GPU
    reads_blocks = True
    f16_cross_kv = True
    is_async = True
    batch_invariant = False
    thresholds = DEFAULT_THRESHOLDS

    def __init__(self, device: Device) -> None:
        self.device = device
        self.name = device.name
        self.pipelines = PipelineCache(device)
        self.memory = Memory(device)
        self.budget = self.memory.budget
        self.pool = BufferPool(self.memory)
        self.nothing = self.memory.zeros((4,), np.float32)  # bound for operands that are not given
        self.profile = profile_from_env(device)
        self.dispatches: list[Dispatch] = []
        self.probe_points: list[ProbePoint] = []
        self.until: Tensor | None = None  # state rows
        self.computes_features = device.adapter.adapter_type != "CPU"  # a software GPU is slower
        self.workgroup_reduce = "subgroup" if "subgroups" in device.features else "shared"

    # -- memory and time ----------------------------------------------------------------------

    def upload(self, array: NDArray[Any]) -> Tensor:
        return self.memory.upload(array)

    def zeros(self, shape: tuple[int, ...], dtype: Any = np.float32) -> Tensor:
        return self.memory.zeros(shape, dtype)

    def view(self, buffer: Tensor, shape: tuple[int, ...]) -> Tensor:
        if buffer.buffer is None or prod(shape) > prod(buffer.shape):
            raise ValueError(f"{shape} cannot be a view of a buffer {buffer.shape}")
        return Tensor(shape, buffer.dtype, buffer.buffer)

    def memory_limits(self) -> tuple[int, int | None]:
        # WebGPU does not tell how much memory is free: only a budget does.
        return self.memory.largest_binding, self.budget.free

    def release(self, *buffers: Tensor) -> None:
        self.memory.release(*buffers)

    def write(self, tensor: Tensor, array: NDArray[Any], at: int = 0) -> None:
        self.memory.write(tensor, array, at)

    def copy(self, source: Tensor, target: Tensor, pairs: Sequence[tuple[int, int]]) -> None:
        self.memory.copy(source, target, pairs)

    def read(self, buffer: Tensor) -> NDArray[Any]:
        return self.memory.snapshot(buffer)()[0]

    def wait(self) -> None:
        self.memory.snapshot(self.nothing)()

    def snapshot(self, *buffers: Tensor) -> Callable[[], tuple[NDArray[Any], ...]]:
        return self.memory.snapshot(*buffers)

    def bucket_length(self, length: int) -> int:
        """Powers of four: few plans, and a prompt is cheap beside its window."""
        size = 1
        while size < length:
            size *= 4
        return size

    def bucket_rows(self, count: int) -> int:
        """Powers of two: an unused row makes each step a little slower."""
        return 1 << (count - 1).bit_length()

    def bucket_frames(self, count: int) -> int:
        """Powers of two, later four lengths for each doubling: each needs kernels of its own."""
        if count <= LONG_BUCKET:
            return max(MIN_BUCKET, 1 << (count - 1).bit_length())
        step = 1 << (count - 1).bit_length() - 3
        return -(-count // step) * step

    def record(
        self,
        trace: Callable[[], None],
        until: Tensor | None = None,
        name: str = "",
    ) -> Plan:
        with self.recording(until) as dispatches:
            trace()
            probe_points = self.probe_points
        return Plan(self.device, self.pool, dispatches, name, self.profile, probe_points)

    def finish_compiling(self) -> None:
        self.pipelines.finish()

    @contextmanager
    def recording(self, until: Tensor | None) -> Iterator[list[Dispatch]]:
        """Collect the dispatches of ops called inside in the yielded list, whose kernels begin
        to compile at the end."""
        before = self.dispatches, self.probe_points, self.until
        self.dispatches, self.probe_points, self.until = [], [], until
        try:
            yield self.dispatches
            fuse_f16_stores(self.dispatches, self.probe_points)
            for dispatch in self.dispatches:
                dispatch.pipeline = self.pipelines.get(dispatch.kernel, **dispatch.parameters)
        finally:
            self.dispatches, self.probe_points, self.until = before

    def probe(self, name: str, x: Tensor) -> None:
        after = len(self.dispatches)
        if x.buffer is None:
            # Behind the last op so far that takes it, its buffer may become another's.
            while after and all(t is not x for t in self.dispatches[after - 1].tensors):
                after -= 1
            if not after:
                raise ValueError("probe takes what an op of this plan has computed")
        self.probe_points.append(ProbePoint(name, x, x.shape, after))

    def store(self, x: Tensor, buffer: Tensor) -> None:
        if buffer.dtype == np.float16:
            self.store_f16(x, buffer)
            return
        if x.buffer is not None:
            raise ValueError("store takes an intermediate of this plan, once")
        x.buffer = buffer.buffer

    def reshape(self, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        if prod(shape) != prod(x.shape):
            raise ValueError(f"{x.shape} is not to be seen as {shape}")
        x.shape = shape  # the same tensor, whose buffer the plan has yet to assign
        return x

    def store_f16(self, x: Tensor, y: Tensor) -> None:
        """Record y = x in float16."""
        count = prod(y.shape)
        self.check_multiple_of_4("number of values to store in float16", count)
        groups = ceil(count / 256)
        across = min(groups, MAX_WORKGROUPS)
        grid = across, ceil(groups / across)
        self.dispatch("to_f16", [x, y], grid, COUNT4=count // 4)

    def trace(self) -> dict[str, tuple[int, float]]:
        totals = self.profile.collect() if self.profile else {}
        return {name: (total.count, total.milliseconds) for name, total in totals.items()}

    # -- recording ----------------------------------------------------------------------------

    def intermediate(self, *shape: int) -> Tensor:
        """A float32 intermediate of the plan that is recorded; the plan assigns its buffer."""
        return Tensor(shape, np.dtype(np.float32))

    def check_multiple_of_4(self, what: str, count: int) -> None:
        """Raise DeviceError unless count is a multiple of 4: kernels read vec4s."""
        if count % 4:
            raise DeviceError(
                f"{self.name}: {what} {count} is not a multiple of 4, as kernels need it; "
                "NumPy takes any"
            )

    def dispatch(
        self,
        kernel: str,
        tensors: list[Tensor | None],
        grid: tuple[int, ...],
        work: float = 0.0,
        **parameters: Parameter,
    ) -> None:
        """Record one dispatch of a kernel over tensors, None for an operand that is not given.

        work: its floating-point operations. Raises DeviceError where limits of the device are
        exceeded.
        """
        bound = tuple(self.nothing if tensor is None else tensor for tensor in tensors)
        for tensor in bound:
            self.memory.check(tensor)
        x, y, z = (*grid, 1, 1)[:3]
        if max(x, y, z) > MAX_WORKGROUPS:
            raise DeviceError(
                f"{self.name}: {kernel} would take {max(x, y, z)} workgroups in a row, "
                f"{MAX_WORKGROUPS} are the most"
            )
        self.dispatches.append(Dispatch(kernel, bound, (x, y, z), work, parameters))


def store_dtype(tensor: Tensor) -> str:
    """The dtype in which a kernel stores: its choice STORE, or CACHE for keys and values."""
    return "f16" if is_half(tensor) else "f32"


def is_half(tensor: Tensor) -> bool:
    """Whether a tensor is stored as float16."""
    return tensor.dtype == np.float16


def weights_of(tensor: Tensor) -> str:
    """The dtype in which weights, or keys and values, are stored: a kernel's choice WEIGHTS."""
    return dtype_name(tensor.dtype)


def grid2d(groups: int) -> tuple[int, int]:
    """A two-dimensional grid of `groups` workgroups, or a few more."""
    across = min(groups, MAX_WORKGROUPS)
    return across, ceil(groups / across)


def window_rows(x: Tensor, batch: int) -> int:
    """The rows of each window of a batch. Raises ValueError where batch does not divide the
    rows."""
    rows, rest = divmod(x.shape[0], batch)
    if rest:
        raise ValueError(f"{x.shape[0]} rows are not {batch} windows")
    return int(rows)
