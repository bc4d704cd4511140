"""The speak command: where speech goes, what is kept when it stops, what is told of it."""

from __future__ import annotations

import io
import re
import signal
import subprocess
import sys
import wave
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from oscine.audio.encode import pcm16
from oscine.audio.io import decode
from oscine.audio.write import FORMATS
from oscine.cli import run
from oscine.cli.audio_output import format_progress, format_speed
from oscine.models.qwen3_tts.capabilities import Capabilities

from .speaking import HEADER, RATE, Speaker, files, speak, spoken, start, tone

Capture = pytest.CaptureFixture[bytes]


def stdin(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))


def test_a_text_becomes_a_file_and_nothing_is_said(speaker: Speaker, capsysbinary: Capture) -> None:
    assert speak("Hello, world", "-o", "a.wav") == 0
    assert capsysbinary.readouterr() == (b"", b"")
    with wave.open("a.wav") as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (RATE, 1, 2)
        data = file.readframes(file.getnframes())
    assert data == pcm16(spoken("Hello, world")).tobytes()
    assert files() == ["a.wav"]
    assert speaker.loaded == [("weights", "auto", "auto", False)]
    assert speaker.asked == [("Hello, world", {"voice": "ryan"})]
    assert speaker.streams[0].buffer_pieces  # nobody hears it before it is whole


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_by_its_suffix_and_by_name(speaker: Speaker, name: str) -> None:
    assert speak("one two three", "-o", f"a.{name.upper()}") == 0
    assert speak("one two three", "-o", "sound", "--format", name) == 0
    if name != "raw":
        for file in (f"a.{name.upper()}", "sound"):
            assert decode(file, RATE).duration == pytest.approx(0.3, abs=0.2)
    else:
        assert Path("sound").stat().st_size == 2 * len(spoken("one two three"))


def test_standard_output(speaker: Speaker, capsysbinary: Capture) -> None:
    for arguments in ([], ["-o", "-"], ["-o", "-", "-f", "wav"]):
        assert speak("one two", *arguments) == 0
        out, error = capsysbinary.readouterr()
        assert error == b""
        assert out[:4] == b"RIFF" and out[HEADER:] == pcm16(spoken("one two")).tobytes()
    assert speak("one two", "-f", "raw") == 0
    assert capsysbinary.readouterr().out == pcm16(spoken("one two")).tobytes()
    assert files() == []
    assert not any(stream.buffer_pieces for stream in speaker.streams)


def test_a_pipe_gets_sound_as_it_comes(speaker: Speaker) -> None:
    process = start("-", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(b"one ")
    process.stdin.flush()
    expected = pcm16(tone("one")).tobytes()
    assert (
        process.stdout.read(HEADER + len(expected))[HEADER:] == expected
    )  # while stdin is still open
    out, error = process.communicate(b"two")
    assert (out, error, process.returncode) == (pcm16(tone("two")).tobytes(), b"", 0)


def test_a_terminal_gets_no_sound(
    speaker: Speaker, capsysbinary: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for arguments, problem in [([], "say where"), (["-o", "-"], "sound is not for a terminal")]:
        assert speak("Hello", *arguments) == 2
        error = capsysbinary.readouterr().err.decode()
        assert problem in error and error.count("\n") == 1
    assert speaker.loaded == []


def test_text_of_files_and_of_standard_input(
    speaker: Speaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("said.txt").write_bytes(b"\xef\xbb\xbffrom a\r\nfile")
    assert speak("said.txt", "-o", "a.wav") == 0
    stdin(monkeypatch, b"from a pipe")
    assert speak("-", "-o", "b.wav") == 0
    assert speaker.asked[0][0] == "from a\nfile"
    assert decode("b.wav", RATE).duration == pytest.approx(0.3)
    stdin(monkeypatch, b" \n")
    assert speak("-", "-o", "c.wav") == 1
    assert files() == ["a.wav", "b.wav", "said.txt"]


def test_what_is_asked_goes_to_the_model(speaker: Speaker) -> None:
    arguments = (
        "--voice Vivian --language German --instruct happily --seed 7 --temperature 0.5 --top_k 3 "
        "--top_p 0.9 --repetition_penalty 1.1 --do_sample False --subtalker-temperature 0.7 "
        "--subtalker-top-k 0 --subtalker-top-p 1 --no-subtalker-do-sample --max-seconds 30 "
        "--max-frames 9 --no-guard --streamed-text --device cpu --dtype f32 --offline "
        "--deterministic --memory 50% --threads 1"
    )
    assert speak("Hello", "-o", "a.wav", *arguments.split()) == 0
    assert speaker.loaded == [("weights", "cpu", "f32", True, "same", "50%")]
    ((_, options),) = speaker.asked
    assert options == {
        "voice": "Vivian", "language": "German", "instruct": "happily", "seed": 7,
        "temperature": 0.5, "top_k": 3, "top_p": 0.9, "repetition_penalty": 1.1,
        "do_sample": False, "subtalker_temperature": 0.7, "subtalker_top_k": 0,
        "subtalker_top_p": 1.0, "subtalker_do_sample": False, "max_seconds": 30.0,
        "max_frames": 9, "guard": False, "streamed_text": True,
    }  # fmt: skip


def test_a_reference_through_standard_input(
    speaker: Speaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloner = Capabilities("weights", "base", "1b7", {}, ("english",))
    monkeypatch.setattr(speaker, "capabilities", cloner, raising=False)
    samples = (8000 * np.sin(np.arange(24_000) / 9)).astype("<i2")
    with wave.open("ref.wav", "wb") as file:
        file.setparams((1, 2, RATE, 0, "NONE", ""))
        file.writeframes(samples.tobytes())
    data = Path("ref.wav").read_bytes()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert speak("Hello", "-o", "a.wav", "--reference", "-") == 0
    source = speaker.asked[0][1]["reference"]
    for _ in range(2):
        assert np.abs(decode(source, 24_000).samples - samples / 32768).max() < 1e-3


def test_an_instruction_that_is_left_out_is_told_once_by_the_command(
    speaker: Speaker, empty_home: Path
) -> None:
    model = "qwen3-tts-0.6b-custom-voice"
    arguments = f"Hi. -o a.wav --offline --instruct happily --model {model}".split()
    process = start(*arguments, stdout=subprocess.PIPE)
    _, error = process.communicate()
    ignored = "does not support --instruct, which is ignored; use qwen3-tts-1.7b-custom-voice"
    assert (process.returncode, error.decode()) == (0, f"oscine: {model} {ignored}\n")
    assert speak(*arguments) == 0
    assert speaker.asked[0][1] == {"voice": "ryan"}  # the model has nothing to tell once more


def test_play_needs_its_extra(
    speaker: Speaker, capsysbinary: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    assert speak("Hello", "--play") == 2
    assert b"pip install 'sounddevice>=0.4'" in capsysbinary.readouterr().err
    assert speaker.loaded == []


def test_play_lets_it_be_heard_and_keeps_a_file_where_one_is_named(
    speaker: Speaker, capsysbinary: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[np.ndarray] = []
    device = SimpleNamespace(
        start=lambda: None, stop=lambda: None, abort=lambda: heard.clear(), close=lambda: None,
        write=lambda samples: heard.append(samples[:, 0].copy()),
    )  # fmt: skip
    module = SimpleNamespace(OutputStream=lambda **_: device, PortAudioError=RuntimeError)
    monkeypatch.setitem(sys.modules, "sounddevice", module)
    assert speak("one two", "--play") == 0
    np.testing.assert_array_equal(np.concatenate(heard), spoken("one two"))
    assert (files(), capsysbinary.readouterr().out) == ([], b"")
    assert speak("one two", "--play", "-o", "a.wav") == 0
    assert len(np.concatenate(heard)) == 2 * len(spoken("one two"))
    assert files() == ["a.wav"]
    assert speak("one INTERRUPT", "--play", "-o", "b.wav") == 130
    assert decode("b.wav", RATE).duration == pytest.approx(0.1)
    assert speak("Hello", "--play", "-f", "wav") == 2


@pytest.mark.parametrize(
    ("word", "code", "problem"),
    [
        ("INTERRUPT", 130, "interrupted"),
        ("BREAK", 1, "the device was lost"),
        ("EXHAUST", 1, "there is not enough memory"),
    ],
)
def test_what_was_spoken_is_kept(
    speaker: Speaker, capsysbinary: Capture, word: str, code: int, problem: str
) -> None:
    for name in ("a.wav", "a.mp3"):
        Path(name).write_bytes(b"old")
        assert speak(f"one two {word} three", "-o", name) == code
        told = capsysbinary.readouterr().err.decode().splitlines()
        assert told[0] == f"oscine: {name}: written as far as 00:00.200"
        assert problem in told[1] and len(told) == 2
        assert decode(name, RATE).duration == pytest.approx(0.2, abs=0.01)
        Path(name).write_bytes(b"old")
        assert speak(f"{word} three", "-o", name) == code
        assert capsysbinary.readouterr().err.count(b"\n") == 1
        assert Path(name).read_bytes() == b"old"  # nothing came in its place
    assert files() == ["a.mp3", "a.wav"]


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="Windows has no such signals")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_keeps_what_was_spoken(speaker: Speaker, name: str) -> None:
    process = start(f"one {name} two", "-o", "a.wav", stdout=subprocess.PIPE)
    _, error = process.communicate()
    assert process.returncode == 128 + getattr(signal, name)
    assert b"a.wav: written as far as 00:00.100" in error
    assert decode("a.wav", RATE).duration == pytest.approx(0.1)


def test_a_reader_of_sound_that_has_gone_is_no_error(speaker: Speaker) -> None:
    process = start(
        "word " * 400, before="sys.stdin.read(); main()",
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    _, error = process.communicate(b"")
    assert (process.returncode, error) == (1, b"")


def test_standard_output_that_takes_no_sound(
    speaker: Speaker, capsysbinary: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full:
        buffer = property(lambda self: self)

        def isatty(self) -> bool:
            return False

        def write(self, _: bytes) -> None:
            raise OSError(28, "No space left on device")

    class FullAtLast(Full):
        def write(self, data: bytes) -> int:
            return len(data)

        def flush(self) -> None:
            super().write(b"")

    for stdout, problem in [
        (None, "standard output is closed"),
        (Full(), "No space left"),
        (FullAtLast(), "No space left"),
    ]:
        monkeypatch.setattr(sys, "stdout", stdout)
        for name in ("wav", "mp3"):
            assert speak("Hello", "-f", name) == 1
            error = capsysbinary.readouterr().err.decode()
            assert error.startswith("oscine: standard output")
            assert problem in error and error.count("\n") == 1


def test_a_text_may_begin_with_a_dash(speaker: Speaker) -> None:
    assert speak("-o", "a.wav", "--", "-5 degrees") == 0
    assert speaker.asked[0][0] == "-5 degrees"


def test_help_says_what_every_option_takes(capsysbinary: Capture) -> None:
    assert run(["speak", "--help"]) == 0
    told = capsysbinary.readouterr().out.decode()
    assert not re.findall(r"--[\w-]+ +(?:INT|FLOAT|PATH|<str>)", told)


def test_an_end_that_did_not_come_is_told_once(speaker: Speaker, capsysbinary: Capture) -> None:
    assert speak("one ENDLESS", "-o", "a.wav") == 0
    assert capsysbinary.readouterr().err == (
        b"oscine: a.wav: stopped at 00:00.100, the limit; see --max-seconds, --max-frames\n"
    )
    assert speak("one SILENT", "-o", "a.wav") == 0
    assert capsysbinary.readouterr().err == b""


def test_how_far_and_how_fast_it_is() -> None:
    assert format_progress(1.0, 0.256, 20.0) == "26% of the text, 1.0 s of speech, 0.05x real time"
    assert format_progress(30.0, None, 2.0) == "30.0 s of speech, 15.0x real time"
    assert [format_speed(1.0, spent) for spent in (0.0, 300.0, 1.25)] == ["0x", "0.0033x", "0.8x"]


def test_verbose_tells_latency_and_speed(speaker: Speaker) -> None:
    process = start("one two", "-o", "a.wav", "--verbose", stdout=subprocess.PIPE)
    out, error = process.communicate()
    assert (process.returncode, out) == (0, b"")
    assert "oscine: first audio after 250 ms\n" in error.decode()
    assert re.search(
        r"oscine: a\.wav: 0\.2 s of speech in \d+\.\d s, [\d.]+x real time, seed 7\n",
        error.decode(),
    )


def test_trace_tells_its_stages(
    speaker: Speaker, capsysbinary: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OSCINE_TRACE", "1")
    assert speak("one", "-o", "a.wav") == 0
    assert capsysbinary.readouterr().err.decode().splitlines() == [
        "oscine: prompt: 1.0 ms",
        "oscine: codec: 2.0 ms",
        "oscine: frames on the GPU: 4.0 ms in 3 passes",
    ]


def test_a_terminal_is_told_how_it_goes(
    speaker: Speaker, capsysbinary: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert speak("one two", "-o", "a.wav") == 0
    told = capsysbinary.readouterr().err.decode()
    pattern = r"0\.2 s of speech in \d+\.\d s \([\d.]+x real time\) -> a\.wav\n\Z"
    assert re.search(pattern, told)
