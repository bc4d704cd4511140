#!/usr/bin/env python3
"""The variants of gemv and gemm_skinny at the shapes of a decoder step: who works together, how
many.

Usage: gemv.py [--rows 1] [--pairs] [--device gpu] [--copies 64] [--repeat 15]. --pairs:
gemv_gated at the shapes of a frame of Qwen3-TTS 1.7B, in bfloat16. Microseconds a dispatch on the
GPU itself, in a dependent chain over several copies of the weight, so that no cache holds them;
GB/s and the share of --bandwidth (TB/s). ops.webgpu.Gpu.team and rows_team are chosen from these
tables. One JSON line a case.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from math import ceil
from time import perf_counter

import numpy as np

from oscine.dtypes import BFLOAT16
from oscine.gpu.device import open_device, select_adapter
from oscine.gpu.kernels import Parameter
from oscine.gpu.plan import Plan
from oscine.gpu.profile import Profile
from oscine.gpu.tensor import Tensor
from oscine.ops.webgpu import Gpu
from oscine.ops.webgpu.gemv import MAX_GEMV_ROWS
from oscine.ops.webgpu.recorder import MAX_WORKGROUPS

#: outputs, inputs, norm folded: qkv, out, query, fc1, fc2, the head, of width 1280.
SHAPES = (
    (3840, 1280, True),
    (1280, 1280, False),
    (1280, 1280, True),
    (5120, 1280, True),
    (1280, 5120, False),
    (51866, 1280, False),
)
#: The same of the talker's layer, then of the predictor's: qkv, out, gate and up, down; the norm is
#: fused into the first and third, and the third is gated.
PAIRS = (
    (4096, 2048, True),
    (2048, 2048, False),
    (12288, 2048, True),
    (2048, 6144, False),
    (4096, 1024, True),
    (1024, 2048, False),
    (6144, 1024, True),
    (1024, 3072, False),
)
GATED = (12288, 6144)
#: Invocations of a workgroup, and of a team.
WORKGROUPS = ((128, 16), (128, 32), (256, 32), (128, 64), (256, 64), (128, 128), (256, 128))
#: Invocations at least and at most that a variant may take, so that the table stays short.
MIN_INVOCATIONS, MAX_INVOCATIONS = 20_000, 430_000

NOISE = (np.random.default_rng(0).standard_normal(1 << 20) * 0.02).astype(np.float16)
BITS = (NOISE.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).view(BFLOAT16)
Variant = tuple[str, tuple[int, ...], dict[str, Parameter]]  # kernel, grid, parameters


def variants(gpu: Gpu, rows: int, outputs: int, norm: bool) -> Iterator[Variant]:
    """Ways to launch a product."""
    if rows <= MAX_GEMV_ROWS:
        for workgroup in (32, 64, 128):
            if workgroup >= gpu.lanes:
                groups = min(ceil(outputs / (workgroup // gpu.lanes)), MAX_WORKGROUPS)
                yield "gemv", (groups,), {"ROW_REDUCE": "subgroup", "WORKGROUP": workgroup}
        yield "gemv", (min(outputs, MAX_WORKGROUPS),), {"ROW_REDUCE": "workgroup", "WORKGROUP": 128}
        return
    for tile in sorted({min(rows, 8), min(rows, 16)}):
        tiles = ceil(rows / tile)
        for workgroup, lanes in WORKGROUPS:
            fits = not norm or 4 * workgroup // lanes >= ceil(tile / 8) * 8
            if fits and MIN_INVOCATIONS <= outputs // 4 * lanes * tiles <= MAX_INVOCATIONS:
                grid = tiles, ceil(outputs / (4 * workgroup // lanes))
                yield "gemm_skinny", grid, {"TILE": tile, "LANES": lanes, "WORKGROUP": workgroup}


def chain(gpu: Gpu, shape: tuple[int, int, bool], weights: list[Tensor], slots: list[Tensor],
          variant: Variant, rows: int, profile: Profile) -> Plan:  # fmt: skip
    """Dispatches that wait for each other: the slots are read and written in turn."""
    (outputs, inputs, norm), (kernel, grid, parameters) = shape, variant
    with gpu.recording(None) as dispatches:
        for number, w in enumerate(weights):
            gain, fold, x, y = (*slots[2:], slots[number % 2], slots[1 - number % 2])
            gpu.dispatch(
                kernel, [x, gain, fold, w, None, None, None, y], grid, work=0.0,
                ROWS=rows, K4=inputs // 4, OUTPUTS=outputs, STRIDE=outputs, NORM=norm,
                WEIGHTS="f16", **parameters,
            )  # fmt: skip
    return Plan(gpu.device, gpu.pool, dispatches, "timed", profile)


def pair_chain(gpu: Gpu, shape: tuple[int, int, bool], weights: list[Tensor], slots: list[Tensor],
               variant: Variant, rows: int, profile: Profile) -> Plan:  # fmt: skip
    """The same of gemv_gated."""
    (total, inputs, norm), (kernel, grid, parameters) = shape, variant
    outputs = total // 2 if total in GATED else total
    with gpu.recording(None) as dispatches:
        for number, w in enumerate(weights):
            x, y, gain = slots[number % 2], slots[1 - number % 2], slots[2]
            gpu.dispatch(
                kernel, [x, gain, w, None, None, None, y], grid, work=0.0,
                ROWS=rows, K4=inputs // 4, OUTPUTS=outputs, STRIDE=outputs, RMS=norm,
                GATED=outputs < total, ACTIVATION=2, WEIGHTS="bf16", LOAD="eight", **parameters,
            )  # fmt: skip
    return Plan(gpu.device, gpu.pool, dispatches, "timed", profile)


def pair_variants(gpu: Gpu, outputs: int) -> Iterator[Variant]:
    """Ways to launch gemv_gated."""
    for workgroup in (64, 128):
        groups = ceil(outputs // 2 / (workgroup // gpu.lanes))
        yield "gemv_gated", (groups,), {"ROW_REDUCE": "subgroup", "WORKGROUP": workgroup}
    for workgroup in (64, 128, 256):
        yield "gemv_gated", (outputs // 2,), {"ROW_REDUCE": "workgroup", "WORKGROUP": workgroup}


def measure(gpu: Gpu, shape: tuple[int, int, bool], rows: int, copies: int, repeat: int,
            pairs: bool) -> Iterator[tuple[Variant, float]]:  # fmt: skip
    """Each variant and its mean microseconds a dispatch.

    All are compiled first and the GPU is kept busy, since it lowers its clock where it waits.
    """
    outputs, inputs, norm = shape
    weight = np.resize(BITS if pairs else NOISE, (outputs, inputs))
    weights = [gpu.upload(weight) for _ in range(copies)]
    size = rows, max(outputs, inputs)
    slots = [gpu.zeros(size), gpu.zeros(size), gpu.zeros((inputs,)), gpu.zeros((outputs,))]
    profile = Profile(gpu.device, by_kernel=False)
    common = gpu, shape, weights, slots
    ways = pair_variants(gpu, outputs) if pairs else variants(gpu, rows, outputs, norm)
    plans = [
        (variant, (pair_chain if pairs else chain)(*common, variant, rows, profile))
        for variant in ways
    ]
    begun = perf_counter()
    while perf_counter() < begun + 0.7:
        plans[0][1].run(2)
        profile.collect()
    for variant, plan in plans:
        plan.run(2)
        profile.collect()
        profile.totals.clear()
        plan.run(repeat)
        yield variant, 1000 * profile.collect()["timed"].milliseconds / (repeat * copies)
    gpu.memory.release(*weights, *slots)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--pairs", action="store_true")
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--copies", type=int, default=64)
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--bandwidth", type=float, default=4.2, help="TB/s")
    arguments = parser.parse_args()
    gpu, rows = Gpu(open_device(select_adapter(arguments.device))), arguments.rows
    print(f"{gpu.name}, subgroups of {gpu.lanes}")
    for shape in PAIRS if arguments.pairs else SHAPES:
        outputs, inputs, norm = shape
        norm = norm and (arguments.pairs or rows == 1 or rows > MAX_GEMV_ROWS)
        nbytes = 2.0 * outputs * inputs
        copies = max(2, min(arguments.copies, int((1 << 30) / nbytes)))
        case = outputs, inputs, norm
        for variant, micro in measure(gpu, case, rows, copies, arguments.repeat, arguments.pairs):
            row = {
                "case": f"{rows} rows, {outputs}x{inputs}{' norm' if norm else ''}",
                "kernel": variant[0],
                **{key.lower(): value for key, value in variant[2].items()},
                "microseconds": round(micro, 2),
                "gbs": round(nbytes / micro / 1e3),
                "share": round(nbytes / micro / 1e6 / arguments.bandwidth, 3),
                "tflops": round(rows * nbytes / micro / 1e6, 1),
            }
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
