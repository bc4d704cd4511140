"""Whisper's windows of a whole recording, with bounded memory: log-mel features, or samples.

As in openai-whisper's front end, a window of zeros is appended to the audio, the clamp depends on
the maximum of the whole recording, and a window that reaches past the end shows real silence.
A device that computes the features itself is given windows of samples, and finds the maximum.
Source: whisper/transcribe.py (mel = log_mel_spectrogram(audio, padding=N_SAMPLES)).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Protocol, TypeAlias

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
from oscine.audio.sample_window import LogMelStats, SampleWindow
from oscine.threads import parallel_for

CACHE_S = 600  # 10 minutes of 128 mel bins are 31 MB; longer recordings are decoded twice
_MIN_BLOCK_SAMPLES = 20 * SAMPLE_RATE  # samples transformed at once, at least: work for 4 threads
_MAX_ANALYSES = 8  # that are waited for: each holds 20 s of samples
_SCALE_ROWS = 2048  # 1 MiB of 128 mel bins, scaled by one thread


class Recording(Protocol):
    """A recording whose samples can be read repeatedly as blocks."""

    def blocks(self, rate: int = SAMPLE_RATE) -> Iterator[NDArray[np.float32]]: ...


#: Samples in which `frames` frames follow each other: frame i covers samples 160 i to 160 i + 400.
Stretch: TypeAlias = tuple[NDArray[np.float32], int]


class RecordingWindows(ABC):
    """Windows of one recording from rows of 10 ms each, which are kept or read again.

    `source.blocks()` yields mono float32 blocks of any size at 16 kHz, and must be repeatable. It
    is read once at construction, for the maximum and the length; `check` is called for every block,
    then and later, and may raise to cancel. Up to `cached_seconds` the rows of that pass are kept.
    A longer recording is read again as windows are requested, holding only what a window needs;
    going backwards starts over.

    Raises what the source raises (AudioError, NonFiniteError).
    """

    row_width: int  # values of a row

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
        keep = True
        for rows in self._first_reading():
            keep = keep and self.samples <= int(cached_seconds * SAMPLE_RATE)
            if keep:
                self._held.append(rows)
            else:
                self._held.clear()
        self._keep = keep
        if keep and self._held:
            self._held = deque([self._finished(np.concatenate(self._held))])
        elif not keep:
            self._coming = self._reading()

    @property
    def frames(self) -> int:
        """Number of frames: whole hops of 10 ms, without the appended silence."""
        return self.samples // HOP_LENGTH

    @property
    def duration(self) -> float:
        """Length of the recording in seconds."""
        return self.samples / SAMPLE_RATE

    @abstractmethod
    def _first_reading(self) -> Iterator[NDArray[np.float32]]:
        """Rows [n, row_width] of the first reading, which finds the maximum."""

    @abstractmethod
    def _finished(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Rows of the first reading as those of another one."""

    @abstractmethod
    def _reading(self) -> Iterator[NDArray[np.float32]]:
        """Rows of another reading."""

    @abstractmethod
    def _row_past_end(self) -> np.float32:
        """The value of every row past the end."""

    def _unneeded_before(self, start: int) -> int:
        """The frame before which rows are dropped, while those from `start` on are read."""
        return start

    def _lead_in(self, beginning: NDArray[np.float32]) -> NDArray[np.float32]:
        """The beginning of the recording after the 200 samples before it."""
        return _prepend_reflection(beginning)

    def _window_rows(self, seek: int, size: int) -> int:
        """How many frames of a window have content, of `size` from `seek` on that are requested.

        All, if they reach the end of the recording. Raises ValueError for a negative frame.
        """
        size = min(size, self.window_frames)
        if seek < 0 or size < 0:
            raise ValueError(f"a window of {size} frames at frame {seek} is before the recording")
        return self.window_frames if seek + size >= self.frames else size

    def _rows(self, start: int, count: int) -> NDArray[np.float32]:
        """Rows [count, row_width]."""
        if self._keep and self._held:  # a view: a copy may wait for the engine's thread
            rows = self._held[0][start : start + count]
            if len(rows) == count:
                return rows
        if start < self._held_from:
            self._held.clear()
            self._held_from = 0
            self._coming = self._reading()
        rows = np.full((count, self.row_width), self._row_past_end(), np.float32)
        first = self._held_from
        for block in self._reach(start + count):
            last = first + len(block)
            if last > start:
                low, high = max(first, start), min(last, start + count)
                if low < high:
                    rows[low - start : high - start] = block[low - first : high - first]
            elif not self._keep and last <= self._unneeded_before(start):
                self._held.popleft()
                self._held_from = last
            first = last
        return rows

    def _reach(self, end: int) -> Iterator[NDArray[np.float32]]:
        """The cached blocks, then new ones, cached too, until frame `end` is covered."""
        covered = self._held_from
        for block in tuple(self._held):
            covered += len(block)
            yield block
        while covered < end:
            block_or_end = next(self._coming, None)
            if block_or_end is None:
                return
            self._held.append(block_or_end)
            covered += len(block_or_end)
            yield block_or_end

    def _stretches(self) -> Iterator[Stretch]:
        """The audio, and what follows while a frame still overlaps it, as consecutive frames.

        Frame t covers samples [160 t - 200, 160 t + 200). Samples before the start reflect the
        first 201; after the end there are zeros, so frames past (n + 200) / 160 need not be
        computed. Stretches are cut at multiples of FRAMES_PER_MATMUL, so that features do not
        depend on the source's blocks.
        """
        waiting: list[NDArray[np.float32]] = []
        samples = frames = held = 0
        for block in self._source.blocks(SAMPLE_RATE):
            if self._check is not None:
                self._check()
            samples += len(block)
            self.samples = max(self.samples, samples)
            waiting.append(block)
            held += len(block)
            if held >= _MIN_BLOCK_SAMPLES:
                stretch = np.concatenate(waiting)
                if not frames:
                    stretch = self._lead_in(stretch)
                whole = (
                    (len(stretch) - N_FFT + HOP_LENGTH)
                    // HOP_LENGTH
                    // FRAMES_PER_MATMUL
                    * FRAMES_PER_MATMUL
                )
                yield stretch[: (whole - 1) * HOP_LENGTH + N_FFT], whole
                frames += whole
                waiting = [stretch[whole * HOP_LENGTH :].copy()]
                held = len(waiting[0])
        if not samples:
            return
        stretch = np.concatenate([*waiting, np.zeros(N_FFT + HALF_WINDOW, np.float32)])
        if not frames:
            stretch = self._lead_in(stretch)
        whole = max(0, (len(stretch) - N_FFT - HALF_WINDOW - N_FFT + HOP_LENGTH) // HOP_LENGTH)
        yield stretch[: -(N_FFT + HALF_WINDOW)], whole
        audible = -(-(samples + HALF_WINDOW) // HOP_LENGTH)
        yield stretch[whole * HOP_LENGTH :], audible - frames - whole


class WhisperFeatures(RecordingWindows):
    """Log-mel windows of one recording, as if computed from the whole recording at once."""

    def __init__(
        self,
        source: Recording,
        n_mels: int,
        window_frames: int,
        *,
        check: Callable[[], None] | None = None,
        cached_seconds: float = CACHE_S,
    ) -> None:
        self._peak, self.row_width = LOG_FLOOR, n_mels
        super().__init__(source, n_mels, window_frames, check=check, cached_seconds=cached_seconds)

    def window(self, seek: int, size: int, *, silence: bool = False) -> NDArray[np.float32]:
        """Features float32 [window_frames, n_mels] from frame `seek`; not to be changed.

        The first `size` frames are content. If they reach the end of the recording, the rest is the
        silence that follows it, as in transformers and the first releases of openai-whisper (since
        clip_timestamps, openai-whisper has 0.0 there too); if a clip ends earlier, the rest is 0.0,
        which is not silence, or with `silence` the value of silence. Raises ValueError for a
        negative frame.
        """
        wanted = self._window_rows(seek, size)
        rows = self._rows(seek, wanted)
        if wanted == self.window_frames:
            return rows
        rest = self._row_past_end() if silence else np.float32(0.0)
        window = np.full((self.window_frames, self.n_mels), rest, np.float32)
        window[:wanted] = rows
        return window

    def _row_past_end(self) -> np.float32:
        return _silence(self._peak)

    def _first_reading(self) -> Iterator[NDArray[np.float32]]:
        for logs in self._logs():
            self._peak = max(self._peak, float(logs.max(initial=LOG_FLOOR)))
            yield logs

    def _finished(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        return _scale_rows(rows, self._peak)

    def _reading(self) -> Iterator[NDArray[np.float32]]:
        return (_scale_rows(logs, self._peak) for logs in self._logs())

    def _logs(self) -> Iterator[NDArray[np.float32]]:
        """Unclamped rows of a reading, in blocks."""
        return (log_power(samples, self.n_mels)[:frames] for samples, frames in self._stretches())


#: Begins the analysis of a stretch on a device; returns a function that waits for its statistics.
Analysis: TypeAlias = Callable[[NDArray[np.float32], int], Callable[[], LogMelStats]]


class RecordingSamples(RecordingWindows):
    """Windows of samples of one recording, from which a device computes the log-mel features.

    `analyse` is called while the recording is read, unless it is one window.
    """

    row_width = HOP_LENGTH

    def __init__(
        self,
        source: Recording,
        n_mels: int,
        window_frames: int,
        analyse: Analysis,
        *,
        check: Callable[[], None] | None = None,
        cached_seconds: float = CACHE_S,
    ) -> None:
        self._analyse = analyse
        self._unanalysed: list[Stretch] = []
        self._analyses: deque[Callable[[], LogMelStats]] = deque()
        self._found: list[LogMelStats] = []
        super().__init__(source, n_mels, window_frames, check=check, cached_seconds=cached_seconds)

    @cached_property
    def stats(self) -> LogMelStats:
        """The statistics of the recording, of at least one frame."""
        self._begin_analyses()
        while self._analyses:
            self._found.append(self._analyses.popleft()())
        return LogMelStats.of(self._found)

    @property
    def _is_one_window(self) -> bool:
        """Whether no frame past the first window overlaps the audio."""
        return self.samples + HALF_WINDOW <= self.window_frames * HOP_LENGTH

    def _begin_analyses(self) -> None:
        for stretch in self._unanalysed:
            if len(self._analyses) == _MAX_ANALYSES:
                self._found.append(self._analyses.popleft()())
            self._analyses.append(self._analyse(*stretch))
        self._unanalysed.clear()

    def _window_samples(self, first: int, frames: int) -> NDArray[np.float32]:
        """The samples that frames cover."""
        count = (frames - 1) * HOP_LENGTH + N_FFT
        return self._rows(first, -(-count // HOP_LENGTH)).reshape(-1)[:count]

    def _row_past_end(self) -> np.float32:
        return np.float32(0.0)

    def _counted_frames(self, done: int, frames: int) -> int:
        """How many frames of a stretch after `done` frames the statistics count."""
        return frames

    def _first_reading(self) -> Iterator[NDArray[np.float32]]:
        done = 0
        for samples, frames in self._stretches():
            if counted := self._counted_frames(done, frames):
                self._unanalysed.append((samples, counted))
            if not self._is_one_window:
                self._begin_analyses()
            done += frames
            yield _as_rows(samples, frames)

    def _finished(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        return rows

    def _reading(self) -> Iterator[NDArray[np.float32]]:
        return (_as_rows(*stretch) for stretch in self._stretches())


class WhisperSamples(RecordingSamples):
    """Windows of samples as Whisper's encoder takes them."""

    def window(self, seek: int, size: int, *, silence: bool = False) -> SampleWindow:
        """The window from frame `seek` of `size` frames of content; see WhisperFeatures.window."""
        content = self._window_rows(seek, size)
        samples = self._window_samples(seek, self.window_frames)
        shape = self.window_frames, self.n_mels
        if self._is_one_window and seek == 0 and content == self.window_frames:
            return SampleWindow(samples, shape, None, content)
        padding = float(_silence(self.stats.peak)) if silence else 0.0
        return SampleWindow(samples, shape, self.stats.as_row(), content, padding)


def _as_rows(samples: NDArray[np.float32], frames: int) -> NDArray[np.float32]:
    """The samples of a stretch up to that of the frame after it, [frames, 160]."""
    return samples[: frames * HOP_LENGTH].reshape(-1, HOP_LENGTH)


def _silence(peak: float) -> np.float32:
    """The feature value of a frame of zeros."""
    return np.float32(scale(np.full(1, LOG_FLOOR, np.float32), peak)[0])


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
