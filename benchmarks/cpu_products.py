"""Products of a few rows on the CPU: NumPy's and the compiled kernels', by dtype of the weights.

    python benchmarks/cpu_products.py [--rows 1 5 16] [--outputs 51865] [--inputs 512]

The defaults are the head of base. The ways are taken in turns; prints a JSON line for each number
of rows: microseconds (median), and the weights' bytes a nanosecond, which one core reads from
memory in the same run too (`read`: their sum by NumPy).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from oscine import hub, ops, quantized, threads
from oscine.ops.compiled import Compiled
from oscine.ops.reference import Reference


def seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def ways(weight: np.ndarray, x: np.ndarray) -> dict[str, tuple[Callable[[], Any], int]]:
    """By name: a product, and the bytes of its weights."""
    numpy, compiled = Reference(), Compiled(hub.home() / "kernels")
    stored = {
        "numpy f32": (numpy, weight),
        "f32": (compiled, weight),
        "f16": (compiled, weight.astype(np.float16)),
        "q8": (compiled, quantized.quantize(weight, quantized.Q8)),
        "q4": (compiled, quantized.quantize(weight, quantized.Q4)),
    }
    made: dict[str, tuple[Callable[[], Any], int]] = {"read": (weight.sum, weight.nbytes)}
    for name, (backend, array) in stored.items():
        linear = ops.upload(backend, ops.Linear(array, None))
        made[name] = (lambda b=backend, w=linear: b.linear(x, w), array.nbytes)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 5, 16])
    parser.add_argument("--outputs", type=int, default=51865)
    parser.add_argument("--inputs", type=int, default=512)
    parser.add_argument("--runs", type=int, default=21)
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((arguments.outputs, arguments.inputs)).astype(np.float32)
    for rows in arguments.rows:
        products = ways(weight, rng.standard_normal((rows, arguments.inputs)).astype(np.float32))
        times: dict[str, list[float]] = {name: [] for name in products}
        with threads.single_threaded_blas():
            for number in range(arguments.runs + 1):
                for name, (call, _) in products.items():
                    taken = seconds(call)
                    if number:
                        times[name].append(taken)
        medians = {name: statistics.median(taken) for name, taken in times.items()}
        row = {
            "benchmark": "cpu_products",
            "rows": rows,
            "shape": [arguments.outputs, arguments.inputs],
            "threads": threads.count(),
            "load": round(os.getloadavg()[0], 1),
            "microseconds": {name: round(1e6 * s) for name, s in medians.items()},
            "bytes_per_ns": {n: round(products[n][1] / s / 1e9, 1) for n, s in medians.items()},
        }
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
