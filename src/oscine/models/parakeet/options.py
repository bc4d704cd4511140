"""Options of a transcription as Parakeet takes them."""

from __future__ import annotations

import math
import re

from oscine.errors import UsageError
from oscine.options import PARAKEET, SupportedOptions
from oscine.options.checks import as_float
from oscine.options.transcribe import TranscribeOptions

DEFAULT_WEIGHT = 1.0  # of a phrase: what its first label earns, in logits
MAX_HOTWORDS = 10_000
_WITH_WEIGHT = re.compile(r"(.*):\s*([-+]?[0-9.]+(?:e[-+]?[0-9]+)?)\s*", re.IGNORECASE | re.DOTALL)


def parse_hotwords(text: str | None) -> tuple[tuple[str, float], ...]:
    """'word, other phrase:2.5' as phrases with weights; 1 where there is none. None: no phrases.

    Raises UsageError for a weight that is none, more than MAX_HOTWORDS, or nothing at all.
    """
    found = []
    for part in re.split(r"[,\n]", text or ""):
        phrase, weight = part.strip(), DEFAULT_WEIGHT
        if (match := _WITH_WEIGHT.fullmatch(phrase)) is not None:
            phrase, weight = match[1].strip(), as_float(match[2], strict=False)
        if not math.isfinite(weight):
            raise UsageError(f"hotwords: the weight of {phrase!r} must be a number")
        if phrase:
            found.append((phrase, weight))
    if len(found) > MAX_HOTWORDS:
        raise UsageError(f"hotwords: {len(found)} phrases are more than {MAX_HOTWORDS}")
    return tuple(found)


def _check(options: TranscribeOptions) -> None:
    parse_hotwords(options.hotwords)


OPTIONS = SupportedOptions(
    TranscribeOptions,
    PARAKEET,
    refusals={
        "task": "Parakeet cannot {value}: it writes down what is said; use a multilingual Whisper",
        "initial_prompt": (
            "Parakeet knows no initial_prompt; words that may come up can be hotwords"
        ),
        "without_timestamps": (
            "Parakeet cannot go without_timestamps: they are how it finds words; write txt"
        ),
    },
    check=_check,
)
