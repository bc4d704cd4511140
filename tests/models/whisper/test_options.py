"""Options: openai-whisper's forms are taken, mistakes and what is not built are refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oscine.errors import UsageError
from oscine.models.whisper.options import CHECKS, UNBUILT, TranscribeOptions


@pytest.mark.parametrize(
    ("name", "value", "normal"),
    [
        ("language", "German", "de"),
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
        ("logprob_threshold", None, None),
        ("sample_len", 10, 10),
    ],
)
def test_openai_forms(name: str, value: Any, normal: Any) -> None:
    assert getattr(TranscribeOptions.of(**{name: value}), name) == normal


def test_defaults_need_no_checking() -> None:
    assert TranscribeOptions.of() == TranscribeOptions()
    assert set(CHECKS) == set(TranscribeOptions.__dataclass_fields__)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"language": "xx"}, "unknown language 'xx'; valid are en"),
        ({"task": "sing"}, "unknown task 'sing'; valid are transcribe, translate"),
        ({"temperature": ()}, "temperature must be"),
        ({"temperature": -1}, "temperature must not be negative"),
        ({"temperature": float("nan")}, "temperature must be a number"),
        ({"temperature": "hot"}, "temperature must be a number"),
        ({"temperature": True}, "temperature must be a number"),
        ({"temperature": 1e39}, "temperature must be 0 or 0.001 to 1000"),
        ({"temperature": [0, 1e-40]}, "temperature must be 0 or 0.001 to 1000"),
        ({"best_of": 0}, "best_of must be at least 1"),
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
        ({"clip_timestamps": "a"}, "clip_timestamps must be a number"),
        ({"clip_timestamps": 3.0}, "clip_timestamps must be start,end"),
        ({"seed": 1.5}, "seed must be a whole number"),
        ({"seed": 10**400}, "seed must be a number"),
        ({"sample_len": 0}, "sample_len must be at least 1"),
        ({"temprature": 0}, "unknown option temprature; did you mean temperature?"),
        ({"fp16": False}, "fp16 is not an option of transcribe; choose the precision"),
        ({"verbose": True}, "verbose is not an option of transcribe"),
        ({"beam_size": 5}, "beam_size=5 is not supported yet"),
        ({"word_timestamps": True}, "word_timestamps=True is not supported yet"),
        ({"threads": 4}, "threads=4 is not supported yet"),
        ({"beam_size": np.arange(2)}, "beam_size=array([0, 1]) is not supported yet"),
    ],
)
def test_refused_by_name(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError) as caught:
        TranscribeOptions.of(**options)
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", UNBUILT)
def test_what_is_not_built_may_be_left_alone_but_not_asked_for(name: str) -> None:
    for neutral in UNBUILT[name]:
        assert TranscribeOptions.of(**{name: neutral}) == TranscribeOptions()
    with pytest.raises(UsageError, match=f"^{name}="):
        TranscribeOptions.of(**{name: "something else"})
