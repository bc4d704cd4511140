#!/usr/bin/env python3
"""Qwen3-TTS in its released sizes on a GPU: milliseconds a frame, and to the first audio.

    python benchmarks/speech.py [--size 0.6b,1.7b] [--device gpu] [--seconds 15] [--runs 5]
        [--dtype auto] [--voices 1,4,16,64] [--keep DIR] [--trace] [--json FILE]

Random weights made on the spot and read as a released checkpoint is (bfloat16 talker, float32
codec). Timed as a user has it: `model.stream` from the text to the last sample, sampling on, frames
in bursts, audio read; the first audio counts from the call. Then apart, as replays of their plans:
the talker's layers, the predictor with its 15 choices, the codec for calls of 1 and 4 frames.
Bytes are weights and caches read once a frame (the predictor's 15 times); `share` is the part of
--bandwidth (TB/s, measured) that they need. Run once an implementation (OSCINE_WEBGPU).
Then streams of several voices that start together, each read by a thread of its own: the sum of
their times real time, the first audio of each, and underruns, which are pieces of audio that come
after all before them was played; and the bytes that the voices take beside the weights.
Prints one JSON line a size, and one for each number of voices.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from time import perf_counter
from typing import Any

import numpy as np
import speech_checkpoint

import oscine
from oscine.engine.batch import Occupancy
from oscine.models.qwen3_tts import model as network
from oscine.models.qwen3_tts.buffers import buffer_bytes
from oscine.models.qwen3_tts.codec_runner import CodecStream
from oscine.models.qwen3_tts.runner import Qwen3TtsRunner

TEXT = "A short sentence, spoken by a machine."
FRAMES_PER_SECOND = 12.5


def measured(work: Callable[[], object], runs: int) -> list[float]:
    """Milliseconds of each run, after two that are not counted."""
    spent = []
    for _ in range(runs + 2):
        started = perf_counter()
        work()
        spent.append(1000 * (perf_counter() - started))
    return spent[2:]


def spoken(model: Any, frames: int) -> dict[str, float]:
    """One utterance as a user has it."""
    started = perf_counter()
    options = {"seed": 0, "max_frames": frames, "guard": False}
    stream = model.stream(TEXT, voice="ryan", language="english", **options)
    first, samples = 0.0, 0
    for piece in stream:
        first = first or perf_counter() - started
        samples += len(piece.samples)
    whole = perf_counter() - started
    seconds = samples / 24000
    return {
        "first_audio_ms": 1000 * first, "seconds": seconds, "wall_s": whole,
        "times_real_time": seconds / whole, "frame_ms": 1000 * whole / (seconds * 12.5),
    }  # fmt: skip


def read_in_time(model: Any, number: int, frames: int, ready: Barrier) -> dict[str, Any]:
    """One of several streams, and when its audio came."""
    options = {"seed": number, "max_frames": frames, "guard": False}
    ready.wait()
    started = perf_counter()
    stream = model.stream(TEXT, voice="ryan", language="english", **options)
    first, played, late = 0.0, 0.0, 0
    for piece in stream:
        now = perf_counter()
        late += bool(first) and now - first > played
        first = first or now
        played += len(piece.samples) / 24000
    passed = perf_counter() - started
    return {"first": first - started, "seconds": played, "wall": passed, "underruns": late}


def voices(model: Any, count: int, frames: int) -> dict[str, Any]:
    """Streams that start together: once to record plans, then measured."""
    ready = Barrier(count)
    with ThreadPoolExecutor(count) as pool:
        for _ in range(2):
            occupancy = model.engine.occupancy = Occupancy()
            for batch in model.engine._batches.values():
                batch.occupancy = occupancy
            started = perf_counter()
            running = [
                pool.submit(read_in_time, model, number, frames, ready) for number in range(count)
            ]
            heard = [each.result() for each in running]
            wall = perf_counter() - started
    firsts = sorted(1000 * each["first"] for each in heard)
    return {
        "voices": count, "seconds": sum(each["seconds"] for each in heard), "wall_s": wall,
        "times_real_time": sum(each["seconds"] for each in heard) / wall,
        "slowest_voice": min(each["seconds"] / each["wall"] for each in heard),
        "first_audio_ms": [firsts[0], statistics.median(firsts), firsts[-1]],
        "underruns": sum(each["underruns"] for each in heard), "occupancy": occupancy.mean,
    }  # fmt: skip


def memory(runner: Qwen3TtsRunner, count: int, seconds: float = 60.0) -> dict[str, float]:
    """Gigabytes that so many voices of so many seconds take beside the weights."""
    positions = 50 + round(seconds * FRAMES_PER_SECOND)
    talker = buffer_bytes(runner.config, count, positions, positions)
    codec = count * runner.codec.states.bytes_per_slot()
    return {"talker_gb": talker / 1e9, "codec_gb": codec / 1e9, "of_seconds": seconds}


def parts(runner: Qwen3TtsRunner, runs: int) -> dict[str, float]:
    """Talker, predictor and codec by themselves; the plans run on whatever the slots hold."""
    talker, backend, networks = runner.talker, runner.backend, runner.networks
    buffers, codec = talker.rows(1), runner.codec_stream()
    row = backend.read(buffers.state.rows).copy()
    row["done"], row["group"], row["position"], row["length"] = 0, 0, 100, 1
    row["count"], row["limit"] = 10, 1 << 30
    hidden = backend.zeros((1, runner.config.talker.hidden_size))

    def talk() -> None:
        last = networks.code_predictor.codec_embeddings[-1]
        x = backend.sum_embeddings(
            buffers.embedding_sum, last, buffers.trailing_text, buffers.state
        )
        x = network.talker(backend, networks, buffers, x)
        backend.store(backend.rms_norm(x, networks.talker.norm), hidden)

    def frame() -> None:
        logits = backend.linear(hidden, networks.talker.codec_head)
        backend.sample_code(logits, buffers.sampling_params, buffers.state)
        network.code_predictor(backend, networks, buffers, hidden)

    found: dict[str, float] = {}
    for name, trace in (("talker", talk), ("predictor", frame)):
        plan = talker.record(trace, buffers, name)
        found[f"{name}_dispatches"] = len(getattr(plan, "dispatches", ()))

        def run(plan: Any = plan) -> None:
            backend.write(buffers.state.rows, row)
            plan.run(50)
            backend.snapshot(buffers.state.rows)()

        found[f"{name}_ms"] = statistics.median(measured(run, runs)) / 50
    found["step_dispatches"] = len(getattr(talker.step(1), "dispatches", ()))
    for frames in (1, 4):
        codes = np.random.default_rng(0).integers(
            0, runner.config.codebook_size, (frames, runner.config.num_code_groups)
        )

        def decode(codes: np.ndarray = codes, codec: CodecStream = codec) -> None:
            codec.decode(codes)

        found[f"codec_{frames}_ms"] = statistics.median(measured(decode, 4 * runs))
        call = runner.codec.plan(frames).plan
        found[f"codec_{frames}_dispatches"] = len(getattr(call, "dispatches", ()))
    talker.stop([0])
    runner.codec.release_slot(codec.slot)
    return found


def traffic(runner: Qwen3TtsRunner) -> float:
    """Bytes of weights that a frame reads at least, the codec's a quarter of a call's."""
    config = runner.config

    def layer(stack: Any) -> float:
        attention = stack.hidden_size * (2 * stack.q_size + 2 * stack.kv_size)
        return 2.0 * (attention + 3 * stack.hidden_size * stack.intermediate_size)

    talker = (
        config.talker.num_hidden_layers * layer(config.talker)
        + 2.0 * config.talker.hidden_size * 3072
    )
    predictor = config.code_predictor.num_hidden_layers * layer(config.code_predictor)
    heads = 2.0 * config.codebook_size * config.code_predictor.hidden_size
    return talker + 15 * (predictor + heads) + 4.0 * 114e6 / 4


def case(size: str, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """All that is measured of one size: of one voice, then of several."""
    with speech_checkpoint.checkpoint(size, options.keep) as folder:
        started = perf_counter()
        model: Any = oscine.load(folder, device=options.device, dtype=options.dtype)
        loaded = perf_counter() - started
        frames = round(options.seconds * FRAMES_PER_SECOND)
        started = perf_counter()
        spoken(model, frames)
        cold = perf_counter() - started
        heard = [spoken(model, frames) for _ in range(options.runs)]
        again = [spoken(model, 4)["first_audio_ms"] for _ in range(options.runs)]
        runner: Qwen3TtsRunner = model.runner
        record: dict[str, Any] = {
            "case": f"qwen3-tts {size}", "device": runner.device,
            "implementation": os.environ.get("OSCINE_WEBGPU", ""), "dtype": options.dtype,
            "load_s": loaded,
            "first_call_s": cold,
        }  # fmt: skip
        record |= {name: statistics.median(run[name] for run in heard) for name in heard[0]}
        record["spread_frame_ms"] = sorted(run["frame_ms"] for run in heard)[:: options.runs - 1]
        record["first_audio_ms"] = statistics.median(
            [run["first_audio_ms"] for run in heard] + again
        )
        if options.trace:
            print(json.dumps(runner.trace(), indent=1))
        record |= parts(runner, options.runs)
        record["bytes"] = traffic(runner)
        record["share"] = record["bytes"] / record["frame_ms"] / 1e9 / options.bandwidth
        yield record
        for count in map(int, filter(None, options.voices.split(","))):
            found = voices(model, count, frames)
            yield {"case": record["case"], **found, **memory(runner, count)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="0.6b,1.7b")
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--voices", default="1,4,16,64", help="at once; empty: one alone")
    parser.add_argument("--bandwidth", type=float, default=4.2)
    parser.add_argument("--keep", type=Path, help="where checkpoints lie, or are made and kept")
    parser.add_argument("--dtype", default="auto", help="auto: bfloat16 as stored; f16, f32")
    parser.add_argument("--trace", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    for size in options.size.split(","):
        for record in case(size, options):
            line = json.dumps(record)
            print(line, flush=True)
            if options.json:
                with options.json.open("a", encoding="utf-8") as out:
                    out.write(line + "\n")


if __name__ == "__main__":
    main()
