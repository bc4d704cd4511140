"""Which windows are asked for the language, and how they vote."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oscine.engine.generators import run
from oscine.engine.sequence import EncoderInput
from oscine.models.whisper.language import detect_language, window_starts
from oscine.models.whisper.pipeline import Whisper


@pytest.fixture
def detected(scripted: Any) -> Any:
    """detected(probs, threshold): the result for these windows, and how many were encoded."""
    model: Whisper = scripted(languages=3)
    assert model._special_tokens is not None
    tokens = model._special_tokens

    def detect(heard: list[dict[str, float]], threshold: float | None) -> Any:
        asked = iter(heard)
        windows = [EncoderInput(np.zeros((2, 2), np.float32)) for _ in heard]
        steps = detect_language(windows, tokens, threshold)
        seen = []

        def submit(sequence: Any) -> None:
            seen.append(sequence.audio)
            shares = next(asked)
            sequence.finish([shares.get(code, 0.0) for code in tokens.languages])

        code, shares = run(submit, steps)
        assert seen == windows[: len(seen)]
        return code, {code: share for code, share in shares.items() if share}, len(seen)

    return detect


def test_a_sure_window_ends_the_vote(detected: Any) -> None:
    heard = [{"en": 0.4, "de": 0.3}, {"en": 0.1, "de": 0.8}, {"en": 0.9}]
    assert detected(heard, 0.5) == ("de", heard[1], 2)


@pytest.mark.parametrize("threshold", [0.5, None])
def test_unsure_windows_vote(threshold: float | None, detected: Any) -> None:
    heard = [{"en": 0.45, "de": 0.3}, {"en": 0.2, "de": 0.3}, {"en": 0.1, "de": 0.4}]
    assert detected(heard, threshold) == ("de", heard[2], 3)


def test_among_equals_the_surest_window_decides(detected: Any) -> None:
    heard = [{"en": 0.3, "de": 0.1}, {"en": 0.1, "de": 0.45}]
    assert detected(heard, 0.5) == ("de", heard[1], 2)


def test_without_a_threshold_all_are_asked(detected: Any) -> None:
    heard = [{"en": 0.9, "de": 0.1}, {"en": 0.1, "de": 0.6}, {"en": 0.1, "de": 0.6}]
    assert detected(heard, None)[::2] == ("de", 3)


def test_windows_to_ask() -> None:
    assert window_starts([(0, 9000)], 3000, 4) == [0, 3000, 6000]
    assert window_starts([(0, 9000)], 3000, 2) == [0, 3000]
    assert window_starts([(0, 4000)], 3000, 4) == [0]  # a short rest is not asked
    assert window_starts([(0, 5000)], 3000, 4) == [0, 3000]
    assert window_starts([(100, 300), (400, 500)], 3000, 4) == [100, 400]
    assert window_starts([(0, 0)], 3000, 4) == [0]
