#!/usr/bin/env python3
"""Where the time goes from a new process to the first token, or the first audio.

Usage: load.py [--size turbo,1.7b] [--device gpu] [--runs 2] [--keep FOLDER] [--no-token]
           [--json FILE]
A size is one of gpu.py's (Whisper: load, then one token of one window) or speech.py's (Qwen3-TTS:
load, then the first audio of one utterance). The checkpoint is random, in the released layout, and
written where --keep does not have it, so its file is in the page cache. Each run is a new process.
The first finds the caches of the driver and of oscine empty; the later ones find what it left.

Prints a table of seconds, then a JSON line a run. A part counts the time in which nothing of
another part runs: `other` is the rest of `load` and `first`. peak_mb: of the process, with the
pages of the file that it touched.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

STARTED = perf_counter()
EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "spoken.wav"
TEXT = "A short sentence, spoken by a machine."
SPEECH_SIZES = ("0.6b", "1.7b")
#: What is timed: part, module, and the function or method in it.
PARTS = (
    ("open", "oscine.gpu.device", "adapters"),
    ("open", "oscine.gpu.device", "open_device"),
    ("check", "oscine.ops.check", "self_check"),
    ("read", "oscine.models.loader", "ArrayLoader.raw"),
    ("read", "oscine.models.loader", "ArrayLoader.f32"),
    ("convert", "oscine.models.loader", "ArrayLoader.cast"),
    ("convert", "oscine.models.loader", "ArrayLoader.derived"),
    ("weights", "oscine.loading", "read_checkpoint"),
    ("weights", "oscine.models.loader", "load"),
    ("upload", "oscine.gpu.memory", "Memory.upload"),
    ("compile", "oscine.gpu.kernels", "PipelineCache.get"),
    ("compile", "oscine.gpu.kernels", "Pipeline.wait"),
    ("plan", "oscine.gpu.plan", "Plan.__init__"),
    ("plan", "oscine.ops.webgpu.recorder", "Recorder.record"),
    ("tokenizer", "oscine.models.whisper.network", "tokenizer_of"),
    ("wait", "oscine.gpu.device", "Device.map_read"),
)
COLUMNS = ("import", *dict.fromkeys(part for part, *_ in PARTS), "other", "load", "first", "whole")


class Parts:
    """Seconds of each part: a part stops while another runs inside it."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.running: list[str] = []
        self.since = 0.0

    def switch(self) -> None:
        """Count the time since the last change for the part that ran."""
        now = perf_counter()
        if self.running:
            self.seconds[self.running[-1]] += now - self.since
        self.since = now

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, counted as a part; calls from other threads than the first are not."""

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            self.switch()
            self.running.append(part)
            try:
                return function(*args, **kwargs)
            finally:
                self.switch()
                self.running.pop()

        return call

    def watch(self) -> None:
        """Time all of PARTS from now on, wherever modules have imported them."""
        for part, module, path in PARTS:
            __import__(module)
            owner: Any = sys.modules[module]
            *names, last = path.split(".")
            for name in names:
                owner = getattr(owner, name)
            before = getattr(owner, last)
            after = self.timed(part, before)
            setattr(owner, last, after)
            if names:
                continue
            for other in list(sys.modules.values()):
                if getattr(other, last, None) is before and other.__name__.startswith("oscine"):
                    setattr(other, last, after)


def first_token(model: Any) -> None:
    """One token of one window of the example."""
    options = {"vad_filter": False, "without_timestamps": True, "temperature": 0, "beam_size": 1}
    model.transcribe(EXAMPLE, language="en", sample_len=1, clip_timestamps="0,5", **options)


def first_audio(model: Any) -> None:
    """The first audio of one utterance."""
    options = {"seed": 0, "max_frames": 40, "guard": False}
    stream = model.stream(TEXT, voice="ryan", language="english", **options)
    next(iter(stream))
    stream.close()


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """One load in this process."""
    import oscine
    import oscine.loading

    parts = Parts()
    for name in ("whisper", "qwen3_tts"):
        __import__(f"oscine.models.{name}.network")
    __import__("oscine.ops.webgpu")
    imported = perf_counter() - STARTED
    parts.watch()
    started = perf_counter()
    model = oscine.load(options.checkpoint, device=options.device)
    loaded = perf_counter()
    if not options.no_token:
        (first_audio if options.size in SPEECH_SIZES else first_token)(model)
    ended = perf_counter()
    seconds = {"import": imported, "load": loaded - started, "first": ended - loaded}
    rest = ended - started - sum(parts.seconds.values())
    seconds |= {**parts.seconds, "other": rest, "whole": ended - STARTED}
    return {
        "case": f"load {options.size}", "device": model.device,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        **{f"{name}_s": round(seconds.get(name, 0.0), 4) for name in COLUMNS},
    }  # fmt: skip


def run_case(size: str, folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """The runs of a size, each in a process of its own, over caches that begin empty."""
    command = [sys.executable, __file__, "--size", size, "--device", options.device]
    command += ["--checkpoint", str(folder), *(["--no-token"] if options.no_token else [])]
    records = []
    with tempfile.TemporaryDirectory() as caches:
        names = ("XDG_CACHE_HOME", "MESA_SHADER_CACHE_DIR", "__GL_SHADER_DISK_CACHE_PATH")
        environment = os.environ | dict.fromkeys(names, caches) | {"HOME": caches}
        for run in range(options.runs):
            ran = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
            if ran.returncode:
                raise SystemExit(f"load.py: {size} ended with {ran.returncode}")
            record = json.loads(ran.stdout.splitlines()[-1])
            records.append({**record, "caches": "full" if run else "empty"})
    return records


def make(folder: Path, size: str) -> None:
    """Write the checkpoint of a size."""
    import speech_checkpoint
    import whisper_checkpoint

    (speech_checkpoint if size in SPEECH_SIZES else whisper_checkpoint).write(folder, size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="turbo,1.7b")
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--keep", type=Path, help="where checkpoints are, or are made and kept")
    parser.add_argument("--no-token", action="store_true", help="only load")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--checkpoint", type=Path, help="measure one load of it in this process")
    options = parser.parse_args()
    if options.checkpoint:
        print(json.dumps(measure(options)))
        return
    records = []
    with tempfile.TemporaryDirectory() as scratch:
        for size in options.size.split(","):
            folder = (options.keep or Path(scratch)) / size
            if not folder.exists():
                make(folder, size)
            records += run_case(size, folder, options)
    print(f"{'seconds':20}", *(f"{name:>9}" for name in COLUMNS), f"{'peak MB':>9}")
    for record in records:
        cells = (f"{record[f'{name}_s']:9.3f}" for name in COLUMNS)
        print(f"{record['case']} {record['caches']:8}"[:20].ljust(20), *cells, end=" ")
        print(f"{record['peak_mb']:9.0f}")
    for record in records:
        line = json.dumps(record)
        print(line)
        if options.json:
            with options.json.open("a", encoding="utf-8") as out:
                out.write(line + "\n")


if __name__ == "__main__":
    main()
