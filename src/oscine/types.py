"""Results and inputs as frozen values; nothing here knows a model or a device."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

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


@dataclass(frozen=True, slots=True)
class Word:
    """One word with its time in seconds and the probability the model gave it."""

    start: float
    end: float
    word: str
    probability: float


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

    def to_dict(self) -> dict[str, Any]:
        """openai-whisper's segment dictionary; `words` only where they were asked for."""
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
        return row


@dataclass(frozen=True, slots=True)
class Transcript:
    """What a recording says. `timings` are milliseconds of wall time a stage."""

    text: str
    language: str
    segments: tuple[Segment, ...]
    duration: float
    model: str
    device: str
    timings: dict[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """openai-whisper's result dictionary plus duration, model, device and timings."""
        return {
            "text": self.text,
            "language": self.language,
            "segments": [segment.to_dict() for segment in self.segments],
            "duration": self.duration,
            "model": self.model,
            "device": self.device,
            "timings": self.timings,
        }
