"""Whether a file ends before its header says, to the byte; FFmpeg knows durations to a second only.

Sources: AIFF 1.3, "Form AIFF chunk"; the audio_filehdr of au; RFC 8794, sections 5 and 6 (EBML),
RFC 9559, section 5 (Matroska's Segment); the Xing header as FFmpeg's libavformat/mp3dec.c reads it.
"""

from __future__ import annotations

from typing import BinaryIO

from oscine.audio.ogg_chain import FileSlice
from oscine.audio.timestamps import first_frame_header

_EBML, _SEGMENT = 0x1A45DFA3, 0x18538067
_XING_BYTES_FLAG = 2  # flag of a Xing header with a number of bytes


def is_truncated(file: BinaryIO | FileSlice) -> bool:
    """Whether a file states more bytes than it has; False if it states none."""
    try:
        end = file.seek(0, 2)
        stated = (_end_of_chunks, _end_of_segment, mp3_end_by_header)
        return next((found for each in stated if (found := each(file)) is not None), 0) > end
    except (OSError, ValueError):
        return False


def _end_of_chunks(file: BinaryIO | FileSlice) -> int | None:
    """End of an aiff or au file; None for others, and for an au file of unknown length."""
    file.seek(0)
    head = file.read(12)
    first, second = (int.from_bytes(head[at : at + 4], "big") for at in (4, 8))
    if head[:4] == b"FORM":
        return 8 + first
    return first + second if head[:4] == b".snd" and second != 0xFFFFFFFF else None


def _end_of_segment(file: BinaryIO | FileSlice) -> int | None:
    """End of the only Segment of a Matroska file; None for others and for live streams."""
    position: int | None = 0
    for wanted in (_EBML, _SEGMENT):
        assert position is not None
        file.seek(position)
        head = file.read(12)
        width = 4  # of both ids
        if int.from_bytes(head[:width], "big") != wanted or len(head) <= width:
            return None
        length = 9 - head[width].bit_length()
        value = int.from_bytes(head[width : width + length], "big")
        unknown = (1 << 7 * length) - 1
        size = value & unknown
        if length > 8 or size == unknown:
            return None
        position += width + length + size
    return position


def mp3_end_by_header(file: BinaryIO | FileSlice) -> int | None:
    """End of the frames of an mp3 file whose first frame counts their bytes; None for others."""
    start, head = first_frame_header(file)
    at = max(head.find(b"Xing"), head.find(b"Info"))
    if head[:1] != b"\xff" or at < 0 or len(head) < at + 16:
        return None
    flags, fields = head[at + 7], head[at + 8 : at + 16]
    if not flags & _XING_BYTES_FLAG:
        return None
    field = fields[4:] if flags & 1 else fields[:4]  # the number of frames comes first
    return start + int.from_bytes(field, "big")
