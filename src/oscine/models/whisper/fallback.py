"""Judging a decoded window: good enough, to be tried again warmer, or silence.

Source: whisper/transcribe.py (decode_with_fallback, should_skip) and MaximumLikelihoodRanker in
whisper/decoding.py.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from oscine.models.whisper.decode import Decoded
from oscine.models.whisper.options import TranscribeOptions


@dataclass(frozen=True, slots=True)
class Outcome:
    """One attempt at a window."""

    tokens: tuple[int, ...]
    temperature: float
    avg_logprob: float
    no_speech_prob: float
    compression_ratio: float
    stop: str


def compression_ratio(text: str) -> float:
    """UTF-8 bytes over their zlib size: high where text repeats itself."""
    data = text.encode()
    return len(data) / len(zlib.compress(data))


def best(rows: Sequence[Decoded]) -> Decoded:
    """The row of highest log-probability a token, end-of-text not counted in the length."""
    return max(rows, key=lambda row: row.sum_logprob / max(1, len(row.tokens)))


def is_poor(outcome: Outcome, options: TranscribeOptions) -> bool:
    """Whether to try again at the next temperature."""
    unlikely = _is_unlikely(outcome, options)
    ratio = options.compression_ratio_threshold
    repetitive = ratio is not None and (
        outcome.compression_ratio > ratio or outcome.stop == "repeat"
    )
    silent = unlikely and _may_be_silence(outcome, options)
    return (repetitive or unlikely) and not silent


def is_silence(outcome: Outcome, options: TranscribeOptions) -> bool:
    """Whether to drop the window: no speech is likely, and the text is not convincing."""
    threshold = options.logprob_threshold
    convincing = threshold is not None and outcome.avg_logprob > threshold
    return _may_be_silence(outcome, options) and not convincing


def _is_unlikely(outcome: Outcome, options: TranscribeOptions) -> bool:
    threshold = options.logprob_threshold
    return threshold is not None and outcome.avg_logprob < threshold


def _may_be_silence(outcome: Outcome, options: TranscribeOptions) -> bool:
    threshold = options.no_speech_threshold
    return threshold is not None and outcome.no_speech_prob > threshold
