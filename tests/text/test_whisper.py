"""Byte-level BPE against the tokenizers library, and characters that tokens cut."""

from __future__ import annotations

import json
import unicodedata
from itertools import accumulate, pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, pre_tokenizers

from oscine.errors import CheckpointError
from oscine.text.whisper import WhisperTokenizer, load_tokenizer, pretokenize, unicode_to_byte

from ..bounded import run_bounded

BYTE_TO_UNICODE = {byte: character for character, byte in unicode_to_byte().items()}
MERGES = [
    (b" ", b"t"), (b"h", b"e"), (b" t", b"he"), (b"i", b"n"), (b"e", b"r"), (b"\xc3", b"\xa9"),
    (b" ", b"a"), (b"in", b"g"), (b"'", b"s"), (b"\xe6\x97", b"\xa5"), (b"1", b"2"), (b"a", b"a"),
]  # fmt: skip
SPECIAL = ["<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|notimestamps|>"]


def spelled(piece: bytes) -> str:
    return "".join(BYTE_TO_UNICODE[byte] for byte in piece)


# GPT-2's order of bytes, then what merging makes, then the empty string of multilingual models.
PIECES = [
    *(bytes([byte]) for byte in unicode_to_byte().values()),
    b"\xe6\x97",
    *(left + right for left, right in MERGES),
    b"",
]
VOCABULARY = {spelled(piece): id for id, piece in enumerate(PIECES)}
EVERY_ID = VOCABULARY | {name: len(PIECES) + at for at, name in enumerate(SPECIAL)}
TOKENIZER = WhisperTokenizer(PIECES, {}, Path("made up"))


@pytest.fixture(scope="module")
def library() -> Library:
    merges = [(b"\xe6", b"\x97"), *MERGES]
    made = Library(models.BPE(VOCABULARY, [(spelled(a), spelled(b)) for a, b in merges]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return made


@given(text=st.text(st.characters(exclude_categories=["Cs"])) | st.text("thein 'sgéa日12\n"))
def test_encodes_as_the_library_does(library: Library, text: str) -> None:
    ids = TOKENIZER.encode(text)
    assert list(ids) == library.encode(text).ids
    assert TOKENIZER.decode(ids) == text


def test_a_word_of_any_length_is_merged_in_time() -> None:
    code = """
from oscine.text.whisper import WhisperTokenizer
pieces = [bytes([byte]) for byte in range(256)] + [b"ab", b"abab", b"ba"]
ids = WhisperTokenizer(pieces, {}, "made up").encode("ab" * GIVEN)
print(json.dumps({"ids": len(ids), "first": ids[0], "last": ids[-1]}))
"""
    (line,) = run_bounded(code, 100_001, seconds=60)  # quadratic: many minutes
    assert line == {"ids": 50_001, "first": 257, "last": 256}


def test_what_looks_special_is_text() -> None:
    tokenizer = WhisperTokenizer(PIECES, {"<|en|>": len(PIECES) + 2}, Path("made up"))
    ids = tokenizer.encode("<|en|>")
    assert max(ids) < tokenizer.eot
    assert tokenizer.decode(ids) == "<|en|>"


@given(
    text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\ufffd")),
    cuts=st.lists(st.integers(0, 60)),
)
def test_no_part_loses_a_character_that_its_end_cuts(text: str, cuts: list[int]) -> None:
    ids = [PIECES.index(bytes([byte])) for byte in text.encode()]
    places = sorted({0, len(ids), *(cut for cut in cuts if cut < len(ids))})
    parts = [ids[start:end] for start, end in pairwise(places)]
    assert "".join(TOKENIZER.decode_parts(parts)) == text


def test_half_a_character_without_its_rest_is_left_out() -> None:
    half = [PIECES.index(b"a"), PIECES.index(b"\xe6\x97")]
    assert TOKENIZER.decode_parts([half, TOKENIZER.encode("he")]) == ["a", "he"]
    assert TOKENIZER.decode(half) == "a\ufffd"


def test_special_tokens_are_shown_only_on_request() -> None:
    tokenizer = WhisperTokenizer(PIECES, {"<|endoftext|>": len(PIECES)}, Path("made up"))
    begin = len(PIECES) + 9
    ids = [begin + 54, *tokenizer.encode("he"), begin + 1500, tokenizer.eot]
    assert tokenizer.decode(ids) == "he"
    shown = tokenizer.decode_with_timestamps(ids, begin)
    assert shown == "<|1.08|>he<|30.00|><|endoftext|>"


def write_tokenizer_json(folder: Path) -> None:
    added = [{"id": id, "content": name} for name, id in EVERY_ID.items() if name in SPECIAL]
    content = {"model": {"vocab": VOCABULARY}, "added_tokens": added}
    (folder / "tokenizer.json").write_text(json.dumps(content), "utf-8")


def write_vocab_json(folder: Path) -> None:
    added = {name: id for name, id in EVERY_ID.items() if name in SPECIAL}
    (folder / "vocab.json").write_text(json.dumps(VOCABULARY), "utf-8")
    (folder / "added_tokens.json").write_text(json.dumps(added), "utf-8")


def write_vocabulary_json(folder: Path) -> None:
    (folder / "vocabulary.json").write_text(json.dumps(list(EVERY_ID)), "utf-8")


def write_vocabulary_txt(folder: Path) -> None:
    (folder / "vocabulary.txt").write_text("".join(f"{each}\n" for each in EVERY_ID), "utf-8")


@pytest.mark.parametrize(
    "write", [write_tokenizer_json, write_vocab_json, write_vocabulary_json, write_vocabulary_txt]
)
def test_every_kind_of_file_gives_the_same(tmp_path: Path, write: object) -> None:
    write(tmp_path)  # type: ignore[operator]
    tokenizer = load_tokenizer(tmp_path)
    assert list(tokenizer.token_bytes) == PIECES
    assert tokenizer.special_tokens == {name: len(PIECES) + at for at, name in enumerate(SPECIAL)}


@pytest.mark.parametrize("end", [[], [b"<|endoftext|>", b"[_BEG_]"]])
def test_raw_pieces_win_over_files(tmp_path: Path, end: list[bytes]) -> None:
    (tmp_path / "tokenizer.json").write_text("not read")
    assert list(load_tokenizer(tmp_path, [*PIECES, *end]).token_bytes) == PIECES


def test_a_missing_tokenizer_is_asked_for_elsewhere_or_named(tmp_path: Path) -> None:
    bare, other = tmp_path / "bare", tmp_path / "other"
    bare.mkdir(), other.mkdir()
    write_vocabulary_txt(other)
    assert load_tokenizer(bare, fallback=lambda: other).eot == len(PIECES)
    with pytest.raises(CheckpointError, match="no tokenizer; put one of tokenizer"):
        load_tokenizer(bare)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("tokenizer.json", "{", "not valid JSON"),
        ("tokenizer.json", "\ud800" * 5000, "not valid JSON"),
        ("tokenizer.json", '{"model": {}, "added_tokens": []}', "not a tokenizer"),
        ("tokenizer.json", "[]", "holds no JSON object"),
        ("vocab.json", '{"a": 0}', "no <|endoftext|>"),
        ("vocab.json", '{"a": 0, "b": 2, "<|endoftext|>": 4}', "no token has id 1"),
        ("vocab.json", '{"日": 0, "<|endoftext|>": 1}', "not a tokenizer"),
        ("vocabulary.txt", "", "no <|endoftext|>"),
    ],
)
def test_damage_is_named(tmp_path: Path, name: str, content: str, problem: str) -> None:
    (tmp_path / name).write_text(content, "utf-8", "surrogatepass")  # half of a pair is no UTF-8
    with pytest.raises(CheckpointError, match=problem.replace("|", r"\|")) as caught:
        load_tokenizer(tmp_path)
    assert name in str(caught.value)
    assert len(str(caught.value)) < 500  # the file is not printed


def test_a_byte_the_vocabulary_lacks_is_named() -> None:
    with pytest.raises(CheckpointError, match="no token for the byte b'z'"):
        WhisperTokenizer([b"a"], {}, Path("made up")).encode("az")


def test_words_are_split_before_merging() -> None:
    assert pretokenize("I'm here,  now 12") == [
        b"I", b"'m", b" here", b",", b" ", b" now", b" 12"
    ]  # fmt: skip


def by_the_library(text: str) -> list[bytes]:
    table = unicode_to_byte()
    words = pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str(text)
    return [bytes(table[character] for character in word) for word, _ in words]


@given(st.text(st.characters(exclude_categories=["Cs", "Cn"])))
def test_words_are_those_of_the_library(text: str) -> None:
    assert pretokenize(text) == by_the_library(text)


@given(st.text(st.sampled_from("'strevmld ISTLl1½²\t\n\x85\xa0\u2028\x1c-_é日")))
def test_words_of_spaces_and_contractions_are_those_of_the_library(text: str) -> None:
    assert pretokenize(text) == by_the_library(text)


def test_every_character_is_of_the_kind_that_the_library_has_it() -> None:
    """But for those that this Python's or the library's edition of Unicode lacks."""
    known = [chr(code) for code in range(0x110000) if unicodedata.category(chr(code))[0] != "C"]
    text = "".join(f"a{character}1{character}-" for character in [*known, *map(chr, range(160))])
    ours, theirs = pretokenize(text), by_the_library(text)
    assert b"".join(ours) == b"".join(theirs) == text.encode()
    ends, others = set(accumulate(map(len, ours))), set(accumulate(map(len, theirs)))
    assert len(ends ^ others) < 100
