"""Repetition loops are reduced to one phrase, and other text is unchanged."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from oscine.engine.sequence import EncoderInput
from oscine.models.whisper.repetition import (
    MAX_TOKEN_REPEATS,
    MIN_ENDLESS_REPEATS,
    MIN_ENDLESS_TOKENS,
    MIN_LOOP_TOKENS,
    MIN_REPEATS,
    ends_in_loop,
    remove_loops,
)
from oscine.models.whisper.segments import split_at_timestamps
from oscine.models.whisper.sequences import DecodingRequest, DecodingSequence

END, BEGIN = 1000, 1100


def stamps(*seconds: float) -> list[int]:
    return [BEGIN + round(time * 50) for time in seconds]


def cut_tokens(tokens: list[int]) -> tuple[tuple[int, ...], bool]:
    return remove_loops(tokens, END, BEGIN)


def test_a_phrase_said_again_and_again_is_said_once() -> None:
    phrase = [1, 2, 3, 4]
    tokens = [*stamps(0), 9, *phrase * 8, 7, *stamps(12)]
    assert cut_tokens(tokens) == ((*stamps(0), 9, *phrase, 7, *stamps(12)), True)


def test_a_sentence_again_and_again_with_its_timestamps() -> None:
    sentence, tokens = [1, 2, 3, 4, 5], []
    for at in range(6):
        tokens += [*stamps(2 * at), *sentence, *stamps(2 * at + 2)]
    found, looped = cut_tokens(tokens)
    assert looped
    assert found == (*stamps(0), *sentence, *stamps(2))
    pieces, _ = split_at_timestamps(found, 3000, BEGIN)
    assert [(piece.start, piece.end) for piece in pieces] == [(0.0, 2.0)]


def test_what_follows_a_loop_keeps_its_times() -> None:
    tokens = [*stamps(0), *[1] * 20, *stamps(5, 6), *[1] * 3, *stamps(8, 9), 2, 3, *stamps(10)]
    found, looped = cut_tokens(tokens)
    assert looped
    pieces, _ = split_at_timestamps(found, 3000, BEGIN)
    assert [(piece.start, piece.end) for piece in pieces] == [(0.0, 5.0), (9.0, 10.0)]


def test_speech_that_repeats_itself_a_little_stays() -> None:
    for tokens in ([5, 5, 5], [1, 2] * 5, [1, 2, 3, 4, 5, 6] * 2, [7] * (MAX_TOKEN_REPEATS - 1)):
        assert cut_tokens([*stamps(0), *tokens, *stamps(2)]) == (
            (*stamps(0), *tokens, *stamps(2)),
            False,
        )


def test_the_token_that_ended_the_window_is_said_once() -> None:
    tokens = [*stamps(0), 9, *[7] * MAX_TOKEN_REPEATS]
    assert cut_tokens(tokens) == ((*stamps(0), 9, 7), True)


TOKENS = st.lists(
    st.one_of(st.integers(0, 3), st.integers(BEGIN, BEGIN + 20), st.just(END + 1)), max_size=80
)


@given(tokens=TOKENS)
def test_nothing_is_added_or_moved(tokens: list[int]) -> None:
    found, looped = cut_tokens(tokens)
    rest = iter(tokens)
    assert all(token in rest for token in found)  # a subsequence
    assert looped or list(found) == tokens
    assert {t for t in found if t < END} == {t for t in tokens if t < END}


@given(
    phrase=st.lists(st.integers(0, 900), min_size=1, max_size=9), rounds=st.integers(MIN_REPEATS, 9)
)
def test_the_phrase_that_stays_says_all_of_it(phrase: list[int], rounds: int) -> None:
    found, looped = cut_tokens(phrase * rounds)
    if looped:
        assert len(found) <= len(phrase)
    else:
        assert len(phrase) * rounds < max(MIN_LOOP_TOKENS, MIN_REPEATS * len(phrase))


@given(
    phrase=st.lists(st.integers(0, 900), min_size=1, max_size=20),
    before=st.lists(st.integers(0, 900), max_size=20),
)
def test_a_loop_is_endless_after_some_rounds(phrase: list[int], before: list[int]) -> None:
    rounds = max(
        MIN_ENDLESS_REPEATS, -(-MIN_ENDLESS_TOKENS // len(phrase)), -(-len(before) // len(phrase))
    )
    spaced = [token for id in phrase * rounds for token in (id, BEGIN + 3)]
    assert ends_in_loop([*before, *spaced], END)


@given(tokens=TOKENS)
def test_what_is_endless_is_also_cut(tokens: list[int]) -> None:
    if ends_in_loop(tokens, END):
        assert cut_tokens(tokens)[1]


def test_speech_is_not_endless() -> None:
    line = list(range(30))
    for tokens in (
        line,
        line * 2,
        [*line, *line, *[5] * MIN_ENDLESS_TOKENS, 6],
        [*range(70), *[1, 2] * 16],
    ):
        assert not ends_in_loop(tokens, END)


def test_a_loop_ends_its_row_at_the_same_token_however_often_it_is_looked_for() -> None:
    loop, speech = [7, *[4, 5] * 50], list(range(100))
    for polls in ([100], [10, 100], list(range(1, 101)), [47, 48, 49, 90]):
        sequence = DecodingSequence(
            EncoderInput(np.zeros((2, 2), np.float32)), request_of(samples=2)
        )
        for count in polls:
            sequence.check_for_loops([tuple(loop[:count]), tuple(speech[:count])])
        assert sequence.loop_ends == [48, 0]  # the first look at 33 tokens and more
        sequence.count_restart()
        assert sequence.loop_ends == [0, 0]
        sequence.check_for_loops([tuple(loop), tuple(speech)])
        assert sequence.loop_ends == [48, 0]


def request_of(samples: int) -> DecodingRequest:
    return DecodingRequest(
        prompt=(1,),
        sot_index=0,
        suppress_tokens=(),
        begin_suppress_tokens=(),
        eot=END,
        timestamp_begin=BEGIN,
        no_timestamps=1,
        no_speech=2,
        timestamps=False,
        max_initial_timestamp_index=None,
        max_new_tokens=99,
        temperature=1.0,
        best_of=samples,
        stop_loops=True,
    )
