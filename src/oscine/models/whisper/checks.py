"""Values of options: each check takes the option's name and a value in any form that is understood,
and gives the value in its one normal form, or a UsageError that names the option.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import pairwise
from operator import index
from reprlib import repr as shortened
from types import MappingProxyType
from typing import Any

import numpy as np

from oscine.errors import UsageError
from oscine.models.whisper.tokens import TASKS, language_code

Clip = tuple[float, float | None]
Check = Callable[[str, Any], Any]

COLDEST, HOTTEST = 0.001, 1000.0  # temperatures above 0
MOST_BEAMS = 16
MOST_SAMPLES = 64  # lines of one window, and beams that a search waits for
MOST_WINDOWS = 64  # of one batch
MOST_SEGMENTS = 1000  # that are listened to for the language
AUTO = "auto"


def _language(name: str, value: Any) -> str | None:
    return None if value is None else language_code(_text(name, value))


def _task(name: str, value: Any) -> str:
    if value not in TASKS:
        raise UsageError(f"unknown {name} {value!r}; valid are {', '.join(TASKS)}")
    return str(value)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{name} must be text, not {shortened(value)}")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise UsageError(f"{name} must be text in UTF-8, not {shortened(value)}")
    return value


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"{name} must be True or False, not {shortened(value)}")
    return value


def _number(name: str, value: Any) -> float:
    if not math.isfinite(number := _number_or_infinity(name, value)):
        raise UsageError(f"{name} must be a number, not {shortened(value)}")
    return number


def _number_or_infinity(name: str, value: Any) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if math.isnan(number):
        raise UsageError(f"{name} must be a number, not {shortened(value)}")
    return number


def _positive(name: str, value: Any) -> float:
    if (number := _number(name, value)) <= 0:
        raise UsageError(f"{name} must be above 0, not {shortened(value)}")
    return number


def _positive_or_infinity(name: str, value: Any) -> float:
    if (number := _number_or_infinity(name, value)) <= 0:
        raise UsageError(f"{name} must be above 0, not {shortened(value)}")
    return number


def _share(name: str, value: Any) -> float:
    if not 0 <= (number := _number(name, value)) <= 1:
        raise UsageError(f"{name} must be 0 to 1, not {shortened(value)}")
    return number


def _seconds(name: str, value: Any) -> float:
    if (seconds := _number(name, value)) < 0:
        raise UsageError(f"{name} must not be negative, not {shortened(value)}")
    return seconds


def _whole(name: str, value: Any) -> int:
    number = _number(name, value)
    if number != int(number) or number < 0:
        raise UsageError(f"{name} must be a whole number from 0, not {shortened(value)}")
    return int(number)


def _count(name: str, value: Any) -> int:
    if (number := _whole(name, value)) < 1:
        raise UsageError(f"{name} must be at least 1, not {shortened(value)}")
    return number


def _count_up_to(most: int) -> Check:
    def check(name: str, value: Any) -> int:
        if (number := _count(name, value)) > most:
            raise UsageError(f"{name} must be at most {most}, not {shortened(value)}")
        return number

    return check


def _batch_size(name: str, value: Any) -> int | str:
    if value == AUTO:
        return AUTO
    try:
        return int(_count_up_to(MOST_WINDOWS)(name, value))
    except UsageError:
        problem = f"{name} must be a number from 1 to {MOST_WINDOWS} or auto, not "
        raise UsageError(problem + shortened(value)) from None


def _optional(check: Check) -> Check:
    return lambda name, value: None if value is None else check(name, value)


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
    """'start,end,start,...', seconds in a list or array [n] or [n, 2], or a list of {start, end}.

    The last end may be left out, or be None. Source of the last form: faster_whisper/transcribe.py,
    BatchedInferencePipeline.transcribe.
    """
    parts = value.split(",") if isinstance(value, str) else value
    if isinstance(parts, np.ndarray):
        parts = parts.tolist()
    if not isinstance(parts, list | tuple):
        raise _no_clips(name, value)
    pairs = [_pair(part) for part in parts]
    if any(pairs):
        if not all(pairs):
            raise _no_clips(name, value)
        parts = [time for pair in pairs for time in pair or ()]
    if parts and parts[-1] is None:
        parts = parts[:-1]
    times = [_clip_end(name, part) for part in parts if str(part).strip()] or [0.0]
    if any(later < earlier for earlier, later in pairwise(times)):
        raise UsageError(f"{name} must be in order of time, not {shortened(value)}")
    ends: list[float | None] = [*times[1::2]]
    return tuple(zip(times[::2], ends + [None] * (len(times) % 2), strict=True))


def _clip_end(name: str, value: Any) -> float:
    try:
        _number(name, value)
    except UsageError:
        problem = f"{name} must be a number of seconds, such as 70.5, not {shortened(value)}"
        raise UsageError(problem) from None
    return _seconds(name, value)


def _pair(part: Any) -> list[Any] | None:
    """Start and end of a clip that is one item: {"start", "end"}, or two numbers; else None."""
    if isinstance(part, Mapping) and "start" in part and set(part) <= {"start", "end"}:
        return [part["start"], part.get("end")]
    if isinstance(part, list | tuple) and len(part) == 2:
        return list(part)
    return None


def _no_clips(name: str, value: Any) -> UsageError:
    return UsageError(
        f"{name} must be start,end,start,end,... in seconds, or a list of "
        f'{{"start": seconds, "end": seconds}}, not {shortened(value)}'
    )


CHECKS: Mapping[str, Check] = MappingProxyType(
    {
        "language": _language,
        "task": _task,
        "multilingual": _flag,
        "language_detection_segments": _count_up_to(MOST_SEGMENTS),
        "language_detection_threshold": _optional(_share),
        "temperature": _temperatures,
        "best_of": _optional(_count_up_to(MOST_SAMPLES)),
        "beam_size": _optional(_count_up_to(MOST_BEAMS)),
        "patience": _optional(_positive),
        "length_penalty": _optional(_share),
        "repetition_penalty": _positive,
        "no_repeat_ngram_size": _whole,
        "compression_ratio_threshold": _optional(_number),
        "logprob_threshold": _optional(_number),
        "no_speech_threshold": _optional(_number),
        "condition_on_previous_text": _optional(_flag),
        "initial_prompt": _optional(_text),
        "carry_initial_prompt": _flag,
        "prefix": _optional(_text),
        "hotwords": _optional(_text),
        "suppress_tokens": _token_ids,
        "suppress_blank": _flag,
        "without_timestamps": _flag,
        "max_initial_timestamp": _optional(_seconds),
        "word_timestamps": _flag,
        "prepend_punctuations": _text,
        "append_punctuations": _text,
        "hallucination_silence_threshold": _optional(_seconds),
        "sample_len": _optional(_count),
        "clip_timestamps": _clips,
        "vad_filter": _flag,
        "vad_threshold": _share,
        "vad_neg_threshold": _optional(_share),
        "vad_min_speech_duration_ms": _whole,
        "vad_max_speech_duration_s": _positive_or_infinity,
        "vad_min_silence_duration_ms": _whole,
        "vad_speech_pad_ms": _whole,
        "batch_size": _optional(_batch_size),
        "split_channels": _flag,
        "max_audio_seconds": _optional(_positive),
        "seed": _whole,
    }
)
