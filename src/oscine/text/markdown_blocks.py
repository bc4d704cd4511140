"""Splits Markdown into blocks that can be parsed one after another as the text arrives.

A block ends at a blank line, unless the next line is indented (a list item may continue) or the
line is within code, a comment or a script. Those are not spoken and are dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from io import IncrementalNewlineDecoder
from itertools import chain

#: A block that is longer, or has more brackets (slow to parse), is parsed in parts.
_MAX_BLOCK_CHARACTERS, _MAX_BLOCK_BRACKETS = 100_000, 1000
_MAX_FRONT_MATTER_LINES = 1000  # lines of front matter
_FENCE_PATTERN = re.compile(
    r"[ \t>]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)*(?P<mark>`{3,}|~{3,})(?P<info>[^\n]*)"
)
_FRONT_MATTER_PATTERN = re.compile(r"[\w\"'-][^:=\n]{0,100}[:=]|#")
#: Blocks that are skipped, blank lines included: the start of their first line, and their end.
_SKIPPED_BLOCKS = (("<!--", "-->"), ("<script", "</script>"), ("<style", "</style>"))


def split_blocks(parts: Iterable[str]) -> Iterator[str]:
    """Yield the blocks of a text that arrives in parts; the parts do not change the blocks."""
    held: list[str] = []
    size = brackets = 0
    blank = False
    for line in _skip_code_and_comments(_skip_front_matter(_split_lines(parts))):
        ends = blank and not line[:1].isspace()
        if held and (ends or size > _MAX_BLOCK_CHARACTERS or brackets > _MAX_BLOCK_BRACKETS):
            yield "".join(held)
            held, size, brackets = [], 0, 0
        blank = bool(line) and not line.strip()
        held.append(line)
        size, brackets = size + len(line), brackets + line.count("[")
    if held:
        yield "".join(held)


def _split_lines(parts: Iterable[str]) -> Iterator[str]:
    r"""Yield lines with their ends, as \n; a line too long for a block is split.

    After a blank line, "" means that a line has begun that is not indented.
    """
    ends = IncrementalNewlineDecoder(None, translate=True)
    held: list[str] = []
    blank = False
    for part in chain((ends.decode(part) for part in parts), (ends.decode("", final=True),)):
        *whole, rest = part.split("\n")
        for end in whole:
            line = "".join([*held, end])
            yield from _split_long_line(line + "\n")
            held, blank = [], not line.strip()
        if rest:
            held.append(rest)
            if blank and not rest[0].isspace():
                yield ""
            blank = False
    yield from _split_long_line("".join(held))


def _split_long_line(line: str) -> Iterator[str]:
    """Yield the line, cut after a sentence or anywhere if it is too long for a block."""
    at = 0
    while at < len(line):
        piece = line[at : at + _MAX_BLOCK_CHARACTERS]
        if piece.count("[") > _MAX_BLOCK_BRACKETS:
            piece = "[".join(piece.split("[", _MAX_BLOCK_BRACKETS)[:_MAX_BLOCK_BRACKETS])
        if at + len(piece) < len(line):
            piece = piece[: piece.rfind(". ") + 2 if ". " in piece else None]
        at += len(piece)
        yield piece if at == len(line) else piece + "\n"


def _skip_front_matter(lines: Iterator[str]) -> Iterator[str]:
    """Skip front matter: the text between two lines of --- or +++ at the very beginning."""
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
        if len(kept) > _MAX_FRONT_MATTER_LINES or (
            len(kept) == 2 and not _FRONT_MATTER_PATTERN.match(line)
        ):
            yield from kept
            break
    else:
        yield from kept
    yield from lines


def _skip_code_and_comments(lines: Iterator[str]) -> Iterator[str]:
    """Skip fenced code, and comments and scripts that have lines of their own.

    The fences of code are kept, so that skipped code can be reported.
    """
    end = fence = ""
    nested = quoted = False  # whether the fence is in a list or a quotation, which may end first
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
        found = _FENCE_PATTERN.match(line)
        if found is not None and not ("`" in found["mark"] and "`" in found["info"]):
            fence, before = found["mark"], line[: found.start("mark")]
            quoted = ">" in before
            nested = not quoted and (len(before) > 3 or bool(before.strip()))
        end = next(
            (over for mark, over in _SKIPPED_BLOCKS if _opens_skipped(begin, mark, over)), ""
        )
        if not end:
            yield line


def _opens_skipped(begin: str, mark: str, over: str) -> bool:
    return begin.startswith(mark) and over not in begin
