#!/usr/bin/env python3
"""From a recording to the windows of an encoder: log-mel on the host, and on the device.

Usage: front_end.py [--families whisper,parakeet] [--minutes 10] [--mels 128] [--device gpu]
           [--runs 5] [--json FILE]
Run once an implementation: OSCINE_WEBGPU=wgpu front_end.py; OSCINE_WEBGPU=dawn front_end.py.

The recording is examples/spoken.wav repeated. In milliseconds, the median of the runs:

decode: decoding and resampling alone.
host: decoding and the features on the host, up to the first window.
device: decoding and the statistics of the features on the device, up to the first window.
windows: all windows on the device, from the upload of their samples to features; per window below.

difference: the largest and the mean one between the features of both; Whisper's are about -1 to
1.5, Parakeet's have a deviation of 1.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from gpu import report
from recording import write_recording

from oscine import ops
from oscine.audio.features import Analysis, WhisperFeatures, WhisperSamples
from oscine.audio.io import open_source
from oscine.audio.sample_window import LogMelStats
from oscine.backends import choose_backend
from oscine.engine.scheduler import Engine
from oscine.engine.sequence import Call
from oscine.models.front_end import FeaturePlan, FrontEnd
from oscine.models.parakeet.features import NemoFeatures
from oscine.models.parakeet.front_end import front_end as nemo_front_end
from oscine.models.parakeet.samples import NemoSamples, Preemphasized
from oscine.models.whisper.front_end import front_end as whisper_front_end

FRAMES = 3000  # of a window


@dataclass(frozen=True, slots=True)
class Family:
    """The front end of a family: its constants, and the windows of a recording in both ways."""

    front_end: Callable[[int], FrontEnd]
    on_host: Callable[[Any, int], Any]
    on_device: Callable[[Any, int, Analysis], Any]
    window: Callable[[Any, int], Any]  # of the features, from a frame on


FAMILIES = {
    "whisper": Family(
        whisper_front_end,
        lambda source, mels: WhisperFeatures(source, mels, FRAMES),
        lambda source, mels, analyse: WhisperSamples(source, mels, FRAMES, analyse),
        lambda windows, first: windows.window(first, FRAMES),
    ),
    "parakeet": Family(
        nemo_front_end,
        lambda source, mels: NemoFeatures(source, mels),
        lambda source, mels, analyse: NemoSamples(Preemphasized(source), mels, FRAMES, analyse),
        lambda windows, first: windows.window(first, min(first + FRAMES, windows.frames)),
    ),
}


class FrontEndRunner:
    """What an engine needs to take calls, and the plan of one window."""

    def __init__(self, backend: ops.Backend, family: Family, n_mels: int) -> None:
        self.backend, self.device = backend, backend.name
        self.timings: dict[str, float] = {}
        constants = ops.upload(backend, family.front_end(n_mels))
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


def measure(recording: Path, name: str, n_mels: int, device: str, runs: int) -> dict[str, Any]:
    """Time both ways, and compare their features."""
    family = FAMILIES[name]
    runner = FrontEndRunner(choose_backend(device), family, n_mels)
    engine = Engine(runner)

    def analyse(samples: np.ndarray, frames: int) -> Callable[[], LogMelStats]:
        return engine.submit(Call(lambda runner: runner.plan.statistics(samples, frames))).wait

    def on_host() -> Any:
        features = family.on_host(open_source(recording), n_mels)
        family.window(features, 0)
        return features

    def on_device() -> Any:
        windows = family.on_device(open_source(recording), n_mels, analyse)
        family.window(windows, 0)
        return windows

    features, windows = on_host(), on_device()
    seeks = range(0, features.frames, FRAMES)

    def all_windows(runner: FrontEndRunner) -> None:
        for seek in seeks:
            runner.plan.run(family.window(windows, seek), runner.target, 0)
        runner.backend.wait()

    def difference(runner: FrontEndRunner, seek: int) -> np.ndarray:
        runner.plan.run(family.window(windows, seek), runner.target, 0)
        expected = family.window(features, seek)
        return np.abs(runner.backend.read(runner.target)[: len(expected)] - expected)

    differences = [
        engine.call(lambda runner, seek=seek: difference(runner, seek)) for seek in seeks
    ]
    return {
        "case": f"front end of {name}, {n_mels} mels",
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
    parser.add_argument("--families", default="whisper,parakeet")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--mels", type=int, default=128)
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        recording = Path(scratch) / "recording.wav"
        write_recording(recording, 60 * arguments.minutes)
        rows = [
            measure(recording, name, arguments.mels, arguments.device, arguments.runs)
            for name in arguments.families.split(",")
        ]
    for row in rows:
        print(
            f"{row['case']}, {row['device']}: decode {row['decode_ms']:.0f} ms, first window after "
            f"{row['host_ms']:.0f} ms by the host and {row['device_ms']:.0f} ms by the device;\n"
            f"{row['windows']} windows on the device {row['windows_ms']:.1f} ms, "
            f"{row['windows_ms'] / row['windows']:.2f} ms each; "
            f"difference {row['max_difference']:.1e}, mean {row['mean_difference']:.1e}"
        )
    report(rows, arguments.json)


if __name__ == "__main__":
    main()
