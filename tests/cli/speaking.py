"""A model that speaks a tone a word and notes what it was asked, for tests of the speak command."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from oscine.audio.encode import wav_header
from oscine.cli import run
from oscine.errors import OscineError, UsageError
from oscine.models.qwen3_tts.capabilities import Capabilities
from oscine.types import Audio

RATE = 24_000
MARK = '{"synthetic": true, "model": "weights"}'
HEADER = len(wav_header(RATE, None, MARK))
#: The command in a process of its own, with the model below.
COMMAND = (
    "import sys, oscine; sys.path.insert(0, sys.argv.pop(1))\n"
    "from speaking import Speaker; oscine.load = Speaker().load\n"
    "from oscine.cli import main\n"
)


def tone(word: str) -> np.ndarray:
    """A tenth of a second for a word."""
    time = np.arange(RATE // 10) / RATE
    return (0.5 * np.sin(2 * np.pi * (200 + 20 * len(word)) * time)).astype(np.float32)


def spoken(text: str) -> np.ndarray:
    return np.concatenate([tone(word) for word in text.split()])


class Stream:
    """A tone a word; some words do something else."""

    def __init__(self, text: str | Iterable[str], options: dict[str, Any]) -> None:
        self.text, self.options = text, options
        self.finish_reason: str | None = None
        self.first_audio: float | None = None
        self.seed = 7
        self.buffer_pieces = self.limited = False
        self.mark = MARK
        self.share = 0.5 if isinstance(text, str) else None

    def __iter__(self) -> Iterator[Audio]:
        pieces = [self.text] if isinstance(self.text, str) else self.text
        for word in (word for piece in pieces for word in piece.split()):
            if word == "INTERRUPT":
                raise KeyboardInterrupt
            if word == "BREAK":
                raise OscineError("the device was lost")
            if word == "EXHAUST":
                raise MemoryError
            if word == "ENDLESS":
                self.finish_reason, self.limited = "length", True
                return
            if word == "SILENT":  # the stream itself has logged that
                self.finish_reason = "silence"
                return
            if re.fullmatch("SIG[A-Z]+", word):
                os.kill(os.getpid(), getattr(signal, word))
                time.sleep(20)  # it does not take so long
            self.first_audio = 0.25
            yield Audio(tone(word), RATE)
        self.finish_reason = "end"


class Speaker:
    """Notes what it was asked."""

    voices = ("vivian", "ryan")
    capabilities = Capabilities(
        "weights", "custom_voice", "1b7", dict.fromkeys(voices), ("english",)
    )
    timings: ClassVar = {"prompt": 1.0, "codec": 2.0}

    def __init__(self) -> None:
        self.loaded: list[tuple[Any, ...]] = []
        self.asked: list[tuple[Any, dict[str, Any]]] = []
        self.streams: list[Stream] = []

    def load(
        self,
        name: str,
        *,
        device: str,
        dtype: str,
        offline: bool,
        deterministic: bool,
        memory: str | None,
    ) -> Speaker:
        more = [*["same"] * deterministic, *[memory] * (memory is not None)]
        self.loaded.append((name, device, dtype, offline, *more))
        return self

    def trace(self) -> dict[str, tuple[int, float]]:
        return {"frames": (3, 4.0)}

    def speak(self) -> None:
        raise NotImplementedError

    def stream(self, text: str | Iterable[str], **options: Any) -> Stream:
        if options.get("voice") == "nobody":
            raise UsageError("there is no voice 'nobody'; there are ryan, vivian")
        self.asked.append((text, options))
        self.streams.append(Stream(text, options))
        return self.streams[-1]


def speak(*arguments: str) -> int:
    return run(["speak", "--model", "weights", *arguments])


def start(*arguments: str, before: str = "main()", **pipes: Any) -> subprocess.Popen[bytes]:
    here = str(Path(__file__).parent)
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND + before, here, "speak", "--model", "weights", *arguments],
        stderr=subprocess.PIPE,
        **pipes,
    )


def files() -> list[str]:
    return sorted(name for name in os.listdir() if name != "weights")
