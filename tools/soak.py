#!/usr/bin/env python3
"""Calls every family again and again: each says what it said first, and nothing is left behind.

    python tools/soak.py [--seconds 3600] [--device cpu|gpu]

The models are the small random ones of tests/goldens. After some rounds, which fill caches, the
process's memory, threads and open files are counted; at the end they may not have grown. Prints a
line a minute; exit code 1 where a result differs or something grew. Linux only: it reads /proc.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import oscine

GOLDENS = Path(__file__).resolve().parent.parent / "tests" / "goldens"
WARM_ROUNDS = 10
GROWTH_MB = 16.0  # of allocators that keep what they were given back
MINUTE = 60.0


def calls(device: str) -> dict[str, Callable[[], Any]]:
    """By family, one call whose result can be compared; each loaded once."""
    whisper = oscine.load(GOLDENS / "whisper_multi", device)
    parakeet = oscine.load(GOLDENS / "parakeet_tdt", device)
    voice = oscine.load(GOLDENS / "qwen3_tts" / "custom_voice" / "ckpt", device)
    audio = GOLDENS / "audio"
    return {
        "whisper": lambda: (
            whisper.transcribe(
                audio / "whisper_multi.wav", language="de", temperature=0, vad_filter=False
            ).text
        ),
        "parakeet": lambda: parakeet.transcribe(audio / "parakeet_tdt.wav", vad_filter=False).text,
        "qwen3_tts": lambda: voice.speak(
            "Hello there.", voice="ryan", seed=1, max_frames=8, guard=False
        ).samples.tobytes(),
    }


def held() -> dict[str, float]:
    """What the process has: memory in MB, threads, open files."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "MB": pages * os.sysconf("SC_PAGE_SIZE") / 1e6,
        "threads": threading.active_count(),
        "files": len(os.listdir("/proc/self/fd")),
    }


def told(round_: int, now: dict[str, float]) -> str:
    return f"round {round_}: " + ", ".join(f"{value:.0f} {name}" for name, value in now.items())


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    family = calls(options.device)
    first = {name: call() for name, call in family.items()}
    if not all(first.values()):
        print(f"nothing comes of {', '.join(name for name, found in first.items() if not found)}")
        return 1
    before, round_, began = held(), 0, time.monotonic()
    line = began + MINUTE
    while round_ <= WARM_ROUNDS or time.monotonic() < began + options.seconds:
        round_ += 1
        for name, call in family.items():
            if call() != first[name]:
                print(f"{name}: round {round_} does not say what the first call said")
                return 1
        if round_ == WARM_ROUNDS:
            before = held()
            print(told(round_, before), flush=True)
        if time.monotonic() > line:
            line += MINUTE
            print(told(round_, held()), flush=True)
    after = held()
    print(told(round_, after))
    limits = {"MB": GROWTH_MB, "threads": 0, "files": 0}
    grown = [name for name, limit in limits.items() if after[name] > before[name] + limit]
    print(f"grown: {', '.join(grown)}" if grown else f"{options.device}: nothing has grown")
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main())
