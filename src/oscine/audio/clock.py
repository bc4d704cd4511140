"""Aligns decoded frames with the container's clock: time that the clock leaves out becomes silence.

A container states the time of each packet (pts). A player starts with the earliest of all tracks
and is silent where the clock of the audio track leaves time out: before a track that starts late,
and where packets are missing. A clock that jumps backwards leaves nothing out: concatenated
recordings follow each other, and no sample is dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from oscine.audio.ffmpeg import av
from oscine.audio.resample import MAX_RATE

JITTER_S = 0.05  # tolerance: containers round, recorders are late
SETTLE_S = 0.5  # audio for which a clock that jumped must keep its new time
MAX_SILENCE_S = 6 * 3600.0  # filled per recording; a clock that needs more is wrong
MAX_PENDING_FRAMES = (
    128  # that wait for a clock to settle: 0.3 s of the shortest frames of any codec
)
MAX_GAPS_LISTED = 5  # in a message
_DRIFT_WINDOW_S = 2.5  # a drifting clock falls behind by JITTER_S in no less than this_S
_SILENCE_SPEEDUP = 1.05  # factor of silent frames' sample rate, while samples exceed the time


class TimedFrame(NamedTuple):
    """A decoded frame, and its time in seconds by the container's clock; None if it has none."""

    frame: av.AudioFrame
    seconds: float | None

    @property
    def length(self) -> float:
        """Duration in seconds."""
        return self.frame.samples / max(self.frame.sample_rate, 1)


class Clock:
    """The timeline of one recording, whose parts may each have a clock of their own.

    `position`: seconds from the start to the end of the last frame, with silence. `gaps`: the first
    few gaps that were filled with silence, as (start, end); `gap_count`, `gap_seconds`: all of
    them. `refused`: start and length of the first gap that was not filled.
    """

    def __init__(self) -> None:
        self.position = 0.0
        self.gaps: list[tuple[float, float]] = []
        self.gap_count = 0
        self.gap_seconds = 0.0
        self.refused: tuple[float, float] | None = None
        self._left = MAX_SILENCE_S
        self._origin: float | None = None  # the container's clock at position 0
        self._wrap: float | None = None
        self._last = 0.0  # how far the clock was ahead at the last frame
        self._on_time = 0.0  # last position at which the clock was not behind
        self._hurried = False

    def align(
        self, frames: Iterable[TimedFrame], start: float | None, wrap: float | None = None
    ) -> Iterator[tuple[float, av.AudioFrame]]:
        """The frames of one part, each with the seconds of silence to insert before it.

        `start`: the part's clock at its beginning; None: the time of its first frame. `wrap`: the
        period after which the clock returns to 0. A frame whose time does not follow waits for half
        a second of audio after it, or MAX_PENDING_FRAMES, to tell a gap from a damaged time.
        """
        self._origin = None if start is None else start - self.position
        self._wrap, self._last, self._hurried = wrap, 0.0, False
        self._on_time = self.position
        held: deque[TimedFrame] = deque()
        ahead = 0.0
        for stamped in frames:
            held.append(stamped)
            ahead += stamped.length
            while held and (
                ahead > SETTLE_S or len(held) > MAX_PENDING_FRAMES or self._follows(held[0])
            ):
                ahead -= held[0].length
                yield self._next(held)
        while held:
            yield self._next(held)

    def fill(self, seconds: float) -> float:
        """Insert silence at `position`; returns the seconds inserted: all of it or none."""
        if seconds > self._left:
            if self._left:
                self.refused = (self.position, seconds)
            self._left = 0.0
            return 0.0
        self._left -= seconds
        begin, self.position = self.position, self.position + seconds
        if len(self.gaps) < MAX_GAPS_LISTED:
            self.gaps.append((begin, self.position))
        self.gap_count += 1
        self.gap_seconds += seconds
        return seconds

    def reset(self) -> None:
        """Clear `gaps` and `refused` after they were reported."""
        self.gaps, self.gap_count, self.gap_seconds, self.refused = [], 0, 0.0, None

    def _lead(self, seconds: float, position: float) -> float:
        """How far the clock is ahead of the samples, in seconds; negative if behind."""
        if self._origin is None:
            self._origin = seconds - position
        lead = seconds - self._origin - position
        if self._wrap is not None:
            lead = (lead + self._wrap / 2) % self._wrap - self._wrap / 2
        return lead

    def _leads(self, held: Iterable[TimedFrame]) -> Iterator[float]:
        """How far the clock is ahead at each pending frame, if nothing is inserted between them."""
        position = self.position
        for stamped in held:
            if stamped.seconds is not None:
                yield self._lead(stamped.seconds, position)
            position += stamped.length

    def _follows(self, stamped: TimedFrame) -> bool:
        seconds = stamped.seconds
        return seconds is None or abs(self._lead(seconds, self.position)) <= JITTER_S

    def _next(self, held: deque[TimedFrame]) -> tuple[float, av.AudioFrame]:
        """The first pending frame, and the silence before it."""
        frame, seconds = held[0]
        silence = 0.0 if seconds is None else self._adjusted(seconds, held)
        held.popleft()
        if self._hurried:
            frame.sample_rate = min(round(frame.sample_rate * _SILENCE_SPEEDUP), MAX_RATE)
        self.position += TimedFrame(frame, None).length
        return silence, frame

    def _adjusted(self, seconds: float, held: deque[TimedFrame]) -> float:
        """Follow the clock to the first frame's time; returns the silence that this takes.

        The frames after it show whether the clock stays where it jumped to. A backward jump begins
        a new clock. A clock that is slightly slower than the samples is caught up with.
        """
        lead = self._lead(seconds, self.position)
        assert self._origin is not None
        silence = 0.0
        if lead > JITTER_S:
            gap = min(self._leads(held))
            if gap > JITTER_S:
                silence = self.fill(gap)
                self._origin += gap - silence
        elif lead < -JITTER_S and max(self._leads(held)) < -JITTER_S:
            if lead - self._last < -JITTER_S or self.position - self._on_time < _DRIFT_WINDOW_S:
                self._origin += lead
            else:
                self._hurried = True
        self._last = self._lead(seconds, self.position)
        if self._last >= 0:
            self._on_time = self.position
            self._hurried = False
        return silence
