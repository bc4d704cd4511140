"""Options of other programs: taken where they mean the same, else answered with what does it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from oscine.cli import run
from oscine.cli.openai_style import translate_foreign
from oscine.cli.option_names import use_flags
from oscine.cli.transcribe import ALL_HINTS, app
from oscine.errors import UsageError
from oscine.options import options_of
from oscine.options.aliases import ALIASES, HINTS, PYTHON_HINTS
from oscine.options.command import TranscribeCommand
from oscine.options.layout import Layout
from oscine.options.transcribe import TranscribeOptions

Recordings = Callable[..., list[str]]
Capture = pytest.CaptureFixture[bytes]

COMMAND: Any = typer.main.get_command(app)
OPTIONS: list[Any] = [each for each in COMMAND.params if each.param_type_name == "option"]
OWN = {name: not each.is_flag for each in OPTIONS for name in each.opts}
NAMES = {
    name for kind in (TranscribeCommand, TranscribeOptions, Layout) for name in options_of(kind)
}


def transcribe(*arguments: str) -> int:
    return run(["transcribe", "--model", "weights", *arguments])


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        # whisper.cpp
        ("-l de -bs 5 -bo 3", {"language": "de", "beam_size": 5, "best_of": 3}),
        ("-l auto -tr", {"language": None, "task": "translate"}),
        ("-tp 0.4 -tpi 0.3", {"temperature": (0.4, 0.7, 1.0)}),
        ("-nf -np -pp -sow -sns", {"temperature": (0.0,)}),
        ("--no-fallback --no_prints --split-on-word", {"temperature": (0.0,)}),
        ("-lpt -2 -nth 0.5", {"logprob_threshold": -2.0, "no_speech_threshold": 0.5}),
        ("-nt", {"without_timestamps": True}),
        ("--prompt -tr --carry-initial-prompt", {"initial_prompt": "-tr", "task": "transcribe"}),
        ("--vad -vt 0.4 -vspd 100 -vsd 90", {"vad_threshold": 0.4, "vad_filter": True}),
        ("-vmsd 30 -vp 20", {"vad_max_speech_duration_s": 30.0, "vad_speech_pad_ms": 20}),
        # whisper-ctranslate2 and faster-whisper
        ("--batched True", {"batch_size": "auto"}),
        ("--batched", {"batch_size": "auto"}),
        ("--batched --batch_size 4", {"batch_size": 4}),
        ("--batch_size 4 --batched", {"batch_size": 4}),
        ("--batched False --print_colors False", {"batch_size": None}),
        ("--vad_filter True --multilingual True", {"vad_filter": True, "multilingual": True}),
        ("--log_prob_threshold -2", {"logprob_threshold": -2.0}),
        # WhisperX
        ("--vad_onset 0.4 --vad_offset 0.3", {"vad_threshold": 0.4, "vad_neg_threshold": 0.3}),
        ("--vad_method silero --no_align --print_progress True", {"vad_filter": True}),
        # parakeet-mlx
        ("-v --decoding greedy", {"beam_size": None}),
    ],
)
def test_what_means_the_same_is_taken(
    model: Any, recordings: Recordings, arguments: str, options: dict[str, Any]
) -> None:
    assert transcribe(*arguments.split(), *recordings("a.wav")) == 0
    asked = TranscribeOptions.of(**model.asked[0])
    assert {name: getattr(asked, name) for name in options} == options


@pytest.mark.parametrize(
    ("arguments", "loaded"),
    [
        ("-m weights -ng", ("weights", "cpu", "auto", False)),
        ("--no-gpu --compute_type float32", ("weights", "cpu", "f32", False)),
        ("--compute_type=float16 --local_files_only True", ("weights", "auto", "f16", True)),
        ("--compute_type default --local_files_only False", ("weights", "auto", "auto", False)),
        ("--model_directory weights --fp32", ("weights", "auto", "f32", False)),
        ("--model_cache_only True", ("weights", "auto", "auto", True)),
        ("--fp32 --dtype f16", ("weights", "auto", "f16", False)),  # its own name wins
    ],
)
def test_models_and_precision_by_other_names(
    model: Any, recordings: Recordings, arguments: str, loaded: tuple[Any, ...]
) -> None:
    assert transcribe(*arguments.split(), *recordings("a.wav")) == 0
    assert model.loaded == [loaded]


def test_formats_by_other_names(model: Any, recordings: Recordings) -> None:
    """`-osrt` is not `-o srt`, which would make a folder called srt."""
    arguments = "-otxt -osrt -ovtt -olrc -oj -t 2 --file".split()
    assert transcribe(*arguments, *recordings("a.wav")) == 0
    made = {each.suffix for each in Path().iterdir() if each.stem == "a"}
    assert made == {".wav", ".txt", ".srt", ".vtt", ".lrc", ".json"}
    assert not any(Path(name).exists() for name in ("srt", "txt", "vtt"))
    assert transcribe("--output-srt", "--file=a.wav", "-o", "out") == 0
    assert Path("out/a.srt").exists()


@pytest.mark.parametrize("name", ALL_HINTS)
def test_what_is_not_here_is_answered(
    model: Any, recordings: Recordings, capsysbinary: Capture, name: str
) -> None:
    for arguments in ([name, "7"], [name.replace("-", "_").replace("__", "--", 1), "7"]):
        assert transcribe(*recordings("a.wav"), *arguments) == 2
        out, error = capsysbinary.readouterr()
        assert (
            error.decode() == f"oscine: there is no option {name}: {use_flags(ALL_HINTS[name])}\n"
        )
        assert (out, model.loaded) == (b"", [])
        if not name.startswith("--"):
            return


def test_every_name_leads_to_an_option() -> None:
    for name, meant in ALIASES.items():
        assert name.split()[0] not in OWN
        flags = [part for part in meant.split() if part.startswith("-")]
        assert set(flags) <= set(OWN)
        assert len(meant.split()) in (0, 1, 2)
    for name, remedy in HINTS.items():
        assert name not in OWN and name not in ALIASES
        named = set(re.findall(r"\b[a-z]+_[a-z_]+\b", remedy))
        assert named <= NAMES | {"detect_language"}


@pytest.mark.parametrize("name", PYTHON_HINTS)
def test_the_python_api_answers_too(name: str) -> None:
    with pytest.raises(UsageError, match=rf"^{name} is not an option of transcribe; "):
        TranscribeOptions.of(**{name: 7})


def test_a_whisper_cpp_file_is_told_from_a_format(capsysbinary: Capture) -> None:
    assert run(["transcribe", "-f", "samples/jfk.wav"]) == 2
    assert b"; a recording is named without an option" in capsysbinary.readouterr().err


@given(st.lists(st.sampled_from([*OWN, "a.wav", "-", "3", "True", "--x=1", "-osrtx", "--no-vad"])))
def test_options_of_our_own_stay_as_they_are(arguments: list[str]) -> None:
    assert translate_foreign(arguments, OWN, ALL_HINTS) == arguments


@given(st.lists(st.sampled_from([*ALIASES, *ALL_HINTS]).map(lambda name: name.split()[0])))
def test_what_follows_two_dashes_is_a_name(arguments: list[str]) -> None:
    assert translate_foreign(["--", *arguments], OWN, ALL_HINTS) == ["--", *arguments]
    values = [part for each in arguments for part in ("--initial-prompt", each)]
    assert translate_foreign(values, OWN, ALL_HINTS) == values
