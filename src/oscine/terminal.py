"""Removes or escapes characters that control a terminal, or are invisible, in messages and results.

Escape sequences begin with ESC or a C1 control and can set a window's title, move the cursor or
overwrite text (CWE-150). Bidirectional controls can make a line read differently from its contents
(CVE-2021-42574). Both may occur in file names, server responses and a model's vocabulary.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TextIO

# C0, DEL and C1; marks and overrides of direction; separators of lines and paragraphs; invisible
# operators, annotations and tags. Joiners and the zero-width space stay: scripts are written with.
_UNSAFE_CHARACTERS = (
    "\x00-\x1f\x7f-\x9f\u061c\u180e\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"
)
_UNSAFE_IN_MESSAGES = re.compile(f"[{_UNSAFE_CHARACTERS}\u00ad\ud800-\udfff]")
_UNSAFE_IN_STREAMS = re.compile(f"(?!\n)[{_UNSAFE_CHARACTERS}]")
_UNSAFE_IN_RESULTS = re.compile(rf"(?![\t\n\v\f\r\x1c-\x1e\x85\u2028\u2029])[{_UNSAFE_CHARACTERS}]")


def _escape_match(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")


def printable(message: str) -> str:
    """A message as one line, with Python's escapes for control characters and line breaks.

    Lone surrogates, by which Python represents undecodable bytes of file names, are escaped too.
    """
    return _UNSAFE_IN_MESSAGES.sub(_escape_match, message)


def escape(line: str, replace: Callable[[str], str]) -> str:
    """Replace every character that is unsafe in a message by `replace(character)`."""
    return _UNSAFE_IN_MESSAGES.sub(lambda match: replace(match[0]), line)


def strip_controls(text: str) -> str:
    """Text of a result without control characters; tabs and line breaks are kept."""
    return _UNSAFE_IN_RESULTS.sub("", text)


class SanitizedStream:
    """A text stream that escapes all control characters except line breaks.

    `raw` is the underlying stream, for output that controls the terminal, such as a progress bar.
    """

    def __init__(self, raw: TextIO) -> None:
        self.raw = raw

    def write(self, text: str) -> int:
        """Write escaped text; returns the length of `text`."""
        self.raw.write(_UNSAFE_IN_STREAMS.sub(_escape_match, text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        """Write each line, escaped."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)
