"""Language detection: from one confident window, or by a majority vote of several.

Source: faster_whisper/transcribe.py, detect_language.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from oscine.engine.generators import SequenceGenerator
from oscine.engine.sequence import EncoderInput
from oscine.models.whisper.sequences import LanguageSequence
from oscine.models.whisper.tokens import SpecialTokens


def window_starts(
    ranges: Sequence[tuple[int, int]], window_frames: int, max_windows: int
) -> list[int]:
    """First frames of the windows used for detection: the first `max_windows` of the ranges.

    The rest of a range after its last whole window is used only if it is more than half a window.
    """
    starts = [
        seek
        for start, end in ranges
        for seek in range(start, max(end, start + 1), window_frames)
        if seek == start or end - seek > window_frames // 2
    ]
    return starts[:max_windows]


def language_probs(
    audio: EncoderInput, special_tokens: SpecialTokens
) -> SequenceGenerator[dict[str, float]]:
    """The probability of each language code in a window, for a multilingual model."""
    probs = yield LanguageSequence(audio, special_tokens)
    return dict(zip(special_tokens.languages, map(float, probs), strict=True))


def detect_language(
    windows: Iterable[EncoderInput], special_tokens: SpecialTokens, threshold: float | None
) -> SequenceGenerator[tuple[str, dict[str, float]]]:
    """The language of a recording, and the probabilities of the most confident window for it.

    Windows are tried one by one until one has a probability above `threshold` (None: all are
    tried). If none has, the majority of the windows decides.
    """
    candidates = []
    for audio in windows:
        probs = yield from language_probs(audio, special_tokens)
        if threshold is not None and max(probs.values()) > threshold:
            return most_likely_language(probs), probs
        candidates.append(probs)
    return majority_vote(candidates)


def most_likely_language(probs: dict[str, float]) -> str:
    """The code of highest probability; the first of equals."""
    return max(probs, key=lambda code: probs[code])


def majority_vote(candidates: Sequence[dict[str, float]]) -> tuple[str, dict[str, float]]:
    """The most frequent language, of equals the most confident; with its best probabilities."""
    votes = Counter(map(most_likely_language, candidates))
    best = max(
        candidates, key=lambda probs: (votes[most_likely_language(probs)], max(probs.values()))
    )
    return most_likely_language(best), best
