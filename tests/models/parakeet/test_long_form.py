"""Long recordings in overlapping pieces, and speech that has no words at first."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oscine.audio.speech import SpeechMap
from oscine.audio.timeline import InMemory, Timeline
from oscine.audio.vad import CHUNK_SAMPLES, Span, VadOptions
from oscine.errors import Cancelled
from oscine.models.parakeet.long_form import ChunkConfig, LongFormDecoder, plan_windows
from oscine.models.parakeet.sequences import Chunk, Emission, Hypothesis, empty_decisions
from oscine.models.parakeet.words import ModelInfo, WordTokens

from .conftest import CONFIG, FACTOR, GO_ON, STOP, TOKENIZER, Hearing, Numbered, said

SHORT = ChunkConfig(max_single_frames=1500, chunk_frames=1000, overlap_frames=300)


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
    chunk_config = ChunkConfig(whole * 100, chunk * 100, min(overlap * 100, chunk * 100 - FACTOR))
    windows = plan_windows(start, start + length, chunk_config, FACTOR)
    if not length:
        assert windows == []
        return
    assert windows[0][0] == start
    assert windows[-1][1] == start + length
    size = chunk_config.chunk_frames // FACTOR * FACTOR
    for (low, high), (following, end) in pairwise(windows):
        assert (following - start) % FACTOR == 0
        assert low < following and high < end + (high == end)
        assert high - following >= min(chunk_config.overlap_frames, size - FACTOR)
        assert high - low == size
    if len(windows) > 1:
        assert windows[-1][1] - windows[-1][0] > size - FACTOR


def story(count: int, seed: int = 0, *, repeats: bool = False) -> list[WordTokens]:
    """Words at a speaker's pace, about three a second."""
    rng, at, words = random.Random(seed), 80, []
    for number in range(count):
        at += FACTOR * rng.choice([0, 1, 2, 4, 20])
        more = rng.choice([(), (), (GO_ON,), (STOP,)])
        words.append(said(7 if repeats else number % 50, at, *more))
        at = words[-1][-1].end
    return words


def make_decoder(
    script: Hearing,
    frames: int,
    speech: SpeechMap | None = None,
    batch: int = 1,
    check: Any = None,
    normalises: bool = False,
) -> LongFormDecoder:
    silent = Timeline.identity(frames * 160)
    everything = SpeechMap(
        frames / 100, frames * 160, None, None, silent, InMemory("x", np.zeros(0))
    )
    features: Any = Numbered(frames)
    features.normalises = normalises
    text = ModelInfo(TOKENIZER, CONFIG, multilingual=False)
    return LongFormDecoder(
        script.submit, text, SHORT, speech or everything, features, None, batch,
        check or script.turn,
    )  # fmt: skip


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("seed", range(6))
def test_pieces_give_what_the_whole_gives(seed: int, batch: int) -> None:
    words = story(900, seed, repeats=seed == 5)
    frames = words[-1][-1].end + 50
    script = Hearing(words)
    assert frames > 20 * SHORT.max_single_frames
    told: list[int] = []
    found = list(make_decoder(script, frames, batch=batch).decode_range(0, frames, told.append))
    assert found == words
    assert max(map(len, script.batches)) == batch
    assert told == sorted(told)


def test_a_part_begins_anywhere() -> None:
    words = story(300)
    frames = words[-1][-1].end
    low, high = words[20][0].start, words[-20][-1].end
    found = list(make_decoder(Hearing(words), frames).decode_range(low, high, lambda _: None))
    assert found[1:] == words[21:-19]


def heard(frames: int) -> SpeechMap:
    """Speech all the time."""
    count = -(-frames * 160 // CHUNK_SAMPLES)
    samples, line = frames * 160, Timeline.identity(frames * 160)
    return SpeechMap(
        samples / 16_000, samples, [Span(0, samples)], np.ones(count, np.float32), line,
        InMemory("x", np.zeros(0)), VadOptions(),
    )  # fmt: skip


@pytest.mark.parametrize("batch", [1, 4])
def test_speech_without_words_is_heard_once_more(batch: int) -> None:
    words = story(300, 1)
    frames = words[-1][-1].end + 20
    windows = plan_windows(0, frames, SHORT, FACTOR)
    low, high = windows[2][1] + 40, windows[4][0] - 40  # what no other window hears
    script = Hearing(words, (low, high))
    deafened = list(
        make_decoder(script, frames, batch=batch).decode_range(0, frames, lambda _: None)
    )
    missing = [word for word in words if low <= word[0].start < high]
    assert deafened == [word for word in words if word not in missing]
    assert len(missing) > 3
    one = make_decoder(script, frames, heard(frames), batch)
    found = list(one.decode_range(0, frames, lambda _: None))
    assert [plain(word) for word in found] == [plain(word) for word in words]
    for word, true in zip(found, words, strict=True):
        assert abs(word[0].start - true[0].start) < FACTOR
    assert one.redecoded_s > (high - low) / 100
    assert one.recovered_words == len(missing)


class Deaf(Hearing):
    """It says one word in windows whose features are normalised by themselves, else nothing."""

    def __init__(self) -> None:
        super().__init__([])
        self.mels: list[Any] = []

    def answer(self, chunk: Chunk) -> Hypothesis:
        self.mels.append(chunk.audio.features)
        alone = abs(float(np.mean(self.mels[-1]))) < 1e-3
        said = (Emission(4, 2, 2, 0.9),) if alone else ()
        return Hypothesis(said, empty_decisions(), None)


def surrounded(frames: int, low: int, high: int) -> SpeechMap:
    """Speech from one frame to another, and silence around it."""
    speech = heard(frames)
    chunks = CHUNK_SAMPLES * np.arange(len(speech.probabilities))  # type: ignore[arg-type]
    spoken = (chunks >= 160 * low) & (chunks < 160 * high)
    spans = [Span(160 * low, 160 * high)]
    return replace(speech, spans=spans, probabilities=spoken.astype(np.float32))


@pytest.mark.parametrize(("frames", "low", "high"), [(260, 0, 220), (260, 40, 260), (900, 55, 700)])
def test_a_recording_that_is_one_window_is_heard_once_more_without_its_silence(
    frames: int, low: int, high: int
) -> None:
    """A second time with the very same frames would give the very same nothing."""
    script = Deaf()
    one = make_decoder(script, frames, surrounded(frames, low, high), normalises=True)
    (word,) = one.decode_range(0, frames, lambda _: None)
    assert (word[0].start, word[0].id) == (low + 2 * FACTOR, 4)
    assert [len(mel) for mel in script.mels] == [frames, high - low]
    assert one.redecoded_s > 1 and one.recovered_words == 1
    assert np.allclose(np.std(script.mels[1], axis=0, ddof=1), 1, atol=1e-3)


def test_what_would_be_the_same_is_not_heard_once_more() -> None:
    for start, frames in ((0, 260), (0, 900), (100, 260)):
        script = Deaf()
        one = make_decoder(script, frames, heard(frames), normalises=True)
        assert list(one.decode_range(start, frames, lambda _: None)) == []
        windows = [len(mel) for mel in script.mels]
        assert len(windows) == len(set(windows)) == (2 if start else 1)
        assert (one.redecoded_s > 0) == (start > 0) and one.recovered_words == 0


@given(st.integers(130, 4000), st.integers(0, 3900), st.integers(0, 4000), st.integers(0, 7))
def test_no_window_is_decoded_twice(frames: int, low: int, length: int, words: int) -> None:
    low = min(low, frames - 110)
    high = min(frames, low + 110 + length)
    script = Hearing([said(n, 24 + 104 * n) for n in range(words)])
    one = make_decoder(script, frames, surrounded(frames, low, high))
    list(one.decode_range(0, frames, lambda _: None))
    assert len(one.decoded) == sum(map(len, script.batches))


def plain(word: WordTokens) -> list[int]:
    return [token.id for token in word]


def test_nothing_is_found_twice_where_there_is_nothing() -> None:
    words = [said(1, 104), said(2, 136), said(3, 704, GO_ON)]
    one = make_decoder(Hearing(words), 1000, heard(1000))
    assert list(one.decode_range(0, 1000, lambda _: None)) == words
    assert one.redecoded_s > 5
    assert one.recovered_words == 0


def test_cancelled_between_pieces() -> None:
    words = story(300)
    frames = words[-1][-1].end
    script = Hearing(words)

    def check() -> None:
        if len(script.batches) > 2:
            raise Cancelled("enough")
        script.turn()

    found: list[WordTokens] = []
    with pytest.raises(Cancelled):
        found.extend(
            make_decoder(script, frames, check=check).decode_range(0, frames, lambda _: None)
        )
    assert len(script.batches) == 3
    (left,) = script.waiting  # what was submitted is given up
    assert left.cancel_requested
