"""Options of Parakeet: what it takes, and what it refuses by name."""

from __future__ import annotations

from typing import Any

import pytest

from oscine.errors import UsageError
from oscine.models.parakeet.options import OPTIONS, parse_hotwords
from oscine.options import PARAKEET, options_of
from oscine.options.transcribe import TranscribeOptions

#: Options that Parakeet has not, and a value that Whisper takes for each.
REFUSED: dict[str, dict[str, Any]] = {
    "multilingual": {"multilingual": True},
    "language_detection_segments": {"language_detection_segments": 2},
    "language_detection_threshold": {"language_detection_threshold": None},
    "task": {"task": "translate"},
    "temperature": {"temperature": 0.4},
    "best_of": {"best_of": 3},
    "beam_size": {"beam_size": 5},
    "patience": {"beam_size": 5, "patience": 2.0},
    "length_penalty": {"length_penalty": 0.5},
    "repetition_penalty": {"repetition_penalty": 1.2},
    "no_repeat_ngram_size": {"no_repeat_ngram_size": 3},
    "compression_ratio_threshold": {"compression_ratio_threshold": None},
    "logprob_threshold": {"logprob_threshold": -2.0},
    "no_speech_threshold": {"no_speech_threshold": 0.5},
    "condition_on_previous_text": {"condition_on_previous_text": True},
    "initial_prompt": {"initial_prompt": "Hello"},
    "carry_initial_prompt": {"initial_prompt": "Hello", "carry_initial_prompt": True},
    "prefix": {"prefix": "So"},
    "suppress_tokens": {"suppress_tokens": "1"},
    "suppress_blank": {"suppress_blank": False},
    "without_timestamps": {"without_timestamps": True},
    "max_initial_timestamp": {"max_initial_timestamp": 2.0},
    "prepend_punctuations": {"word_timestamps": True, "prepend_punctuations": "x"},
    "append_punctuations": {"word_timestamps": True, "append_punctuations": "x"},
    "hallucination_silence_threshold": {
        "word_timestamps": True,
        "hallucination_silence_threshold": 2.0,
    },
    "sample_len": {"sample_len": 100},
    "seed": {"seed": 1},
}


def test_every_option_of_whisper_is_taken_or_refused() -> None:
    records = options_of(TranscribeOptions)
    taken = {name for name, record in records.items() if OPTIONS.supports(record)}
    assert taken | REFUSED.keys() == records.keys()
    assert not taken & REFUSED.keys()
    own = {name for name, record in records.items() if record.families == (PARAKEET,)}
    assert own == {"max_words", "silence_gap", "max_duration"} and own < taken


@pytest.mark.parametrize("name", REFUSED)
def test_what_it_cannot_do_is_refused_by_name(name: str) -> None:
    TranscribeOptions.of(**REFUSED[name])
    with pytest.raises(UsageError) as problem:
        OPTIONS.of(**REFUSED[name])
    named = "translate" if name == "task" else name
    assert named in str(problem.value) or next(iter(REFUSED[name])) in str(problem.value)


def test_what_is_the_case_anyway_may_be_said() -> None:
    defaults = {name: record.default for name, record in options_of(TranscribeOptions).items()}
    defaults["clip_timestamps"] = "0"  # as a command has it
    assert OPTIONS.of(**defaults) == OPTIONS.of() == TranscribeOptions()
    anyway = OPTIONS.of(
        temperature=0, beam_size=1, best_of=None, condition_on_previous_text=False, max_words=None
    )
    assert (anyway.max_words, anyway.silence_gap, anyway.max_duration) == (None, None, None)
    assert parse_hotwords(anyway.hotwords) == ()


def test_what_it_takes() -> None:
    options = OPTIONS.of(
        language="English", hotwords="oscine", word_timestamps=True, clip_timestamps="1,2",
        batch_size=4, split_channels=True, vad_threshold=0.4, max_words=5, silence_gap=1,
        max_duration=float("inf"), max_audio_seconds=60,
    )  # fmt: skip
    assert options.max_audio_seconds == 60
    assert options.language == "en"
    assert options.clip_timestamps == ((1.0, 2.0),)
    assert parse_hotwords(options.hotwords) == (("oscine", 1.0),)
    segments = (options.max_words, options.silence_gap, options.max_duration)
    assert segments == (5, 1.0, float("inf"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_words": 0}, "max_words must be a whole number from 1, not 0"),
        ({"max_words": True}, "max_words must be a whole number"),
        ({"max_words": 2.5}, "max_words must be a whole number"),
        ({"silence_gap": -1}, "silence_gap must be seconds above 0, not -1"),
        ({"max_duration": "x"}, "max_duration must be seconds above 0"),
        ({"max_duration": float("nan")}, "max_duration must be seconds above 0"),
        ({"max_word": 1}, "unknown option max_word"),
        ({"vad_filter": False, "vad_threshold": 0.4}, "vad_threshold needs vad_filter"),
        ({"hotwords": "a:1e999"}, "the weight of 'a' must be a number"),
        ({"hotwords": "a," * 10_001}, "at most 10000 phrases"),
    ],
)
def test_mistakes_are_told(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        OPTIONS.of(**options)


@pytest.mark.parametrize(
    ("text", "phrases"),
    [
        ("oscine", [("oscine", 1.0)]),
        ("WebGPU, New York :2.5,\n x:-1", [("WebGPU", 1.0), ("New York", 2.5), ("x", -1.0)]),
        ("ratio: wide", [("ratio: wide", 1.0)]),
        (" ,, ", []),
    ],
)
def test_phrases_have_weights(text: str, phrases: list[tuple[str, float]]) -> None:
    assert list(parse_hotwords(text)) == phrases
