"""Which language is spoken: each window's probabilities, one that is sure, or a vote of several.

Source: faster_whisper/transcribe.py, detect_language.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from oscine.engine.sequence import EncoderInput
from oscine.engine.steps import Steps
from oscine.models.whisper.sequences import Detect
from oscine.models.whisper.tokens import Tokens


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


def language_probs(audio: EncoderInput, tokens: Tokens) -> Steps[dict[str, float]]:
    """The probability of each language code in a window.

    `tokens` are those of a multilingual model.
    """
    shares = yield Detect(audio, tokens)
    return dict(zip(tokens.languages, map(float, shares), strict=True))


def detect_language(
    windows: Iterable[EncoderInput], tokens: Tokens, threshold: float | None
) -> Steps[tuple[str, dict[str, float]]]:
    """The language of a recording, and the probabilities of the window that was surest of it.

    Windows are asked one by one, until one is surer than `threshold` (None: all); otherwise they
    vote.
    """
    asked = []
    for audio in windows:
        shares = yield from language_probs(audio, tokens)
        if threshold is not None and max(shares.values()) > threshold:
            return most_likely(shares), shares
        asked.append(shares)
    return vote(asked)


def most_likely(shares: dict[str, float]) -> str:
    """The code of highest probability; the first among equals."""
    return max(shares, key=lambda code: shares[code])


def vote(asked: Sequence[dict[str, float]]) -> tuple[str, dict[str, float]]:
    """The language of most windows, among equals that of the surest, and its probabilities."""
    votes = Counter(map(most_likely, asked))
    surest = max(asked, key=lambda shares: (votes[most_likely(shares)], max(shares.values())))
    return most_likely(surest), surest
