"""What may go wrong while a piece of text is spoken, and how it is noticed in time.

- The end never comes: a budget of frames from the text's length, generous enough for slow speech.
- Silence: nothing is heard for seconds. A pause that long is not part of it, so it is dropped.
- Repetition: the same few frames over and over, in their first codes, which carry the words.
- A reference that leaks: the first frames are the reference's last ones again. They are dropped.
- A click where two pieces of audio meet: what is missing of the quiet that is due there is put in,
  and where an edge is not quiet the signal is led from the one to the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from oscine.models.qwen3_tts.sentences import count_letters
from oscine.types import Samples

MIN_LETTERS_PER_S, TYPICAL_LETTERS_PER_S = (
    4.0,
    14.0,
)  # letters a second: the fewest that are let go on; what is usual
EXTRA_S = 3.0  # seconds that any text may take besides: breaths, a laugh
SILENCE_RMS = 0.003  # root mean square of a frame, full scale 1: 50 dB below it
MAX_SILENCE_S = 4.0  # seconds
IMMEDIATE_SILENCE_S = (
    0.32  # seconds of a silence that are not held back, as they are in place anyway
)
MAX_LOOP_FRAMES, MIN_LOOP_COUNT = 50, 4  # frames of a loop, and how often it comes before it is one
MIN_LOOPING_FRAMES = 75  # frames that a loop fills before it is one: 6 s
MIN_LOOP_MATCH = 0.9  # share of frames that are as those one loop ago
MAX_LEAK_FRAMES = 25  # last frames of a reference that a leak may begin at: 2 s
MIN_LEAK_FRAMES = 3  # frames
CLICK_STEP = 0.01  # a step between two samples that is heard as a click
FADE_S = 0.005  # seconds in which an edge is led to zero

Codes = NDArray[np.uint32]


def max_frames_for(text: str, frame_rate: float) -> int:
    """Most frames that the text may take, `frame_rate` a second."""
    return math.ceil(frame_rate * (EXTRA_S + count_letters(text) / MIN_LETTERS_PER_S))


class RepetitionDetector:
    """Watches the first codes of frames for a loop."""

    def __init__(self) -> None:
        self._history = np.zeros(0, np.uint32)

    def push(self, codes: Codes) -> bool:
        """Frames [n, G]; whether what was said by now ends in a loop."""
        self._history = np.concatenate([self._history, codes[:, 0]])[
            -(MIN_LOOP_COUNT + 1) * MAX_LOOP_FRAMES :
        ]
        history = self._history
        for period in range(1, MAX_LOOP_FRAMES + 1):
            span = max(MIN_LOOP_COUNT * period, MIN_LOOPING_FRAMES)
            if len(history) < span + period:
                return False
            same = history[-span:] == history[-span - period : len(history) - period]
            if same.mean() >= MIN_LOOP_MATCH:
                return True
        return False


class SilenceGate:
    """Passes audio on, but for a silence that has lasted: that waits until more is heard."""

    def __init__(self, rate: int, hop: int) -> None:
        self._rate, self._hop = rate, hop
        self._silent_samples = 0  # samples
        self._pending: list[Samples] = []

    def push(self, samples: Samples) -> Samples:
        """Audio of whole frames, and what of it and of what was held may be heard now."""
        passed: list[Samples] = []
        for frame in samples.reshape(-1, self._hop):
            if np.sqrt(np.mean(np.square(frame))) >= SILENCE_RMS:
                passed += [*self._pending, frame]
                self._pending, self._silent_samples = [], 0
                continue
            self._silent_samples += len(frame)
            waits = self._silent_samples > IMMEDIATE_SILENCE_S * self._rate
            (self._pending if waits else passed).append(frame)
        return np.concatenate(passed) if passed else np.zeros(0, np.float32)

    @property
    def is_too_long(self) -> bool:
        """Whether it is too long to be a pause."""
        return self._silent_samples > MAX_SILENCE_S * self._rate

    def flush(self) -> Samples:
        """What is held: it belongs to the audio where that has ended by itself."""
        pending, self._pending = self._pending, []
        return np.concatenate(pending) if pending else np.zeros(0, np.float32)


class ReferenceLeakDetector:
    """Finds the end of a reference at the beginning of what is generated after it."""

    def __init__(self, reference: Codes) -> None:
        tail = reference[-MAX_LEAK_FRAMES:]
        self._tail = tail
        self._candidates = list(range(len(tail) - MIN_LEAK_FRAMES + 1))  # places that still fit
        self._position = self._leak_length = 0

    def push(self, codes: Codes) -> int | None:
        """Frames [n, G] as they come, until it is decided: how many of all are the reference's.

        None: not yet, as what there is could still be its end. A frame counts as the same where
        more than half of its codes are.
        """
        tail = self._tail
        for frame in codes:
            alike = [
                start
                for start in self._candidates
                if 2 * np.count_nonzero(tail[start + self._position] == frame) > len(frame)
            ]
            self._position += 1
            if any(start + self._position == len(tail) for start in alike):
                self._leak_length = self._position
            self._candidates = [start for start in alike if start + self._position < len(tail)]
            if not self._candidates:
                return self._leak_length
        return None


def crossfade(before: Samples, after: Samples, pause: float, rate: int) -> Samples:
    """What goes between two pieces of audio: so much that `pause` seconds between them are quiet.

    Quiet that they have themselves counts. `before` and `after` may be their last and first part.
    Nothing is put between quiet edges that are apart enough already.
    """
    due = round(pause * rate) - _leading_silence(before[::-1], rate) - _leading_silence(after, rate)
    last = float(before[-1]) if len(before) else 0.0
    first = float(after[0]) if len(after) else 0.0
    ramp = round(FADE_S * rate)
    falls, rises = abs(last) > CLICK_STEP / 2, abs(first) > CLICK_STEP / 2
    ramps = ramp * (falls + rises) if abs(last - first) > CLICK_STEP or due > 0 else 0
    return _faded_silence(
        max(due, ramps, 0),
        last if ramps and falls else 0.0,
        first if ramps and rises else 0.0,
        ramp,
    )


def silence_between(before: Samples, after: Samples, seconds: float, rate: int) -> Samples:
    """Exactly so much silence as goes between two pieces of audio, or ahead of the first.

    It begins and ends with ramps of 5 ms where they do not end and begin quietly.
    """
    count, ramp = round(seconds * rate), round(FADE_S * rate)
    edges = [float(side[0]) if len(side) else 0.0 for side in (before[::-1], after)]
    last, first = (
        edge if abs(edge) > CLICK_STEP / 2 and count >= 2 * ramp else 0.0 for edge in edges
    )
    return _faded_silence(count, last, first, ramp)


def _faded_silence(count: int, fade_from: float, fade_to: float, ramp: int) -> Samples:
    """Silence that is led to from `last`, and leads to `first`."""
    gap = np.zeros(count, np.float32)
    slope = (0.5 + 0.5 * np.cos(np.pi * np.arange(1, ramp + 1) / (ramp + 1))).astype(np.float32)
    if fade_from:
        gap[:ramp] += fade_from * slope
    if fade_to:
        gap[-ramp:] += fade_to * slope[::-1]
    return gap


def trim_leading_silence(pieces: Iterator[Samples], rate: int) -> Iterator[Samples]:
    """Audio without the quiet at its beginning, of which 5 ms stay; in pieces of whole 5 ms."""
    for samples in pieces:
        quiet = _leading_silence(samples, rate)
        if quiet < len(samples):
            yield samples[max(0, quiet - round(FADE_S * rate)) :]
            break
    yield from pieces


def max_crossfade_samples(pause: float, rate: int) -> int:
    """Samples that `bridge` puts at most."""
    return max(round(pause * rate), 2 * round(FADE_S * rate))


def _leading_silence(samples: Samples, rate: int) -> int:
    """How many samples at the beginning are quiet, in steps of 5 ms."""
    step = round(FADE_S * rate)
    whole = len(samples) // step * step
    levels = np.sqrt(np.mean(np.square(samples[:whole].reshape(-1, step)), axis=1))
    loud = np.flatnonzero(levels >= SILENCE_RMS)
    return int(loud[0]) * step if len(loud) else whole
