"""Device memory: uploads, slots that outlive plans, and reads that do not stop the queue."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from oscine.budget import Budget
from oscine.errors import DeviceError, DeviceMemoryError
from oscine.gpu.device import Device
from oscine.gpu.tensor import Tensor
from oscine.quantized import Q8, is_quantized, shape_of

COPY_BUFFER_BYTES = 8 << 20  # of a buffer for copies within a slot: WebGPU copies between two only


def mebibytes(nbytes: int) -> str:
    """For people."""
    return f"{nbytes / (1 << 20):.1f} MiB"


def item_bytes(tensor: Tensor) -> int:
    """What one item of the leading axis takes."""
    return math.prod(tensor.shape[1:]) * tensor.dtype.itemsize


def scales_last(blocks: NDArray[Any]) -> NDArray[np.uint8]:
    """The bytes of blocks of weights with all steps before all scales: whole words of each."""
    scales = 2 if blocks.dtype == Q8 else 4
    by_block = blocks.reshape(-1).view(np.uint8).reshape(-1, blocks.dtype.itemsize)
    return np.concatenate([by_block[:, scales:].reshape(-1), by_block[:, :scales].reshape(-1)])


class Memory:
    """Buffers of one device.

    Every method raises DeviceLostError where the device is lost, and DeviceMemoryError where there
    is no room; then something smaller may fit, once the tensors that were made before are dropped
    or released. A failed attempt is kept alive by its exception: leave the `except` block first.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        host = device.adapter.adapter_type in ("CPU", "IntegratedGPU")
        self.budget = Budget(device.name, in_host_memory=host)
        #: Bytes of the largest tensor that a kernel can be given; parts of a weight are as large.
        self.largest_binding = min(
            device.adapter.limits["max-storage-buffer-binding-size"],
            device.adapter.limits["max-buffer-size"],
        )
        self.staging: dict[int, list[Any]] = {}
        self.released: WeakSet[Any] = WeakSet()
        self.releases = 0
        self.scratch: Tensor | None = None  # for copies within a slot

    def buffer(self, nbytes: int, usage: int) -> Any:
        """A new buffer. Raises DeviceMemoryError, DeviceLostError."""
        self.device.raise_if_lost()
        try:
            return self.create(nbytes, usage)
        except DeviceMemoryError:
            self.staging.clear()
            self.device.wait_idle()  # what was dropped a moment ago may be room enough
        return self.create(nbytes, usage)

    def create(self, nbytes: int, usage: int) -> Any:
        """A new buffer, at the first attempt."""
        size = max(nbytes, 16)
        self.budget.check(size)
        try:
            buffer = self.device.handle.create_buffer(size=size, usage=usage)
        except self.device.error_types as problem:
            doing = f"no room for {mebibytes(nbytes)}"
            raise self.device.wrap_error(problem, doing, DeviceMemoryError) from problem
        self.budget.hold(buffer, size)
        return buffer

    def destroy(self, buffer: Any) -> None:
        """Give the memory of a buffer back to the device."""
        buffer.destroy()
        self.budget.drop(buffer)

    def can_allocate(self, nbytes: int) -> bool:
        """Whether that many bytes can be allocated now, found by trying.

        WebGPU tells neither how much memory there is nor how much is free: its limits are all that
        can be asked, and they speak of one buffer. A driver may also promise what it has not.
        """
        most = self.device.adapter.limits["max-buffer-size"] // 4 * 4
        held: list[Any] = []
        try:
            while nbytes > 0:
                held.append(self.buffer(min(nbytes, most), self.device.api.BufferUsage.STORAGE))
                nbytes -= most
        except DeviceMemoryError:
            return False
        finally:
            for buffer in held:
                self.destroy(buffer)
            self.device.wait_idle()
        return True

    def release(self, *tensors: Tensor) -> None:
        """Give back the memory of slots and constants now; waits for the GPU.

        Dropping the last reference does the same, later. Plans over them may run no more: they,
        like reads and writes, are refused with a DeviceError.
        """
        for tensor in tensors:
            for part in tensor.parts or (tensor,):
                if part.buffer is not None and part.buffer not in self.released:
                    self.released.add(part.buffer)
                    self.destroy(part.buffer)
        self.releases += 1
        self.device.wait_idle()

    def check_alive(self, tensors: Iterable[Tensor]) -> None:
        """Refuse released memory: to submit it ends the process under wgpu-native."""
        if self.released and any(tensor.buffer in self.released for tensor in tensors):
            raise DeviceError(f"{self.device.name}: memory is used that was released before")

    def check(self, tensor: Tensor) -> None:
        """Refuse what cannot be bound in one piece. Raises DeviceMemoryError."""
        if tensor.nbytes > self.largest_binding:
            raise DeviceMemoryError(
                self.device.name,
                f"{list(tensor.shape)} {tensor.dtype} are {mebibytes(tensor.nbytes)}, "
                f"its largest binding is {mebibytes(self.largest_binding)}",
            )

    def zeros(self, shape: tuple[int, ...], dtype: Any = np.float32) -> Tensor:
        """Zeroed memory that plans read and write and the host can copy to and from."""
        usage = self.device.api.BufferUsage
        tensor = Tensor(shape, np.dtype(dtype))
        self.check(tensor)
        tensor.buffer = self.buffer(tensor.nbytes, usage.STORAGE | usage.COPY_DST | usage.COPY_SRC)
        return tensor

    def upload(self, array: NDArray[Any]) -> Tensor:
        """A constant. A matrix larger than one binding may be is cut by rows."""
        array = np.ascontiguousarray(array)
        if array.nbytes <= self.largest_binding:
            tensor = self.zeros(shape_of(array), array.dtype)
            self.write(tensor, scales_last(array) if is_quantized(array.dtype) else array)
            return tensor
        if array.ndim < 2 or array[0].nbytes > self.largest_binding:
            self.check(Tensor(shape_of(array), array.dtype))
        rows = self.largest_binding // array[0].nbytes
        parts = tuple(
            self.upload(array[start : start + rows]) for start in range(0, len(array), rows)
        )
        return Tensor(shape_of(array), array.dtype, parts=parts)

    def write(self, tensor: Tensor, array: NDArray[Any], at: int = 0) -> None:
        """Copy over items at, at + 1, ... of a slot; bytes are padded to a multiple of 4.

        Raises ValueError where the first byte to write is not a multiple of 4.
        """
        offset = at * item_bytes(tensor)
        if offset % 4:
            raise ValueError(f"item {at} of {tensor.shape} {tensor.dtype} cannot be written alone")
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        if len(data) % 4:
            data = np.pad(data, (0, -len(data) % 4))
        self.device.raise_if_lost()
        self.check_alive((tensor,))
        try:
            self.device.handle.queue.write_buffer(tensor.buffer, offset, data)
        except self.device.error_types as problem:
            raise self.device.wrap_error(problem) from problem

    def copy(self, source: Tensor, target: Tensor, pairs: Sequence[tuple[int, int]]) -> None:
        """Queue a copy of item i of source to item j of target for each (i, j), in turn.

        Raises IndexError for an item that does not exist, ValueError where items differ in size.
        """
        self.device.raise_if_lost()
        self.check_alive((source, target))
        size, (items, places) = item_bytes(source), (source.shape[0], target.shape[0])
        if size != item_bytes(target) or size % 4:
            raise ValueError(f"an item of {source.shape} cannot be copied to one of {target.shape}")
        if any(not (0 <= i < items and 0 <= j < places) for i, j in pairs):
            raise IndexError(f"{list(pairs)} are not all items of {items}, {places}")
        if not pairs:
            return
        scratch = self.copy_scratch(size) if source.buffer is target.buffer else None

        def fill(encoder: Any) -> None:
            copy = encoder.copy_buffer_to_buffer
            for i, j in pairs:
                if scratch is None:
                    copy(source.buffer, i * size, target.buffer, j * size, size)
                    continue
                for start in range(0, size, scratch.nbytes):
                    count = min(scratch.nbytes, size - start)
                    copy(source.buffer, i * size + start, scratch.buffer, 0, count)
                    copy(scratch.buffer, 0, target.buffer, j * size + start, count)

        self.device.submit(fill)

    def copy_scratch(self, size: int) -> Tensor:
        """Memory for copies of items of that many bytes within a slot, made on first use."""
        nbytes = min(size, COPY_BUFFER_BYTES)
        if self.scratch is None or self.scratch.nbytes < nbytes:
            self.scratch = self.zeros((nbytes,), np.uint8)
        return self.scratch

    def snapshot(self, *slots: Tensor) -> Callable[[], tuple[NDArray[Any], ...]]:
        """Queue a copy of the slots; the returned function waits for it, once."""
        self.device.raise_if_lost()
        total = sum(slot.nbytes for slot in slots)
        spare = self.staging.setdefault(total, [])
        usage = self.device.api.BufferUsage
        staging = spare.pop() if spare else self.buffer(total, usage.MAP_READ | usage.COPY_DST)
        self.check_alive(slots)

        def fill(encoder: Any) -> None:
            offset = 0
            for slot in slots:
                encoder.copy_buffer_to_buffer(slot.buffer, 0, staging, offset, slot.nbytes)
                offset += slot.nbytes

        self.device.submit(fill)

        def wait() -> tuple[NDArray[Any], ...]:
            self.device.map_read(staging)
            try:
                data = np.frombuffer(bytes(staging.read_mapped()), np.uint8)
                staging.unmap()
            except self.device.error_types as problem:
                raise self.device.wrap_error(problem) from problem
            spare.append(staging)
            arrays, start = [], 0
            for slot in slots:
                size = math.prod(slot.shape) * slot.dtype.itemsize
                arrays.append(data[start : start + size].view(slot.dtype).reshape(slot.shape))
                start += slot.nbytes
            return tuple(arrays)

        return wait
