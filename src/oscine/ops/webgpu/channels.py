"""Activations, concatenation, slices and pooling on the GPU."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod

from oscine.gpu.kernels import Parameter
from oscine.gpu.tensor import Tensor
from oscine.ops.reference.channels import check_columns, concat_shape
from oscine.ops.types import Activation, Snake
from oscine.ops.webgpu.gemm import ACTIVATIONS
from oscine.ops.webgpu.recorder import Recorder, grid2d

PARTS = "ABCD"  # of a dispatch of kernels/channels/concat.wgsl


class GpuChannels(Recorder):
    """Records the ops of oscine.ops.reference.channels, which has their definitions."""

    def activate(self, x: Tensor, activation: Activation) -> Tensor:
        y = self.intermediate(*x.shape)
        grid = grid2d(ceil(prod(x.shape) / 128))
        self.dispatch("activate", [x, y], grid, ACTIVATION=ACTIVATIONS.index(activation))
        return y

    def snake(self, x: Tensor, snake: Snake) -> Tensor:
        self.check_multiple_of_4("width", x.shape[1])
        y = self.intermediate(*x.shape)
        grid = grid2d(ceil(prod(x.shape) / 512))
        self.dispatch("snake", [x, snake.scale, snake.gain, y], grid, WIDTH4=x.shape[1] // 4)
        return y

    def scale_channels(self, x: Tensor, factors: Tensor, add: Tensor | None = None) -> Tensor:
        self.check_multiple_of_4("width", x.shape[1])
        y = self.intermediate(*x.shape)
        self.dispatch(
            "scale_channels", [x, factors, add, y], grid2d(ceil(prod(x.shape) / 512)),
            WIDTH4=x.shape[1] // 4, ADD=add is not None,
        )  # fmt: skip
        return y

    def stats_pool(self, x: Tensor, scores: Tensor | None = None) -> Tensor:
        width = x.shape[1]
        self.check_multiple_of_4("width", width)
        y = self.intermediate(1, 2 * width)
        self.dispatch(
            "stats_pool", [x, scores, y], (ceil(width / 16),), work=10.0 * prod(x.shape),
            WIDTH4=width // 4, SCORES=scores is not None,
        )  # fmt: skip
        return y

    def concat(self, parts: Sequence[Tensor]) -> Tensor:
        rows, width = concat_shape([part.shape for part in parts])
        y, first4 = self.intermediate(rows, width), 0
        for start in range(0, len(parts), len(PARTS)):
            taken = parts[start : start + len(PARTS)]
            widths: dict[str, Parameter] = {}
            for name, part in zip(PARTS, taken, strict=False):
                self.check_multiple_of_4("width of a part", part.shape[1])
                width4 = part.shape[1] // 4
                widths |= {f"{name}4": width4, f"{name}_STEP4": width4 * (part.shape[0] == rows)}
            taken4 = sum(part.shape[1] for part in taken) // 4
            self.dispatch(
                "concat", [*taken, *[None] * (len(PARTS) - len(taken)), y],
                grid2d(ceil(rows * taken4 / 128)), work=4.0 * rows * taken4, WIDTH4=width // 4,
                FIRST4=first4, **widths,
            )  # fmt: skip
            first4 += taken4
        return y

    def slice_columns(self, x: Tensor, first: int, count: int, add: Tensor | None = None) -> Tensor:
        check_columns(x, first, count, add)
        for what, number in (("width", x.shape[1]), ("first column", first), ("columns", count)):
            self.check_multiple_of_4(what, number)
        y = self.intermediate(x.shape[0], count)
        self.dispatch(
            "slice_columns", [x, add, y], grid2d(ceil(prod(y.shape) / 512)), WIDTH4=x.shape[1] // 4,
            FIRST4=first // 4, COUNT4=count // 4, ADD=add is not None,
        )  # fmt: skip
        return y
