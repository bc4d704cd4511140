"""Maps times between a recording and the concatenation of some of its spans."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Protocol

from oscine.audio.mel import SAMPLE_RATE
from oscine.audio.vad import Span
from oscine.types import Samples

_SAMPLE_TOLERANCE = 1e-3  # of a sample: the precision of seconds as floats


class Timeline:
    """Spans put one after another: trimmed time (seconds of what is kept) and original time.

    `spans` are samples at 16 kHz, in order and disjoint, inside the `samples` of the recording;
    adjacent ones are merged. Sums are of integer samples, so times do not drift. Raises ValueError
    for other spans.
    """

    def __init__(self, spans: Sequence[Span], samples: int) -> None:
        self.samples = samples
        self.pieces = _merge_adjacent(spans, samples)
        lengths = [piece.end - piece.start for piece in self.pieces]
        self._offsets = list(
            accumulate(lengths, initial=0)
        )  # starts in the trimmed recording, and its end
        self._starts = [piece.start for piece in self.pieces]

    @classmethod
    def identity(cls, samples: int) -> Timeline:
        """The timeline of a recording that is kept whole."""
        return cls([Span(0, samples)] if samples else [], samples)

    @property
    def trimmed_samples(self) -> int:
        """Number of samples kept."""
        return self._offsets[-1]

    @property
    def duration(self) -> float:
        """Seconds kept."""
        return self.trimmed_samples / SAMPLE_RATE

    @property
    def is_identity(self) -> bool:
        """Whether everything is kept, so that both times are equal."""
        return self.trimmed_samples == self.samples

    def original_time(self, seconds: float, *, end: bool = False) -> float:
        """Trimmed `seconds` as time in the recording, never outside a span.

        At a joint, a start belongs to the span after it, an `end` to the span before it.
        """
        if not self.pieces:
            return 0.0
        position = _to_samples(seconds)
        find = bisect_left if end else bisect_right
        number = min(max(find(self._offsets, position) - 1, 0), len(self.pieces) - 1)
        piece = self.pieces[number]
        inside = piece.start + (position - self._offsets[number])
        return min(max(inside, piece.start), piece.end) / SAMPLE_RATE

    def trimmed_time(self, seconds: float) -> float:
        """`seconds` of the recording as trimmed time; a time in a gap maps to its joint."""
        position = _to_samples(seconds)
        number = bisect_right(self._starts, position) - 1
        if number < 0:
            return 0.0
        piece = self.pieces[number]
        return (self._offsets[number] + min(position, piece.end) - piece.start) / SAMPLE_RATE

    def cut_points(self, min_seconds: float) -> list[float]:
        """Joints, in trimmed seconds, where at least `min_seconds` were cut out."""
        joints = zip(self._offsets[1:], pairwise(self.pieces), strict=False)
        return [
            offset / SAMPLE_RATE
            for offset, (before, after) in joints
            if after.start - before.end >= min_seconds * SAMPLE_RATE
        ]

    def seconds(self) -> list[tuple[float, float]]:
        """(start, end) of each span in seconds of the recording."""
        return [(start / SAMPLE_RATE, end / SAMPLE_RATE) for start, end in self.pieces]

    def span_at(self, seconds: float) -> tuple[float, float]:
        """(start, end) in seconds of the span that contains `seconds` of the recording.

        In a gap: the span before it, if there is one. (0, 0) if nothing is kept.
        """
        if not self.pieces:
            return 0.0, 0.0
        number = max(bisect_right(self._starts, _to_samples(seconds)) - 1, 0)
        piece = self.pieces[number]
        return piece.start / SAMPLE_RATE, piece.end / SAMPLE_RATE


def _merge_adjacent(spans: Sequence[Span], samples: int) -> list[Span]:
    """Spans in order, adjacent ones merged and empty ones dropped."""
    pieces: list[Span] = []
    last = 0
    for start, end in spans:
        if not last <= start <= end <= samples:
            raise ValueError(f"a span from {start} to {end} of {samples} samples, after {last}")
        if pieces and pieces[-1].end == start:
            pieces[-1] = Span(pieces[-1].start, end)
        elif start < end:
            pieces.append(Span(start, end))
        last = end
    return pieces


def _to_samples(seconds: float) -> float:
    """Seconds in samples; a whole number where nothing but rounding keeps it from being one."""
    position = seconds * SAMPLE_RATE
    whole = round(position)
    return whole if abs(position - whole) < _SAMPLE_TOLERANCE else position


class AudioBlocks(Protocol):
    """A recording with a name for messages, such as audio.io.Source."""

    name: str

    def blocks(self, rate: int = SAMPLE_RATE) -> Iterator[Samples]: ...


class SpeechOnly:
    """The pieces of a recording one after another, read as often as wanted, holding one block."""

    def __init__(self, source: AudioBlocks, timeline: Timeline) -> None:
        self.name = source.name
        self._source = source
        self._pieces = timeline.pieces

    def blocks(self, rate: int = SAMPLE_RATE) -> Iterator[Samples]:
        """Mono float32 blocks [n], n > 0, at 16 kHz. Raises what the source raises."""
        if rate != SAMPLE_RATE:
            raise ValueError(f"spans count samples at {SAMPLE_RATE} Hz, not {rate}")
        if not self._pieces:
            return
        number = first = 0
        for block in self._source.blocks(rate):
            last = first + len(block)
            while self._pieces[number].start < last:
                piece = self._pieces[number]
                kept = block[max(piece.start - first, 0) : max(piece.end - first, 0)]
                if len(kept):
                    yield kept
                if piece.end > last:
                    break
                number += 1
                if number == len(self._pieces):
                    return
            first = last


class InMemory:
    """Samples float32 [n] at 16 kHz that are in memory, as a recording."""

    def __init__(self, name: str, samples: Samples) -> None:
        self.name = name
        self._samples = samples

    def blocks(self, rate: int = SAMPLE_RATE) -> Iterator[Samples]:
        """The samples as one block; ValueError for another rate."""
        if rate != SAMPLE_RATE:
            raise ValueError(f"samples are at {SAMPLE_RATE} Hz, not {rate}")
        if len(self._samples):
            yield self._samples
