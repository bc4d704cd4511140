#!/usr/bin/env python3
"""Bytes on the device while a model is at work for many at once, counted by what they are for.

Usage: memory_on_device.py [--cases whisper,speech] [--size turbo] [--slots 16] [--voice-size 1.7b]
           [--voices 16] [--seconds 60] [--device gpu] [--dtype auto] [--keep DIR] [--json FILE]
           [--whisper FOLDER] [--speech FOLDER]

Whisper decodes a recording of --slots windows side by side; Qwen3-TTS speaks for --voices callers
at once, --seconds each. Weights are random and made on the spot, float16 for Whisper and bfloat16
for the talker, unless folders of checkpoints are given. Every buffer that is asked of the device is
counted, with the size that it was asked for; what a driver adds is not known. Prints a table of the
bytes at the end of the work and of their highest sum, then one JSON line a case.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import speech_checkpoint
from device_bytes import Ledger, Purpose
from gpu import SIZES, report
from recording import options, random_model, write_recording

from oscine.backends import choose_backend
from oscine.loading import load_path
from oscine.ops.webgpu import Gpu

FRAMES_PER_SECOND = 12.5
TEXT = "A short sentence, spoken by a machine."


def of_whisper(positions: int) -> Purpose:
    """By the positions of a window: encoder slots have them after their number, passes of the
    encoder as rows of one or several windows. The rest is the sequences'."""

    def purpose(module: str, shape: tuple[int, ...]) -> str:
        if positions in shape[1:2]:
            return "encoder slots"
        return "encoder passes" if shape[0] % positions == 0 else "slots"

    return purpose


def of_speech(module: str, shape: tuple[int, ...]) -> str:
    """Talker and predictor of a voice, and the codec."""
    return "codec" if module.startswith("codec") else "slots"


def opened(purpose: Purpose, device: str) -> tuple[Gpu, Ledger]:
    """A GPU whose buffers are counted from the first on."""
    backend = choose_backend(device)
    if not isinstance(backend, Gpu):
        raise SystemExit(f"--device {device} is {backend.name}, which has no memory of its own")
    return backend, Ledger(backend, purpose)


def whisper(arguments: argparse.Namespace) -> dict[str, Any]:
    """Windows decoded side by side."""
    positions, folder = 1500, arguments.whisper
    if folder is not None:
        positions = json.loads((folder / "config.json").read_text("utf-8"))["max_source_positions"]
    backend, ledger = opened(of_whisper(positions), arguments.device)
    asked: dict[str, Any] = {"batch_size": arguments.slots, "vad_filter": False, "temperature": 0}
    if folder is None:
        name = arguments.size
        model: Any = random_model(name, "f16" if arguments.dtype == "auto" else "f32", backend)
        asked = options(arguments.slots, 8, model.runner.config)
    else:
        name, model = folder.name, load(folder, backend, arguments)
    loaded = ledger.total
    with tempfile.TemporaryDirectory() as scratch:
        recording = Path(scratch) / "recording.wav"
        write_recording(recording, 30.0 * arguments.slots)
        model.transcribe(recording, **asked)
    return {"case": f"memory whisper {name} {arguments.slots} slots", **told(model, ledger, loaded)}


def speech(arguments: argparse.Namespace) -> dict[str, Any]:
    """Callers who all have something said at once."""
    backend, ledger = opened(of_speech, arguments.device)
    frames = round(arguments.seconds * FRAMES_PER_SECOND)
    if arguments.speech is None:
        name = arguments.voice_size
        with speech_checkpoint.checkpoint(name, arguments.keep) as folder:
            model = load(folder, backend, arguments)
    else:
        name, model = arguments.speech.name, load(arguments.speech, backend, arguments)
    loaded = ledger.total

    def say(number: int) -> int:
        asked = {"voice": "ryan", "seed": number, "max_frames": frames, "guard": False}
        return len(model.speak(TEXT, **asked).samples)

    with ThreadPoolExecutor(arguments.voices) as callers:
        samples = list(callers.map(say, range(arguments.voices)))
    return {
        "case": f"memory speech {name} {arguments.voices} voices of {arguments.seconds:g} s",
        "spoken_s": sum(samples) / 24000,
        **told(model, ledger, loaded),
    }


def load(folder: Path, backend: Gpu, arguments: argparse.Namespace) -> Any:
    """A checkpoint on the counted backend."""
    return load_path(folder, str(folder), backend, arguments.device, arguments.dtype, offline=True)


def told(model: Any, ledger: Ledger, loaded: int) -> dict[str, Any]:
    """What the ledger has found, in megabytes; and how many sequences were at work at once."""
    engine = getattr(model, "engine", None)  # as long as a family is without one
    by_kind = {name: count / 1e6 for name, count in ledger.now.most_common() if count}
    return {
        "device": model.device,
        "side_by_side": engine.occupancy.max_sequences if engine else 1,
        "loaded_mb": loaded / 1e6,
        "mb": by_kind,
        "total_mb": ledger.total / 1e6,
        "peak_mb": ledger.most / 1e6,
    }


def show(row: dict[str, Any]) -> None:
    """One case as a table."""
    print(f"{row['case']}, {row['side_by_side']} at once, on {row['device']}")
    for name, megabytes in row["mb"].items():
        print(f"  {name:16} {megabytes:10.1f} MB")
    for name in ("total", "peak", "loaded"):
        print(f"  {name:16} {row[f'{name}_mb']:10.1f} MB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", default="whisper,speech")
    parser.add_argument("--size", choices=SIZES, default="turbo")
    parser.add_argument("--slots", type=int, default=16)
    parser.add_argument("--voice-size", choices=speech_checkpoint.SIZES, default="1.7b")
    parser.add_argument("--voices", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=60.0, help="that each voice speaks")
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--whisper", type=Path, help="a checkpoint, in place of a random one")
    parser.add_argument("--speech", type=Path, help="likewise, with a voice called ryan")
    parser.add_argument("--keep", type=Path, help="where random checkpoints are made and left")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    cases = {"whisper": whisper, "speech": speech}
    found = []
    for name in arguments.cases.split(","):
        found.append(cases[name](arguments))
        show(found[-1])
    report(found, arguments.json)


if __name__ == "__main__":
    main()
