#!/usr/bin/env python3
"""Parakeet in the size of tdt-0.6b-v3 from samples to labels: milliseconds for each 30 s of audio.

    python benchmarks/parakeet_whole.py [--batch 16,64,256] [--seconds 30] [--device gpu]
        [--dtype f16] [--layers 24] [--labels 8192] [--runs 3]

Random weights; the blank's bias is sought that makes about 103 labels in 30 s, a speaker's pace. So
many recordings, which are arrays, are given at once: features, encoder, and loop of one engine, as
`transcribe` computes them of a recording of one chunk. Run once an implementation (OSCINE_WEBGPU).
Prints one JSON line a batch.
"""

from __future__ import annotations

import argparse
import json
import statistics
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import parakeet
import transducer
from numpy.typing import NDArray

from oscine.audio.io import open_source
from oscine.audio.mel import HOP_LENGTH
from oscine.backends import choose_backend
from oscine.bench import made_sound, time_once
from oscine.engine.scheduler import Engine
from oscine.engine.sequence import EncoderInput
from oscine.models.parakeet.runner import ParakeetRunner
from oscine.models.parakeet.samples import recording_features
from oscine.models.parakeet.sequences import Chunk, Hypothesis
from oscine.models.parakeet.weights import ParakeetWeights
from oscine.threads import available_cores

LABELS_A_SECOND = 103 / 30


def made_up(options: argparse.Namespace) -> ParakeetWeights:
    """The encoder of parakeet.py with the transducer of transducer.py."""
    kind = np.float16 if options.dtype == "f16" else np.float32
    whole = parakeet.made_up(options.layers, kind)
    asked = argparse.Namespace(seed=0, dtype=options.dtype, labels=options.labels, layers=2)
    head = transducer.made_up(asked)
    names = "vocab_size", "predictor_dim", "predictor_layers", "joint_dim", "durations"
    sizes: dict[str, Any] = {name: getattr(head.config, name) for name in names}
    config = replace(whole.config, **sizes, max_symbols=head.config.max_symbols, has_ctc=False)
    return replace(whole, config=config, transducer=head.transducer, ctc=None)


def encoder_input(engine: Engine[ParakeetRunner], samples: NDArray[np.float32]) -> EncoderInput:
    """A recording of one chunk as `transcribe` submits it: its samples, or on the host its mel."""
    most = len(samples) // HOP_LENGTH + 1  # frames: all of it in one window
    features = recording_features(open_source(samples), engine.runner, most, engine.submit)
    return EncoderInput(features.window(0, features.frames))


def recognise(
    engine: Engine[ParakeetRunner], recordings: list[NDArray[np.float32]], pool: ThreadPoolExecutor
) -> list[Hypothesis]:
    """All recordings at once, each submitted as soon as it has features."""

    def submit(samples: NDArray[np.float32]) -> Chunk:
        chunk = Chunk(encoder_input(engine, samples))
        engine.submit(chunk)
        return chunk

    return [chunk.wait() for chunk in pool.map(submit, recordings)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", default="16,64,256")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--dtype", default="f16", choices=("f16", "f32"))
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--labels", type=int, default=8192)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    weights = made_up(options)
    engine = Engine(ParakeetRunner(weights, choose_backend(options.device)))
    sound, rng = made_sound(options.seconds), np.random.default_rng(0)
    batches = [int(word) for word in options.batch.split(",")]
    recordings = [
        sound + 0.01 * rng.standard_normal(len(sound), np.float32) for _ in range(max(batches))
    ]
    assert weights.transducer is not None and weights.transducer.joint_out.bias is not None
    bias, first = (
        weights.transducer.joint_out.bias.copy(),
        encoder_input(engine, recordings[0]),
    )
    transducer.at_pace(engine, bias, [first], options.seconds * LABELS_A_SECOND)
    with ThreadPoolExecutor(available_cores()) as pool:
        for batch in batches:
            work = partial(recognise, engine, recordings[:batch], pool)
            found = work()  # records and compiles
            runs = [time_once(work)[0] for _ in range(options.runs)]
            values = [spent / batch for spent in runs]
            spent = statistics.median(values)
            record = {
                "case": "parakeet 0.6b whole", "device": engine.runner.device,
                "dtype": options.dtype, "batch": batch, "seconds": options.seconds,
                "recording_ms": spent, "spread_ms": [min(values), max(values)],
                "labels": statistics.mean(len(one.emissions) for one in found),
                "times_real_time": 1000 * options.seconds / spent,
            }  # fmt: skip
            print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
