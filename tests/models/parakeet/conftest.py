"""Words that are said, and a script in place of a network that knows those of its window."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from oscine.audio.mel_nemo import FeatureStats
from oscine.engine.runner import Arrays, BatchEntry, SnapshotRow
from oscine.models.parakeet.config import ParakeetConfig
from oscine.models.parakeet.sequences import Chunk, Emission, Hypothesis, empty_decisions
from oscine.models.parakeet.words import Token, WordTokens
from oscine.ops.reference import Reference
from oscine.text.sentencepiece import SentencePieceTokenizer

FACTOR = 8
#: Label 2 n begins a word in small letters, 2 n + 1 in capitals; the last four go on or end it.
NAMES = [name for n in range(50) for name in (f"\u2581w{n}", f"\u2581W{n}")]
GO_ON, CUT, STOP, COMMA = (len(NAMES) + n for n in range(4))
TOKENIZER = SentencePieceTokenizer.from_pieces([*NAMES, "ing", "cut", ".", ","])
CONFIG = ParakeetConfig(
    n_mels=4, d_model=8, n_heads=2, n_layers=1, ff_dim=8, conv_kernel_size=3,
    subsampling_channels=4, subsampling_factor=FACTOR, xscaling=False, vocab_size=len(TOKENIZER),
    predictor_dim=4, predictor_layers=1, joint_dim=4, durations=(0, 1, 2, 3, 4), max_symbols=10,
    has_ctc=False,
)  # fmt: skip


def said(number: int, start: int, *more: int, capital: bool = False) -> WordTokens:
    """Word `number` from mel frame `start` on, 160 ms a label."""
    ids = (2 * number + capital, *more)
    return tuple(
        Token(id, start + 16 * place, start + 16 * (place + 1), 0.9) for place, id in enumerate(ids)
    )


class Hearing:
    """It knows the words of `truth` that begin and end inside a chunk.

    A chunk that begins or ends within a word has a piece of it; its first word is written with a
    capital. `deaf`: mel frames of words that are known only in chunks that do not begin with a
    whole encoder frame of the recording, as a model does that skips speech.

    Chunks wait until the next turn, which ends all of them as one batch.
    """

    def __init__(self, truth: Sequence[WordTokens], deaf: tuple[int, int] = (0, 0)) -> None:
        self.truth, self.deaf = truth, deaf
        self.waiting: list[Chunk] = []
        self.batches: list[list[Chunk]] = []

    def submit(self, chunk: Any) -> None:
        self.waiting.append(chunk)

    def turn(self) -> None:
        if self.waiting:
            self.batches.append(self.waiting)
            self.waiting = []
            for chunk in self.batches[-1]:
                chunk.finish(self.answer(chunk))

    def answer(self, chunk: Chunk) -> Hypothesis:
        low = int(chunk.audio.features[0, 0])
        return self.heard(low, low + len(chunk.audio.features))

    def heard(self, low: int, high: int) -> Hypothesis:
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
        return Hypothesis(tuple(emissions), empty_decisions(), None)


class Scripted:
    """A runner whose only lane is a script's."""

    encode_batch, supports_hotwords = 2, True
    stage, steps_per_poll, group_size, prefill_batch, poll_after_prefill = (
        "decode",
        0,
        1,
        4,
        False,
    )

    def __init__(self, script: Hearing) -> None:
        self.script = script
        self.config, self.device, self.backend = CONFIG, "script", Reference()
        self.timings: dict[str, float] = {}

    def check(self, sequence: Any) -> None:
        """The script takes anything."""

    def executor(self, key: Any) -> Any:
        return self

    def reserve(self, slots: int, encoder_slots: int, sequence: Any) -> None:
        """There is room for any number."""

    def release(self, slots: int, encoder_slots: int, *, plans: bool = False) -> None:
        """Likewise."""

    def encode(self, inputs: Any, encoder_slots: Any) -> None:
        """The script needs no encodings."""

    def start(self, entries: Sequence[BatchEntry]) -> None:
        """All is in the script."""

    def outputs(self, rows: int, entries: Sequence[BatchEntry]) -> tuple[Any, ...]:
        return ()

    def collect(self, snapshot_rows: Sequence[SnapshotRow], arrays: Arrays) -> Iterator[BatchEntry]:
        for entry, _ in snapshot_rows:
            assert isinstance(entry.sequence, Chunk)
            entry.sequence.finish(self.script.answer(entry.sequence))
            yield entry


class Numbered:
    """Features whose rows tell which frames they are, unless `normalises` is set."""

    normalises = False

    def __init__(self, frames: int) -> None:
        self.frames, self.released = frames, 0

    def rows(self, first: int, last: int) -> Any:
        assert self.released <= first <= last <= self.frames
        return np.repeat(np.arange(first, last, dtype=np.float32)[:, None], 4, axis=1)

    def window(self, first: int, last: int, *, self_normalised: bool = False) -> Any:
        rows = self.rows(first, last)
        if self_normalised and self.normalises:
            return FeatureStats.of([rows]).normalised(rows)
        return rows

    def release(self, before: int) -> None:
        self.released = max(self.released, before)


@pytest.fixture
def tokenizer() -> SentencePieceTokenizer:
    return TOKENIZER
