"""Whisper's log-mel features of a whole recording as windows, with bounded memory.

As in openai-whisper's front end, a window of zeros is appended to the audio, the clamp depends on
the maximum of the whole recording, and a window that reaches past the end shows real silence.
Source: whisper/transcribe.py (mel = log_mel_spectrogram(audio, padding=N_SAMPLES)).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from oscine.audio.mel import (
    FRAMES_PER_MATMUL,
    HALF_WINDOW,
    HOP_LENGTH,
    LOG_FLOOR,
    N_FFT,
    SAMPLE_RATE,
    log_power,
    scale,
)
from oscine.threads import parallel_for

CACHE_S = 600  # 10 minutes of 128 mel bins are 31 MB; longer recordings are decoded twice
_MIN_BLOCK_SAMPLES = 20 * SAMPLE_RATE  # samples transformed at once, at least: work for 4 threads
_SCALE_ROWS = 2048  # 1 MiB of 128 mel bins, scaled by one thread


class Recording(Protocol):
    """A recording whose samples can be read repeatedly as blocks."""

    def blocks(self, rate: int = SAMPLE_RATE) -> Iterator[NDArray[np.float32]]: ...


class WhisperFeatures:
    """Log-mel windows of one recording, as if computed from the whole recording at once.

    `source.blocks()` yields mono float32 blocks of any size at 16 kHz, and must be repeatable. It
    is read once at construction, for the maximum and the length; `check` is called for every block,
    then and later, and may raise to cancel. Up to `cached_seconds` the features of that pass are
    kept. A longer recording is read again as windows are requested, holding only what a window
    needs; going backwards starts over.

    Raises what the source raises (AudioError, NonFiniteError).
    """

    def __init__(
        self,
        source: Recording,
        n_mels: int,
        window_frames: int,
        *,
        check: Callable[[], None] | None = None,
        cached_seconds: float = CACHE_S,
    ) -> None:
        self.n_mels = n_mels
        self.window_frames = window_frames
        self._source = source
        self._check = check
        self.samples = 0
        self._held: deque[NDArray[np.float32]] = deque()
        self._held_from = 0  # frame of the first cached row
        self._coming: Iterator[NDArray[np.float32]] = iter(())
        self._peak = self._survey(int(cached_seconds * SAMPLE_RATE))

    @property
    def frames(self) -> int:
        """Number of frames: whole hops of 10 ms, without the appended silence."""
        return self.samples // HOP_LENGTH

    @property
    def duration(self) -> float:
        """Length of the recording in seconds."""
        return self.samples / SAMPLE_RATE

    def window(self, seek: int, size: int, *, silence: bool = False) -> NDArray[np.float32]:
        """Features float32 [window_frames, n_mels] from frame `seek`; not to be changed.

        The first `size` frames are content. If they reach the end of the recording, the rest is the
        silence that follows it, as in transformers and the first releases of openai-whisper (since
        clip_timestamps, openai-whisper has 0.0 there too); if a clip ends earlier, the rest is 0.0,
        which is not silence, or with `silence` the value of silence. Raises ValueError for a
        negative frame.
        """
        size = min(size, self.window_frames)
        if seek < 0 or size < 0:
            raise ValueError(f"a window of {size} frames at frame {seek} is before the recording")
        wanted = self.window_frames if seek + size >= self.frames else size
        rows = self._rows(seek, wanted)
        if wanted == self.window_frames:
            return rows
        rest = self._silence if silence else np.float32(0.0)
        window = np.full((self.window_frames, self.n_mels), rest, np.float32)
        window[:wanted] = rows
        return window

    @property
    def _silence(self) -> np.float32:
        """The feature value of a frame of zeros."""
        return np.float32(scale(np.full(1, LOG_FLOOR, np.float32), self._peak)[0])

    def _survey(self, cached_samples: int) -> float:
        """Read everything once: length, maximum, and the rows if they fit the cache."""
        keep, peak = True, LOG_FLOOR
        for logs in self._log_blocks():
            peak = max(peak, float(logs.max(initial=LOG_FLOOR)))
            keep = keep and self.samples <= cached_samples
            if keep:
                self._held.append(logs)
            else:
                self._held.clear()
        self._keep = keep
        if keep and self._held:
            self._held = deque([_scale_rows(np.concatenate(self._held), peak)])
        elif not keep:
            self._coming = self._scaled_blocks()
        return peak

    def _rows(self, start: int, count: int) -> NDArray[np.float32]:
        """Rows [count, n_mels]; those past the end are silence."""
        if self._keep and self._held:  # a view: a copy may wait for the engine's thread
            rows = self._held[0][start : start + count]
            if len(rows) == count:
                return rows
        if start < self._held_from:
            self._held.clear()
            self._held_from = 0
            self._coming = self._scaled_blocks()
        rows = np.full((count, self.n_mels), self._silence, np.float32)
        first = self._held_from
        for logs in self._reach(start + count):
            last = first + len(logs)
            if last > start:
                low, high = max(first, start), min(last, start + count)
                if low < high:
                    rows[low - start : high - start] = logs[low - first : high - first]
            elif not self._keep:
                self._held.popleft()
                self._held_from = last
            first = last
        return rows

    def _reach(self, end: int) -> Iterator[NDArray[np.float32]]:
        """The cached blocks, then new ones, cached too, until frame `end` is covered."""
        covered = self._held_from
        for logs in tuple(self._held):
            covered += len(logs)
            yield logs
        while covered < end:
            logs_or_end = next(self._coming, None)
            if logs_or_end is None:
                return
            self._held.append(logs_or_end)
            covered += len(logs_or_end)
            yield logs_or_end

    def _scaled_blocks(self) -> Iterator[NDArray[np.float32]]:
        """The features of another reading, in blocks."""
        return (_scale_rows(logs, self._peak) for logs in self._log_blocks())

    def _log_blocks(self) -> Iterator[NDArray[np.float32]]:
        """Unclamped rows of the audio and of what follows while a frame still overlaps it.

        Row t covers samples [160 t - 200, 160 t + 200). Samples before the start reflect the first
        201; after the end there are zeros, so rows past (n + 200) / 160 need not be computed.
        Blocks are cut at multiples of FRAMES_PER_MATMUL, so the rows do not depend on the source's
        blocks.
        """
        waiting: list[NDArray[np.float32]] = []
        samples = rows = held = 0
        for block in self._source.blocks(SAMPLE_RATE):
            if self._check is not None:
                self._check()
            samples += len(block)
            self.samples = max(self.samples, samples)
            waiting.append(block)
            held += len(block)
            if held >= _MIN_BLOCK_SAMPLES:
                stretch = np.concatenate(waiting)
                if not rows:
                    stretch = _prepend_reflection(stretch)
                whole = (
                    (len(stretch) - N_FFT + HOP_LENGTH)
                    // HOP_LENGTH
                    // FRAMES_PER_MATMUL
                    * FRAMES_PER_MATMUL
                )
                yield log_power(stretch[: (whole - 1) * HOP_LENGTH + N_FFT], self.n_mels)
                rows += whole
                waiting = [stretch[whole * HOP_LENGTH :].copy()]
                held = len(waiting[0])
        if not samples:
            return
        stretch = np.concatenate([*waiting, np.zeros(N_FFT + HALF_WINDOW, np.float32)])
        if not rows:
            stretch = _prepend_reflection(stretch)
        logs = log_power(stretch[: -(N_FFT + HALF_WINDOW)], self.n_mels)
        yield logs
        rows += len(logs)
        audible = -(-(samples + HALF_WINDOW) // HOP_LENGTH)
        yield log_power(stretch[len(logs) * HOP_LENGTH :], self.n_mels)[: audible - rows]


def _scale_rows(logs: NDArray[np.float32], peak: float) -> NDArray[np.float32]:
    """Convert unclamped rows to features in place, on all threads."""

    def piece(start: int) -> None:
        rows = logs[start : start + _SCALE_ROWS]
        scale(rows, peak, out=rows)

    parallel_for(piece, range(0, len(logs), _SCALE_ROWS))
    return logs


def _prepend_reflection(beginning: NDArray[np.float32]) -> NDArray[np.float32]:
    """Prepend the reflection of samples 1…200 (of more than 200 samples)."""
    return np.concatenate([beginning[HALF_WINDOW:0:-1], beginning])
