"""The op vocabulary on the GPU: the names of `ops.reference`; each call records dispatches.

Shapes and meaning: oscine.ops.Ops. Which kernel an op takes is decided here, unseen by models.
"""

from __future__ import annotations

from math import ceil

import numpy as np

from oscine.errors import DeviceError
from oscine.gpu.device import Device
from oscine.gpu.plan import Plan
from oscine.gpu.tensor import Tensor
from oscine.ops import Activation, Cache, Linear, Norm, RmsNorm, State
from oscine.ops.gpu_codec import GpuCodec
from oscine.ops.gpu_conformer import GpuConformer
from oscine.ops.gpu_decisions import GpuDecisions
from oscine.ops.gpu_few_rows import GEMV_ROWS, GpuFewRows
from oscine.ops.gpu_products import ACTIVATIONS, FEW_ROWS, GpuProducts
from oscine.ops.gpu_recorder import MOST_GROUPS, WORKGROUP, is_half, weights_of
from oscine.ops.gpu_speech import GpuSpeech
from oscine.ops.gpu_transducer import GpuTransducer

SPLIT_KEYS = 128  # keys a workgroup of cross-attention takes: one an invocation
MATRIX_STORAGE, MATRIX_INVOCATIONS = 40960, 512  # that kernels for matrix units take of each
MATRIX_HEADS = (4, 8, 12, 16)  # widths in fours of the heads that attention_matrix takes


class Gpu(GpuFewRows, GpuProducts, GpuDecisions, GpuConformer, GpuTransducer, GpuSpeech, GpuCodec):
    """The vocabulary, recording; memory and plans of one device."""

    def __init__(self, device: Device) -> None:
        super().__init__(device)
        self.lists: dict[tuple[int, ...], Tensor] = {}
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
        batch: int = 1,
    ) -> Tensor:
        outputs, width, inputs = conv.weight.shape
        self.fours("convolution input width", inputs)
        rows = ceil(window_rows(x, batch) / stride)
        if add is not None and add.shape != (rows, outputs):
            raise ValueError(f"{add.shape} cannot be added to windows of {(rows, outputs)}")
        y = self.new(batch * rows, outputs)
        self.gemm(
            x, conv, y, activation, add, batch=batch,
            K4=width * inputs // 4, X_STRIDE4=stride * inputs // 4,
            X_BEGIN4=-(width // 2) * inputs // 4,
        )  # fmt: skip
        return y

    def layer_norm(self, x: Tensor, norm: Norm) -> Tensor:
        return self.normalise(x, norm, self.new(*x.shape))

    def rms_norm(self, x: Tensor, norm: RmsNorm) -> Tensor:
        return self.normalise(x, norm, self.new(*x.shape))

    def normalise(self, x: Tensor, norm: Norm | RmsNorm, y: Tensor) -> Tensor:
        """The norm of x, into y of float32, or of float16 for matrix units."""
        rows, width = x.shape
        self.fours("norm width", width)
        team, grid = self.team(rows, width)
        bias = [norm.bias] if isinstance(norm, Norm) else []
        self.add(
            "layer_norm" if bias else "rms_norm",
            [x, norm.weight, *bias, y],
            grid,
            work=8.0 * rows * width,
            ROWS=rows, WIDTH4=width // 4, EPS=norm.eps, STORE_HALF=is_half(y), **team,
        )  # fmt: skip
        return y

    def linear(
        self,
        x: Tensor,
        linear: Linear,
        *,
        norm: Norm | RmsNorm | None = None,
        activation: Activation = None,
        add: Tensor | None = None,
    ) -> Tensor:
        rows, width = x.shape
        self.fours("linear input width", width)
        y = self.new(rows, linear.weight.shape[0])
        if norm is not None and not self.fuses(norm, rows, linear):
            matrix = self.on_matrix(rows, linear, K4=width // 4)
            normal = self.new_half(rows, width) if matrix else self.new(rows, width)
            x, norm = self.normalise(x, norm, normal), None
        if rows <= GEMV_ROWS:
            self.gemv(x, linear, y, norm, activation, add)
        elif rows <= FEW_ROWS:
            self.gemm_rows(x, linear, y, norm, activation, add)
        else:
            self.gemm(x, linear, y, activation, add, K4=width // 4, X_STRIDE4=width // 4)
        return y

    def gated_linear(
        self, x: Tensor, linear: Linear, *, norm: Norm | RmsNorm | None = None
    ) -> Tensor:
        rows, width = x.shape[0], linear.weight.shape[0] // 2
        y = self.new(rows, width)
        if rows <= GEMV_ROWS and not linear.weight.parts:
            self.fours("linear input width", x.shape[1])
            if isinstance(norm, Norm):
                x, norm = self.layer_norm(x, norm), None
            self.gemv_pairs(x, Linear(linear.weight, None), y, norm, "silu", None, gated=True)
            return y
        self.fours("gated width", width)
        both = self.linear(x, linear, norm=norm)
        self.add(
            "gate", [both, y], (ceil(width / 256), min(rows, MOST_GROUPS)),
            ROWS=rows, WIDTH4=width // 4, ACTIVATION=ACTIVATIONS.index("silu"),
        )  # fmt: skip
        return y

    def attention(self, qkv: Tensor, heads: int, batch: int = 1) -> Tensor:
        length, width = window_rows(qkv, batch), qkv.shape[1] // 3
        y = self.new(batch * length, width)
        head4 = self.head4(width, heads)
        work = 4.0 * batch * length**2 * width
        if qkv.rounded and head4 in MATRIX_HEADS:  # with float32 weights all is float32
            self.add(
                "attention_matrix", [self.halve(qkv), y], (ceil(length / 64), heads, batch),
                work=work, ROWS=length, HEADS=heads, W8=head4 // 2, SCALE=scale_of(head4),
            )  # fmt: skip
            return y
        self.add(
            "attention",
            [qkv, y],
            (ceil(length / 64), heads, batch * ceil(head4 / 16)),
            work=work, ROWS=length, HEADS=heads, W4=head4, SCALE=scale_of(head4),
        )  # fmt: skip
        return y

    def attend_self(self, qkv: Tensor, cache: Cache, state: State, heads: int) -> Tensor:
        rows, width = qkv.shape[0], qkv.shape[1] // 3
        lines, most = state.rows.shape[0], state.tokens.shape[1]
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
            MOST=SPLIT_KEYS, SCALE=scale_of(head4), BLOCK=self.block, WEIGHTS=weights_of(kv),
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
            WEIGHTS=weights_of(kv),
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
                PROMPT=prompt is not None, WEIGHTS=weights_of(part),
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


def window_rows(x: Tensor, batch: int) -> int:
    """The rows of each window of a batch. Raises ValueError where they are not the same."""
    rows, rest = divmod(x.shape[0], batch)
    if rest:
        raise ValueError(f"{x.shape[0]} rows are not {batch} windows")
    return int(rows)


def scale_of(head4: int) -> str:
    """1/√W as WGSL."""
    return repr(float((4 * head4) ** -0.5))
