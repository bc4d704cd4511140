"""What a transcription may be asked to do, and the one place where it is refused.

Source: whisper/transcribe.py and DecodingOptions in whisper/decoding.py; same names, same defaults.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from itertools import pairwise
from operator import index
from reprlib import repr as shortened
from types import MappingProxyType
from typing import Any

from oscine.errors import UsageError
from oscine.models.whisper.tokens import TASKS, language_code

Clip = tuple[float, float | None]

TEMPERATURES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
BEST_OF = 5
COLDEST, HOTTEST = 0.001, 1000.0  # temperatures above 0

#: Options of openai-whisper and faster-whisper that are not built yet, with the values that ask for
#: nothing. Any other value is refused by name: an option is never ignored.
UNBUILT: Mapping[str, tuple[Any, ...]] = MappingProxyType(
    {
        "beam_size": (None, 1),
        "patience": (None,),
        "length_penalty": (None,),
        "word_timestamps": (None, False),
        "prepend_punctuations": (None, "\"'“¿([{-"),
        "append_punctuations": (None, "\"'.。,，!！?？:：”)]}、"),
        "hallucination_silence_threshold": (None,),
        "highlight_words": (None, False),
        "max_line_width": (None,),
        "max_line_count": (None,),
        "max_words_per_line": (None,),
        "threads": (None, 0),
        "repetition_penalty": (None, 1, 1.0),
        "no_repeat_ngram_size": (None, 0),
        "hotwords": (None,),
        "multilingual": (None, False),
        "vad_filter": (None, False),
        "batch_size": (None, 1),
    }
)
#: Options that are settled elsewhere, and where.
ELSEWHERE: Mapping[str, str] = MappingProxyType(
    {
        "fp16": "choose the precision when loading the model: dtype='f32' or 'f16'",
        "verbose": "pass progress=, or iterate over stream() to see segments as they come",
        "prompt": "use initial_prompt",
        "model_dir": "set the environment variable OSCINE_HOME",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscribeOptions:
    """Checked and normalised options; make them with `of`, which takes openai-whisper's forms."""

    language: str | None = None  # a code; None: detected
    task: str = "transcribe"
    temperature: tuple[float, ...] = TEMPERATURES  # tried in turn while the result is poor
    best_of: int | None = None  # samples at a temperature; None: 5
    compression_ratio_threshold: float | None = 2.4  # above: poor, as it repeats itself
    logprob_threshold: float | None = -1.0  # below: poor
    no_speech_threshold: float | None = 0.6  # above, with a low logprob: silence
    condition_on_previous_text: bool = True
    initial_prompt: str | None = None
    carry_initial_prompt: bool = False
    prefix: str | None = None
    suppress_tokens: tuple[int, ...] = (-1,)  # -1: the non-speech list
    suppress_blank: bool = True
    without_timestamps: bool = False
    max_initial_timestamp: float | None = 1.0  # seconds
    sample_len: int | None = None  # most tokens a window; None: half the text context
    clip_timestamps: tuple[Clip, ...] = ((0.0, None),)  # seconds; None: the end of the audio
    seed: int = 0

    @classmethod
    def of(cls, **options: Any) -> TranscribeOptions:
        """Check and normalise; UsageError names the option that cannot be carried out."""
        for name, value in options.items():
            if name in ELSEWHERE and value is not None:
                raise UsageError(f"{name} is not an option of transcribe; {ELSEWHERE[name]}")
            if name in UNBUILT and not _asks_for_nothing(name, value):
                raise UsageError(f"{name}={value!r} is not supported yet")
        known = {field.name for field in fields(cls)}
        given = {
            name: value
            for name, value in options.items()
            if name not in UNBUILT and name not in ELSEWHERE
        }
        for name in given:
            if name not in known:
                near = get_close_matches(name, known, 1)
                hint = f"; did you mean {near[0]}?" if near else ""
                raise UsageError(f"unknown option {name}{hint}")
        checked = cls(**{name: CHECKS[name](name, value) for name, value in given.items()})
        checked._check_together()
        return checked

    def _check_together(self) -> None:
        if self.best_of is not None and not any(self.temperature):
            raise UsageError("best_of needs a temperature above 0")
        if self.carry_initial_prompt and self.initial_prompt is None:
            raise UsageError("carry_initial_prompt needs initial_prompt")


def _asks_for_nothing(name: str, value: Any) -> bool:
    """Whether an option that is not built yet is given a value that changes nothing."""
    simple = value is None or isinstance(value, str | bool | int | float)  # arrays have no one ==
    return simple and value in UNBUILT[name]


def _language(name: str, value: Any) -> str | None:
    return None if value is None else language_code(_text(name, value) or "")


def _task(name: str, value: Any) -> str:
    if value not in TASKS:
        raise UsageError(f"unknown {name} {value!r}; valid are {', '.join(TASKS)}")
    return str(value)


def _text(name: str, value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise UsageError(f"{name} must be text, not {value!r}")
    if value is not None and any("\ud800" <= character <= "\udfff" for character in value):
        raise UsageError(f"{name} must be text in UTF-8, not {value!r}")
    return value


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"{name} must be True or False, not {value!r}")
    return value


def _number(name: str, value: Any) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise UsageError(f"{name} must be a number, not {shortened(value)}")
    return number


def _optional_number(name: str, value: Any) -> float | None:
    return None if value is None else _number(name, value)


def _seconds(name: str, value: Any) -> float:
    seconds = _number(name, value)
    if seconds < 0:
        raise UsageError(f"{name} must not be negative, not {value!r}")
    return seconds


def _optional_seconds(name: str, value: Any) -> float | None:
    return None if value is None else _seconds(name, value)


def _whole(name: str, value: Any) -> int:
    number = _number(name, value)
    if number != int(number) or number < 0:
        raise UsageError(f"{name} must be a whole number from 0, not {value!r}")
    return int(number)


def _optional_count(name: str, value: Any) -> int | None:
    if value is None:
        return None
    if (number := _whole(name, value)) < 1:
        raise UsageError(f"{name} must be at least 1, not {value!r}")
    return number


def _temperatures(name: str, value: Any) -> tuple[float, ...]:
    values = value if isinstance(value, list | tuple) else [value]
    if not values:
        raise UsageError(f"{name} must be a number from 0, or several")
    checked = tuple(_seconds(name, each) for each in values)
    for each in checked:
        # Beyond these, logits divided by it are no numbers, or all alike.
        if each and not COLDEST <= each <= HOTTEST:
            raise UsageError(f"{name} must be 0 or {COLDEST} to {HOTTEST}, not {each}")
    return checked


def _token_ids(name: str, value: Any) -> tuple[int, ...]:
    """'1,2,-1' or ids; empty or None: nothing but the special tokens."""
    try:
        parts = value.split(",") if isinstance(value, str) else list(() if value is None else value)
        return tuple(
            int(part) if isinstance(part, str) else index(part)
            for part in parts
            if str(part).strip()
        )
    except (TypeError, ValueError):
        problem = f"{name} must be token ids with commas between, not {shortened(value)}"
        raise UsageError(problem) from None


def _clips(name: str, value: Any) -> tuple[Clip, ...]:
    """'start,end,start,...' or a list of seconds; the last end may be left out."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple):
        raise UsageError(f"{name} must be start,end,start,end,... in seconds, not {value!r}")
    times = [_seconds(name, part) for part in parts if str(part).strip()] or [0.0]
    if any(later < earlier for earlier, later in pairwise(times)):
        raise UsageError(f"{name} must be in order of time, not {value!r}")
    ends: list[float | None] = [*times[1::2]]
    return tuple(zip(times[::2], ends + [None] * (len(times) % 2), strict=True))


CHECKS: Mapping[str, Callable[[str, Any], Any]] = MappingProxyType(
    {
        "language": _language,
        "task": _task,
        "temperature": _temperatures,
        "best_of": _optional_count,
        "compression_ratio_threshold": _optional_number,
        "logprob_threshold": _optional_number,
        "no_speech_threshold": _optional_number,
        "condition_on_previous_text": _flag,
        "initial_prompt": _text,
        "carry_initial_prompt": _flag,
        "prefix": _text,
        "suppress_tokens": _token_ids,
        "suppress_blank": _flag,
        "without_timestamps": _flag,
        "max_initial_timestamp": _optional_seconds,
        "sample_len": _optional_count,
        "clip_timestamps": _clips,
        "seed": _whole,
    }
)
