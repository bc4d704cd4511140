"""The labels of a checkpoint, from the best source that it has.

tokenizer.model says most (kinds, scores, normaliser), then tokenizer.json, then a plain list: the
configuration's, or vocab.txt. Whichever it is must have as many labels as the network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from oscine.errors import CheckpointError
from oscine.model_files import small_file
from oscine.text.pieces import (
    BPE,
    BYTE,
    CONTROL,
    NORMAL,
    UNIGRAM,
    UNKNOWN,
    SentencePieceTokenizer,
    kind_of,
    nfkc,
    unchanged,
)
from oscine.text.sentencepiece import read_sentencepiece
from oscine.text.vocabulary import REMEDY, check_count, check_lengths, lines_of, read_tokenizer_json

MOST_SCORE = 1e30  # of a unigram piece, either way; they are logarithms of probabilities
MODEL, JSON, LIST = "tokenizer.model", "tokenizer.json", "vocab.txt"


def read_pieces(
    folder: Path, packed: Mapping[str, bytes], listed: object, count: int, path: Path
) -> SentencePieceTokenizer:
    """The `count` labels of a checkpoint.

    `packed` are files inside the checkpoint, by the names above, which win over those in `folder`;
    `listed` is the configuration's list of labels, or None. `path` is named in errors.
    Raises CheckpointError where there are none, where they are damaged, or not so many.
    """
    counts: list[str] = []
    for source, pieces in _sources(folder, packed, listed, count, path):
        if len(pieces) == count:
            check_lengths(pieces.names, path)
            return pieces
        counts.append(f"{source} has {len(pieces)} labels")
    if counts:
        raise CheckpointError(path, f"{', '.join(counts)}, the network {count}")
    raise CheckpointError(
        path, "has no labels", f"put {MODEL} or {JSON} beside the weights, or labels in config.json"
    )


def _sources(
    folder: Path, packed: Mapping[str, bytes], listed: object, count: int, path: Path
) -> Iterator[tuple[str, SentencePieceTokenizer]]:
    def data_of(name: str) -> tuple[bytes | None, Path]:
        if name in packed:
            return packed[name], path
        return small_file(folder / name), folder / name

    data, where = data_of(MODEL)
    if data is not None:
        yield MODEL, read_sentencepiece(data, where)
    data, where = data_of(JSON)
    if data is not None:
        yield JSON, _from_json(data, where, count)
    if listed is not None:
        yield "its configuration", _from_list(listed, path)
    data, where = data_of(LIST)
    if data is not None:
        yield LIST, SentencePieceTokenizer.of(lines_of(data.replace(b"\r\n", b"\n"), where))


def _from_list(listed: object, path: Path) -> SentencePieceTokenizer:
    if not isinstance(listed, list) or not all(isinstance(label, str) for label in listed):
        raise CheckpointError(path, "its labels are no list of texts")
    check_count(len(listed), path)
    try:
        "".join(listed).encode()
    except UnicodeEncodeError as error:
        raise CheckpointError(path, f"its labels are no valid Unicode ({error.reason})") from None
    return SentencePieceTokenizer.of(listed)


def _from_json(data: bytes, path: Path, count: int) -> SentencePieceTokenizer:
    """Its labels and scores. Ids from `count` on: blank."""
    tokenizer = read_tokenizer_json(data, path)
    model = tokenizer.model
    is_unigram = isinstance(model["vocab"], list)
    score = (_unigram_score if is_unigram else _merge_score)(model, path)
    names = {id: name for name, id in tokenizer.vocabulary.items()}
    names |= {id: name for name, id in tokenizer.added.items()}
    labels = _in_order(names, count)
    unknown = _unknown(model, names, path) if is_unigram else model.get("unk_token")
    kinds: list[int] = []
    for at, label in enumerate(labels):
        kind = kind_of(label)
        if label == unknown:
            kind = UNKNOWN
        elif at in tokenizer.special:
            kind = CONTROL
        elif kind == BYTE and not model.get("byte_fallback"):
            kind = NORMAL
        kinds.append(kind)
    scores = tuple(map(score, labels))
    normalise = unchanged if tokenizer.settings.get("normalizer") is None else nfkc
    return SentencePieceTokenizer(
        tuple(labels), tuple(kinds), scores, normalise, UNIGRAM if is_unigram else BPE
    )


def _merge_score(model: Mapping[str, Any], path: Path) -> Callable[[str], float]:
    """Byte-pair merges as scores: the earlier a merge, the higher."""
    merged = _merged(model, path)
    rank = {name: -float(at) for at, name in reversed([*enumerate(merged)])}
    return lambda name: rank.get(name, -float(len(merged)))


def _unigram_score(model: Mapping[str, Any], path: Path) -> Callable[[str], float]:
    """The scores beside the names; of two alike the first."""
    scores: dict[str, float] = {}
    for name, score in reversed(model["vocab"]):
        if type(score) not in (int, float) or not abs(score) <= MOST_SCORE:
            problem = f"not a tokenizer of pieces: the score of {name[:40]!r} is {str(score)[:40]}"
            raise CheckpointError(path, problem, REMEDY)
        scores[name] = float(score)
    return lambda name: scores.get(name, 0.0)


def _unknown(model: Mapping[str, Any], names: Mapping[int, str], path: Path) -> str | None:
    """The unknown piece of a unigram model, which states its id."""
    id = model.get("unk_id")
    if id is not None and (type(id) is not int or id not in names):
        raise CheckpointError(path, f"not a tokenizer of pieces: unk_id is {str(id)[:40]}", REMEDY)
    return None if id is None else names[id]


def _merged(model: Mapping[str, Any], path: Path) -> list[str]:
    """What each merge makes, in the order of their ranks; a merge is "a b" or ["a", "b"]."""
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


def _in_order(names: Mapping[int, str], count: int) -> list[str]:
    """Labels 0, 1, ... as far as they go without a gap."""
    labels = []
    for id in range(count):
        if id not in names:
            break
        labels.append(names[id])
    return labels
