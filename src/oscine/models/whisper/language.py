"""Which language is spoken: one window that is sure, or the vote of several.

Source: faster_whisper/transcribe.py, detect_language.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence


def window_starts(ranges: Sequence[tuple[int, int]], window_frames: int, most: int) -> list[int]:
    """Where the windows begin that are listened to: the first `most` of ranges of frames.

    A short rest says too little where there are whole windows.
    """
    starts = [
        seek
        for start, end in ranges
        for seek in range(start, max(end, start + 1), window_frames)
        if seek == start or end - seek > window_frames // 2
    ]
    return starts[:most]


def likeliest(shares: dict[str, float]) -> str:
    """The code of highest probability; the first among equals."""
    return max(shares, key=lambda code: shares[code])


def vote(
    heard: Iterable[dict[str, float]], threshold: float | None
) -> tuple[str, dict[str, float]]:
    """The language, and the probabilities of the window that was surest of it.

    `heard`: what each window says, asked one by one until one is surer than `threshold` (None:
    all). Otherwise the language of most windows; among equals that of the surest.
    """
    asked = []
    for shares in heard:
        asked.append((likeliest(shares), shares))
        code, shares = asked[-1]
        if threshold is not None and shares[code] > threshold:
            return code, shares
    votes = Counter(code for code, _ in asked)
    return max(asked, key=lambda one: (votes[one[0]], one[1][one[0]]))
