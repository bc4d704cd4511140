"""Features of a whole recording, frames as they are asked for, in memory that does not grow.

Every feature is normalised over the whole recording, as NeMo does for one that it takes in one
piece, so that pieces of it see what the whole would. Source: audio/mel_nemo.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from oscine.audio.mel import HOP, SAMPLE_RATE
from oscine.audio.mel_nemo import Statistics, frame_count, raw_log_mel
from oscine.audio.timeline import Sounding

CACHED_SECONDS = 600  # 10 minutes of 128 mels are 31 MB; longer recordings are read twice
_AT_ONCE = 60 * SAMPLE_RATE  # samples that are transformed in one go, at most
_WAIT = 10 * SAMPLE_RATE  # and at least, while there are more to come
_BEFORE = 2  # frames before a stretch of samples in which its first frames look back
_REACH = 200  # samples that a frame sees to both sides


class Features:
    """Frames of one recording, 10 ms each.

    `recording.blocks()` may be asked again. It is read once at construction, for the length and the
    statistics; `check` is called once a block, so that a caller can cancel by raising. Up to
    `cached_seconds` that is all; a longer recording is read again as frames are asked for.
    Raises whatever the recording raises.
    """

    def __init__(
        self,
        recording: Sounding,
        n_mels: int,
        *,
        check: Callable[[], None] | None = None,
        cached_seconds: float = CACHED_SECONDS,
    ) -> None:
        self.n_mels = n_mels
        self.samples = 0
        self._recording, self._check = recording, check
        self._coming: Iterator[NDArray[np.float32]] = iter(())
        self._held: list[NDArray[np.float32]] = []
        self._held_from = 0  # the frame that the first held row is
        self._keep = True
        most = int(cached_seconds * SAMPLE_RATE)
        stretches = self._kept(self._stretches(), most)
        self._statistics: Statistics | None = None
        first = next(stretches, None)
        if first is not None:
            self._statistics = Statistics.of(_chained(first, stretches))
        if not self._keep:
            self._rewind()

    @property
    def frames(self) -> int:
        """Frames in all; a recording of less than one has none."""
        return frame_count(self.samples)

    @property
    def duration(self) -> float:
        """Length of the recording in seconds."""
        return self.samples / SAMPLE_RATE

    def rows(self, first: int, last: int) -> NDArray[np.float32]:
        """Normalised frames `first` to `last`, float32 [last - first, n_mels].

        What was let go by `release` costs another reading. Raises ValueError for frames that are
        not there.
        """
        if not 0 <= first <= last <= self.frames:
            raise ValueError(f"frames {first} to {last} of {self.frames}")
        if first < self._held_from:
            self._rewind()
        at = self._held_from
        parts = []
        for stretch in self._reach(last):
            part = stretch[max(first - at, 0) : max(last - at, 0)]
            if len(part):
                parts.append(part)
            at += len(stretch)
        raw = np.concatenate(parts) if parts else np.zeros((0, self.n_mels), np.float32)
        return raw if self._statistics is None else self._statistics.normalised(raw)

    def release(self, before: int) -> None:
        """Frames before this one are not asked for again."""
        while not self._keep and self._held and self._held_from + len(self._held[0]) <= before:
            self._held_from += len(self._held.pop(0))

    def _rewind(self) -> None:
        self._held, self._held_from, self._coming = [], 0, self._stretches()

    def _reach(self, last: int) -> Iterator[NDArray[np.float32]]:
        """What is held, then more, held from then on, until frame `last` is reached."""
        covered = self._held_from
        for stretch in tuple(self._held):
            covered += len(stretch)
            yield stretch
        while covered < last:
            stretch = next(self._coming)
            self._held.append(stretch)
            covered += len(stretch)
            yield stretch

    def _kept(
        self, stretches: Iterator[NDArray[np.float32]], most: int
    ) -> Iterator[NDArray[np.float32]]:
        """The same, held while they are few."""
        for stretch in stretches:
            self._keep = self._keep and self.samples <= most
            if self._keep:
                self._held.append(stretch)
            else:
                self._held = []
            yield stretch

    def _stretches(self) -> Iterator[NDArray[np.float32]]:
        """Raw frames in order, a stretch [1.., n_mels] at a time.

        Samples wait until there are enough. Two frames of what was before stay in front of them:
        more than a frame reaches back, so that none of the next mistakes them for the beginning.
        """
        waiting: list[NDArray[np.float32]] = []
        held = begin = samples = done = 0  # samples that wait; the frame they begin at
        for block in self._recording.blocks(SAMPLE_RATE):
            if self._check is not None:
                self._check()
            samples += len(block)
            self.samples = max(self.samples, samples)
            for start in range(0, len(block), _AT_ONCE):
                part = block[start : start + _AT_ONCE]
                waiting.append(part)
                held += len(part)
                if held < _WAIT:
                    continue
                stretch = np.concatenate(waiting)
                seen = begin + (held - _REACH) // HOP + 1
                yield raw_log_mel(stretch, self.n_mels, done - begin, seen - begin)
                done, begin_next = seen, max(seen - _BEFORE, 0)
                rest = stretch[(begin_next - begin) * HOP :].copy()
                waiting, held, begin = [rest], len(rest), begin_next
        stretch = np.concatenate(waiting) if waiting else np.zeros(0, np.float32)
        if frame_count(samples) > done:
            yield raw_log_mel(stretch, self.n_mels, done - begin)


def _chained(
    first: NDArray[np.float32], rest: Iterator[NDArray[np.float32]]
) -> Iterator[NDArray[np.float32]]:
    yield first
    yield from rest
