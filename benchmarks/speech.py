#!/usr/bin/env python3
"""Qwen3-TTS in its released sizes on a GPU: milliseconds a frame, and to the first audio.

    python benchmarks/speech.py [--size 0.6b,1.7b] [--device gpu] [--seconds 15] [--runs 5]
        [--dtype auto] [--voices 1,4,16,64] [--arrivals 10,20] [--keep DIR] [--trace] [--json FILE]

Random weights made on the spot and read as a released checkpoint is (bfloat16 talker, float32
codec). Timed as a user has it: `model.stream` from the text to the last sample, sampling on, frames
in bursts, audio read; the first audio counts from the call. Then apart, as replays of their plans:
the talker's layers, the predictor with its 15 choices, the codec for calls of 1 and 4 frames.
Bytes are weights and caches read once a frame (the predictor's 15 times); `share` is the part of
--bandwidth (TB/s, measured) that they need. Run once an implementation (OSCINE_WEBGPU).
Then streams of several voices that start together, each read by a thread of its own: the sum of
their times real time, the first audio of each, and underruns, which are pieces of audio that come
after all before them was played; and the bytes that the voices take beside the weights.
--arrivals adds an open loop: so many requests of two seconds of audio a second, for five seconds.
Prints one JSON line a size, and one for each number of voices and each rate of requests.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import speech_checkpoint

import oscine
from oscine.bench import run_together
from oscine.engine.batch import Occupancy
from oscine.models.qwen3_tts.bench import (
    TimedSpeech,
    frame_bytes,
    measure_codec,
    measure_parts,
    speak_together,
    time_speech,
)
from oscine.models.qwen3_tts.buffers import buffer_bytes
from oscine.models.qwen3_tts.runner import Qwen3TtsRunner

TEXT = "A short sentence, spoken by a machine."
FRAMES_PER_SECOND = 12.5


def options_of(frames: int) -> dict[str, Any]:
    """How every text is spoken: as many frames, with no guard that ends it."""
    return {"voice": "ryan", "language": "english", "max_frames": frames, "guard": False}


def spoken(model: Any, frames: int) -> dict[str, float]:
    """One utterance as a user has it."""
    found = time_speech(model, TEXT, seed=0, **options_of(frames))
    return {
        "first_audio_ms": 1000 * found.first_audio_s, "seconds": found.seconds,
        "wall_s": found.wall_s, "times_real_time": found.seconds / found.wall_s,
        "frame_ms": 1000 * found.wall_s / (found.seconds * FRAMES_PER_SECOND),
    }  # fmt: skip


def voices(model: Any, count: int, frames: int) -> dict[str, Any]:
    """Streams that start together: twice to record plans, as growing memory drops those recorded
    before, then measured."""
    for _ in range(3):
        occupancy = model.engine.occupancy = Occupancy()
        for batch in model.engine._batches.values():
            batch.occupancy = occupancy
        wall, heard = speak_together(model, count, TEXT, **options_of(frames))
    firsts = sorted(1000 * each.first_audio_s for each in heard)
    seconds = sum(each.seconds for each in heard)
    return {
        "voices": count, "seconds": seconds, "wall_s": wall, "times_real_time": seconds / wall,
        "slowest_voice": min(each.seconds / each.wall_s for each in heard),
        "first_audio_ms": [firsts[0], statistics.median(firsts), firsts[-1]],
        "underruns": sum(each.underruns for each in heard), "occupancy": occupancy.mean,
    }  # fmt: skip


def arrivals(model: Any, rate: int, seconds: float = 5.0, frames: int = 25) -> dict[str, Any]:
    """Short requests that arrive at a fixed rate, whether or not earlier ones have ended.

    Once to record plans, then measured.
    """

    def request(number: int, started: float) -> TimedSpeech:
        sleep(max(0.0, started + number / rate - perf_counter()))
        return time_speech(model, TEXT, seed=number, **options_of(frames))

    for _ in range(2):
        started = perf_counter()
        heard = run_together([partial(request, n, started) for n in range(round(rate * seconds))])
    firsts = sorted(1000 * each.first_audio_s for each in heard)
    return {
        "requests_a_second": rate, "requests": len(heard), "frames": frames,
        "first_audio_p50_ms": statistics.median(firsts),
        "first_audio_p95_ms": firsts[math.ceil(0.95 * len(firsts)) - 1],
        "underruns": sum(each.underruns for each in heard),
    }  # fmt: skip


def memory(runner: Qwen3TtsRunner, count: int, seconds: float = 60.0) -> dict[str, float]:
    """Gigabytes that so many voices of so many seconds take beside the weights."""
    positions = 50 + round(seconds * FRAMES_PER_SECOND)
    talker = buffer_bytes(runner.config, count, positions, positions)
    codec = count * runner.codec.states.bytes_per_slot()
    return {"talker_gb": talker / 1e9, "codec_gb": codec / 1e9, "of_seconds": seconds}


def parts(runner: Qwen3TtsRunner, runs: int) -> dict[str, float]:
    """Talker, predictor and codec by themselves; the plans run on whatever the slots hold."""
    found: dict[str, float] = {}
    for part in measure_parts(runner, runs):
        found[f"{part.case}_dispatches"] = part.details["dispatches"]
        found[f"{part.case}_ms"] = part.ms
    found["step_dispatches"] = len(getattr(runner.talker.step_plan(1), "dispatches", ()))
    for frames in (1, 4):
        codec = measure_codec(runner, frames, 4 * runs)
        found[f"codec_{frames}_ms"] = frames * codec.ms
        found[f"codec_{frames}_dispatches"] = codec.details["dispatches"]
    return found


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
        record["bytes"] = frame_bytes(runner)
        record["share"] = record["bytes"] / record["frame_ms"] / 1e9 / options.bandwidth
        yield record
        for count in map(int, filter(None, options.voices.split(","))):
            found = voices(model, count, frames)
            yield {"case": record["case"], **found, **memory(runner, count)}
        for rate in map(int, filter(None, options.arrivals.split(","))):
            yield {"case": record["case"], **arrivals(model, rate)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="0.6b,1.7b")
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--voices", default="1,4,16,64", help="at once; empty: one alone")
    parser.add_argument("--arrivals", default="", help="short requests a second, an open loop")
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
