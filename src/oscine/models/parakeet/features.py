"""Log-mel features of a whole recording, computed on demand with bounded memory.

Features are normalised by the statistics of the whole recording, as NeMo does for a recording in
one piece, so that chunks see the values that one pass would. Source: audio/mel_nemo.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from oscine.audio.mel import HOP_LENGTH, SAMPLE_RATE
from oscine.audio.mel_nemo import FeatureStats, frame_count, raw_log_mel
from oscine.audio.timeline import AudioBlocks

CACHE_S = 600  # 10 minutes of 128 mel bins are 31 MB; longer recordings are read twice
_MAX_BLOCK_SAMPLES = 60 * SAMPLE_RATE  # samples transformed at once, at most
_MIN_BLOCK_SAMPLES = 10 * SAMPLE_RATE  # and at least, except at the end
_LEFT_FRAMES = 2  # context before a block of samples: more than a frame reaches back
_HALF_WINDOW = 200  # samples of a frame's window on either side of its centre


class NemoFeatures:
    """Normalised log-mel frames of one recording, 10 ms each.

    `recording.blocks()` is read once at construction, for the length and the statistics. Up to
    `cached_seconds` the frames are kept; a longer recording is read again as frames are requested,
    so `blocks()` must be repeatable. `check` is called for every block and may raise to cancel.
    Raises what the recording raises.
    """

    def __init__(
        self,
        recording: AudioBlocks,
        n_mels: int,
        *,
        check: Callable[[], None] | None = None,
        cached_seconds: float = CACHE_S,
    ) -> None:
        self.n_mels = n_mels
        self.samples = 0
        self._recording, self._check = recording, check
        self._coming: Iterator[NDArray[np.float32]] = iter(())
        self._held: list[NDArray[np.float32]] = []
        self._held_from = 0  # frame of the first cached row
        self._keep = True
        most = int(cached_seconds * SAMPLE_RATE)
        stretches = self._kept(self._stretches(), most)
        self._statistics: FeatureStats | None = None
        first = next(stretches, None)
        if first is not None:
            self._statistics = FeatureStats.of(_prepend_first(first, stretches))
        if not self._keep:
            self._rewind()

    @property
    def frames(self) -> int:
        """Number of frames; 0 for a recording of less than one frame."""
        return frame_count(self.samples)

    @property
    def duration(self) -> float:
        """Length of the recording in seconds."""
        return self.samples / SAMPLE_RATE

    def rows(self, first: int, last: int) -> NDArray[np.float32]:
        """Normalised frames `first` to `last` (exclusive), float32 [last - first, n_mels].

        Frames that were released are computed again. Raises ValueError for frames outside the
        recording.
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

    def window(
        self, first: int, last: int, *, self_normalised: bool = False
    ) -> NDArray[np.float32]:
        """The frames of `rows`, or with `self_normalised` normalised by their own statistics."""
        rows = self.rows(first, last)
        return FeatureStats.of([rows]).normalised(rows) if self_normalised else rows

    def release(self, before: int) -> None:
        """Free frames before this one; the caller does not request them again."""
        while not self._keep and self._held and self._held_from + len(self._held[0]) <= before:
            self._held_from += len(self._held.pop(0))

    def _rewind(self) -> None:
        self._held, self._held_from, self._coming = [], 0, self._stretches()

    def _reach(self, last: int) -> Iterator[NDArray[np.float32]]:
        """The cached blocks of frames, then new ones, cached too, until frame `last` is covered."""
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
        """The blocks of frames unchanged; caches them up to `most` samples."""
        for stretch in stretches:
            self._keep = self._keep and self.samples <= most
            if self._keep:
                self._held.append(stretch)
            else:
                self._held = []
            yield stretch

    def _stretches(self) -> Iterator[NDArray[np.float32]]:
        """Unnormalised frames in order, in blocks [1.., n_mels].

        Samples are collected until a block is worthwhile. Two frames of the previous samples are
        kept before them, more than a frame reaches back, so that a block does not begin like a
        recording.
        """
        waiting: list[NDArray[np.float32]] = []
        held = begin = samples = done = 0  # samples collected, and the frame of the first of them
        for block in self._recording.blocks(SAMPLE_RATE):
            if self._check is not None:
                self._check()
            samples += len(block)
            self.samples = max(self.samples, samples)
            for start in range(0, len(block), _MAX_BLOCK_SAMPLES):
                part = block[start : start + _MAX_BLOCK_SAMPLES]
                waiting.append(part)
                held += len(part)
                if held < _MIN_BLOCK_SAMPLES:
                    continue
                stretch = np.concatenate(waiting)
                seen = begin + (held - _HALF_WINDOW) // HOP_LENGTH + 1
                yield raw_log_mel(stretch, self.n_mels, done - begin, seen - begin)
                done, begin_next = seen, max(seen - _LEFT_FRAMES, 0)
                rest = stretch[(begin_next - begin) * HOP_LENGTH :].copy()
                waiting, held, begin = [rest], len(rest), begin_next
        stretch = np.concatenate(waiting) if waiting else np.zeros(0, np.float32)
        if frame_count(samples) > done:
            yield raw_log_mel(stretch, self.n_mels, done - begin)


def _prepend_first(
    first: NDArray[np.float32], rest: Iterator[NDArray[np.float32]]
) -> Iterator[NDArray[np.float32]]:
    yield first
    yield from rest
