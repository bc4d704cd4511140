"""The part of YAML that a model_config.yaml needs: mappings, sequences and plain scalars.

PyYAML only cuts the text into events; what they build is decided here. Tags are refused, so nothing
can be constructed. What aliases repeat (`yaml.dump` writes them for a list that is in two places)
is counted and bounded, so nothing grows. Numbers are JSON's, true and false are the only truth
values: `no` may well be a piece of a vocabulary.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from oscine.errors import CheckpointError, needed

MAX_YAML_BYTES: Final = 4 << 20  # bytes; v3's, with 8192 labels twice, has 0.4 MB
_MAX_EVENTS: Final = 200_000  # scalars, beginnings and ends; of v3 some 20,000
_MAX_DEPTH: Final = 64
_MAX_REFERENCE_HOPS: Final = 16
_MAX_REPEATED: Final = 1 << 17  # values that aliases repeat in all; v3's labels are 8192
_INTEGER_PATTERN = re.compile(r"[-+]?(0|[1-9]\d{0,17})")
_FLOAT_PATTERN = re.compile(
    r"[-+]?(\d{1,40}\.\d{0,40}|\.\d{1,40}|\d{1,40}(?=[eE]))([eE][-+]?\d{1,4})?"
)
_REFERENCE_PATTERN = re.compile(r"\$\{([\w.-]{1,200})\}")
_ABSENT: Final = object()
_CONSTANTS: Final[dict[str, Any]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


def parse_yaml(path: Path, name: str, data: bytes) -> dict[str, Any]:
    """The mapping in `data`, with references `${a.b}` to scalars and lists resolved from its root.

    `path` and `name`, a member of it, are named in errors.

    Raises:
        CheckpointError: no YAML, no mapping, a tag, a name twice, too deep, aliases that repeat
            much, themselves or a name.
    """
    with needed("pyyaml", f"the configuration in {path}"):
        import yaml  # only .nemo archives need it

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    builder = _Builder()
    try:
        for number, event in enumerate(yaml.parse(data.decode("utf-8"), Loader=loader)):
            if number >= _MAX_EVENTS:
                raise ValueError(f"has more than {_MAX_EVENTS} values")
            builder.take(event)
    except yaml.YAMLError as error:
        problem = getattr(error, "problem", None) or str(error)
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark is not None else ""
        raise _yaml_error(path, name, f"is not valid YAML ({str(problem)[:120]}{where})") from None
    except (ValueError, RecursionError) as error:
        raise _yaml_error(path, name, str(error)[:160]) from None
    if not isinstance(builder.root, dict):
        raise _yaml_error(path, name, "holds no mapping")
    return _resolve_references(builder.root, builder.root)  # type: ignore[no-any-return]


def _yaml_error(path: Path, name: str, problem: str) -> CheckpointError:
    problem = " ".join(problem.split())
    return CheckpointError(path, f"{name}: {problem}", "it is read as plain data only")


class _Builder:
    """Turns events into dictionaries, lists and scalars, without recursion."""

    def __init__(self) -> None:
        self.root: Any = None
        self._open: list[dict[str, Any] | list[Any]] = []
        self._keys: list[str | None] = []  # the key that waits for its value, of each open one
        self._documents = 0
        self._anchors: dict[str, Any] = {}
        self._repeated = 0

    def take(self, event: Any) -> None:
        """One event. Raises ValueError for what is not allowed."""
        kind = type(event).__name__
        if kind == "AliasEvent":
            self._put(self._alias(event.anchor))
            return
        if getattr(event, "tag", None) is not None:
            raise ValueError(f"has a tag {str(event.tag)[:60]!r}, which is not allowed")
        if kind == "DocumentStartEvent":
            self._documents += 1
            if self._documents > 1:
                raise ValueError("holds several documents")
        elif kind == "ScalarEvent":
            value = self._scalar(event.value, plain=not event.style)  # libyaml's "" is None
            self._anchor(event.anchor, value)
        elif kind in ("MappingStartEvent", "SequenceStartEvent"):
            made: dict[str, Any] | list[Any] = {} if kind == "MappingStartEvent" else []
            self._put(made)
            self._anchor(event.anchor, made)
            self._open.append(made)
            self._keys.append(None)
            if len(self._open) > _MAX_DEPTH:
                raise ValueError(f"is nested more than {_MAX_DEPTH} deep")
        elif kind in ("MappingEndEvent", "SequenceEndEvent"):
            self._open.pop()
            self._keys.pop()

    def _anchor(self, name: str | None, value: Any) -> None:
        if name is not None:
            self._anchors[name] = value

    def _alias(self, name: str) -> Any:
        """What an anchor names. Raises ValueError where it is too much, or not complete."""
        if name not in self._anchors:
            raise ValueError(f"has an alias {name[:60]!r} of nothing")
        value = self._anchors[name]
        if any(value is one for one in self._open):
            raise ValueError(f"has an alias {name[:60]!r} inside of what it stands for")
        self._measure(value, len(self._open))
        return value

    def _measure(self, value: Any, depth: int) -> None:
        """Count what is repeated by an alias."""
        self._repeated += 1
        if self._repeated > _MAX_REPEATED:
            raise ValueError(f"has aliases that repeat more than {_MAX_REPEATED} values")
        if not isinstance(value, dict | list):
            return
        if depth >= _MAX_DEPTH:
            raise ValueError(f"is nested more than {_MAX_DEPTH} deep")
        for item in value.values() if isinstance(value, dict) else value:
            self._measure(item, depth + 1)

    def _scalar(self, text: str, plain: bool) -> Any:
        inside = self._open[-1] if self._open else None
        if isinstance(inside, dict) and self._keys[-1] is None:
            if text in inside:
                raise ValueError(f"has the name {text[:60]!r} twice")
            if text == "<<" and plain:
                raise ValueError("has a merge key <<, which is not allowed")
            inside[text] = None
            self._keys[-1] = text
            return text
        value = _parse_scalar(text) if plain else text
        self._put(value)
        return value

    def _put(self, value: Any) -> None:
        inside = self._open[-1] if self._open else None
        if inside is None:
            self.root = value
        elif isinstance(inside, list):
            inside.append(value)
        else:
            key = self._keys[-1]
            if key is None:
                raise ValueError("has a name that is no text")
            inside[key] = value
            self._keys[-1] = None


def _parse_scalar(text: str) -> Any:
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INTEGER_PATTERN.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT_PATTERN.fullmatch(text) else text


def _resolve_references(value: Any, root: dict[str, Any]) -> Any:
    if isinstance(value, dict):
        return {name: _resolve_references(item, root) for name, item in value.items()}
    if isinstance(value, list):
        return [_resolve_references(item, root) for item in value]
    return _follow_reference(value, root)


def _follow_reference(value: Any, root: dict[str, Any]) -> Any:
    """What a reference stands for; itself where that is not there, or a mapping."""
    found = value
    for _ in range(_MAX_REFERENCE_HOPS):
        if not isinstance(found, str) or (match := _REFERENCE_PATTERN.fullmatch(found)) is None:
            return found
        names = match[1].split(".")
        target = _value_at(root, names)
        if target is _ABSENT and names[0] == "model":  # from before the model had its own file
            target = _value_at(root, names[1:])
        if target is _ABSENT or isinstance(target, dict):
            return found
        if target is None or isinstance(target, list):
            return target
        found = target
    return value


def _value_at(root: dict[str, Any], names: list[str]) -> Any:
    value: Any = root
    for name in names:
        if not isinstance(value, dict) or name not in value:
            return _ABSENT
        value = value[name]
    return value
