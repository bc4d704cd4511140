"""Device memory: uploads, slots that outlive plans, and reads that do not stop the queue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oscine.errors import DeviceError
from oscine.gpu.device import Device, one_line
from oscine.gpu.tensor import Tensor


def mebibytes(nbytes: int) -> str:
    """For people."""
    return f"{nbytes / (1 << 20):.1f} MiB"


class Memory:
    """Buffers of one device."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.limit = min(
            device.adapter.limits["max-storage-buffer-binding-size"],
            device.adapter.limits["max-buffer-size"],
        )
        self.staging: dict[int, list[Any]] = {}

    def buffer(self, nbytes: int, usage: int) -> Any:
        """A new buffer; DeviceError where the device has no room for it."""
        try:
            return self.device.handle.create_buffer(size=max(nbytes, 16), usage=usage)
        except (self.device.api.GPUError, RuntimeError) as problem:
            raise DeviceError(
                f"{self.device.name}: no room for {mebibytes(nbytes)}: {one_line(problem)}"
            ) from problem

    def check(self, tensor: Tensor) -> None:
        """Refuse what cannot be bound in one piece. Raises DeviceError."""
        if tensor.nbytes > self.limit:
            raise DeviceError(
                f"{self.device.name}: {list(tensor.shape)} {tensor.dtype} are "
                f"{mebibytes(tensor.nbytes)}, its largest binding is {mebibytes(self.limit)}"
            )

    def slot(self, shape: tuple[int, ...], dtype: Any = np.float32) -> Tensor:
        """Zeroed memory that plans read and write and the host can copy to and from."""
        usage = self.device.api.BufferUsage
        tensor = Tensor(shape, np.dtype(dtype))
        self.check(tensor)
        tensor.buffer = self.buffer(tensor.nbytes, usage.STORAGE | usage.COPY_DST | usage.COPY_SRC)
        return tensor

    def upload(self, array: NDArray[Any]) -> Tensor:
        """A constant. A matrix larger than one binding may be is cut by rows."""
        array = np.ascontiguousarray(array)
        if array.nbytes <= self.limit:
            tensor = self.slot(array.shape, array.dtype)
            self.write(tensor, array)
            return tensor
        if array.ndim < 2 or array[0].nbytes > self.limit:
            self.check(Tensor(array.shape, array.dtype))
        rows = self.limit // array[0].nbytes
        parts = tuple(
            self.upload(array[start : start + rows]) for start in range(0, len(array), rows)
        )
        return Tensor(array.shape, array.dtype, parts=parts)

    def write(self, slot: Tensor, array: NDArray[Any]) -> None:
        """Copy over the start of a slot; sizes that are no multiple of 4 bytes are padded."""
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        if len(data) % 4:
            data = np.pad(data, (0, -len(data) % 4))
        self.device.handle.queue.write_buffer(slot.buffer, 0, data)

    def snapshot(self, *slots: Tensor) -> Callable[[], tuple[NDArray[Any], ...]]:
        """Queue a copy of the slots; the returned function waits for it, once."""
        total = sum(slot.nbytes for slot in slots)
        spare = self.staging.setdefault(total, [])
        usage = self.device.api.BufferUsage
        staging = spare.pop() if spare else self.buffer(total, usage.MAP_READ | usage.COPY_DST)
        encoder = self.device.handle.create_command_encoder()
        offset = 0
        for slot in slots:
            encoder.copy_buffer_to_buffer(slot.buffer, 0, staging, offset, slot.nbytes)
            offset += slot.nbytes
        self.device.handle.queue.submit([encoder.finish()])

        def wait() -> tuple[NDArray[Any], ...]:
            staging.map_sync(self.device.api.MapMode.READ)
            data = np.frombuffer(bytes(staging.read_mapped()), np.uint8)
            staging.unmap()
            spare.append(staging)
            arrays, start = [], 0
            for slot in slots:
                size = int(np.prod(slot.shape)) * slot.dtype.itemsize
                arrays.append(data[start : start + size].view(slot.dtype).reshape(slot.shape))
                start += slot.nbytes
            return tuple(arrays)

        return wait
