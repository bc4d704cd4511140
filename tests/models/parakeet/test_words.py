"""Labels to words, words to segments."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oscine.models.parakeet.sequences import Emission
from oscine.models.parakeet.streaming import StreamingDecoder
from oscine.models.parakeet.words import (
    SegmentBuilder,
    Token,
    WordTimer,
    ends_sentence,
    group_words,
    to_tokens,
)
from oscine.options.transcribe import TranscribeOptions
from oscine.text.sentencepiece import SentencePieceTokenizer
from oscine.types import Segment, Word

TOKENIZER = SentencePieceTokenizer.from_pieces(
    ["<unk>", "\u2581so", "\u2581", "5", ".", "me", "\u2581yes", ",", "?", "<0xC3>", "<0xA9>"]
)
UNKNOWN, SO, SPACE, FIVE, STOP, ME, YES, COMMA, ASK, BYTE1, BYTE2 = range(11)


def tokens(*rows: tuple[int, int, int]) -> list[Token]:
    return [Token(id, start, end, 0.5) for id, start, end in rows]


def timed(found: list[Token], *, zero_width_punctuation: bool = True) -> list[Word]:
    timing = WordTimer(TOKENIZER, zero_width_punctuation=zero_width_punctuation)
    return [timing.word(spoken) for spoken in group_words(found, TOKENIZER)]


def nemo_text(ids: list[int], tokenizer: SentencePieceTokenizer) -> str:
    """decode_tokens_to_str_with_strip_punctuation, with extract_punctuation_from_vocab."""
    special = (r"^\[.*\]$", r"^<.*>$", r"^##", "^\u2581", r"^\s*$")
    marks = {
        character
        for name in tokenizer.pieces
        for character in name
        if unicodedata.category(character).startswith("P")
        and not any(re.match(pattern, name) for pattern in special)
    }
    either = "|".join(map(re.escape, marks))
    return (
        re.sub(rf"(\s)({either})", r"\2", tokenizer.decode(ids)) if marks else tokenizer.decode(ids)
    )


def test_emissions_lie_in_the_recording_and_are_text() -> None:
    emissions = [Emission(SO, 1, 2, 0.5), Emission(UNKNOWN, 3, 1, 0.5), Emission(STOP, 4, 4, 0.5)]
    found = to_tokens(emissions, TOKENIZER, first=80, factor=8, limit=130)
    assert found == tokens((SO, 88, 104), (STOP, 112, 130))


def test_words_begin_with_a_space_and_punctuation_takes_no_time() -> None:
    found = timed(
        tokens((ME, 0, 8), (SO, 8, 16), (ME, 16, 24), (COMMA, 32, 48), (SPACE, 56, 56),
               (FIVE, 56, 64), (STOP, 64, 72), (FIVE, 72, 80), (YES, 80, 80), (ASK, 88, 96))
    )  # fmt: skip
    assert [word.word for word in found] == ["me", " some,", " 5.5", " yes?"]
    assert [(w.start, w.end) for w in found] == [(0, 0.08), (0.08, 0.24), (0.56, 0.8), (0.8, 0.8)]


def test_punctuation_of_rnnt_has_its_time_and_words_may_begin_together() -> None:
    rows = (SO, 8, 16), (STOP, 24, 32), (YES, 24, 32), (SO, 28, 30)
    found = timed(tokens(*rows), zero_width_punctuation=False)
    assert [(w.start, w.end) for w in found] == [(0.08, 0.32), (0.24, 0.32), (0.32, 0.32)]
    found = timed(tokens((SO, 24, 32), (YES, 24, 32), (SO, 32, 40)), zero_width_punctuation=False)
    assert [(w.start, w.end) for w in found] == [(0.24, 0.32), (0.24, 0.32), (0.32, 0.4)]


def test_a_space_alone_is_no_word() -> None:
    found = timed(tokens((SO, 0, 8), (SPACE, 8, 16), (SPACE, 16, 24), (YES, 24, 32)))
    assert [(w.word, w.start, w.end) for w in found] == [("so", 0.0, 0.08), ("   yes", 0.08, 0.32)]


MARKS = ". , : ? ! ; \" ” » ) … – — ’ & ؟ ¿ ( _ 。 、 ' -".split()


@pytest.mark.parametrize("space", ["", "\u2581", "alone", "two"])
@pytest.mark.parametrize("mark", MARKS)
def test_every_mark_of_the_vocabulary_belongs_to_the_word_before(mark: str, space: str) -> None:
    """It takes no time with TDT, with a space in front of it or without, and loses that space."""
    names = ["<unk>", "\u2581he", "llo", mark, "\u2581" + mark, "\u2581you", "\u2581", "h" + mark]
    tokenizer = SentencePieceTokenizer.from_pieces(names)
    spaces = {"": 0, "\u2581": 0, "alone": 1, "two": 2}[space]
    found = tokens((1, 0, 16), (2, 16, 32))
    for _ in range(spaces):
        found += tokens((6, found[-1].end, found[-1].end + 16))
    found += tokens((4 if space == "\u2581" else 3, found[-1].end, found[-1].end + 32))
    found += tokens((5, found[-1].end, found[-1].end + 16))
    for zero_width_punctuation in (True, False):
        timing = WordTimer(tokenizer, zero_width_punctuation=zero_width_punctuation)
        words = [timing.word(spoken) for spoken in group_words(found, tokenizer)]
        left = " " if space == "two" else ""  # NeMo drops one
        assert [word.word for word in words] == [f"hello{left}{mark}", " you"]
        assert "".join(word.word for word in words) == nemo_text([t.id for t in found], tokenizer)
        assert words[0].end == (0.32 if zero_width_punctuation else words[1].start)
        assert words[1].start == found[-1].start / 100


@pytest.mark.parametrize("piece", ["[.]", "<.>", "##.", "\u2581.", "x"])
def test_marks_of_special_pieces_do_not_count(piece: str) -> None:
    tokenizer = SentencePieceTokenizer.from_pieces(["<unk>", "\u2581he", "\u2581.", piece])
    assert tokenizer.punctuation == frozenset()
    found = tokens((1, 0, 16), (2, 16, 32))
    timing = WordTimer(tokenizer, zero_width_punctuation=True)
    words = [timing.word(spoken) for spoken in group_words(found, tokenizer)]
    assert [(word.word, word.end) for word in words] == [("he", 0.16), (" .", 0.32)]


def test_a_word_that_begins_with_a_mark_has_no_space_in_front() -> None:
    """As in NeMo's text, though it is a word of its own: a label that is more than a mark."""
    tokenizer = SentencePieceTokenizer.from_pieces(
        ["<unk>", "\u2581he", "\u2581...", "\u2581'tis", "'", "."]
    )
    timing = WordTimer(tokenizer, zero_width_punctuation=True)
    found = tokens((1, 0, 16), (2, 16, 32), (3, 32, 48))
    words = [timing.word(spoken) for spoken in group_words(found, tokenizer)]
    assert [word.word for word in words] == ["he", "...", "'tis"]
    assert [word.end for word in words] == [0.16, 0.32, 0.48]


def test_marks_after_a_border_of_live_chunks_belong_to_the_word_before() -> None:
    """The last word waits for what follows, and so does the one before spaces at the end."""
    tokenizer = SentencePieceTokenizer.from_pieces(["<unk>", "\u2581va", "\u2581", "?", "\u2581?"])
    decoder: Any = object.__new__(StreamingDecoder)
    decoder.tokenizer, decoder.decoded_frames, decoder.subsampling_factor = tokenizer, 0, 8
    for whole in ([1, 2, 3], [1, 2, 2, 3, 1, 4], [2, 1, 4, 3], [4, 1, 2], [1, 1, 2, 3, 2]):
        for cut in range(len(whole) + 1):
            settled, pending = [], []
            for part, final in ((whole[:cut], False), (whole[cut:], True)):
                spoken = group_words(pending + [Token(id, 0, 8, 1.0) for id in part], tokenizer)
                count = decoder.count_final(spoken, final)
                settled += spoken[:count]
                pending = [token for word in spoken[count:] for token in word]
            assert settled == group_words([Token(id, 0, 8, 1.0) for id in whole], tokenizer)


def test_punctuation_without_a_word_before_it_has_its_time() -> None:
    (word,) = timed(tokens((ASK, 8, 16)))
    assert (word.word, word.start, word.end) == ("?", 0.08, 0.16)


def test_bytes_are_one_character_and_probability_is_the_mean() -> None:
    found = [Token(SO, 0, 8, 1.0), Token(BYTE1, 8, 16, 0.5), Token(BYTE2, 16, 24, 0.6)]
    (word,) = timed(found)
    assert word.word == "so\u00e9"
    assert word.probability == pytest.approx(0.7)


@given(st.lists(st.tuples(st.integers(1, 10), st.integers(-5, 20), st.integers(0, 9)), max_size=30))
def test_text_is_that_of_all_labels_and_times_never_fall(rows: list[tuple[int, int, int]]) -> None:
    at, found = 40, []
    for id, step, length in rows:
        at = max(0, at + step)
        found.append(Token(id, at, at + length, 0.5))
    words = timed(found)
    text = "".join(word.word for word in words)
    if not {BYTE1, BYTE2} & {token.id for token in found}:
        assert text == nemo_text([token.id for token in found], TOKENIZER)
    for edges in ([word.start for word in words], [word.end for word in words]):
        assert edges == sorted(edges)
    assert all(word.start <= word.end for word in words)


@pytest.mark.parametrize("text", ["end.", "end!", "end?”", 'end."', "終わり。", "5?)"])
def test_ends_of_sentences(text: str) -> None:
    assert ends_sentence(text)


@pytest.mark.parametrize("text", ["end", "3.5", "end,", "(", "”", ".x"])
def test_what_ends_no_sentence(text: str) -> None:
    assert not ends_sentence(text)


def segments(words: list[tuple[float, float, str]], **rules: Any) -> list[Segment]:
    segmenter = SegmentBuilder(TranscribeOptions.of(**rules), with_words=True)
    found: list[Segment] = []
    for number, (start, end, text) in enumerate(words):
        token = Token(number, round(100 * start), round(100 * end), 0.5)
        found += segmenter.push(Word(start, end, text, 0.5), (token,))
    return [*found, *segmenter.finish()]


WORDS = [
    (0.0, 0.5, "so"), (0.5, 1.0, " it"), (1.0, 1.5, " is."), (1.5, 2.0, " Then"),
    (4.5, 5.0, " and"), (5.0, 36.0, " ooo"), (36.0, 36.5, " now"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rules", "texts"),
    [
        ({}, ["so it is.", " Then", " and", " ooo", " now"]),
        ({"silence_gap": 3.0, "max_duration": 60.0}, ["so it is.", " Then and ooo now"]),
        ({"max_words": 2, "silence_gap": 3.0, "max_duration": float("inf")},
         ["so it", " is.", " Then and", " ooo now"]),
        ({"max_words": 1}, ["so", " it", " is.", " Then", " and", " ooo", " now"]),
        ({"max_duration": 1.0}, ["so it", " is.", " Then", " and", " ooo", " now"]),
    ],
)  # fmt: skip
def test_where_segments_end(rules: dict[str, Any], texts: list[str]) -> None:
    found = segments(WORDS, **rules)
    assert [segment.text for segment in found] == texts
    assert [word for segment in found for word in segment.words or ()] == [
        Word(*row, 0.5) for row in WORDS
    ]
    assert [token for segment in found for token in segment.tokens] == list(range(len(WORDS)))
    for segment in found:
        assert segment.words
        assert (segment.start, segment.end) == (segment.words[0].start, segment.words[-1].end)
        assert segment.seek == round(100 * segment.start)
        assert segment.avg_logprob == pytest.approx(-0.6931, abs=1e-4)


def test_words_are_left_out_where_nobody_wants_them() -> None:
    segmenter = SegmentBuilder(TranscribeOptions(), with_words=False)
    assert list(segmenter.push(Word(0.0, 1.0, "so", 0.0), (Token(SO, 0, 100, 0.0),))) == []
    (segment,) = segmenter.finish()
    assert segment.words is None
    assert segment.avg_logprob > -50
    assert list(segmenter.finish()) == []
