"""Which windows are asked for the language, and how they vote."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from oscine.models.whisper.language import vote, window_starts


def test_a_sure_window_ends_the_vote() -> None:
    def heard() -> Iterator[dict[str, float]]:
        yield {"en": 0.4, "de": 0.3}
        yield {"en": 0.1, "de": 0.8}
        raise AssertionError("nobody should ask on")

    assert vote(heard(), 0.5) == ("de", {"en": 0.1, "de": 0.8})


@pytest.mark.parametrize("threshold", [0.5, None])
def test_unsure_windows_vote(threshold: float | None) -> None:
    heard = [{"en": 0.45, "de": 0.3}, {"en": 0.2, "de": 0.3}, {"en": 0.1, "de": 0.4}]
    assert vote(heard, threshold) == ("de", heard[2])


def test_among_equals_the_surest_window_decides() -> None:
    heard = [{"en": 0.3, "de": 0.1}, {"en": 0.1, "de": 0.45}]
    assert vote(heard, 0.5) == ("de", heard[1])


def test_without_a_threshold_all_are_asked() -> None:
    heard = [{"en": 0.9, "de": 0.1}, {"en": 0.1, "de": 0.6}, {"en": 0.1, "de": 0.6}]
    assert vote(heard, None)[0] == "de"


def test_windows_to_ask() -> None:
    assert window_starts([(0, 9000)], 3000, 4) == [0, 3000, 6000]
    assert window_starts([(0, 9000)], 3000, 2) == [0, 3000]
    assert window_starts([(0, 4000)], 3000, 4) == [0]  # a short rest is not asked
    assert window_starts([(0, 5000)], 3000, 4) == [0, 3000]
    assert window_starts([(100, 300), (400, 500)], 3000, 4) == [100, 400]
    assert window_starts([(0, 0)], 3000, 4) == [0]
