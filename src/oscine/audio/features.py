"""Log-mel of a whole recording as windows, with memory that does not grow with its length.

The openai column of the front end: one window of zeros is appended to the audio, the clamp hangs on
the loudest value of the whole file, and a window that reaches past the end shows real silence.
Source: whisper/transcribe.py (mel = log_mel_spectrogram(audio, padding=N_SAMPLES)).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from oscine.audio.mel import (
    FRAMES_A_PRODUCT,
    HALF_WINDOW,
    HOP_LENGTH,
    LOG_FLOOR,
    N_FFT,
    SAMPLE_RATE,
    log_power,
    scale,
)
from oscine.threads import parallel_for

CACHE_S = 600  # 10 minutes of 128 mels are 31 MB; longer recordings are decoded twice
_MIN_BLOCK = (
    20 * SAMPLE_RATE
)  # samples that are transformed in one go, at least: work for 4 threads
_SCALE_ROWS = 2048  # 1 MiB of 128 mels, scaled by one thread


class Recording(Protocol):
    """What Features needs of a recording: its samples as blocks, as often as asked."""

    def blocks(self, rate: int = SAMPLE_RATE) -> Iterator[NDArray[np.float32]]: ...


class WhisperFeatures:
    """Log-mel windows of one recording, as if computed from the whole file at once.

    `source.blocks()` gives mono float32 blocks of any size at 16 kHz, and may be asked again. It is
    read once at construction, to find the loudest value and the length; `check` is called once a
    block there, and wherever blocks are read later, so that a caller can cancel by raising. Up to
    `cached_seconds` the features of that pass are kept. A longer recording is read again as windows
    are asked for, holding only what a window needs; asking backwards starts over.

    Raises whatever the source raises (AudioError, NonFiniteError).
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
        self._held_from = 0  # the frame number of the first held row
        self._coming: Iterator[NDArray[np.float32]] = iter(())
        self._peak = self._survey(int(cached_seconds * SAMPLE_RATE))

    @property
    def frames(self) -> int:
        """Frames of content: whole hops of 10 ms, the appended silence not counted."""
        return self.samples // HOP_LENGTH

    @property
    def duration(self) -> float:
        """Length of the recording in seconds."""
        return self.samples / SAMPLE_RATE

    def window(self, seek: int, size: int, *, silence: bool = False) -> NDArray[np.float32]:
        """Features float32 [window_frames, n_mels] that begin at frame `seek`; not to be changed.

        The first `size` frames are content. If they reach the end of the content, the rest is the
        silence that follows it, as transformers and the first releases of openai-whisper show it to
        the model (since clip_timestamps, openai-whisper puts 0.0 there too); if a clip ends
        earlier, the rest is 0.0, which is no silence, or with `silence` what silence looks like.
        Raises ValueError for a negative frame.
        """
        size = min(size, self.window_frames)
        if seek < 0 or size < 0:
            raise ValueError(f"a window of {size} frames at frame {seek} lies before the recording")
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
        """The feature of a frame of zeros."""
        return np.float32(scale(np.full(1, LOG_FLOOR, np.float32), self._peak)[0])

    def _survey(self, cached_samples: int) -> float:
        """Read everything once: length, loudest value, and the rows while they are few."""
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
            self._held = deque([_scaled(np.concatenate(self._held), peak)])
        elif not keep:
            self._coming = self._scaled_blocks()
        return peak

    def _rows(self, start: int, count: int) -> NDArray[np.float32]:
        """Rows [count, n_mels]; those past everything audible are silence."""
        if self._keep and self._held:  # a view: each copy may wait for the engine's thread
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
        """The held blocks, then new ones (held from then on) until frame `end` is covered."""
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
        """The features of another reading."""
        return (_scaled(logs, self._peak) for logs in self._log_blocks())

    def _log_blocks(self) -> Iterator[NDArray[np.float32]]:
        """Unclamped rows of the audio and of what follows while a frame can still hear it.

        Row t sees samples [160 t - 200, 160 t + 200). Samples before the beginning mirror the first
        201; after the end come zeros, so rows past (n + 200) / 160 need not be computed. Blocks
        are cut at multiples of FRAMES_A_PRODUCT, so the rows do not depend on the source's blocks.
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
            if held >= _MIN_BLOCK:
                stretch = np.concatenate(waiting)
                if not rows:
                    stretch = _mirror(stretch)
                whole = (
                    (len(stretch) - N_FFT + HOP_LENGTH)
                    // HOP_LENGTH
                    // FRAMES_A_PRODUCT
                    * FRAMES_A_PRODUCT
                )
                yield log_power(stretch[: (whole - 1) * HOP_LENGTH + N_FFT], self.n_mels)
                rows += whole
                waiting = [stretch[whole * HOP_LENGTH :].copy()]
                held = len(waiting[0])
        if not samples:
            return
        stretch = np.concatenate([*waiting, np.zeros(N_FFT + HALF_WINDOW, np.float32)])
        if not rows:
            stretch = _mirror(stretch)
        logs = log_power(stretch[: -(N_FFT + HALF_WINDOW)], self.n_mels)
        yield logs
        rows += len(logs)
        audible = -(-(samples + HALF_WINDOW) // HOP_LENGTH)
        yield log_power(stretch[len(logs) * HOP_LENGTH :], self.n_mels)[: audible - rows]


def _scaled(logs: NDArray[np.float32], peak: float) -> NDArray[np.float32]:
    """Features in place of unclamped rows, by all threads."""

    def piece(start: int) -> None:
        rows = logs[start : start + _SCALE_ROWS]
        scale(rows, peak, out=rows)

    parallel_for(piece, range(0, len(logs), _SCALE_ROWS))
    return logs


def _mirror(beginning: NDArray[np.float32]) -> NDArray[np.float32]:
    """Put the reflection of samples 1…200 in front of the beginning (more than 200 samples)."""
    return np.concatenate([beginning[HALF_WINDOW:0:-1], beginning])
