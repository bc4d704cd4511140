"""Vocabularies of tokenizer files, checked entry by entry before anything is made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from oscine.errors import CheckpointError
from oscine.model_files import parse_json

MAX_TOKENS: Final = 1 << 20  # of any one vocabulary, so that ids are below it; Qwen's has 152,000
MAX_LENGTH: Final = 1024  # of a token; of Whisper's the longest has 128 bytes
REMEDY: Final = "fetch it again"


@dataclass(frozen=True, slots=True)
class TokenizerJson:
    """What `tokenizers` wrote: `model` has the vocabulary, checked, and the merges, as they are."""

    vocabulary: dict[str, int]
    added: dict[str, int]
    special: frozenset[int]  # those of `added` that are called so
    model: dict[str, Any]
    settings: dict[str, Any]


def read_tokenizer_json(data: bytes, path: Path) -> TokenizerJson:
    """A tokenizer.json.

    Raises:
        CheckpointError: not JSON, no vocabulary in it, or a token without a text or an id.
    """
    settings = parse_json(path, data)
    model, listed = settings.get("model"), settings.get("added_tokens") or []
    if not isinstance(model, dict) or "vocab" not in model or not isinstance(listed, list):
        raise CheckpointError(path, "not a tokenizer: it holds no vocabulary", REMEDY)
    listed_pieces = model["vocab"]
    if isinstance(
        listed_pieces, list
    ):  # of a unigram model: names and scores in order of their ids
        vocabulary = checked_pairs(listed_pieces, path)
    else:
        vocabulary = checked_ids(listed_pieces, path)
    added: dict[str, int] = {}
    special = set()
    for token in listed:
        if not isinstance(token, dict):
            raise CheckpointError(path, "not a tokenizer: an added token is no object", REMEDY)
        name, id = checked_token(token.get("content"), token.get("id"), path)
        if added.setdefault(name, id) != id:
            raise CheckpointError(path, f"added token {name[:40]!r} has two ids", REMEDY)
        if token.get("special"):
            special.add(id)
    return TokenizerJson(vocabulary, added, frozenset(special), model, settings)


def checked_ids(vocabulary: object, path: Path) -> dict[str, int]:
    """Texts and ids of JSON as such. Raises CheckpointError for anything else."""
    if not isinstance(vocabulary, Mapping):
        raise CheckpointError(path, "not a tokenizer: its vocabulary is no object", REMEDY)
    check_count(len(vocabulary), path)
    return dict(checked_token(name, id, path) for name, id in vocabulary.items())


def checked_pairs(pieces: list[Any], path: Path) -> dict[str, int]:
    """Texts, each beside its score, by id. Raises CheckpointError for anything else."""
    check_count(len(pieces), path)
    if not all(isinstance(piece, list) and len(piece) == 2 for piece in pieces):
        raise CheckpointError(path, "not a tokenizer: its vocabulary is no object", REMEDY)
    return dict(checked_token(name, id, path) for id, (name, _) in enumerate(pieces))


def checked_token(name: object, id: object, path: Path) -> tuple[str, int]:
    """One token's text and id. Raises CheckpointError where they are none."""
    if not isinstance(name, str):
        raise CheckpointError(path, f"not a tokenizer: a token is {str(name)[:40]!r}", REMEDY)
    if type(id) is not int or not 0 <= id < MAX_TOKENS:
        raise CheckpointError(path, f"token {name[:40]!r} has id {str(id)[:40]!r}", REMEDY)
    return name, id


def checked_list(tokens: object, path: Path) -> list[str]:
    """Tokens in the order of their ids. Raises CheckpointError for anything but texts."""
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        raise CheckpointError(path, "not a tokenizer: it is no list of texts", REMEDY)
    check_count(len(tokens), path)
    return tokens


def lines_of(data: bytes, path: Path) -> list[str]:
    """Tokens of a text file, one a line. Raises CheckpointError for what is no UTF-8."""
    check_count(data.count(b"\n"), path)
    try:
        lines = data.decode("utf-8").split("\n")
    except UnicodeDecodeError:
        raise CheckpointError(path, "is not UTF-8", REMEDY) from None
    return lines[:-1] if lines[-1] == "" else lines


def check_count(count: int, path: Path) -> None:
    """Raise CheckpointError for more tokens than any model has."""
    if count > MAX_TOKENS:
        raise CheckpointError(path, f"holds {count} tokens, more than {MAX_TOKENS}")


def check_lengths(tokens: Sequence[str | bytes], path: Path) -> None:
    """Raise CheckpointError for a token that would make a text of any length of one id."""
    longest = max(map(len, tokens), default=0)
    if longest > MAX_LENGTH:
        raise CheckpointError(path, f"holds a token of {longest} bytes, more than {MAX_LENGTH}")
