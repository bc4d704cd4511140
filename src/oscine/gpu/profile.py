"""GPU times from timestamp queries: by stage with OSCINE_TRACE=1, by kernel with =kernels."""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np

from oscine.gpu.device import Device

MAX_QUERIES = 2048  # of one query set; a pass takes two


@dataclass(slots=True)
class StageTotal:
    """The number of passes of a stage, and the sum of their times."""

    count: int = 0
    milliseconds: float = 0.0


class Profile:
    """Times compute passes, each with a timestamp at its beginning and its end, and sums by label.

    `by_kernel`: whether each dispatch has a pass of its own.
    """

    def __init__(self, device: Device, by_kernel: bool) -> None:
        self.device, self.by_kernel = device, by_kernel
        self.totals: dict[str, StageTotal] = defaultdict(StageTotal)
        self.labels: list[str] = []
        self.ns_per_tick = device.timestamp_ns()
        usage = device.api.BufferUsage
        create, size = device.handle.create_buffer, 8 * MAX_QUERIES
        try:
            self.queries = device.handle.create_query_set(type="timestamp", count=MAX_QUERIES)
            self.resolved = create(size=size, usage=usage.QUERY_RESOLVE | usage.COPY_SRC)
            self.staging = create(size=size, usage=usage.MAP_READ | usage.COPY_DST)
        except device.error_types as problem:
            raise device.wrap_error(problem) from problem

    def reserve_queries(self, passes: int) -> None:
        """Make queries available for `passes` passes of the next command buffer.

        Called before it is begun: waiting for queries that it has yet to write would not end.
        """
        if 2 * (len(self.labels) + passes) > MAX_QUERIES:
            self.collect()

    def timestamp_writes(self, label: str) -> dict[str, Any]:
        """The `timestamp_writes` of begin_compute_pass for one pass, counted under `label`."""
        first = 2 * len(self.labels)
        self.labels.append(label)
        return {
            "query_set": self.queries,
            "beginning_of_pass_write_index": first,
            "end_of_pass_write_index": first + 1,
        }

    def collect(self) -> dict[str, StageTotal]:
        """Wait for the passes so far; their totals by label. Raises DeviceLostError."""
        if self.labels:
            data = self.read_timestamps(8 * 2 * len(self.labels))
            ticks = np.frombuffer(data, np.uint64).reshape(-1, 2)
            for label, (start, end) in zip(self.labels, ticks, strict=True):
                self.totals[label].count += 1
                spent = max(int(end) - int(start), 0) * self.ns_per_tick
                self.totals[label].milliseconds += spent / 1e6
            self.labels.clear()
        return dict(self.totals)

    def read_timestamps(self, nbytes: int) -> bytes:
        """The first `nbytes` of the timestamps. Raises DeviceLostError."""

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


def profile_from_env(device: Device) -> Profile | None:
    """A profile as OSCINE_TRACE sets it; None where it is unset or the device has no timestamps."""
    value = os.environ.get("OSCINE_TRACE", "")
    if value in ("", "0") or "timestamps" not in device.features:
        return None
    return Profile(device, by_kernel=value == "kernels")
