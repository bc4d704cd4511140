"""The op vocabulary on the GPU: the names of `ops.reference`; each call records dispatches.

Shapes and definitions: oscine.ops.reference. The choice of a kernel is made here and is invisible
to models.
"""

from __future__ import annotations

from oscine.gpu.device import Device
from oscine.gpu.matrix_units import LANES, MatrixUnits
from oscine.gpu.plan import Plan
from oscine.ops.webgpu.attention import GpuAttention
from oscine.ops.webgpu.channels import GpuChannels
from oscine.ops.webgpu.conv import GpuConv
from oscine.ops.webgpu.embedding import GpuEmbedding
from oscine.ops.webgpu.mel import GpuMel
from oscine.ops.webgpu.recorder import WORKGROUP
from oscine.ops.webgpu.sampling import GpuSampling
from oscine.ops.webgpu.transducer import GpuTransducer

#: Bytes of shared memory, and invocations, that a workgroup of kernels for matrix units needs, and
#: the bytes of their large tiles.
MATRIX_STORAGE, MATRIX_INVOCATIONS, LARGE_TILE_STORAGE = 32768, 256, 49152
#: Windows of turbo in a pass on an H200, milliseconds a window: 20.3 at 1, 17.7 at 4, 17.0 at 8,
#: 16.2 at 16, which take another 0.6 GB.
MATRIX_ENCODE_BATCH = 8


class Gpu(GpuAttention, GpuConv, GpuEmbedding, GpuMel, GpuSampling, GpuTransducer, GpuChannels):
    """The GPU backend: the ops of one device, which record, and its buffers and plans."""

    def __init__(self, device: Device) -> None:
        super().__init__(device)
        self.lanes = self.subgroup_size()
        self.matrix = self.usable_matrix_units()
        storage = device.adapter.limits["max-compute-workgroup-storage-size"]
        self.large_tiles = storage >= LARGE_TILE_STORAGE
        if self.matrix:
            self.encode_batch = MATRIX_ENCODE_BATCH

    def usable_matrix_units(self) -> MatrixUnits | None:
        """The matrix units that the device was opened with, where its workgroups are large enough
        and its subgroups have, or can be asked to have, the size that kernels need."""
        units, limits = self.device.adapter.matrix_units, self.device.adapter.limits
        if units is None or "matrix" not in self.device.features:
            return None
        usable = (
            (units.request_lanes or self.lanes == LANES)
            and limits["max-compute-workgroup-storage-size"] >= MATRIX_STORAGE
            and limits["max-compute-invocations-per-workgroup"] >= MATRIX_INVOCATIONS
        )
        return units if usable else None

    def subgroup_size(self) -> int:
        """Measured by a kernel, since what an adapter reports is not reliable."""
        if self.workgroup_reduce == "shared":
            return WORKGROUP
        size = self.zeros((4,))
        with self.recording(None) as dispatches:
            self.dispatch("subgroup_size_probe", [size], (1,))
        Plan(self.device, self.pool, dispatches).run()
        return min(WORKGROUP, max(1, int(self.read(size)[0])))
