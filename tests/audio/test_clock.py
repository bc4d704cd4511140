"""How much of a recording waits for the clock; what the clock makes of it is in test_times."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from oscine.audio.clock import MAX_PENDING_FRAMES, SETTLE_S, Clock, TimedFrame

COUNT = 10_000


@pytest.mark.parametrize("samples", [0, 1, 960])
def test_frames_of_one_sample_do_not_wait_for_half_a_second(samples: int) -> None:
    """Of a clock that jumps: what is held is looked at again with each frame that comes."""
    taken = 0

    def frames() -> Iterator[Any]:
        nonlocal taken
        for _ in range(COUNT):
            taken += 1
            yield TimedFrame(SimpleNamespace(samples=samples, sample_rate=192_000), 100.0)  # type: ignore[arg-type]

    placed = Clock().align(frames(), 0.0)
    next(placed)
    most = MAX_PENDING_FRAMES if samples < 2 else SETTLE_S * 192_000 / samples
    assert taken <= most + 1
    assert sum(1 for _ in placed) == COUNT - 1
