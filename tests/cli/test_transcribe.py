"""The transcribe command: where results go, wrong calls, and what terminals are told."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

from oscine.cli import run
from oscine.errors import DeviceError
from oscine.formats import FORMATS
from oscine.options.command import Format

from .conftest import SOUND, FakeStream

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


def test_a_folder_is_all_its_recordings(
    model: Any, recordings: Recordings, capsysbinary: Capture
) -> None:
    recordings("in/b.WAV", "in/a.flac", "in/notes.txt", "in/page.html", "in/deeper/c.wav")
    for _ in range(2):  # what was written is no news
        assert transcribe("in") == 0
        assert capsysbinary.readouterr().err.decode() == (
            "oscine: in: left out: 2 files, 1 folder; a file that is named is tried\n"
        )
    assert sorted(path.name for path in Path("in").glob("*.txt")) == ["a.txt", "b.txt", "notes.txt"]
    assert Path("in/notes.txt").read_bytes() == SOUND


def test_hidden_files_of_a_folder_are_passed_over(
    model: Any, recordings: Recordings, capsysbinary: Capture
) -> None:
    recordings("in/a.wav", "in/._a.wav", "in/.trash.wav", "in/.hidden/b.wav", "in/.DS_Store")
    assert transcribe("in", "-o", "out") == 0
    assert os.listdir("out") == ["a.txt"]
    assert capsysbinary.readouterr().err == b""
    assert transcribe("in/.trash.wav") == 0  # it is named
    recordings("none/._a.wav", "none/b.pdf", "none/deeper/c.wav")
    assert transcribe("none") == 2
    error = capsysbinary.readouterr().err
    assert error == b"oscine: none: no recordings in this folder, but 1 file, 1 folder\n"


def test_what_cameras_and_phones_write_is_taken_from_a_folder(
    model: Any, recordings: Recordings
) -> None:
    names = "m4v MTS m2ts mxf vob ogv m4r mpga spx asf f4v 3g2 dv wav Mp3 mp4 webm opus".split()
    recordings(*(f"in/{name}.{name}" for name in names))
    assert transcribe("in", "-o", "out") == 0
    assert sorted(os.listdir("out")) == sorted(f"{name}.txt" for name in names)


def test_names_that_differ_in_case_alone_are_told_apart(
    model: Any, recordings: Recordings, monkeypatch: pytest.MonkeyPatch, capsysbinary: Capture
) -> None:
    assert transcribe(*recordings("B.MP3", "b.mp4", "\u00e9.wav", "e\u0301.mp3"), "-o", "out") == 0
    assert set(os.listdir("out")) == {
        "B.MP3.txt", "b.mp4.txt", "\u00e9.wav.txt", "e\u0301.mp3.txt"
    }  # fmt: skip
    monkeypatch.setattr(sys, "platform", "darwin")
    assert transcribe(*recordings("x/C.wav", "y/c.WAV"), "-o", "out") == 2
    assert b"x/C.wav and y/c.WAV would both be written to" in capsysbinary.readouterr().err


def test_formats_given_again_are_all_written(
    model: Any, recordings: Recordings, capsysbinary: Capture
) -> None:
    assert transcribe(*recordings("a.wav"), "-f", "srt", "--output_format", "vtt") == 0
    assert capsysbinary.readouterr().out == b""
    assert Path("a.srt").read_text("utf-8").startswith("1\n")
    assert Path("a.vtt").read_text("utf-8").startswith("WEBVTT")
    assert not Path("a.txt").exists()
    assert transcribe(*recordings("d.wav"), "-f", "SRT, vtt,json", "-f", "lrc") == 0
    assert Path("d.vtt").read_text("utf-8").startswith("WEBVTT")
    assert "Olá" in Path("d.json").read_text("utf-8")
    assert Path("d.lrc").read_text("utf-8").startswith("[00:00.00]Olá,\n")
    assert Path("d.srt").exists() and not Path("d.txt").exists()
    assert transcribe(*recordings("b.wav"), "-f", "tsv", "-f", "tsv") == 0
    assert capsysbinary.readouterr().out.startswith(b"start\tend")
    assert transcribe(*recordings("c.wav"), "-f", "txt", "-f", "all") == 0
    assert all(Path(f"c.{each}").exists() for each in FORMATS)
    layout = ["--word-timestamps", "--max-line-width", "20", "-f", "txt", "-f", "srt"]
    assert transcribe("c.wav", *layout) == 0


def test_the_same_stem_twice_keeps_the_suffix(model: Any, recordings: Recordings) -> None:
    assert transcribe(*recordings("a.wav", "a.mp3", "b.wav")) == 0
    assert {"a.wav.txt", "a.mp3.txt", "b.txt"} < set(os.listdir())


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["-f", "srt, Doc", "a.wav"], "'doc' is not one of txt, vtt, srt, tsv, lrc, json, all"),
        (["-f", "srt,,vtt", "a.wav"], "'' is not one of txt, vtt, srt"),
        (["--language", "en", "a.wav", "--language=de"], "--language is given twice"),
        (["--hotwords", "a", "--hotwords", "a", "a.wav"], "--hotwords is given twice"),
        (["--clip_timestamps", "1", "--clip-timestamps", "2", "a.wav"], "is given twice"),
        (["-o", "x", "--output-dir", "y", "a.wav"], "--output-dir is given twice"),
        (["x/a.wav", "y/a.wav", "-o", "out"], "would both be written to out/a.wav.txt"),
        (["a.txt", "b.wav"], "a.txt would be overwritten by its own transcript"),
        (["empty"], "empty: no recordings in this folder"),
        ([""], "the name of a recording is empty"),
        (["a.wav", "-o", ""], "the name of the output folder is empty"),
        (["a.wav", ""], "the name of a recording is empty"),
        (["a.wav", "--suppress_blank=maybe"], "--suppress-blank is True or False, not 'maybe'"),
        (["a.wav", "--temperature", "nan"], "--temperature must be a number"),
        (["a.wav", "--temperature", "inf"], "--temperature must be a number"),
        (["a.wav", "--temperature=-inf"], "--temperature must be a number"),
        (["a.wav", "--temperature", "1e300"], "--temperature must be 0 or 0.001 to 1000"),
        (["a.wav", "--temperature_increment_on_fallback", "nan"], "must be at least 0.01"),
        (["a.wav", "--temperature_increment_on_fallback", "inf"], "must be at least 0.01"),
        (["a.wav", "--temperature_increment_on_fallback", "1e-9"], "must be at least 0.01"),
        (["a.wav", "--seed", "1" * 400], "--seed must be a number"),
        (["a.wav", "--initial_prompt", "\udcff"], "--initial-prompt must be text in UTF-8"),
        (
            ["a.wav", "--language", "xx"],
            "unknown language 'xx'; valid are auto, and names and codes",
        ),
        (["a.wav", "--task", "sing"], "Invalid value for '--task'"),
        (["a.wav", "--output_format", "doc"], "Invalid value for '--output-format'"),
        (["a.wav", "--no_such_option", "3"], "No such option: --no-such-option"),
        (["a.wav", "--sample_len", "x"], "'x' is not a whole number"),
        (["a.wav", "--seed", "x"], "'x' is not a whole number"),
        (["a.wav", "--seed", "None"], "'None' is not a whole number"),
        (["a.wav", "--vad_min_silence_duration_ms="], "'' is not a whole number"),
        (["a.wav", "--vad_threshold", "x"], "'x' is not a number"),
        (["a.wav", "--temperature", "None"], "'None' is not a number"),
        (["a.wav", "\u2013word_timestamps"], "not a hyphen; write --word-timestamps"),
        (["a.wav", "--logprob_threshold", "x"], "'x' is not a number"),
        (["a.wav", "--temperature_increment_on_fallback", "0"], "must be at least 0.01"),
        (["a.wav", "--fp16", "True", "--dtype", "f32"], "--fp16 True contradicts --dtype f32"),
        (["a.wav", "--model_dir", "x"], "set the environment variable OSCINE_HOME"),
        (["a.wav", "--best_of", "3", "--temperature_increment_on_fallback", "None"], "--best-of"),
        (["a.wav", "--threads", "-1"], "--threads must be a whole number from 0 to 1024, not -1"),
        (["a.wav", "--device", "CUDA:0"], "oscine needs no CUDA, ROCm or MPS; use --device gpu"),
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


def test_progress_is_for_terminals(
    model: Any, recordings: Recordings, capsysbinary: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert transcribe(*recordings("a.wav"), "-f", "json") == 0
    out, error = capsysbinary.readouterr()
    assert json.loads(out)
    assert "a.wav" in error.decode()
    assert "100%" in error.decode()


def test_a_terminal_is_told_which_files_were_written(
    model: Any, recordings: Recordings, capsysbinary: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = recordings("a.wav", "broken.wav", "b\n.wav")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert transcribe(*files, "-o", "out", "-f", "srt") == 1
    lines = [line for line in capsysbinary.readouterr().err.decode().splitlines() if "->" in line]
    assert len(lines) == 2  # not of the broken one
    assert lines[0].endswith("a.wav -> out/a.srt")  # after the bar's escapes
    assert lines[1].endswith("b\\n.wav -> out/b\\n.srt")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False)
    assert transcribe("a.wav", "-f", "all") == 0
    assert capsysbinary.readouterr().err == b""


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("gaps.wav", "oscine: gaps.wav: 2.5 of 10.0 s of speech have no text\n"),
        ("little.wav", ""),  # under 2 s
        ("long.wav", ""),  # under 5 %
        ("a.wav", ""),
    ],
)
def test_speech_without_text_is_told(
    model: Any, recordings: Recordings, capsysbinary: Capture, name: str, told: str
) -> None:
    assert transcribe(*recordings(name)) == 0
    assert capsysbinary.readouterr().err.decode() == told


def test_verbose_shows_what_is_known_of_a_segment(
    model: Any, recordings: Recordings, capsysbinary: Capture
) -> None:
    assert transcribe(*recordings("flagged.wav"), "--verbose", "--split-channels") == 0
    assert "[00:01.000 --> 00:01.500] (pt) Channel 1: Olá, [repetition]\n" in (
        capsysbinary.readouterr().err.decode()
    )


def test_formats_are_those_of_the_writers() -> None:
    assert {*get_args(Format)} == {*FORMATS, "all"}


def test_a_recording_that_went_with_its_process_stops_no_other(
    model: Any,
    recordings: Recordings,
    capsysbinary: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = FakeStream.transcript

    def transcript(stream: FakeStream) -> Any:
        if "broken" in stream.source:
            raise DeviceError("the work was given up")
        return whole(stream)

    monkeypatch.setattr(FakeStream, "transcript", transcript)
    assert transcribe(*recordings("broken.wav", "b.wav"), "-o", "out") == 1
    assert os.listdir("out") == ["b.txt"]
    assert capsysbinary.readouterr().err.count(b"oscine: ") == 1
