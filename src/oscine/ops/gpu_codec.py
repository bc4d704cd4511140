"""The ops of codecs, on the GPU. Shapes and meaning: oscine.ops.codec_ops.

No kernel is compiled for a number of rows: they ask the bindings for it. So calls of every length
share their kernels, and only the few shapes of a tile are chosen by length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, prod

from oscine.gpu.kernels import Parameter
from oscine.gpu.tensor import Tensor
from oscine.ops import Activation, Linear, Snake, Taps
from oscine.ops.codec_ops import check_columns, concat_shape, voices_of
from oscine.ops.gpu_products import ACTIVATIONS
from oscine.ops.gpu_recorder import MOST_GROUPS, WORKGROUP, Recorder, weights_of

PADDINGS = ("zero", "edge", "reflect")  # kernels/lengthen.wgsl
PARTS = "ABCD"  # that kernels/concat.wgsl takes at once
NARROW_OUTPUTS = 4  # up to so many, and where they are no fours, a team takes a row of the input
SHORT = 32  # rows up to which a team takes four rows of the weight
TILE_ROWS = 64
COLUMNS, SPLITS = (64, 96, 128), (1, 2, 3, 4, 6, 8, 12, 16)
SPLIT_DEPTH = 64  # of a sum, that a workgroup takes at least
PROCESSORS = 132  # of a large GPU
LARGE_WEIGHT4 = 1 << 20  # fours of a weight: 16 MiB, beyond what a cache keeps of it


class GpuCodec(Recorder):
    """Recording; shapes and meaning: oscine.ops.Ops."""

    lanes: int  # of a subgroup
    team: Callable[[int, int], tuple[dict[str, Parameter], tuple[int, ...]]]

    def convolve(
        self,
        x: Tensor,
        conv: Linear,
        taps: Taps,
        *,
        memory: Tensor | None = None,
        state: Tensor | None = None,
        activation: Activation = None,
        add: Tensor | None = None,
    ) -> Tensor:
        (outputs, *places, inputs), weight = conv.weight.shape, conv.weight
        width, (voices, count) = prod(places), voices_of(x, state, memory)
        self.fours("convolution input width", inputs)
        own, depth4 = taps.rows(count, width), width * inputs // 4
        seen, rows = self.lengthen(x, taps, memory, state), voices * own
        y = self.new(rows, outputs)
        ends: dict[str, Parameter] = {
            "OUTPUTS": outputs, "BIAS": conv.bias is not None, "ADD": add is not None,
            "ACTIVATION": ACTIVATIONS.index(activation),
        }  # fmt: skip
        skip4 = (taps.dilation - 1) * inputs // 4 if width > 1 else 0
        apart = seen.shape[0] != rows * taps.stride  # else all voices' rows begin at equal steps
        common: dict[str, Parameter] = {
            "K4": depth4, "TAP4": inputs // 4 if skip4 else 1, "SKIP4": skip4,
            "STEP4": taps.stride * inputs // 4, "VOICES": voices if apart else 1,
            "WEIGHTS": weights_of(weight), **ends,
        }  # fmt: skip
        operands, work = [seen, weight, conv.bias, add], 8.0 * rows * depth4 * outputs
        if outputs > NARROW_OUTPUTS and rows <= SHORT:
            tile, lanes = few(rows, outputs, depth4)
            grid = ceil(rows / tile), ceil(outputs / (4 * WORKGROUP // lanes))
            self.add(
                "convolve_rows", [*operands, y], grid, work=4.0 * work, TILE=tile, LANES=lanes,
                BLOCK=self.block if self.lanes >= 8 else "workgroup", **common,
            )  # fmt: skip
        elif outputs <= NARROW_OUTPUTS or outputs % 4:
            team, (teams, *_) = self.team(rows, 0)
            self.add(
                "convolve_narrow", [*operands, y], (teams, ceil(outputs / 4)), work=work,
                **common, **team,
            )  # fmt: skip
        else:
            columns, splits = tiles(rows, outputs, 4 * depth4)
            groups = ceil(outputs / columns), ceil(rows / TILE_ROWS), splits
            sums = y if splits == 1 else self.new(splits, rows, outputs)
            self.add(
                "convolve", [*operands, sums], groups, work=work, COLUMNS=columns, **common,
            )  # fmt: skip
            if splits > 1:
                self.add(
                    "convolve_sum", [sums, conv.bias, add, y], folded(ceil(rows * outputs / 512)),
                    work=1.0 * splits * rows * outputs, **ends,
                )  # fmt: skip
        return y

    def lengthen(
        self, x: Tensor, taps: Taps, memory: Tensor | None, state: Tensor | None
    ) -> Tensor:
        """What a convolution sees: x with rows on both sides; the memory moves on."""
        if taps.left == taps.right == 0:
            return x
        (voices, count), width, kept = voices_of(x, state, memory), x.shape[1], memory is not None
        own = taps.left + count + taps.right
        y, blocks = self.new(voices * own, width), ceil((own - taps.left * kept) / 64) + kept
        said = state if kept else x  # one stand-in cannot be what is read and what is written
        self.add(
            "lengthen", [x, memory, said, y], (ceil(width / 16), blocks, voices), LEFT=taps.left,
            WIDTH4=width // 4, MEMORY=kept, PADDING=0 if kept else PADDINGS.index(taps.padding),
        )  # fmt: skip
        return y

    def depthwise(self, x: Tensor, conv: Linear, memory: Tensor, state: Tensor) -> Tensor:
        (rows, width), taps = x.shape, conv.weight.shape[0]
        voices, _ = voices_of(x, state, memory)
        self.fours("convolution width", width)
        y = self.new(rows, width)
        self.add(
            "depthwise", [x, conv.weight, conv.bias, memory, state, y], (ceil(width / 8), voices),
            work=2.0 * rows * width * taps, TAPS=taps, LEFT=taps - 1, WIDTH4=width // 4,
            BIAS=conv.bias is not None,
        )  # fmt: skip
        return y

    def snake(self, x: Tensor, snake: Snake) -> Tensor:
        self.fours("width", x.shape[1])
        y = self.new(*x.shape)
        grid = folded(ceil(prod(x.shape) / 512))
        self.add("snake", [x, snake.scale, snake.gain, y], grid, WIDTH4=x.shape[1] // 4)
        return y

    def activate(self, x: Tensor, activation: Activation) -> Tensor:
        y = self.new(*x.shape)
        grid = folded(ceil(prod(x.shape) / 128))
        self.add("activate", [x, y], grid, ACTIVATION=ACTIVATIONS.index(activation))
        return y

    def concat(self, parts: Sequence[Tensor]) -> Tensor:
        rows, width = concat_shape([part.shape for part in parts])
        y, first4 = self.new(rows, width), 0
        for start in range(0, len(parts), len(PARTS)):
            taken = parts[start : start + len(PARTS)]
            widths: dict[str, Parameter] = {}
            for name, part in zip(PARTS, taken, strict=False):
                self.fours("width of a part", part.shape[1])
                width4 = part.shape[1] // 4
                widths |= {f"{name}4": width4, f"{name}_STEP4": width4 * (part.shape[0] == rows)}
            taken4 = sum(part.shape[1] for part in taken) // 4
            self.add(
                "concat", [*taken, *[None] * (len(PARTS) - len(taken)), y],
                folded(ceil(rows * taken4 / 128)), work=4.0 * rows * taken4, WIDTH4=width // 4,
                FIRST4=first4, **widths,
            )  # fmt: skip
            first4 += taken4
        return y

    def columns(self, x: Tensor, first: int, count: int, add: Tensor | None = None) -> Tensor:
        check_columns(x, first, count, add)
        for what, number in (("width", x.shape[1]), ("first column", first), ("columns", count)):
            self.fours(what, number)
        y = self.new(x.shape[0], count)
        self.add(
            "columns", [x, add, y], folded(ceil(prod(y.shape) / 512)), WIDTH4=x.shape[1] // 4,
            FIRST4=first // 4, COUNT4=count // 4, ADD=add is not None,
        )  # fmt: skip
        return y

    def look_up(self, codes: Tensor, tables: Tensor, first: int) -> Tensor:
        count, entries, width = tables.shape
        self.fours("codebook width", width)
        y = self.new(codes.shape[0], width)
        self.add(
            "look_up", [codes, tables, y], folded(ceil(prod(y.shape) / 512)), COUNT=count,
            ENTRIES=entries, FIRST=first, STRIDE=codes.shape[1], WIDTH4=width // 4,
        )  # fmt: skip
        return y

    def quantise(self, x: Tensor, table: Tensor, codes: Tensor, group: int) -> Tensor:
        (rows, width), entries = x.shape, table.shape[0]
        self.fours("codebook width", width)
        y = self.new(rows, width)
        self.add(
            "quantise", [x, table, codes, y], folded(rows), work=3.0 * rows * entries * width,
            ENTRIES=entries, WIDTH4=width // 4, GROUP=group, STRIDE=codes.shape[1],
        )  # fmt: skip
        return y

    def statistics(self, x: Tensor, scores: Tensor | None = None) -> Tensor:
        width = x.shape[1]
        self.fours("width", width)
        y = self.new(1, 2 * width)
        self.add(
            "statistics", [x, scores, y], (ceil(width / 16),), work=10.0 * prod(x.shape),
            WIDTH4=width // 4, SCORES=scores is not None,
        )  # fmt: skip
        return y

    def scale_channels(self, x: Tensor, factors: Tensor, add: Tensor | None = None) -> Tensor:
        self.fours("width", x.shape[1])
        y = self.new(*x.shape)
        self.add(
            "scale_channels", [x, factors, add, y], folded(ceil(prod(x.shape) / 512)),
            WIDTH4=x.shape[1] // 4, ADD=add is not None,
        )  # fmt: skip
        return y


def folded(groups: int) -> tuple[int, int]:
    """A grid of so many workgroups, or a few more."""
    across = min(groups, MOST_GROUPS)
    return across, ceil(groups / across)


def few(rows: int, outputs: int, depth4: int) -> tuple[int, int]:
    """Rows of convolve_rows' tiles, and lanes of its teams. Weights are read once for 16 rows where
    they are large; else teams that hold fewer sums are more at a time."""
    most = 16 if outputs * depth4 > LARGE_WEIGHT4 else 8
    return 4 if rows <= 4 else min(most, 8 if rows <= 8 else 16), WORKGROUP if depth4 > 96 else 32


def tiles(rows: int, outputs: int, depth: int) -> tuple[int, int]:
    """Columns of convolve's tiles, and into how many parts it splits its sums.

    By a rough account of microseconds on an H200: the workgroups of one processor in turn, then
    what the sums cost. benchmarks/codec.py measures it: 28 TFLOP/s at best.
    """

    def microseconds(way: tuple[int, int]) -> float:
        columns, splits = way
        groups = ceil(outputs / columns) * ceil(rows / TILE_ROWS) * splits
        turns = max(1.5, ceil(groups / PROCESSORS))  # one by itself waits for its loads
        sums = 2.5 + 2.7e-6 * splits * rows * outputs if splits > 1 else 0.0
        return turns * columns * (depth / splits + 32) / 2000 + sums

    splits = [count for count in SPLITS if count == 1 or depth // count >= SPLIT_DEPTH]
    return min(((columns, count) for columns in COLUMNS for count in splits), key=microseconds)
