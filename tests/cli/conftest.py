"""A model for the command line that says what it is told, so that the commands run in no time."""

from __future__ import annotations

import io
import os
import re
import signal
import time
import wave
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from oscine import threads
from oscine.errors import AudioError
from oscine.types import Coverage, Segment, Transcript, Word


def wave_file(samples: int = 160) -> bytes:
    """A WAV file of silence at 16 kHz."""
    contents = io.BytesIO()
    with wave.open(contents, "wb") as file:
        file.setparams((1, 2, 16000, 0, "NONE", ""))
        file.writeframes(bytes(2 * samples))
    return contents.getvalue()


SOUND = wave_file()  # a recording that any decoder opens


def segment(number: int, text: str, **more: Any) -> Segment:
    start, end = float(number), number + 0.5
    return Segment(number, 0, start, end, text, (7,), 0.0, -0.2, 1.1, 0.01, **more)


def words_of(number: int, text: str) -> tuple[Word, ...]:
    """The text's words, with equal shares of the segment's time."""
    words = [f" {word}" for word in text.split()]
    share = 0.5 / len(words)
    return tuple(
        Word(number + place * share, number + (place + 1) * share, word, 0.9)
        for place, word in enumerate(words)
    )


class FakeStream:
    """Two segments, or what the file's name asks for; words and channels where they are wanted."""

    language, duration = "en", 2.0

    def __init__(self, source: str, progress: Any, options: dict[str, Any]) -> None:
        self.source, self.progress, self.options = source, progress, options
        self.done: list[Segment] = []

    def __iter__(self) -> Iterator[Segment]:
        by_channel = self.options.get("split_channels", False)
        for number, text in enumerate([" Olá,", " 世界 --> x."]):
            if number and "broken" in self.source:
                raise AudioError(self.source, "is damaged after 1 s")
            if number and "interrupt" in self.source:
                raise KeyboardInterrupt
            if number and (named := re.search("SIG[A-Z]+", self.source)):
                os.kill(os.getpid(), getattr(signal, named[0]))
                time.sleep(20)  # it does not take so long
            if number and "exhaust" in self.source:
                raise MemoryError
            place = 1 - number if by_channel else number  # the second channel speaks first
            more: dict[str, Any] = {"channel": number + 1} if by_channel else {}
            if self.options.get("word_timestamps"):
                more["words"] = words_of(place, text)
            if "flagged" in self.source:
                more |= {"language": "pt", "flags": ("repetition",)}
            self.done.append(segment(place, text, **more))
            if self.progress is not None:
                self.progress(number + 1.0, 2.0)
            yield self.done[-1]

    def transcript(self) -> Transcript:
        done = tuple(sorted(self.done, key=lambda each: each.start))
        text = "".join(each.text for each in done)
        missing = {"gaps": 2.5, "little": 1.9, "long": 3.0}
        coverage = next(
            (
                Coverage(90.0 if name == "long" else 10.0, missing[name])
                for name in missing
                if name in self.source
            ),
            None,
        )
        timings = {"total": 1.0}
        return Transcript(text, "en", done, 2.0, "fake", "none", timings, coverage=coverage)


class FakeModel:
    """Notes what it was asked."""

    recordings_at_once = 1

    def __init__(self) -> None:
        self.loaded: list[tuple[Any, ...]] = []
        self.asked: list[dict[str, Any]] = []

    def load(
        self,
        name: str,
        *,
        device: str,
        dtype: str,
        offline: bool,
        deterministic: bool,
        memory: str | None,
    ) -> FakeModel:
        more = [*["same"] * deterministic, *[memory] * (memory is not None)]
        self.loaded.append((name, device, dtype, offline, *more))
        return self

    def stream(self, source: str, *, progress: Any, **options: Any) -> FakeStream:
        self.asked.append(options)
        if source != "-" and not os.path.exists(source):
            raise AudioError(source, "no such file")
        return FakeStream(source, progress, options)


@pytest.fixture(autouse=True)
def plain_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """What --threads sets does not outlive a test."""
    monkeypatch.delenv("OSCINE_DEVICE", raising=False)
    monkeypatch.setenv("OSCINE_THREADS", "0")
    record = tmp_path_factory.mktemp("home") / "results"
    monkeypatch.setattr("oscine.cli.results.record_path", lambda: record)
    threads.count.cache_clear()
    yield
    threads.count.cache_clear()
    threads.pool.cache_clear()


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> FakeModel:
    fake = FakeModel()
    monkeypatch.setattr("oscine.load", fake.load)
    return fake


@pytest.fixture
def recordings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """recordings("a.wav", ...): files in a folder that the command runs in."""
    (tmp_path / "weights").mkdir()
    monkeypatch.chdir(tmp_path)

    def make(*names: str) -> list[str]:
        for name in names:
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Path(name).write_bytes(SOUND)
        return list(names)

    return make


@pytest.fixture
def speaker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The model of speaking.py in place of any that is loaded, in a folder of the test's own."""
    from .speaking import Speaker  # here: processes of their own import this file by its name alone

    (tmp_path / "weights").mkdir()
    monkeypatch.chdir(tmp_path)
    made = Speaker()
    monkeypatch.setattr("oscine.load", made.load)
    return made
