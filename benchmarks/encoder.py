#!/usr/bin/env python3
"""Encoder times of several windows in one pass, random weights made on the spot.

Usage: encoder.py [--size turbo] [--batches 1,2,4,8,16] [--device gpu] [--dtype f16] [--repeat 10]
[--trace] [--json FILE]
Run once an implementation: OSCINE_WEBGPU=wgpu encoder.py; OSCINE_WEBGPU=dawn encoder.py. A pass is
the encoder alone, on mels that are on the device; the cross keys and values, which are made layer
by layer behind it, are in the encoder's time of gpu.py. `alone_ms` is the time of as many passes
of one window, in the same turn. Milliseconds are of a window: the median of the turns. Prints a
table, then one JSON line a batch; a batch that the device has no room for ends the run.
"""

from __future__ import annotations

import argparse
import os
import statistics
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from gpu import DTYPES, SIZES, random_weights, report, trace

from oscine.errors import DeviceMemoryError
from oscine.gpu.device import open_device, select_adapter
from oscine.models.whisper.bench import encoder_flop
from oscine.models.whisper.runner import WhisperRunner
from oscine.ops.webgpu import Gpu

WARM_SECONDS = 0.5  # that a GPU takes to raise its clock


def time_passes(runner: WhisperRunner, count: int, times: int) -> float:
    """Milliseconds of some passes of so many windows one after another, the wait included."""
    started = perf_counter()
    runner.encoder.plan(count).encode.run(times)
    runner.backend.wait()
    return 1000 * (perf_counter() - started)


def measure(runner: WhisperRunner, batch: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """One batch. Raises DeviceMemoryError where it does not fit."""
    encoding = runner.encoder.plan(batch)
    mels = np.random.default_rng(1).standard_normal(encoding.mel.shape, np.float32)
    runner.backend.write(encoding.mel, mels)
    warm = perf_counter() + WARM_SECONDS
    while perf_counter() < warm:
        time_passes(runner, batch, 1)
    turns = [
        (time_passes(runner, batch, 1) / batch, time_passes(runner, 1, batch) / batch)
        for _ in range(arguments.repeat)
    ]
    together, alone = zip(*turns, strict=True)
    operations = encoder_flop(replace(runner.config, n_vocab=0))
    window_ms = statistics.median(together)
    return {
        "case": f"encoder {arguments.size}, windows in a batch of {batch}",
        "device": runner.device,
        "dtype": arguments.dtype,
        "batch": batch,
        "window_ms": window_ms,
        "window_spread_ms": [min(together), max(together)],
        "alone_ms": statistics.median(alone),
        "dispatches": len(encoding.encode.dispatches),
        "window_flop": operations,
        "tflops": operations / window_ms / 1e9,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", choices=SIZES, default="turbo")
    parser.add_argument("--batches", default="1,2,4,8,16")
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--dtype", choices=DTYPES, default="f16")
    parser.add_argument("--repeat", type=int, default=10)
    parser.add_argument("--trace", action="store_true", help="microseconds a kernel, from queries")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.trace:
        os.environ["OSCINE_TRACE"] = "kernels"
    batches = [int(word) for word in arguments.batches.split(",")]
    gpu = Gpu(open_device(select_adapter(arguments.device)))
    runner = WhisperRunner(random_weights(arguments.size, arguments.dtype), gpu)
    print(f"{gpu.name}\nbatch  ms a window  one by one  TFLOP/s")
    found: list[dict[str, Any]] = []
    for batch in batches:
        try:
            row = measure(runner, batch, arguments)
        except DeviceMemoryError as problem:
            print(f"{batch:5}  {problem}")
            break
        found.append(row)
        print(
            f"{batch:5} {row['window_ms']:12.3f} {row['alone_ms']:11.3f} {row['tflops']:8.1f}",
            flush=True,
        )
        if gpu.profile is not None:
            trace(gpu)
            gpu.profile.totals.clear()
            time_passes(runner, batch, arguments.repeat)
            for name, (count, micro) in trace(gpu).items():
                print(f"      {name:32} {count:6} times {micro:10.1f} us")
    report(found, arguments.json)


if __name__ == "__main__":
    main()
