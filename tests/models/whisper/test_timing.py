"""Attention to word times: against plain loops, planted answers, and what holds for any input."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from oscine.models.whisper.sequences import Alignment
from oscine.models.whisper.timing import (
    attention_matrix,
    dtw,
    find_alignment,
    median_filter,
    split_to_word_tokens,
    token_starts,
)
from oscine.text.whisper import WhisperTokenizer

BYTES = WhisperTokenizer([*(bytes([byte]) for byte in range(256)), b""], {}, Path("made up"))
GOLDENS = Path(__file__).resolve().parents[2] / "goldens"
START = 4  # three tokens of the start sequence and <|notimestamps|>


def pieces(*texts: str | bytes) -> WhisperTokenizer:
    return WhisperTokenizer(
        [t.encode() if isinstance(t, str) else t for t in texts], {}, Path("made up")
    )


def alignment(weights: np.ndarray, probability: float = 0.5) -> Alignment:
    chances = np.full(weights.shape[1] - 1, probability, np.float32)
    return Alignment(weights.astype(np.float32), chances)


def listening(tokens: int, frames: int, *at: int) -> Alignment:
    """Alignment in which token n (the last is end-of-text) attends to frames at[n] to at[n + 1]."""
    weights = np.full((2, START + tokens + 1, frames), 0.01)
    for row, (first, after) in enumerate(zip(at, [*at[1:], frames], strict=True), start=START - 1):
        weights[:, row, first:after] = 1
    return alignment(weights / weights.sum(-1, keepdims=True))


def warp_in_loops(cost: np.ndarray) -> list[tuple[int, int]]:
    """dtw_cpu and backtrace of whisper/timing.py, cell by cell."""
    height, width = cost.shape
    sums = np.full((height + 1, width + 1), np.inf, np.float32)
    steps = np.zeros((height + 1, width + 1), int)
    sums[0, 0] = 0
    for i in range(1, height + 1):
        for j in range(1, width + 1):
            diagonal, above, before = sums[i - 1, j - 1], sums[i - 1, j], sums[i, j - 1]
            if diagonal < above and diagonal < before:
                steps[i, j], least = 0, diagonal
            elif above < diagonal and above < before:
                steps[i, j], least = 1, above
            else:
                steps[i, j], least = 2, before
            sums[i, j] = np.float32(cost[i - 1, j - 1]) + least
    steps[0, :], steps[:, 0] = 2, 1
    i, j, path = height, width, []
    while i > 0 or j > 0:
        path.append((i - 1, j - 1))
        step = steps[i, j]
        i, j = i - (step != 2), j - (step != 1)
    return path[::-1]


matrices = st.tuples(st.integers(1, 9), st.integers(1, 12))
tied = arrays(np.float32, matrices, elements=st.sampled_from([-1.0, 0.0, 0.5, 1.0]))
free = arrays(np.float32, matrices, elements=st.floats(-4, 4, width=32))


@given(tied | free)
def test_warping_path_is_that_of_plain_loops(cost: np.ndarray) -> None:
    rows, columns = dtw(cost)
    assert list(zip(rows.tolist(), columns.tolist(), strict=True)) == warp_in_loops(cost)


def test_path_through_nothing_is_empty() -> None:
    assert [part.tolist() for part in dtw(np.zeros((3, 0), np.float32))] == [[], []]


@given(
    arrays(
        np.float32, st.tuples(st.integers(1, 3), st.integers(4, 30)), elements=st.integers(-9, 9)
    )
)
def test_median_is_that_of_sorted_windows(rows: np.ndarray) -> None:
    padded = np.pad(rows, ((0, 0), (3, 3)), mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, 7, axis=1)
    np.testing.assert_array_equal(median_filter(rows), np.median(windows, axis=-1))


@pytest.mark.parametrize("frames", range(4))
def test_too_few_frames_have_no_median(frames: int) -> None:
    rows = np.arange(2 * frames, dtype=np.float32).reshape(2, frames)
    np.testing.assert_array_equal(median_filter(rows), rows)


def test_scaling_is_over_all_tokens_and_deaf_to_what_all_hear() -> None:
    weights = np.random.default_rng(0).random((3, 9, 3), np.float32)
    weights[:, :, 1] = 0.1  # the same for all tokens: deviation 0
    matrix = attention_matrix(weights, 2)
    scaled = weights - weights.mean(1, keepdims=True)
    deviation = weights.std(1, keepdims=True)
    scaled[:, :, [0, 2]] /= deviation[:, :, [0, 2]]
    assert matrix.shape == (6, 3)
    assert (matrix[:, 1] == 0).all()
    np.testing.assert_allclose(matrix[:, [0, 2]], scaled.mean(0)[2:-1, [0, 2]], atol=1e-5)


def test_words_last_while_their_tokens_listen() -> None:
    tokenizer = pieces(" hel", "lo", " you", ".")
    heard = listening(4, 100, 10, 20, 35, 60, 80)
    heard.probabilities[START - 1 :] = [0.2, 0.4, 0.6, 0.8, 1.0]
    words = find_alignment(heard, [0, 1, 2, 3], START, tokenizer, "en")
    assert [word.word for word in words] == [" hello", " you", "."]
    assert [word.tokens for word in words] == [(0, 1), (2,), (3,)]
    assert [word.probability for word in words] == pytest.approx([0.3, 0.6, 0.8])
    # Frames before the first token belong to it: a path starts in the corner.
    assert [word.start for word in words] == pytest.approx([0.0, 0.7, 1.2], abs=0.021)
    assert [word.end for word in words] == pytest.approx([0.7, 1.2, 1.6], abs=0.021)


@settings(deadline=None)
@given(st.integers(0, 6), st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_times_are_in_order_however_few_frames(frames: int, count: int, seed: int) -> None:
    weights = np.random.default_rng(seed).random((2, START + count + 1, frames))
    tokenizer = pieces(" a", "b", ",")
    tokens = [at % 3 for at in range(count)]
    words = find_alignment(alignment(weights), tokens, START, tokenizer, "en")
    times = [time for word in words for time in (word.start, word.end)]
    assert times == sorted(times)
    assert 0 <= times[0] and times[-1] <= max(0, frames - 1) / 50
    assert tuple(id for word in words for id in word.tokens) == tuple(tokens)


def test_no_text_has_no_words_and_other_rows_are_refused() -> None:
    empty = alignment(np.ones((1, START + 1, 9)))
    assert find_alignment(empty, [], START, BYTES, "en") == []
    with pytest.raises(ValueError, match="5 rows of attention for 6 tokens"):
        find_alignment(empty, [65], START, BYTES, "en")


@pytest.mark.parametrize(
    ("language", "words"),
    [
        # Punctuation starts a word; text after it without a space belongs to that word.
        ("en", [" Don", "'t", " stop", ",", " 日本語"]),
        ("ja", [" Don", "'", "t", " stop", ",", " 日", "本", "語"]),
    ],
)
def test_split_by_language(language: str, words: list[str]) -> None:
    day = " 日".encode()
    tokenizer = pieces(" Don", "'", "t", " stop", ",", day[:2], day[2:], "本", "語")
    found = split_to_word_tokens(range(9), tokenizer, language)
    assert [word for word, _ in found] == words
    assert [id for _, ids in found for id in ids] == list(range(9))


@given(st.text(max_size=12), st.sampled_from(["en", "ja"]))
def test_characters_over_several_tokens_stay_whole(text: str, language: str) -> None:
    data = text.encode("utf-8", "replace")
    words = split_to_word_tokens(list(data), BYTES, language)
    assert "".join(word for word, _ in words) == data.decode()
    assert b"".join(bytes(ids) for _, ids in words) == data


@given(st.lists(st.integers(0, 256), max_size=10), st.sampled_from(["en", "th"]))
def test_any_bytes_make_the_text_that_segments_have(ids: list[int], language: str) -> None:
    words = split_to_word_tokens(ids, BYTES, language)
    assert [id for _, part in words for id in part] == ids
    assert "".join(word for word, _ in words) == BYTES.decode_parts([ids])[0]
    assert len(words) <= 1 or all(word for word, _ in words)


def test_an_unfinished_character_at_the_end_is_left_out() -> None:
    tail = "é".encode()[:1]
    tokenizer = pieces(" so", b" caf" + tail, tail, "")
    assert split_to_word_tokens([0, 1], tokenizer, "en") == [(" so", (0,)), (" caf", (1,))]
    assert split_to_word_tokens([0, 2, 3], tokenizer, "en") == [(" so", (0, 2, 3))]
    assert split_to_word_tokens([2], tokenizer, "en") == [("", (2,))]


@pytest.mark.parametrize("case", ["whisper_multi", "whisper_en"])
def test_golden_matrix_gives_the_golden_path(case: str) -> None:
    with np.load(GOLDENS / case / "golden.npz") as stored:
        golden = {name: stored[name] for name in stored if name.startswith("own_align")}
    rows, columns = dtw(-golden["own_align_matrix"])
    np.testing.assert_array_equal(rows, golden["own_align_text_idx"])
    np.testing.assert_array_equal(columns, golden["own_align_time_idx"])
    jumps = token_starts(golden["own_align_matrix"])
    np.testing.assert_array_equal(jumps, golden["own_align_jump_frame"])
