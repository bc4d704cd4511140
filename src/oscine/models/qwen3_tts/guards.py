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

from oscine.models.qwen3_tts.sentences import letters
from oscine.types import Samples

SLOWEST, USUAL = 4.0, 14.0  # letters a second: the fewest that are let go on; what is usual
ASIDE = 3.0  # seconds that any text may take besides: breaths, a laugh
QUIET = 0.003  # root mean square of a frame, full scale 1: 50 dB below it
MOST_SILENCE = 4.0  # seconds
KEPT_SILENCE = 0.32  # seconds of a silence that are not held back, as they are in place anyway
LONGEST_LOOP, LOOPS = 50, 4  # frames of a loop, and how often it comes before it is one
SHORTEST_LOOPING = 75  # frames that a loop fills before it is one: 6 s
ALIKE = 0.9  # share of frames that are as those one loop ago
LEAK_REACH = 25  # last frames of a reference that a leak may begin at: 2 s
SHORTEST_LEAK = 3  # frames
EDGE = 0.01  # a step between two samples that is heard as a click
RAMP = 0.005  # seconds in which an edge is led to zero

Codes = NDArray[np.uint32]


def budget(text: str, frame_rate: float) -> int:
    """Most frames that the text may take, `frame_rate` a second."""
    return math.ceil(frame_rate * (ASIDE + letters(text) / SLOWEST))


class Repetition:
    """Watches the first codes of frames for a loop."""

    def __init__(self) -> None:
        self._kept = np.zeros(0, np.uint32)

    def push(self, codes: Codes) -> bool:
        """Frames [n, G]; whether what was said by now ends in a loop."""
        self._kept = np.concatenate([self._kept, codes[:, 0]])[-(LOOPS + 1) * LONGEST_LOOP :]
        heard = self._kept
        for period in range(1, LONGEST_LOOP + 1):
            span = max(LOOPS * period, SHORTEST_LOOPING)
            if len(heard) < span + period:
                return False
            same = heard[-span:] == heard[-span - period : len(heard) - period]
            if same.mean() >= ALIKE:
                return True
        return False


class Silence:
    """Passes audio on, but for a silence that has lasted: that waits until more is heard."""

    def __init__(self, rate: int, hop: int) -> None:
        self._rate, self._hop = rate, hop
        self._quiet = 0  # samples
        self._held: list[Samples] = []

    def push(self, samples: Samples) -> Samples:
        """Audio of whole frames, and what of it and of what was held may be heard now."""
        passed: list[Samples] = []
        for frame in samples.reshape(-1, self._hop):
            if np.sqrt(np.mean(np.square(frame))) >= QUIET:
                passed += [*self._held, frame]
                self._held, self._quiet = [], 0
                continue
            self._quiet += len(frame)
            waits = self._quiet > KEPT_SILENCE * self._rate
            (self._held if waits else passed).append(frame)
        return np.concatenate(passed) if passed else np.zeros(0, np.float32)

    @property
    def lasts(self) -> bool:
        """Whether it is too long to be a pause."""
        return self._quiet > MOST_SILENCE * self._rate

    def rest(self) -> Samples:
        """What is held: it belongs to the audio where that has ended by itself."""
        held, self._held = self._held, []
        return np.concatenate(held) if held else np.zeros(0, np.float32)


class Leak:
    """Finds the end of a reference at the beginning of what is generated after it."""

    def __init__(self, reference: Codes) -> None:
        tail = reference[-LEAK_REACH:]
        self._tail = tail
        self._starts = list(range(len(tail) - SHORTEST_LEAK + 1))  # places that still fit
        self._seen = self._leaked = 0

    def push(self, codes: Codes) -> int | None:
        """Frames [n, G] as they come, until it is decided: how many of all are the reference's.

        None: not yet, as what there is could still be its end. A frame counts as the same where
        more than half of its codes are.
        """
        tail = self._tail
        for frame in codes:
            alike = [
                start
                for start in self._starts
                if 2 * np.count_nonzero(tail[start + self._seen] == frame) > len(frame)
            ]
            self._seen += 1
            if any(start + self._seen == len(tail) for start in alike):
                self._leaked = self._seen
            self._starts = [start for start in alike if start + self._seen < len(tail)]
            if not self._starts:
                return self._leaked
        return None


def bridge(before: Samples, after: Samples, pause: float, rate: int) -> Samples:
    """What goes between two pieces of audio: so much that `pause` seconds between them are quiet.

    Quiet that they have themselves counts. `before` and `after` may be their last and first part.
    Nothing is put between quiet edges that are apart enough already.
    """
    due = round(pause * rate) - _quiet(before[::-1], rate) - _quiet(after, rate)
    last = float(before[-1]) if len(before) else 0.0
    first = float(after[0]) if len(after) else 0.0
    ramp = round(RAMP * rate)
    falls, rises = abs(last) > EDGE / 2, abs(first) > EDGE / 2
    ramps = ramp * (falls + rises) if abs(last - first) > EDGE or due > 0 else 0
    return _led(
        max(due, ramps, 0),
        last if ramps and falls else 0.0,
        first if ramps and rises else 0.0,
        ramp,
    )


def rest(before: Samples, after: Samples, seconds: float, rate: int) -> Samples:
    """Exactly so much silence as goes between two pieces of audio, or ahead of the first.

    It begins and ends with ramps of 5 ms where they do not end and begin quietly.
    """
    count, ramp = round(seconds * rate), round(RAMP * rate)
    edges = [float(side[0]) if len(side) else 0.0 for side in (before[::-1], after)]
    last, first = (edge if abs(edge) > EDGE / 2 and count >= 2 * ramp else 0.0 for edge in edges)
    return _led(count, last, first, ramp)


def _led(count: int, last: float, first: float, ramp: int) -> Samples:
    """Silence that is led to from `last`, and leads to `first`."""
    gap = np.zeros(count, np.float32)
    slope = (0.5 + 0.5 * np.cos(np.pi * np.arange(1, ramp + 1) / (ramp + 1))).astype(np.float32)
    if last:
        gap[:ramp] += last * slope
    if first:
        gap[-ramp:] += first * slope[::-1]
    return gap


def without_lead(pieces: Iterator[Samples], rate: int) -> Iterator[Samples]:
    """Audio without the quiet at its beginning, of which 5 ms stay; in pieces of whole 5 ms."""
    for samples in pieces:
        quiet = _quiet(samples, rate)
        if quiet < len(samples):
            yield samples[max(0, quiet - round(RAMP * rate)) :]
            break
    yield from pieces


def longest_bridge(pause: float, rate: int) -> int:
    """Samples that `bridge` puts at most."""
    return max(round(pause * rate), 2 * round(RAMP * rate))


def _quiet(samples: Samples, rate: int) -> int:
    """How many samples at the beginning are quiet, in steps of 5 ms."""
    step = round(RAMP * rate)
    whole = len(samples) // step * step
    levels = np.sqrt(np.mean(np.square(samples[:whole].reshape(-1, step)), axis=1))
    loud = np.flatnonzero(levels >= QUIET)
    return int(loud[0]) * step if len(loud) else whole
