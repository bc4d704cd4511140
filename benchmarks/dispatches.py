#!/usr/bin/env python3
"""Where a step's time goes: microseconds of each kind of dispatch of a recorded step.

Usage: dispatches.py [--model whisper|qwen3-tts|parakeet] [--size turbo] [--batch 1] [--device gpu]
           [--dtype f16] [--repeat 5] [--dispatches 300] [--keep DIR] [--json FILE]

Random weights. A kind is a kernel with its launch and the shapes of its operands. The dispatches of
a kind run by themselves in the plan's order, each waiting for the one before as in the step, some
hundred in a pass that timestamps enclose: the time of a kernel with its launch, on the weights of
all layers in turn. `share` is the part of the step that a kind takes; `whole` times the whole step
in the same way, and `sum` adds up the kinds. Prints a table and one JSON line a kind.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import speech_checkpoint
from batch import decoder_only
from gpu import report
from transducer import made_up

import oscine
from oscine import ops
from oscine.backends import choose_backend
from oscine.gpu.plan import Dispatch, Plan
from oscine.gpu.tensor import Tensor
from oscine.models.parakeet.runner import ParakeetRunner
from oscine.models.whisper.bench import StepBench
from oscine.models.whisper.runner import WhisperRunner


@dataclass(frozen=True)
class Step:
    """A recorded step, and what sets the state of its rows."""

    backend: Any
    plan: Plan
    prepare: Callable[[], None]


def whisper_step(arguments: argparse.Namespace) -> Step:
    """A decoder step of windows with about a hundred tokens, and what sets its state."""
    backend = choose_backend(arguments.device)
    runner = WhisperRunner(decoder_only(arguments.size, arguments.dtype), backend)
    steps = StepBench(runner, arguments.batch)

    def prepare() -> None:
        steps.prefill()
        state = backend.read(steps.state).copy()
        state["position"] = 100
        backend.write(steps.state, state)

    return Step(backend, steps.step, prepare)


def speech_step(arguments: argparse.Namespace) -> Step:
    """A frame of voices that have a hundred positions, and what sets its state."""
    with speech_checkpoint.checkpoint(arguments.size, arguments.keep) as folder:
        model: Any = oscine.load(folder, device=arguments.device, dtype=arguments.dtype)
    talker = model.runner.talker
    talker.reserve(arguments.batch, 256, 64)
    state = talker.buffers.state.rows
    config = model.runner.config
    for params, vocabulary in (
        (talker.buffers.sampling_params, config.vocab_size),
        (talker.buffers.code_predictor_sampling_params, config.codebook_size),
    ):
        chosen = np.zeros(params.shape, params.dtype)
        chosen["end"] = chosen["suppress"] = vocabulary
        chosen["top_k"], chosen["temperature"], chosen["top_p"] = 50, 0.9, 1.0
        chosen["repetition_penalty"] = 1.05
        talker.backend.write(params, chosen)

    def prepare() -> None:
        rows = talker.backend.read(state).copy()
        for number in range(arguments.batch):
            rows[number] = 0
            rows[number]["slot"], rows[number]["position"] = number, 100
            rows[number]["length"], rows[number]["limit"] = 1, 1 << 30
        talker.backend.write(state, rows)

    return Step(talker.backend, talker.step_plan(arguments.batch), prepare)


def parakeet_step(arguments: argparse.Namespace) -> Step:
    """A step of the loop over frames, of chunks that are as long as there is memory for."""
    options = SimpleNamespace(seed=0, dtype=arguments.dtype, labels=8192, layers=2)
    backend = choose_backend(arguments.device)
    executor = ParakeetRunner(made_up(options), backend).executor(None)  # type: ignore[arg-type]
    rows = backend.bucket_rows(arguments.batch)
    plan = executor.step_plan(rows, ())
    assert isinstance(plan, Plan)
    state = next(t for t in plan.dispatches[0].tensors if t.dtype == ops.TRANSDUCER_STATE)
    tensors = {dispatch.kernel: dispatch.tensors for dispatch in plan.dispatches}
    frames, decisions = tensors["joint_network"][0], tensors["transducer_step"][4]

    def prepare() -> None:
        row = np.zeros(state.shape, state.dtype)
        row["length"], row["limit"], row["fresh"] = frames.shape[0], decisions.shape[1], 1
        backend.write(state, row)

    return Step(backend, plan, prepare)


STEPS = {"whisper": whisper_step, "qwen3-tts": speech_step, "parakeet": parakeet_step}


def kind_of(dispatch: Dispatch) -> str:
    """The kernel, its launch, and the shapes of its first operands that have any."""
    shapes = ["x".join(map(str, t.shape)) for t in dispatch.tensors if len(t.shape) > 1]
    return f"{dispatch.kernel} {dispatch.grid} {' '.join(shapes[:2])}"


class Timer:
    """Times dispatches of a plan on the device, between two timestamps."""

    def __init__(self, step: Step, arguments: argparse.Namespace) -> None:
        self.backend, self.plan, self.prepare = step.backend, step.plan, step.prepare
        self.arguments = arguments
        assert self.plan.profile is not None, "the device has no timestamps"
        self.profile = self.plan.profile

    def run(self, chosen: list[Dispatch], times: int) -> float:
        """Microseconds of a round of the dispatches, over so many rounds."""
        bound = dict(zip(map(id, self.plan.dispatches), self.plan.bound, strict=True))
        self.prepare()
        if len(chosen) < len(bound) and chosen[0].kernel.startswith("sample"):
            self.fill(chosen[0].tensors[0])  # with logits: other kinds have left what they have
        self.profile.collect()
        self.profile.totals.clear()
        self.plan.submit([bound[id(each)] for each in chosen], times)
        (total,) = self.profile.collect().values()
        return 1000 * total.milliseconds / times

    def fill(self, logits: Tensor) -> None:
        """Write noise to an intermediate of logits [B, V]; candidates stay what they are."""
        if len(logits.shape) > 2:
            return
        rng, backend = np.random.default_rng(0), self.backend
        x, weight = (
            backend.upload(rng.standard_normal((count, 4), np.float32)) for count in logits.shape
        )
        backend.record(
            lambda: backend.store(backend.linear(x, ops.Linear(weight, None)), logits)
        ).run()

    def warm_up(self, seconds: float) -> None:
        """Run the step again and again: a GPU takes half a second to raise its clock."""
        end = perf_counter() + seconds
        while perf_counter() < end:
            self.run(self.plan.dispatches, 1)

    def median(self, chosen: list[Dispatch]) -> float:
        """The median of some runs after one that does not count."""
        times = max(1, self.arguments.dispatches // len(chosen))
        runs = [self.run(chosen, times) for _ in range(self.arguments.repeat + 1)]
        return statistics.median(runs[1:])


def measure(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """The kinds of a step, the longest in all first."""
    os.environ["OSCINE_TRACE"] = "1"
    timer = Timer(STEPS[arguments.model](arguments), arguments)
    plan = timer.plan
    kinds: dict[str, list[Dispatch]] = defaultdict(list)
    for dispatch in plan.dispatches:
        kinds[kind_of(dispatch)].append(dispatch)
    timer.warm_up(arguments.warm)
    whole = timer.median(plan.dispatches)
    print(f"{plan.device.name}\n{'us each':>8} {'count':>5} {'us in all':>9}  share  kind")
    case = f"{arguments.model} {arguments.size} batch {arguments.batch}"
    found: list[dict[str, Any]] = []
    for kind, chosen in kinds.items():
        micro = timer.median(chosen)
        row = {"case": case, "kind": kind, "count": len(chosen), "us": micro / len(chosen)}
        found.append(row | {"us_in_all": micro, "share": micro / whole})
    found.sort(key=lambda row: -row["us_in_all"])
    total = {"count": len(plan.bound), "us": whole / len(plan.bound)}
    together = sum(row["us_in_all"] for row in found)
    found.append({"case": case, "kind": "sum", **total, "us_in_all": together, "share": 0.0})
    found.append({"case": case, "kind": "whole", **total, "us_in_all": whole, "share": 1.0})
    for row in found:
        print(
            f"{row['us']:8.2f} {row['count']:5} {row['us_in_all']:9.1f} {row['share']:6.3f}  "
            f"{row['kind']}"
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", choices=STEPS, default="whisper")
    parser.add_argument("--size", default="turbo")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--dtype", default="f16")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--dispatches", type=int, default=300, help="of a timed pass")
    parser.add_argument("--warm", type=float, default=1.5, help="seconds before the first run")
    parser.add_argument("--keep", type=Path, help="where checkpoints of speech are kept")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    report(measure(arguments), arguments.json)


if __name__ == "__main__":
    main()
