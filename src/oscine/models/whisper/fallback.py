"""Judging a decoded window: good enough, to be tried again warmer, or silence.

Source: whisper/transcribe.py (decode_with_fallback, should_skip) and MaximumLikelihoodRanker in
whisper/decoding.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from oscine.models.whisper.request import Decoded
from oscine.options.transcribe import FallbackThresholds


@dataclass(frozen=True, slots=True)
class Outcome:
    """One attempt at a window."""

    tokens: tuple[int, ...]
    temperature: float
    avg_logprob: float
    no_speech_prob: float
    compression_ratio: float
    stop: str


def best(rows: Sequence[Decoded], length_penalty: float | None = None) -> Decoded:
    """The row of highest log-probability for its length, in which end-of-text is not counted.

    A token's mean; with a penalty α of 0 to 1, divided by ((5 + length) / 6)^α (Google NMT).
    """

    def score(row: Decoded) -> float:
        length = len(row.tokens)
        if length_penalty is None:
            return row.sum_logprob / max(1, length)
        return float(row.sum_logprob / ((5 + length) / 6) ** length_penalty)

    return max(rows, key=score)


def least_poor(outcomes: Sequence[Outcome], thresholds: FallbackThresholds) -> Outcome:
    """Of attempts that are all poor: the likeliest of those that do not repeat themselves, if any.

    Source: faster_whisper/transcribe.py, generate_with_fallback.
    """
    sound = [outcome for outcome in outcomes if not is_repetitive(outcome, thresholds)]
    return max(sound or outcomes, key=lambda outcome: outcome.avg_logprob)


def is_poor(outcome: Outcome, thresholds: FallbackThresholds) -> bool:
    """Whether to try again at the next temperature."""
    unlikely = _is_unlikely(outcome, thresholds)
    silent = unlikely and _may_be_silence(outcome, thresholds)
    return (is_repetitive(outcome, thresholds) or unlikely) and not silent


def is_repetitive(outcome: Outcome, thresholds: FallbackThresholds) -> bool:
    """Whether the text says the same again and again."""
    ratio = thresholds.compression_ratio_threshold
    return ratio is not None and (outcome.compression_ratio > ratio or outcome.stop == "repeat")


def is_silence(outcome: Outcome, thresholds: FallbackThresholds) -> bool:
    """Whether to drop the window: no speech is likely, and the text is not convincing."""
    threshold = thresholds.logprob_threshold
    convincing = threshold is not None and outcome.avg_logprob > threshold
    return _may_be_silence(outcome, thresholds) and not convincing


def _is_unlikely(outcome: Outcome, thresholds: FallbackThresholds) -> bool:
    threshold = thresholds.logprob_threshold
    return threshold is not None and outcome.avg_logprob < threshold


def _may_be_silence(outcome: Outcome, thresholds: FallbackThresholds) -> bool:
    threshold = thresholds.no_speech_threshold
    return threshold is not None and outcome.no_speech_prob > threshold
