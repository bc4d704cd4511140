"""Names in a text, at each place the longest one: what a pattern of all of them would find.

A pattern takes time and memory to compile that grow with a vocabulary's size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator


class LongestMatch:
    """A set of names to split texts by."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset(name for name in names if name)
        self._first = frozenset(name[0] for name in self._names)
        self._lengths = sorted({len(name) for name in self._names}, reverse=True)

    def split(self, text: str) -> Iterator[tuple[str, bool]]:
        """Consecutive parts of `text`, and whether each is a name or what is between names."""
        start = at = 0
        while at < len(text):
            found = self._at(text, at)
            if not found:
                at += 1
                continue
            if start < at:
                yield text[start:at], False
            yield found, True
            start = at = at + len(found)
        if start < len(text):
            yield text[start:], False

    def _at(self, text: str, at: int) -> str:
        if text[at] not in self._first:
            return ""
        candidates = (text[at : at + length] for length in self._lengths)
        return next((part for part in candidates if part in self._names), "")
