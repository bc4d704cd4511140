"""Results and inputs as frozen values; nothing here knows a model or a device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oscine import notebook

Samples = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Audio:
    """Mono samples: float32 in [-1, 1], shape [n], at `rate` hertz."""

    samples: Samples
    rate: int

    @property
    def duration(self) -> float:
        """Length in seconds."""
        return len(self.samples) / self.rate

    def _repr_html_(self) -> str:
        """In a notebook: the waveform and a player."""
        about = f"{self.duration:.2f} s at {self.rate} Hz"
        return notebook.audio_html(about, self.samples, self.rate)


@dataclass(frozen=True, slots=True)
class Word:
    """One word with its time in seconds and the probability the model gave it."""

    start: float
    end: float
    word: str
    probability: float


@dataclass(frozen=True, slots=True)
class Update:
    """The words of live audio since the last update, with times in seconds from its start.

    `final` are new words that no longer change. `partial` are the words after them so far, which
    the next update replaces. `heard` is the number of seconds of audio received.
    """

    final: tuple[Word, ...]
    partial: tuple[Word, ...]
    heard: float


@dataclass(frozen=True, slots=True)
class Segment:
    """One phrase, with openai-whisper's fields (whisper/transcribe.py: new_segment).

    `seek` counts mel frames of 10 ms; `start` and `end` are seconds.
    """

    id: int
    seek: int
    start: float
    end: float
    text: str
    tokens: tuple[int, ...]
    temperature: float
    avg_logprob: float
    compression_ratio: float
    no_speech_prob: float
    words: tuple[Word, ...] | None = None
    language: str | None = None  # where it is detected for each window
    channel: int | None = None  # from 1, where each is transcribed separately
    flags: tuple[str, ...] = ()  # what was done to the text: "repetition" was cut

    def to_dict(self) -> dict[str, Any]:
        """openai-whisper's segment dictionary; optional fields only if they are set."""
        row: dict[str, Any] = {
            "id": self.id,
            "seek": self.seek,
            "start": self.start,
            "end": self.end,
            "text": self.text,
            "tokens": list(self.tokens),
            "temperature": self.temperature,
            "avg_logprob": self.avg_logprob,
            "compression_ratio": self.compression_ratio,
            "no_speech_prob": self.no_speech_prob,
        }
        if self.words is not None:
            row["words"] = [
                {"word": w.word, "start": w.start, "end": w.end, "probability": w.probability}
                for w in self.words
            ]
        for name in ("language", "channel"):
            if (value := getattr(self, name)) is not None:
                row[name] = value
        if self.flags:
            row["flags"] = list(self.flags)
        return row


@dataclass(frozen=True, slots=True)
class Coverage:
    """Seconds of speech by the voice activity detector, and of it without text.

    `heard_again`: seconds that had no text at first and were decoded again; None if the family
    does not do so.
    """

    speech: float
    without_text: float
    heard_again: float | None = None


@dataclass(frozen=True, slots=True)
class Transcript:
    """The text of a recording, with segments, times and language.

    `duration` is in seconds, `timings` are milliseconds of wall time by stage.
    """

    text: str
    language: str
    segments: tuple[Segment, ...]
    duration: float
    model: str
    device: str
    timings: dict[str, float] = field(default_factory=dict)
    language_probability: float | None = None  # None: not detected
    coverage: Coverage | None = None  # None: without voice activity detection
    #: Reads the recording again, for a player; None if it was not a file.
    read_audio: Callable[[], Audio | None] | None = field(default=None, repr=False, compare=False)

    def _repr_html_(self) -> str:
        """In a notebook: the text with its times, and a player where the recording is a file."""
        audio = None if self.read_audio is None else self.read_audio()
        player = "" if audio is None else notebook.player(audio.samples, audio.rate)
        said = [self.language, f"{self.duration:.1f} s", f"{self.model} on {self.device}"]
        rows = [(segment.start, segment.end, segment.text) for segment in self.segments]
        return notebook.transcript_html(", ".join(filter(None, said)), rows, player)

    def to_dict(self) -> dict[str, Any]:
        """openai-whisper's result dictionary, with the other fields."""
        row: dict[str, Any] = {
            "text": self.text,
            "language": self.language,
            "segments": [segment.to_dict() for segment in self.segments],
            "duration": self.duration,
            "model": self.model,
            "device": self.device,
            "timings": self.timings,
        }
        if self.language_probability is not None:
            row["language_probability"] = self.language_probability
        if self.coverage is not None:
            coverage = asdict(self.coverage)
            row["coverage"] = {name: s for name, s in coverage.items() if s is not None}
        return row
