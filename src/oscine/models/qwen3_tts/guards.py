"""Guards against failures of generation, and the joins between pieces of audio.

- No end of sequence: a limit of frames that depends on the text's length and allows slow speech.
- Silence: several seconds without sound. It is longer than a pause and is dropped.
- A repetition loop: the same few frames repeat in the first codebook, which carries the words.
- A leaking reference: the first frames repeat the end of the reference. They are dropped.
- A click where two pieces of audio meet: silence is inserted up to the due pause, and an edge that
  is not silent is faded.
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
)  # the slowest accepted speech, and typical speech
EXTRA_SPEECH_S = 3.0  # allowed for any text: breaths, a laugh
SILENCE_RMS = 0.003  # root mean square, full scale 1: -50 dB
MAX_SILENCE_S = 4.0  # longer is not a pause
IMMEDIATE_SILENCE_S = 0.32  # of a silence that is passed on at once
MAX_LOOP_FRAMES, MIN_LOOP_COUNT = 50, 4  # period of a loop, and its repetitions
MIN_LOOPING_FRAMES = 75  # 6 s: a loop that lasts less is accepted
MIN_LOOP_MATCH = 0.9  # share of frames that equal those one period earlier
MAX_LEAK_FRAMES = 25  # at the end of the reference, where a leak may begin: 2 s
MIN_LEAK_FRAMES = 3
CLICK_STEP = 0.01  # a step between two samples that is audible
FADE_S = 0.005  # from an edge to zero

Codes = NDArray[np.uint32]


def max_frames_for(text: str, frame_rate: float) -> int:
    """The maximum number of frames for a text, at `frame_rate` frames a second."""
    return math.ceil(frame_rate * (EXTRA_SPEECH_S + count_letters(text) / MIN_LETTERS_PER_S))


class RepetitionDetector:
    """Detects repetition loops in the first codes of frames."""

    def __init__(self) -> None:
        self._history = np.zeros(0, np.uint32)

    def push(self, codes: Codes) -> bool:
        """Add frames [n, G]; whether the frames so far end in a loop."""
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
    """Passes audio on, but holds back a long silence until sound follows."""

    def __init__(self, rate: int, hop: int) -> None:
        self._rate, self._hop = rate, hop
        self._silent_samples = 0  # samples
        self._pending: list[Samples] = []

    def push(self, samples: Samples) -> Samples:
        """Add audio of whole frames; returns the audio that can be played now."""
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
        """Whether the current silence is too long to be a pause."""
        return self._silent_samples > MAX_SILENCE_S * self._rate

    def flush(self) -> Samples:
        """The silence that is held back, which belongs to audio that ended by itself."""
        pending, self._pending = self._pending, []
        return np.concatenate(pending) if pending else np.zeros(0, np.float32)


class ReferenceLeakDetector:
    """Detects the end of the reference at the start of the frames that are generated after it."""

    def __init__(self, reference: Codes) -> None:
        tail = reference[-MAX_LEAK_FRAMES:]
        self._tail = tail
        self._candidates = list(
            range(len(tail) - MIN_LEAK_FRAMES + 1)
        )  # where a leak may still begin
        self._position = self._leak_length = 0

    def push(self, codes: Codes) -> int | None:
        """Add frames [n, G]; the number of leaked frames, or None while it is undecided.

        A frame equals one of the reference if more than half of its codes do.
        """
        tail = self._tail
        for frame in codes:
            matching = [
                start
                for start in self._candidates
                if 2 * np.count_nonzero(tail[start + self._position] == frame) > len(frame)
            ]
            self._position += 1
            if any(start + self._position == len(tail) for start in matching):
                self._leak_length = self._position
            self._candidates = [start for start in matching if start + self._position < len(tail)]
            if not self._candidates:
                return self._leak_length
        return None


def crossfade(before: Samples, after: Samples, pause: float, rate: int) -> Samples:
    """The samples to insert between two pieces of audio, so that `pause` seconds between them are
    silent.

    Silence at the edges of the pieces counts. `before` and `after` may be the end and the start of
    the pieces. Nothing is inserted between silent edges that have enough silence already. Edges
    that are not silent are faded out and in.
    """
    due = round(pause * rate) - _leading_silence(before[::-1], rate) - _leading_silence(after, rate)
    last = float(before[-1]) if len(before) else 0.0
    first = float(after[0]) if len(after) else 0.0
    ramp = round(FADE_S * rate)
    fades_out, fades_in = abs(last) > CLICK_STEP / 2, abs(first) > CLICK_STEP / 2
    ramps = ramp * (fades_out + fades_in) if abs(last - first) > CLICK_STEP or due > 0 else 0
    return _faded_silence(
        max(due, ramps, 0),
        last if ramps and fades_out else 0.0,
        first if ramps and fades_in else 0.0,
        ramp,
    )


def silence_between(before: Samples, after: Samples, seconds: float, rate: int) -> Samples:
    """Exactly `seconds` of silence between two pieces of audio, or before the first.

    An edge that is not silent is faded over 5 ms.
    """
    count, ramp = round(seconds * rate), round(FADE_S * rate)
    edges = [float(side[0]) if len(side) else 0.0 for side in (before[::-1], after)]
    last, first = (
        edge if abs(edge) > CLICK_STEP / 2 and count >= 2 * ramp else 0.0 for edge in edges
    )
    return _faded_silence(count, last, first, ramp)


def _faded_silence(count: int, fade_from: float, fade_to: float, ramp: int) -> Samples:
    """Silence of `count` samples that fades out from `fade_from` and in to `fade_to`."""
    gap = np.zeros(count, np.float32)
    slope = (0.5 + 0.5 * np.cos(np.pi * np.arange(1, ramp + 1) / (ramp + 1))).astype(np.float32)
    if fade_from:
        gap[:ramp] += fade_from * slope
    if fade_to:
        gap[-ramp:] += fade_to * slope[::-1]
    return gap


def trim_leading_silence(pieces: Iterator[Samples], rate: int) -> Iterator[Samples]:
    """Remove the silence at the beginning but for 5 ms.

    The arrays must be multiples of 5 ms long.
    """
    for samples in pieces:
        quiet = _leading_silence(samples, rate)
        if quiet < len(samples):
            yield samples[max(0, quiet - round(FADE_S * rate)) :]
            break
    yield from pieces


def max_crossfade_samples(pause: float, rate: int) -> int:
    """The most samples that `crossfade` inserts."""
    return max(round(pause * rate), 2 * round(FADE_S * rate))


def _leading_silence(samples: Samples, rate: int) -> int:
    """The number of silent samples at the beginning, in steps of 5 ms."""
    step = round(FADE_S * rate)
    whole = len(samples) // step * step
    levels = np.sqrt(np.mean(np.square(samples[:whole].reshape(-1, step)), axis=1))
    loud = np.flatnonzero(levels >= SILENCE_RMS)
    return int(loud[0]) * step if len(loud) else whole
