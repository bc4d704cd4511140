"""Checks of option values: (option's name, value) -> value in normal form.

Like openai-whisper, checks accept numbers as text and integers as floats; `strict` ones accept only
numbers. Each raises UsageError, whose one line names the option and the value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from operator import index
from reprlib import repr as abbreviated
from typing import Any, TypeAlias

from oscine.errors import UsageError
from oscine.options import Check

Clip: TypeAlias = tuple[float, float | None]

#: A time as media players show it, [H:]MM:SS[.fff]: only the first part may be 60 or more.
_CLOCK_PATTERN = re.compile(
    r"(?:([0-9]{1,6}):(?=[0-5]?[0-9]:))?([0-9]{1,6}):([0-5]?[0-9](?:\.[0-9]{1,9})?)"
)


def invalid(name: str, must: str, value: Any) -> UsageError:
    """The error for an invalid value; `must` completes the sentence "NAME must ..."."""
    return UsageError(f"{name} must {must}, not {abbreviate(value)}")


MAX_INTEGER = 1 << 53  # which a float has exactly; times and counts are computed with


def abbreviate(value: Any) -> str:
    """A short one-line repr of a value, also if its own __repr__ fails."""
    try:
        return " ".join(abbreviated(value).split())
    except Exception:
        return f"an object of type {type(value).__name__}"


def any_value(name: str, value: Any) -> Any:
    """Accept any value; the code that uses the option checks it."""
    return value


def optional(check: Check, default: Any = None) -> Check:
    """Accept None as well, which is replaced by `default`."""
    return lambda name, value: default if value is None else check(name, value)


def one_of(*choices: str) -> Check:
    """Accept one of several words."""

    def check(name: str, value: Any) -> str:
        if not isinstance(value, str) or value not in choices:
            raise UsageError(f"unknown {name} {abbreviate(value)}; valid are {', '.join(choices)}")
        return str(value)

    return check


def text(name: str, value: Any) -> str:
    """Accept text that can be encoded in UTF-8."""
    if not isinstance(value, str):
        raise invalid(name, "be text", value)
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise invalid(name, "be text in UTF-8", value)
    return value


def flag(name: str, value: Any) -> bool:
    """Accept True and False only, not values that are merely truthy or falsy."""
    if not isinstance(value, bool):
        raise invalid(name, "be True or False", value)
    return value


def number(
    must: str = "be a number",
    fits: Callable[[float], bool] = lambda _: True,
    *,
    strict: bool = False,
    infinite: bool = False,
) -> Check:
    """Accept a number for which `fits` is true, described by `must`; `infinite`: also infinity."""
    numeric = must if strict else "be a number"

    def check(name: str, value: Any) -> float:
        found = as_float(value, strict=strict)
        if math.isnan(found) or (math.isinf(found) and not infinite):
            raise invalid(name, numeric, value)
        if not fits(found):
            raise invalid(name, must, value)
        return found

    return check


def as_float(value: Any, *, strict: bool) -> float:
    """A value as a float; NaN if it is not a number. Values of other packages, such as tensors, may
    raise any exception."""
    if isinstance(value, (bool, str) if strict else bool):
        return math.nan
    try:
        return float(value)
    except Exception:
        return math.nan


any_number = number()
fraction = number("be 0 to 1", lambda x: 0 <= x <= 1)
non_negative = number("not be negative", lambda x: x >= 0)


def positive(must: str = "be above 0", *, strict: bool = False, infinite: bool = False) -> Check:
    """Accept a number above 0."""
    return number(must, lambda x: x > 0, strict=strict, infinite=infinite)


def integer(least: int = 0, most: int | None = None, *, strict: bool = False) -> Check:
    """Accept an integer from `least` to `most`; None: to MAX_INTEGER, which messages leave out."""
    must = f"be a whole number from {least}" + ("" if most is None else f" to {most}")
    limit = MAX_INTEGER if most is None else most

    def check_strictly(name: str, value: Any) -> int:
        try:
            found = least - 1 if isinstance(value, bool) else index(value)
        except Exception:  # values of other packages may raise any exception
            found = least - 1
        if not least <= found <= limit:
            raise invalid(name, must, value)
        return found

    def check(name: str, value: Any) -> int:
        found = any_number(name, value)
        if found != int(found) or found < 0:
            raise invalid(name, "be a whole number from 0", value)
        if found < least:
            raise invalid(name, f"be at least {least}", value)
        if found > limit:
            raise invalid(name, f"be at most {limit}", value)
        return int(found)

    return check_strictly if strict else check


def integer_or(word: str, most: int) -> Check:
    """Accept an integer from 1 to `most`, or a word."""

    def check(name: str, value: Any) -> int | str:
        if isinstance(value, str) and value == word:
            return word
        try:
            return int(integer(1, most)(name, value))
        except UsageError:
            raise invalid(name, f"be a number from 1 to {most} or {word}", value) from None

    return check


def temperatures(least: float, most: float) -> Check:
    """Accept one temperature, or several to try in turn: each 0, or from `least` to `most`."""

    def check(name: str, value: Any) -> tuple[float, ...]:
        values = value if isinstance(value, list | tuple) else [value]
        if not values:
            raise UsageError(f"{name} must be a number from 0, or several")
        checked = tuple(non_negative(name, each) for each in values)
        for each in checked:
            if each and not least <= each <= most:
                raise UsageError(f"{name} must be 0 or {least} to {most}, not {each}")
        return checked

    return check


def token_ids(name: str, value: Any) -> tuple[int, ...]:
    """Accept token ids as text such as '1,2,-1' or as a sequence; None: no ids."""
    try:
        parts = value.split(",") if isinstance(value, str) else list(() if value is None else value)
        return tuple(
            int(part) if isinstance(part, str) else index(part)
            for part in parts
            if not _is_blank(part)
        )
    except Exception:  # values of other packages may raise any exception
        raise invalid(name, "be token ids with commas between", value) from None


def _is_blank(part: Any) -> bool:
    return isinstance(part, str) and not part.strip()


def parse_clips(name: str, value: Any) -> tuple[Clip, ...]:
    """Parse clips: 'start,end,start,...', times in a list or array [n] or [n, 2], or {start, end}s.

    A time is a number of seconds, or text such as 70.5, 1:10.5 or 00:01:10.500. The last end may
    be omitted or None. Returns (start, end) in seconds. Source of the last form:
    faster_whisper/transcribe.py, BatchedInferencePipeline.transcribe.
    """
    parts = value.split(",") if isinstance(value, str) else value
    if hasattr(parts, "tolist"):  # a NumPy array, without importing NumPy
        parts = parts.tolist()
    if not isinstance(parts, list | tuple):
        raise _no_clips(name, value)
    pairs = [_clip_pair(part) for part in parts]
    if any(pairs):
        if not all(pairs):
            raise _no_clips(name, value)
        parts = [time for pair in pairs for time in pair or ()]
    if parts and parts[-1] is None:
        parts = parts[:-1]
    times = [_clip_end(name, part) for part in parts if not _is_blank(part)] or [0.0]
    if any(later < earlier for earlier, later in pairwise(times)):
        raise invalid(name, "be in order of time", value)
    ends: list[float | None] = [*times[1::2]]
    return tuple(zip(times[::2], ends + [None] * (len(times) % 2), strict=True))


def _clip_end(name: str, value: Any) -> float:
    if isinstance(value, str) and (match := _CLOCK_PATTERN.fullmatch(value.strip())):
        hours, minutes, rest = match.groups()
        return int(hours or 0) * 3600 + int(minutes) * 60 + float(rest)
    try:
        any_number(name, value)
    except UsageError:
        raise invalid(
            name, "be times in seconds or H:MM:SS, such as 70.5 or 1:10.5", value
        ) from None
    return float(non_negative(name, value))


def _clip_pair(part: Any) -> list[Any] | None:
    """[start, end] of a clip given as {"start", "end"} or as two numbers; None for another item."""
    if isinstance(part, Mapping) and "start" in part and set(part) <= {"start", "end"}:
        return [part["start"], part.get("end")]
    if isinstance(part, list | tuple) and len(part) == 2:
        return list(part)
    return None


def _no_clips(name: str, value: Any) -> UsageError:
    form = 'or a list of {"start": seconds, "end": seconds}'
    return invalid(name, f"be start,end,start,end,... in seconds or H:MM:SS, {form}", value)
