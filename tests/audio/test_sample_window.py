"""Statistics of the parts of a recording are those of the whole."""

from __future__ import annotations

import numpy as np
import pytest

from oscine.audio.sample_window import LogMelStats


def stats_of(rows: np.ndarray) -> LogMelStats:
    deviation = rows.std(axis=0, ddof=1) if len(rows) > 1 else np.zeros(rows.shape[1])
    return LogMelStats(len(rows), np.stack([rows.max(axis=0), rows.mean(axis=0), deviation]))


@pytest.mark.parametrize("cuts", [[], [1], [20], [1, 2, 50]])
def test_parts_have_the_statistics_of_the_whole(cuts: list[int]) -> None:
    rows = np.random.default_rng(1).normal(-5, np.arange(1, 5), (70, 4))
    rows[:20] += 3
    found = LogMelStats.of([stats_of(part) for part in np.split(rows, cuts)])
    expected = stats_of(rows)
    assert found.frames == 70
    assert np.allclose(found.values, expected.values, rtol=1e-12)
    assert found.peak == rows.max()
    assert np.array_equal(found.as_row(), found.values.astype(np.float32).reshape(-1))


def test_silence_has_no_deviation() -> None:
    rows = np.full((9, 3), np.float64(np.float32(-16.635532)))
    found = LogMelStats.of([stats_of(rows[:1]), stats_of(rows)])
    assert found.frames == 10
    assert np.array_equal(found.as_row()[3:6], rows[0].astype(np.float32))
    assert found.as_row()[6:].max() < 1e-10
