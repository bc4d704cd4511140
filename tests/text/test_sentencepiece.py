"""Labels to text and back, from every source of labels, and damaged sources."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models

from oscine.errors import CheckpointError
from oscine.models.parakeet.weights import load_weights
from oscine.text.sentencepiece import (
    BYTE,
    CONTROL,
    NORMAL,
    UNKNOWN,
    USER_DEFINED,
    SentencePieceTokenizer,
)
from oscine.text.sentencepiece_loader import load_sentencepiece_tokenizer
from oscine.text.sentencepiece_model import read_sentencepiece_model

FORMATS = Path(__file__).resolve().parents[1] / "goldens" / "parakeet_formats"
HERE = Path("tokenizer.model")


def field(number: int, data: bytes) -> bytes:
    return bytes([number << 3 | 2, len(data)]) + data


def piece(name: str, score: float = 0.0, kind: int = NORMAL) -> bytes:
    body = field(1, name.encode()) + b"\x15" + struct.pack("<f", score) + b"\x18" + bytes([kind])
    return field(1, body)


MERGES = ("\u2581h", "\u2581he", "ll", "\u2581hell", "lo", "\u2581hello")
LETTERS = ("\u2581", "h", "e", "l", "o", "w", "1", "2")


def made(*extra: tuple[str, int], model: bytes = b"\x18\x02", normaliser: str = "") -> bytes:
    """A small model; scores fall with the id, as SentencePiece's trainer leaves them."""
    out = piece("<unk>", 0.0, UNKNOWN)
    for at, name in enumerate((*MERGES, *LETTERS)):
        out += piece(name, -float(at))
    for name, kind in extra:
        out += piece(name, 0.0, kind)
    return out + field(2, model) + field(3, field(1, normaliser.encode()))


def names(pieces: SentencePieceTokenizer, text: str) -> list[str] | None:
    ids = pieces.encode(text)
    return None if ids is None else [pieces.pieces[id] for id in ids]


def test_spaces_are_where_words_begin() -> None:
    pieces = SentencePieceTokenizer.from_pieces(
        ["<unk>", "\u2581he", "llo", "\u2581", "you", ".", "<|en|>", "<pad>"]
    )
    assert pieces.decode([1, 2, 3, 4, 5]) == "hello you."
    assert pieces.decode([2, 1]) == "llo he"
    assert pieces.decode([3, 3, 4]) == " you"  # one space is taken away, no more
    assert pieces.decode([0, 6, 7, 1, 99, -1]) == "he"
    assert pieces.decode([]) == ""
    assert [pieces.starts_word(id) for id in range(9)] == [False, True, False, True, *[False] * 5]
    assert [pieces.is_control(id) for id in (-1, *range(9))] == (
        [True, True, False, False, False, False, False, True, True, True]
    )
    assert (
        pieces.piece_text(1) == " he"
        and pieces.piece_text(2) == "llo"
        and pieces.piece_text(6) == ""
    )


def test_digits_of_the_users_are_text_and_control_words_are_not() -> None:
    pieces = read_sentencepiece_model(
        made(("7", USER_DEFINED), ("<|de|>", USER_DEFINED), ("<s>", CONTROL)), HERE
    )
    first = len(pieces) - 3
    assert [pieces.is_control(first + i) for i in range(3)] == [False, True, True]
    assert pieces.decode([first, first + 1, first + 2, first]) == "77"


def test_bytes_are_characters_together() -> None:
    extra = [(f"<0x{byte:02X}>", BYTE) for byte in range(256)]
    pieces = read_sentencepiece_model(made(*extra), HERE)
    zero = len(pieces) - 256
    euro = [zero + byte for byte in "€".encode()]
    assert pieces.decode(euro) == "€"
    assert pieces.decode([*euro, 7, *euro[:2]]) == "€ "  # a cut character leaves nothing
    assert pieces.decode(euro[1:]) == ""
    assert names(pieces, "€") == ["\u2581", "<0xE2>", "<0x82>", "<0xAC>"]
    assert pieces.piece_text(euro[0]) == ""


def test_pairs_merge_by_score_and_the_leftmost_first() -> None:
    pieces = read_sentencepiece_model(made(), HERE)
    assert names(pieces, "hello") == ["\u2581hello"]
    assert names(pieces, "llo") == ["\u2581", "ll", "o"]  # "ll" comes before "lo"
    assert names(pieces, "  hello   lo ") == ["\u2581hello", "\u2581", "lo"]
    assert names(pieces, "lll") == ["\u2581", "ll", "l"]
    assert pieces.encode("") == () == pieces.encode("  ")
    assert pieces.encode("hellö") is None


def test_the_users_pieces_are_never_merged() -> None:
    pieces = read_sentencepiece_model(made(("12", USER_DEFINED), ("h", USER_DEFINED)), HERE)
    assert names(pieces, "1212 hell") == (["\u2581", "12", "12", "\u2581", "h", "e", "ll"])


def test_compatibility_forms_are_normalised_where_the_model_was_trained_so() -> None:
    plain, normalised = (
        read_sentencepiece_model(made(normaliser=name), HERE) for name in ("identity", "nmt_nfkc")
    )
    assert plain.encode("ｈｅ") is None
    assert names(normalised, "ｈｅ") == ["\u2581he"]


UNIGRAM, WORD, CHARACTER = b"\x18\x01", b"\x18\x03", b"\x18\x04"


def scored(model: bytes, *pieces: tuple[str, float, int]) -> SentencePieceTokenizer:
    """A model of these pieces; the unknown one is the first."""
    data = piece("<unk>", 0.0, UNKNOWN) + b"".join(piece(*one) for one in pieces)
    return read_sentencepiece_model(data + field(2, model), HERE)


def test_unigram_takes_the_pieces_of_the_highest_sum() -> None:
    names_of = ("\u2581", "h", "e", "l", "o", "\u2581he", "hel", "lo", "llo")
    rows = list(zip(names_of, (-2.0, -3.0, -3.0, -3.0, -3.0, -4.0, -2.0, -2.5, -5.0), strict=True))
    pieces = scored(UNIGRAM, *((name, score, NORMAL) for name, score in rows))
    assert names(pieces, "hello") == ["\u2581", "hel", "lo"]  # -6.5; BPE's way is worse
    assert names(pieces, "he llo") == ["\u2581he", "\u2581", "llo"]
    assert pieces.encode("hex") is None
    user = scored(
        UNIGRAM, *((name, score, NORMAL) for name, score in rows[:5]), ("ell", 0.0, USER_DEFINED)
    )
    assert names(user, "hello") == ["\u2581", "h", "ell", "o"]
    spelled = [(f"<0x{byte:02X}>", 0.0, BYTE) for byte in "ж".encode()]
    with_bytes = scored(UNIGRAM, ("\u2581", -2.0, NORMAL), *spelled)
    assert names(with_bytes, "ж") == ["\u2581", "<0xD0>", "<0xB6>"]
    assert with_bytes.decode(with_bytes.encode("ж") or ()) == "ж"


def test_words_and_characters_are_encoded_as_such() -> None:
    rows = [("\u2581he", -1.0, NORMAL), ("\u2581hello", -2.0, NORMAL), ("llo", -1.0, NORMAL)]
    words = scored(WORD, *rows)
    assert names(words, "hello he") == ["\u2581hello", "\u2581he"]
    assert words.encode("hellohe") is None
    characters = scored(CHARACTER, *((c, -1.0, NORMAL) for c in "\u2581hel"))
    assert names(characters, "he el") == ["\u2581", "h", "e", "\u2581", "e", "l"]
    assert characters.encode("ho") is None
    assert characters.decode(characters.encode("he el") or ()) == "he el"


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.text("abc", min_size=2, max_size=4), st.integers(-90, -1)), max_size=12),
    st.text("abc ", max_size=24),
)
def test_unigram_is_that_of_tokenizers(vocabulary: list[tuple[str, int]], text: str) -> None:
    """Also where the labels come from tokenizer.json; of splits that score alike, any is right."""
    text = " ".join(text.split())
    letters = [(letter, -50 - index / 7) for index, letter in enumerate("\u2581abc")]
    listed = list({name: score for name, score in [*letters, *vocabulary]}.items())
    rows = [
        ("<unk>", 0.0),
        *((name, score + index / 1000) for index, (name, score) in enumerate(listed)),
    ]
    upstream = Tokenizer(models.Unigram(rows, unk_id=0))
    pieces = scored(UNIGRAM, *((name, score, NORMAL) for name, score in rows[1:]))
    spelled = "".join("\u2581" + word for word in text.split())
    ids = pieces.encode(text)
    assert ids is not None
    best = sum(rows[id][1] for id in upstream.encode(spelled).ids)
    packed = {"tokenizer.json": upstream.to_str().encode()}
    found = load_sentencepiece_tokenizer(HERE.parent, packed, None, len(rows), HERE)
    assert found.types[0] == UNKNOWN
    for split in (ids, found.encode(text) or ()):
        assert "".join(rows[id][0] for id in split) == spelled
        assert sum(rows[id][1] for id in split) == pytest.approx(best)


@pytest.fixture(scope="module")
def golden() -> tuple[SentencePieceTokenizer, Tokenizer]:
    tokenizer = load_weights(FORMATS / "hf").tokenizer
    assert tokenizer is not None
    return tokenizer, Tokenizer.from_file(str(FORMATS / "hf" / "tokenizer.json"))


@settings(max_examples=200, deadline=None)
@given(st.text("etaoinshrdlucmfw .,?'-", max_size=30))
def test_encoding_is_that_of_tokenizers(
    golden: tuple[SentencePieceTokenizer, Tokenizer], text: str
) -> None:
    pieces, upstream = golden
    text = " ".join(text.split())
    ids = pieces.encode(text)
    assert ids is not None
    assert list(ids) == upstream.encode(text, add_special_tokens=False).ids
    assert pieces.decode(ids) == text


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 48), max_size=20))
def test_decoding_is_that_of_tokenizers(
    golden: tuple[SentencePieceTokenizer, Tokenizer], ids: list[int]
) -> None:
    pieces, upstream = golden
    assert pieces.decode(ids).strip() == upstream.decode(ids).strip()


@pytest.mark.parametrize("name", ["hf", "model.nemo", "hybrid_gz.nemo", "mlx"])
def test_every_source_of_labels_says_the_same(name: str) -> None:
    pieces, first = (load_weights(FORMATS / n).tokenizer for n in (name, "hf"))
    assert pieces is not None and first is not None
    assert pieces.pieces == first.pieces
    for id in range(len(first)):
        assert pieces.is_control(id) == first.is_control(id)
    for text in ("the the.", "and, in - that?", "it"):
        assert pieces.encode(text) == first.encode(text)


def read(
    folder: Path, count: int, listed: object = None, **packed: bytes
) -> SentencePieceTokenizer:
    files = {name.replace("_", "."): data for name, data in packed.items()}
    return load_sentencepiece_tokenizer(folder, files, listed, count, folder / "weights")


def test_the_best_source_that_fits_is_taken(tmp_path: Path) -> None:
    listed = ["a", "b", "c"]
    assert read(tmp_path, 3, listed).pieces == ("a", "b", "c")
    (tmp_path / "vocab.txt").write_text("x\ny\nz\n")
    assert read(tmp_path, 3).pieces == ("x", "y", "z")
    assert read(tmp_path, 3, listed).pieces == ("a", "b", "c")
    (tmp_path / "tokenizer.model").write_bytes(piece("q") * 3 + field(2, b"\x18\x02"))
    assert read(tmp_path, 3, listed).pieces == ("q", "q", "q")
    assert (
        read(tmp_path, 3, tokenizer_model=piece("p") * 3 + field(2, b"\x18\x02")).pieces[0] == "p"
    )
    with pytest.raises(CheckpointError, match=r"tokenizer.model has 3 labels.* the network 4"):
        read(tmp_path, 4)


def test_a_checkpoint_without_labels_says_what_to_add(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no labels; put tokenizer\.model"):
        read(tmp_path, 3)
    with pytest.raises(CheckpointError, match="not a list of strings"):
        read(tmp_path, 3, ["a", 2, "c"])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x0a",
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x0a\x7f" + b"x" * 20,
        b"\x0b",
        b"\x15\x00",
        field(1, field(1, b"\xff\xfe")),
        field(1, field(1, b"a") + b"\x18\x09"),
        made(model=b"\x18\x05"),
    ],
)
def test_damaged_models_are_refused_in_one_line(data: bytes) -> None:
    with pytest.raises(CheckpointError) as caught:
        read_sentencepiece_model(data, HERE)
    assert str(caught.value).startswith("tokenizer.model: ") and "\n" not in str(caught.value)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 400), st.binary(min_size=1, max_size=6))
def test_random_damage_is_read_or_refused(at: int, put: bytes) -> None:
    data = bytearray(made(("<0x41>", BYTE)))
    data[at : at + len(put)] = put
    try:
        pieces = read_sentencepiece_model(bytes(data), HERE)
    except CheckpointError:
        return
    pieces.encode("hello 12")
    pieces.decode(range(-1, len(pieces) + 1))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'{"model": {}}',
        b'{"model": {"vocab": ["a"], "merges": []}}',
        b'{"model": {"vocab": [["a", "b"]]}}',
        b'{"model": {"vocab": [["a", NaN]]}}',
        b'{"model": {"vocab": [["a", 0]], "unk_id": 1}}',
        b'{"model": {"vocab": [["a", 1' + b"0" * 400 + b']], "unk_id": 0}}',
        b'{"model": {"vocab": {"a": 0}, "merges": [["a"]]}}',
        b'{"model": {"vocab": {"a": 0}, "merges": []}, "added_tokens": [1]}',
        b"[" * 100_000,
    ],
)
def test_damaged_json_is_refused_in_one_line(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "tokenizer.json").write_bytes(data)
    with pytest.raises(CheckpointError) as caught:
        read(tmp_path, 1)
    assert re.search(
        r"tokenizer\.json: (not a tokenizer|is not valid JSON|holds no)", str(caught.value)
    )
    assert "\n" not in str(caught.value)


def test_a_json_with_a_hole_has_the_labels_before_it(tmp_path: Path) -> None:
    settings = {"model": {"vocab": {"a": 0, "c": 2}, "merges": []}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(settings))
    with pytest.raises(CheckpointError, match=r"tokenizer\.json has 1 labels, the network 3"):
        read(tmp_path, 3)
