#!/usr/bin/env python3
"""Encoder and decoder-step times of Whisper sizes on a GPU, random weights made on the spot.

Usage: gpu.py [--size turbo] [--device gpu] [--dtype f16] [--repeat 20] [--trace] [--json FILE]
Run once an implementation: OSCINE_WEBGPU=wgpu gpu.py; OSCINE_WEBGPU=dawn gpu.py; the peer is
peer_torch.py; several windows in a step are batch.py's, in a pass of the encoder encoder.py's. A
step is one token of one window with its cache at about 100 tokens, host included, timed over bursts
as in real decoding. Prints a table and one JSON line a case.

`oscine bench` measures a model that is here by the same functions (models/whisper/bench.py), which
say what the bytes of a step and the operations of an encoder pass are. `share` is the part of the
measured limit (--bandwidth, in TB/s; --peak, in TFLOP/s) that the case reaches.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections.abc import Iterable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from oscine import ops
from oscine.bench import tensor_bytes
from oscine.gpu.device import open_device, select_adapter
from oscine.models.loader import quantized
from oscine.models.whisper.bench import StepBench, measure_encoder, step_bytes
from oscine.models.whisper.config import WhisperConfig
from oscine.models.whisper.executors import STEPS_PER_POLL
from oscine.models.whisper.runner import WhisperRunner
from oscine.models.whisper.weights import (
    DecoderBlock,
    DecoderWeights,
    EncoderBlock,
    EncoderWeights,
    WhisperWeights,
)
from oscine.ops.webgpu import Gpu
from oscine.quantized import BLOCK, BLOCK_DTYPES

#: n_mels, width, heads, encoder layers, decoder layers, vocabulary: specs of the released sizes.
SIZES = {
    "tiny": (80, 384, 6, 4, 4, 51865),
    "base": (80, 512, 8, 6, 6, 51865),
    "small": (80, 768, 12, 12, 12, 51865),
    "medium": (80, 1024, 16, 24, 24, 51865),
    "large-v3": (128, 1280, 20, 32, 32, 51866),
    "turbo": (128, 1280, 20, 32, 4, 51866),
}


DTYPES = ("f16", "f32", *BLOCK_DTYPES)


class Maker:
    """Random arrays cut from one block of noise: drawing a billion numbers takes longer than all
    that is measured."""

    def __init__(self, dtype: str) -> None:
        """`dtype`: one of DTYPES; with q8 and q4 products are in blocks, as after loading."""
        noise = np.random.default_rng(0).standard_normal(1 << 24, np.float32) * np.float32(0.02)
        self.noise = np.tile(noise.astype(np.float32 if dtype == "f32" else np.float16), 5)
        self.blocks: np.ndarray | None = None
        if dtype in BLOCK_DTYPES:
            rows = quantized(noise.reshape(-1, 1024), BLOCK_DTYPES[dtype])
            self.blocks = np.tile(rows.reshape(-1), 5)
        self.at = 0

    def matrix(self, *shape: int) -> np.ndarray:
        count = int(np.prod(shape))
        self.at = (self.at + 7919 * 16) % (1 << 24) if count < 1 << 26 else 0
        return self.noise[self.at : self.at + count].reshape(shape)

    def product(self, out: int, inputs: int) -> np.ndarray:
        """The weight of a product, or the token embedding."""
        found = self.matrix(out, inputs)
        if self.blocks is None:
            return found
        at, count = self.at // BLOCK, out * inputs // BLOCK
        return self.blocks[at : at + count].reshape(out, -1)

    def linear(self, out: int, inputs: int) -> ops.Linear:
        return ops.Linear(self.product(out, inputs), np.zeros(out, np.float32))

    def norm(self, width: int) -> ops.LayerNorm:
        return ops.LayerNorm(np.ones(width, np.float32), np.zeros(width, np.float32))


def random_weights(size: str, dtype: str) -> WhisperWeights:
    """A checkpoint's tree of a released size."""
    mels, d, heads, encoders, decoders, vocabulary = SIZES[size]
    make = Maker(dtype)

    def common() -> dict[str, Any]:
        return {
            "attn_ln": make.norm(d),
            "qkv": make.linear(3 * d, d),
            "attn_out": make.linear(d, d),
            "mlp_ln": make.norm(d),
            "fc1": make.linear(4 * d, d),
            "fc2": make.linear(d, 4 * d),
        }

    def cross() -> dict[str, Any]:
        return {
            "cross_attn_ln": make.norm(d),
            "cross_q": make.linear(d, d),
            "cross_kv": make.linear(2 * d, d),
            "cross_attn_out": make.linear(d, d),
        }

    def convolution(inputs: int) -> ops.Linear:
        return ops.Linear(make.matrix(d, 3, inputs), np.zeros(d, np.float32))

    encoder = EncoderWeights(
        convolution(mels),
        convolution(d),
        make.matrix(1500, d).astype(np.float32),
        tuple(EncoderBlock(**common()) for _ in range(encoders)),
        make.norm(d),
    )
    decoder = DecoderWeights(
        make.product(vocabulary, d),
        make.matrix(448, d).astype(np.float32),
        tuple(DecoderBlock(**common(), **cross()) for _ in range(decoders)),
        make.norm(d),
    )
    config = WhisperConfig(
        mels, 1500, d, heads, encoders, vocabulary, 448, d, heads, decoders, None, None, None, None
    )
    here = Path()
    return WhisperWeights(config, encoder, decoder, here, here, "random", None, "f16")


def time_host(steps: StepBench) -> float:
    """Milliseconds a step that the host spends on recording and submitting bursts."""
    started = perf_counter()
    for _ in range(8):
        steps.step.run(STEPS_PER_POLL)
    return 1000 * (perf_counter() - started) / (8 * STEPS_PER_POLL)


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """One size on one implementation."""
    gpu = Gpu(open_device(select_adapter(arguments.device)))
    runner = WhisperRunner(random_weights(arguments.size, arguments.dtype), gpu)
    encoder = measure_encoder(runner, 1, max(3, arguments.repeat // 4))
    steps = StepBench(runner, 1)
    times = steps.time(arguments.repeat)
    counted = {
        "encoder_flop": encoder.flop,
        "step_bytes": step_bytes(runner, 1, steps.mean_length),
    }
    step_ms, encoder_ms = statistics.median(times), encoder.ms
    return {
        "case": f"whisper {arguments.size}",
        "device": gpu.name,
        "dtype": arguments.dtype,
        "weight_bytes": sum(map(tensor_bytes, (runner.encoder.w, runner.decoder))),
        "encoder_ms": encoder_ms,
        "encoder_tflops": counted["encoder_flop"] / encoder_ms / 1e9,
        "encoder_share": counted["encoder_flop"] / encoder_ms / 1e9 / arguments.peak,
        "step_ms": step_ms,
        "step_spread_ms": [min(times), max(times)],
        "step_host_ms": time_host(steps),
        "step_gbs": counted["step_bytes"] / step_ms / 1e6,
        "step_share": counted["step_bytes"] / step_ms / 1e9 / arguments.bandwidth,
        "step_dispatches": len(steps.step.dispatches),
        **counted,
        "profile": trace(gpu) if gpu.profile else None,
    }


def trace(gpu: Gpu) -> dict[str, tuple[int, float]]:
    """Mean microseconds on the GPU of each kernel, and how often it ran."""
    totals = gpu.profile.collect() if gpu.profile else {}
    return {
        name: (total.count, 1000 * total.milliseconds / total.count)
        for name, total in sorted(totals.items())
    }


def report(rows: Iterable[dict[str, Any]], path: Path | None) -> None:
    """Print a JSON line a row, and add it to a file where there is a path."""
    for row in rows:
        print(json.dumps(row))
        if path:
            with path.open("a", encoding="utf-8") as out:
                out.write(json.dumps(row) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", choices=SIZES, default="turbo")
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--dtype", choices=DTYPES, default="f16")
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--peak", type=float, default=60.0, help="TFLOP/s of float32")
    parser.add_argument("--bandwidth", type=float, default=4.2, help="TB/s")
    parser.add_argument("--trace", action="store_true", help="microseconds a kernel, from queries")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.trace:
        os.environ["OSCINE_TRACE"] = "kernels"
    found = measure(arguments)
    profile = found.pop("profile")
    for name, value in found.items():
        print(f"{name:20} {value:.4g}" if isinstance(value, float) else f"{name:20} {value}")
    for name, (count, micro) in (profile or {}).items():
        print(f"{name:28} {count:6} times {micro:10.1f} us")
    report([found], arguments.json)


if __name__ == "__main__":
    main()
