#!/usr/bin/env python3
"""The gemv kernel's variants at the shapes of a decoder step: who works together, how many.

Usage: gemv.py [--device gpu] [--copies 16] [--repeat 30]. Microseconds a dispatch in a dependent
chain over several copies of the weight, so that no cache holds them; GB/s and the share of
--bandwidth (TB/s). ops.gpu.Gpu.team is chosen from this table. One JSON line a case.
"""

from __future__ import annotations

import argparse
import json
import statistics
from math import ceil
from time import perf_counter

import numpy as np

from oscine.gpu.device import choose, open_device
from oscine.gpu.plan import Plan
from oscine.ops.gpu import MOST_GROUPS, Gpu

#: outputs, inputs, norm folded: qkv, out and cross, fc1, fc2, the head, of width 1280.
SHAPES = (
    (3840, 1280, True),
    (1280, 1280, False),
    (5120, 1280, True),
    (1280, 5120, False),
    (51866, 1280, False),
)

NOISE = (np.random.default_rng(0).standard_normal(1 << 20) * 0.02).astype(np.float16)


def variants(gpu: Gpu, outputs: int) -> list[tuple[str, int, int]]:
    """Team, workgroup, workgroups to launch."""
    found = [
        ("subgroup", workgroup, min(ceil(outputs / (workgroup // gpu.lanes)), MOST_GROUPS))
        for workgroup in (32, 64, 128)
        if workgroup >= gpu.lanes
    ]
    return [*found, ("block", 128, min(outputs, MOST_GROUPS))]


def measure(gpu: Gpu, shape: tuple[int, int, bool], variant: tuple[str, int, int],
            copies: int, repeat: int) -> float:  # fmt: skip
    """Median microseconds a dispatch."""
    (outputs, inputs, norm), (team, workgroup, groups) = shape, variant
    copies = max(2, min(copies, (1 << 30) // (outputs * inputs * 2)))
    weight = np.resize(NOISE, (outputs, inputs))
    weights = [gpu.upload(weight) for _ in range(copies)]
    # One buffer of the larger size is read and written in turn, so each dispatch waits.
    slots = [gpu.slot((1, max(outputs, inputs))) for _ in range(2)]
    gain, fold = gpu.upload(np.ones(inputs, np.float32)), gpu.upload(np.ones(outputs, np.float32))
    with gpu.recording(None) as dispatches:
        for number, w in enumerate(weights):
            gpu.add(
                "gemv",
                [slots[number % 2], gain, fold, w, None, None, None, slots[1 - number % 2]],
                (groups,),
                ROWS=1, K4=inputs // 4, OUTPUTS=outputs, STRIDE=outputs, NORM=norm, HALF=True,
                TEAM=team, WORKGROUP=workgroup,
            )  # fmt: skip
    plan = Plan(gpu.device, gpu.pool, dispatches)
    values = []
    for _ in range(repeat + 3):
        started = perf_counter()
        plan.run(4)
        gpu.read(slots[0])
        values.append(1e6 * (perf_counter() - started) / (4 * copies))
    return statistics.median(values[3:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--copies", type=int, default=64)
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--bandwidth", type=float, default=4.2, help="TB/s")
    arguments = parser.parse_args()
    gpu = Gpu(open_device(choose(arguments.device)))
    print(f"{gpu.name}, subgroups of {gpu.lanes}")
    for shape in SHAPES:
        outputs, inputs, norm = shape
        nbytes = 2.0 * outputs * inputs
        for variant in variants(gpu, outputs):
            micro = measure(gpu, shape, variant, arguments.copies, arguments.repeat)
            row = {
                "case": f"gemv {outputs}x{inputs}{' norm' if norm else ''}",
                "team": variant[0],
                "workgroup": variant[1],
                "microseconds": round(micro, 2),
                "gbs": round(nbytes / micro / 1e3),
                "share": round(nbytes / micro / 1e6 / arguments.bandwidth, 3),
            }
            print(json.dumps(row))


if __name__ == "__main__":
    main()
