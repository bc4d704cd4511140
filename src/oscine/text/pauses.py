"""Marks of pauses in a text to speak: `[pause 500ms]`, `[pause 1.5s]`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from oscine.errors import UsageError

#: The longest pause of one mark; a longer one is probably a mistake of the unit.
MAX_PAUSE_S = 60.0
_MAX_MARK_CHARACTERS = 40  # of a mark that arrives in parts
PAUSE_MARK_PATTERN = re.compile(
    r"\[pause[ \t]{1,8}(\d{1,8}(?:\.\d{1,8})?)[ \t]{0,8}(ms|s)\]", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Pause:
    """Silence that a mark in the text requests."""

    seconds: float


def pause_mark(seconds: float) -> str:
    """The mark of a pause."""
    return f"[pause {round(1000 * seconds)}ms]"


def split_pauses(parts: Iterable[str]) -> Iterator[str | Pause]:
    """Yield the text between marks, and the pauses, in order; a mark may arrive in several parts.

    Raises UsageError for a pause longer than MAX_PAUSE_S.
    """
    held = ""
    for part in parts:
        text, at = held + part, 0
        for found in PAUSE_MARK_PATTERN.finditer(text):
            if found.start() > at:
                yield text[at : found.start()]
            yield Pause(_pause_seconds(found))
            at = found.end()
        begun = text.rfind("[", max(at, len(text) - _MAX_MARK_CHARACTERS))
        if begun < 0 or "]" in text[begun:]:
            begun = len(text)
        if begun > at:
            yield text[at:begun]
        held = text[begun:]
    if held:
        yield held


def _pause_seconds(found: re.Match[str]) -> float:
    seconds = float(found[1]) / (1000 if found[2].lower() == "ms" else 1)
    if seconds > MAX_PAUSE_S:
        raise UsageError(f"{found[0]}: a pause is {MAX_PAUSE_S:g} s at most; put several in a row")
    return seconds
