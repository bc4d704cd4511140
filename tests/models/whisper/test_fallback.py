"""When a window is tried again, dropped or kept: the table of thresholds, case by case."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oscine.models.whisper.fallback import (
    DecodingResult,
    best_hypothesis,
    is_silence,
    needs_fallback,
)
from oscine.models.whisper.sequences import Hypothesis
from oscine.options.transcribe import FallbackThresholds
from oscine.text.compression import compression_ratio

GOOD = DecodingResult((1,), 0.0, -0.3, 0.1, 1.5, "end")


@pytest.mark.parametrize(
    ("change", "options", "poor", "silence"),
    [
        ({}, {}, False, False),
        ({"compression_ratio": 2.5}, {}, True, False),
        ({"compression_ratio": 2.4}, {}, False, False),
        ({"compression_ratio": 9.0}, {"compression_ratio_threshold": None}, False, False),
        ({"finish_reason": "repeat"}, {}, True, False),
        ({"finish_reason": "repeat"}, {"compression_ratio_threshold": None}, False, False),
        ({"avg_logprob": -1.1}, {}, True, False),
        ({"avg_logprob": -1.1}, {"logprob_threshold": None}, False, False),
        ({"avg_logprob": -1.1, "no_speech_prob": 0.7}, {}, False, True),
        ({"avg_logprob": -1.1, "no_speech_prob": 0.7, "compression_ratio": 3}, {}, False, True),
        ({"avg_logprob": -1.1, "no_speech_prob": 0.7}, {"no_speech_threshold": None}, True, False),
        ({"no_speech_prob": 0.7}, {}, False, False),
        ({"no_speech_prob": 0.7, "compression_ratio": 3}, {}, True, False),
        ({"no_speech_prob": 0.7}, {"logprob_threshold": None}, False, True),
    ],
)
def test_thresholds(
    change: dict[str, object], options: dict[str, object], poor: bool, silence: bool
) -> None:
    result = replace(GOOD, **change)  # type: ignore[arg-type]
    chosen = FallbackThresholds(**options)
    assert (needs_fallback(result, chosen), is_silence(result, chosen)) == (poor, silence)


def test_best_row_by_logprob_a_token() -> None:
    rows = [
        Hypothesis((1,), -2.0, 0.1, "end"),
        Hypothesis((1, 2, 3), -3.0, 0.1, "end"),
        Hypothesis((), -1.5, 0.1, "end"),
    ]
    assert best_hypothesis(rows) is rows[1]


def test_compression_ratio_of_repetition() -> None:
    assert compression_ratio("") < 1
    assert compression_ratio("and so my fellow americans") < 2.4 < compression_ratio("la " * 60)
