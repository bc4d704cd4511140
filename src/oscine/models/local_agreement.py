"""LocalAgreement-2: live transcription with a model that decodes whole windows.

The buffered audio is transcribed again each time it has grown. Words with which two consecutive
transcripts begin are final. Source: Macháček, Dabre and Bojar 2023, arXiv:2307.14743, and its
whisper_online.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any, Protocol

import numpy as np

from oscine.audio.mel import SAMPLE_RATE
from oscine.models.live_audio import check_latency, live_updates
from oscine.types import Samples, Transcript, Update, Word

DEFAULT_LATENCY_S = 2.0
MIN_LATENCY_S, MAX_LATENCY_S = 0.5, 20.0
TRIM_ABOVE_S = 15.0  # a longer buffer is trimmed to its last final word
MAX_BUFFER_S = 28.0  # a longer buffer is final as it is: a window has 30 s
MAX_SILENCE_S = 2.0  # a longer buffer without words is trimmed to this
MAX_OVERLAP_S = 0.1  # by which a word may begin before the last final word ends
MAX_REPEATED_WORDS = 5  # that may be transcribed a second time after a trim
PUNCTUATION = " .,!?;:\"'-¿¡…。，！？、"


class WordTranscriber(Protocol):
    """A model whose `transcribe` gives words with times."""

    def transcribe(self, audio: Samples, **options: Any) -> Transcript: ...


class LocalAgreement:
    """One live stream: `push` samples, then `finish`. Times are seconds from the first sample."""

    def __init__(self, model: WordTranscriber, latency: float, options: dict[str, Any]) -> None:
        self.model, self.options = model, dict(options)
        self.step = int(latency / 2 * SAMPLE_RATE)  # samples between two runs
        self.samples = np.zeros(0, np.float32)  # the buffer
        self.start = 0  # index of the buffer's first sample in the stream
        self.pending = 0  # samples at the end of the buffer that no run has transcribed
        self.unconfirmed: list[Word] = []  # of the last run
        self.final: list[Word] = []  # the last MAX_REPEATED_WORDS
        self.is_silent = True  # the last run found no words

    @property
    def duration(self) -> float:
        """Seconds of audio so far."""
        return (self.start + len(self.samples)) / SAMPLE_RATE

    def push(self, samples: Samples) -> Iterator[Update]:
        """Append samples [n] at 16 kHz; yields an update for each half of the latency."""
        for start in range(0, len(samples), self.step):
            part = samples[start : start + self.step]
            missing = self.step - self.pending
            for piece in (part[:missing], part[missing:]):
                self.samples = np.concatenate([self.samples, piece])
                self.pending += len(piece)
                if self.pending >= self.step:
                    yield self.update(last=False)

    def finish(self) -> Iterator[Update]:
        """Transcribe the rest as final; yields one update."""
        yield self.update(last=True)

    def update(self, *, last: bool) -> Update:
        """Transcribe the buffer. `last`: all its words are final."""
        words = self.transcribe()
        self.pending = 0
        is_full = len(self.samples) > MAX_BUFFER_S * SAMPLE_RATE
        count = len(words) if last or is_full else common_prefix(self.unconfirmed, words)
        final, self.unconfirmed = words[:count], words[count:]
        self.final = [*self.final, *final][-MAX_REPEATED_WORDS:]
        self.trim(is_full)
        return Update(tuple(final), tuple(self.unconfirmed), self.duration)

    def transcribe(self) -> list[Word]:
        """The words of the buffer after the final ones."""
        if not len(self.samples):
            return []
        result = self.model.transcribe(self.samples, **self.options, word_timestamps=True)
        if result.text.strip() and self.options.get("language") is None and result.language:
            self.options["language"] = result.language
        offset = self.start / SAMPLE_RATE
        words = [
            replace(word, start=word.start + offset, end=word.end + offset)
            for segment in result.segments
            for word in segment.words or ()
        ]
        self.is_silent = not words
        end = self.final[-1].end if self.final else 0.0
        words = [word for word in words if word.start >= end - MAX_OVERLAP_S]
        return drop_repeated_words(self.final, words)

    def trim(self, is_full: bool) -> None:
        """Drop audio from the start of the buffer: silence, or words that are final."""
        end = self.start + len(self.samples)
        seconds, start = len(self.samples) / SAMPLE_RATE, self.start
        if self.is_silent and seconds > MAX_SILENCE_S:
            start = end - int(MAX_SILENCE_S * SAMPLE_RATE)
        elif is_full:
            start = end
        elif seconds > TRIM_ABOVE_S and self.final:
            # The last final word stays in the buffer, because times of words are inexact.
            start = min(max(start, round(self.final[-1].start * SAMPLE_RATE)), end)
        self.samples, self.start = self.samples[start - self.start :].copy(), start


def normalize(word: Word) -> str:
    """A word's text without case and punctuation, in which two runs may differ."""
    return word.word.strip(PUNCTUATION).casefold()


def common_prefix(previous: Sequence[Word], current: Sequence[Word]) -> int:
    """The number of equal words with which two transcripts begin."""
    pairs = zip(previous, current, strict=False)
    return sum(1 for _ in takewhile(lambda pair: normalize(pair[0]) == normalize(pair[1]), pairs))


def drop_repeated_words(final: Sequence[Word], words: list[Word]) -> list[Word]:
    """The words, without those at their start that repeat the last final ones."""
    if not final or not words or words[0].start > final[-1].end + 1.0:
        return words
    for count in range(min(MAX_REPEATED_WORDS, len(final), len(words)), 0, -1):
        ending = [normalize(word) for word in final[-count:]]
        overlaps = words[count - 1].start < final[-1].end
        if overlaps and ending == [normalize(word) for word in words[:count]]:
            return words[count:]
    return words


def listen(
    model: WordTranscriber,
    pieces: Iterable[Any],
    latency: float,
    cancelled: Callable[[], bool] | None,
    options: dict[str, Any],
) -> Iterator[Update]:
    """Transcribe live audio, given as arrays of samples [n] at 16 kHz.

    Raises UsageError for a latency out of range, and what `live_updates` and the model raise.
    """
    check_latency(latency, MIN_LATENCY_S, MAX_LATENCY_S)
    yield from live_updates(LocalAgreement(model, latency, options), pieces, cancelled)
