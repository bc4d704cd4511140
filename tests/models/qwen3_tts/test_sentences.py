"""Where texts are cut for speaking: sentences of ten languages, and what holds for any text."""

from __future__ import annotations

import os
import subprocess
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oscine.models.qwen3_tts.sentences import (
    CLAUSE_PAUSE_S,
    MAX_LETTERS,
    PARAGRAPH_PAUSE_S,
    SENTENCE_PAUSE_S,
    TARGET_LETTERS,
    count_letters,
    split_sentences,
    stream_sentences,
)


def sentences(text: str) -> list[str]:
    return [piece.text for piece in stream_sentences([text])]


#: One sentence a line.
LINES = {
    "english": """
        Hello there, how are you?
        Dr. Smith paid $3.50 at 5 p.m. on Jan. 3, didn't he?
        "Really?" she asked.
        He met J. K. Rowling in the U.S. Army, i.e. Not at home.
        Wait... what?
        Yes!
        Visit www.example.com or write to a.b@example.com today.
        (It rained.)
        “Stop!”
        Version 2.0.1 is out.""",
    "german": """
        Wir treffen uns am 3. Oktober um 8.30 Uhr bei Prof. Meier.
        Das kostet z. B. 1.000 Euro, d.h. Viel.
        „Komm!“, rief er.
        »Nein.«
        Ach so…
        Gut.""",
    "french": """
        M. Dupont est là !
        Vraiment ?
        « Oui. »
        Il arrive, p.ex. demain.""",
    "spanish": """
        ¿Cómo está, Sra. López?
        ¡Muy bien!
        El núm. 5 no está.
        Adiós.""",
    "italian": """
        Il sig. Rossi ha 42 anni.
        Davvero?
        Sì, certo.""",
    "portuguese": """
        O Sr. Silva chegou às 10.30.
        Não é?
        Então vamos.""",
    "russian": """
        В 2020 г. Москва выросла.
        Это стоило 5 тыс. рублей, т.е. немного.
        «Да!»
        Он ушёл…""",
    "korean": """
        안녕하세요.
        오늘 날씨가 3.5도예요!
        정말요?
        네.""",
}
TOGETHER = {
    "chinese": [
        "你好！",
        "今天是2.5度。",
        "“真的吗？”",
        "她说：“走吧。”，然后走了。",
        "好……",
        "嗯？",
    ],
    "japanese": [
        "こんにちは。",
        "「はい。」と言った。",
        "本当ですか？",
        "「行こう！」",
        "３．５度です。",
    ],
}


@pytest.mark.parametrize("language", LINES)
def test_sentences(language: str) -> None:
    expected = [line.strip() for line in LINES[language].strip().splitlines()]
    assert sentences(" ".join(expected)) == expected


@pytest.mark.parametrize("language", TOGETHER)
def test_sentences_without_spaces(language: str) -> None:
    expected = TOGETHER[language]
    assert sentences("".join(expected)) == expected


def test_lines_and_lists() -> None:
    text = "A title\n\nfirst line\nof a paragraph. Second\n- one\n- two\n1. three\n\n\nlast"
    expected = ["A title", "first line\nof a paragraph.", "Second", "- one", "- two", "1. three"]
    found = list(stream_sentences([text]))
    assert [piece.text for piece in found] == [*expected, "last"]
    assert [piece.pause_s for piece in found[:3]] == [0.0, PARAGRAPH_PAUSE_S, SENTENCE_PAUSE_S]
    assert [piece.pause_s for piece in found[3:]] == [SENTENCE_PAUSE_S] * 3 + [PARAGRAPH_PAUSE_S]


def test_mixed_scripts() -> None:
    assert sentences("OK!你好。Good. 再见") == ["OK!", "你好。", "Good.", "再见"]


def test_sentences_go_together_up_to_the_limit_but_not_across_a_blank_line() -> None:
    text = "One two three. " * 40
    found = split_sentences(text)
    assert 1 < len(found) < 10
    assert all(
        0.8 * TARGET_LETTERS < count_letters(piece.text) <= TARGET_LETTERS for piece in found[:-1]
    )
    assert [piece.text for piece in split_sentences("A b. C d.\n\nE f.")] == ["A b. C d.", "E f."]


def test_long_sentences_are_cut_at_clauses_then_at_words() -> None:
    clause = "and then the rain came down upon the roofs of the town"
    found = split_sentences(", ".join([clause] * 12) + ".")
    assert len(found) > 2
    assert all(piece.text.endswith(",") for piece in found[:-1])
    assert all(piece.pause_s == CLAUSE_PAUSE_S for piece in found)
    words = split_sentences("word " * 300)
    assert all(set(piece.text.split()) == {"word"} for piece in words)
    chinese = split_sentences("我们走过了很长的路，" * 30)
    assert all(piece.text.endswith("，") for piece in chinese)
    assert max(count_letters(piece.text) for piece in [*found, *words, *chinese]) <= MAX_LETTERS


def test_a_thousand_characters_without_a_space_are_cut_somewhere() -> None:
    assert len(split_sentences("字" * 1000)) > 10
    assert len(split_sentences("x" * 1000)) == 5
    inside = split_sentences(("语" * 70 + "GPU") * 9)
    assert not any(piece.text.endswith(("G", "GP")) for piece in inside)


@pytest.mark.parametrize(
    "character", ["e\u0301", "👩‍👩‍👧", "🇩🇪", "👍🏽", "각", "각", "🏴\U000e0067\U000e007f"]
)
def test_never_inside_what_is_one_character_to_a_reader(character: str) -> None:
    whole = character * 900
    for piece in split_sentences(whole):
        assert piece.text == character * (len(piece.text) // len(character))


def test_what_has_nothing_to_say_ends_no_sentence() -> None:
    assert sentences("... ! Hello.") == ["... ! Hello."]
    assert split_sentences("  \n ") == []


TEXTS = st.text(
    st.one_of(st.sampled_from(list(" \n.!?…。！？，,;:\"'”」（)-•1aAäЯя字は안 ")), st.characters()),
    max_size=700,
)


@given(TEXTS)
def test_pieces_are_the_text_but_for_white_space(text: str) -> None:
    for found in (split_sentences(text), list(stream_sentences([text]))):
        joined = "".join(piece.whitespace + piece.text for piece in found)
        assert text.startswith(joined) and not text[len(joined) :].strip()
        assert all(piece.text == piece.text.strip() != "" for piece in found)
        assert all(
            count_letters(piece.text) <= MAX_LETTERS + 4 for piece in found if not odd(piece.text)
        )


def odd(text: str) -> bool:
    """Whether it has characters that may follow another without end."""
    return any(unicodedata.category(character)[0] in "MC" for character in text)


@given(TEXTS, st.data())
def test_how_a_text_comes_does_not_change_its_sentences(text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    parts = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert list(stream_sentences(parts)) == list(stream_sentences([text]))


def test_sentences_come_as_soon_as_they_are_whole() -> None:
    read: list[str] = []

    def written() -> object:
        for part in ("Hello the", "re. H", "ow are you? I", " am well."):
            read.append(part)
            yield part

    stream = stream_sentences(written())  # type: ignore[arg-type]
    assert next(stream).text == "Hello there." and len(read) == 2
    assert next(stream).text == "How are you?" and len(read) == 3
    assert next(stream).text == "I am well."


@pytest.mark.parametrize(
    ("parts", "known"),
    [
        (["Hello there.", " ", "N", "ext one."], 3),  # a mark within a line: by the next character
        (["好。", "再", "见。"], 2),
        (["Hello there", "\n", "and more", "\n", "\n", "Last."], 5),  # no mark: an empty line
    ],
)
def test_what_shows_that_a_sentence_is_over(parts: list[str], known: int) -> None:
    read: list[str] = []

    def typed() -> object:
        for part in parts:
            read.append(part)
            yield part

    next(stream_sentences(typed()))  # type: ignore[arg-type]
    assert len(read) == known


@pytest.mark.parametrize("line", ["Hello there.", "Is it so?", "“Go!”", "好。", "And so…"])
def test_a_sentence_at_the_end_of_its_line_does_not_wait_for_the_next(line: str) -> None:
    read: list[str] = []

    def typed() -> object:
        for part in (line, "\n", "and so on.\n", "\nNew paragraph.\n", "Met Dr.\n", "Who?\n"):
            read.append(part)
            yield part

    stream = stream_sentences(typed())  # type: ignore[arg-type]
    assert next(stream).text == line and len(read) == 2
    assert next(stream).text == "and so on." and len(read) == 3
    later = next(stream)
    assert (later.text, later.pause_s, len(read)) == ("New paragraph.", PARAGRAPH_PAUSE_S, 4)
    assert next(stream).text == "Met Dr.\nWho?" and len(read) == 6
    assert list(stream) == []


FLAG = "\U0001f1e9"
#: Texts that are one thing repeated.
KINDS = [
    FLAG, FLAG * 3 + " ", "a", " ", "\n", "\r\n", "\u3000", ".", ". ", "…", "字", "。", "\u200d",
    "a\u0301", "\u0301", "\u1100", "1.", "1. a\n", "Dr. ", '"', "(", "- ", "a-", ", ", '."', "\n. ",
    "\U000e0061", "\U0001f3fb", "\x01", "Is it? ", '"Yes." ',
]  # fmt: skip
LINEAR = """
import sys
from oscine.models.qwen3_tts.sentences import stream_sentences, split_sentences
for kind in eval(sys.stdin.read()):
    for before, size in (("", int(sys.argv[1])), ("a", 5000)):
        text = before + kind * (size // len(kind))
        joined = "".join(p.whitespace + p.text for p in split_sentences(text))
        assert joined.rstrip() == text.rstrip()
for mark in ".…。":
    for text in (mark * 600_000 + "a", "a" + mark * 600_000):
        assert "".join(p.whitespace + p.text for p in split_sentences(text)) == text
blank = " \\n" * 100_000  # bit by bit: only white space could be looked at time and again
assert [p.text for p in stream_sentences(iter("Hi." + blank + "You."))] == ["Hi.", "You."]
"""


def test_no_text_takes_more_than_its_length() -> None:
    """What looks back over all of it takes minutes with the long ones."""
    for kinds, size in ((KINDS[:2], "300000"), (KINDS[2:], "20000")):
        subprocess.run(
            [sys.executable, "-c", LINEAR, size], input=repr(kinds), check=True, timeout=60,
            encoding="utf-8", env={**os.environ, "PYTHONUTF8": "1"},
        )  # fmt: skip
