"""Markdown cut into blocks that can be read one after the other, as the text comes.

A block ends at an empty line, unless what follows is indented (an entry of a list may go on) or
the line is within code, a comment or a script, none of which is spoken and so none is kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from io import IncrementalNewlineDecoder
from itertools import chain

#: A block is read in parts where it is longer, or has more brackets, which are slow to read.
_MOST, _MOST_BRACKETS = 100_000, 1000
_MOST_FRONT = 1000  # lines of front matter
_FENCE = re.compile(r"[ \t>]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)*(?P<mark>`{3,}|~{3,})(?P<info>[^\n]*)")
_FRONT = re.compile(r"[\w\"'-][^:=\n]{0,100}[:=]|#")
#: What is left out up to its end, with empty lines: how its line begins, and the end.
_HIDDEN = (("<!--", "-->"), ("<script", "</script>"), ("<style", "</style>"))


def blocks(parts: Iterable[str]) -> Iterator[str]:
    """The blocks of a text that comes in parts; how it is cut up on its way changes nothing."""
    held: list[str] = []
    size = brackets = 0
    blank = False
    for line in _visible(_without_front(_lines(parts))):
        ends = blank and not line[:1].isspace()
        if held and (ends or size > _MOST or brackets > _MOST_BRACKETS):
            yield "".join(held)
            held, size, brackets = [], 0, 0
        blank = bool(line) and not line.strip()
        held.append(line)
        size, brackets = size + len(line), brackets + line.count("[")
    if held:
        yield "".join(held)


def _lines(parts: Iterable[str]) -> Iterator[str]:
    """Lines with their ends, as \n; one that no block holds comes in several.

    After an empty line, "" tells that a line has begun that is not indented.
    """
    ends = IncrementalNewlineDecoder(None, translate=True)
    held: list[str] = []
    blank = False
    for part in chain((ends.decode(part) for part in parts), (ends.decode("", final=True),)):
        *whole, rest = part.split("\n")
        for end in whole:
            line = "".join([*held, end])
            yield from _bounded(line + "\n")
            held, blank = [], not line.strip()
        if rest:
            held.append(rest)
            if blank and not rest[0].isspace():
                yield ""
            blank = False
    yield from _bounded("".join(held))


def _bounded(line: str) -> Iterator[str]:
    """The line, cut after a sentence or else anywhere where it is too much for a block."""
    at = 0
    while at < len(line):
        piece = line[at : at + _MOST]
        if piece.count("[") > _MOST_BRACKETS:
            piece = "[".join(piece.split("[", _MOST_BRACKETS)[:_MOST_BRACKETS])
        if at + len(piece) < len(line):
            piece = piece[: piece.rfind(". ") + 2 if ". " in piece else None]
        at += len(piece)
        yield piece if at == len(line) else piece + "\n"


def _without_front(lines: Iterator[str]) -> Iterator[str]:
    """Without front matter: what is between two lines of --- or +++ at the very beginning."""
    first = next(lines, "")
    mark = first.rstrip()
    if mark not in ("---", "+++"):
        yield first
        yield from lines
        return
    kept = [first]
    for line in lines:
        kept.append(line)
        if line.rstrip() == mark or (mark == "---" and line.rstrip() == "..."):
            break
        if len(kept) > _MOST_FRONT or (len(kept) == 2 and not _FRONT.match(line)):
            yield from kept
            break
    else:
        yield from kept
    yield from lines


def _visible(lines: Iterator[str]) -> Iterator[str]:
    """Without what is in code between fences, in comments and scripts that have lines of their own.

    Of code the fences stay: that it was there is known.
    """
    end = fence = ""
    nested = quoted = False  # the fence, in a list or a quotation, which may end without it
    for line in lines:
        begin = line.lstrip().lower()
        if fence and begin and ((quoted and begin[0] != ">") or (nested and not line[0].isspace())):
            fence = ""
        if fence:
            bare = line.strip(" \t>\n")
            if len(bare) >= len(fence) and not bare.strip(fence[0]):
                fence = ""
                yield line
            continue
        if end:
            end = "" if end in begin else end
            continue
        found = _FENCE.match(line)
        if found is not None and not ("`" in found["mark"] and "`" in found["info"]):
            fence, before = found["mark"], line[: found.start("mark")]
            quoted = ">" in before
            nested = not quoted and (len(before) > 3 or bool(before.strip()))
        end = next((over for mark, over in _HIDDEN if _opens(begin, mark, over)), "")
        if not end:
            yield line


def _opens(begin: str, mark: str, over: str) -> bool:
    return begin.startswith(mark) and over not in begin
