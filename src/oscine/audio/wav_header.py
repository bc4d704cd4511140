"""Lengths in the header of a wave file, which FFmpeg trusts even if they are wrong.

Source: Microsoft's RIFF (chunks of id, length, data at even positions), EBU Tech 3306 (RF64, ds64).
"""

from __future__ import annotations

from typing import BinaryIO, NamedTuple

from oscine.audio.ogg_chain import FileSlice

_MAX_TAIL_BYTES = 4096  # bytes at the end that may be a tag or padding
_UNKNOWN_SIZE = 0x7FFF0000  # writers to pipes, which cannot seek, use such a length or 0


class WavLengths(NamedTuple):
    """`data`: bytes of samples in the header; `rest`: bytes from their start to the file's end."""

    streamed: bool
    data: int
    rest: int
    chunks_follow: bool

    @property
    def understated(self) -> bool:
        """Whether there are more samples than the header says: an interrupted recorder."""
        return self.rest - self.data > _MAX_TAIL_BYTES and not self.chunks_follow


def read_lengths(file: BinaryIO | FileSlice) -> WavLengths | None:
    """Lengths of a RIFF or RF64 file with samples; None for other files."""
    found = _read_lengths(file)
    file.seek(0)
    return found


def _read_lengths(file: BinaryIO | FileSlice) -> WavLengths | None:
    end = file.seek(0, 2)
    file.seek(0)
    head = file.read(12)
    if head[:4] not in (b"RIFF", b"RF64", b"BW64") or head[8:] != b"WAVE":
        return None
    total = int.from_bytes(head[4:8], "little")
    streamed = head[:4] == b"RIFF" and (total == 0 or total >= _UNKNOWN_SIZE)
    stated: int | None = None
    position = 12
    while (chunk := _read_chunk(file, position)) is not None:
        name, size = chunk
        if name == b"ds64" and head[:4] != b"RIFF":
            file.seek(position + 16)
            stated = int.from_bytes(file.read(8), "little")
        elif name == b"data":
            data = size if stated is None else stated
            return WavLengths(
                streamed, data, end - position - 8, _chunks_follow(file, position + 8 + data, end)
            )
        position += 8 + size + size % 2
    return None


def _read_chunk(file: BinaryIO | FileSlice, position: int) -> tuple[bytes, int] | None:
    file.seek(position)
    head = file.read(8)
    if len(head) < 8:
        return None
    return head[:4], int.from_bytes(head[4:], "little")


def _chunks_follow(file: BinaryIO | FileSlice, position: int, end: int) -> bool:
    """Whether chunks follow from `position` to the end of the file."""
    position += position % 2
    while position < end:
        chunk = _read_chunk(file, position)
        if chunk is None:
            return end - position < 8
        name, size = chunk
        if not all(32 <= letter < 127 for letter in name):
            return False
        position += 8 + size + size % 2
    return position <= end + 1
