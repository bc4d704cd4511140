"""Splits a text at known strings, preferring the longest at each position.

A regular expression of all of them would take time and memory that grow with a vocabulary's size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator


class LongestMatch:
    """A set of strings to split texts by."""

    def __init__(self, tokens: Iterable[str]) -> None:
        self._tokens = frozenset(name for name in tokens if name)
        self._first_characters = frozenset(name[0] for name in self._tokens)
        self._lengths = sorted({len(name) for name in self._tokens}, reverse=True)

    def split(self, text: str) -> Iterator[tuple[str, bool]]:
        """Yield consecutive parts of `text`, and whether each is one of the strings."""
        start = at = 0
        while at < len(text):
            found = self._match_at(text, at)
            if not found:
                at += 1
                continue
            if start < at:
                yield text[start:at], False
            yield found, True
            start = at = at + len(found)
        if start < len(text):
            yield text[start:], False

    def _match_at(self, text: str, at: int) -> str:
        if text[at] not in self._first_characters:
            return ""
        candidates = (text[at : at + length] for length in self._lengths)
        return next((part for part in candidates if part in self._tokens), "")
