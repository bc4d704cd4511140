"""Models in two processes that compute with NumPy: what is alike whatever the devices are."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from oscine.fleet.model import Fleet, open_fleet

GOLDENS = Path(__file__).resolve().parents[1] / "goldens"
WHISPER = GOLDENS / "whisper_multi"
PARAKEET = GOLDENS / "parakeet_tdt"
VOICES = GOLDENS / "qwen3_tts" / "custom_voice" / "ckpt"
SOUND = np.sin(np.arange(40_000) / 20 + np.sin(np.arange(40_000) / 900)).astype(np.float32)
LONGEST = np.tile(SOUND, 400)
OPTIONS: dict[str, Any] = {"vad_filter": False, "language": "en", "temperature": 0.0}


def two(folder: Path) -> Fleet:
    return open_fleet(["cpu", "cpu"], str(folder), "f32", offline=True)


def busy(fleet: Fleet) -> list[int]:
    """Requests under way in each worker."""
    return [worker.load for worker in fleet.workers.living()]


def kill_busy(fleet: Any, number: int = signal.SIGKILL) -> None:
    """End the process that has work."""
    for worker in fleet.workers.living():
        if worker.load:
            with suppress(ProcessLookupError):  # it was ended a moment ago
                os.kill(worker.process.pid, number)
            worker.process.wait()


def soon(holds: Callable[[], bool]) -> bool:
    """Whether it comes to hold."""
    until = time.monotonic() + 60
    while not holds() and time.monotonic() < until:
        time.sleep(0.02)
    return holds()
