"""Which language is spoken: each window's probabilities, one that is sure, or a vote of several.

Source: faster_whisper/transcribe.py, detect_language.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from oscine.audio.windows import Features
from oscine.models.whisper.request import Engine, Request
from oscine.models.whisper.tokens import Tokens
from oscine.models.whisper.windows import ensure_encoded


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


def language_probs(engine: Engine, tokens: Tokens, window: int = 0) -> dict[str, float]:
    """The probability of each language code in an encoded window.

    `tokens` are those of a multilingual model.
    """
    ids = set(tokens.languages.values())
    request = Request(
        prompt=(tokens.start,),
        sot=0,
        suppress=tuple(id for id in range(tokens.vocabulary) if id not in ids),
        suppress_first=(),
        end=tokens.end,
        timestamp_begin=tokens.timestamp_begin,
        no_timestamps=tokens.no_timestamps,
        no_speech=tokens.no_speech,
        timestamps=False,
        max_initial_timestamp=None,
        limit=1,
        window=window,
    )
    _, shares = engine.detect(request, list(tokens.languages.values()))
    return dict(zip(tokens.languages, map(float, shares), strict=True))


def window_language_probs(
    features: Features, tokens: Tokens, seek: int, size: int, engine: Engine
) -> dict[str, float]:
    """The probability of each language code in `size` frames from `seek` on, at most a window."""
    ensure_encoded(engine, features, [(seek, min(size, features.window_frames))])
    return language_probs(engine, tokens)


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
