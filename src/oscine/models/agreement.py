"""Audio as it comes to words, by a model that hears windows: what two of them agree on is said.

Source: Macháček, Dabre and Bojar 2023, arXiv:2307.14743 (LocalAgreement-2), whisper_online.py. The
audio since the last trim is transcribed again and again as it gets longer; words that two runs in a
row begin with are final.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any, Protocol

import numpy as np

from oscine.audio.mel import SAMPLE_RATE
from oscine.models.listening import check_latency, updates
from oscine.types import Samples, Transcript, Update, Word

LATENCY = 2.0  # seconds
LEAST_LATENCY, MOST_LATENCY = 0.5, 20.0
TRIM = 15.0  # seconds of audio above which what is final is not heard again
LONGEST = 28.0  # seconds after which what is not agreed on is taken as it is: a window is 30
SILENT = 2.0  # seconds kept of audio in which nothing is said
NEAR = 0.1  # seconds before the end of the last final word at which the next may begin
REPEATED = 5  # most words that may be heard once more after a trim
PUNCTUATION = " .,!?;:\"'-¿¡…。，！？、"


class Model(Protocol):
    """What agreement needs of a model."""

    def transcribe(self, audio: Samples, **options: Any) -> Transcript: ...


class Agreement:
    """One stream of audio: push samples, then finish. Seconds count from the first sample."""

    def __init__(self, model: Model, latency: float, options: dict[str, Any]) -> None:
        self.model, self.options = model, dict(options)
        self.step = int(latency / 2 * SAMPLE_RATE)
        self.samples = np.zeros(0, np.float32)
        self.begin = 0  # the sample that these begin with
        self.unheard = 0  # of them, at the end, those that no run has heard
        self.before: list[Word] = []  # what the last run said after what is final
        self.final: list[Word] = []  # the last words that are final
        self.silent = True  # nothing was said in what the last run heard

    @property
    def heard(self) -> float:
        """Seconds so far."""
        return (self.begin + len(self.samples)) / SAMPLE_RATE

    def push(self, samples: Samples) -> Iterator[Update]:
        """Take samples [n] at 16 kHz; an update for every half of the latency."""
        for start in range(0, len(samples), self.step):
            part = samples[start : start + self.step]
            room = self.step - self.unheard
            for piece in (part[:room], part[room:]):
                self.samples = np.concatenate([self.samples, piece])
                self.unheard += len(piece)
                if self.unheard >= self.step:
                    yield self.hear(last=False)

    def finish(self) -> Iterator[Update]:
        """What is left, as final; one update."""
        yield self.hear(last=True)

    def hear(self, *, last: bool) -> Update:
        """Transcribe what there is. `last`: all of it is final."""
        words = self.run()
        self.unheard = 0
        full = len(self.samples) > LONGEST * SAMPLE_RATE
        count = len(words) if last or full else agreed(self.before, words)
        final, self.before = words[:count], words[count:]
        self.final = [*self.final, *final][-REPEATED:]
        self.trim(full)
        return Update(tuple(final), tuple(self.before), self.heard)

    def run(self) -> list[Word]:
        """The words after those that are final."""
        if not len(self.samples):
            return []
        result = self.model.transcribe(self.samples, **self.options, word_timestamps=True)
        if result.text.strip() and self.options.get("language") is None and result.language:
            self.options["language"] = result.language
        offset = self.begin / SAMPLE_RATE
        words = [
            replace(word, start=word.start + offset, end=word.end + offset)
            for segment in result.segments
            for word in segment.words or ()
        ]
        self.silent = not words
        end = self.final[-1].end if self.final else 0.0
        return without_repetition(self.final, [w for w in words if w.start >= end - NEAR])

    def trim(self, full: bool) -> None:
        """Let go of audio whose words are final, once there is much of it, or that has none."""
        end = self.begin + len(self.samples)
        seconds, keep = len(self.samples) / SAMPLE_RATE, self.begin
        if self.silent and seconds > SILENT:
            keep = end - int(SILENT * SAMPLE_RATE)
        elif full:
            keep = end
        elif seconds > TRIM and self.final:
            # The last of them is heard once more, as times of words are not exact.
            keep = min(max(keep, round(self.final[-1].start * SAMPLE_RATE)), end)
        self.samples, self.begin = self.samples[keep - self.begin :].copy(), keep


def plain(word: Word) -> str:
    """A word's text without case and punctuation, about which runs differ."""
    return word.word.strip(PUNCTUATION).casefold()


def agreed(before: Sequence[Word], now: Sequence[Word]) -> int:
    """With how many of the same words two runs begin."""
    pairs = zip(before, now, strict=False)
    return sum(1 for _ in takewhile(lambda pair: plain(pair[0]) == plain(pair[1]), pairs))


def without_repetition(final: Sequence[Word], words: list[Word]) -> list[Word]:
    """The words without a beginning that says once more how what is final ends, near its end."""
    if not final or not words or words[0].start > final[-1].end + 1.0:
        return words
    for count in range(min(REPEATED, len(final), len(words)), 0, -1):
        ending = [plain(word) for word in final[-count:]]
        overlaps = words[count - 1].start < final[-1].end
        if overlaps and ending == [plain(word) for word in words[:count]]:
            return words[count:]
    return words


def listen(
    model: Model,
    pieces: Iterable[Any],
    latency: float,
    cancelled: Callable[[], bool] | None,
    options: dict[str, Any],
) -> Iterator[Update]:
    """Words as they are said, of arrays of samples [n] at 16 kHz; see the models' listen."""
    check_latency(latency, LEAST_LATENCY, MOST_LATENCY)
    yield from updates(Agreement(model, latency, options), pieces, cancelled)
