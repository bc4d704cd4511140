"""Marks of pauses in a text that is spoken: `[pause 500ms]`, `[pause 1.5s]`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from oscine.errors import UsageError

#: Seconds of one mark at most: more is a mistake of the unit.
MOST_PAUSE = 60.0
_LONGEST = 40  # characters of a mark that comes in parts; more are no mark
MARK = re.compile(r"\[pause[ \t]{1,8}(\d{1,8}(?:\.\d{1,8})?)[ \t]{0,8}(ms|s)\]", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Pause:
    """Silence that the text asks for."""

    seconds: float


def mark(seconds: float) -> str:
    """The mark of a pause."""
    return f"[pause {round(1000 * seconds)}ms]"


def split_pauses(parts: Iterable[str]) -> Iterator[str | Pause]:
    """The text between marks, and the pauses, in order; a mark may come in several parts.

    Raises UsageError for a pause longer than MOST_PAUSE.
    """
    held = ""
    for part in parts:
        text, at = held + part, 0
        for found in MARK.finditer(text):
            if found.start() > at:
                yield text[at : found.start()]
            yield Pause(_seconds(found))
            at = found.end()
        begun = text.rfind("[", max(at, len(text) - _LONGEST))
        if begun < 0 or "]" in text[begun:]:
            begun = len(text)
        if begun > at:
            yield text[at:begun]
        held = text[begun:]
    if held:
        yield held


def _seconds(found: re.Match[str]) -> float:
    seconds = float(found[1]) / (1000 if found[2].lower() == "ms" else 1)
    if seconds > MOST_PAUSE:
        raise UsageError(f"{found[0]}: a pause is {MOST_PAUSE:g} s at most; put several in a row")
    return seconds
