"""Words that are said, and a decoder that hears them as far as they lie in its window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from oscine.models.parakeet.config import ParakeetConfig
from oscine.models.parakeet.request import Decoded, Emission, no_decisions
from oscine.models.parakeet.words import Spoken, Token
from oscine.text.pieces import Pieces

FACTOR = 8
#: Label 2 n begins a word in small letters, 2 n + 1 in capitals; the last four go on or end it.
NAMES = [name for n in range(50) for name in (f"\u2581w{n}", f"\u2581W{n}")]
GO_ON, CUT, STOP, COMMA = (len(NAMES) + n for n in range(4))
SPELLING = Pieces.of([*NAMES, "ing", "cut", ".", ","])
CONFIG = ParakeetConfig(
    n_mels=4, width=8, heads=2, layers=1, inner=8, kernel=3, channels=4, factor=FACTOR,
    scaled=False, labels=len(SPELLING), predictor=4, predictor_layers=1, joint=4,
    durations=(0, 1, 2, 3, 4), most_symbols=10, has_ctc=False,
)  # fmt: skip


def said(number: int, start: int, *more: int, capital: bool = False) -> Spoken:
    """Word `number` from mel frame `start` on, 160 ms a label."""
    ids = (2 * number + capital, *more)
    return tuple(
        Token(id, start + 16 * place, start + 16 * (place + 1), 0.9) for place, id in enumerate(ids)
    )


class Hearing:
    """An engine that hears the words of `truth` that begin and end inside a window.

    A window that begins or ends within a word hears a piece of it; its first word it writes with a
    capital. `deaf`: mel frames of words that are heard only in windows that do not begin with a
    whole encoder frame of the recording, as a model does that skips speech.
    """

    def __init__(self, truth: Sequence[Spoken], deaf: tuple[int, int] = (0, 0)) -> None:
        self.config, self.device = CONFIG, "script"
        self.timings: dict[str, float] = {}
        self.truth, self.deaf = truth, deaf
        self.batches: list[list[tuple[int, int]]] = []

    def encode(self, mels: Sequence[Any], band: Any = None) -> Any:
        self.batches.append([(int(mel[0, 0]), int(mel[0, 0]) + len(mel)) for mel in mels])
        return tuple(-(-len(mel) // FACTOR) for mel in mels)

    def encoded(self) -> Any:
        raise NotImplementedError

    def hears_phrases(self) -> bool:
        return True

    def trace(self) -> dict[str, tuple[int, float]]:
        return {}

    def decode(
        self, spans: Any = None, phrases: Any = None, carry: bool = False, check: Any = None
    ) -> tuple[Decoded, ...]:
        if check is not None:
            check(0, 1)
        return tuple(self.heard(low, high) for low, high in self.batches[-1])

    def heard(self, low: int, high: int) -> Decoded:
        emissions = []
        for word in self.truth:
            inside = [token for token in word if low <= token.start and token.end <= high]
            if low % FACTOR == 0 and self.deaf[0] <= word[0].start < self.deaf[1]:
                continue
            for token in inside:
                id = token.id
                if not emissions and low and id < GO_ON:
                    id |= 1
                if inside[0] is not word[0] and token is inside[0]:
                    id = CUT
                frame = (token.start - low) // FACTOR
                emissions.append(Emission(id, frame, 2, token.probability))
        return Decoded(tuple(emissions), no_decisions(), None)


class Numbered:
    """Features whose rows tell which frames they are."""

    def __init__(self, frames: int) -> None:
        self.frames, self.released = frames, 0

    def rows(self, first: int, last: int) -> Any:
        assert self.released <= first <= last <= self.frames
        return np.repeat(np.arange(first, last, dtype=np.float32)[:, None], 4, axis=1)

    def release(self, before: int) -> None:
        self.released = max(self.released, before)


@pytest.fixture
def spelling() -> Pieces:
    return SPELLING
