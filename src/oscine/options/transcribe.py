"""Options of transcription, and their checks.

The options of one step are a class of their own, and TranscribeOptions inherits from all of them,
so that a function takes only the part that it needs.

Source: whisper/transcribe.py and DecodingOptions in whisper/decoding.py, with the same names and
defaults; further options are named as in faster_whisper/transcribe.py, and those of Parakeet's
segments as in parakeet-mlx. An option is never ignored: it works, or it is refused by name.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from oscine.errors import UsageError
from oscine.options import PARAKEET, WHISPER, Group, Options, option, options_of
from oscine.options.aliases import PYTHON_HINTS
from oscine.options.checks import (
    Clip,
    any_number,
    flag,
    fraction,
    integer,
    integer_or,
    invalid,
    non_negative,
    one_of,
    optional,
    parse_clips,
    positive,
    temperatures,
    text,
    token_ids,
)
from oscine.options.command import TranscribeCommand
from oscine.options.layout import Layout
from oscine.text.languages import language_code

Task: TypeAlias = Literal["transcribe", "translate"]
Batch: TypeAlias = int | str | None  # "auto": the model chooses

DEFAULT_TEMPERATURES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
MIN_TEMPERATURE, MAX_TEMPERATURE = 0.001, 1000.0  # beyond, logits / t become infinite or equal
DEFAULT_BEST_OF = 5
MAX_BEAMS = 16
MAX_SAMPLES = 64  # of best_of, and finished hypotheses of a beam search
MAX_BATCH_SIZE = 64
MAX_DETECTION_SEGMENTS = 1000  # windows used to detect the language
PREPEND_PUNCTUATIONS = "\"'“¿([{-"
APPEND_PUNCTUATIONS = "\"'.。,，!！?？:：”)]}、"
SILENCE_GAP_S = 2.0  # pause between two words that ends a segment
MAX_SEGMENT_S = 30.0  # a single word may be longer

_WORD_SEGMENTS_HINT = "only Parakeet's segments are made of words; Whisper's are its own"
_above_0_s = positive("be seconds above 0", strict=True, infinite=True)


def _check_language(name: str, value: Any) -> str | None:
    return language_code(text(name, value))


def _check_track(name: str, value: Any) -> int | str:
    """Accept the number of an audio track, from 1, or its language as text."""
    if isinstance(value, str) and not value.strip().lstrip("+-").replace(".", "").isdecimal():
        if value.strip():
            return text(name, value).strip()
        raise invalid(name, "be a number from 1 or a language", value)
    return int(integer(1)(name, value))


@dataclass(frozen=True, kw_only=True)
class FallbackThresholds:
    """When a window is decoded again at the next temperature, or is skipped as silence."""

    # fmt: off
    compression_ratio_threshold: float | None = option(
        2.4, optional(any_number),
        "Decode again if the compression ratio of the text is above this.",
        Group.FALLBACK, families=(WHISPER,))
    logprob_threshold: float | None = option(
        -1.0, optional(any_number), "Decode again if the average log probability is below this.",
        Group.FALLBACK, families=(WHISPER,))
    no_speech_threshold: float | None = option(
        0.6, optional(any_number),
        "Skip a window as silence if its no-speech probability is above this and it is unlikely.",
        Group.FALLBACK, families=(WHISPER,))
    # fmt: on


@dataclass(frozen=True, kw_only=True)
class WordOptions:
    """Whisper's word timestamps: merged punctuation, and when hallucinations are dropped."""

    # fmt: off
    word_timestamps: bool = option(
        False, flag, "Find the start and end of each word.", Group.TIMES)
    prepend_punctuations: str = option(
        PREPEND_PUNCTUATIONS, text, "Punctuation marks to merge with the next word.", Group.TIMES,
        families=(WHISPER,))
    append_punctuations: str = option(
        APPEND_PUNCTUATIONS, text,
        "Punctuation marks to merge with the previous word.", Group.TIMES,
        families=(WHISPER,))

    hallucination_silence_threshold: float | None = option(
        None, optional(non_negative),
        "Skip silence longer than this, in seconds, around hallucinated text; needs "
        "word_timestamps.",
        Group.FALLBACK, families=(WHISPER,))
    # fmt: on


@dataclass(frozen=True, kw_only=True)
class SegmentOptions:
    """Where a segment of Parakeet's words ends."""

    # fmt: off
    max_words: int | None = option(
        None, integer(1, strict=True), "Maximum number of words per segment.", Group.SEGMENTS,
        families=(PARAKEET,), refusal=f"{_WORD_SEGMENTS_HINT}; subtitles have max_words_per_line")
    silence_gap: float | None = option(
        None, _above_0_s, "Pause that ends a segment, in seconds.", Group.SEGMENTS,
        default_text=f"{SILENCE_GAP_S:g}", families=(PARAKEET,), refusal=_WORD_SEGMENTS_HINT)
    max_duration: float | None = option(
        None, _above_0_s, "Maximum duration of a segment, in seconds.", Group.SEGMENTS,
        default_text=f"{MAX_SEGMENT_S:g}", families=(PARAKEET,), refusal=_WORD_SEGMENTS_HINT)
    # fmt: on


@dataclass(frozen=True, kw_only=True)
class DecodingOptions(WordOptions, FallbackThresholds):
    """How Whisper decodes the windows of a recording, and makes segments of their text.

    Source: DecodingOptions in whisper/decoding.py, with the options of each window that its
    transcribe.py has.
    """

    # fmt: off
    batch_size: Batch = option(
        None, integer_or("auto", MAX_BATCH_SIZE),
        f"Number of windows decoded in parallel, up to {MAX_BATCH_SIZE}; auto: as many as fit.",
        Group.MODEL,
        metavar="N", default_text="1; with Parakeet auto")

    language: str | None = option(
        None, _check_language,
        "Language spoken: a code or tag (de, pt-BR), a name (German, Deutsch), or auto.",
        Group.AUDIO,
        default_text="detected", unique=True, flags=("--language", "-l"))
    task: Task = option(
        "transcribe", one_of("transcribe", "translate"),
        "Transcribe in the spoken language, or translate to English.",
        Group.AUDIO, families=(WHISPER,))
    multilingual: bool = option(
        False, flag, "Detect the language of each window.", Group.AUDIO, families=(WHISPER,))

    without_timestamps: bool = option(
        False, flag,
        "Decode without timestamps, one segment per window.", Group.TIMES, families=(WHISPER,))
    max_initial_timestamp: float | None = option(
        1.0, optional(non_negative),
        "Maximum first timestamp of a window, in seconds; None: no limit.", Group.TIMES,
        families=(WHISPER,))

    initial_prompt: str | None = option(
        None, text,
        "Text that the model is given as context before the first window.",
        Group.CONTEXT, families=(WHISPER,),
        unique=True, renamed_from={"prompt": "use initial_prompt"})
    carry_initial_prompt: bool = option(
        False, flag, "Give the initial prompt as context to every window.", Group.CONTEXT,
        families=(WHISPER,))
    condition_on_previous_text: bool | None = option(
        None, flag, "Give the previous text as context to each window.", Group.CONTEXT,
        default_text="unless in batches", families=(WHISPER,), no_op_values=(False,))
    prefix: str | None = option(
        None, text,
        "Text that the transcript of each window begins with.", Group.CONTEXT, families=(WHISPER,))
    hotwords: str | None = option(
        None, text, "Words or names that are likely to occur.", Group.CONTEXT, unique=True)

    temperature: tuple[float, ...] = option(
        DEFAULT_TEMPERATURES, temperatures(MIN_TEMPERATURE, MAX_TEMPERATURE),
        "Sampling temperature; 0: always the most likely token.",
        Group.SEARCH, cli_default=0.0, families=(WHISPER,), no_op_values=((0.0,),), unique=True)
    best_of: int | None = option(
        None, integer(1, MAX_SAMPLES), "Number of samples at temperatures above 0.", Group.SEARCH,
        default_text=f"{DEFAULT_BEST_OF}", families=(WHISPER,), no_op_values=(1,))
    beam_size: int | None = option(
        None, integer(1, MAX_BEAMS), "Number of beams at temperature 0.", Group.SEARCH,
        default_text="1, greedy", families=(WHISPER,), no_op_values=(1,))
    patience: float | None = option(
        None, positive(), "Number of beams to finish, as a multiple of beam_size.", Group.SEARCH,
        default_text="1", families=(WHISPER,))
    length_penalty: float | None = option(
        None, fraction,
        "Exponent of the length penalty, 0 to 1; None: rank by mean log probability.", Group.SEARCH,
        families=(WHISPER,))
    repetition_penalty: float = option(
        1.0, positive(), "Penalty for repeated tokens; 1: none.", Group.SEARCH,
        families=(WHISPER,))
    no_repeat_ngram_size: int = option(
        0, integer(), "Do not repeat n-grams of this many tokens; 0: no limit.", Group.SEARCH,
        families=(WHISPER,))
    suppress_tokens: tuple[int, ...] = option(
        (-1,), token_ids, "Comma-separated token ids to suppress; -1: most special characters.",
        Group.SEARCH, cli_default="-1", families=(WHISPER,), unique=True)
    suppress_blank: bool = option(
        True, flag,
        "Suppress blank output at the beginning of a window.", Group.SEARCH, families=(WHISPER,))
    sample_len: int | None = option(
        None, integer(1), "Maximum number of tokens per window.", Group.SEARCH, default_text="224",
        families=(WHISPER,), renamed_from={"max_new_tokens": "use sample_len"})
    seed: int = option(
        0, integer(), "Random seed for temperatures above 0.", Group.SEARCH, families=(WHISPER,))
    # fmt: on

    @property
    def beams(self) -> int:
        """Number of beams at temperature 0; 1: greedy search."""
        return self.beam_size or 1

    @property
    def batched(self) -> bool:
        """Whether windows are decoded in batches, without the text of earlier windows."""
        return self.batch_size not in (None, 1)

    @property
    def conditioned(self) -> bool:
        """Whether a window is conditioned on the text before it."""
        if self.condition_on_previous_text is None:
            return not self.batched
        return self.condition_on_previous_text


@dataclass(frozen=True, kw_only=True)
class TranscribeOptions(Options, DecodingOptions, SegmentOptions):
    """Options of all families that transcribe.

    Make one with `of`, which accepts values in openai-whisper's forms, or with the `of` of a
    family's SupportedOptions, which also refuses unsupported options. Code that needs only a part
    of the options takes the base class with that part.
    """

    purpose = "transcribe"
    related = (TranscribeCommand, Layout)
    foreign_hints = PYTHON_HINTS

    # fmt: off
    language_detection_segments: int = option(
        4, integer(1, MAX_DETECTION_SEGMENTS),
        "Maximum number of windows used to detect the language.",
        Group.AUDIO, families=(WHISPER,))
    language_detection_threshold: float | None = option(
        0.5, optional(fraction),
        "Accept a language without more windows above this probability.", Group.AUDIO,
        families=(WHISPER,))
    audio_track: int | str | None = option(
        None, _check_track, "Audio track: its number, from 1, or its language.", Group.AUDIO,
        metavar="N|LANGUAGE", default_text="the default track, else the first with sound",
        unique=True)
    split_channels: bool = option(
        False, flag, "Transcribe each channel separately.", Group.AUDIO)
    max_audio_seconds: float | None = option(
        None, positive(), "Refuse recordings longer than this, in seconds.", Group.AUDIO)
    clip_timestamps: tuple[Clip, ...] = option(
        ((0.0, None),), parse_clips,
        "Clips to transcribe, start,end,start,... in seconds or H:MM:SS; the last end is optional.",
        Group.AUDIO,
        cli_default="0", unique=True)

    vad_filter: bool = option(
        True, flag, "Detect speech (VAD), and transcribe only that.", Group.VAD,
        flags=("--vad-filter/--no-vad-filter", " /--no-vad"))
    vad_threshold: float = option(
        0.5, fraction, "Speech begins above this probability.", Group.VAD,
        renamed_from={
            "vad_parameters": "use vad_threshold=, vad_min_silence_duration_ms= and so on"})
    vad_neg_threshold: float | None = option(
        None, fraction, "Speech ends below this probability.", Group.VAD,
        default_text="0.15 below vad_threshold")
    vad_min_speech_duration_ms: int = option(
        0, integer(), "Discard speech shorter than this, in milliseconds.", Group.VAD)
    vad_max_speech_duration_s: float = option(
        math.inf, positive(infinite=True), "Split speech longer than this, in seconds.", Group.VAD)
    vad_min_silence_duration_ms: int = option(
        2000, integer(), "Minimum silence between two speech segments, in milliseconds.", Group.VAD)
    vad_speech_pad_ms: int = option(
        400, integer(), "Padding on each side of speech, in milliseconds.", Group.VAD)
    # fmt: on

    def check(self) -> None:
        """Raise UsageError for options that contradict each other."""
        self._check_search()
        self._check_languages()
        self._check_words()
        self._check_speech()
        self._check_context()

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
            if round(self.beams * self.patience) > MAX_SAMPLES:
                raise UsageError(
                    f"patience={self.patience} is too large for beam_size={self.beams}: "
                    f"{MAX_SAMPLES} beams are the most to wait for"
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
        for name in self.non_default("language_detection_segments", "language_detection_threshold"):
            raise UsageError(f"{name} is for finding the language; leave out language")

    def _check_words(self) -> None:
        if not self.word_timestamps:
            for name in self.non_default(
                "prepend_punctuations", "append_punctuations", "hallucination_silence_threshold"
            ):
                raise UsageError(f"{name} needs word_timestamps=True")
        if self.without_timestamps:
            for name in self.non_default("max_initial_timestamp"):
                raise UsageError(f"{name} needs timestamps; leave out without_timestamps")

    def _check_speech(self) -> None:
        if not self.vad_filter:
            records = options_of(type(self)).values()
            names = [each.name for each in records if each.group == Group.VAD]
            for name in self.non_default(*names):
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
