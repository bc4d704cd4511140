"""Options of text to speech.

The default of an option that is not given is that of the model's generation_config.json, else
upstream's. Names are those of qwen_tts/inference/qwen3_tts_model.py, where that has the option.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass, replace
from typing import Any

from oscine.options import Group, Options, option, options_of
from oscine.options.checks import any_value, flag, integer, number, optional, positive
from oscine.options.command import SpeakCommand

NUM_SEEDS = 1 << 32
#: Bounds of temperatures and repetition penalties, given or in a checkpoint's configuration: beyond
#: them scores overflow float32 or become equal.
MIN_FACTOR, MAX_FACTOR = 1e-3, 1e3
#: The default voice: the first of the released ones whose native language is English.
DEFAULT_VOICE = "ryan"

_FACTOR = f"be a number above {MIN_FACTOR:g}, up to {MAX_FACTOR:g}"


def _is_factor(x: float) -> bool:
    return MIN_FACTOR < x <= MAX_FACTOR


_factor = number(_FACTOR, _is_factor, strict=True)
_temperature = number(f"{_FACTOR} (do_sample off: greedy)", _is_factor, strict=True)
_share = number("be above 0 and at most 1", lambda x: 0 < x <= 1, strict=True)
check_silence = number("be seconds from 0 to 5", lambda x: 0 <= x <= 5, strict=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class VoiceOptions:
    """The voice, language and style of speech: arguments of `speak` and `stream`, which the model
    checks."""

    # fmt: off
    voice: Any = option(
        None, any_value, "A preset voice, or with base models a saved one; help lists them.",
        Group.VOICE, metavar="NAME", default_text=f"{DEFAULT_VOICE}, if the model has voices",
        unique=True,
        renamed_from={
            "speaker": "it is called voice here",
            "voice_clone_prompt": "save a voice once and give it as voice"})
    language: str | None = option(
        None, any_value,
        "Language of the text: a code or tag (de, pt-BR), or a name (German, Deutsch).",
        Group.VOICE,
        metavar="LANGUAGE", default_text="auto: the model decides", unique=True)
    instruct: str | None = option(
        None, any_value,
        "Speaking style (1.7b-custom-voice), or a description of the voice (voice-design).",
        Group.VOICE, metavar="TEXT",
        renamed_from={
            "speed": "the model sets its own pace; with instruct some models can be asked to hurry"
        })
    reference: Any = option(
        None, any_value,
        "Recording of the voice to clone, or - for stdin; 5 to 15 seconds (base models).",
        Group.VOICE, metavar="FILE", unique=True,
        renamed_from={"ref_audio": "it is called reference here"})
    reference_text: str | None = option(
        None, any_value, "Transcript of the reference, or a file with it; improves the voice.",
        Group.VOICE, metavar="TEXT", renamed_from={"ref_text": "it is called reference_text here"})
    # fmt: on


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeakOptions(Options):
    """Options of speech synthesis. Make one with `of`. None: the model's default."""

    purpose = "speech"
    call_arguments = (*options_of(VoiceOptions), "cancel")
    call_name = "speak or stream"
    related = (VoiceOptions, SpeakCommand)

    # A table; each row has default, check, help, group.
    # fmt: off
    seed: int | None = option(
        None, integer(0, NUM_SEEDS - 1, strict=True),
        "Random seed; the same seed gives the same speech.",
        Group.SAMPLING, metavar="NUMBER", default_text="random",
        renamed_from={"torch_seed": "there is one seed for all of an utterance: seed"})
    temperature: float | None = option(
        None, _temperature, "Sampling temperature; higher values vary more.", Group.SAMPLING,
        metavar="NUMBER", default_text="0.9", unique=True)
    top_k: int | None = option(
        None, integer(strict=True), "Sample from the k most likely codes; 0: all.",
        Group.SAMPLING, metavar="NUMBER", default_text="50")
    top_p: float | None = option(
        None, _share, "Sample from the most likely codes up to this total probability.",
        Group.SAMPLING, metavar="NUMBER", default_text="1: all")
    repetition_penalty: float | None = option(
        None, _factor, "Penalty for repeated codes; 1: none.", Group.SAMPLING,
        metavar="NUMBER", default_text="1.05")
    do_sample: bool | None = option(
        None, flag, "Sample codes; off: always the most likely code, which sounds worse.",
        Group.SAMPLING, default_text="on")
    subtalker_temperature: float | None = option(
        None, _temperature, "Temperature of the fine codes.", Group.SAMPLING,
        metavar="NUMBER", default_text="0.9")
    subtalker_top_k: int | None = option(
        None, integer(strict=True), "top_k of the fine codes.", Group.SAMPLING, metavar="NUMBER",
        default_text="50")
    subtalker_top_p: float | None = option(
        None, _share, "top_p of the fine codes.", Group.SAMPLING, metavar="NUMBER",
        default_text="1")
    subtalker_do_sample: bool | None = option(
        None, flag, "do_sample of the fine codes.", Group.SAMPLING, default_text="on",
        renamed_from={"subtalker_dosample": "it is called subtalker_do_sample here"})

    x_vector_only: bool | None = option(
        None, flag, "Clone only the timbre of the voice, not its speaking style.", Group.VOICE,
        default_text="on without --reference-text",
        renamed_from={"x_vector_only_mode": "it is called x_vector_only here"})
    reference_silence: float | None = option(
        None, check_silence,
        "Silence after the reference, 0 to 5 seconds, so that its last words are not repeated.",
        Group.VOICE,
        metavar="SECONDS", default_text="0")

    max_seconds: float | None = option(
        None, positive("be a number above 0", strict=True),
        "Maximum duration of the speech, in seconds.", Group.LENGTH, metavar="SECONDS",
        default_text="estimated from the text")
    max_frames: int | None = option(
        None, integer(1, strict=True), "Maximum number of frames of 80 ms.", Group.LENGTH,
        metavar="NUMBER",
        renamed_from={
            "max_new_tokens": "use max_frames, which is one less, or max_seconds",
            "min_new_tokens": "an utterance has at least 2 frames, as upstream"})
    # Upstream streams the text when cloning. Speech then becomes faster and faster, since text
    # arrives at 12.5 tokens a second and speech uses 4 to 5, and with a long reference it is
    # hurried from the first word: +17 % within an utterance (QwenLM/Qwen3-TTS, issue 239 and pull
    # request 362).
    streamed_text: bool | None = option(
        None, flag, "Give the model the text incrementally; cloned voices then speed up.",
        Group.LENGTH, default_text="off",
        renamed_from={"non_streaming_mode": "use streamed_text, which is the opposite"})
    trim_silence: bool = option(
        False, optional(flag, False), "Remove silence at the beginning.",
        Group.LENGTH, flags=("--trim-silence",))
    guard: bool = option(
        True, optional(flag, True),
        "Detect endless, silent or repetitive speech, and retry or stop.", Group.LENGTH)
    # fmt: on

    def with_seed(self) -> SpeakOptions:
        """These options with a random seed if none was given."""
        return self if self.seed is not None else replace(self, seed=secrets.randbelow(NUM_SEEDS))

    def samples(self, rate: int) -> int | None:
        """Maximum number of samples at a sample rate; None: limited by text and max_frames only."""
        return None if self.max_seconds is None else math.floor(self.max_seconds * rate + 1e-6)
