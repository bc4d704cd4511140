"""Characters that command a terminal or hide in a line, kept out of messages and results.

Escape sequences begin with ESC or a C1 control and can set a window's title, move the cursor or
write over what stands there (CWE-150). Bidirectional controls make a line read as what it is not
(CVE-2021-42574). Both may stand in file names, in answers of servers and in a model's vocabulary.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TextIO

# C0, DEL and C1; marks and overrides of direction; separators of lines and paragraphs; invisible
# operators, annotations and tags. Joiners and the zero-width space stay: scripts are written with.
_HIDDEN = (
    "\x00-\x1f\x7f-\x9f\u061c\u180e\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"
)
_IN_MESSAGES = re.compile(f"[{_HIDDEN}\u00ad\ud800-\udfff]")
_IN_STREAMS = re.compile(f"(?!\n)[{_HIDDEN}]")
_IN_RESULTS = re.compile(rf"(?![\t\n\v\f\r\x1c-\x1e\x85\u2028\u2029])[{_HIDDEN}]")


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")


def printable(message: str) -> str:
    """A message as one line, with escapes as Python writes them for what no line may hold.

    Those are controls, line breaks, and the halves of surrogates by which Python spells the bytes
    of a file name that are no text.
    """
    return _IN_MESSAGES.sub(_escaped, message)


def escape(line: str, replace: Callable[[str], str]) -> str:
    """Replace every character that is unsafe in a message by `replace(character)`."""
    return _IN_MESSAGES.sub(lambda match: replace(match[0]), line)


def strip_controls(text: str) -> str:
    """Text of a result without what commands a terminal; tabs and line breaks stay."""
    return _IN_RESULTS.sub("", text)


class SanitizedStream:
    """A text stream whose writers, whoever they are, cannot command the terminal behind it.

    Line breaks pass, and every other control is written as an escape. `raw` is the stream itself,
    for what commands the terminal on purpose, such as a progress bar.
    """

    def __init__(self, raw: TextIO) -> None:
        self.raw = raw

    def write(self, text: str) -> int:
        """Write all of it; -> its length."""
        self.raw.write(_IN_STREAMS.sub(_escaped, text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        """Write each."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)
