#!/usr/bin/env python3
"""From a recording to the windows of an encoder: log-mel on the host, and on the device.

Usage: front_end.py [--minutes 10] [--mels 128] [--device gpu] [--runs 5] [--json FILE]
Run once an implementation: OSCINE_WEBGPU=wgpu front_end.py; OSCINE_WEBGPU=dawn front_end.py.

The recording is examples/spoken.wav repeated. In milliseconds, the median of the runs:

decode: decoding and resampling alone.
host: decoding and the features of Whisper on the host, up to the first window.
device: decoding and the search for their maximum on the device, up to the first window.
windows: all windows on the device, from the upload of their samples to features; per window below.

difference: the largest and the mean one between the features of both, which are about -1 to 1.5.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from gpu import report
from recording import write_recording

from oscine import ops
from oscine.audio.features import WhisperFeatures, WhisperSamples
from oscine.audio.io import open_source
from oscine.audio.sample_window import LogMelStats
from oscine.backends import choose_backend
from oscine.engine.scheduler import Engine
from oscine.engine.sequence import Call
from oscine.models.front_end import FeaturePlan
from oscine.models.whisper.front_end import front_end

FRAMES = 3000  # of a window


class FrontEndRunner:
    """What an engine needs to take calls, and the plan of one window."""

    def __init__(self, backend: ops.Backend, n_mels: int) -> None:
        self.backend, self.device = backend, backend.name
        self.timings: dict[str, float] = {}
        constants = ops.upload(backend, front_end(n_mels))
        self.plan = FeaturePlan(backend, constants, FRAMES)
        self.target = backend.zeros((FRAMES, n_mels))


def milliseconds(work: Callable[[], object], runs: int) -> float:
    """The median of runs, after a first one that is not counted."""
    work()
    found = []
    for _ in range(runs):
        started = perf_counter()
        work()
        found.append(1000 * (perf_counter() - started))
    return statistics.median(found)


def measure(recording: Path, n_mels: int, device: str, runs: int) -> dict[str, Any]:
    """Time both ways, and compare their features."""
    runner = FrontEndRunner(choose_backend(device), n_mels)
    engine = Engine(runner)

    def analyse(samples: np.ndarray, frames: int) -> Callable[[], LogMelStats]:
        return engine.submit(Call(lambda runner: runner.plan.statistics(samples, frames))).wait

    def on_host() -> WhisperFeatures:
        features = WhisperFeatures(open_source(recording), n_mels, FRAMES)
        features.window(0, FRAMES)
        return features

    def on_device() -> WhisperSamples:
        windows = WhisperSamples(open_source(recording), n_mels, FRAMES, analyse)
        windows.window(0, FRAMES)
        return windows

    features, windows = on_host(), on_device()
    seeks = range(0, features.frames, FRAMES)

    def all_windows(runner: FrontEndRunner) -> None:
        for seek in seeks:
            runner.plan.run(windows.window(seek, FRAMES), runner.target, 0)
        runner.backend.wait()

    def difference(runner: FrontEndRunner, seek: int) -> np.ndarray:
        runner.plan.run(windows.window(seek, FRAMES), runner.target, 0)
        return np.abs(runner.backend.read(runner.target) - features.window(seek, FRAMES))

    differences = [
        engine.call(lambda runner, seek=seek: difference(runner, seek)) for seek in seeks
    ]
    return {
        "case": f"front end, {n_mels} mels",
        "device": runner.device,
        "minutes": features.duration / 60,
        "decode_ms": milliseconds(lambda: sum(map(len, open_source(recording).blocks())), runs),
        "host_ms": milliseconds(on_host, runs),
        "device_ms": milliseconds(on_device, runs),
        "windows_ms": milliseconds(lambda: engine.call(all_windows), runs),
        "windows": len(seeks),
        "max_difference": float(max(each.max() for each in differences)),
        "mean_difference": float(np.mean([each.mean() for each in differences])),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--mels", type=int, default=128)
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        recording = Path(scratch) / "recording.wav"
        write_recording(recording, 60 * arguments.minutes)
        row = measure(recording, arguments.mels, arguments.device, arguments.runs)
    print(
        f"{row['device']}: decode {row['decode_ms']:.0f} ms, first window after "
        f"{row['host_ms']:.0f} ms by the host and {row['device_ms']:.0f} ms by the device;\n"
        f"{row['windows']} windows on the device {row['windows_ms']:.1f} ms, "
        f"{row['windows_ms'] / row['windows']:.2f} ms each; "
        f"difference {row['max_difference']:.1e}, mean {row['mean_difference']:.1e}"
    )
    report([row], arguments.json)


if __name__ == "__main__":
    main()
