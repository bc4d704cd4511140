"""Voice activity detection: probabilities per 32 ms, and spans of speech made from them.

    SpeechDetector().push(block), .finish()        samples -> probabilities, block by block
    speech_spans(probabilities, samples, options)  spans of speech
    pad_spans(spans, samples, options)             spans with padding on both sides

Options and rules are faster-whisper's (vad.py: get_speech_timestamps), except that a span that is
split loses no chunk, and that it ends where the speech ends also at the end of a recording.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from oscine.audio.mel import SAMPLE_RATE
from oscine.audio.silero import CHUNK_SAMPLES, SileroState, load_silero
from oscine.errors import UsageError
from oscine.types import Samples

__all__ = ["CHUNK_SAMPLES", "Span", "SpeechDetector", "VadOptions", "pad_spans", "speech_spans"]

SPLIT_SILENCE_MS = 98  # minimum silence at which a long span is split


@dataclass(frozen=True)
class VadOptions:
    """Options of voice activity detection; names and defaults are faster-whisper's.

    Speech begins at a probability of `threshold` and ends below `neg_threshold` (None: 0.15 less).
    A silence shorter than `min_silence_duration_ms` does not end it, and speech shorter than
    `min_speech_duration_ms` is dropped. A span with its padding is at most `max_speech_duration_s`
    long. `speech_pad_ms` are added on both sides. Raises UsageError.
    """

    threshold: float = 0.5
    neg_threshold: float | None = None
    min_speech_duration_ms: int = 0
    max_speech_duration_s: float = math.inf
    min_silence_duration_ms: int = 2000
    speech_pad_ms: int = 400

    def __post_init__(self) -> None:
        if not 0 < self.threshold <= 1:
            raise UsageError(f"VAD threshold must be above 0 and at most 1, not {self.threshold}")
        if self.neg_threshold is not None and not 0 <= self.neg_threshold <= self.threshold:
            raise UsageError(
                f"VAD neg_threshold must be from 0 to the threshold, not {self.neg_threshold}"
            )
        for name in ("min_speech_duration_ms", "min_silence_duration_ms", "speech_pad_ms"):
            if not 0 <= getattr(self, name) < math.inf:
                raise UsageError(f"VAD {name} must be at least 0 ms, not {getattr(self, name)}")
        if not self.max_speech_duration_s > 0:
            raise UsageError("VAD max_speech_duration_s must be more than 0")

    @property
    def silent_below(self) -> float:
        """Probability below which speech ends."""
        if self.neg_threshold is None:
            return min(max(self.threshold - 0.15, 0.01), self.threshold)
        return self.neg_threshold


class Span(NamedTuple):
    """A range of samples, `end` exclusive."""

    start: int
    end: int


class SpeechDetector:
    """Speech probabilities of one recording, block by block in constant memory."""

    def __init__(self) -> None:
        self._network = load_silero()
        self._state = SileroState()
        self._rest = np.zeros(0, np.float32)

    def push(self, samples: Samples) -> NDArray[np.float32]:
        """Add samples [n] at 16 kHz; returns the probabilities [m] of the complete chunks."""
        waiting = np.concatenate([self._rest, np.asarray(samples, np.float32)])
        whole = len(waiting) // CHUNK_SAMPLES * CHUNK_SAMPLES
        self._rest = waiting[whole:].copy()
        return self._network.probabilities(waiting[:whole].reshape(-1, CHUNK_SAMPLES), self._state)

    def finish(self) -> NDArray[np.float32]:
        """Probability [1] of the rest, zero-padded; [0] if there is no rest."""
        if not len(self._rest):
            return np.zeros(0, np.float32)
        return self.push(np.zeros(CHUNK_SAMPLES - len(self._rest), np.float32))


def speech_spans(
    probabilities: NDArray[np.float32], samples: int, options: VadOptions
) -> list[Span]:
    """Disjoint spans of speech in order, inside the `samples` of the recording.

    `probabilities` float32 [n] are those of chunks of 512 samples. A span longer than
    max_speech_duration_s is split: at the last silence of 98 ms or more, else at the limit.
    """
    pad = options.speech_pad_ms * SAMPLE_RATE / 1000
    max_length = options.max_speech_duration_s * SAMPLE_RATE - CHUNK_SAMPLES - 2 * pad
    splitter = _Splitter(options, max(max_length, CHUNK_SAMPLES))
    for chunk, probability in enumerate(probabilities.tolist()):
        splitter.push(chunk * CHUNK_SAMPLES, probability)
    splitter.finish(samples)
    min_length = options.min_speech_duration_ms * SAMPLE_RATE / 1000
    return [span for span in splitter.spans if span.end - span.start > min_length]


class _Splitter:
    """State machine over chunks that starts, ends and splits spans."""

    def __init__(self, options: VadOptions, max_length: float) -> None:
        self.spans: list[Span] = []
        self._threshold = options.threshold
        self._silent_below = options.silent_below
        self._min_silence = options.min_silence_duration_ms * SAMPLE_RATE / 1000
        self._max_length = max_length
        self._start: int | None = None
        self._silence_start: int | None = None  # start of the silence that may end the span
        self._pause: Span | None = None  # last silence at which the span may be split

    def push(self, position: int, probability: float) -> None:
        """Process the chunk that begins at `position`."""
        if self._start is not None and position - self._start > self._max_length:
            self._split_at_max_length(position)
        if probability >= self._threshold:
            self._silence_start = None
            if self._start is None:
                self._start = position
        elif self._start is not None:
            if self._silence_start is None and probability < self._silent_below:
                self._silence_start = position
            if self._silence_start is not None:
                self._extend_silence(self._silence_start, position)

    def finish(self, samples: int) -> None:
        """End the open span at the end of the recording."""
        if self._start is not None:
            self._close(samples if self._silence_start is None else self._silence_start, None)

    def _extend_silence(self, start: int, position: int) -> None:
        """Handle a silence from `start` that continues at `position`; it may end the span."""
        if position - start > SPLIT_SILENCE_MS * SAMPLE_RATE / 1000:
            self._pause = Span(start, position + CHUNK_SAMPLES)
        if position - start >= self._min_silence:
            self._close(start, None)

    def _split_at_max_length(self, position: int) -> None:
        """End a span that has its maximum length: at its last silence, else at `position`."""
        if self._pause is None:
            end = position if self._silence_start is None else self._silence_start
            self._close(end, position if self._silence_start is None else None)
        elif self._pause.start == self._silence_start:
            self._close(self._pause.start, None)
        else:
            self._close(self._pause.start, self._pause.end)

    def _close(self, end: int, start: int | None) -> None:
        """End the span; begin another at `start` unless None."""
        assert self._start is not None
        self.spans.append(Span(self._start, end))
        self._start, self._pause = start, None
        if start is None:
            self._silence_start = None


def pad_spans(spans: Sequence[Span], samples: int, options: VadOptions) -> list[Span]:
    """Spans with speech_pad_ms on both sides, in order and disjoint, inside the recording.

    Spans that would overlap meet in the middle. Silence at the start and end of the recording is
    kept if it is shorter than min_silence_duration_ms, as it would be between words: most
    recordings are then kept whole.
    """
    pad = options.speech_pad_ms * SAMPLE_RATE // 1000
    silence = options.min_silence_duration_ms * SAMPLE_RATE / 1000
    padded = []
    start = 0
    for number, span in enumerate(spans):
        if number or span.start >= silence:
            start = max(start, span.start - pad)
        if number + 1 < len(spans):
            end = min(span.end + pad, (span.end + spans[number + 1].start) // 2)
        else:
            end = samples if samples - span.end < silence else min(samples, span.end + pad)
        padded.append(Span(start, end))
        start = end
    return padded
