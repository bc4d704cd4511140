"""Reads values from a model's configuration file and checks their types."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from oscine.errors import CheckpointError

ABSENT = object()


class ConfigReader:
    """Typed access to a configuration, or to one section of it.

    Keys may be dotted: "encoder.d_model". A value that is missing or of a wrong type raises a
    CheckpointError that names the file and the key.
    """

    def __init__(self, path: Path, config: dict[str, Any], prefix: str = "") -> None:
        """`path`: the file, for errors; `prefix`: of `config` in the file, "talker_config."."""
        self.path, self.config, self.prefix = path, config, prefix

    def get(self, key: str, default: Any = None) -> Any:
        """The value at a key, unchecked; `default` if the key is absent."""
        value: Any = self.config
        for part in key.split("."):
            if not isinstance(value, dict) or part not in value:
                return default
            value = value[part]
        return value

    def error(self, key: str, value: object, remedy: str = "") -> CheckpointError:
        """The error for a value that cannot be used."""
        name = f"{self.prefix}{key}"
        if value is ABSENT:
            return CheckpointError(self.path, f"its configuration lacks {name}", remedy)
        problem = f"its configuration has {name} = {str(value)[:60]!r}"
        return CheckpointError(self.path, problem, remedy)

    def section(self, key: str) -> ConfigReader:
        """The object at a key. Raises CheckpointError if it is absent or not an object."""
        value = self.get(key, ABSENT)
        if not isinstance(value, dict):
            raise self.error(key, value, "it must be an object")
        return ConfigReader(self.path, value, f"{self.prefix}{key}.")

    def optional_int(self, *keys: str) -> int | None:
        """The first of these keys with a positive integer; -1 counts as absent, as in NeMo."""
        for key in keys:
            value = self.get(key)
            if value is None or value == -1:
                continue
            if type(value) is not int or not 0 < value < 1 << 24:
                raise self.error(key, value)
            return value
        return None

    def integer(self, key: str, maximum: int, default: int | None = None) -> int:
        """An integer from 1 to `maximum`; `default` if the key is absent or null."""
        value = self._value_or(key, default)
        if type(value) is not int or not 0 < value <= maximum:
            raise self.error(key, value, f"it must be an integer from 1 to {maximum}")
        return value

    def integers(
        self, key: str, maximum: int, default: Sequence[int] | None = None
    ) -> tuple[int, ...]:
        """A list of 1 to 16 integers from 1 to `maximum`; `default` if absent or null."""
        value = self._value_or(key, default)
        if (
            not isinstance(value, list | tuple)
            or not 0 < len(value) <= 16
            or any(type(one) is not int or not 0 < one <= maximum for one in value)
        ):
            raise self.error(
                key, value, f"it must be a list of 1 to 16 integers from 1 to {maximum}"
            )
        return tuple(value)

    def number(self, key: str, low: float, high: float, default: float | None = None) -> float:
        """A finite number with low < number <= high; `default` if the key is absent or null."""
        value = self._value_or(key, default)
        # Compared, not converted: an integer in JSON may be larger than any float.
        if type(value) not in (int, float) or not low < value <= high:
            raise self.error(key, value, f"it must be above {low:g} and at most {high:g}")
        return float(value)

    def boolean(self, key: str, default: bool) -> bool:
        """True or false; `default` if the key is absent."""
        value = self.get(key, default)
        if type(value) is not bool:
            raise self.error(key, value)
        return value

    def require(self, key: str, allowed: Sequence[object], remedy: str = "") -> None:
        """Raise CheckpointError unless the key is absent or has one of the `allowed` values."""
        value = self.get(key, allowed[0])
        if any(_is_same(value, one) for one in allowed):
            return
        raise self.error(key, value, remedy or f"supported: {', '.join(map(str, allowed))}")

    def _value_or(self, key: str, default: object) -> Any:
        """The value at a key; null counts as absent."""
        value = self.get(key)
        if value is None:
            return ABSENT if default is None else default
        return value


def _is_same(value: object, other: object) -> bool:
    """Whether two values are equal: numbers to six digits, everything else exactly."""
    numbers = (int, float)
    if type(value) in numbers and type(other) in numbers:
        assert isinstance(value, numbers) and isinstance(other, numbers)
        return other - 1e-6 * abs(other) <= value <= other + 1e-6 * abs(other)
    return type(value) is type(other) and value == other


def count_layers(names: Iterable[str], prefix: str) -> int:
    """The number of layers: one more than the largest index after `prefix`, or 0.

    An index of more than five digits is ignored.
    """
    numbers = (
        int(part)
        for name in names
        if name.startswith(prefix)
        and (part := name.removeprefix(prefix).split(".")[0]).isdecimal()
        and len(part) < 6
    )
    return max(numbers, default=-1) + 1
