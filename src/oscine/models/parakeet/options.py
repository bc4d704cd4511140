"""What Parakeet may be asked to do. An option is never ignored: it works, or is refused by name.

Every option of Whisper is known here too, since a command passes the same ones to every model. What
Parakeet cannot do is refused unless it has its default, or asks for what Parakeet does anyway.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any

from oscine.errors import UsageError
from oscine.models.whisper.checks import Check
from oscine.models.whisper.options import TranscribeOptions

#: Options of Whisper that Parakeet has too, besides all that begins with vad_.
SHARED = frozenset(
    "language hotwords word_timestamps clip_timestamps batch_size split_channels "
    "max_audio_seconds".split()
)
#: Values of others that say what is the case anyway, besides their defaults.
SAME: Mapping[str, tuple[object, ...]] = MappingProxyType(
    {
        "temperature": ((0.0,),),
        "beam_size": (1,),
        "best_of": (1,),
        "condition_on_previous_text": (False,),
    }
)
WEIGHT = 1.0  # of a phrase: what its first label earns, in logits
MOST_PHRASES = 10_000
_WEIGHTED = re.compile(r"(.*):\s*([-+]?[0-9.]+(?:e[-+]?[0-9]+)?)\s*", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Segmenting:
    """Where segments end besides the ends of sentences; make them with `of`."""

    max_words: int | None = None  # of a segment
    silence_gap: float = 2.0  # seconds between two words that part segments
    max_duration: float = 30.0  # seconds of a segment; one word may be longer

    @classmethod
    def of(cls, **options: Any) -> Segmenting:
        """Check and normalise; None is the default. UsageError names the option."""
        given = {name: value for name, value in options.items() if value is not None}
        return cls(**{name: _SEGMENTING[name](name, value) for name, value in given.items()})


def _words(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UsageError(f"{name} must be a whole number from 1, not {value!r}")
    return value


def _seconds(name: str, value: Any) -> float:
    """Seconds above 0; infinity for never."""
    number = math.nan if isinstance(value, bool | str) else _float(value)
    if not number > 0:
        raise UsageError(f"{name} must be seconds above 0, not {value!r}")
    return number


def _float(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


_SEGMENTING: Mapping[str, Check] = MappingProxyType(
    {"max_words": _words, "silence_gap": _seconds, "max_duration": _seconds}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParakeetOptions:
    """Checked and normalised options; make them with `of`."""

    shared: TranscribeOptions  # of which only those in SHARED and vad_* differ from their default
    segmenting: Segmenting
    phrases: tuple[tuple[str, float], ...] = ()  # to listen for, and what they earn

    @classmethod
    def of(cls, **options: Any) -> ParakeetOptions:
        """Check and normalise; UsageError names the option that cannot be carried out."""
        own = {name: options.pop(name) for name in _SEGMENTING if name in options}
        shared = TranscribeOptions.of(**options)
        for field in fields(shared):
            value = getattr(shared, field.name)
            if field.name in SHARED or field.name.startswith("vad_") or value == field.default:
                continue
            if value not in SAME.get(field.name, ()):
                raise UsageError(refusal(field.name, value))
        phrases = () if shared.hotwords is None else weighted_phrases(shared.hotwords)
        return cls(shared=shared, segmenting=Segmenting.of(**own), phrases=phrases)


def refusal(name: str, value: object) -> str:
    """Why an option does not go with this model."""
    if name == "task":
        return f"Parakeet cannot {value}: it writes down what is said; use a multilingual Whisper"
    if name == "initial_prompt":
        return "Parakeet knows no initial_prompt; words that may come up can be hotwords"
    if name == "without_timestamps":
        return "Parakeet cannot go without_timestamps: they are how it finds words; write txt"
    return f"Parakeet knows no {name}: leave it out, or use a Whisper model"


def weighted_phrases(text: str) -> tuple[tuple[str, float], ...]:
    """'word, other phrase:2.5' as phrases with weights; 1 where there is none.

    Raises UsageError for a weight that is none, more than MOST_PHRASES, or nothing at all.
    """
    found = []
    for part in re.split(r"[,\n]", text):
        phrase, weight = part.strip(), WEIGHT
        if (match := _WEIGHTED.fullmatch(phrase)) is not None:
            phrase, weight = match[1].strip(), _float(match[2])
        if not math.isfinite(weight):
            raise UsageError(f"hotwords: the weight of {phrase!r} must be a number")
        if phrase:
            found.append((phrase, weight))
    if len(found) > MOST_PHRASES:
        raise UsageError(f"hotwords: {len(found)} phrases are more than {MOST_PHRASES}")
    return tuple(found)
