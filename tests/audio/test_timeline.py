"""Times there and back: exact in samples, on the right side of every joint, however long."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oscine.audio.timeline import InMemory, SpeechOnly, Timeline
from oscine.audio.vad import Span


@st.composite
def span_lists(draw) -> tuple[list[Span], int]:
    steps = draw(st.lists(st.integers(0, 5000), min_size=2, max_size=24))
    edges = np.cumsum(steps).tolist()
    spans = [Span(*edges[i : i + 2]) for i in range(0, len(edges) - 1, 2)]
    return spans, edges[-1] + draw(st.integers(0, 3000))


def kept_samples(spans: list[Span], samples: int) -> np.ndarray:
    """The numbers of the samples that are kept: what a time line says in other words."""
    parts = [np.arange(start, end) for start, end in spans]
    return np.concatenate([*parts, np.arange(0)])


@given(span_lists())
@settings(max_examples=150, deadline=None)
def test_every_kept_sample_has_its_place(case):
    spans, samples = case
    line, kept = Timeline(spans, samples), kept_samples(*case)
    assert line.trimmed_samples == len(kept)
    assert line.duration == len(kept) / 16_000
    for place in {0, 1, len(kept) // 2, len(kept) - 1} & set(range(len(kept))):
        original = int(kept[place])
        assert line.original_time(place / 16_000) == original / 16_000
        assert line.trimmed_time(original / 16_000) == place / 16_000
        # A sample ends where the next begins, on its own side of a joint.
        assert line.original_time((place + 1) / 16_000, end=True) == (original + 1) / 16_000
        low, high = line.span_at(original / 16_000)
        assert low <= original / 16_000 < high
    assert line.is_identity == (len(kept) == samples)


@given(span_lists(), st.lists(st.floats(-0.5, 8), min_size=2, max_size=8), st.booleans())
@settings(max_examples=150, deadline=None)
def test_order_is_kept_and_times_lie_inside_pieces(case, times, end):
    line = Timeline(*case)
    times = sorted(times)
    there = [line.original_time(time, end=end) for time in times]
    back = [line.trimmed_time(time) for time in times]
    assert there == sorted(there)
    assert back == sorted(back)
    assert all(0 <= time <= line.duration for time in back)
    for time in there:
        if line.pieces:
            assert any(s / 16_000 <= time <= e / 16_000 for s, e in line.pieces)
        assert 0 <= time <= case[1] / 16_000
    for condensed in times:
        inside = min(max(condensed, 0.0), line.duration)
        back_again = line.trimmed_time(line.original_time(condensed, end=end))
        assert back_again == pytest.approx(inside, abs=1e-7)  # a thousandth of a sample is 6e-8 s


@given(span_lists())
@settings(max_examples=60, deadline=None)
def test_a_joint_has_two_sides(case):
    line = Timeline(*case)
    place = 0
    for before, after in zip(line.pieces, line.pieces[1:], strict=False):
        place += before.end - before.start
        joint = place / 16_000
        assert line.original_time(joint, end=True) == before.end / 16_000
        assert line.original_time(joint) == after.start / 16_000
        gap = (before.end + after.start) / 2 / 16_000
        assert line.trimmed_time(gap) == joint
        assert line.span_at(gap) == (before.start / 16_000, before.end / 16_000)


def test_no_drift_after_ten_thousand_gaps():
    spans = [Span(number * 16_001, number * 16_001 + 5333) for number in range(10_000)]
    line = Timeline(spans, 10_000 * 16_001)
    assert line.original_time(9_999 * 5333 / 16_000) == 9_999 * 16_001 / 16_000
    # Times as a caller adds them up, frame by frame.
    joint = sum([5333 / 16_000] * 5000)
    assert line.original_time(joint) == 5000 * 16_001 / 16_000
    assert line.original_time(joint, end=True) == (4999 * 16_001 + 5333) / 16_000


def test_all_or_nothing():
    whole = Timeline.identity(16_000)
    assert whole.is_identity
    assert whole.original_time(0.7) == whole.trimmed_time(0.7) == 0.7
    assert whole.original_time(2.0, end=True) == 1.0
    nothing = Timeline([], 16_000)
    assert not nothing.is_identity
    assert (nothing.original_time(0.5), nothing.trimmed_time(0.5), nothing.duration) == (
        0.0,
        0.0,
        0.0,
    )
    assert nothing.span_at(0.5) == (0.0, 0.0)
    assert Timeline.identity(0).is_identity


def test_spans_that_touch_are_one_piece():
    line = Timeline([Span(0, 100), Span(100, 100), Span(100, 300), Span(400, 500)], 500)
    assert line.pieces == [(0, 300), (400, 500)]


@pytest.mark.parametrize(
    "spans", [[Span(5, 2)], [Span(0, 11)], [Span(0, 5), Span(4, 8)], [Span(-1, 3)]]
)
def test_spans_that_are_none(spans):
    with pytest.raises(ValueError, match="a span from"):
        Timeline(spans, 10)


class Counted:
    """Samples that are their own numbers, in blocks of a size, and how far they were read."""

    name = "counted"

    def __init__(self, samples: int, size: int) -> None:
        self.samples, self.size, self.read = samples, size, 0

    def blocks(self, rate: int = 16_000) -> Iterator[np.ndarray]:
        assert rate == 16_000
        for start in range(0, self.samples, self.size):
            self.read = min(start + self.size, self.samples)
            yield np.arange(start, self.read, dtype=np.float32)


@given(span_lists(), st.integers(1, 7000))
@settings(max_examples=100, deadline=None)
def test_condensed_recordings(case, size):
    spans, samples = case
    size = max(size, samples // 200)
    source = Counted(samples, size)
    condensed = SpeechOnly(source, Timeline(spans, samples))
    assert condensed.name == "counted"
    for _ in range(2):
        blocks = list(condensed.blocks())
        assert all(0 < len(block) <= size for block in blocks)
        found = np.concatenate([*blocks, np.arange(0)])
        assert np.array_equal(found, kept_samples(spans, samples))
    assert source.read < max([end for _, end in spans] or [0]) + size + 1


def test_spans_know_one_rate():
    line = Timeline([Span(0, 10)], 20)
    for recording in (SpeechOnly(Counted(20, 5), line), InMemory("held", np.zeros(10, np.float32))):
        with pytest.raises(ValueError, match="8000"):
            list(recording.blocks(8000))
