"""The transcribe command: where results go, exit codes, options, and what is kept when it stops."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oscine.cli import run
from oscine.cli.transcribe import OutputFormat, temperatures
from oscine.errors import UsageError
from oscine.formats import FORMATS
from oscine.models.whisper.options import TEMPERATURES, UNBUILT, TranscribeOptions

Recordings = Callable[..., list[str]]
Capture = pytest.CaptureFixture[bytes]


def transcribe(*arguments: str) -> int:
    return run(["transcribe", "--model", "weights", *arguments])


def test_one_recording_goes_to_stdout_and_nothing_else_does(
    model: Any, recordings: Recordings, capsysbinary: Capture
) -> None:
    assert transcribe(*recordings("a.wav"), "--verbose") == 0
    out, error = capsysbinary.readouterr()
    assert out.decode() == "Olá,\n世界 --> x.\n"
    assert "[00:00.000 --> 00:00.500] Olá," in error.decode()
    assert sorted(os.listdir()) == ["a.wav", "weights"]
    assert model.loaded == [("weights", "auto", "auto", False)]


def test_quiet_unless_there_is_something_to_say(
    model: Any, recordings: Recordings, capsysbinary: Capture
) -> None:
    assert transcribe(*recordings("a.wav")) == 0
    assert capsysbinary.readouterr().err == b""


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_on_stdout(
    model: Any, recordings: Recordings, capsysbinary: Capture, name: str
) -> None:
    assert transcribe(*recordings("a.wav"), "-f", name) == 0
    out = capsysbinary.readouterr().out.decode()
    if name == "json":
        result = json.loads(out)
        assert result["text"] == " Olá, 世界 --> x."
        assert {"language", "segments", "duration", "model", "device", "timings"} < set(result)
    else:
        assert "Olá," in out
        assert "世界" in out


def test_standard_input(model: Any, recordings: Recordings, capsysbinary: Capture) -> None:
    recordings()
    assert transcribe("-") == 0
    assert capsysbinary.readouterr().out.decode().startswith("Olá,")
    assert transcribe("-", "-o", "out", "-f", "srt") == 0
    assert Path("out/stdin.srt").is_file()


def test_several_recordings_go_beside_themselves(model: Any, recordings: Recordings) -> None:
    assert transcribe(*recordings("a.wav", "deep/b.mp3"), "--output_format", "srt") == 0
    assert Path("a.srt").read_text("utf-8").startswith("1\n00:00:00,000 --> 00:00:00,500\nOlá,\n")
    assert Path("deep/b.srt").is_file()


def test_an_output_folder_is_made(model: Any, recordings: Recordings) -> None:
    assert transcribe(*recordings("a.wav"), "--output_dir", "new/er", "--output-format=tsv") == 0
    assert os.listdir("new/er") == ["a.tsv"]


def test_all_formats_go_beside_one_recording(
    model: Any, recordings: Recordings, capsysbinary: Capture
) -> None:
    assert transcribe(*recordings("in/a.wav"), "-f", "all") == 0
    assert sorted(os.listdir("in")) == sorted(["a.wav", *(f"a.{each}" for each in FORMATS)])
    assert capsysbinary.readouterr().out == b""


def test_a_folder_is_all_its_recordings(model: Any, recordings: Recordings) -> None:
    recordings("in/b.WAV", "in/a.flac", "in/notes.txt", "in/deeper/c.wav")
    assert transcribe("in") == 0
    assert sorted(path.name for path in Path("in").glob("*.txt")) == ["a.txt", "b.txt", "notes.txt"]
    assert Path("in/notes.txt").read_text() == ""


def test_the_same_stem_twice_keeps_the_suffix(model: Any, recordings: Recordings) -> None:
    assert transcribe(*recordings("a.wav", "a.mp3", "b.wav")) == 0
    assert {"a.wav.txt", "a.mp3.txt", "b.txt"} < set(os.listdir())


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["x/a.wav", "y/a.wav", "-o", "out"], "would both be written to out/a.wav.txt"),
        (["a.txt", "b.wav"], "a.txt would be overwritten by its own transcript"),
        (["empty"], "empty: no recordings in this folder"),
        ([""], "the name of a recording is empty"),
        (["a.wav", ""], "the name of a recording is empty"),
        (["a.wav", "--suppress_blank=maybe"], "--suppress-blank is True or False, not 'maybe'"),
        (["a.wav", "--temperature", "nan"], "temperature must be a number"),
        (["a.wav", "--temperature", "inf"], "temperature must be a number"),
        (["a.wav", "--temperature=-inf"], "temperature must be a number"),
        (["a.wav", "--temperature", "1e300"], "temperature must be 0 or 0.001 to 1000"),
        (["a.wav", "--temperature_increment_on_fallback", "nan"], "must be at least 0.01"),
        (["a.wav", "--temperature_increment_on_fallback", "inf"], "must be at least 0.01"),
        (["a.wav", "--temperature_increment_on_fallback", "1e-9"], "must be at least 0.01"),
        (["a.wav", "--seed", "1" * 400], "seed must be a number"),
        (["a.wav", "--initial_prompt", "\udcff"], "initial_prompt must be text in UTF-8"),
        (["a.wav", "--language", "xx"], "unknown language 'xx'; valid are en"),
        (["a.wav", "--task", "sing"], "Invalid value for '--task'"),
        (["a.wav", "--output_format", "doc"], "Invalid value for '--output-format'"),
        (["a.wav", "--no_such_option", "3"], "No such option: --no-such-option"),
        (["a.wav", "--sample_len", "x"], "'x' is not a whole number or None"),
        (["a.wav", "--logprob_threshold", "x"], "'x' is not a number or None"),
        (["a.wav", "--temperature_increment_on_fallback", "0"], "must be at least 0.01"),
        (["a.wav", "--fp16", "True", "--dtype", "f32"], "--fp16 True contradicts --dtype f32"),
        (["a.wav", "--model_dir", "x"], "set the environment variable OSCINE_HOME"),
        (["a.wav", "--best_of", "3", "--temperature_increment_on_fallback", "None"], "best_of"),
    ],
)
def test_a_wrong_call_is_one_line_and_nothing_is_loaded(
    model: Any, recordings: Recordings, capsysbinary: Capture, arguments: list[str], problem: str
) -> None:
    recordings("a.wav", "b.wav", "x/a.wav", "y/a.wav", "a.txt", "empty/none")
    assert transcribe(*arguments) == 2
    out, error = capsysbinary.readouterr()
    assert out == b""
    assert error.decode().startswith("oscine: ")
    assert error.decode().count("\n") == 1
    assert problem in error.decode()
    assert model.loaded == []


UNBUILT_ON_THE_COMMAND = {
    "beam_size": "5", "patience": "1.5", "length_penalty": "0.5", "word_timestamps": "True",
    "prepend_punctuations": "x", "append_punctuations": "x", "highlight_words": "True",
    "max_line_width": "40", "max_line_count": "2", "max_words_per_line": "3",
    "hallucination_silence_threshold": "2", "threads": "4",
}  # fmt: skip


@pytest.mark.parametrize("name", UNBUILT_ON_THE_COMMAND)
def test_what_is_not_built_is_refused_by_name(
    model: Any, recordings: Recordings, capsysbinary: Capture, name: str
) -> None:
    assert name in UNBUILT
    assert transcribe(*recordings("a.wav"), f"--{name}", UNBUILT_ON_THE_COMMAND[name]) == 2
    assert f"oscine: {name}=" in capsysbinary.readouterr().err.decode()
    assert model.loaded == []


def test_openai_defaults_are_the_defaults(model: Any, recordings: Recordings) -> None:
    assert transcribe(*recordings("a.wav")) == 0
    assert TranscribeOptions.of(**model.asked[0]) == TranscribeOptions()


@pytest.mark.parametrize(
    ("arguments", "name", "value"),
    [
        (["--language", "German"], "language", "de"),
        (["--task=translate"], "task", "translate"),
        (["--temperature", "0.4"], "temperature", (0.4, 0.6, 0.8, 1.0)),
        (
            ["--temperature", "0.4", "--temperature-increment-on-fallback", "None"],
            "temperature",
            (0.4,),
        ),
        (["--best_of", "2"], "best_of", 2),
        (["--best_of", "None"], "best_of", None),
        (["--compression_ratio_threshold", "None"], "compression_ratio_threshold", None),
        (["--logprob-threshold", "-2"], "logprob_threshold", -2.0),
        (["--no_speech_threshold", "None"], "no_speech_threshold", None),
        (["--condition_on_previous_text", "False"], "condition_on_previous_text", False),
        (["--no-condition-on-previous-text"], "condition_on_previous_text", False),
        (["--initial_prompt", "--not_an_option"], "initial_prompt", "--not_an_option"),
        (["--prefix", "So"], "prefix", "So"),
        (["--suppress_tokens", "-1,5"], "suppress_tokens", (-1, 5)),
        (["--suppress_blank=False"], "suppress_blank", False),
        (["--without_timestamps", "True"], "without_timestamps", True),
        (["--max_initial_timestamp", "None"], "max_initial_timestamp", None),
        (["--sample_len", "100"], "sample_len", 100),
        (["--clip_timestamps", "1,2"], "clip_timestamps", ((1.0, 2.0),)),
        (["--seed", "7"], "seed", 7),
    ],
)
def test_options_reach_the_model(
    model: Any, recordings: Recordings, arguments: list[str], name: str, value: Any
) -> None:
    assert transcribe(*arguments, *recordings("a.wav")) == 0
    assert getattr(TranscribeOptions.of(**model.asked[0]), name) == value


def test_carried_prompt(model: Any, recordings: Recordings) -> None:
    files = recordings("a.wav")
    assert transcribe("--carry_initial_prompt", "True", "--initial_prompt", "x", *files) == 0
    assert model.asked[0]["carry_initial_prompt"] is True


@pytest.mark.parametrize(
    ("arguments", "dtype"),
    [
        (["--fp16", "False"], "f32"),
        (["--fp16", "True"], "f16"),
        (["--dtype", "f16"], "f16"),
        (["--fp16", "False", "--dtype", "f32"], "f32"),
    ],
)
def test_precision(model: Any, recordings: Recordings, arguments: list[str], dtype: str) -> None:
    assert transcribe(*arguments, *recordings("a.wav"), "--device", "gpu:1", "--offline") == 0
    assert model.loaded == [("weights", "gpu:1", dtype, True)]


def test_temperature_steps() -> None:
    assert temperatures(0.0, 0.2) == TEMPERATURES
    assert temperatures(0.5, 0.3) == (0.5, 0.8)
    assert temperatures(1.5, 0.2) == (1.5,)
    assert temperatures(0.3, None) == (0.3,)
    for step in (-0.1, 0.0, 1e-9, float("nan"), float("inf")):
        with pytest.raises(UsageError, match=r"must be at least 0\.01"):
            temperatures(0.0, step)


def test_a_bad_recording_is_reported_and_the_rest_go_on(
    model: Any, recordings: Recordings, capsysbinary: Capture
) -> None:
    files = recordings("a.wav", "broken.wav", "b.wav")
    assert transcribe("missing.wav", *files) == 1
    error = capsysbinary.readouterr().err.decode()
    assert "oscine: missing.wav: no such file\n" in error
    assert "oscine: broken.wav: is damaged after 1 s\n" in error
    assert Path("b.txt").read_text("utf-8") == Path("a.txt").read_text("utf-8") != ""
    # what came before the damage is kept
    assert Path("broken.txt").read_text("utf-8") == "Olá,\n"
    assert "oscine: broken.wav: written as far as 00:00.500\n" in error


@pytest.mark.parametrize("name", ["txt", "json"])
def test_an_interrupt_keeps_what_is_done(
    model: Any, recordings: Recordings, capsysbinary: Capture, name: str
) -> None:
    files = recordings("interrupt.wav", "b.wav")
    assert transcribe(files[0], "-f", name) == 130
    assert "Ol" in capsysbinary.readouterr().out.decode()
    assert transcribe(*files, "-f", name) == 130
    assert Path(f"interrupt.{name}").is_file()
    assert not Path(f"b.{name}").exists()
    assert capsysbinary.readouterr().err.decode().endswith("oscine: interrupted\n")


def test_a_folder_that_cannot_be_written_is_named(
    model: Any, recordings: Recordings, capsysbinary: Capture
) -> None:
    files = recordings("a.wav", "file")
    assert transcribe(files[0], "-o", "file/out") == 1
    assert "oscine: file/out: cannot be made: " in capsysbinary.readouterr().err.decode()
    assert model.loaded == []
    Path("out/a.txt").mkdir(parents=True)
    assert transcribe(files[0], "-o", "out") == 1
    error = capsysbinary.readouterr().err.decode()
    assert error.startswith("oscine: out/a.txt: cannot write: ")
    assert error.count("\n") == 1
    assert os.listdir("out") == ["a.txt"]
    assert transcribe(files[0], "-o", "out", "-f", "all") == 1  # the other formats are written
    assert set(os.listdir("out")) == {f"a.{name}" for name in FORMATS}


def test_a_name_that_is_too_long_is_a_bad_recording(
    model: Any, recordings: Recordings, capsysbinary: Capture
) -> None:
    assert transcribe(*recordings("a.wav"), "x" * 5000, "-o", "out") == 1
    assert os.listdir("out") == ["a.txt"]
    assert capsysbinary.readouterr().err.count(b"\n") == 1
    assert run(["transcribe", "a.wav", "--model", "x" * 5000]) == 1
    assert capsysbinary.readouterr().err.startswith(b"oscine: no model is called")


def test_a_folder_that_cannot_be_listed_is_named(
    model: Any, recordings: Recordings, capsysbinary: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    recordings("folder/a.wav")

    def refuse(_: Path) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", refuse)
    assert transcribe("folder") == 2
    assert capsysbinary.readouterr().err == (
        b"oscine: folder: cannot be listed: Permission denied\n"
    )


@pytest.mark.parametrize("name", FORMATS)
def test_standard_output_that_is_closed_or_full_is_one_line(
    model: Any,
    recordings: Recordings,
    capsysbinary: Capture,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    file = recordings("a.wav")[0]

    class Full:
        buffer = property(lambda self: self)

        def isatty(self) -> bool:
            return False

        def write(self, _: bytes) -> None:
            raise OSError(28, "No space left on device")

    for stdout, problem in [(None, "standard output is closed"), (Full(), "No space left")]:
        monkeypatch.setattr(sys, "stdout", stdout)
        assert transcribe(file, "-f", name) == 1
        error = capsysbinary.readouterr().err.decode()
        assert problem in error
        assert error.count("\n") == 1


def test_too_little_memory_is_one_line(
    model: Any, recordings: Recordings, capsysbinary: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhaust(*_: Any, **__: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(model, "stream", exhaust)
    assert transcribe(*recordings("a.wav")) == 1
    assert capsysbinary.readouterr().err.startswith(b"oscine: there is not enough memory")


def test_file_names_that_are_no_text(
    model: Any, recordings: Recordings, capsysbinary: Capture
) -> None:
    name = os.fsdecode(b"\xff \n [bold]-->.wav")
    try:
        recordings(name)
    except OSError:
        pytest.skip("this file system wants names that are text")
    assert transcribe(name, "-o", "out", "--verbose") == 0
    assert Path("out", name).with_suffix(".txt").is_file()
    assert transcribe("missing-" + name) == 1
    assert b"no such file" in capsysbinary.readouterr().err


def test_progress_is_for_terminals(
    model: Any, recordings: Recordings, capsysbinary: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert transcribe(*recordings("a.wav"), "-f", "json") == 0
    out, error = capsysbinary.readouterr()
    assert json.loads(out)
    assert "a.wav" in error.decode()
    assert "100%" in error.decode()


def test_a_reader_that_has_gone_is_no_error(recordings: Recordings, tmp_path: Path) -> None:
    recordings("a.wav")
    script = (
        "import sys, oscine; sys.path.insert(0, sys.argv[1])\n"
        "from conftest import FakeModel; oscine.load = FakeModel().load\n"
        "from oscine.cli import run\n"
        "sys.stdin.read()\n"
        "sys.exit(run(['transcribe', 'a.wav', '--model', 'weights']))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(Path(__file__).parent)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    _, error = process.communicate(b"")
    assert (process.returncode, error) == (1, b"")


def test_formats_are_those_of_the_writers() -> None:
    assert {each.value for each in OutputFormat} == {*FORMATS, "all"}


def test_help_names_every_option(capsysbinary: Capture) -> None:
    assert run(["transcribe", "--help"]) == 0
    text = capsysbinary.readouterr().out.decode()
    for name in (*TranscribeOptions.__dataclass_fields__, *UNBUILT_ON_THE_COMMAND):
        assert f"--{name.replace('_', '-')}" in text
