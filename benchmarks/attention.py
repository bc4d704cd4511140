#!/usr/bin/env python3
"""Attention of encoders on matrix units and without them, checked against NumPy.

Usage: attention.py [--cases NAME,NAME] [--device gpu] [--repeat 10]
Microseconds of the op on the GPU itself, eight in a pass: the median of --repeat passes, after the
GPU has raised its clock; with relative positions the table's conversion to float16 is included,
that of qkv is not. The difference is the largest of the first window, as a share of the largest
value. ops.webgpu.attention.MATRIX_ENOUGH is chosen from these. Prints a table, then one JSON line
a case and kernel. Without matrix units it has the plain kernels alone.
"""

from __future__ import annotations

import argparse
import json
import statistics
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from oscine import ops
from oscine.gpu.device import open_device, select_adapter
from oscine.gpu.plan import Plan
from oscine.gpu.profile import Profile
from oscine.gpu.tensor import Tensor
from oscine.ops.check import difference
from oscine.ops.reference import Reference
from oscine.ops.webgpu import Gpu

WARM_SECONDS = 0.5  # that a GPU takes to raise its clock
IN_A_PASS = 8
FRAMES_PER_ROW = 8


@dataclass(frozen=True)
class Shape:
    """One attention: rows a window, windows, heads and their width."""

    rows: int
    batch: int
    heads: int
    width: int
    relative: bool = False

    @property
    def operations(self) -> float:
        """The floating-point operations of its products."""
        pairs = self.batch * self.rows**2 * self.heads * self.width
        return (6.0 if self.relative else 4.0) * pairs


CASES = {
    "turbo": Shape(1500, 1, 20, 64),
    "turbo-8": Shape(1500, 8, 20, 64),
    "base": Shape(1500, 1, 8, 64),
    "parakeet": Shape(375, 1, 8, 128, relative=True),
    "parakeet-16": Shape(375, 16, 8, 128, relative=True),
    "parakeet-long": Shape(3000, 1, 8, 128, relative=True),
    "small": Shape(70, 2, 2, 32),
    "small-parakeet": Shape(70, 2, 1, 64, relative=True),
}


def noise(rng: np.random.Generator, *shape: int) -> Any:
    """Numbers that float16 has."""
    return rng.standard_normal(shape, np.float32).astype(np.float16).astype(np.float32)


def inputs_of(shape: Shape) -> dict[str, Any]:
    """qkv of all windows, and for relative positions the table and the biases."""
    rng, width = np.random.default_rng(1), shape.heads * shape.width
    made = {"qkv": noise(rng, shape.batch * shape.rows, 3 * width)}
    if shape.relative:
        made |= {"positions": noise(rng, 2 * shape.rows - 1, width)}
        made |= {"u": noise(rng, width), "v": noise(rng, width)}
    return made


def attend(backend: Any, shape: Shape, x: dict[str, Any], frames: Any) -> Any:
    """The op on a backend."""
    if not shape.relative:
        return backend.attention(x["qkv"], shape.heads, frames.shape[0])
    lengths = ops.SeqLengths(frames, FRAMES_PER_ROW)
    return backend.rel_pos_attention(
        x["qkv"], x["positions"], x["u"], x["v"], lengths, shape.heads, None
    )


def measure(
    gpu: Gpu, shape: Shape, x: dict[str, Tensor], frames: Any, repeat: int
) -> tuple[str, float, Any]:
    """The kernel, microseconds of the op, and the result."""
    out = gpu.zeros((shape.batch * shape.rows, shape.heads * shape.width))
    gpu.record(lambda: gpu.store(attend(gpu, shape, x, frames), out)).run()
    found = gpu.read(out)
    gpu.memory.release(out)
    with gpu.recording(None) as dispatches:
        attend(gpu, shape, x, frames)
    profile = Profile(gpu.device, by_kernel=False)
    plan = Plan(gpu.device, gpu.pool, dispatches * IN_A_PASS, "timed", profile)
    warm = perf_counter() + WARM_SECONDS
    while perf_counter() < warm:
        timed(plan, profile)
    passes = [timed(plan, profile) for _ in range(repeat)]
    return dispatches[-1].kernel, statistics.median(passes), found


def timed(plan: Plan, profile: Profile) -> float:
    """Microseconds of the op in one pass."""
    profile.totals.clear()
    plan.run()
    return 1000 * profile.collect()["timed"].milliseconds / IN_A_PASS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--repeat", type=int, default=10)
    arguments = parser.parse_args()
    gpu, lines = Gpu(open_device(select_adapter(arguments.device))), []
    print(f"{gpu.name}\n{'case':16}{'kernel':26}{'us':>10}{'TFLOP/s':>10}{'difference':>12}")
    for name in arguments.cases.split(","):
        shape = CASES[name]
        host = inputs_of(shape)
        count = np.full(shape.batch, FRAMES_PER_ROW * shape.rows, np.uint32)
        one = host | {"qkv": host["qkv"][: shape.rows]}
        want = attend(Reference(), shape, one, count[:1])
        x = {key: gpu.upload(value) for key, value in host.items()}
        frames = gpu.upload(count)
        for matrix in (None, gpu.matrix)[: 1 + bool(gpu.matrix)]:
            given = x
            if matrix:
                given = x | {"qkv": gpu.upload(host["qkv"].astype(np.float16))}
                given["qkv"].may_round_to_f16 = True
            kernel, micro, found = measure(gpu, shape, given, frames, arguments.repeat)
            rate = shape.operations / micro / 1e6
            error = difference(want, found[: shape.rows])
            print(f"{name:16}{kernel:26}{micro:10.1f}{rate:10.1f}{error:12.1e}", flush=True)
            record = {"case": name, "kernel": kernel, "us": round(micro, 2)}
            lines.append(json.dumps(record | {"tflops": round(rate, 1), "difference": error}))
            if matrix:
                gpu.memory.release(given["qkv"])
        gpu.memory.release(*x.values(), frames)
    print("\n".join(lines))


if __name__ == "__main__":
    main()
