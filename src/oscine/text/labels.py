"""The labels of a checkpoint, from the best source that it has.

tokenizer.model says most (kinds, scores, normaliser), then tokenizer.json, then a plain list: the
configuration's, or vocab.txt. Whichever it is must have as many labels as the network.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from oscine.errors import CheckpointError
from oscine.files import contents
from oscine.text.pieces import BYTE, CONTROL, NORMAL, UNKNOWN, Pieces, kind_of, nfkc, unchanged
from oscine.text.sentencepiece import read_sentencepiece

MODEL, JSON, LIST = "tokenizer.model", "tokenizer.json", "vocab.txt"
_MOST_BYTES = 64 << 20  # of any of them


def read_pieces(
    folder: Path, packed: Mapping[str, bytes], listed: object, count: int, path: Path
) -> Pieces:
    """The `count` labels of a checkpoint.

    `packed` are files inside the checkpoint, by the names above, which win over those in `folder`;
    `listed` is the configuration's list of labels, or None. `path` is named in errors.
    Raises CheckpointError where there are none, where they are damaged, or not so many.
    """
    counts: list[str] = []
    for source, pieces in _sources(folder, packed, listed, count, path):
        if len(pieces) == count:
            return pieces
        counts.append(f"{source} has {len(pieces)} labels")
    if counts:
        raise CheckpointError(path, f"{', '.join(counts)}, the network {count}")
    raise CheckpointError(
        path, "has no labels", f"put {MODEL} or {JSON} beside the weights, or labels in config.json"
    )


def _sources(
    folder: Path, packed: Mapping[str, bytes], listed: object, count: int, path: Path
) -> Iterator[tuple[str, Pieces]]:
    def data_of(name: str) -> tuple[bytes | None, Path]:
        return (packed[name], path) if name in packed else (_beside(folder / name), folder / name)

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
        lines = data.decode("utf-8", "replace").replace("\r\n", "\n").split("\n")
        yield LIST, _from_list(lines[:-1] if lines[-1] == "" else lines, where)


def _beside(file: Path) -> bytes | None:
    try:
        return contents(file, _MOST_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CheckpointError(file, f"cannot be read ({error.strerror})") from None


def _from_list(listed: object, path: Path) -> Pieces:
    if not isinstance(listed, list) or not all(isinstance(label, str) for label in listed):
        raise CheckpointError(path, "its labels are no list of texts")
    return Pieces.of(listed)


def _from_json(data: bytes, path: Path, count: int) -> Pieces:
    """Byte-pair merges as scores: the earlier a merge, the higher. Ids from `count` on: blank."""
    try:
        settings = json.loads(data)
        model = settings["model"]
        merges = [pair if isinstance(pair, list) else pair.split(" ") for pair in model["merges"]]
        added = {token["id"]: token for token in settings.get("added_tokens") or ()}
        names = {id: name for name, id in model["vocab"].items()}
        names |= {id: token["content"] for id, token in added.items()}
        special = {id for id, token in added.items() if token.get("special")}
        rank = {left + right: -float(at) for at, (left, right) in reversed([*enumerate(merges)])}
        labels = _in_order(names, count)
        unknown = model.get("unk_token")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        problem = f"not a tokenizer of BPE pieces ({type(error).__name__}: {str(error)[:80]})"
        raise CheckpointError(path, problem, "fetch it again") from None
    kinds: list[int] = []
    for at, label in enumerate(labels):
        kind = kind_of(label)
        if label == unknown:
            kind = UNKNOWN
        elif at in special:
            kind = CONTROL
        elif kind == BYTE and not model.get("byte_fallback"):
            kind = NORMAL
        kinds.append(kind)
    scores = tuple(rank.get(name, -float(len(merges))) for name in labels)
    normalise = unchanged if settings.get("normalizer") is None else nfkc
    return Pieces(tuple(labels), tuple(kinds), scores, normalise)


def _in_order(names: dict[Any, Any], count: int) -> list[str]:
    """Labels 0, 1, ... as far as they go without a gap."""
    labels = []
    for id in range(min(count, len(names))):
        if not isinstance(names.get(id), str):
            break
        labels.append(names[id])
    return labels
