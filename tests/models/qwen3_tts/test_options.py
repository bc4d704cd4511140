"""Options of speech: their one form, where their defaults come from, and how they are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oscine.errors import UsageError
from oscine.models.qwen3_tts.config import GenerationConfig, SamplingParams
from oscine.models.qwen3_tts.options import retry_seed, sampling_params
from oscine.options.speak import NUM_SEEDS, SpeakOptions

FACTORS = ("temperature", "subtalker_temperature", "repetition_penalty")
WRONG = [
    *((name, value) for name in FACTORS for value in (1e39, 1e300, 1001, 1e-3, 1e-45, 1e-300)),
    *(("temperature", value) for value in (0, -1, "hot", float("nan"), float("inf"), True)),
    *(("subtalker_temperature", value) for value in (0.0, -0.1)),
    *(("top_p", value) for value in (0, -0.5, 1.01, "x")),
    *(("subtalker_top_p", value) for value in (0, 2)),
    *(("top_k", value) for value in (-1, 1.5, "50", True)),
    *(("subtalker_top_k", value) for value in (-1,)),
    *(("repetition_penalty", value) for value in (0, -1, float("inf"))),
    *(("max_frames", value) for value in (0, -3, 2.0)),
    *(("max_seconds", value) for value in (0, -1, float("inf"))),
    *(("seed", value) for value in (-1, 1 << 32, "x", 1.0)),
    *(("do_sample", value) for value in (1, "yes")),
    *(("guard", value) for value in (0, "off")),
    *(("reference_silence", value) for value in (-1, 60)),
]


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_values_that_are_refused(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{name} must be "):
        SpeakOptions.of(**{name: value})


def test_unknown_options_are_refused_with_a_hint() -> None:
    with pytest.raises(UsageError, match="did you mean temperature"):
        SpeakOptions.of(temprature=1.0)
    with pytest.raises(UsageError, match="use max_frames"):
        SpeakOptions.of(max_new_tokens=100)
    with pytest.raises(UsageError, match="did you mean reference_text"):
        SpeakOptions.of(reference_txt="Hello.")
    with pytest.raises(UsageError, match=r"known: voice, language, .*cancel, seed, .*guard$"):
        SpeakOptions.of(xyz=1)
    with pytest.raises(UsageError, match="voice is not in SpeakOptions: give it to speak"):
        SpeakOptions.of(voice="ryan")


def test_none_is_the_default_and_numbers_of_numpy_are_numbers() -> None:
    assert SpeakOptions.of(temperature=None, top_k=None) == SpeakOptions()
    assert SpeakOptions.of(top_k=np.int64(7), temperature=np.float32(0.5)).top_k == 7


def test_what_is_not_given_is_the_models() -> None:
    generation = GenerationConfig(
        talker=SamplingParams(temperature=0.7, top_k=20),
        subtalker=SamplingParams(top_p=0.8, temperature=0.6),
    )
    options = SpeakOptions.of(temperature=0.5, subtalker_top_k=3, repetition_penalty=1.2)
    talker, predictor = sampling_params(options, generation)
    assert talker == SamplingParams(temperature=0.5, top_k=20, repetition_penalty=1.2)
    assert predictor == SamplingParams(temperature=0.6, top_k=3, top_p=0.8)
    greedy = sampling_params(SpeakOptions.of(do_sample=False), generation)
    assert not greedy[0].do_sample and greedy[1].do_sample
    both = sampling_params(SpeakOptions.of(do_sample=False, subtalker_do_sample=False), generation)
    assert not both[1].do_sample


def test_length() -> None:
    assert SpeakOptions().samples(24_000) is None
    assert SpeakOptions.of(max_seconds=0.1).samples(24_000) == 2400
    assert SpeakOptions.of(max_seconds=8).samples(16_000) == 128_000


def test_seeds() -> None:
    assert SpeakOptions.of(seed=5).with_seed().seed == 5
    drawn = {SpeakOptions().with_seed().seed for _ in range(4)}
    assert len(drawn) == 4 and all(seed is not None and 0 <= seed < NUM_SEEDS for seed in drawn)
    assert retry_seed(5) != 5 and 0 <= retry_seed(NUM_SEEDS - 1) < NUM_SEEDS
