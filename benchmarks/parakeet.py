#!/usr/bin/env python3
"""Parakeet's encoder in the size of tdt-0.6b-v3 on a GPU: milliseconds at batch 1 and 16.

    python benchmarks/parakeet.py [--seconds 30] [--batch 1,16] [--dtype f16] [--device gpu]
        [--layers 24] [--runs 9] [--check] [--json FILE]

Random weights made on the spot. Timed: upload of the mel, the encoder, wait. Run once an
implementation (OSCINE_WEBGPU=wgpu, dawn); the peer is peer_torch_parakeet.py, the loop over frames
transducer.py. Operations are counted two a weight and frame, and the scores. --check holds two
blocks against NumPy first. Prints one JSON line a batch.
"""

from __future__ import annotations

import argparse
import json
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from oscine.backends import choose_backend
from oscine.engine.sequence import EncoderInput
from oscine.models.parakeet.bench import measure_encoder
from oscine.models.parakeet.config import ParakeetConfig
from oscine.models.parakeet.runner import ParakeetRunner
from oscine.models.parakeet.weights import (
    ConformerBlock,
    ConvModule,
    EncoderWeights,
    FeedForward,
    ParakeetWeights,
    RelPosAttention,
    SubsamplingLayer,
)
from oscine.ops import LayerNorm, Linear
from oscine.ops.reference import Reference

WIDTH, HEADS, INNER, KERNEL, CHANNELS, MELS, LABELS = 1024, 8, 4096, 9, 256, 128, 1024


class Maker:
    """Random arrays cut from one block of noise: to draw half a billion numbers takes longer."""

    def __init__(self, kind: type) -> None:
        self.rng = np.random.default_rng(0)
        self.pool = self.rng.standard_normal(1 << 23, np.float32).astype(kind)

    def matrix(self, outputs: int, inputs: int) -> Linear:
        start = int(self.rng.integers(len(self.pool) - outputs * inputs))
        part = self.pool[start : start + outputs * inputs].reshape(outputs, inputs)
        return Linear(part * self.pool.dtype.type(inputs**-0.5), None)

    def vector(self, *sizes: int) -> np.ndarray:
        return self.rng.standard_normal(sizes).astype(np.float32)

    def norm(self) -> LayerNorm:
        return LayerNorm(1 + self.vector(WIDTH) / 8, self.vector(WIDTH) / 8)


def made_up(layers: int, kind: type) -> ParakeetWeights:
    """The encoder with a small CTC head, which is not timed."""
    make = Maker(kind)

    def feed_forward() -> FeedForward:
        return FeedForward(make.norm(), make.matrix(INNER, WIDTH), make.matrix(WIDTH, INNER))

    def block() -> ConformerBlock:
        biases = make.vector(WIDTH) / 4, make.vector(WIDTH) / 4
        square = [make.matrix(WIDTH, WIDTH) for _ in range(3)]
        attention = RelPosAttention(
            make.norm(), make.matrix(3 * WIDTH, WIDTH), square[0], square[1], *biases
        )
        depthwise = Linear(make.vector(KERNEL, WIDTH) / 3, make.vector(WIDTH))
        expand = make.matrix(2 * WIDTH, WIDTH)
        convolution = ConvModule(make.norm(), expand, depthwise, square[2])
        return ConformerBlock(feed_forward(), attention, convolution, feed_forward(), make.norm())

    def small(inputs: int) -> Linear:
        return Linear(make.vector(3, 3, inputs) / 3, make.vector(inputs))

    subsampling = tuple(
        SubsamplingLayer(
            small(CHANNELS),
            replace(make.matrix(CHANNELS, CHANNELS), bias=make.vector(CHANNELS)),
        )
        for _ in range(2)
    )
    project = replace(make.matrix(WIDTH, MELS // 8 * CHANNELS), bias=make.vector(WIDTH))
    encoder = EncoderWeights(
        small(CHANNELS), subsampling, project, tuple(block() for _ in range(layers))
    )
    config = ParakeetConfig(
        n_mels=MELS, d_model=WIDTH, n_heads=HEADS, n_layers=layers, ff_dim=INNER,
        conv_kernel_size=KERNEL, subsampling_channels=CHANNELS, subsampling_factor=8,
        xscaling=False, vocab_size=LABELS, predictor_dim=0, predictor_layers=0, joint_dim=0,
        durations=(), max_symbols=0, has_ctc=True,
    )  # fmt: skip
    head = make.matrix(LABELS + 1, WIDTH)
    here = Path()
    return ParakeetWeights(config, encoder, None, head, here, here, "made up", (), "f16")


def check(device: str, kind: type) -> float:
    """Cosine of two blocks' output on the device and in NumPy."""
    weights, mel = made_up(2, kind), Maker(np.float32).vector(800, MELS)
    found = []
    for backend in (choose_backend(device), Reference()):
        runner = ParakeetRunner(weights, backend)
        found.append(runner.encoded(EncoderInput(mel)).astype(np.float64))
    a, b = found
    return float((a * b).sum() / np.linalg.norm(a) / np.linalg.norm(b))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--dtype", default="f16", choices=("f16", "f32"))
    parser.add_argument("--batch", default="1,16")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    kind = np.float16 if arguments.dtype == "f16" else np.float32
    if arguments.check:
        print(f"two blocks against NumPy: cosine {check(arguments.device, kind):.8f}")
    runner = ParakeetRunner(made_up(arguments.layers, kind), choose_backend(arguments.device))
    for batch in map(int, arguments.batch.split(",")):
        found = measure_encoder(runner, batch, arguments.runs, arguments.seconds)
        values = [batch * spent for spent in found.times_ms]
        spent, counted = statistics.median(values), batch * found.flop
        record: dict[str, Any] = {
            "case": "parakeet 0.6b encoder", "device": runner.device, "dtype": arguments.dtype,
            "batch": batch, "seconds": arguments.seconds, "encoder_ms": spent,
            "spread_ms": [min(values), max(values)], "flop": counted,
            "tflops": counted / spent / 1e9,
            "times_real_time": 1000 * batch * arguments.seconds / spent,
        }  # fmt: skip
        line = json.dumps(record)
        print(line, flush=True)
        if arguments.json:
            with arguments.json.open("a", encoding="utf-8") as out:
                out.write(line + "\n")


if __name__ == "__main__":
    main()
