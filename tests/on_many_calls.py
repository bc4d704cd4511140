"""Uses one model in many ways in a process of its own, which is measured; prints JSON.

    python on_many_calls.py FOLDER WHAT

WHAT: `calls` (200 of them: what the process holds before and after), `threads`, `forks`, `stops`.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import oscine
from oscine.errors import Cancelled

FIRM: dict[str, Any] = {"vad_filter": False}
FEW = {"temperature": 0.0, "sample_len": 8, "condition_on_previous_text": False}
WARM = 40  # calls until buffers and caches have their sizes


def sound(number: int) -> Any:
    """Half a second to two seconds, another for each number modulo 4."""
    seconds = np.arange(8_000 * (1 + number % 4), dtype=np.float32) / 16_000
    pitch = 150 + 70 * (number % 4)
    return 0.2 * np.sin(2 * np.pi * (pitch + 300 * seconds) * seconds).astype(np.float32)


class Model:
    """A model and what it says of four sounds."""

    def __init__(self, folder: Path) -> None:
        self.loaded: Any = oscine.load(folder, "cpu")
        self.options = FIRM | (FEW if type(self.loaded).__name__ == "Whisper" else {})
        self.expected = [self.say(number) for number in range(4)]

    def say(self, number: int, **more: Any) -> str:
        text: str = self.loaded.transcribe(sound(number), **self.options, **more).text
        return text

    def right(self, number: int) -> bool:
        return self.say(number) == self.expected[number % 4]


def held() -> dict[str, int]:
    """What this process holds: bytes of memory, descriptors, threads, Python's objects."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "bytes": pages * os.sysconf("SC_PAGE_SIZE"),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "objects": len(gc.get_objects()),
    }


def calls(model: Model) -> Any:
    """200 calls, of which a fifth ends in an error."""
    found = []
    for number in range(200):
        if number == WARM:
            found.append(held())
        if number % 5 == 4:
            try:
                model.loaded.transcribe(np.full(8000, np.nan, np.float32), **model.options)
            except oscine.errors.NonFiniteError:
                continue
        assert model.right(number), number
    return [*found, held()]


def threads(model: Model) -> Any:
    """Eight threads that share it, 200 calls."""
    with ThreadPoolExecutor(8) as pool:
        return all(pool.map(model.right, range(200)))


def forks(model: Model) -> Any:
    """Children that were forked after it was used, one beside threads that use it: exit codes."""
    warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads, which is it
    codes = []
    for number in range(3):
        child = os.fork()
        if not child:
            signal.alarm(60)
            os._exit(0 if all(map(model.right, range(4))) else 1)
        codes.append(os.waitpid(child, 0)[1])
        assert model.right(number)
    return codes


def stops(model: Model) -> Any:
    """Stopped at forty moments and in three ways: how often, and whether it is right after each."""
    random, stopped = Random(0), 0

    def interrupt(*_: object) -> None:
        nonlocal stopped
        stopped += 1
        raise KeyboardInterrupt  # Python ignores it in the finaliser of an object

    signal.signal(signal.SIGALRM, interrupt)
    for number in range(40):
        signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-4, 0.05))
        try:
            while stopped == number:
                model.say(number)
        except KeyboardInterrupt:
            pass
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        assert model.right(number), number
    cancel = threading.Event()
    cancel.set()
    try:
        model.say(0, cancel=cancel)
    except Cancelled:
        stopped += 1
    assert model.right(0)
    stream = model.loaded.stream(sound(3), **model.options)
    next(iter(stream), None)
    del stream
    return stopped if model.right(1) else None


if __name__ == "__main__":
    made = Model(Path(sys.argv[1]))
    print(
        json.dumps(
            {"calls": calls, "threads": threads, "forks": forks, "stops": stops}[sys.argv[2]](made)
        )
    )
