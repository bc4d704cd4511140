"""Two pieces of one recording become one sequence of words."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from oscine.models.parakeet.merge import Candidate, match_words, merge_words
from oscine.models.parakeet.words import WordTokens

from .conftest import COMMA, GO_ON, STOP, TOKENIZER, said

Sequence = list[WordTokens]


def ids(words: Sequence) -> list[list[int]]:
    return [[token.id for token in word] for word in words]


@st.composite
def speech(draw: st.DrawFn) -> Sequence:
    """Words of one to three labels, some of them the same, with pauses."""
    at, words = 0, []
    for _ in range(draw(st.integers(8, 40))):
        at += 8 * draw(st.integers(0, 12))
        more = draw(st.sampled_from([(), (GO_ON,), (STOP,), (GO_ON, COMMA)]))
        words.append(said(draw(st.integers(0, 9)), at, *more))
        at = words[-1][-1].end
    return words


def moved(word: WordTokens, frames: int) -> WordTokens:
    return said(word[0].id // 2, word[0].start + frames, *(token.id for token in word[1:]))


@settings(max_examples=300)
@given(speech(), st.integers(0, 5), st.integers(0, 5), st.data())
def test_words_at_the_ends_of_pieces_may_be_wrong(
    words: Sequence, lost: int, wrong: int, data: st.DataObject
) -> None:
    """A recording's words, of which each piece has some: they all come out, none twice."""
    count = len(words)
    first = data.draw(st.integers(1, count - 4), "first word of the overlap")
    last = data.draw(st.integers(first + 3, count), "word after the overlap")
    start, stop = words[first][0].start, words[last - 1][-1].end
    # Of the words in the overlap one at least is heard right by both.
    room = last - first - 1
    bad_tail = min(lost, room // 2)
    bad_head = min(wrong, room - bad_tail)
    jitter = data.draw(st.sampled_from([0, 8, -8]))
    earlier = [*words[: last - bad_tail]]
    earlier += [said(40 + n, w[0].start) for n, w in enumerate(words[last - bad_tail : last])]
    later = [said(30 + n, w[0].start) for n, w in enumerate(words[first : first + bad_head])]
    later += [moved(word, jitter) for word in words[first + bad_head :]]
    kept, rest = merge_words(earlier, later, start, stop, TOKENIZER)
    assert ids(kept + rest) == ids(words)


@given(speech(), speech(), st.integers(0, 2000), st.integers(0, 2000))
def test_no_word_is_cut_and_both_sides_are_in_order(
    earlier: Sequence, later: Sequence, start: int, length: int
) -> None:
    kept, rest = merge_words(earlier, later, start, start + length, TOKENIZER)
    assert kept == earlier[: len(kept)]
    assert rest == later[len(later) - len(rest) :]


def test_a_capital_at_the_beginning_of_a_piece_does_not_come_through() -> None:
    earlier = [said(1, 0), said(2, 40), said(3, 80), said(4, 120)]
    later = [said(2, 40, capital=True), said(3, 80), said(4, 120), said(5, 160)]
    kept, rest = merge_words(earlier, later, 30, 150, TOKENIZER)
    assert ids(kept + rest) == [[2], [4], [6], [8], [10]]


def test_where_they_have_no_word_in_common_the_seam_lies_in_a_pause() -> None:
    earlier = [said(1, 0), said(2, 100), said(3, 190)]
    later = [said(4, 90), said(5, 128), said(6, 200)]
    kept, rest = merge_words(earlier, later, 80, 210, TOKENIZER)
    assert ids(kept + rest) == [[2], [4], [12]] or ids(kept + rest) == [[2], [4], [10], [12]]


def test_a_piece_without_words_in_the_overlap_takes_them_from_the_other() -> None:
    words = [said(1, 0), said(2, 100), said(3, 140)]
    assert merge_words(words, [said(9, 400)], 90, 200, TOKENIZER) == (words, [said(9, 400)])
    assert merge_words([said(9, 0)], words[1:], 90, 200, TOKENIZER) == ([said(9, 0)], words[1:])
    assert merge_words([], [], 0, 10, TOKENIZER) == ([], [])


@given(speech())
def test_a_sequence_matches_itself(words: Sequence) -> None:
    heard = [Candidate.of(word, TOKENIZER) for word in words]
    assert match_words(heard, heard) == [(n, n) for n in range(len(words))]
