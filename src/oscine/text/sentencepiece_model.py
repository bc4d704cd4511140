"""Reads tokenizer.model: the fields of SentencePiece's protobuf that a tokenizer needs.

Format: google/sentencepiece src/sentencepiece_model.proto; protobuf's wire format. Everything is
bounded by the number of bytes; other fields are skipped.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from pathlib import Path

from oscine.errors import CheckpointError
from oscine.text.sentencepiece import (
    BYTE,
    CHAR,
    NORMAL,
    UNIGRAM,
    SentencePieceTokenizer,
    identity,
    nfkc,
    piece_type,
)
from oscine.text.tokenizer_files import check_token_count

_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def read_sentencepiece_model(data: bytes, path: Path) -> SentencePieceTokenizer:
    """The tokenizer of a model of any of SentencePiece's four types.

    `path` is named in errors. Raises CheckpointError for damaged data and unknown types.
    """
    pieces: list[str] = []
    types: list[int] = []
    scores: list[float] = []
    normalizer, model_type = "identity", UNIGRAM  # the default type
    try:
        for number, value in _read_fields(data):
            if number == _PIECES and isinstance(value, bytes):
                name, score, kind = _read_piece(value)
                pieces.append(name)
                scores.append(score)
                types.append(kind)
                check_token_count(len(pieces), path)
            elif number == _TRAINER and isinstance(value, bytes):
                stated = [v for n, v in _read_fields(value) if n == 3 and type(v) is int]
                model_type = stated[-1] if stated else UNIGRAM
            elif number == _NORMALIZER and isinstance(value, bytes):
                found = [v for n, v in _read_fields(value) if n == 1 and isinstance(v, bytes)]
                normalizer = found[0].decode("utf-8") if found else normalizer
    except (ValueError, struct.error) as error:
        problem = f"the tokenizer's model cannot be read ({error})"
        raise CheckpointError(path, problem, "the file is damaged or truncated") from None
    if not pieces:
        raise CheckpointError(path, "the tokenizer's model has no pieces")
    if not UNIGRAM <= model_type <= CHAR:
        raise CheckpointError(
            path, f"the tokenizer's model has type {model_type}, which is not known"
        )
    normalise = identity if normalizer in ("identity", "") else nfkc
    return SentencePieceTokenizer(tuple(pieces), tuple(types), tuple(scores), normalise, model_type)


def _read_piece(data: bytes) -> tuple[str, float, int]:
    name, score, type_ = "", 0.0, NORMAL
    for number, value in _read_fields(data):
        if number == 1 and isinstance(value, bytes):
            name = value.decode("utf-8")
        elif number == 2 and isinstance(value, float):
            score = value
        elif number == 3 and type(value) is int:
            type_ = value
    if not math.isfinite(score):
        raise ValueError(f"a piece has score {score}")
    if not NORMAL <= type_ <= BYTE:
        raise ValueError(f"a piece has type {type_}")
    if type_ == BYTE and piece_type(name) != BYTE:
        raise ValueError(f"the byte piece {name[:20]!r} is not spelled as one")
    return name, score, type_


def _read_fields(data: bytes) -> Iterator[tuple[int, int | bytes | float]]:
    """Yield each field of a message: its number and an int, bytes or float32 value."""
    at = 0
    while at < len(data):
        key, at = _read_varint(data, at)
        number, wire = key >> 3, key & 7
        value: int | bytes | float
        if wire == _VARINT:
            value, at = _read_varint(data, at)
        elif wire == _FIXED32:
            (value,) = struct.unpack_from("<f", data, at)
            at += 4
        elif wire == _FIXED64:
            (value,) = struct.unpack_from("<d", data, at)
            at += 8
        elif wire == _BYTES:
            length, at = _read_varint(data, at)
            if length > len(data) - at:
                raise ValueError(f"a field of {length} bytes, {len(data) - at} are left")
            value, at = data[at : at + length], at + length
        else:
            raise ValueError(f"a field of wire type {wire}")
        yield number, value


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
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
