"""Tokens to timed pieces: planted answers, and what holds for any tokens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oscine.models.whisper.segments import TimedTokens, split_at_timestamps

TS = 1000  # <|0.00|>


@pytest.mark.parametrize(
    ("tokens", "pieces", "advance"),
    [
        # two pairs, the rest is cut off: continue from the last closing timestamp
        (
            [TS, 1, 2, TS + 50, TS + 50, 3, TS + 100, TS + 110, 4],
            [
                TimedTokens(0.0, 1.0, (TS, 1, 2, TS + 50)),
                TimedTokens(1.0, 2.0, (TS + 50, 3, TS + 100)),
            ],
            200,
        ),
        # a single stamp at the end: nothing after it, the window is done
        (
            [TS, 1, TS + 50, TS + 60, 2, TS + 100],
            [
                TimedTokens(0.0, 1.0, (TS, 1, TS + 50)),
                TimedTokens(1.2, 2.0, (TS + 60, 2, TS + 100)),
            ],
            3000,
        ),
        # no pair: one piece up to the last timestamp
        ([TS, 1, 2, TS + 75], [TimedTokens(0.0, 1.5, (TS, 1, 2, TS + 75))], 3000),
        # no closing stamp, or 0.00 only: as long as the window
        ([TS, 1, 2], [TimedTokens(0.0, 30.0, (TS, 1, 2))], 3000),
        ([1, 2], [TimedTokens(0.0, 30.0, (1, 2))], 3000),
        ([], [TimedTokens(0.0, 30.0, ())], 3000),
        # a pair that closes at once must not hold the seek
        ([TS, TS], [TimedTokens(0.0, 0.0, (TS,))], 1),
    ],
)
def test_planted(tokens: list[int], pieces: list[TimedTokens], advance: int) -> None:
    assert split_at_timestamps(tokens, 3000, TS) == (pieces, advance)


TOKEN = st.integers(0, 5) | st.integers(TS, TS + 1500)


@given(st.lists(TOKEN, max_size=40), st.integers(1, 3000))
def test_always_moves_on_and_keeps_the_order(tokens: list[int], size: int) -> None:
    pieces, advance = split_at_timestamps(tokens, size, TS)
    assert advance >= 1
    kept = [token for piece in pieces for token in piece.tokens]
    assert kept == tokens[: len(kept)]
    assert all(piece.start >= 0 for piece in pieces)


@given(st.lists(st.tuples(st.integers(0, 700), st.integers(1, 40)), min_size=1, max_size=8))
def test_well_formed_windows_give_every_phrase_its_times(spans: list[tuple[int, int]]) -> None:
    tokens, expected, at = [], [], 0
    for gap, length in spans:
        start, end = at + gap // 8, at + gap // 8 + length
        tokens += [TS + start, 7, TS + end]
        expected.append((start * 0.02, end * 0.02))
        at = end
    pieces, advance = split_at_timestamps(tokens, 3000, TS)
    assert [(piece.start, piece.end) for piece in pieces if 7 in piece.tokens] == (
        expected if len(spans) > 1 else [(0.0, expected[0][1])]
    )
    assert advance == 3000  # ends in a single stamp
