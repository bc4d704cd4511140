"""A reader of tokenizer.model: the few fields of SentencePiece's protobuf that labels need.

Format: google/sentencepiece src/sentencepiece_model.proto; protobuf's wire format. Everything is
bounded by the bytes that are there; fields of no interest are passed over.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from pathlib import Path

from oscine.errors import CheckpointError
from oscine.text.pieces import (
    BYTE,
    CHARACTERS,
    NORMAL,
    UNIGRAM,
    SentencePieceTokenizer,
    kind_of,
    nfkc,
    unchanged,
)
from oscine.text.vocabulary import check_count

_PIECES, _TRAINER, _NORMALISER = 1, 2, 3
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def read_sentencepiece(data: bytes, path: Path) -> SentencePieceTokenizer:
    """The pieces of a model of any of SentencePiece's four types.

    `path` is named in errors. Raises CheckpointError for damaged data and other types.
    """
    names: list[str] = []
    kinds: list[int] = []
    scores: list[float] = []
    normaliser, model = "identity", UNIGRAM  # where it says nothing of its type
    try:
        for number, value in _fields(data):
            if number == _PIECES and isinstance(value, bytes):
                name, score, kind = _piece(value)
                names.append(name)
                scores.append(score)
                kinds.append(kind)
                check_count(len(names), path)
            elif number == _TRAINER and isinstance(value, bytes):
                stated = [v for n, v in _fields(value) if n == 3 and type(v) is int]
                model = stated[-1] if stated else UNIGRAM
            elif number == _NORMALISER and isinstance(value, bytes):
                found = [v for n, v in _fields(value) if n == 1 and isinstance(v, bytes)]
                normaliser = found[0].decode("utf-8") if found else normaliser
    except (ValueError, struct.error) as error:
        problem = f"the tokenizer's model cannot be read ({error})"
        raise CheckpointError(path, problem, "the file is damaged or truncated") from None
    if not names:
        raise CheckpointError(path, "the tokenizer's model holds no pieces")
    if not UNIGRAM <= model <= CHARACTERS:
        raise CheckpointError(path, f"the tokenizer's model has type {model}, which is not known")
    normalise = unchanged if normaliser in ("identity", "") else nfkc
    return SentencePieceTokenizer(tuple(names), tuple(kinds), tuple(scores), normalise, model)


def _piece(data: bytes) -> tuple[str, float, int]:
    name, score, kind = "", 0.0, NORMAL
    for number, value in _fields(data):
        if number == 1 and isinstance(value, bytes):
            name = value.decode("utf-8")
        elif number == 2 and isinstance(value, float):
            score = value
        elif number == 3 and type(value) is int:
            kind = value
    if not math.isfinite(score):
        raise ValueError(f"a piece has score {score}")
    if not NORMAL <= kind <= BYTE:
        raise ValueError(f"a piece has type {kind}")
    if kind == BYTE and kind_of(name) != BYTE:
        raise ValueError(f"the byte piece {name[:20]!r} is not spelled as one")
    return name, score, kind


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes | float]]:
    """Every field of one message: its number, and a whole number, bytes or a float32."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        value: int | bytes | float
        if wire == _VARINT:
            value, at = _varint(data, at)
        elif wire == _FIXED32:
            (value,) = struct.unpack_from("<f", data, at)
            at += 4
        elif wire == _FIXED64:
            (value,) = struct.unpack_from("<d", data, at)
            at += 8
        elif wire == _BYTES:
            length, at = _varint(data, at)
            if length > len(data) - at:
                raise ValueError(f"a field of {length} bytes, {len(data) - at} are left")
            value, at = data[at : at + length], at + length
        else:
            raise ValueError(f"a field of wire type {wire}")
        yield number, value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise ValueError("a number does not end")
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise ValueError("a number of more than ten bytes")
