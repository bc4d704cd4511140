"""Recorded plans: lists of dispatches that are prepared once and replayed in a tight loop.

A command buffer of WebGPU can be submitted once only, and compute passes have no bundles, so each
replay encodes commands. Buffers are made once, with the plan; its bind groups with its first run,
so that pipelines may compile until then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from oscine.errors import DeviceMemoryError
from oscine.gpu.device import Device, native_api
from oscine.gpu.kernels import Parameter, Pipeline
from oscine.gpu.memory import Memory
from oscine.gpu.profile import Profile
from oscine.gpu.tensor import Tensor
from oscine.probe import Probe, current_probe

#: Drivers kill a submit that runs for seconds, so plans are split into submits of about this much
#: work, in floating-point operations: 0.3 s on the slowest integrated GPU (100 GFLOP/s) and the
#: slowest discrete one (1 TFLOP/s) that are considered, and 0.1 s on the slowest matrix units
#: (10 TFLOP/s).
SUBMIT_FLOPS, DISCRETE_SUBMIT_FLOPS, MATRIX_SUBMIT_FLOPS = 30e9, 300e9, 1e12


@dataclass(eq=False, slots=True)
class Dispatch:
    """One kernel launch over tensors, in binding order."""

    kernel: str
    tensors: tuple[Tensor, ...]
    grid: tuple[int, int, int]
    flops: float = 0.0  # floating-point operations, to split plans into submits
    parameters: dict[str, Parameter] = field(default_factory=dict)  # of the kernel
    pipeline: Pipeline = field(init=False)  # begun when the recording of the plan ends


@dataclass(frozen=True, eq=False, slots=True)
class ProbePoint:
    """A tensor that oscine.probe shows: its value and shape after the first `after` dispatches."""

    name: str
    tensor: Tensor
    shape: tuple[int, ...]
    after: int


class BufferPool:
    """Buffers for the intermediates of plans, shared by all plans, as one plan runs at a time."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.buffers: list[Any] = []

    def assign(self, dispatches: Sequence[Dispatch]) -> None:
        """Assign a buffer to every intermediate; those with disjoint lifetimes share one.

        Raises DeviceMemoryError, after which the pool has the buffers that it had before.
        """
        last = {id(t): i for i, d in enumerate(dispatches) for t in d.tensors}
        free, before = list(self.buffers), len(self.buffers)
        for index, dispatch in enumerate(dispatches):
            for tensor in dispatch.tensors:
                if tensor.buffer is None:
                    try:
                        tensor.buffer = self.acquire(free, tensor.nbytes)
                    except DeviceMemoryError:
                        del self.buffers[before:]  # leave memory for a smaller plan
                        raise
            for tensor in {id(t): t for t in dispatch.tensors}.values():
                if last[id(tensor)] == index and tensor.buffer in self.buffers:
                    free.append(tensor.buffer)

    def acquire(self, free: list[Any], size: int) -> Any:
        """The smallest free buffer of at least `size` bytes, or else a new one."""
        fitting = [buffer for buffer in free if buffer.size >= size]
        if fitting:
            best = min(fitting, key=lambda buffer: buffer.size)
            free.remove(best)
            return best
        usage = self.memory.device.api.BufferUsage
        self.buffers.append(self.memory.buffer(size, usage.STORAGE | usage.COPY_SRC))
        return self.buffers[-1]


def max_submit_flops(device: Device) -> float:
    """The floating-point operations that one submit may have on a device."""
    units = device.adapter.matrix_units
    if "matrix" in device.features and units is not None and units.is_block:
        return MATRIX_SUBMIT_FLOPS
    is_discrete = device.adapter.adapter_type == "DiscreteGPU"
    return DISCRETE_SUBMIT_FLOPS if is_discrete else SUBMIT_FLOPS


BoundDispatch = tuple[Any, Any, tuple[int, int, int], str]  # pipeline, bind group, grid, kernel


class Plan:
    """A recorded list of dispatches with their buffers and bind groups, ready to replay.

    `name` is its stage in traces; `profile` times its passes. `probe_points` are shown to a probe.
    """

    def __init__(
        self,
        device: Device,
        pool: BufferPool,
        dispatches: Sequence[Dispatch],
        name: str = "",
        profile: Profile | None = None,
        probe_points: Sequence[ProbePoint] = (),
    ) -> None:
        self.device, self.dispatches = device, list(dispatches)
        self.name, self.profile = name, profile
        self.probe_points = sorted(probe_points, key=lambda point: point.after)
        self.memory, self.releases = pool.memory, pool.memory.releases
        pool.assign(self.dispatches)
        self.max_submit_flops = max_submit_flops(device)
        self.flops = sum(d.flops for d in self.dispatches)

    @cached_property
    def bound(self) -> list[BoundDispatch]:
        """The dispatches with their compiled pipelines and bind groups, made at the first run.

        Raises DeviceError where the driver refuses a kernel.
        """
        pipelines = [d.pipeline.wait() for d in self.dispatches]
        groups: dict[tuple[Any, ...], Any] = {}
        try:
            return [
                (pipeline, self.bind_group(d, groups), d.grid, d.kernel)
                for pipeline, d in zip(pipelines, self.dispatches, strict=True)
            ]
        except self.device.error_types as problem:
            raise self.device.wrap_error(problem) from problem

    def bind_group(self, dispatch: Dispatch, groups: dict[tuple[Any, ...], Any]) -> Any:
        """The bind group of a dispatch; equal ones are made once."""
        # By size too: views of one buffer have different sizes.
        bound = ((id(tensor.buffer), tensor.nbytes) for tensor in dispatch.tensors)
        key = (id(dispatch.pipeline), *bound)
        if key not in groups:
            groups[key] = self.device.handle.create_bind_group(
                layout=dispatch.pipeline.wait().get_bind_group_layout(0),
                entries=[
                    {
                        "binding": number,
                        "resource": {"buffer": tensor.buffer, "offset": 0, "size": tensor.nbytes},
                    }
                    for number, tensor in enumerate(dispatch.tensors)
                ],
            )
        return groups[key]

    def run(self, times: int = 1) -> None:
        """Submit the whole list `times` times, in submits of bounded work.

        Inside oscine.probe's `probing`, a run stops at every probe point to show its tensor. Raises
        DeviceLostError, and DeviceError where one of its buffers was released.
        """
        if self.releases != self.memory.releases:
            self.memory.check_alive(t for d in self.dispatches for t in d.tensors)
            self.releases = self.memory.releases
        probe = current_probe() if self.probe_points else None
        if probe is not None:
            for _ in range(times):
                self.run_with_probe(probe)
            return
        if self.flops > self.max_submit_flops:
            for _ in range(times):
                self.submit_range(0, len(self.dispatches))
            return
        at_once = max(1, int(self.max_submit_flops / max(self.flops, 1.0)))
        if self.profile is not None and self.profile.by_kernel:
            at_once = 1  # there are few queries
        while times > 0:
            self.submit(self.bound, min(times, at_once))
            times -= at_once

    def submit_range(self, start: int, stop: int) -> None:
        """Submit the dispatches `start` to `stop` once, in submits of bounded work."""
        work = 0.0
        for index in range(start, stop):
            work += self.dispatches[index].flops
            if work >= self.max_submit_flops or index == stop - 1:
                self.submit(self.bound[start : index + 1], 1)
                start, work = index + 1, 0.0

    def run_with_probe(self, probe: Probe) -> None:
        """Run once, and stop at every probe point to show its tensor to the probe."""
        done = 0
        for point in self.probe_points:
            self.submit_range(done, point.after)
            done = point.after
            tensor = Tensor(point.shape, point.tensor.dtype, point.tensor.buffer)
            probe(point.name, self.memory.snapshot(tensor)()[0])
        self.submit_range(done, len(self.dispatches))

    def submit(self, dispatches: list[BoundDispatch], times: int) -> None:
        """Encode and submit dispatches `times` times: the hot path. Raises DeviceLostError."""
        if self.profile is not None:
            self.profile.reserve_queries(len(dispatches) * times if self.profile.by_kernel else 1)
        self.device.submit(lambda encoder: self.encode(encoder, dispatches, times))

    def encode(self, encoder: Any, dispatches: list[BoundDispatch], times: int) -> None:
        """Encode the dispatches in one pass, or in one pass each to time kernels."""
        if self.profile is not None and self.profile.by_kernel:
            self.encode_by_kernel(encoder, dispatches, times)
        else:
            timestamp_writes = self.profile and self.profile.timestamp_writes(self.name)
            compute = encoder.begin_compute_pass(timestamp_writes=timestamp_writes or None)
            native, handle = native_api(self.device.adapter.implementation), compute._internal
            # The methods of the bindings check and convert their arguments at each call, under wgpu
            # for 2 us a dispatch. Errors are reported where the encoder is finished.
            set_pipeline = native.lib.wgpuComputePassEncoderSetPipeline
            set_group = native.lib.wgpuComputePassEncoderSetBindGroup
            launch = native.lib.wgpuComputePassEncoderDispatchWorkgroups
            null = native.ffi.NULL
            for _ in range(times):
                for pipeline, group, (x, y, z), _kernel in dispatches:
                    set_pipeline(handle, pipeline._internal)
                    set_group(handle, 0, group._internal, 0, null)
                    launch(handle, x, y, z)
            compute.end()

    def encode_by_kernel(self, encoder: Any, dispatches: list[BoundDispatch], times: int) -> None:
        """Encode each dispatch in a pass of its own, whose time is that of the kernel."""
        assert self.profile is not None
        for pipeline, group, grid, kernel in dispatches * times:
            timestamp_writes = self.profile.timestamp_writes(f"{self.name}/{kernel}")
            compute = encoder.begin_compute_pass(timestamp_writes=timestamp_writes)
            compute.set_pipeline(pipeline)
            compute.set_bind_group(0, group)
            compute.dispatch_workgroups(*grid)
            compute.end()
