"""What a configuration file states, looked at with its types checked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from oscine.errors import CheckpointError

ABSENT = object()


class Stated:
    """One configuration, or a part of it, and typed looks into it. Keys may be dotted."""

    def __init__(self, path: Path, config: dict[str, Any], at: str = "") -> None:
        """`path`: what errors name; `at`: where `config` lies in the file, "talker_config."."""
        self.path, self.config, self.at = path, config, at

    def get(self, key: str, default: Any = None) -> Any:
        """The value at a key; `default` where there is none."""
        value: Any = self.config
        for part in key.split("."):
            if not isinstance(value, dict) or part not in value:
                return default
            value = value[part]
        return value

    def wrong(self, key: str, value: object, remedy: str = "") -> CheckpointError:
        """The error for a value that cannot be used."""
        shown = "not stated" if value is ABSENT else f"= {str(value)[:60]!r}"
        return CheckpointError(self.path, f"its configuration has {self.at}{key} {shown}", remedy)

    def part(self, key: str) -> Stated:
        """An object inside; an error where it is none or absent."""
        value = self.get(key, ABSENT)
        if not isinstance(value, dict):
            raise self.wrong(key, value, "an object is needed there")
        return Stated(self.path, value, f"{self.at}{key}.")

    def whole(self, *keys: str) -> int | None:
        """The first of these that is stated and positive; -1 stands for not stated in NeMo."""
        for key in keys:
            value = self.get(key)
            if value is None or value == -1:
                continue
            if type(value) is not int or not 0 < value < 1 << 24:
                raise self.wrong(key, value)
            return value
        return None

    def size(self, key: str, most: int, default: int | None = None) -> int:
        """A whole number from 1 to `most`; `default` where nothing is stated."""
        value = self._or(key, default)
        if type(value) is not int or not 0 < value <= most:
            raise self.wrong(key, value, f"a whole number from 1 to {most} is needed there")
        return value

    def sizes(self, key: str, most: int, default: Sequence[int] | None = None) -> tuple[int, ...]:
        """From 1 to 16 whole numbers from 1 to `most`."""
        value = self._or(key, default)
        if (
            not isinstance(value, list | tuple)
            or not 0 < len(value) <= 16
            or any(type(one) is not int or not 0 < one <= most for one in value)
        ):
            raise self.wrong(
                key, value, f"a list of whole numbers from 1 to {most} is needed there"
            )
        return tuple(value)

    def number(self, key: str, low: float, high: float, default: float | None = None) -> float:
        """A finite number with low < number <= high."""
        value = self._or(key, default)
        # Compared, not converted: a whole number of JSON may be larger than any float.
        if type(value) not in (int, float) or not low < value <= high:
            raise self.wrong(key, value, f"a number above {low:g}, up to {high:g}, is needed there")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        value = self.get(key, default)
        if type(value) is not bool:
            raise self.wrong(key, value)
        return value

    def only(self, key: str, allowed: Sequence[object], remedy: str = "") -> None:
        """Raise if something else than `allowed` is stated."""
        value = self.get(key, allowed[0])
        if any(_alike(value, one) for one in allowed):
            return
        raise self.wrong(key, value, remedy or f"supported: {', '.join(map(str, allowed))}")

    def _or(self, key: str, default: object) -> Any:
        """The value; null counts as not stated."""
        value = self.get(key)
        if value is None:
            return ABSENT if default is None else default
        return value


def _alike(value: object, one: object) -> bool:
    """Equal: whole numbers and fractions to six digits, everything else exactly."""
    numbers = (int, float)
    if type(value) in numbers and type(one) in numbers:
        assert isinstance(value, numbers) and isinstance(one, numbers)
        return one - 1e-6 * abs(one) <= value <= one + 1e-6 * abs(one)
    return type(value) is type(one) and value == one


def count_layers(names: Iterable[str], prefix: str) -> int:
    """One more than the largest number, of up to five digits, that follows `prefix`; else 0."""
    numbers = (
        int(part)
        for name in names
        if name.startswith(prefix)
        and (part := name.removeprefix(prefix).split(".")[0]).isdecimal()
        and len(part) < 6
    )
    return max(numbers, default=-1) + 1
