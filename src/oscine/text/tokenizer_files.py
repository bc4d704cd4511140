"""Reads tokenizer files and checks every entry before it is used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from oscine.errors import CheckpointError
from oscine.model_files import parse_json

MAX_TOKENS: Final = 1 << 20  # of a vocabulary, so that all ids are smaller; Qwen's has 152,000
MAX_TOKEN_LENGTH: Final = 1024  # of a token; Whisper's longest has 128 bytes
REMEDY: Final = "fetch it again"


@dataclass(frozen=True, slots=True)
class TokenizerJson:
    """A tokenizer.json of the library tokenizers.

    `model`: the BPE or unigram model, with its merges unchecked. `settings`: the whole file.
    """

    vocab: dict[str, int]
    added_tokens: dict[str, int]
    special_ids: frozenset[int]  # ids of added tokens marked as special
    model: dict[str, Any]
    settings: dict[str, Any]


def read_tokenizer_json(data: bytes, path: Path) -> TokenizerJson:
    """Read a tokenizer.json.

    Raises:
        CheckpointError: not JSON, no vocabulary in it, or a token without a text or an id.
    """
    settings = parse_json(path, data)
    model, listed = settings.get("model"), settings.get("added_tokens") or []
    if not isinstance(model, dict) or "vocab" not in model or not isinstance(listed, list):
        raise CheckpointError(path, "not a tokenizer: it has no vocabulary", REMEDY)
    listed_pieces = model["vocab"]
    if isinstance(listed_pieces, list):  # a unigram model: pieces and scores in order of their ids
        vocabulary = check_unigram_vocab(listed_pieces, path)
    else:
        vocabulary = check_vocab(listed_pieces, path)
    added: dict[str, int] = {}
    special = set()
    for token in listed:
        if not isinstance(token, dict):
            raise CheckpointError(path, "not a tokenizer: an added token is not an object", REMEDY)
        name, id = check_token(token.get("content"), token.get("id"), path)
        if added.setdefault(name, id) != id:
            raise CheckpointError(path, f"added token {name[:40]!r} has two ids", REMEDY)
        if token.get("special"):
            special.add(id)
    return TokenizerJson(vocabulary, added, frozenset(special), model, settings)


def check_vocab(vocabulary: object, path: Path) -> dict[str, int]:
    """Token texts and ids from JSON. Raises CheckpointError for anything else."""
    if not isinstance(vocabulary, Mapping):
        raise CheckpointError(path, "not a tokenizer: its vocabulary is not an object", REMEDY)
    check_token_count(len(vocabulary), path)
    return dict(check_token(name, id, path) for name, id in vocabulary.items())


def check_unigram_vocab(pieces: list[Any], path: Path) -> dict[str, int]:
    """Ids of a unigram model's pieces, a list of [text, score]. Raises CheckpointError for anything
    else.
    """
    check_token_count(len(pieces), path)
    if not all(isinstance(piece, list) and len(piece) == 2 for piece in pieces):
        raise CheckpointError(path, "not a tokenizer: its vocabulary is not an object", REMEDY)
    return dict(check_token(name, id, path) for id, (name, _) in enumerate(pieces))


def check_token(name: object, id: object, path: Path) -> tuple[str, int]:
    """A token's text and id. Raises CheckpointError for another type or an id that is too large."""
    if not isinstance(name, str):
        raise CheckpointError(path, f"not a tokenizer: a token is {str(name)[:40]!r}", REMEDY)
    if type(id) is not int or not 0 <= id < MAX_TOKENS:
        raise CheckpointError(path, f"token {name[:40]!r} has id {str(id)[:40]!r}", REMEDY)
    return name, id


def check_token_list(tokens: object, path: Path) -> list[str]:
    """Tokens in the order of their ids. Raises CheckpointError for anything but a list of str."""
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        raise CheckpointError(path, "not a tokenizer: it is not a list of strings", REMEDY)
    check_token_count(len(tokens), path)
    return tokens


def read_token_lines(data: bytes, path: Path) -> list[str]:
    """Tokens of a text file, one a line. Raises CheckpointError if it is not UTF-8."""
    check_token_count(data.count(b"\n"), path)
    try:
        lines = data.decode("utf-8").split("\n")
    except UnicodeDecodeError:
        raise CheckpointError(path, "is not UTF-8", REMEDY) from None
    return lines[:-1] if lines[-1] == "" else lines


def check_token_count(count: int, path: Path) -> None:
    """Raise CheckpointError for more tokens than any model has."""
    if count > MAX_TOKENS:
        raise CheckpointError(path, f"has {count} tokens, more than {MAX_TOKENS}")


def check_token_lengths(tokens: Sequence[str | bytes], path: Path) -> None:
    """Raise CheckpointError for a token so long that one id would be an arbitrarily long text."""
    longest = max(map(len, tokens), default=0)
    if longest > MAX_TOKEN_LENGTH:
        raise CheckpointError(path, f"has a token of {longest} bytes, more than {MAX_TOKEN_LENGTH}")
