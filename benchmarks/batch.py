#!/usr/bin/env python3
"""Decoder-step times of several windows decoded side by side, random weights made on the spot.

Usage: batch.py [--size turbo] [--batches 1,2,4,8,16,32] [--device gpu] [--dtype f16] [--trace]
Run once an implementation: OSCINE_WEBGPU=wgpu batch.py; OSCINE_WEBGPU=dawn batch.py. A step is one
token of each window, timed as in gpu.py. Prints a table, then one JSON line a batch.

Bytes of a step: the decoder's weights once; keys and values of every window, and of every line's
cache at its mean length. Operations: two a weight and line, four a key, value and line. `share` is
the part of the measured bandwidth (--bandwidth, in TB/s) that a step reaches.
"""

from __future__ import annotations

import argparse
import os
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpu import DTYPES, SIZES, random_weights, report, time_host, trace

from oscine.gpu.device import open_device, select_adapter
from oscine.models.whisper.bench import StepBench, step_bytes
from oscine.models.whisper.config import WhisperConfig
from oscine.models.whisper.runner import WhisperRunner
from oscine.models.whisper.weights import WhisperWeights
from oscine.ops.webgpu import Gpu


def decoder_only(size: str, dtype: str) -> WhisperWeights:
    """A checkpoint whose encoder, which is not timed here, has one block."""
    weights = random_weights(size, dtype)
    encoder = replace(weights.encoder, blocks=weights.encoder.blocks[:1])
    return replace(weights, config=replace(weights.config, n_audio_layer=1), encoder=encoder)


def operations(config: WhisperConfig, batch: int, mean_length: float) -> float:
    """Floating-point operations of a step of `batch` rows."""
    d, layers = config.n_text_state, config.n_text_layer
    weights = layers * 14.0 * d * d + config.n_vocab * d
    return 2 * batch * (weights + 2.0 * layers * d * (config.n_audio_ctx + mean_length))


def measure(runner: WhisperRunner, batch: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """One batch."""
    steps = StepBench(runner, batch)
    times = steps.time(arguments.repeat)
    step_ms = statistics.median(times)
    counted = {
        "bytes": step_bytes(runner, batch, steps.mean_length),
        "operations": operations(runner.config, batch, steps.mean_length),
    }
    return {
        "case": f"whisper {arguments.size} batch {batch}",
        "device": runner.device,
        "dtype": arguments.dtype,
        "batch": batch,
        "step_ms": step_ms,
        "step_spread_ms": [min(times), max(times)],
        "host_ms": time_host(steps),
        "dispatches": len(steps.step.dispatches),
        **counted,
        "share": counted["bytes"] / step_ms / 1e9 / arguments.bandwidth,
        "tflops": counted["operations"] / step_ms / 1e9,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", choices=SIZES, default="turbo")
    parser.add_argument("--batches", default="1,2,4,8,16,32")
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--dtype", choices=DTYPES, default="f16")
    parser.add_argument("--repeat", type=int, default=10)
    parser.add_argument("--bandwidth", type=float, default=4.2, help="TB/s")
    parser.add_argument("--trace", action="store_true", help="microseconds a kernel, from queries")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.trace:
        os.environ["OSCINE_TRACE"] = "kernels"
    gpu = Gpu(open_device(select_adapter(arguments.device)))
    runner = WhisperRunner(decoder_only(arguments.size, arguments.dtype), gpu)
    found: list[dict[str, Any]] = []
    print(f"{gpu.name}\nbatch  ms a step  of batch 1  ms a token      GB  share  GFLOP  TFLOP/s")
    for batch in (int(word) for word in arguments.batches.split(",")):
        row = measure(runner, batch, arguments)
        found.append(row)
        ratio, each = row["step_ms"] / found[0]["step_ms"], row["step_ms"] / batch
        print(
            f"{batch:5} {row['step_ms']:10.3f} {ratio:11.2f} {each:11.4f} "
            f"{row['bytes'] / 1e9:7.2f} {row['share']:6.2f} {row['operations'] / 1e9:6.1f} "
            f"{row['tflops']:8.1f}",
            flush=True,
        )
        if gpu.profile is not None:
            for name, (count, micro) in trace(gpu).items():
                print(f"      {name:32} {count:6} times {micro:10.1f} us")
            gpu.profile.totals.clear()
    report(found, arguments.json)


if __name__ == "__main__":
    main()
