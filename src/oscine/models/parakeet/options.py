"""Options of a transcription that Parakeet supports, and the syntax of hotwords."""

from __future__ import annotations

import math
import re

from oscine.errors import UsageError
from oscine.options import PARAKEET, SupportedOptions
from oscine.options.checks import as_float
from oscine.options.transcribe import TranscribeOptions

DEFAULT_WEIGHT = 1.0  # of a phrase: the logit bonus of its first token
MAX_HOTWORDS = 10_000
_WEIGHT_PATTERN = re.compile(
    r"(.*):\s*([-+]?[0-9.]+(?:e[-+]?[0-9]+)?)\s*", re.IGNORECASE | re.DOTALL
)


def parse_hotwords(text: str | None) -> tuple[tuple[str, float], ...]:
    """'word, other phrase:2.5' as (phrase, weight) pairs; the weight is 1 where there is none.

    Raises UsageError for a weight that is not a number, or for more than MAX_HOTWORDS phrases.
    """
    found = []
    for part in re.split(r"[,\n]", text or ""):
        phrase, weight = part.strip(), DEFAULT_WEIGHT
        if (match := _WEIGHT_PATTERN.fullmatch(phrase)) is not None:
            phrase, weight = match[1].strip(), as_float(match[2], strict=False)
        if not math.isfinite(weight):
            raise UsageError(f"hotwords: the weight of {phrase!r} must be a number")
        if phrase:
            found.append((phrase, weight))
    if len(found) > MAX_HOTWORDS:
        raise UsageError(f"hotwords: at most {MAX_HOTWORDS} phrases, not {len(found)}")
    return tuple(found)


def _check(options: TranscribeOptions) -> None:
    parse_hotwords(options.hotwords)


OPTIONS = SupportedOptions(
    TranscribeOptions,
    PARAKEET,
    refusals={
        "task": "Parakeet cannot {value}, only transcribe; use a multilingual Whisper",
        "initial_prompt": ("Parakeet does not support initial_prompt; use hotwords instead"),
        "without_timestamps": (
            "Parakeet does not support without_timestamps; for text only, write txt"
        ),
    },
    check=_check,
)
