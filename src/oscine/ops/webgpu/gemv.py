"""Products of few rows on the GPU, with fused norms; each weight is read once."""

from __future__ import annotations

from math import ceil

from oscine.gpu.device import Device
from oscine.gpu.kernels import Parameter
from oscine.gpu.plan import Plan
from oscine.gpu.tensor import Tensor
from oscine.ops.types import Activation, LayerNorm, Linear, RmsNorm
from oscine.ops.webgpu.gemm import ACTIVATIONS, MAX_SKINNY_ROWS
from oscine.ops.webgpu.recorder import MAX_WORKGROUPS, WORKGROUP, Recorder, weights_of

MAX_GEMV_ROWS = 4  # up to this many rows, gemv: a row of the weight a subgroup
MAX_TILE_ROWS = 16  # of x in a tile of gemm_skinny
LONG_ROW = 1024  # rows this long may be a workgroup's
SUBGROUPS = 64  # invocations of a workgroup of which each subgroup has a row
#: Weights of which two rows a subgroup are faster: of fewer bytes than the x that they meet.
PAIRED_DTYPES = ("bf16", "q8", "q4")
FOLD_OUTPUTS = 8192  # with more outputs a folded norm is slower than a dispatch of its own


class Gemv(Recorder):
    """`gemv` and `gemm_skinny`, which `linear` stands on, and row reductions, which other kernels
    use too."""

    lanes = 1  # of a subgroup

    def __init__(self, device: Device) -> None:
        super().__init__(device)
        self.folds: dict[tuple[Tensor | None, ...], tuple[Tensor, Tensor]] = {}
        self.workgroup_rows = not device.adapter.software  # barriers are slow on a CPU

    def early_exit_state(self) -> tuple[Tensor | None, dict[str, int]]:
        """The state rows by which a kernel skips finished plans, and their number and length."""
        if self.until is None:
            return None, {"LINES": 0}
        rows = self.until
        return rows, {"LINES": rows.shape[0], "WORDS": rows.dtype.itemsize // 4}

    def row_reduce(self, rows: int, width: int) -> tuple[dict[str, Parameter], tuple[int, ...]]:
        """Parameters and grid for sums over `rows` rows of `width` values.

        A subgroup a row where there are many rows; a workgroup of several subgroups a row where
        rows are long and few, for more loads in flight. Measured by benchmarks/gemv.py.
        """
        if self.workgroup_reduce == "shared":
            return {"ROW_REDUCE": "shared"}, (min(rows, MAX_WORKGROUPS),)
        few = rows <= self.thresholds.workgroup_rows
        if self.workgroup_rows and width >= LONG_ROW and few:
            return {"ROW_REDUCE": "workgroup", "WORKGROUP": WORKGROUP}, (min(rows, MAX_WORKGROUPS),)
        workgroup = max(SUBGROUPS, self.lanes)
        groups = min(ceil(rows / (workgroup // self.lanes)), MAX_WORKGROUPS)
        return {"ROW_REDUCE": "subgroup", "WORKGROUP": workgroup}, (groups,)

    def can_fuse_norm(self, norm: LayerNorm | RmsNorm, rows: int, linear: Linear) -> bool:
        """Whether a product computes its norm itself."""
        if isinstance(norm, RmsNorm) and rows <= MAX_GEMV_ROWS:
            return True
        folds = rows == 1 or MAX_GEMV_ROWS < rows <= MAX_SKINNY_ROWS
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
        """Few rows: one row of the weight, or two, a subgroup or workgroup."""
        narrow = weights_of(linear.weight) in PAIRED_DTYPES
        if isinstance(norm, RmsNorm) or (norm is None and narrow):
            offset = 0
            for part in linear.weight.parts or (linear.weight,):
                self.gemv_gated(x, Linear(part, linear.bias), y, norm, activation, add, offset)
                offset += part.shape[0]
            return
        (rows, width), offset = x.shape, 0
        gain, fold, bias = None, None, linear.bias
        if norm is not None:
            gain, (fold, bias) = norm.weight, self.fold_norm(norm, linear)
        state, early_exit = self.early_exit_state()
        for part in linear.weight.parts or (linear.weight,):
            count = part.shape[0]
            reduce, grid = self.row_reduce(count, width)
            self.dispatch(
                "gemv",
                [x, gain, fold, part, bias, add, state, y],
                grid,
                work=8.0 * rows * width * count,  # fourfold: bound by memory
                ROWS=rows, K4=width // 4, OUTPUTS=count, OFFSET=offset, STRIDE=y.shape[1],
                NORM=norm is not None, EPS=eps_of(norm), BIAS=bias is not None,
                ADD=add is not None, ACTIVATION=ACTIVATIONS.index(activation),
                WEIGHTS=weights_of(part), **early_exit, **reduce,
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
        """Few rows: two rows of the weight a subgroup; gated: the rows of gate and value of an
        output."""
        (rows, width), weight, bias = x.shape, linear.weight, linear.bias
        outputs = weight.shape[0] // 2 if gated else weight.shape[0]
        kind, (state, early_exit) = weights_of(weight), self.early_exit_state()
        reduce, grid = self.row_reduce(outputs if gated else ceil(outputs / 2), width)
        self.dispatch(
            "gemv_gated",
            [x, None if norm is None else norm.weight, weight, bias, add, state, y],
            grid,
            work=8.0 * rows * width * weight.shape[0],
            ROWS=rows, K4=width // 4, OUTPUTS=outputs, OFFSET=offset, STRIDE=y.shape[1],
            RMS=norm is not None, EPS=eps_of(norm), GATED=gated, BIAS=bias is not None,
            ADD=add is not None, ACTIVATION=ACTIVATIONS.index(activation), WEIGHTS=kind,
            LOAD="eight" if kind in ("f16", "bf16") and width % 8 == 0 else "four",
            **early_exit, **reduce,
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
        """A few dozen rows: rows of the weight are read once for up to MAX_TILE_ROWS of x."""
        (rows, width), offset = x.shape, 0
        gain, fold, bias = None if norm is None else norm.weight, None, linear.bias
        if isinstance(norm, LayerNorm):
            fold, bias = self.fold_norm(norm, linear)
        state, early_exit = self.early_exit_state()
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
                **early_exit, **shape,
            )  # fmt: skip
            offset += count

    def skinny_shape(self, rows: int, outputs: int, norm: bool) -> dict[str, int]:
        """Rows of x and lanes of a tile of gemm_skinny, as measured by benchmarks/gemv.py.

        Many lanes where there are few outputs; smaller tiles with a norm.
        """
        if outputs > self.thresholds.broad_outputs:
            max_rows, lanes, workgroup = MAX_TILE_ROWS, 32, 128
        elif outputs > self.thresholds.narrow_outputs:
            max_rows, lanes, workgroup = MAX_TILE_ROWS, 64, 256
        else:
            max_rows, lanes, workgroup = (8, 64, 128) if norm else (MAX_TILE_ROWS, 128, 128)
        tile = ceil(rows / ceil(rows / max_rows))
        return {"TILE": tile, "LANES": lanes, "WORKGROUP": workgroup}

    def fold_norm(self, norm: LayerNorm, linear: Linear) -> tuple[Tensor, Tensor]:
        """W g and W h + b of a norm (g, h) before a linear layer, computed on first use: [out]."""
        key = norm.weight, norm.bias, linear.weight, linear.bias
        if key not in self.folds:
            outputs, width = linear.weight.shape
            folded = self.zeros((1, outputs)), self.zeros((1, outputs))
            with self.recording(None) as dispatches:
                for vector, bias, slot in zip(
                    (norm.weight, norm.bias), (None, linear.bias), folded, strict=True
                ):
                    row = Tensor((1, width), vector.dtype, vector.buffer)
                    self.gemv(row, Linear(linear.weight, bias), slot, None, None, None)
            Plan(self.device, self.pool, dispatches).run()
            self.folds[key] = folded
        return self.folds[key]


def eps_of(norm: LayerNorm | RmsNorm | None) -> float:
    """The epsilon of a norm, or 0 where there is no norm."""
    return 0.0 if norm is None else norm.eps
