"""How speech may be asked for: every option in its one form, or refused by name.

What is not given comes from the model's generation_config.json, and where that says nothing from
upstream's own defaults. Same names as in qwen_tts/inference/qwen3_tts_model.py; what that lacks is
ours.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from operator import index
from reprlib import repr as shortened
from types import MappingProxyType
from typing import Any

from oscine.errors import UsageError
from oscine.models.qwen3_tts.config import LEAST_FACTOR, MOST_FACTOR, Generation, Sampling

SEEDS = 1 << 32

#: What speak and stream take besides: who speaks, how, and how long.
BESIDES = ("voice", "language", "instruct", "reference", "reference_text", "cancel")
_SETTLED = "there is one seed for all of an utterance: seed"
#: Options of upstream and of other programs that are settled elsewhere, and where.
ELSEWHERE: Mapping[str, str] = MappingProxyType(
    {
        "max_new_tokens": "use max_frames, which is one less, or max_seconds",
        "min_new_tokens": "an utterance has at least 2 frames, as upstream",
        "speaker": "it is called voice here",
        "ref_audio": "it is called reference here",
        "ref_text": "it is called reference_text here",
        "voice_clone_prompt": "save a voice once and give it as voice",
        "x_vector_only_mode": "it is called x_vector_only here",
        "non_streaming_mode": "use streamed_text, which is the opposite",
        "subtalker_dosample": "it is called subtalker_do_sample here",
        "torch_seed": _SETTLED,
        "speed": "the model sets its own pace; with instruct some models can be asked to hurry",
        "format": "give it to Speech.save",
        "dtype": "choose the precision when loading the model",
        "device": "choose the device when loading the model",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeakOptions:
    """Checked and normalised options; make them with `of`. None: as the model says."""

    seed: int | None = None  # 0 to 2³² - 1; None: drawn
    do_sample: bool | None = None  # False: greedy, for tests; released models are made to sample
    temperature: float | None = None
    top_k: int | None = None  # 0: all
    top_p: float | None = None
    repetition_penalty: float | None = None
    subtalker_do_sample: bool | None = None  # of the predictor of codes 1 to G - 1
    subtalker_temperature: float | None = None
    subtalker_top_k: int | None = None
    subtalker_top_p: float | None = None
    max_frames: int | None = None  # in all, released models' are of 80 ms; None: by the text alone
    max_seconds: float | None = None  # of audio in all, the quiet between sentences too
    x_vector_only: bool | None = None  # None: where the reference comes without text
    streamed_text: bool | None = None  # heard while speaking; None: as upstream, when cloning
    reference_silence: float = 0.0  # seconds put after a reference, against its leaking
    guard: bool = True  # watch for an end that never comes, silence and repetition

    @classmethod
    def of(cls, **options: Any) -> SpeakOptions:
        """Check and normalise; None is the default. UsageError names the option."""
        checks = _CHECKS
        for name in options:
            if name in ELSEWHERE:
                raise UsageError(f"{name} is not an option of speech: {ELSEWHERE[name]}")
            if name in BESIDES:
                raise UsageError(f"{name} is no SpeakOptions: give it to speak or stream")
            if name not in checks:
                known = (*BESIDES, *checks)
                close = get_close_matches(name, known, n=1)
                hint = f"; did you mean {close[0]}?" if close else f"; known: {', '.join(known)}"
                raise UsageError(f"there is no option {name!r} of speech{hint}")
        given = {name: value for name, value in options.items() if value is not None}
        return cls(**{name: checks[name](name, value) for name, value in given.items()})

    def with_seed(self) -> SpeakOptions:
        """The same, with a seed drawn where none was given."""
        return self if self.seed is not None else replace(self, seed=secrets.randbelow(SEEDS))

    def sampling(self, generation: Generation) -> tuple[Sampling, Sampling]:
        """How the talker chooses, and how the predictor does."""
        return self._over(generation.talker, ""), self._over(generation.predictor, "subtalker_")

    def _over(self, defaults: Sampling, prefix: str) -> Sampling:
        names = {field.name for field in fields(self)}
        values = {
            field.name: getattr(self, prefix + field.name)
            for field in fields(Sampling)
            if prefix + field.name in names
        }
        return replace(defaults, **{n: value for n, value in values.items() if value is not None})

    def samples(self, rate: int) -> int | None:
        """Most samples in all at a rate; None: no bound but the text's and max_frames."""
        return None if self.max_seconds is None else math.floor(self.max_seconds * rate + 1e-6)


def next_seed(seed: int) -> int:
    """Another seed that follows from the first: what a second try takes."""
    return (seed * 0x9E3779B1 + 0x85EBCA6B) % SEEDS


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"{name} must be True or False, not {shortened(value)}")
    return value


def _whole(low: int, most: int | None = None) -> Callable[[str, Any], int]:
    wanted = f"a whole number from {low}" + ("" if most is None else f" to {most}")

    def check(name: str, value: Any) -> int:
        try:
            number = index(value)
        except TypeError:
            number = low - 1
        if isinstance(value, bool) or number < low or (most is not None and number > most):
            raise UsageError(f"{name} must be {wanted}, not {shortened(value)}")
        return number

    return check


def _number(wanted: str, fits: Callable[[float], bool]) -> Callable[[str, Any], float]:
    def check(name: str, value: Any) -> float:
        try:
            number = math.nan if isinstance(value, bool | str) else float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not math.isfinite(number) or not fits(number):
            raise UsageError(f"{name} must be {wanted}, not {shortened(value)}")
        return number

    return check


_above_zero = _number("a number above 0", lambda x: x > 0)
_factor = _number(
    f"a number above {LEAST_FACTOR:g}, up to {MOST_FACTOR:g}",
    lambda x: LEAST_FACTOR < x <= MOST_FACTOR,
)
_temperature = _number(
    f"a number above {LEAST_FACTOR:g}, up to {MOST_FACTOR:g} (do_sample off: the likeliest)",
    lambda x: LEAST_FACTOR < x <= MOST_FACTOR,
)
_share = _number("above 0 and at most 1", lambda x: 0 < x <= 1)

checked_silence = _number("seconds from 0 to 5", lambda x: 0 <= x <= 5)

_CHECKS: Mapping[str, Callable[[str, Any], Any]] = MappingProxyType(
    {
        "seed": _whole(0, SEEDS - 1),
        "do_sample": _flag,
        "temperature": _temperature,
        "top_k": _whole(0),
        "top_p": _share,
        "repetition_penalty": _factor,
        "subtalker_do_sample": _flag,
        "subtalker_temperature": _temperature,
        "subtalker_top_k": _whole(0),
        "subtalker_top_p": _share,
        "max_frames": _whole(1),
        "max_seconds": _above_zero,
        "x_vector_only": _flag,
        "streamed_text": _flag,
        "reference_silence": checked_silence,
        "guard": _flag,
    }
)
