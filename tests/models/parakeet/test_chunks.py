"""Long recordings in overlapping pieces, and speech that has no words at first."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oscine.audio.speech import Speech
from oscine.audio.timeline import Held, Timeline
from oscine.audio.vad import CHUNK, Span, VadOptions
from oscine.errors import Cancelled, DeviceMemoryError
from oscine.models.parakeet.chunks import Lengths, Passage, plan
from oscine.models.parakeet.pipeline import Parakeet
from oscine.models.parakeet.words import Spoken

from .conftest import FACTOR, GO_ON, SPELLING, STOP, Hearing, Numbered, said

SHORT = Lengths(whole=1500, chunk=1000, overlap=300)


@given(
    st.integers(0, 1000),
    st.integers(0, 100_000),
    st.integers(1, 50),
    st.integers(0, 40),
    st.integers(0, 60),
)
def test_windows_cover_all_and_overlap(
    start: int, length: int, chunk: int, overlap: int, whole: int
) -> None:
    lengths = Lengths(whole * 100, chunk * 100, min(overlap * 100, chunk * 100 - FACTOR))
    windows = plan(start, start + length, lengths, FACTOR)
    if not length:
        assert windows == []
        return
    assert windows[0][0] == start
    assert windows[-1][1] == start + length
    size = lengths.chunk // FACTOR * FACTOR
    for (low, high), (following, end) in pairwise(windows):
        assert (following - start) % FACTOR == 0
        assert low < following and high < end + (high == end)
        assert high - following >= min(lengths.overlap, size - FACTOR)
        assert high - low == size
    if len(windows) > 1:
        assert windows[-1][1] - windows[-1][0] > size - FACTOR


def story(count: int, seed: int = 0, *, repeats: bool = False) -> list[Spoken]:
    """Words at a speaker's pace, about three a second."""
    rng, at, words = random.Random(seed), 80, []
    for number in range(count):
        at += FACTOR * rng.choice([0, 1, 2, 4, 20])
        more = rng.choice([(), (), (GO_ON,), (STOP,)])
        words.append(said(7 if repeats else number % 50, at, *more))
        at = words[-1][-1].end
    return words


def passage(
    engine: Any, frames: int, speech: Speech | None = None, batch: int = 1, check: Any = None
) -> Passage:
    model = Parakeet(engine, SPELLING, "script", lengths=SHORT)
    silent = Timeline.identity(frames * 160)
    everything = Speech(frames / 100, frames * 160, None, None, silent, Held("x", np.zeros(0)))
    features: Any = Numbered(frames)
    return Passage(model, speech or everything, features, None, batch, check or (lambda *_: None))


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("seed", range(6))
def test_pieces_give_what_the_whole_gives(seed: int, batch: int) -> None:
    words = story(900, seed, repeats=seed == 5)
    frames = words[-1][-1].end + 50
    engine = Hearing(words)
    assert frames > 20 * SHORT.whole
    told: list[int] = []
    found = list(passage(engine, frames, batch=batch).words(0, frames, told.append))
    assert found == words
    assert max(map(len, engine.batches)) == batch
    assert told == sorted(told)


def test_a_part_begins_anywhere() -> None:
    words = story(300)
    frames = words[-1][-1].end
    low, high = words[20][0].start, words[-20][-1].end
    found = list(passage(Hearing(words), frames).words(low, high, lambda _: None))
    assert found[1:] == words[21:-19]


def heard(frames: int) -> Speech:
    """Speech all the time."""
    count = -(-frames * 160 // CHUNK)
    samples, line = frames * 160, Timeline.identity(frames * 160)
    return Speech(
        samples / 16_000, samples, [Span(0, samples)], np.ones(count, np.float32), line,
        Held("x", np.zeros(0)), VadOptions(),
    )  # fmt: skip


@pytest.mark.parametrize("batch", [1, 4])
def test_speech_without_words_is_heard_once_more(batch: int) -> None:
    words = story(300, 1)
    frames = words[-1][-1].end + 20
    windows = plan(0, frames, SHORT, FACTOR)
    low, high = windows[2][1] + 40, windows[4][0] - 40  # what no other window hears
    engine = Hearing(words, (low, high))
    deafened = list(passage(engine, frames, batch=batch).words(0, frames, lambda _: None))
    missing = [word for word in words if low <= word[0].start < high]
    assert deafened == [word for word in words if word not in missing]
    assert len(missing) > 3
    one = passage(engine, frames, heard(frames), batch)
    found = list(one.words(0, frames, lambda _: None))
    assert [plain(word) for word in found] == [plain(word) for word in words]
    for word, true in zip(found, words, strict=True):
        assert abs(word[0].start - true[0].start) < FACTOR
    assert one.again > (high - low) / 100
    assert one.found_again == len(missing)


def plain(word: Spoken) -> list[int]:
    return [token.id for token in word]


def test_nothing_is_found_twice_where_there_is_nothing() -> None:
    words = [said(1, 104), said(2, 136), said(3, 704, GO_ON)]
    one = passage(Hearing(words), 1000, heard(1000))
    assert list(one.words(0, 1000, lambda _: None)) == words
    assert one.again > 5
    assert one.found_again == 0


def test_a_device_without_room_is_given_less() -> None:
    class Small(Hearing):
        def encode(self, mels: Any, band: Any = None, layers: Any = None) -> Any:
            if len(mels) > 2:
                raise DeviceMemoryError("small", "no room")
            return super().encode(mels, band, layers)

    words = story(200)
    frames = words[-1][-1].end
    engine = Small(words)
    assert list(passage(engine, frames, batch=8).words(0, frames, lambda _: None)) == words
    assert max(map(len, engine.batches)) == 2


def test_cancelled_between_pieces() -> None:
    words = story(300)
    frames = words[-1][-1].end
    engine = Hearing(words)

    def check(*_: int) -> None:
        if len(engine.batches) > 2:
            raise Cancelled("enough")

    found: list[Spoken] = []
    with pytest.raises(Cancelled):
        found.extend(passage(engine, frames, check=check).words(0, frames, lambda _: None))
    assert len(engine.batches) == 3
