"""Convolutions on the GPU.

Kernels take the number of rows from the size of their bindings, so calls of every length share
them; only one of a few tile shapes is chosen by length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, prod

import numpy as np

from oscine.errors import DeviceError
from oscine.gpu.device import Device
from oscine.gpu.kernels import Parameter
from oscine.gpu.tensor import Tensor
from oscine.ops.reference.conv import added_to_each, sequences_of
from oscine.ops.types import Activation, ConvParams, Linear, SeqLengths
from oscine.ops.webgpu.gemm import ACTIVATIONS
from oscine.ops.webgpu.linear import GpuLinear
from oscine.ops.webgpu.recorder import WORKGROUP, grid2d, weights_of

PADDINGS = ("zero", "edge", "reflect")  # kernels/conv/pad.wgsl
MAX_NARROW_OUTPUTS = 4  # up to this many, or not a multiple of 4: a row of the input a subgroup
MAX_SKINNY_ROWS = 32  # rows up to which a subgroup takes four rows of the weight
TILE_ROWS = 64
COLUMNS, SPLITS = (64, 96, 128), (1, 2, 3, 4, 6, 8, 12, 16)
MIN_SPLIT_DEPTH = 64  # of the part of a sum that a workgroup takes
LARGE_GPU_SM_COUNT = 132  # of a large GPU
LARGE_WEIGHT4 = 1 << 20  # vec4s of a weight: 16 MiB, more than stays in a cache
TILE_BYTES = 64 << 20  # of the largest image of conv_subsampling, two of which are alive
GATED_ROWS = 64  # of 16 columns in shared memory
GATED_FRAMES = 32  # results of a workgroup of these


def skinny_tile(rows: int, outputs: int, depth4: int) -> tuple[int, int]:
    """Rows of a tile of conv1d_skinny, and lanes a tile. Large weights are read once for 16 rows;
    otherwise smaller tiles let more workgroups run at a time."""
    most = 16 if outputs * depth4 > LARGE_WEIGHT4 else 8
    return 4 if rows <= 4 else min(most, 8 if rows <= 8 else 16), WORKGROUP if depth4 > 96 else 32


def tiles(rows: int, outputs: int, depth: int) -> tuple[int, int]:
    """Columns of the tiles of conv1d, and the number of parts of its sums.

    Chosen by a rough model of microseconds on an H200: the workgroups of one processor one after
    another, then the reduction of the parts. Measured by benchmarks/codec.py: at most 28 TFLOP/s.
    """

    def microseconds(way: tuple[int, int]) -> float:
        columns, splits = way
        groups = ceil(outputs / columns) * ceil(rows / TILE_ROWS) * splits
        turns = max(1.5, ceil(groups / LARGE_GPU_SM_COUNT))  # a single one waits for its loads
        sums = 2.5 + 2.7e-6 * splits * rows * outputs if splits > 1 else 0.0
        return turns * columns * (depth / splits + 32) / 2000 + sums

    splits = [count for count in SPLITS if count == 1 or depth // count >= MIN_SPLIT_DEPTH]
    return min(((columns, count) for columns in COLUMNS for count in splits), key=microseconds)


@dataclass(frozen=True, slots=True)
class SubsamplingTiles:
    """A conv_subsampling in tiles of `tile_frames` encoder frames of `tile_sequences` sequences."""

    mel: Tensor
    lengths: SeqLengths
    first: Linear
    layers: Sequence[tuple[Linear, Linear]]
    widths: Sequence[int]  # of the mel, of the first image, and so on
    output: Tensor  # [B·T·F', C]: the last depthwise image
    tile_frames: int
    tile_sequences: int


def tile_shape(batch: int, rows: int, widths: Sequence[int], channels: int) -> tuple[int, int]:
    """Encoder frames, and sequences, of a tile of conv_subsampling."""
    level = 1 << len(widths) - 3  # rows of the first image that is written, to an encoder frame
    if level == 1:
        return rows, batch  # that image is the whole
    max_rows = TILE_BYTES // (4 * level * widths[2] * channels)
    if rows < max_rows:
        return rows, min(batch, max_rows // (rows + 1))
    return max(1, max_rows - 1), 1


class GpuConv(GpuLinear):
    """Records the ops of oscine.ops.reference.conv, which has their definitions."""

    def __init__(self, device: Device) -> None:
        super().__init__(device)
        self.constants: dict[tuple[int, ...], Tensor] = {}

    def conv1d(
        self,
        x: Tensor,
        conv: Linear,
        params: ConvParams,
        *,
        batch: int = 1,
        memory: Tensor | None = None,
        state: Tensor | None = None,
        activation: Activation = None,
        add: Tensor | None = None,
    ) -> Tensor:
        outputs, *kernel, inputs = conv.weight.shape
        self.check_multiple_of_4("convolution input width", inputs)
        width, (sequences, count) = prod(kernel), sequences_of(x, state, memory, batch)
        rows = params.rows(count, width)
        same = memory is None and params.is_same(width)
        shared = added_to_each(add, (sequences, rows), outputs, same)
        if same and (shared or add is None or sequences == 1):
            y = self.intermediate(sequences * rows, outputs)
            self.gemm(
                x, conv, y, activation, add, batch=sequences,
                K4=width * inputs // 4, X_STRIDE4=params.stride * inputs // 4,
                X_BEGIN4=-(width // 2) * inputs // 4,
            )  # fmt: skip
            return y
        return self.conv1d_tiles(x, conv, params, (sequences, rows), memory, state, activation, add)

    def conv1d_tiles(
        self,
        x: Tensor,
        conv: Linear,
        params: ConvParams,
        counts: tuple[int, int],
        memory: Tensor | None,
        state: Tensor | None,
        activation: Activation,
        add: Tensor | None,
    ) -> Tensor:
        """A convolution whose input is padded first; counts: sequences, and results of each."""
        (outputs, *kernel, inputs), weight = conv.weight.shape, conv.weight
        width, (sequences, own) = prod(kernel), counts
        depth4 = width * inputs // 4
        padded, rows = self.pad(x, params, sequences, memory, state), sequences * own
        y = self.intermediate(rows, outputs)
        ends: dict[str, Parameter] = {
            "OUTPUTS": outputs, "BIAS": conv.bias is not None, "ADD": add is not None,
            "ACTIVATION": ACTIVATIONS.index(activation),
        }  # fmt: skip
        skip4 = (params.dilation - 1) * inputs // 4 if width > 1 else 0
        apart = (
            padded.shape[0] != rows * params.stride
        )  # else the rows of all sequences begin at equal steps
        common: dict[str, Parameter] = {
            "K4": depth4, "TAP4": inputs // 4 if skip4 else 1, "SKIP4": skip4,
            "STEP4": params.stride * inputs // 4, "SEQUENCES": sequences if apart else 1,
            "WEIGHTS": weights_of(weight), **ends,
        }  # fmt: skip
        operands, work = [padded, weight, conv.bias, add], 8.0 * rows * depth4 * outputs
        if outputs > MAX_NARROW_OUTPUTS and rows <= MAX_SKINNY_ROWS:
            tile, lanes = skinny_tile(rows, outputs, depth4)
            grid = ceil(rows / tile), ceil(outputs / (4 * WORKGROUP // lanes))
            self.dispatch(
                "conv1d_skinny", [*operands, y], grid, work=4.0 * work, TILE=tile, LANES=lanes,
                WORKGROUP_REDUCE=self.workgroup_reduce if self.lanes >= 8 else "shared", **common,
            )  # fmt: skip
        elif outputs <= MAX_NARROW_OUTPUTS or outputs % 4:
            reduce, (across, *_) = self.row_reduce(rows, 0)
            self.dispatch(
                "conv1d_narrow", [*operands, y], (across, ceil(outputs / 4)), work=work,
                **common, **reduce,
            )  # fmt: skip
        else:
            columns, splits = tiles(rows, outputs, 4 * depth4)
            groups = ceil(outputs / columns), ceil(rows / TILE_ROWS), splits
            sums = y if splits == 1 else self.intermediate(splits, rows, outputs)
            self.dispatch(
                "conv1d", [*operands, sums], groups, work=work, COLUMNS=columns, **common,
            )  # fmt: skip
            if splits > 1:
                self.dispatch(
                    "conv1d_reduce", [sums, conv.bias, add, y], grid2d(ceil(rows * outputs / 512)),
                    work=1.0 * splits * rows * outputs, **ends,
                )  # fmt: skip
        return y

    def pad(
        self,
        x: Tensor,
        params: ConvParams,
        sequences: int,
        memory: Tensor | None,
        state: Tensor | None,
    ) -> Tensor:
        """x padded in time, on the left from the memory where there is one, which is updated."""
        if params.left == params.right == 0:
            return x
        count, width, kept = x.shape[0] // sequences, x.shape[1], memory is not None
        own = params.left + count + params.right
        y, blocks = (
            self.intermediate(sequences * own, width),
            ceil((own - params.left * kept) / 64) + kept,
        )
        bound = state if kept else x  # one buffer cannot be bound for reading and for writing
        self.dispatch(
            "pad", [x, memory, bound, y], (ceil(width / 16), blocks, sequences), LEFT=params.left,
            WIDTH4=width // 4, MEMORY=kept, PADDING=0 if kept else PADDINGS.index(params.padding),
        )  # fmt: skip
        return y

    def depthwise(self, x: Tensor, conv: Linear, memory: Tensor, state: Tensor) -> Tensor:
        (rows, width), taps = x.shape, conv.weight.shape[0]
        sequences, _ = sequences_of(x, state, memory)
        self.check_multiple_of_4("convolution width", width)
        y = self.intermediate(rows, width)
        self.dispatch(
            "depthwise", [x, conv.weight, conv.bias, memory, state, y],
            (ceil(width / 8), sequences),
            work=2.0 * rows * width * taps, TAPS=taps, LEFT=taps - 1, WIDTH4=width // 4,
            BIAS=conv.bias is not None,
        )  # fmt: skip
        return y

    def conv_subsampling(
        self,
        mel: Tensor,
        lengths: SeqLengths,
        first: Linear,
        layers: Sequence[tuple[Linear, Linear]],
    ) -> Tensor:
        batch, (_, mels), channels = lengths.frames.shape[0], mel.shape, first.weight.shape[-1]
        self.check_multiple_of_4("subsampling channels", channels)
        if not layers or any(c.bias is None for c in (first, *(pair[0] for pair in layers))):
            raise DeviceError(
                f"{self.name}: subsampling needs a factor of 4 or more, and biases, as kernels "
                "have it; NumPy takes any"
            )
        widths = [mels]
        for _ in range(1 + len(layers)):
            widths.append(ceil(widths[-1] / 2))
        rows = -(-(mel.shape[0] // batch) >> 1 + len(layers))
        whole = self.intermediate(batch * rows * widths[-1], channels)
        step, together = tile_shape(batch, rows, widths, channels)
        tiling = SubsamplingTiles(mel, lengths, first, layers, widths, whole, step, together)
        for b in range(0, batch, together):
            for start in range(0, rows, step):
                self.subsample_tile(tiling, self.constant(b, start))
        y = self.linear(whole, layers[-1][1], activation="relu")
        y.shape = (batch * rows, widths[-1] * channels)
        return y

    def constant(self, *numbers: int) -> Tensor:
        """A constant of a few numbers, uploaded once."""
        if numbers not in self.constants:
            self.constants[numbers] = self.upload(np.array(numbers, np.uint32))
        return self.constants[numbers]

    def subsample_tile(self, tiling: SubsamplingTiles, origin: Tensor) -> None:
        """Record the images of a tile that begins at origin, (sequence, encoder frame)."""
        batch, (entries, channels) = tiling.lengths.frames.shape[0], tiling.output.shape
        x, widths = tiling.mel, tiling.widths
        for stage, (depthwise, _) in enumerate(tiling.layers, 1):
            level = 1 << len(tiling.layers) - stage
            count, width = level * tiling.tile_frames + level - 1, widths[stage + 1]
            size = tiling.tile_sequences * count * width
            y = tiling.output if level == 1 else self.intermediate(size, channels)
            grid = (ceil(width * channels / 256), count, tiling.tile_sequences)
            taps = [depthwise.weight, depthwise.bias, tiling.lengths.frames, origin, y]
            common = {
                "BATCH": batch, "WIDTH": width, "C4": channels // 4, "COUNT": count,
                "LEVEL": level, "ROWS": entries // (batch * widths[-1]),
            }  # fmt: skip
            if stage == 1:
                self.dispatch(
                    "conv_subsampling_first",
                    [x, tiling.first.weight, tiling.first.bias, *taps], grid,
                    work=200.0 * size * channels, N=x.shape[0] // batch, MELS=widths[0],
                    BETWEEN=widths[1], **common,
                )  # fmt: skip
            else:
                x = self.linear(x, tiling.layers[stage - 2][1], activation="relu")
                self.dispatch(
                    "conv_subsampling_layer", [x, *taps], grid, work=20.0 * size * channels,
                    PER=1 << stage, BEFORE=widths[stage], **common,
                )  # fmt: skip
            x = y

    def conformer_conv(self, x: Tensor, conv: Linear, lengths: SeqLengths) -> Tensor:
        batch, (taps, width) = lengths.frames.shape[0], conv.weight.shape
        self.check_multiple_of_4("convolution width", width)
        rows = x.shape[0] // batch
        frames = min(GATED_FRAMES, GATED_ROWS + 1 - taps)
        if frames < 1:
            raise DeviceError(
                f"{self.name}: a convolution over {taps} frames is above {GATED_ROWS}, the most "
                "that kernels take; NumPy takes any"
            )
        y = self.intermediate(batch * rows, width)
        self.dispatch(
            "conformer_conv", [x, conv.weight, conv.bias, lengths.frames, y],
            (ceil(width / 64), ceil(rows / frames), batch),
            work=8.0 * batch * rows * width * taps, ROWS=rows, WIDTH4=width // 4, TAPS=taps,
            FRAMES=frames, PER=lengths.frames_per_row, BIAS=conv.bias is not None,
        )  # fmt: skip
        return y
