"""Whisper's byte-level BPE tokenizer, read from any of the files beside the weights.

A vocabulary is a list of byte strings; a token's id is its rank. Encoding needs no more (OpenAI
publishes its vocabularies this way), so one reader serves tokenizer.json, vocab.json, CTranslate2's
vocabulary files and ggml's raw bytes. Source: whisper/tokenizer.py, and tiktoken's _educational.py
for merging by rank.
"""

from __future__ import annotations

import os
import re
import unicodedata
from codecs import utf_8_decode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import accumulate
from pathlib import Path

from oscine.errors import CheckpointError
from oscine.model_files import parse_json, parse_value, read_json, small_file
from oscine.text.bpe import bpe_merge
from oscine.text.tokenizer_files import (
    REMEDY,
    check_token_lengths,
    check_token_list,
    check_vocab,
    read_token_lines,
    read_tokenizer_json,
)

END_OF_TEXT = "<|endoftext|>"
_CONTRACTION_PATTERN = re.compile("'(?:s|t|re|ve|m|ll|d)")
_CHARACTER_RUN_PATTERN = re.compile(r" ?L+| ?N+| ?P+|[ S]+(?![LNP])|[ S]+")  # of character classes
SECONDS_PER_TIMESTAMP = 0.02
TOKENIZER_FILES = ("tokenizer.json", "vocab.json", "vocabulary.json", "vocabulary.txt")


class WhisperTokenizer:
    """Text to ids and back. Raises CheckpointError for a token that is longer than any model's.

    `token_bytes[id]`: the bytes of each text token; ids from `eot` on are special.
    `special_tokens`: those that the vocabulary names, with their ids; it may lack timestamps, or be
    empty (ggml).
    """

    def __init__(
        self, token_bytes: Iterable[bytes], special_tokens: Mapping[str, int], path: Path
    ) -> None:
        self.token_bytes = tuple(token_bytes)
        self.special_tokens = dict(special_tokens)
        self.path = path
        check_token_lengths(self.token_bytes, path)

    @property
    def eot(self) -> int:
        """The id of <|endoftext|>, the first that is not text."""
        return len(self.token_bytes)

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of `text`; special tokens in it are encoded as plain text."""
        return tuple(
            id for word in pretokenize(text) for id in bpe_encode(word, self._ranks, self.path)
        )

    def decode(self, ids: Iterable[int]) -> str:
        """Text of the text tokens among `ids`; invalid UTF-8 becomes U+FFFD."""
        return self._bytes(ids).decode("utf-8", "replace")

    def decode_parts(self, parts: Iterable[Iterable[int]]) -> list[str]:
        """Texts of consecutive parts of one token sequence.

        A character that is split between parts belongs to the later one, and is dropped if its rest
        is missing, so that U+FFFD appears only for invalid bytes.
        """
        texts, incomplete = [], b""
        for part in parts:
            data = self._bytes(part)
            joined, _ = utf_8_decode((incomplete + data)[:4], "replace", False)
            if not joined.startswith("\ufffd"):
                data = incomplete + data
            text, used = utf_8_decode(data, "replace", False)
            incomplete = data[used:]
            texts.append(text)
        return texts

    def decode_with_timestamps(self, ids: Iterable[int], timestamp_begin: int) -> str:
        """Like `decode`, with special tokens by name and timestamps as <|1.08|>."""
        names = {id: name for name, id in self.special_tokens.items()}
        out = b""
        for id in ids:
            if id < self.eot:
                out += self.token_bytes[id]
            elif id >= timestamp_begin:
                seconds = (id - timestamp_begin) * SECONDS_PER_TIMESTAMP
                out += f"<|{seconds:.2f}|>".encode()
            else:
                out += names.get(id, f"<|{id}|>").encode()
        return out.decode("utf-8", "replace")

    def _bytes(self, ids: Iterable[int]) -> bytes:
        return b"".join(self.token_bytes[id] for id in ids if id < self.eot)

    @cached_property
    def _ranks(self) -> dict[bytes, int]:
        return {piece: id for id, piece in reversed(list(enumerate(self.token_bytes))) if piece}


def load_tokenizer(
    folder: Path,
    vocabulary: Sequence[bytes] | None = None,
    fallback: Callable[[], Path] | None = None,
) -> WhisperTokenizer:
    """Read the tokenizer of a checkpoint.

    `vocabulary`: the raw tokens of a ggml file, which override files beside it. `fallback`: returns
    a folder with a tokenizer, called if `folder` has none. Raises CheckpointError if there is none,
    or if it is damaged.
    """
    if vocabulary is not None:
        return _from_token_bytes(vocabulary, folder)
    path = _find_tokenizer_file(folder)
    if path is None and fallback is not None:
        path = _find_tokenizer_file(fallback())
    if path is None:
        raise CheckpointError(
            folder, "no tokenizer", f"put one of {', '.join(TOKENIZER_FILES)} beside the weights"
        )
    return _from_vocab(_read_vocabulary(path), path)


def _find_tokenizer_file(folder: Path) -> Path | None:
    return next((folder / name for name in TOKENIZER_FILES if os.path.isfile(folder / name)), None)


def _read_vocabulary(path: Path) -> dict[str, int]:
    """Token text (byte-unicode form) to id, special tokens included."""
    data = small_file(path)
    if data is None:
        raise CheckpointError(path, "no such file", "fetch the whole folder")
    if path.suffix == ".txt":
        return _first_index(read_token_lines(data, path))
    if path.name == "tokenizer.json":
        tokenizer = read_tokenizer_json(data, path)
        return tokenizer.vocab | tokenizer.added_tokens
    if path.name == "vocabulary.json":
        return _first_index(check_token_list(parse_value(path, data), path))
    added = path.with_name("added_tokens.json")
    return check_vocab(parse_json(path, data), path) | check_vocab(read_json(added), added)


def _first_index(tokens: Sequence[str]) -> dict[str, int]:
    return {token: id for id, token in reversed(list(enumerate(tokens)))}


def _from_vocab(ids: Mapping[str, int], path: Path) -> WhisperTokenizer:
    if END_OF_TEXT not in ids:
        raise CheckpointError(path, f"no {END_OF_TEXT} in the vocabulary")
    end = ids[END_OF_TEXT]
    texts: dict[int, str] = {}
    for token, id in ids.items():
        if id < end and texts.setdefault(id, token) != token:
            problem = f"tokens {texts[id][:40]!r} and {token[:40]!r} have one id, {id}"
            raise CheckpointError(path, problem, REMEDY)
    last = end - 1  # may be missing: the empty string of multilingual vocabularies
    hole = next((id for id in range(last) if id not in texts), None)
    if hole is not None:
        missing = last - len(texts.keys() - {last})
        raise CheckpointError(path, f"no token has id {hole} ({missing} are missing)")
    special = {token: id for token, id in ids.items() if id >= end}
    return WhisperTokenizer(
        token_bytes([texts.get(id, "") for id in range(end)], path), special, path
    )


def token_bytes(texts: Sequence[str], path: Path) -> Iterator[bytes]:
    """The bytes of byte-unicode texts; all are translated at once, for speed."""
    joined = "".join(texts)
    table = unicode_to_byte()
    if strays := set(joined) - table.keys():
        raise CheckpointError(path, f"not a tokenizer: {min(strays)!r} is not a byte", REMEDY)
    places = {ord(character): byte for character, byte in table.items()}
    data = joined.translate(places).encode("latin-1")
    ends = accumulate(map(len, texts))
    return (data[end - len(text) : end] for text, end in zip(texts, ends, strict=True))


def _from_token_bytes(vocabulary: Sequence[bytes], path: Path) -> WhisperTokenizer:
    end = END_OF_TEXT.encode()
    pieces = list(vocabulary)
    return WhisperTokenizer(pieces[: pieces.index(end)] if end in pieces else pieces, {}, path)


@lru_cache(maxsize=1)
def unicode_to_byte() -> dict[str, int]:
    """GPT-2's printable characters for the 256 bytes (openai/gpt-2, encoder.py)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if byte not in set(printable))
    return table | {chr(256 + place): byte for place, byte in enumerate(others)}


def pretokenize(text: str) -> list[bytes]:
    """GPT-2's split before merging, by a pattern over the kinds of characters.

    Source: openai/gpt-2, src/encoder.py: `'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+|
    ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+`, whose classes `re` does not have.
    """
    kinds = "".join(map(_character_class, text))
    words, at = [], 0
    while at < len(text):
        found = _CONTRACTION_PATTERN.match(text, at) or _CHARACTER_RUN_PATTERN.match(kinds, at)
        assert found is not None  # every kind is in the pattern
        words.append(text[at : found.end()].encode())
        at = found.end()
    return words


def _character_class(character: str) -> str:
    """L for letters, N for numbers, S for white space other than a space, P for all others."""
    if character == " ":
        return character
    if character.isspace() and not "\x1c" <= character <= "\x1f":  # white space in Python only
        return "S"
    category = unicodedata.category(character)[0]
    return category if category in "LN" else "P"


def bpe_encode(word: bytes, ranks: Mapping[bytes, int], path: Path) -> list[int]:
    """Ids of a word: pairs of lowest rank are merged until none is in the vocabulary."""
    parts = bpe_merge([word[at : at + 1] for at in range(len(word))], ranks)
    unknown = next((part for part in parts if part not in ranks), None)
    if unknown is not None:
        raise CheckpointError(path, f"the vocabulary has no token for the byte {unknown!r}")
    return [ranks[part] for part in parts]
