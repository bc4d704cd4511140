"""Bounded reading of a model's small files: configurations, vocabularies and tables of contents.

The bounds are far above released models' files, and low enough that a hostile file costs seconds
and a few hundred MB at most: JSON can take fifty times its size in memory.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

from oscine.errors import CheckpointError
from oscine.files import read_bounded

MAX_BYTES: Final = 16 << 20  # of one file; Qwen's tokenizer.json has 11 MB
MAX_VALUES: Final = 1 << 21  # of one JSON document, names among them
MAX_DEPTH: Final = 64  # of containers; what walks or prints a value may then recurse
MAX_DIGITS: Final = 300  # of a whole number: a float holds it, and Python prints sums of such
_VALUE_PREFIXES: Final = (b"[", b"{", b",", b":")  # no value comes without one of them before it
_SURROGATE_PATTERN: Final = re.compile(rb"\\u[dD][89a-fA-F]")


def small_file(path: Path) -> bytes | None:
    """Read a whole file of at most MAX_BYTES; None if it does not exist.

    Raises:
        CheckpointError: it is larger, a folder, a pipe or a device, or cannot be read.
    """
    try:
        return read_bounded(path, MAX_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CheckpointError(path, f"cannot be read ({error.strerror})") from None


def read_json(path: Path) -> dict[str, Any]:
    """Read an object from a JSON file; {} if the file does not exist.

    Raises:
        CheckpointError: the file is not a JSON object, or one that parse_json refuses.
    """
    text = small_file(path)
    return {} if text is None else parse_json(path, text)


def parse_json(path: Path, text: bytes) -> dict[str, Any]:
    """Parse a JSON object, within the bounds of parse_value. `path` is named in errors."""
    value = parse_value(path, text)
    if not isinstance(value, dict):
        raise CheckpointError(path, "holds no JSON object", "fetch it again")
    return value


def parse_value(path: Path, text: bytes) -> Any:
    """Parse any JSON value in UTF-8.

    Raises:
        CheckpointError: invalid JSON, nested too deep, a name that occurs twice in one object, half
            a surrogate pair in a text, or more than MAX_BYTES, MAX_VALUES or MAX_DIGITS.
    """
    if len(text) > MAX_BYTES:
        raise CheckpointError(path, f"holds {len(text)} bytes of JSON, more than {MAX_BYTES}")
    # An upper bound, as texts may hold these characters too.
    if sum(map(text.count, _VALUE_PREFIXES)) > MAX_VALUES:
        raise CheckpointError(path, f"holds more than {MAX_VALUES} JSON values")
    try:
        value = json.loads(text.decode("utf-8"), object_pairs_hook=_object, parse_int=_whole)
        _check_depth(value)
        if _SURROGATE_PATTERN.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        problem = f"is not valid JSON ({str(error)[:120]})"
        raise CheckpointError(path, problem, "fetch it again") from None
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise ValueError(f"{name[:60]!r} occurs twice")
            seen.add(name)
    return found


def _whole(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"a number of {len(digits)} digits, more than {MAX_DIGITS}")
    return int(digits)


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return
    raise ValueError(f"nested more than {MAX_DEPTH} deep")
