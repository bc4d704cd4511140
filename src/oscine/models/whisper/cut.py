"""One window's tokens into timed pieces, and how far to move on.

Source: whisper/transcribe.py, the part of its loop between decoding and new_segment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from oscine.audio.mel import FRAMES_PER_SECOND

FRAMES_PER_TIMESTAMP = 2
SECONDS_PER_TIMESTAMP = FRAMES_PER_TIMESTAMP / FRAMES_PER_SECOND


@dataclass(frozen=True, slots=True)
class Piece:
    """Tokens between two times, in seconds from the window's beginning."""

    start: float
    end: float
    tokens: tuple[int, ...]


def cut(
    tokens: Sequence[int], size: int, timestamp_begin: int, *, final: bool = False
) -> tuple[list[Piece], int]:
    """Cut a window of `size` frames after each closing timestamp; -> pieces, frames to advance.

    Two timestamps in a row close one piece and open the next. Text that follows the last such pair
    was cut off by the window's end, so the next window begins there; but a single timestamp at
    the end says that nothing is spoken after it, and the whole window is done. So it is where the
    window is `final`, ending in a pause: then its last text is a piece too. The advance is at
    least 1.
    """
    stamp = [token >= timestamp_begin for token in tokens]
    ends = [at for at, both in enumerate(pairwise(stamp), start=1) if all(both)]
    if not ends:
        stamps = [token - timestamp_begin for token in tokens if token >= timestamp_begin]
        length = size / FRAMES_PER_SECOND
        if stamps and stamps[-1] != 0:
            length = stamps[-1] * SECONDS_PER_TIMESTAMP
        return [Piece(0.0, length, tuple(tokens))], max(1, size)
    complete = ends_in_single_timestamp(tokens, timestamp_begin)
    if complete or (final and not all(stamp[ends[-1] :])):
        ends.append(len(tokens))
    pieces = []
    for begin, end in pairwise([0, *ends]):
        part = tuple(tokens[begin:end])
        first, last = (max(0, token - timestamp_begin) for token in (part[0], part[-1]))
        stop = last * SECONDS_PER_TIMESTAMP if stamp[end - 1] else size / FRAMES_PER_SECOND
        pieces.append(Piece(first * SECONDS_PER_TIMESTAMP, stop, part))
    if complete or final:
        return pieces, max(1, size)
    return pieces, max(1, (tokens[ends[-1] - 1] - timestamp_begin) * FRAMES_PER_TIMESTAMP)


def ends_in_single_timestamp(tokens: Sequence[int], timestamp_begin: int) -> bool:
    """Whether text and one timestamp come last: nothing is said in the rest of the window."""
    return [token >= timestamp_begin for token in tokens[-2:]] == [False, True]
