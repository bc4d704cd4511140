"""The op vocabulary on the GPU: the names of `ops.reference`; each call records dispatches.

Shapes and meaning: oscine.ops.Ops. Which kernel an op takes is decided here, unseen by models.
"""

from __future__ import annotations

from math import ceil

import numpy as np

from oscine.errors import DeviceError
from oscine.gpu.device import Device
from oscine.gpu.kernels import Parameter
from oscine.gpu.plan import Plan
from oscine.gpu.tensor import Tensor
from oscine.ops import Activation, Cache, Linear, Norm, State
from oscine.ops.gpu_codec import GpuCodec
from oscine.ops.gpu_conformer import GpuConformer
from oscine.ops.gpu_decisions import GpuDecisions
from oscine.ops.gpu_products import ACTIVATIONS, FEW_ROWS, GpuProducts, is_half
from oscine.ops.gpu_recorder import MOST_GROUPS
from oscine.ops.gpu_speech import GpuSpeech
from oscine.ops.gpu_transducer import GpuTransducer

GEMV_ROWS = 4  # up to so many rows a team takes one row of the weight
TILE_ROWS = 16  # of these a team takes at once
NARROW, BROAD = 2048, 4096  # outputs up to which such a team has many lanes, and some
SPLIT_KEYS = 128  # keys a workgroup of cross-attention takes: one an invocation
WORKGROUP = 128
BLOCK_WIDTH, BLOCK_ROWS = 1024, 2048  # rows at least so long and at most so many: a block's work
SUBGROUPS = 64  # invocations of a workgroup of subgroup teams
MATRIX_STORAGE, MATRIX_INVOCATIONS = 40960, 512  # that kernels for matrix units take of each
MATRIX_HEADS = (4, 8, 12, 16)  # widths in fours of the heads that attention_matrix takes
FOLD_OUTPUTS = 8192  # from more outputs on, the norm folded into each costs more than a dispatch


class Gpu(GpuProducts, GpuDecisions, GpuConformer, GpuTransducer, GpuSpeech, GpuCodec):
    """The vocabulary, recording; memory and plans of one device."""

    def __init__(self, device: Device) -> None:
        super().__init__(device)
        self.folds: dict[tuple[Tensor | None, ...], tuple[Tensor, Tensor]] = {}
        self.lists: dict[tuple[int, ...], Tensor] = {}
        self.block_teams = not device.adapter.software  # a CPU pays dearly for a barrier
        self.lanes = self.subgroup_size()
        limits = device.adapter.limits
        self.matrix = (
            "matrix" in device.features
            and self.lanes == 32
            and limits["max-compute-workgroup-storage-size"] >= MATRIX_STORAGE
            and limits["max-compute-invocations-per-workgroup"] >= MATRIX_INVOCATIONS
        )

    # -- what a kernel is given ---------------------------------------------------------------

    def head4(self, width: int, heads: int) -> int:
        """A head's width in fours; a workgroup has an invocation for each."""
        self.fours("head width", width // heads)
        if width // heads > 4 * WORKGROUP:
            raise DeviceError(
                f"{self.name}: head width {width // heads} is above {4 * WORKGROUP}, "
                "the most that kernels take; NumPy takes any"
            )
        return width // heads // 4

    def guarded(self) -> tuple[Tensor | None, dict[str, int]]:
        """The state that a kernel asks before it works, how many lines it has and how long."""
        if self.guard is None:
            return None, {"LINES": 0}
        rows: Tensor = self.guard.rows
        return rows, {"LINES": rows.shape[0], "STATE_WORDS": rows.dtype.itemsize // 4}

    def team(self, rows: int, width: int) -> tuple[dict[str, Parameter], tuple[int, ...]]:
        """Who works together on each of `rows` rows of `width` values: parameters and grid.

        A subgroup where there are rows for all of them; a whole workgroup, of several subgroups,
        where rows are long and few, to have enough loads under way. Measured: benchmarks/gemv.py.
        """
        if self.block == "workgroup":
            return {"TEAM": "workgroup"}, (min(rows, MOST_GROUPS),)
        if self.block_teams and width >= BLOCK_WIDTH and rows <= BLOCK_ROWS:
            return {"TEAM": "block", "WORKGROUP": WORKGROUP}, (min(rows, MOST_GROUPS),)
        workgroup = max(SUBGROUPS, self.lanes)
        groups = min(ceil(rows / (workgroup // self.lanes)), MOST_GROUPS)
        return {"TEAM": "subgroup", "WORKGROUP": workgroup}, (groups,)

    def neighbours(self, lines: int) -> int:
        """Lanes that share a key of attention. Several lines gain by loads that are side by side;
        one waits for its loads one after another, and the more so the fewer a lane has at once.
        """
        return 4 if lines > 1 and self.block == "subgroup" else 1

    def subgroup_size(self) -> int:
        """Asked of the hardware, since the adapter's word is not reliable."""
        if self.block == "workgroup":
            return WORKGROUP
        size = self.slot((4,))
        with self.recording(None) as dispatches:
            self.add("team_size", [size], (1,))
        Plan(self.device, self.pool, dispatches).run()
        return min(WORKGROUP, max(1, int(self.read(size)[0])))

    # -- layers -------------------------------------------------------------------------------

    def conv1d(
        self,
        x: Tensor,
        conv: Linear,
        *,
        stride: int = 1,
        activation: Activation = None,
        add: Tensor | None = None,
    ) -> Tensor:
        outputs, width, inputs = conv.weight.shape
        self.fours("convolution input width", inputs)
        rows = ceil(x.shape[0] / stride)
        y = self.new(rows, outputs)
        self.gemm(
            x, conv, y, activation, add,
            K4=width * inputs // 4, X_STRIDE4=stride * inputs // 4,
            X_BEGIN4=-(width // 2) * inputs // 4,
        )  # fmt: skip
        return y

    def layer_norm(self, x: Tensor, norm: Norm) -> Tensor:
        y = self.new(*x.shape)
        self.normalise(x, norm, y)
        return y

    def normalise(self, x: Tensor, norm: Norm, y: Tensor) -> None:
        """Layer normalisation into a tensor of float32, or of float16 for matrix units."""
        rows, width = x.shape
        self.fours("norm width", width)
        team, grid = self.team(rows, width)
        self.add(
            "layer_norm", [x, norm.weight, norm.bias, y], grid, work=8.0 * rows * width,
            ROWS=rows, WIDTH4=width // 4, STORE_HALF=is_half(y), **team,
        )  # fmt: skip

    def linear(
        self,
        x: Tensor,
        linear: Linear,
        *,
        norm: Norm | None = None,
        activation: Activation = None,
        add: Tensor | None = None,
    ) -> Tensor:
        rows, width = x.shape
        self.fours("linear input width", width)
        y = self.new(rows, linear.weight.shape[0])
        few = rows <= FEW_ROWS
        folds = rows == 1 or (few and rows > GEMV_ROWS)
        if norm is not None and (not folds or linear.weight.shape[0] > FOLD_OUTPUTS):
            matrix = self.on_matrix(rows, linear, K4=width // 4)
            normal = self.new_half(rows, width) if matrix else self.new(rows, width)
            self.normalise(x, norm, normal)
            x, norm = normal, None
        if rows <= GEMV_ROWS:
            self.gemv(x, linear, y, norm, activation, add)
        elif few:
            self.gemm_rows(x, linear, y, norm, activation, add)
        else:
            self.gemm(x, linear, y, activation, add, K4=width // 4, X_STRIDE4=width // 4)
        return y

    def gemv(
        self,
        x: Tensor,
        linear: Linear,
        y: Tensor,
        norm: Norm | None,
        activation: Activation,
        add: Tensor | None,
    ) -> None:
        """Few rows: one row of the weight a team."""
        (rows, width), offset = x.shape, 0
        gain, fold, bias = None, None, linear.bias
        if norm is not None:
            gain, (fold, bias) = norm.weight, self.folded(norm, linear)
        state, lines = self.guarded()
        for part in linear.weight.parts or (linear.weight,):
            count = part.shape[0]
            team, grid = self.team(count, width)
            self.add(
                "gemv",
                [x, gain, fold, part, bias, add, state, y],
                grid,
                work=8.0 * rows * width * count,  # fourfold: it waits for memory, not for sums
                ROWS=rows, K4=width // 4, OUTPUTS=count, OFFSET=offset, STRIDE=y.shape[1],
                NORM=norm is not None, BIAS=bias is not None, ADD=add is not None,
                ACTIVATION=ACTIVATIONS.index(activation), HALF=is_half(part), **lines, **team,
            )  # fmt: skip
            offset += count

    def gemm_rows(
        self,
        x: Tensor,
        linear: Linear,
        y: Tensor,
        norm: Norm | None,
        activation: Activation,
        add: Tensor | None,
    ) -> None:
        """A few dozen rows: some rows of the weight a team, read once for up to TILE_ROWS of x."""
        (rows, width), offset = x.shape, 0
        gain, fold, bias = None, None, linear.bias
        if norm is not None:
            gain, (fold, bias) = norm.weight, self.folded(norm, linear)
        state, lines = self.guarded()
        for part in linear.weight.parts or (linear.weight,):
            count = part.shape[0]
            shape = self.rows_team(rows, count, norm is not None)
            across = 4 * shape["WORKGROUP"] // shape["LANES"]
            self.add(
                "gemm_rows",
                [x, gain, fold, part, bias, add, state, y],
                (ceil(rows / shape["TILE"]), ceil(count / across)),
                work=8.0 * rows * width * count,
                ROWS=rows, K4=width // 4, OUTPUTS=count, OFFSET=offset,
                STRIDE=y.shape[1], NORM=norm is not None, BIAS=bias is not None,
                ADD=add is not None, ACTIVATION=ACTIVATIONS.index(activation), HALF=is_half(part),
                BLOCK="subgroup" if 8 <= self.lanes < WORKGROUP else "workgroup", **lines, **shape,
            )  # fmt: skip
            offset += count

    def rows_team(self, rows: int, outputs: int, norm: bool) -> dict[str, int]:
        """Rows of x that a team of gemm_rows takes, and its lanes: measured, benchmarks/gemv.py.

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

    def folded(self, norm: Norm, linear: Linear) -> tuple[Tensor, Tensor]:
        """W g and W h + b of a norm (g, h) before a linear layer, computed on first use: [out]."""
        key = norm.weight, norm.bias, linear.weight, linear.bias
        if key not in self.folds:
            outputs, width = linear.weight.shape
            found = self.slot((1, outputs)), self.slot((1, outputs))
            with self.recording(None) as dispatches:
                for vector, bias, slot in zip(
                    (norm.weight, norm.bias), (None, linear.bias), found, strict=True
                ):
                    row = Tensor((1, width), vector.dtype, vector.buffer)
                    self.gemv(row, Linear(linear.weight, bias), slot, None, None, None)
            Plan(self.device, self.pool, dispatches).run()
            self.folds[key] = found
        return self.folds[key]

    def attention(self, qkv: Tensor, heads: int) -> Tensor:
        length, width = qkv.shape[0], qkv.shape[1] // 3
        y = self.new(length, width)
        head4 = self.head4(width, heads)
        if qkv.rounded and head4 in MATRIX_HEADS:  # with float32 weights all is float32
            self.add(
                "attention_matrix", [self.halve(qkv), y], (ceil(length / 64), heads),
                work=4.0 * length**2 * width,
                ROWS=length, HEADS=heads, W8=head4 // 2, SCALE=scale_of(head4),
            )  # fmt: skip
            return y
        self.add(
            "attention",
            [qkv, y],
            (ceil(length / 64), heads, ceil(head4 / 16)),
            work=4.0 * length**2 * width,
            ROWS=length, HEADS=heads, W4=head4, SCALE=scale_of(head4),
        )  # fmt: skip
        return y

    def attend_self(self, qkv: Tensor, cache: Cache, state: State, heads: int) -> Tensor:
        rows, width = qkv.shape[0], qkv.shape[1] // 3
        lines, most = state.tokens.shape
        length, room, head4 = rows // lines, cache.keys.shape[1], self.head4(width, heads)
        y = self.new(rows, width)
        if length > 1:  # other rows' keys are needed before any row attends
            self.add(
                "append", [qkv, state.rows, cache.keys, cache.values],
                (ceil(width / 256), rows), L=length, WIDTH4=width // 4, MOST=most, ROOM=room,
            )  # fmt: skip
        self.add(
            "attend_self",
            [qkv, state.rows, cache.keys, cache.values, state.origins, y],
            (heads, rows),
            L=length, HEADS=heads, W4=head4, MOST=most, ROOM=room, APPEND=length == 1,
            ORIGINS=state.origins is not None, SCALE=scale_of(head4), BLOCK=self.block,
            NEIGHBOURS=self.neighbours(lines),
        )  # fmt: skip
        return y

    def attend_cross(self, q: Tensor, kv: Tensor, state: State, heads: int) -> Tensor:
        (rows, width), keys = q.shape, kv.shape[1]
        head4, splits = self.head4(width, heads), ceil(keys / SPLIT_KEYS)
        sums = self.new(rows, heads, splits, width // heads)
        marks = self.new(rows, heads, splits, 2)
        y, length = self.new(rows, width), rows // state.rows.shape[0]
        self.add(
            "attend_cross", [q, kv, kv, state.rows, sums, marks], (splits, heads, rows),
            work=4.0 * rows * keys * width, L=length, KEYS=keys, HEADS=heads, W4=head4,
            MOST=SPLIT_KEYS, SCALE=scale_of(head4), BLOCK=self.block, HALF=is_half(kv),
            NEIGHBOURS=self.neighbours(state.rows.shape[0]),
        )  # fmt: skip
        self.add(
            "attend_combine", [sums, marks, state.rows, y], (ceil(width / 256), rows),
            L=length, HEADS=heads, W4=head4, SPLITS=splits,
        )  # fmt: skip
        return y

    def cross_weights(
        self, q: Tensor, kv: Tensor, state: State, heads: int, chosen: tuple[int, ...]
    ) -> Tensor:
        (rows, width), keys = q.shape, kv.shape[1]
        head4, count = self.head4(width, heads), len(chosen)
        if chosen not in self.lists:
            self.lists[chosen] = self.upload(np.array(chosen, np.uint32))
        y = self.new(count, rows, keys)
        self.add(
            "cross_weights", [q, kv, state.rows, self.lists[chosen], y], (count, rows),
            work=4.0 * count * rows * keys * width // heads, L=rows // state.rows.shape[0],
            KEYS=keys, HEADS=heads, W4=head4, SCALE=scale_of(head4), BLOCK=self.block,
            HALF=is_half(kv),
        )  # fmt: skip
        return y

    def embed(
        self, table: Tensor, positions: Tensor, state: State, prompt: Tensor | None = None
    ) -> Tensor:
        lines, width = state.rows.shape[0], table.shape[1]
        self.fours("embedding width", width)
        length = 1 if prompt is None else prompt.shape[1]
        y, first = self.new(lines * length, width), 0
        for part in table.parts or (table,):
            self.add(
                "embed", [part, positions, state.rows, prompt, y],
                (ceil(width / 256), lines * length), L=length, WIDTH4=width // 4,
                PLACES=positions.shape[0], FIRST=first, COUNTED=part.shape[0],
                PROMPT=prompt is not None, HALF=is_half(part),
            )  # fmt: skip
            first += part.shape[0]
        return y

    def take_rows(self, x: Tensor, state: State) -> Tensor:
        lines, width = state.rows.shape[0], x.shape[1]
        y = self.new(2 * lines, width)
        self.add(
            "take_rows", [x, state.rows, y], (ceil(width / 256), 2 * lines),
            LINES=lines, L=x.shape[0] // lines, WIDTH4=width // 4,
        )  # fmt: skip
        return y


def scale_of(head4: int) -> str:
    """1/√W as WGSL."""
    return repr(float((4 * head4) ** -0.5))
