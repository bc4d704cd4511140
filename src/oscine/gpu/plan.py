"""Recorded plans: a list of dispatches, made once, replayed by a tight loop.

WebGPU's command buffers are spent by one submit and compute passes have no bundles, so a replay
encodes again; everything else (pipelines, bind groups, buffers) is made when the plan is sealed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from oscine.errors import DeviceMemoryError
from oscine.gpu.device import Device
from oscine.gpu.memory import Memory
from oscine.gpu.profile import Profile
from oscine.gpu.tensor import Tensor
from oscine.probe import Probe, current_probe

#: Drivers kill a submit that runs for seconds; this much work is 0.3 s on the slowest GPU in mind
#: (100 GFLOP/s). A plan is cut into submits of about so many operations.
SUBMIT_OPERATIONS = 30e9


@dataclass(eq=False, slots=True)
class Dispatch:
    """One kernel launch over tensors, in binding order."""

    kernel: str
    pipeline: Any
    tensors: tuple[Tensor, ...]
    grid: tuple[int, int, int]
    operations: float = 0.0  # floating-point operations, for cutting plans into submits


@dataclass(frozen=True, eq=False, slots=True)
class Mark:
    """A named stage: a tensor, of this shape then, once the first `after` dispatches have run."""

    name: str
    tensor: Tensor
    shape: tuple[int, ...]
    after: int


class Pool:
    """Buffers for plans' intermediates: one plan runs at a time, so all plans share them."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.buffers: list[Any] = []

    def assign(self, dispatches: Sequence[Dispatch]) -> None:
        """Give every intermediate a buffer; those whose lives do not overlap share one."""
        last = {id(t): i for i, d in enumerate(dispatches) for t in d.tensors}
        free, before = list(self.buffers), len(self.buffers)
        for index, dispatch in enumerate(dispatches):
            for tensor in dispatch.tensors:
                if tensor.buffer is None:
                    try:
                        tensor.buffer = self.take(free, tensor.nbytes)
                    except DeviceMemoryError:
                        del self.buffers[before:]  # room for a smaller plan
                        raise
            for tensor in {id(t): t for t in dispatch.tensors}.values():
                if last[id(tensor)] == index and tensor.buffer in self.buffers:
                    free.append(tensor.buffer)

    def take(self, free: list[Any], size: int) -> Any:
        """The smallest free buffer that is large enough, else a new one."""
        fitting = [buffer for buffer in free if buffer.size >= size]
        if fitting:
            best = min(fitting, key=lambda buffer: buffer.size)
            free.remove(best)
            return best
        usage = self.memory.device.api.BufferUsage
        self.buffers.append(self.memory.buffer(size, usage.STORAGE | usage.COPY_SRC))
        return self.buffers[-1]


Step = tuple[Any, Any, tuple[int, int, int], str]  # pipeline, bind group, grid, kernel


class Plan:
    """A sealed list of dispatches."""

    def __init__(
        self,
        device: Device,
        pool: Pool,
        dispatches: Sequence[Dispatch],
        name: str = "",
        profile: Profile | None = None,
        marks: Sequence[Mark] = (),
    ) -> None:
        self.device, self.dispatches = device, list(dispatches)
        self.name, self.profile = name, profile
        self.marks = sorted(marks, key=lambda mark: mark.after)
        self.memory, self.releases = pool.memory, pool.memory.releases
        pool.assign(self.dispatches)
        groups: dict[tuple[Any, ...], Any] = {}
        try:
            self.steps = [
                (d.pipeline, self.bind(d, groups), d.grid, d.kernel) for d in self.dispatches
            ]
        except device.error_types as problem:
            raise device.wrap_error(problem) from problem
        self.operations = sum(d.operations for d in self.dispatches)

    def bind(self, dispatch: Dispatch, groups: dict[tuple[Any, ...], Any]) -> Any:
        """The bind group of a dispatch; equal ones are made once."""
        # By size too: of one slot there are views.
        bound = ((id(tensor.buffer), tensor.nbytes) for tensor in dispatch.tensors)
        key = (id(dispatch.pipeline), *bound)
        if key not in groups:
            groups[key] = self.device.handle.create_bind_group(
                layout=dispatch.pipeline.get_bind_group_layout(0),
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
        """Submit the whole list so many times, in submits of bounded work.

        Inside `probing` a run stops at every mark, whose tensor is copied and shown. Raises
        DeviceLostError, and DeviceError where memory of it has been released.
        """
        if self.releases != self.memory.releases:
            self.memory.check_alive(t for d in self.dispatches for t in d.tensors)
            self.releases = self.memory.releases
        probe = current_probe() if self.marks else None
        if probe is not None:
            for _ in range(times):
                self.run_probed(probe)
            return
        if self.operations > SUBMIT_OPERATIONS:
            for _ in range(times):
                self.submit_cut(0, len(self.dispatches))
            return
        at_once = max(1, int(SUBMIT_OPERATIONS / max(self.operations, 1.0)))
        if self.profile is not None and self.profile.by_kernel:
            at_once = 1  # queries are few
        while times > 0:
            self.submit(self.steps, min(times, at_once))
            times -= at_once

    def submit_cut(self, start: int, stop: int) -> None:
        """Dispatches of one run, in several submits where they are much work."""
        work = 0.0
        for index in range(start, stop):
            work += self.dispatches[index].operations
            if work >= SUBMIT_OPERATIONS or index == stop - 1:
                self.submit(self.steps[start : index + 1], 1)
                start, work = index + 1, 0.0

    def run_probed(self, probe: Probe) -> None:
        """One run that stops at every mark."""
        done = 0
        for mark in self.marks:
            self.submit_cut(done, mark.after)
            done = mark.after
            tensor = Tensor(mark.shape, mark.tensor.dtype, mark.tensor.buffer)
            probe(mark.name, self.memory.snapshot(tensor)()[0])
        self.submit_cut(done, len(self.dispatches))

    def submit(self, steps: list[Step], times: int) -> None:
        """Encode and submit: the hot path. Raises DeviceLostError."""
        if self.profile is not None:
            self.profile.make_room(len(steps) * times if self.profile.by_kernel else 1)
        self.device.submit(lambda encoder: self.encode(encoder, steps, times))

    def encode(self, encoder: Any, steps: list[Step], times: int) -> None:
        """The dispatches, in one pass unless each kernel's time is wanted."""
        if self.profile is not None and self.profile.by_kernel:
            self.encode_by_kernel(encoder, steps, times)
        else:
            span = self.profile and self.profile.span(self.name)
            compute = encoder.begin_compute_pass(timestamp_writes=span or None)
            set_pipeline, set_group = compute.set_pipeline, compute.set_bind_group
            launch = compute.dispatch_workgroups
            for _ in range(times):
                for pipeline, group, grid, _kernel in steps:
                    set_pipeline(pipeline)
                    set_group(0, group)
                    launch(*grid)
            compute.end()

    def encode_by_kernel(self, encoder: Any, steps: list[Step], times: int) -> None:
        """A pass a dispatch, so that each kernel's time is known."""
        assert self.profile is not None
        for pipeline, group, grid, kernel in steps * times:
            span = self.profile.span(f"{self.name}/{kernel}")
            compute = encoder.begin_compute_pass(timestamp_writes=span)
            compute.set_pipeline(pipeline)
            compute.set_bind_group(0, group)
            compute.dispatch_workgroups(*grid)
            compute.end()
