"""Loads the SentencePiece tokenizer of a checkpoint from the best source it has.

tokenizer.model has the most data (types, scores, normalizer), then tokenizer.json, then a plain
list in the configuration or vocab.txt. The source must have as many pieces as the network has
labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from oscine.errors import CheckpointError
from oscine.model_files import small_file
from oscine.text.sentencepiece import (
    BPE,
    BYTE,
    CONTROL,
    NORMAL,
    UNIGRAM,
    UNKNOWN,
    SentencePieceTokenizer,
    identity,
    nfkc,
    piece_type,
)
from oscine.text.sentencepiece_model import read_sentencepiece_model
from oscine.text.tokenizer_files import (
    REMEDY,
    check_token_count,
    check_token_lengths,
    read_token_lines,
    read_tokenizer_json,
)

MAX_ABS_SCORE = 1e30  # of a unigram piece; scores are log-probabilities
MODEL_FILE, JSON_FILE, LIST_FILE = "tokenizer.model", "tokenizer.json", "vocab.txt"


def load_sentencepiece_tokenizer(
    folder: Path, embedded: Mapping[str, bytes], labels: object, count: int, path: Path
) -> SentencePieceTokenizer:
    """The tokenizer of a checkpoint, with `count` pieces.

    `embedded`: files inside the checkpoint by name, which override those in `folder`. `labels`: the
    configuration's list, or None. `path` is named in errors. Raises CheckpointError if there is no
    source, if it is damaged, or if it has another number of pieces.
    """
    counts: list[str] = []
    for source, pieces in _sources(folder, embedded, labels, count, path):
        if len(pieces) == count:
            check_token_lengths(pieces.pieces, path)
            return pieces
        counts.append(f"{source} has {len(pieces)} labels")
    if counts:
        raise CheckpointError(path, f"{', '.join(counts)}, the network {count}")
    raise CheckpointError(
        path,
        "has no labels",
        f"put {MODEL_FILE} or {JSON_FILE} beside the weights, or labels in config.json",
    )


def _sources(
    folder: Path, embedded: Mapping[str, bytes], labels: object, count: int, path: Path
) -> Iterator[tuple[str, SentencePieceTokenizer]]:
    def data_of(name: str) -> tuple[bytes | None, Path]:
        if name in embedded:
            return embedded[name], path
        return small_file(folder / name), folder / name

    data, where = data_of(MODEL_FILE)
    if data is not None:
        yield MODEL_FILE, read_sentencepiece_model(data, where)
    data, where = data_of(JSON_FILE)
    if data is not None:
        yield JSON_FILE, _from_json(data, where, count)
    if labels is not None:
        yield "its configuration", _from_list(labels, path)
    data, where = data_of(LIST_FILE)
    if data is not None:
        yield (
            LIST_FILE,
            SentencePieceTokenizer.from_pieces(
                read_token_lines(data.replace(b"\r\n", b"\n"), where)
            ),
        )


def _from_list(labels: object, path: Path) -> SentencePieceTokenizer:
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise CheckpointError(path, "its labels are not a list of strings")
    check_token_count(len(labels), path)
    try:
        "".join(labels).encode()
    except UnicodeEncodeError as error:
        raise CheckpointError(path, f"its labels are not valid Unicode ({error.reason})") from None
    return SentencePieceTokenizer.from_pieces(labels)


def _from_json(data: bytes, path: Path, count: int) -> SentencePieceTokenizer:
    """A tokenizer.json's pieces and scores. Ids from `count` on are blank."""
    tokenizer = read_tokenizer_json(data, path)
    model = tokenizer.model
    is_unigram = isinstance(model["vocab"], list)
    score = (_unigram_scores if is_unigram else _bpe_scores)(model, path)
    names = {id: name for name, id in tokenizer.vocab.items()}
    names |= {id: name for name, id in tokenizer.added_tokens.items()}
    labels = _contiguous_pieces(names, count)
    unknown = _unknown_piece(model, names, path) if is_unigram else model.get("unk_token")
    kinds: list[int] = []
    for at, label in enumerate(labels):
        kind = piece_type(label)
        if label == unknown:
            kind = UNKNOWN
        elif at in tokenizer.special_ids:
            kind = CONTROL
        elif kind == BYTE and not model.get("byte_fallback"):
            kind = NORMAL
        kinds.append(kind)
    scores = tuple(map(score, labels))
    normalise = identity if tokenizer.settings.get("normalizer") is None else nfkc
    return SentencePieceTokenizer(
        tuple(labels), tuple(kinds), scores, normalise, UNIGRAM if is_unigram else BPE
    )


def _bpe_scores(model: Mapping[str, Any], path: Path) -> Callable[[str], float]:
    """Merges as scores: an earlier merge has a higher score."""
    merged = _merged_pieces(model, path)
    rank = {name: -float(at) for at, name in reversed([*enumerate(merged)])}
    return lambda name: rank.get(name, -float(len(merged)))


def _unigram_scores(model: Mapping[str, Any], path: Path) -> Callable[[str], float]:
    """The scores beside the pieces; the first of equal pieces counts."""
    scores: dict[str, float] = {}
    for name, score in reversed(model["vocab"]):
        if type(score) not in (int, float) or not abs(score) <= MAX_ABS_SCORE:
            problem = f"not a tokenizer of pieces: the score of {name[:40]!r} is {str(score)[:40]}"
            raise CheckpointError(path, problem, REMEDY)
        scores[name] = float(score)
    return lambda name: scores.get(name, 0.0)


def _unknown_piece(model: Mapping[str, Any], names: Mapping[int, str], path: Path) -> str | None:
    """The unknown piece of a unigram model, given by its id."""
    id = model.get("unk_id")
    if id is not None and (type(id) is not int or id not in names):
        raise CheckpointError(path, f"not a tokenizer of pieces: unk_id is {str(id)[:40]}", REMEDY)
    return None if id is None else names[id]


def _merged_pieces(model: Mapping[str, Any], path: Path) -> list[str]:
    """The piece that each merge produces, in order of rank; a merge is "a b" or ["a", "b"]."""
    merges = model.get("merges")
    if not isinstance(merges, list):
        raise CheckpointError(path, "not a tokenizer of BPE pieces: it has no merges", REMEDY)
    merged = []
    for pair in merges:
        parts = pair.split(" ") if isinstance(pair, str) else pair
        if not isinstance(parts, list) or [type(part) for part in parts] != [str, str]:
            problem = f"not a tokenizer of BPE pieces: a merge is {str(pair)[:40]!r}"
            raise CheckpointError(path, problem, REMEDY)
        merged.append(parts[0] + parts[1])
    return merged


def _contiguous_pieces(names: Mapping[int, str], count: int) -> list[str]:
    """Pieces 0, 1, ... up to the first gap."""
    labels = []
    for id in range(count):
        if id not in names:
            break
        labels.append(names[id])
    return labels
