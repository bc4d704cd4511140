"""Options: openai-whisper's forms are taken, mistakes and contradictions are refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oscine.errors import UsageError
from oscine.options import Options, hints_for, options_of
from oscine.options.speak import SpeakOptions
from oscine.options.transcribe import TranscribeOptions


@pytest.mark.parametrize(
    ("name", "value", "normal"),
    [
        ("language", "German", "de"),
        ("language", "auto", None),
        ("language", "zh-Hant-TW", "zh"),
        ("temperature", 0, (0.0,)),
        ("temperature", [0, 0.5], (0.0, 0.5)),
        ("suppress_tokens", "-1,7", (-1, 7)),
        ("suppress_tokens", "", ()),
        ("suppress_tokens", None, ()),
        ("suppress_tokens", [3], (3,)),
        ("clip_timestamps", "0", ((0.0, None),)),
        ("clip_timestamps", "", ((0.0, None),)),
        ("clip_timestamps", "1,2.5,4", ((1.0, 2.5), (4.0, None))),
        ("clip_timestamps", [1, 2], ((1.0, 2.0),)),
        ("clip_timestamps", "1:02,01:02:03.5", ((62.0, 3723.5),)),
        ("clip_timestamps", "90:00, 100:00:00.250", ((5400.0, 360000.25),)),
        ("clip_timestamps", "0:0:5,7.5,0:09", ((5.0, 7.5), (9.0, None))),
        ("clip_timestamps", ["00:01", "00:00:02"], ((1.0, 2.0),)),
        ("clip_timestamps", [{"start": "1:00", "end": "00:01:01.001"}], ((60.0, 61.001),)),
        ("clip_timestamps", np.array(["0:01", "0:02"]), ((1.0, 2.0),)),
        ("clip_timestamps", np.array([1, 2.5, 4]), ((1.0, 2.5), (4.0, None))),
        ("clip_timestamps", np.array([[1, 2], [3, 4]], np.int16), ((1.0, 2.0), (3.0, 4.0))),
        ("clip_timestamps", np.zeros(0), ((0.0, None),)),
        ("clip_timestamps", [(1, 2), (3, None)], ((1.0, 2.0), (3.0, None))),
        ("clip_timestamps", [{"start": 1, "end": 2.5}], ((1.0, 2.5),)),
        (
            "clip_timestamps",
            [{"start": np.float32(0), "end": 1}, {"start": 2}],
            ((0.0, 1.0), (2.0, None)),
        ),
        ("logprob_threshold", None, None),
        ("sample_len", 10, 10),
        ("beam_size", 5, 5),
        ("beam_size", None, None),
        ("repetition_penalty", 2, 2.0),
        ("language_detection_threshold", None, None),
        ("vad_max_speech_duration_s", float("inf"), float("inf")),
        ("vad_max_speech_duration_s", "30", 30.0),
        ("vad_min_silence_duration_ms", 160.0, 160),
        ("batch_size", "auto", "auto"),
        ("batch_size", "8", 8),
        ("batch_size", 1, 1),
    ],
)
def test_openai_forms(name: str, value: Any, normal: Any) -> None:
    assert getattr(TranscribeOptions.of(**{name: value}), name) == normal


@given(
    st.lists(st.integers(0, 400 * 3_600_000), min_size=2, max_size=6).map(sorted),
    st.lists(st.booleans(), min_size=6, max_size=6),
)
def test_clips_as_players_show_times(times: list[int], long: list[bool]) -> None:
    """H:MM:SS.mmm, or MM:SS.mmm with any number of minutes, are the same seconds."""

    def shown(time: int, hours: bool) -> str:
        rest = f"{time // 1000 % 60:02d}.{time % 1000:03d}"
        minutes = time // 60_000
        return f"{minutes // 60:02d}:{minutes % 60:02d}:{rest}" if hours else f"{minutes}:{rest}"

    written = [shown(time, hours) for time, hours in zip(times, long, strict=False)]
    seconds = [time / 1000 for time in times]
    meant = TranscribeOptions.of(clip_timestamps=seconds).clip_timestamps
    for given_times in (",".join(written), written, tuple(written)):
        found = TranscribeOptions.of(clip_timestamps=given_times).clip_timestamps
        assert np.allclose([t for c in found for t in c if t is not None],
                           [t for c in meant for t in c if t is not None])  # fmt: skip
        assert len(found) == len(meant)


def test_defaults_need_no_checking() -> None:
    assert TranscribeOptions.of() == TranscribeOptions()
    assert set(options_of(TranscribeOptions)) == set(TranscribeOptions.__dataclass_fields__)


@pytest.mark.parametrize("name", options_of(TranscribeOptions))
def test_the_default_is_a_value_that_is_taken(name: str) -> None:
    record = options_of(TranscribeOptions)[name]
    assert record.normalize(record.default) == record.default
    if record.cli_default is not None:
        assert record.normalize(record.cli_default) in (
            record.default,
            (0.0,),
        )  # its steps are apart


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"language": "xx"}, "unknown language 'xx'; valid are auto, and names and codes in any"),
        ({"task": "sing"}, "unknown task 'sing'; valid are transcribe, translate"),
        ({"temperature": ()}, "temperature must be"),
        ({"temperature": -1}, "temperature must not be negative"),
        ({"temperature": float("nan")}, "temperature must be a number"),
        ({"temperature": "hot"}, "temperature must be a number"),
        ({"temperature": True}, "temperature must be a number"),
        ({"temperature": 1e39}, "temperature must be 0 or 0.001 to 1000"),
        ({"temperature": [0, 1e-40]}, "temperature must be 0 or 0.001 to 1000"),
        ({"best_of": 0}, "best_of must be"),
        ({"best_of": 65}, "best_of must be at most 64, not 65"),
        ({"beam_size": 2, "patience": 1000}, "patience=1000.0 is too large for beam_size=2"),
        ({"best_of": 3, "temperature": 0}, "best_of needs a temperature above 0"),
        ({"carry_initial_prompt": True}, "carry_initial_prompt needs initial_prompt"),
        ({"initial_prompt": 3}, "initial_prompt must be text"),
        ({"initial_prompt": "a\ud800"}, "initial_prompt must be text in UTF-8"),
        ({"prefix": "\udcff"}, "prefix must be text in UTF-8"),
        ({"suppress_blank": "False"}, "suppress_blank must be True or False"),
        ({"suppress_tokens": "a"}, "suppress_tokens must be token ids"),
        ({"suppress_tokens": 5}, "suppress_tokens must be token ids"),
        ({"suppress_tokens": [1.5]}, "suppress_tokens must be token ids"),
        ({"clip_timestamps": "3,2"}, "clip_timestamps must be in order"),
        ({"clip_timestamps": "-3"}, "clip_timestamps must not be negative"),
        ({"clip_timestamps": "a"}, "clip_timestamps must be times"),
        *(
            ({"clip_timestamps": text}, "clip_timestamps must be times")
            for text in ("1:60", "1:60:00", "1:2:3:4", "1:-2", "-1:02", ":05", "5:", "1:2.", "1:1e")
        ),
        ({"clip_timestamps": "1:00,0:59"}, "clip_timestamps must be in order"),
        ({"clip_timestamps": 3.0}, "clip_timestamps must be start,end"),
        ({"clip_timestamps": [{"start": 1, "stop": 2}]}, "clip_timestamps must be times"),
        ({"clip_timestamps": [{"start": 1}, 2]}, '{"start": seconds, "end": seconds}'),
        ({"clip_timestamps": [{"start": 1}, {"start": 2}]}, "clip_timestamps must be times"),
        ({"clip_timestamps": [{"start": 2, "end": 1}]}, "clip_timestamps must be in order"),
        ({"clip_timestamps": np.array(["a"])}, "clip_timestamps must be times"),
        ({"clip_timestamps": np.array([np.nan])}, "clip_timestamps must be times"),
        ({"seed": 1.5}, "seed must be a whole number"),
        ({"vad_min_speech_duration_ms": 1e308}, "vad_min_speech_duration_ms must be at most"),
        ({"seed": 10**400}, "seed must be a number"),
        ({"sample_len": 0}, "sample_len must be at least 1"),
        ({"temprature": 0}, "unknown option temprature; did you mean temperature?"),
        ({"fp16": False}, "fp16 is not an option of transcribe; choose the precision"),
        ({"verbose": True}, "verbose is not an option of transcribe"),
        ({"vad_parameters": {}}, "vad_parameters is not an option of transcribe; use vad_thresh"),
        ({"max_line_width": 40}, "max_line_width is not an option of transcribe; give it to"),
        ({"threads": 4}, "threads is not an option of transcribe; set the environment variable"),
        ({"beam_size": 0}, "beam_size must be at least 1"),
        ({"beam_size": 17}, "beam_size must be at most 16"),
        ({"beam_size": np.arange(2)}, "beam_size must be a number, not array([0, 1])"),
        ({"beam_size": 5, "temperature": 0.4}, "beam_size needs temperature 0"),
        ({"patience": 2}, "patience needs beam_size above 1"),
        ({"patience": 2, "beam_size": 1}, "patience needs beam_size above 1"),
        ({"patience": 0, "beam_size": 2}, "patience must be above 0"),
        ({"patience": 0.2, "beam_size": 2}, "patience=0.2 is too small for beam_size=2"),
        ({"length_penalty": 1.1}, "length_penalty must be 0 to 1"),
        ({"length_penalty": 1, "temperature": 0}, "length_penalty needs several results"),
        ({"length_penalty": 1, "best_of": 1}, "length_penalty needs several results"),
        ({"repetition_penalty": 0}, "repetition_penalty must be above 0"),
        ({"no_repeat_ngram_size": -1}, "no_repeat_ngram_size must be a whole number"),
        ({"language": "en", "multilingual": True}, "multilingual finds the language of every"),
        ({"language": "en", "language_detection_segments": 2}, "language_detection_segments is"),
        ({"language": "en", "language_detection_threshold": None}, "language_detection_thresh"),
        ({"language_detection_segments": 0}, "language_detection_segments must be at least 1"),
        ({"language_detection_threshold": 2}, "language_detection_threshold must be 0 to 1"),
        ({"word_timestamps": 1}, "word_timestamps must be True or False"),
        ({"prepend_punctuations": "x"}, "prepend_punctuations needs word_timestamps=True"),
        ({"append_punctuations": None}, "append_punctuations must be text"),
        ({"append_punctuations": ""}, "append_punctuations needs word_timestamps=True"),
        ({"hallucination_silence_threshold": 2}, "hallucination_silence_threshold needs word"),
        ({"without_timestamps": True, "max_initial_timestamp": 2}, "max_initial_timestamp needs"),
        ({"vad_filter": None}, "vad_filter must be True or False"),
        ({"vad_threshold": 1.5}, "vad_threshold must be 0 to 1"),
        ({"vad_threshold": 0.5, "vad_neg_threshold": 0.6}, "vad_neg_threshold=0.6 must not be"),
        ({"vad_max_speech_duration_s": 0}, "vad_max_speech_duration_s must be above 0"),
        ({"vad_max_speech_duration_s": float("nan")}, "vad_max_speech_duration_s must be a num"),
        ({"vad_speech_pad_ms": 0.5}, "vad_speech_pad_ms must be a whole number"),
        *(
            ({"vad_filter": False, name: value}, f"{name} needs vad_filter=True")
            for name, value in {
                "vad_threshold": 0.4, "vad_neg_threshold": 0.1, "vad_min_speech_duration_ms": 1,
                "vad_max_speech_duration_s": 9, "vad_min_silence_duration_ms": 1,
                "vad_speech_pad_ms": 1,
            }.items()
        ),
        ({"batch_size": 0}, "batch_size must be a number from 1 to 64 or auto, not 0"),
        ({"batch_size": 65}, "batch_size must be a number from 1 to 64 or auto, not 65"),
        ({"batch_size": "many"}, "batch_size must be a number from 1 to 64 or auto, not 'many'"),
        ({"batch_size": np.arange(2)}, "batch_size must be a number from 1 to 64 or auto, not arr"),
        ({"task": np.arange(2)}, "unknown task array([0, 1]); valid are transcribe, translate"),
        ({"batch_size": True}, "batch_size must be a number from 1 to 64 or auto, not True"),
        ({"batch_size": 8, "condition_on_previous_text": True}, "condition_on_previous_text=True"),
        ({"batch_size": "auto", "initial_prompt": "x"}, "initial_prompt does not go with batch_si"),
        (
            {"batch_size": 2, "word_timestamps": True, "hallucination_silence_threshold": 2},
            "hallucination_silence_threshold does not go with batch_size=2",
        ),
        ({"split_channels": "yes"}, "split_channels must be True or False"),
        ({"max_audio_seconds": 0}, "max_audio_seconds must be above 0, not 0"),
        ({"max_audio_seconds": "an hour"}, "max_audio_seconds must be a number"),
    ],
)  # fmt: skip
def test_refused_by_name(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError) as caught:
        TranscribeOptions.of(**options)
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"beam_size": 2, "patience": 0.3, "length_penalty": 0.6},
        {"length_penalty": 0.6},  # chooses between the samples at temperatures above 0
        {"beam_size": 5, "best_of": 3},  # one for temperature 0, one for those above
        {"vad_filter": False, "vad_threshold": 0.5},
        {"multilingual": True, "batch_size": 8, "hotwords": "oscine", "prefix": "So"},
        {"batch_size": 8, "initial_prompt": "x", "carry_initial_prompt": True},
        {"batch_size": "auto", "clip_timestamps": "1,2", "without_timestamps": True},
        {"batch_size": 1, "initial_prompt": "x", "condition_on_previous_text": True},
        {"batch_size": 8, "word_timestamps": True, "prepend_punctuations": ""},
        {"split_channels": True, "batch_size": 4},
    ],
)
def test_what_goes_together(options: dict[str, Any]) -> None:
    for name, value in options.items():
        assert getattr(TranscribeOptions.of(**options), name) in (value, ((1.0, 2.0),))


@pytest.mark.parametrize("kind", [TranscribeOptions, SpeakOptions], ids=lambda kind: kind.__name__)
def test_an_option_of_the_command_alone_is_told_where_python_has_it(kind: type[Options]) -> None:
    names = {name for other in kind.related for name in options_of(other)} - {*kind.call_arguments}
    assert names and names <= hints_for(kind).keys()
    for name in names - options_of(kind).keys():
        with pytest.raises(UsageError) as refused:
            kind.of(**{name: "x"})
        assert str(refused.value) == (
            f"{name} is not an option of {kind.purpose}; {hints_for(kind)[name]}"
        )


@pytest.mark.parametrize("name", hints_for(TranscribeOptions))
def test_what_is_settled_elsewhere_may_be_left_alone(name: str) -> None:
    assert TranscribeOptions.of(**{name: None}) == TranscribeOptions()


@pytest.mark.parametrize(
    ("batch_size", "condition", "batched", "conditioned"),
    [
        (None, None, False, True),
        (1, None, False, True),
        (1, False, False, False),
        (2, None, True, False),
        ("auto", None, True, False),
        ("auto", False, True, False),
    ],
)
def test_context_is_for_windows_one_after_another(
    batch_size: Any, condition: Any, batched: bool, conditioned: bool
) -> None:
    options = TranscribeOptions.of(batch_size=batch_size, condition_on_previous_text=condition)
    assert (options.batched, options.conditioned) == (batched, conditioned)
