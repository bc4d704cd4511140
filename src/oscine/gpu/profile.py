"""Time on the GPU itself, from timestamp queries: OSCINE_TRACE=1 by stage, =kernels by kernel."""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np

from oscine.gpu.device import Device

QUERIES = 2048  # of one query set; a span takes two


@dataclass(slots=True)
class Total:
    """How often a span ran, and how long in all."""

    count: int = 0
    milliseconds: float = 0.0


class Profile:
    """Collects spans; two timestamps around a compute pass each."""

    def __init__(self, device: Device, by_kernel: bool) -> None:
        self.device, self.by_kernel = device, by_kernel
        self.totals: dict[str, Total] = defaultdict(Total)
        self.labels: list[str] = []
        self.tick = device.timestamp_ns()
        usage = device.api.BufferUsage
        create, size = device.handle.create_buffer, 8 * QUERIES
        try:
            self.queries = device.handle.create_query_set(type="timestamp", count=QUERIES)
            self.resolved = create(size=size, usage=usage.QUERY_RESOLVE | usage.COPY_SRC)
            self.staging = create(size=size, usage=usage.MAP_READ | usage.COPY_DST)
        except device.error_types as problem:
            raise device.wrap_error(problem) from problem

    def make_room(self, spans: int) -> None:
        """Before a command buffer with so many spans is begun: to wait for queries that it has yet
        to write would be to wait for ever."""
        if 2 * (len(self.labels) + spans) > QUERIES:
            self.collect()

    def span(self, label: str) -> dict[str, Any]:
        """What `begin_compute_pass` takes to time one pass under a label."""
        first = 2 * len(self.labels)
        self.labels.append(label)
        return {
            "query_set": self.queries,
            "beginning_of_pass_write_index": first,
            "end_of_pass_write_index": first + 1,
        }

    def collect(self) -> dict[str, Total]:
        """Wait for the spans so far and add them up. Raises DeviceLostError."""
        if self.labels:
            data = self.read(8 * 2 * len(self.labels))
            ticks = np.frombuffer(data, np.uint64).reshape(-1, 2)
            for label, (start, end) in zip(self.labels, ticks, strict=True):
                self.totals[label].count += 1
                spent = max(int(end) - int(start), 0) * self.tick
                self.totals[label].milliseconds += spent / 1e6
            self.labels.clear()
        return dict(self.totals)

    def read(self, nbytes: int) -> bytes:
        """The first timestamps. Raises DeviceLostError."""

        def fill(encoder: Any) -> None:
            encoder.resolve_query_set(self.queries, 0, nbytes // 8, self.resolved, 0)
            encoder.copy_buffer_to_buffer(self.resolved, 0, self.staging, 0, nbytes)

        self.device.submit(fill)
        self.device.map_read(self.staging)
        try:
            data = bytes(self.staging.read_mapped(0, nbytes))
            self.staging.unmap()
        except self.device.error_types as problem:
            raise self.device.wrap_error(problem) from problem
        return data


def wanted(device: Device) -> Profile | None:
    """The profile that OSCINE_TRACE asks for, where the device has timestamps."""
    value = os.environ.get("OSCINE_TRACE", "")
    if value in ("", "0") or "timestamps" not in device.features:
        return None
    return Profile(device, by_kernel=value == "kernels")
