#!/usr/bin/env python3
"""The convolutions of Qwen3-TTS's codec decoder at its released size: each shape, in every tiling.

Usage: codec.py [--frames 4] [--device gpu] [--repeat 10] [--all | --voices]. Microseconds an op on
the GPU itself, in a chain over several copies of the weight, so that no cache holds them; TFLOP/s.
With --all every tiling beside the chosen one: tiles and skinny_tile of ops.webgpu.conv are chosen
from these tables. The last line sums the chosen ones, as often as each comes in a call of that
many frames.
With --voices the whole decoder instead, random weights, for several voices in one call:
milliseconds a frame of each voice, and the memory that a voice takes.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from speech_checkpoint import random_values, write_codec

from oscine.gpu.device import open_device, select_adapter
from oscine.gpu.plan import Plan
from oscine.gpu.profile import Profile
from oscine.models.qwen3_tts.codec_runner import CodecDecoder
from oscine.models.qwen3_tts.codec_weights import load_codec
from oscine.ops import TALKER_STATE, ConvParams, Linear, Snake
from oscine.ops.webgpu import Gpu, conv

#: Rows a frame, outputs, places, inputs, dilation, how often.
SHAPES = (
    (1, 1024, 3, 512, 1, 1),
    (1, 2048, 1, 1024, 1, 1),
    (2, 2048, 1, 1024, 1, 1),
    (4, 1536, 7, 1024, 1, 1),
    (4, 6144, 2, 1536, 1, 1),
    (32, 768, 7, 768, 3, 3),
    (32, 768, 1, 768, 1, 3),
    (32, 1920, 2, 768, 1, 1),
    (160, 384, 7, 384, 3, 3),
    (160, 384, 1, 384, 1, 3),
    (160, 768, 2, 384, 1, 1),
    (640, 192, 7, 192, 3, 3),
    (640, 192, 1, 192, 1, 3),
    (640, 288, 2, 192, 1, 1),
    (1920, 96, 7, 96, 3, 3),
    (1920, 96, 1, 96, 1, 3),
    (1920, 1, 7, 96, 1, 1),
)
VOICES, FRAMES = (1, 4, 16), (1, 4, 12)  # of a call
NOISE = (np.random.default_rng(0).standard_normal(1 << 20) * 0.02).astype(np.float32)
CHOSEN = {
    "skinny_tile": conv.skinny_tile,
    "tiles": conv.tiles,
    "MAX_SKINNY_ROWS": conv.MAX_SKINNY_ROWS,
}
Choice = tuple[str, dict[str, Any]]  # and what of conv it stands on


@dataclass
class Bench:
    """One shape: its operands, and plans over them."""

    gpu: Gpu
    profile: Profile
    repeat: int

    def prepare(self, rows: int, shape: tuple[int, int, int], dilation: int) -> None:
        outputs, width, inputs = shape
        copies = max(2, min(8, (64 << 20) // (4 * outputs * width * inputs)))
        weight, upload = np.resize(NOISE, shape), self.gpu.upload
        self.convs = [Linear(upload(weight), upload(weight[:, 0, 0])) for _ in range(copies)]
        self.taps = ConvParams((width - 1) * dilation, 0, 1, dilation)
        self.x, self.y = self.gpu.zeros((rows, inputs)), self.gpu.zeros((rows, outputs))
        self.seen = self.gpu.zeros((rows + self.taps.left, inputs))
        self.memory = self.gpu.zeros((1, max(1, self.taps.left), inputs))
        self.state = self.gpu.zeros((1,), TALKER_STATE)
        self.gains = Snake(self.gpu.zeros((inputs,)), self.gpu.zeros((inputs,)))

    def microseconds(self, op: Callable[[Linear], object]) -> float:
        """Of one dispatch or pair; the least of three means, the GPU being busy before."""
        with self.gpu.recording(None) as dispatches:
            for conv in self.convs:
                op(conv)
        plan = Plan(self.gpu.device, self.gpu.pool, dispatches, "timed", self.profile)
        begun, means = perf_counter(), []
        while perf_counter() < begun + 0.05:
            plan.run(3)
            self.profile.collect()
        for _ in range(3):
            self.profile.totals.clear()
            plan.run(self.repeat)
            spent = self.profile.collect()["timed"].milliseconds
            means.append(1000 * spent / self.repeat / len(self.convs))
        return min(means)

    def convolve(self, conv: Linear) -> None:
        self.gpu.conv1d(self.seen, conv, ConvParams(0, 0, 1, self.taps.dilation), add=self.y)

    def beside(self, conv: Linear) -> None:
        if self.taps.left:
            self.gpu.pad(self.x, self.taps, 1, self.memory, self.state)
        else:
            self.gpu.snake(self.x, self.gains)

    def release(self) -> None:
        self.gpu.memory.release(*(t for conv in self.convs for t in (conv.weight, conv.bias)))


def others(rows: int, outputs: int, depth: int) -> Iterator[Choice]:
    """Every way that might pay."""
    if outputs <= conv.MAX_NARROW_OUTPUTS:
        return
    if rows <= 64:
        for tile in (4, 8, 16):
            for lanes in (32, 64, 128):
                if tile / 2 < rows or tile == 4:
                    how = {"skinny_tile": lambda *_, t=tile, n=lanes: (t, n), "MAX_SKINNY_ROWS": 64}
                    yield f"skinny_tile, tile {tile}, lanes {lanes}", how
    if rows > 8:
        for columns in (64, 96, 128):
            for splits in (1, 2, 3, 4, 6, 8, 12, 16, 24):
                groups = -(-outputs // columns) * -(-rows // 64) * splits
                if depth // splits >= 64 and (splits == 1 or 60 <= groups <= 1100):
                    how = {"tiles": lambda *_, c=columns, s=splits: (c, s), "MAX_SKINNY_ROWS": 0}
                    yield f"columns {columns}, splits {splits} ({groups} groups)", how


def time_voices(gpu: Gpu, repeat: int) -> None:
    """The whole decoder: calls of every number of voices and of frames, read back."""
    with tempfile.TemporaryDirectory() as folder:
        write_codec(Path(folder), random_values())
        config, weights, _ = load_codec(Path(folder))
        decoder = CodecDecoder(weights, config, gpu, FRAMES)
    rng = np.random.default_rng(0)
    for voices in VOICES:
        slots = [decoder.acquire_slot() for _ in range(voices)]
        for frames in FRAMES:
            codes = rng.integers(0, config.codebook_size, (voices, frames, config.num_code_groups))
            spent = []
            for _ in range(repeat + 2):
                begun = perf_counter()
                decoder.decode(slots, codes)
                spent.append(1000 * (perf_counter() - begun))
            call, share = statistics.median(spent[2:]), 1 / (voices * frames)
            dispatches = len(getattr(decoder.plan(frames, voices).plan, "dispatches", ()))
            print(
                f"{voices:2} voices, {frames:2} frames: {call:8.2f} ms a call, "
                f"{call * share:7.3f} ms a frame of each, {dispatches} dispatches", flush=True,
            )  # fmt: skip
        for slot in slots:
            decoder.release_slot(slot)
    print(f"{decoder.states.bytes_per_slot() / (1 << 20):.2f} MiB of memory a voice")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--frames", type=int, default=4)
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--repeat", type=int, default=10)
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--all", action="store_true")
    kind.add_argument("--voices", action="store_true")
    arguments = parser.parse_args()
    gpu = Gpu(open_device(select_adapter(arguments.device)))
    if arguments.voices:
        print(f"{gpu.name}, subgroups of {gpu.lanes}", flush=True)
        time_voices(gpu, arguments.repeat)
        return
    bench = Bench(gpu, Profile(gpu.device, by_kernel=False), arguments.repeat)
    print(f"{gpu.name}, subgroups of {gpu.lanes}, {arguments.frames} frames", flush=True)
    total = beside = 0.0
    for per, outputs, width, inputs, dilation, times in SHAPES:
        rows, depth = per * arguments.frames, width * inputs
        bench.prepare(rows, (outputs, width, inputs), dilation)
        aside = bench.microseconds(bench.beside)
        print(f"{rows} rows, {outputs}x{width}x{inputs}: pad or snake {aside:.1f} µs")
        ways: list[Choice] = [("chosen", CHOSEN)]
        for label, how in ways + arguments.all * list(others(rows, outputs, depth)):
            for key, value in {**CHOSEN, **how}.items():
                setattr(conv, key, value)
            micro = bench.microseconds(partial(bench.convolve))
            tflops = 2e-6 * rows * outputs * depth / micro
            print(f"    {micro:7.1f} µs {tflops:5.1f} TFLOP/s {label}", flush=True)
            if label == "chosen":
                total, beside = total + times * micro, beside + times * aside
        bench.release()
    print(f"in all {total:.0f} µs, padding and some of the snakes {beside:.0f} µs")


if __name__ == "__main__":
    main()
