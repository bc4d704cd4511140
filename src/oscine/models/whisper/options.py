"""What a transcription may be asked to do, and the one place where it is refused.

Source: whisper/transcribe.py and DecodingOptions in whisper/decoding.py, same names, same defaults;
what those lack is called as in faster_whisper/transcribe.py. An option is never ignored: it works,
or it is refused by name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

from oscine.errors import UsageError
from oscine.models.whisper.checks import CHECKS, MOST_SAMPLES
from oscine.models.whisper.checks import Clip as Clip

TEMPERATURES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
BEST_OF = 5
PREPEND_PUNCTUATIONS = "\"'“¿([{-"
APPEND_PUNCTUATIONS = "\"'.。,，!！?？:：”)]}、"

OF_PARAKEET = frozenset({"max_words", "silence_gap", "max_duration"})
_WORDS = "only Parakeet's segments are made of words; Whisper's are its own"
_WRITER = "give it to formats.Layout, or to the command"
#: Options of openai-whisper and faster-whisper that are settled elsewhere, and where.
ELSEWHERE: Mapping[str, str] = MappingProxyType(
    {
        "fp16": "choose the precision when loading the model: dtype='f32' or 'f16'",
        "verbose": "pass progress=, or iterate over stream() to see segments as they come",
        "log_progress": "pass progress=",
        "prompt": "use initial_prompt",
        "model_dir": "set the environment variable OSCINE_HOME",
        "vad_parameters": "use vad_threshold=, vad_min_silence_duration_ms= and so on",
        "max_new_tokens": "use sample_len",
        "temperature_increment_on_fallback": "use temperature=(0, 0.2, 0.4, 0.6, 0.8, 1)",
        "max_words": _WORDS + "; subtitles have max_words_per_line",
        "silence_gap": _WORDS,
        "max_duration": _WORDS,
        "highlight_words": _WRITER,
        "max_line_width": _WRITER,
        "max_line_count": _WRITER,
        "max_words_per_line": _WRITER,
        "threads": "set the environment variable OSCINE_THREADS, or call threads.set_count",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscribeOptions:
    """Checked and normalised options; make them with `of`, which takes openai-whisper's forms."""

    language: str | None = None  # a code; None: detected
    task: str = "transcribe"
    multilingual: bool = False  # the language of every window apart
    language_detection_segments: int = 4  # most windows that are listened to for the language
    language_detection_threshold: float | None = 0.5  # probability at which no more are asked
    temperature: tuple[float, ...] = TEMPERATURES  # tried in turn while the result is poor
    best_of: int | None = None  # samples at a temperature; None: 5
    beam_size: int | None = None  # beams at temperature 0; None or 1: greedy
    patience: float | None = None  # beams to finish, in parts of beam_size; None: 1
    length_penalty: float | None = None  # alpha of Google NMT; None: by mean logprob
    repetition_penalty: float = 1.0  # above 1: tokens that were picked are less likely
    no_repeat_ngram_size: int = 0  # no run of so many tokens twice; 0: any
    compression_ratio_threshold: float | None = 2.4  # above: poor, as it repeats itself
    logprob_threshold: float | None = -1.0  # below: poor
    no_speech_threshold: float | None = 0.6  # above, with a low logprob: silence
    condition_on_previous_text: bool | None = None  # None: unless in batches
    initial_prompt: str | None = None
    carry_initial_prompt: bool = False
    prefix: str | None = None
    hotwords: str | None = None  # shown to every window
    suppress_tokens: tuple[int, ...] = (-1,)  # -1: the non-speech list
    suppress_blank: bool = True
    without_timestamps: bool = False
    max_initial_timestamp: float | None = 1.0  # seconds
    word_timestamps: bool = False
    prepend_punctuations: str = PREPEND_PUNCTUATIONS  # joined to the word after
    append_punctuations: str = APPEND_PUNCTUATIONS  # joined to the word before
    hallucination_silence_threshold: float | None = None  # seconds of silence around made-up text
    sample_len: int | None = None  # most tokens a window; None: half the text context
    clip_timestamps: tuple[Clip, ...] = ((0.0, None),)  # seconds; None: the end of the audio
    vad_filter: bool = True  # only what a voice activity detector hears
    vad_threshold: float = 0.5  # probability above which it is speech
    vad_neg_threshold: float | None = None  # below: no longer; None: 0.15 under vad_threshold
    vad_min_speech_duration_ms: int = 0  # shorter speech is left out
    vad_max_speech_duration_s: float = math.inf  # longer speech is cut
    vad_min_silence_duration_ms: int = 2000  # shorter silence is kept
    vad_speech_pad_ms: int = 400  # kept on either side of speech
    batch_size: int | str | None = None  # windows at once; None or 1: one after another; "auto"
    split_channels: bool = False  # every channel apart
    max_audio_seconds: float | None = None  # a longer recording is refused; None: none is
    seed: int = 0

    @classmethod
    def of(cls, **options: Any) -> TranscribeOptions:
        """Check and normalise; UsageError names the option that cannot be carried out."""
        known = {field.name for field in fields(cls)}
        given = {}
        for name, value in options.items():
            if name in known:
                given[name] = CHECKS[name](name, value)
            elif name not in ELSEWHERE:
                near = get_close_matches(name, known, 1)
                hint = f"; did you mean {near[0]}?" if near else ""
                raise UsageError(f"unknown option {name}{hint}")
            elif value is not None:
                whose = "Whisper" if name in OF_PARAKEET else "transcribe"
                raise UsageError(f"{name} is not an option of {whose}; {ELSEWHERE[name]}")
        checked = cls(**given)
        checked._check_search()
        checked._check_languages()
        checked._check_words()
        checked._check_speech()
        checked._check_context()
        return checked

    @property
    def beams(self) -> int:
        """Beams at temperature 0; 1: greedy."""
        return self.beam_size or 1

    @property
    def batched(self) -> bool:
        """Whether windows are decoded side by side and know nothing of each other."""
        return self.batch_size not in (None, 1)

    @property
    def conditioned(self) -> bool:
        """Whether a window sees the text before it."""
        if self.condition_on_previous_text is None:
            return not self.batched
        return self.condition_on_previous_text

    def _differ(self, *names: str) -> list[str]:
        """Those of the options that do not have their default."""
        defaults = {field.name: field.default for field in fields(self)}
        return [name for name in names if getattr(self, name) != defaults[name]]

    def _check_search(self) -> None:
        warm = any(self.temperature)
        if self.best_of is not None and not warm:
            raise UsageError("best_of needs a temperature above 0")
        if self.beams > 1 and all(self.temperature):
            raise UsageError("beam_size needs temperature 0, at which beams are searched")
        if self.patience is not None:
            if self.beams == 1:
                raise UsageError("patience needs beam_size above 1")
            if round(self.beams * self.patience) < 1:
                raise UsageError(
                    f"patience={self.patience} is too small for beam_size={self.beams}: "
                    "their product must round to 1 or more"
                )
            if round(self.beams * self.patience) > MOST_SAMPLES:
                raise UsageError(
                    f"patience={self.patience} is too large for beam_size={self.beams}: "
                    f"{MOST_SAMPLES} beams are the most to wait for"
                )
        if self.length_penalty is not None and self.beams == 1 and (not warm or self.best_of == 1):
            raise UsageError(
                "length_penalty needs several results to choose from: beam_size or best_of above 1"
            )

    def _check_languages(self) -> None:
        if self.language is None:
            return
        if self.multilingual:
            raise UsageError("multilingual finds the language of every window; leave out language")
        for name in self._differ("language_detection_segments", "language_detection_threshold"):
            raise UsageError(f"{name} is for finding the language; leave out language")

    def _check_words(self) -> None:
        if not self.word_timestamps:
            for name in self._differ(
                "prepend_punctuations", "append_punctuations", "hallucination_silence_threshold"
            ):
                raise UsageError(f"{name} needs word_timestamps=True")
        if self.without_timestamps:
            for name in self._differ("max_initial_timestamp"):
                raise UsageError(f"{name} needs timestamps; leave out without_timestamps")

    def _check_speech(self) -> None:
        if not self.vad_filter:
            names = [field.name for field in fields(self) if field.name.startswith("vad_")]
            for name in self._differ(*names):
                if name != "vad_filter":
                    raise UsageError(f"{name} needs vad_filter=True")
        if self.vad_neg_threshold is not None and self.vad_neg_threshold > self.vad_threshold:
            raise UsageError(
                f"vad_neg_threshold={self.vad_neg_threshold} must not be above "
                f"vad_threshold={self.vad_threshold}"
            )

    def _check_context(self) -> None:
        if self.carry_initial_prompt and self.initial_prompt is None:
            raise UsageError("carry_initial_prompt needs initial_prompt")
        if not self.batched:
            return
        alone = f"with batch_size={self.batch_size}: windows of a batch cannot see each other"
        if self.condition_on_previous_text:
            raise UsageError(f"condition_on_previous_text=True does not go {alone}")
        prompted = self.initial_prompt is not None and self.initial_prompt.strip()
        if prompted and not self.carry_initial_prompt:
            raise UsageError(
                f"initial_prompt does not go {alone}; "
                "with carry_initial_prompt=True every window is shown it, or use hotwords"
            )
        if self.hallucination_silence_threshold is not None:
            raise UsageError(
                f"hallucination_silence_threshold does not go with batch_size={self.batch_size}: "
                "it moves the next window; leave out batch_size"
            )
