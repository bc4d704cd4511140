"""Milliseconds of Parakeet's loop over frames, in the size of tdt-0.6b-v3, at a speaker's pace.

    python benchmarks/transducer.py [--seconds 30] [--batch 1,16] [--block 8] [--burst 16]
        [--layers 2] [--labels 8192] [--phrases 0] [--dtype f16] [--kernels]

Random weights; the blank's bias is sought that makes about three labels a second. What is timed is
one engine with all of a batch submitted at once: the loop and the reads. Encodings are projected
and on the device already, where the engine keeps them. One JSON line a batch: the median of --runs,
decisions, labels, steps, dispatches a step. --kernels adds the device's time a kernel
(OSCINE_TRACE=kernels).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

from oscine import ops
from oscine.backends import choose_backend
from oscine.engine.scheduler import Engine
from oscine.engine.sequence import EncoderInput
from oscine.models.parakeet import executors
from oscine.models.parakeet.bench import decode
from oscine.models.parakeet.config import ParakeetConfig
from oscine.models.parakeet.hotwords import build_context_graph
from oscine.models.parakeet.runner import ParakeetRunner
from oscine.models.parakeet.sequences import ENCODED, Hypothesis
from oscine.models.parakeet.weights import (
    EncoderWeights,
    LstmLayer,
    ParakeetWeights,
    SubsamplingLayer,
    TransducerWeights,
)

DURATIONS = (0, 1, 2, 3, 4)
FRAMES_A_SECOND, LABELS_A_SECOND = 12.5, 3.0


def made_up(args: argparse.Namespace) -> ParakeetWeights:
    """A transducer of random weights; the encoder is none."""
    rng, kind = np.random.default_rng(args.seed), np.float16 if args.dtype == "f16" else np.float32
    width, size, labels = 1024, 640, args.labels

    def linear(outputs: int, inputs: int, bias: bool = True) -> ops.Linear:
        weight = rng.standard_normal((outputs, inputs), np.float32) * (inputs**-0.5)
        own = rng.standard_normal(outputs).astype(np.float32) * 0.1 if bias else None
        return ops.Linear(weight.astype(kind), own)

    table = rng.standard_normal((labels + 1, size), np.float32).astype(kind)
    table[labels] = 0
    cells = tuple(
        LstmLayer(linear(4 * size, size), linear(4 * size, size, bias=False))
        for _ in range(args.layers)
    )
    w = TransducerWeights(
        table, cells, linear(size, width), linear(size, size),
        linear(labels + 1 + len(DURATIONS), size),
    )  # fmt: skip
    config = ParakeetConfig(
        n_mels=128, d_model=width, n_heads=8, n_layers=0, ff_dim=4096, conv_kernel_size=9,
        subsampling_channels=4, subsampling_factor=4, xscaling=False, vocab_size=labels,
        predictor_dim=size, predictor_layers=args.layers, joint_dim=size, durations=DURATIONS,
        max_symbols=10, has_ctc=False,
    )  # fmt: skip

    def nothing(*sizes: int) -> ops.Linear:
        return ops.Linear(np.zeros(sizes, np.float32), np.zeros(sizes[-1], np.float32))

    halving, project = (
        SubsamplingLayer(nothing(3, 3, 4), nothing(4, 4)),
        ops.Linear(np.zeros((width, 128), np.float32), None),
    )
    encoder = EncoderWeights(nothing(3, 3, 4), (halving,), project, ())
    return ParakeetWeights(
        config, encoder, w, None, Path("m"), Path("."), "made up", (), args.dtype
    )


def at_pace(
    engine: Engine[ParakeetRunner], bias: Any, inputs: list[EncoderInput], wanted: float
) -> float:
    """The blank's bias with which the first utterance has about so many labels."""
    executor, low, high = engine.runner.executor(None), -2.0, 12.0
    assert isinstance(executor, executors.TransducerExecutor)
    for _ in range(12):
        middle = (low + high) / 2
        bias[executor.config.blank_id] = middle
        executor.backend.write(executor.w.joint_out.bias, bias)
        count = len(decode(engine, inputs[:1])[0].emissions)
        low, high = (middle, high) if count > wanted else (low, middle)
    return (low + high) / 2


def steps_of(found: Hypothesis, blank: int, block: int) -> int:
    """Steps that a line takes alone."""
    steps, end, fresh = 0, -1, True
    for look in found.decisions:
        if fresh or look["frame"] >= end:
            steps, end = steps + 1, int(look["frame"]) + block
        fresh = look["token"] != blank
    return steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--dtype", default="f16", choices=("f16", "f32"))
    parser.add_argument("--batch", default="1,16")
    for name, usual in (
        ("seconds", 30), ("block", 8), ("burst", 16), ("rows", 64), ("layers", 2), ("labels", 8192),
        ("phrases", 0), ("runs", 9), ("seed", 0),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=usual)
    parser.add_argument("--kernels", action="store_true")
    args = parser.parse_args()
    if args.kernels:
        os.environ["OSCINE_TRACE"] = "kernels"
    executors.MAX_FRAMES_PER_ROW, executors.STEPS_PER_POLL, executors.MAX_FRAMES_PER_STEP = (
        args.block,
        args.burst,
        args.rows,
    )
    weights, backend = made_up(args), choose_backend(args.device)
    engine = Engine(ParakeetRunner(weights, backend))
    rng, frames = np.random.default_rng(1), round(args.seconds * FRAMES_A_SECOND)
    batches = [int(batch) for batch in args.batch.split(",")]
    shape = max(batches), frames, weights.config.d_model
    inputs = [EncoderInput(each, ENCODED) for each in rng.standard_normal(shape, np.float32)]
    assert weights.transducer is not None and weights.transducer.joint_out.bias is not None
    bias = at_pace(
        engine, weights.transducer.joint_out.bias.copy(), inputs, args.seconds * LABELS_A_SECOND
    )
    tree = None
    if args.phrases:
        words = rng.integers(0, args.labels, (args.phrases, 4)).tolist()
        tree = build_context_graph([(word, 0.1) for word in words], args.labels)
    for batch in batches:
        found = decode(engine, inputs[:batch], tree)  # records and compiles
        before, times = backend.trace(), []
        for _ in range(args.runs):
            started = time.perf_counter()
            found = decode(engine, inputs[:batch], tree)
            times.append(1000 * (time.perf_counter() - started))
        rows = backend.bucket_rows(batch)
        plan = engine.runner.executor(None).step_plan(rows, ())
        record: dict[str, Any] = {
            "device": backend.name, "batch": batch, "seconds": args.seconds, "dtype": args.dtype,
            "block": executors.step_frames(rows), "burst": args.burst,
            "phrases": args.phrases,
            "ms": round(statistics.median(times), 2), "best_ms": round(min(times), 2),
            "labels": [len(one.emissions) for one in found][:4],
            "decisions": [len(one.decisions) for one in found][:4],
            "steps": max(steps_of(one, args.labels, executors.step_frames(rows)) for one in found),
            "dispatches": len(getattr(plan, "dispatches", ())), "blank_bias": round(bias, 3),
        }  # fmt: skip
        if args.kernels:
            record["us"] = {
                name: round(
                    1000
                    * (ms - before.get(name, (0, 0.0))[1])
                    / (count - before.get(name, (0, 0.0))[0]),
                    2,
                )
                for name, (count, ms) in backend.trace().items()
                if count > before.get(name, (0, 0.0))[0]
            }
        print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
