"""When the frames of a recording are heard: what its clock leaves out becomes silence.

A container states the time of each packet (pts). A player begins with the earliest of all tracks
and is silent where the clock of the audio track leaves time out: before a track that starts late,
and where packets are missing. A clock that jumps backwards leaves nothing out: recordings that are
put one after another follow each other, and no sample is dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from oscine.audio.ffmpeg import av
from oscine.audio.resample import MAX_RATE

JITTER_S = 0.05  # seconds by which a clock may be wrong: containers round, recorders are late
SETTLE_S = 0.5  # seconds of sound for which a clock that jumps must keep its new time
MAX_SILENCE_S = (
    6 * 3600.0
)  # seconds of a recording that are filled; a clock that asks more is wrong
MAX_PENDING_FRAMES = (
    128  # frames that wait for that, however short: 0.3 s of the shortest of any codec
)
MAX_GAPS_LISTED = 5  # gaps that a message tells one by one
_DRIFT_WINDOW_S = 2.5  # seconds in which a clock that drifts is not behind by as much as JITTER_S
_CATCH_UP_SPEED = 1.05  # the speed at which sound is caught up with that has more samples than time


class TimedFrame(NamedTuple):
    """A decoded frame, and its time in seconds by the container's clock if that states one."""

    frame: av.AudioFrame
    seconds: float | None

    @property
    def length(self) -> float:
        """Seconds of sound."""
        return self.frame.samples / max(self.frame.sample_rate, 1)


class Clock:
    """The time of one recording, whose parts may each have a clock of their own.

    `position`: seconds from the beginning to where the next frame belongs, silence included.
    `gaps`: from when to when silence was put in, the first few; `gap_count`, `gap_seconds`: of all.
    `refused`: where the first gap begins that was not filled, and its length in seconds.
    """

    def __init__(self) -> None:
        self.position = 0.0
        self.gaps: list[tuple[float, float]] = []
        self.gap_count = 0
        self.gap_seconds = 0.0
        self.refused: tuple[float, float] | None = None
        self._left = MAX_SILENCE_S
        self._origin: float | None = None  # what the container's clock says at position 0
        self._wrap: float | None = None
        self._last = 0.0  # by how much the clock was ahead at the last frame
        self._on_time = 0.0  # the last position at which it was not behind
        self._hurried = False

    def align(
        self, frames: Iterable[TimedFrame], start: float | None, wrap: float | None = None
    ) -> Iterator[tuple[float, av.AudioFrame]]:
        """The frames of one part, each with the seconds of silence that belong before it.

        `start`: what the part's clock says where it begins; None: as its first frame says. `wrap`:
        after how many seconds the clock is at 0 again. A frame whose time does not follow waits for
        half a second of sound after it, or MAX_PENDING_FRAMES, which tells a gap from a damaged
        time.
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
        """Put silence in at `position`: how much of `seconds` that is, which is all or nothing."""
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
        """What was filled is told: `gaps` and `refused` are of what comes."""
        self.gaps, self.gap_count, self.gap_seconds, self.refused = [], 0, 0.0, None

    def _lead(self, seconds: float, position: float) -> float:
        """By how much the clock is ahead of the samples, negative where it is behind."""
        if self._origin is None:
            self._origin = seconds - position
        lead = seconds - self._origin - position
        if self._wrap is not None:
            lead = (lead + self._wrap / 2) % self._wrap - self._wrap / 2
        return lead

    def _leads(self, held: Iterable[TimedFrame]) -> Iterator[float]:
        """The same for all frames that are held, if nothing is put in between."""
        position = self.position
        for stamped in held:
            if stamped.seconds is not None:
                yield self._lead(stamped.seconds, position)
            position += stamped.length

    def _follows(self, stamped: TimedFrame) -> bool:
        seconds = stamped.seconds
        return seconds is None or abs(self._lead(seconds, self.position)) <= JITTER_S

    def _next(self, held: deque[TimedFrame]) -> tuple[float, av.AudioFrame]:
        """The first of the held frames, and the silence before it."""
        frame, seconds = held[0]
        silence = 0.0 if seconds is None else self._adjusted(seconds, held)
        held.popleft()
        if self._hurried:
            frame.sample_rate = min(round(frame.sample_rate * _CATCH_UP_SPEED), MAX_RATE)
        self.position += TimedFrame(frame, None).length
        return silence, frame

    def _adjusted(self, seconds: float, held: deque[TimedFrame]) -> float:
        """Follow the clock to the first frame's time: the silence that this takes.

        The frames after it say whether the clock stays where it jumps to. A jump backwards begins a
        new clock. A clock that is slower than the samples by little each time is caught up with.
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
