"""The thresholds by which products choose their tiles."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TileThresholds:
    """Sizes at which a product takes another tile; the defaults were measured on an H200.

    `oscine doctor --tune` measures a device's own (oscine.tuning). Every value gives right results.

    Args:
        matrix_workgroups: Workgroups of large tiles that keep the device busy in gemm_matrix; with
            fewer, several share the depth of a sum, or tiles are small.
        broad_workgroups: The same of gemm's tiles of 64x128; with fewer they are 64x64.
        narrow_workgroups: The same of gemm's tiles of 64x64; with fewer, three share the depth.
        workgroup_rows: Rows up to which a sum over a long row is a workgroup's; a subgroup's where
            there are more.
        narrow_outputs: Outputs up to which gemm_skinny gives the most lanes to a tile.
        broad_outputs: Outputs up to which it gives some.
    """

    matrix_workgroups: int = 90
    broad_workgroups: int = 250
    narrow_workgroups: int = 128
    workgroup_rows: int = 2048
    narrow_outputs: int = 2048
    broad_outputs: int = 4096


DEFAULT_THRESHOLDS = TileThresholds()
