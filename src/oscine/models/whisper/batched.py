"""Windows side by side: cut at pauses beforehand, each on its own, their text in order of time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from oscine.audio.mel import FRAMES_PER_SECOND
from oscine.audio.speech import quiet_windows
from oscine.models.whisper.attempts import Job
from oscine.models.whisper.passage import Passage
from oscine.types import Segment

SHORTEST = 50  # frames of a window's rest that are worth another window


def side_by_side(
    passage: Passage,
    ranges: Sequence[tuple[int, int]],
    size: int,
    report: Callable[[int], None],
) -> Iterator[Segment]:
    """`size` windows at once over ranges of frames."""
    told = passage.attempts.history().prompt() if passage.options.carry_initial_prompt else ()
    before = 0.0
    for start, end in ranges:
        last = passage.end_of(end)
        jobs = [
            Job(low, high - low, passage.language, told)
            for low, high in quiet_windows(
                passage.speech, start, end, passage.features.window_frames
            )
        ]
        for at in range(0, len(jobs), size):
            report(jobs[at].seek)
            for segment in batch(passage, jobs[at : at + size], last):
                # Beside each other, windows do not know where the text before them ends.
                segment = not_before(segment, before)
                before = segment.end
                yield segment


def batch(passage: Passage, jobs: Sequence[Job], last: float) -> list[Segment]:
    """A batch's segments; windows whose text stops early are taken up again until all is said."""
    segments: list[Segment] = []
    while jobs:
        rests = []
        before = jobs[0].seek / FRAMES_PER_SECOND
        for job, found in zip(jobs, passage.decode(jobs, last, before, final=True), strict=True):
            segments += found.segments
            if found.advance <= job.size - SHORTEST:
                rest = job.size - found.advance
                rests.append(replace(job, seek=job.seek + found.advance, size=rest))
        jobs = rests
    return sorted(segments, key=lambda segment: (segment.start, segment.end))


def not_before(segment: Segment, time: float) -> Segment:
    """The segment and its words moved to begin not before `time`."""
    if segment.start >= time:
        return segment
    words = segment.words and tuple(
        replace(word, start=max(word.start, time), end=max(word.end, time))
        for word in segment.words
    )
    return replace(segment, start=time, end=max(segment.end, time), words=words)
