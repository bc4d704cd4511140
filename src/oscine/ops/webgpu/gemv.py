"""Products of few rows on the GPU: norms are fused, and each weight is read once."""

from __future__ import annotations

from math import ceil

from oscine.gpu.device import Device
from oscine.gpu.kernels import Parameter
from oscine.gpu.plan import Plan
from oscine.gpu.tensor import Tensor
from oscine.ops.types import Activation, LayerNorm, Linear, RmsNorm
from oscine.ops.webgpu.gemm import ACTIVATIONS, FEW_ROWS
from oscine.ops.webgpu.recorder import MAX_WORKGROUPS, WORKGROUP, Recorder, weights_of

GEMV_ROWS = 4  # up to so many rows a team takes one row of the weight
TILE_ROWS = 16  # of these a team takes at once
NARROW, BROAD = 2048, 4096  # outputs up to which such a team has many lanes, and some
LONG_ROW, MAX_LONG_ROWS = 1024, 2048  # rows at least so long and at most so many: a block's work
SUBGROUPS = 64  # invocations of a workgroup of subgroup teams
FOLD_OUTPUTS = 8192  # from more outputs on, the norm folded into each costs more than a dispatch


class Gemv(Recorder):
    """`gemv` and `gemm_skinny`, which `linear` stands on, and teams, which other kernels have
    too."""

    lanes = 1  # of a subgroup

    def __init__(self, device: Device) -> None:
        super().__init__(device)
        self.folds: dict[tuple[Tensor | None, ...], tuple[Tensor, Tensor]] = {}
        self.workgroup_rows = not device.adapter.software  # a CPU pays dearly for a barrier

    def guarded(self) -> tuple[Tensor | None, dict[str, int]]:
        """The state that a kernel asks before it works, how many lines it has and how long."""
        if self.guard is None:
            return None, {"LINES": 0}
        rows = self.guard
        return rows, {"LINES": rows.shape[0], "WORDS": rows.dtype.itemsize // 4}

    def row_reduce(self, rows: int, width: int) -> tuple[dict[str, Parameter], tuple[int, ...]]:
        """Who works together on each of `rows` rows of `width` values: parameters and grid.

        A subgroup where there are rows for all of them; a whole workgroup, of several subgroups,
        where rows are long and few, to have enough loads under way. Measured: benchmarks/gemv.py.
        """
        if self.workgroup_reduce == "shared":
            return {"ROW_REDUCE": "shared"}, (min(rows, MAX_WORKGROUPS),)
        if self.workgroup_rows and width >= LONG_ROW and rows <= MAX_LONG_ROWS:
            return {"ROW_REDUCE": "workgroup", "WORKGROUP": WORKGROUP}, (min(rows, MAX_WORKGROUPS),)
        workgroup = max(SUBGROUPS, self.lanes)
        groups = min(ceil(rows / (workgroup // self.lanes)), MAX_WORKGROUPS)
        return {"ROW_REDUCE": "subgroup", "WORKGROUP": workgroup}, (groups,)

    def fuses(self, norm: LayerNorm | RmsNorm, rows: int, linear: Linear) -> bool:
        """Whether a product takes its norm with it."""
        if isinstance(norm, RmsNorm) and rows <= GEMV_ROWS:
            return True
        folds = rows == 1 or GEMV_ROWS < rows <= FEW_ROWS
        return folds and linear.weight.shape[0] <= FOLD_OUTPUTS

    def gemv(
        self,
        x: Tensor,
        linear: Linear,
        y: Tensor,
        norm: LayerNorm | RmsNorm | None,
        activation: Activation,
        add: Tensor | None,
    ) -> None:
        """Few rows: one row of the weight a team, or two."""
        if isinstance(norm, RmsNorm) or (norm is None and weights_of(linear.weight) == "bf16"):
            offset = 0
            for part in linear.weight.parts or (linear.weight,):
                self.gemv_gated(x, Linear(part, linear.bias), y, norm, activation, add, offset)
                offset += part.shape[0]
            return
        (rows, width), offset = x.shape, 0
        gain, fold, bias = None, None, linear.bias
        if norm is not None:
            gain, (fold, bias) = norm.weight, self.fold_norm(norm, linear)
        state, lines = self.guarded()
        for part in linear.weight.parts or (linear.weight,):
            count = part.shape[0]
            reduce, grid = self.row_reduce(count, width)
            self.dispatch(
                "gemv",
                [x, gain, fold, part, bias, add, state, y],
                grid,
                work=8.0 * rows * width * count,  # fourfold: it waits for memory, not for sums
                ROWS=rows, K4=width // 4, OUTPUTS=count, OFFSET=offset, STRIDE=y.shape[1],
                NORM=norm is not None, EPS=eps_of(norm), BIAS=bias is not None,
                ADD=add is not None, ACTIVATION=ACTIVATIONS.index(activation),
                WEIGHTS=weights_of(part), **lines, **reduce,
            )  # fmt: skip
            offset += count

    def gemv_gated(
        self,
        x: Tensor,
        linear: Linear,
        y: Tensor,
        norm: RmsNorm | None,
        activation: Activation,
        add: Tensor | None,
        offset: int = 0,
        gated: bool = False,
    ) -> None:
        """Few rows: two rows of the weight a team, gated those of a gate and of what it lets by."""
        (rows, width), weight, bias = x.shape, linear.weight, linear.bias
        outputs = weight.shape[0] // 2 if gated else weight.shape[0]
        kind, (state, lines) = weights_of(weight), self.guarded()
        reduce, grid = self.row_reduce(outputs if gated else ceil(outputs / 2), width)
        self.dispatch(
            "gemv_gated",
            [x, None if norm is None else norm.weight, weight, bias, add, state, y],
            grid,
            work=8.0 * rows * width * weight.shape[0],
            ROWS=rows, K4=width // 4, OUTPUTS=outputs, OFFSET=offset, STRIDE=y.shape[1],
            RMS=norm is not None, EPS=eps_of(norm), GATED=gated, BIAS=bias is not None,
            ADD=add is not None, ACTIVATION=ACTIVATIONS.index(activation), WEIGHTS=kind,
            LOAD="four" if kind == "f32" or width % 8 else "eight", **lines, **reduce,
        )  # fmt: skip

    def gemm_skinny(
        self,
        x: Tensor,
        linear: Linear,
        y: Tensor,
        norm: LayerNorm | RmsNorm | None,
        activation: Activation,
        add: Tensor | None,
    ) -> None:
        """A few dozen rows: some rows of the weight a team, read once for up to TILE_ROWS of x."""
        (rows, width), offset = x.shape, 0
        gain, fold, bias = None if norm is None else norm.weight, None, linear.bias
        if isinstance(norm, LayerNorm):
            fold, bias = self.fold_norm(norm, linear)
        state, lines = self.guarded()
        for part in linear.weight.parts or (linear.weight,):
            count = part.shape[0]
            shape = self.skinny_shape(rows, count, norm is not None)
            across = 4 * shape["WORKGROUP"] // shape["LANES"]
            self.dispatch(
                "gemm_skinny",
                [x, gain, fold, part, bias, add, state, y],
                (ceil(rows / shape["TILE"]), ceil(count / across)),
                work=8.0 * rows * width * count,
                ROWS=rows, K4=width // 4, OUTPUTS=count, OFFSET=offset,
                STRIDE=y.shape[1], NORM=norm is not None, RMS=isinstance(norm, RmsNorm),
                EPS=eps_of(norm), BIAS=bias is not None,
                ADD=add is not None, ACTIVATION=ACTIVATIONS.index(activation),
                WEIGHTS=weights_of(part),
                WORKGROUP_REDUCE="subgroup" if 8 <= self.lanes < WORKGROUP else "shared",
                **lines, **shape,
            )  # fmt: skip
            offset += count

    def skinny_shape(self, rows: int, outputs: int, norm: bool) -> dict[str, int]:
        """Rows of x that a team of gemm_skinny takes, and its lanes: measured, benchmarks/gemv.py.

        Many lanes where outputs are few. A norm wants a team for every four rows of x.
        """
        if outputs > BROAD:
            most, lanes, workgroup = TILE_ROWS, 32, 128
        elif outputs > NARROW:
            most, lanes, workgroup = TILE_ROWS, 64, 256
        else:
            most, lanes, workgroup = (8, 64, 128) if norm else (TILE_ROWS, 128, 128)
        tile = ceil(rows / ceil(rows / most))
        return {"TILE": tile, "LANES": lanes, "WORKGROUP": workgroup}

    def fold_norm(self, norm: LayerNorm, linear: Linear) -> tuple[Tensor, Tensor]:
        """W g and W h + b of a norm (g, h) before a linear layer, computed on first use: [out]."""
        key = norm.weight, norm.bias, linear.weight, linear.bias
        if key not in self.folds:
            outputs, width = linear.weight.shape
            found = self.zeros((1, outputs)), self.zeros((1, outputs))
            with self.recording(None) as dispatches:
                for vector, bias, slot in zip(
                    (norm.weight, norm.bias), (None, linear.bias), found, strict=True
                ):
                    row = Tensor((1, width), vector.dtype, vector.buffer)
                    self.gemv(row, Linear(linear.weight, bias), slot, None, None, None)
            Plan(self.device, self.pool, dispatches).run()
            self.folds[key] = found
        return self.folds[key]


def eps_of(norm: LayerNorm | RmsNorm | None) -> float:
    """What keeps a norm from dividing by nothing; of no norm any number."""
    return 0.0 if norm is None else norm.eps
