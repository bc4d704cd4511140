"""Options of speech, as Qwen3-TTS supports them."""

from __future__ import annotations

from dataclasses import fields, replace

from oscine.models.qwen3_tts.config import GenerationConfig, SamplingParams
from oscine.options import QWEN3_TTS, SupportedOptions, options_of
from oscine.options.speak import NUM_SEEDS, SpeakOptions

OPTIONS = SupportedOptions(SpeakOptions, QWEN3_TTS)


def sampling_params(
    options: SpeakOptions, generation: GenerationConfig
) -> tuple[SamplingParams, SamplingParams]:
    """Sampling of the talker and of the code predictor: the given options, else the model's
    values.
    """
    return _override(options, generation.talker, ""), _override(
        options, generation.subtalker, "subtalker_"
    )


def _override(options: SpeakOptions, defaults: SamplingParams, prefix: str) -> SamplingParams:
    known = options_of(SpeakOptions)
    values = {
        field.name: getattr(options, prefix + field.name)
        for field in fields(SamplingParams)
        if prefix + field.name in known
    }
    return replace(defaults, **{name: value for name, value in values.items() if value is not None})


def retry_seed(seed: int) -> int:
    """The seed of a retry, which depends on the first seed alone."""
    return (seed * 0x9E3779B1 + 0x85EBCA6B) % NUM_SEEDS
