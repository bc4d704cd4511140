"""A model for the command line that says what it is told, so that the commands run in no time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from oscine.errors import AudioError
from oscine.types import Segment, Transcript


def segment(number: int, text: str) -> Segment:
    return Segment(number, 0, float(number), number + 0.5, text, (7,), 0.0, -0.2, 1.1, 0.01)


class FakeStream:
    """Two segments, or what the file's name asks for."""

    language, duration = "en", 2.0

    def __init__(self, source: str, progress: Any) -> None:
        self.source, self.progress = source, progress
        self.done: list[Segment] = []

    def __iter__(self) -> Iterator[Segment]:
        for number, text in enumerate([" Olá,", " 世界 --> x."]):
            if number and "broken" in self.source:
                raise AudioError(self.source, "is damaged after 1 s")
            if number and "interrupt" in self.source:
                raise KeyboardInterrupt
            self.done.append(segment(number, text))
            if self.progress is not None:
                self.progress(number + 1.0, 2.0)
            yield self.done[-1]

    def transcript(self) -> Transcript:
        text = "".join(each.text for each in self.done)
        return Transcript(text, "en", tuple(self.done), 2.0, "fake", "none", {"total": 1.0})


class FakeModel:
    """Notes what it was asked."""

    def __init__(self) -> None:
        self.loaded: list[tuple[Any, ...]] = []
        self.asked: list[dict[str, Any]] = []

    def load(self, name: str, *, device: str, dtype: str, offline: bool) -> FakeModel:
        self.loaded.append((name, device, dtype, offline))
        return self

    def stream(self, source: str, *, progress: Any, **options: Any) -> FakeStream:
        self.asked.append(options)
        if source != "-" and not os.path.exists(source):
            raise AudioError(source, "no such file")
        return FakeStream(source, progress)


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> FakeModel:
    fake = FakeModel()
    monkeypatch.setattr("oscine.load", fake.load)
    return fake


@pytest.fixture
def recordings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """recordings("a.wav", ...): empty files in a folder that the command runs in."""
    (tmp_path / "weights").mkdir()
    monkeypatch.chdir(tmp_path)

    def make(*names: str) -> list[str]:
        for name in names:
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Path(name).touch()
        return list(names)

    return make
