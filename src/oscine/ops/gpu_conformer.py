"""The conformer's ops on the GPU; shapes and meaning: oscine.ops.Ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from oscine.errors import DeviceError
from oscine.gpu.device import Device
from oscine.gpu.tensor import Tensor
from oscine.ops import Lengths, Linear
from oscine.ops.conformer_ops import sinusoids
from oscine.ops.gpu_recorder import MOST_GROUPS, Recorder

TILE_BYTES = 64 << 20  # of subsampling's largest image, of which there are two at a time
FINE_STEP = 256  # distances that one rotation from a table spans
QUERIES = 32  # that a workgroup of attention takes
GATED_ROWS = 64  # of 16 columns, in shared memory
GATED_FRAMES = 32  # results of a workgroup of these
SHORTEST_BUCKET, LONG_BUCKET = 16, 64  # encoder frames


@dataclass(frozen=True, slots=True)
class Stem:
    """A subsampling and how it is cut: `step` encoder frames of `together` utterances a tile."""

    mel: Tensor
    lengths: Lengths
    first: Linear
    halvings: Sequence[tuple[Linear, Linear]]
    widths: Sequence[int]  # of the mel, of the first image, and so on
    whole: Tensor  # [B·T·F', C]: the last depthwise image
    step: int
    together: int


def tile_shape(batch: int, rows: int, widths: Sequence[int], channels: int) -> tuple[int, int]:
    """Encoder frames, and utterances, whose images are held at a time."""
    level = 1 << len(widths) - 3  # rows of the first image that is written, to an encoder frame
    if level == 1:
        return rows, batch  # that image is the whole
    room = TILE_BYTES // (4 * level * widths[2] * channels)
    if rows < room:
        return rows, min(batch, room // (rows + 1))
    return max(1, room - 1), 1


class GpuConformer(Recorder):
    """Recording; shapes and meaning: oscine.ops.Ops."""

    def __init__(self, device: Device) -> None:
        super().__init__(device)
        self.places: dict[tuple[int, ...], Tensor] = {}
        self.turns: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}

    # What the layers of Gpu give.
    linear: Callable[..., Tensor]
    head4: Callable[[int, int], int]

    def subsample(
        self,
        mel: Tensor,
        lengths: Lengths,
        first: Linear,
        halvings: Sequence[tuple[Linear, Linear]],
    ) -> Tensor:
        batch, (_, mels), channels = lengths.frames.shape[0], mel.shape, first.weight.shape[-1]
        self.fours("subsampling channels", channels)
        if not halvings or any(c.bias is None for c in (first, *(pair[0] for pair in halvings))):
            raise DeviceError(
                f"{self.name}: subsampling needs a factor of 4 or more, and biases, as kernels "
                "have it; NumPy takes any"
            )
        widths = [mels]
        for _ in range(1 + len(halvings)):
            widths.append(ceil(widths[-1] / 2))
        rows = -(-(mel.shape[0] // batch) >> 1 + len(halvings))
        whole = self.new(batch * rows * widths[-1], channels)
        step, together = tile_shape(batch, rows, widths, channels)
        stem = Stem(mel, lengths, first, halvings, widths, whole, step, together)
        for b in range(0, batch, together):
            for start in range(0, rows, step):
                self.subsample_tile(stem, self.place(b, start))
        y = self.linear(whole, halvings[-1][1], activation="relu")
        y.shape = (batch * rows, widths[-1] * channels)
        return y

    def place(self, *numbers: int) -> Tensor:
        """A few numbers as a constant, made once."""
        if numbers not in self.places:
            self.places[numbers] = self.upload(np.array(numbers, np.uint32))
        return self.places[numbers]

    def subsample_tile(self, stem: Stem, place: Tensor) -> None:
        """The images that some encoder frames of some utterances hang on, into the whole."""
        batch, (entries, channels) = stem.lengths.frames.shape[0], stem.whole.shape
        x, widths = stem.mel, stem.widths
        for stage, (depthwise, _) in enumerate(stem.halvings, 1):
            level = 1 << len(stem.halvings) - stage
            count, width = level * stem.step + level - 1, widths[stage + 1]
            size = stem.together * count * width
            y = stem.whole if level == 1 else self.new(size, channels)
            grid = (ceil(width * channels / 256), count, stem.together)
            taps = [depthwise.weight, depthwise.bias, stem.lengths.frames, place, y]
            common = {
                "BATCH": batch, "WIDTH": width, "C4": channels // 4, "COUNT": count,
                "LEVEL": level, "ROWS": entries // (batch * widths[-1]),
            }  # fmt: skip
            if stage == 1:
                self.add(
                    "subsample_first", [x, stem.first.weight, stem.first.bias, *taps], grid,
                    work=200.0 * size * channels, N=x.shape[0] // batch, MELS=widths[0],
                    BETWEEN=widths[1], **common,
                )  # fmt: skip
            else:
                x = self.linear(x, stem.halvings[stage - 2][1], activation="relu")
                self.add(
                    "subsample_halve", [x, *taps], grid, work=20.0 * size * channels,
                    PER=1 << stage, BEFORE=widths[stage], **common,
                )  # fmt: skip
            x = y

    def relative_positions(self, count: int, width: int) -> Tensor:
        self.fours("position width", width)
        coarse = np.arange(0, count, FINE_STEP)
        key = (count, width)
        if key not in self.turns:
            self.turns[key] = (
                self.upload(sinusoids(coarse, width)),
                self.upload(sinusoids(np.arange(FINE_STEP), width)),
            )
        y = self.new(2 * count - 1, width)
        self.add(
            "relative_positions", [*self.turns[key], y],
            (ceil(width / 256), min(2 * count - 1, MOST_GROUPS)),
            CENTRE=count - 1, WIDTH4=width // 4, STEP=FINE_STEP,
        )  # fmt: skip
        return y

    def attend_relative(
        self,
        qkv: Tensor,
        positions: Tensor,
        bias_u: Tensor,
        bias_v: Tensor,
        lengths: Lengths,
        heads: int,
        band: tuple[int, int] | None = None,
    ) -> Tensor:
        batch, width = lengths.frames.shape[0], qkv.shape[1] // 3
        rows, head4 = qkv.shape[0] // batch, self.head4(width, heads)
        before, after = band or (rows, rows)
        groups = ceil(head4 / 32)
        y = self.new(batch * rows, width)
        self.add(
            "attend_relative",
            [qkv, positions, bias_u, bias_v, lengths.frames, y],
            (ceil(rows / QUERIES), heads, batch * groups),
            work=6.0 * batch * rows * min(rows, before + after + QUERIES) * width,
            ROWS=rows, HEADS=heads, W4=head4, GROUPS=groups, SCALE=repr(float((4 * head4) ** -0.5)),
            CENTRE=positions.shape[0] // 2, LAST=positions.shape[0] - 1,
            BEFORE=before, AFTER=after, PER=lengths.per,
        )  # fmt: skip
        return y

    def gated_convolution(self, x: Tensor, conv: Linear, lengths: Lengths) -> Tensor:
        batch, (taps, width) = lengths.frames.shape[0], conv.weight.shape
        self.fours("convolution width", width)
        rows = x.shape[0] // batch
        frames = min(GATED_FRAMES, GATED_ROWS + 1 - taps)
        if frames < 1:
            raise DeviceError(
                f"{self.name}: a convolution over {taps} frames is above {GATED_ROWS}, the most "
                "that kernels take; NumPy takes any"
            )
        y = self.new(batch * rows, width)
        self.add(
            "gated_convolution", [x, conv.weight, conv.bias, lengths.frames, y],
            (ceil(width / 64), ceil(rows / frames), batch),
            work=8.0 * batch * rows * width * taps, ROWS=rows, WIDTH4=width // 4, TAPS=taps,
            FRAMES=frames, PER=lengths.per, BIAS=conv.bias is not None,
        )  # fmt: skip
        return y

    def padded_frames(self, count: int) -> int:
        """Powers of two, later four lengths for each doubling: each costs kernels of its own."""
        if count <= LONG_BUCKET:
            return max(SHORTEST_BUCKET, 1 << (count - 1).bit_length())
        step = 1 << (count - 1).bit_length() - 3
        return -(-count // step) * step
