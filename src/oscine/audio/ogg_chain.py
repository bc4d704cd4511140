"""Chained Ogg files: FFmpeg decodes the first link, and later ones only if they are alike.

Source: RFC 3533, section 6 (the page header) and 4 (chaining: a page that begins a stream after
pages of another one).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO

_PAGE_HEADER_BYTES = 27  # bytes of a page before its segment table
_FIRST_PAGE_FLAG = 2  # header flag of a page that begins a stream


class FileSlice:
    """A file object that is limited to the bytes `start` to `end` of another one."""

    def __init__(self, file: BinaryIO | FileSlice, start: int, end: int) -> None:
        self._file, self._start, self._end = file, start, end
        self._position = 0

    def read(self, size: int = -1) -> bytes:
        self._file.seek(self._start + self._position)
        left = max(0, self._end - self._start - self._position)
        data = self._file.read(left if size < 0 else min(size, left))
        self._position += len(data)
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        base = (0, self._position, self._end - self._start)[whence]
        self._position = max(0, base + offset)
        return self._position

    def tell(self) -> int:
        return self._position


def links(file: BinaryIO | FileSlice) -> tuple[Sequence[FileSlice], bool]:
    """The links of a chained Ogg file (else none), and whether the last page is truncated."""
    starts = []
    position, began = 0, False
    file.seek(0)
    while (header := file.read(_PAGE_HEADER_BYTES + 255))[:4] == b"OggS" and len(
        header
    ) > _PAGE_HEADER_BYTES:
        begins = bool(header[5] & _FIRST_PAGE_FLAG)
        if begins and not began:
            starts.append(position)
        began = begins
        lengths = header[_PAGE_HEADER_BYTES : _PAGE_HEADER_BYTES + header[26]]
        position += _PAGE_HEADER_BYTES + len(lengths) + sum(lengths)
        file.seek(position)
    end = file.seek(0, 2)
    file.seek(0)
    cut = position > end or (
        0 < len(header) <= _PAGE_HEADER_BYTES and b"OggS".startswith(header[:4])
    )
    if len(starts) < 2:
        return [], cut
    return [FileSlice(file, *ends) for ends in zip(starts, [*starts[1:], end], strict=True)], cut
