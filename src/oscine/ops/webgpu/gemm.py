"""Products of many rows on the GPU: which kernel, which tiles."""

from __future__ import annotations

from math import ceil
from typing import TypeAlias

import numpy as np

from oscine.gpu.kernels import choices_of
from oscine.gpu.matrix_units import MatrixUnits
from oscine.gpu.tensor import Tensor
from oscine.ops.types import Activation, Linear
from oscine.ops.webgpu.recorder import Recorder, weights_of
from oscine.ops.webgpu.thresholds import TileThresholds

#: In the order of kernels/common/_activation.wgsl.
ACTIVATIONS: tuple[Activation, ...] = (None, "gelu", "silu", "relu", "elu", "tanh", "sigmoid")
MAX_SKINNY_ROWS = 64  # up to this many rows gemm_skinny; more fill the tiles of gemm
MAX_SPLITS = 4

Shape: TypeAlias = tuple[dict[str, int], tuple[int, int, int]]


class Gemm(Recorder):
    """`gemm`, on which `linear` and `conv1d` are built."""

    matrix: MatrixUnits | None = None  # those that its kernels can use
    large_tiles = True  # whether kernels for matrix units may use the memory of their large tiles

    def to_f16(self, x: Tensor) -> Tensor:
        """x in float16, as matrix units take it."""
        if x.dtype == np.float16:
            return x
        y = self.intermediate_f16(*x.shape)
        self.store_f16(x, y)
        return y

    def intermediate_f16(self, *shape: int) -> Tensor:
        """An intermediate in float16, for matrix units alone."""
        return Tensor(shape, np.dtype(np.float16))

    def can_use_matrix_units(self, rows: int, linear: Linear, **layout: int) -> bool:
        """Whether matrix units take a product with this `layout` in vec4s: they need pairs of
        them, and store four outputs at a time."""
        if not self.matrix or rows <= MAX_SKINNY_ROWS:
            return False
        parts = linear.weight.parts or (linear.weight,)
        even = not any(value % 2 for value in layout.values())
        known = weights_of(parts[0]) in choices_of("gemm_matrix")["WEIGHTS"]
        return even and known and not any(part.shape[0] % 4 for part in parts)

    def gemm(
        self,
        x: Tensor,
        linear: Linear,
        y: Tensor,
        activation: Activation,
        add: Tensor | None,
        batch: int = 1,
        **layout: int,
    ) -> None:
        """Many rows: tiles in shared memory; `layout` has, in vec4s, where the rows of x begin.

        For a batch of windows x and y hold all windows, `add` one.
        """
        rows, offset, depth = y.shape[0], 0, 4 * layout["K4"]
        parts = linear.weight.parts or (linear.weight,)
        layout["X_LENGTH4"] = x.shape[0] // batch * x.shape[1] // 4
        matrix = self.matrix if self.can_use_matrix_units(rows, linear, **layout) else None
        if matrix:
            x, y.may_round_to_f16 = self.to_f16(x), True
            layout = {f"{name[:-1]}8": value // 2 for name, value in layout.items()}
        ends = {
            "BIAS": linear.bias is not None,
            "ADD": add is not None,
            "ACTIVATION": ACTIVATIONS.index(activation),
            **({"ITEM_ROWS": rows // batch} if batch > 1 else {}),
        }
        for part in parts:
            count = part.shape[0]
            if matrix:
                large = self.large_tiles
                shape, grid = matrix_tiles(rows, count, depth, self.thresholds, large=large)
            else:
                shape, grid = plain_tiles(rows, count, depth, self.thresholds)
            splits = grid[2]
            sums = y if splits == 1 else self.intermediate(splits, rows, count)
            self.dispatch(
                "gemm_matrix" if matrix else "gemm",
                [x, part, linear.bias, add, sums],
                grid,
                work=2.0 * rows * depth * count,
                ROWS=rows, OUTPUTS=count, OFFSET=offset if splits == 1 else 0,
                STRIDE=sums.shape[-1], SPLITS=splits, **ends, **layout, **shape,
                WEIGHTS=weights_of(part), **(matrix.parameters() if matrix else {}),
            )  # fmt: skip
            if splits > 1:
                self.dispatch(
                    "gemm_reduce", [sums, linear.bias, add, y], (ceil(count / 128), rows),
                    ROWS=rows, OUTPUTS=count, OFFSET=offset, STRIDE=y.shape[1], SPLITS=splits,
                    **ends,
                )  # fmt: skip
            offset += count


def matrix_tiles(
    rows: int, outputs: int, depth: int, thresholds: TileThresholds, *, large: bool = True
) -> Shape:
    """The tile of gemm_matrix, and its grid; large tiles only where they are allowed."""
    wide, enough = (ceil(outputs / 128), ceil(rows / 128)), thresholds.matrix_workgroups
    groups = wide[0] * wide[1]
    splits = max(1, min(MAX_SPLITS, ceil(enough / groups), depth // 1024))
    if large and groups * splits >= enough:
        return {"SUBGROUPS": 4}, (*wide, splits)
    return {"SUBGROUPS": 2}, (ceil(outputs / 64), ceil(rows / 64), 1)


def plain_tiles(rows: int, outputs: int, depth: int, thresholds: TileThresholds) -> Shape:
    """The tile of gemm, and its grid."""
    broad = ceil(outputs / 128), ceil(rows / 64)
    if broad[0] * broad[1] >= thresholds.broad_workgroups:
        return {"COLUMNS": 128}, (*broad, 1)
    narrow = ceil(outputs / 64), ceil(rows / 64)
    few = narrow[0] * narrow[1] < thresholds.narrow_workgroups
    splits = 3 if few and depth >= 1024 else 1
    return {"COLUMNS": 64}, (*narrow, splits)
