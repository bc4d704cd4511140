"""The speak command: where speech goes, what is kept when it stops, wrong calls."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import time
import wave
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from oscine.audio.encode import pcm16
from oscine.audio.io import decode
from oscine.audio.write import FORMATS
from oscine.cli import run
from oscine.cli.sound_out import as_speed, so_far
from oscine.errors import OscineError, UsageError
from oscine.models.qwen3_tts.abilities import Abilities
from oscine.models.qwen3_tts.voices import Voice, VoiceFolder
from oscine.types import Audio

Capture = pytest.CaptureFixture[bytes]

RATE = 24_000
#: The command in a process of its own, with the model below.
COMMAND = (
    "import sys, oscine; sys.path.insert(0, sys.argv.pop(1))\n"
    "from test_speak import Speaker; oscine.load = Speaker().load\n"
    "from oscine.cli import main\n"
)


def tone(word: str) -> np.ndarray:
    """A tenth of a second for a word."""
    time = np.arange(RATE // 10) / RATE
    return (0.5 * np.sin(2 * np.pi * (200 + 20 * len(word)) * time)).astype(np.float32)


def spoken(text: str) -> np.ndarray:
    return np.concatenate([tone(word) for word in text.split()])


class Stream:
    """A tone a word; some words do something else."""

    def __init__(self, text: str | Iterable[str], options: dict[str, Any]) -> None:
        self.text, self.options = text, options
        self.finish_reason: str | None = None
        self.first_audio: float | None = None
        self.seed = 7
        self.hold = self.limited = False
        self.share = 0.5 if isinstance(text, str) else None

    def __iter__(self) -> Iterator[Audio]:
        pieces = [self.text] if isinstance(self.text, str) else self.text
        for word in (word for piece in pieces for word in piece.split()):
            if word == "INTERRUPT":
                raise KeyboardInterrupt
            if word == "BREAK":
                raise OscineError("the device was lost")
            if word == "EXHAUST":
                raise MemoryError
            if word == "ENDLESS":
                self.finish_reason, self.limited = "length", True
                return
            if word == "SILENT":  # the stream itself has logged that
                self.finish_reason = "silence"
                return
            if re.fullmatch("SIG[A-Z]+", word):
                os.kill(os.getpid(), getattr(signal, word))
                time.sleep(20)  # it does not take so long
            self.first_audio = 0.25
            yield Audio(tone(word), RATE)
        self.finish_reason = "end"


class Speaker:
    """Notes what it was asked."""

    voices = ("vivian", "ryan")
    abilities = Abilities("weights", "custom_voice", "1b7", dict.fromkeys(voices), ("english",))
    decoder = SimpleNamespace(
        timings={"prompt": 1.0, "codec": 2.0}, trace=lambda: {"frames": (3, 4.0)}
    )

    def __init__(self) -> None:
        self.loaded: list[tuple[Any, ...]] = []
        self.asked: list[tuple[Any, dict[str, Any]]] = []
        self.streams: list[Stream] = []

    def load(self, name: str, *, device: str, dtype: str, offline: bool) -> Speaker:
        self.loaded.append((name, device, dtype, offline))
        return self

    def speak(self) -> None:
        raise NotImplementedError

    def stream(self, text: str | Iterable[str], **options: Any) -> Stream:
        if options.get("voice") == "nobody":
            raise UsageError("there is no voice 'nobody'; there are ryan, vivian")
        self.asked.append((text, options))
        self.streams.append(Stream(text, options))
        return self.streams[-1]


@pytest.fixture
def speaker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Speaker:
    (tmp_path / "weights").mkdir()
    monkeypatch.chdir(tmp_path)
    made = Speaker()
    monkeypatch.setattr("oscine.load", made.load)
    return made


def speak(*arguments: str) -> int:
    return run(["speak", "--model", "weights", *arguments])


def start(*arguments: str, before: str = "main()", **pipes: Any) -> subprocess.Popen[bytes]:
    here = str(Path(__file__).parent)
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND + before, here, "speak", "--model", "weights", *arguments],
        stderr=subprocess.PIPE,
        **pipes,
    )


def stdin(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))


def files() -> list[str]:
    return sorted(name for name in os.listdir() if name != "weights")


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
    assert speaker.streams[0].hold  # nobody hears it before it is whole


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
        assert out[:4] == b"RIFF" and out[44:] == pcm16(spoken("one two")).tobytes()
    assert speak("one two", "-f", "raw") == 0
    assert capsysbinary.readouterr().out == pcm16(spoken("one two")).tobytes()
    assert files() == []
    assert not any(stream.hold for stream in speaker.streams)


def test_a_pipe_gets_sound_as_it_comes(speaker: Speaker) -> None:
    process = start("-", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(b"one ")
    process.stdin.flush()
    expected = pcm16(tone("one")).tobytes()
    assert process.stdout.read(44 + len(expected))[44:] == expected  # while stdin is still open
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
        "--max-frames 9 --no-guard --streamed-text --device cpu --dtype f32 --offline --threads 1"
    )
    assert speak("Hello", "-o", "a.wav", *arguments.split()) == 0
    assert speaker.loaded == [("weights", "cpu", "f32", True)]
    ((_, options),) = speaker.asked
    assert options == {
        "voice": "Vivian", "language": "German", "instruct": "happily", "seed": 7,
        "temperature": 0.5, "top_k": 3, "top_p": 0.9, "repetition_penalty": 1.1,
        "do_sample": False, "subtalker_temperature": 0.7, "subtalker_top_k": 0,
        "subtalker_top_p": 1.0, "subtalker_do_sample": False, "max_seconds": 30.0,
        "max_frames": 9, "guard": False, "streamed_text": True,
    }  # fmt: skip


def test_a_reference_is_told_before_the_model_loads(
    speaker: Speaker, capsysbinary: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert speak("Hello", "-o", "a.wav", "--reference", "ref.wav") == 1
    assert capsysbinary.readouterr().err == b"oscine: ref.wav: no such file; check the path\n"
    assert speaker.loaded == []
    cloner = Abilities("weights", "base", "1b7", {}, ("english",))
    monkeypatch.setattr(speaker, "abilities", cloner, raising=False)
    Path("ref.wav").write_bytes(b"sound")
    arguments = ["--reference", "ref.wav", "--reference-text", "hi", "--reference-silence", "0.5"]
    assert speak("Hello", "-o", "a.wav", *arguments, "--x-vector-only") == 0
    assert speaker.asked[0][1] == {
        "reference": "ref.wav", "reference_text": "hi", "reference_silence": 0.5,
        "x_vector_only": True,
    }  # fmt: skip
    Path("said.txt").write_text("The words.\n")
    for value, words in [("said.txt", "The words."), ("said.", "said.")]:
        arguments = ["--reference", "ref.wav", "--reference-text", value]
        assert speak("Hello", "-o", "a.wav", *arguments) == 0
        assert speaker.asked[-1][1] == {"reference": "ref.wav", "reference_text": words}
    assert speak("Hello", *arguments[:3], "said.txt", "-o", "said.txt", "-f", "wav") == 2
    assert b"said.txt would be overwritten by the speech" in capsysbinary.readouterr().err


def test_a_reference_through_standard_input(
    speaker: Speaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloner = Abilities("weights", "base", "1b7", {}, ("english",))
    monkeypatch.setattr(speaker, "abilities", cloner, raising=False)
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


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (
            ["-o", "a.wav"],
            'no text; for example: oscine speak "Hello there." -o hello.wav',
        ),
        (["", "-o", "a.wav"], "there is no text to speak"),
        (["missing.txt", "-o", "a.wav"], "missing.txt: no such file"),
        (["Hello", "-o", "a.doc"], "a.doc: .doc is no audio format; known are wav, raw, mp3"),
        (["Hello", "-o", "a"], "a: no suffix names a format"),
        (["Hello", "-o", "a.wav", "-f", "doc"], "there is no audio format 'doc'"),
        (["Hello", "-o", ""], "the name of the output file is empty"),
        (["Hello", "-o", "weights"], "weights is a folder; name a file in it"),
        (["Hello", "-o", "a.wav", "--temperature", "0"], "temperature must be a number above 0"),
        (["Hello", "-o", "a.wav", "--temperature", "nan"], "temperature must be a number"),
        (["Hello", "-o", "a.wav", "--top-p", "1.5"], "top_p must be above 0 and at most 1"),
        (["Hello", "-o", "a.wav", "--top-k", "-1"], "top_k must be a whole number"),
        (["Hello", "-o", "a.wav", "--top-k", "x"], "'x' is not a whole number"),
        (["Hello", "-o", "a.wav", "--seed", "-1"], "seed must be a whole number from 0"),
        (["Hello", "-o", "a.wav", "--max-seconds", "0"], "max_seconds must be a number above 0"),
        (["Hello", "-o", "a.wav", "--repetition-penalty", "0"], "repetition_penalty must be"),
        (["Hello", "-o", "a.wav", "--no-such-option", "3"], "No such option: --no-such-option"),
        (["Hello", "-o", "a.wav", "--device", "cuda"], "oscine needs no CUDA"),
        (["Hello", "-o", "a.wav", "--threads", "-1"], "threads must be a whole number"),
        (["Hello", "-o", "a.wav", "--dtype", "f8"], "Invalid value for '--dtype'"),
        (["Hello", "world", "-o", "a.wav"], 'put the text in quotes, as in oscine speak "Hello'),
        (["Hello", "-o", "a.wav", "--speed", "2"], "no option speed: the model sets its own pace"),
        (["Hello", "--ref_text=x"], "no option ref_text: it is called reference_text here"),
        (["Hello", "--reference-text", "said.txt"], "said.txt: no such file; give the words that"),
        (["-5 degrees", "-o", "a.wav"], "No such option: -5; a text that begins with a dash comes"),
        (["-x", "-o", "a.wav"], 'comes after --, as in oscine speak -o cold.wav -- "-5 degrees"'),
        (["--5 degrees", "-o", "a.wav"], "a text that begins with a dash comes after --"),
        (["weights", "-o", "a.wav"], "weights is a folder; name a file in it"),
        (["-", "-o", "a.wav", "--reference", "-"], "cannot be both the text and the reference"),
    ],
)
def test_a_wrong_call_is_one_line_and_nothing_is_loaded_to_speak(
    speaker: Speaker, capsysbinary: Capture, arguments: list[str], problem: str
) -> None:
    assert speak(*arguments) == 2
    out, error = capsysbinary.readouterr()
    assert out == b""
    assert error.startswith(b"oscine: ") and error.count(b"\n") == 1
    assert problem in error.decode()
    assert speaker.loaded == []
    assert files() == []


@pytest.mark.parametrize(
    ("model", "arguments", "problem"),
    [
        ("0.6b-custom-voice", "--voice nobody", "there is no voice 'nobody'; qwen3-tts-0.6b-cu"),
        ("0.6b-custom-voice", "--voice anna", "'anna' is a saved voice, which needs a base model"),
        (
            "0.6b-custom-voice",
            "--language klingon",
            "does not speak 'klingon'; it speaks chinese",
        ),
        ("0.6b-custom-voice", "--reference said.txt", "takes no reference; leave that out, or use"),
        ("0.6b-custom-voice", "--x-vector-only", "takes no x_vector_only"),
        ("1.7b-voice-design", "--voice ryan", "takes no voice; leave that out, or use a custom"),
        ("0.6b-base", "", "give a reference, which is a recording, or a voice that was saved"),
        ("0.6b-base", "--voice bert", "no voice is saved as 'bert'; saved: anna"),
        ("1.7b-base", "--voice anna", "made with a 0.6B model; qwen3-tts-1.7b-base is of another"),
        ("0.6b-base", "--voice anna --instruct slowly", "takes no instruct"),
        ("0.6b-base", "--voice anna --reference said.txt", "a reference or a voice, not both"),
        ("0.6b-base", "--reference said.txt --reference-text=", "reference_text is empty"),
        ("0.6b-base", "--reference-text hello", "reference_text goes with a reference"),
    ],
)
def test_what_a_released_model_cannot_do_is_told_before_it_is_fetched(
    speaker: Speaker, empty_home: Path, capsysbinary: Capture,
    model: str, arguments: str, problem: str,
) -> None:  # fmt: skip
    VoiceFolder(empty_home / "voices").save("anna", Voice("", np.ones(4, np.float32), size="0b6"))
    Path("said.txt").write_text("sound")
    name = f"qwen3-tts-{model}"
    assert run(["speak", "Hi.", "-o", "a.wav", "--model", name, *arguments.split()]) == 2
    error = capsysbinary.readouterr().err.decode()
    assert problem in error and error.count("\n") == 1
    assert "=" not in error  # in words of the command, not of Python
    assert speaker.loaded == []


def test_an_instruction_that_is_left_out_is_told_once_by_the_command(
    speaker: Speaker, empty_home: Path
) -> None:
    model = "qwen3-tts-0.6b-custom-voice"
    arguments = f"Hi. -o a.wav --offline --instruct happily --model {model}".split()
    process = start(*arguments, stdout=subprocess.PIPE)
    _, error = process.communicate()
    assert (process.returncode, error.decode()) == (
        0, f"oscine: {model} heeds no instruct: it is left out; use qwen3-tts-1.7b-custom-voice\n",
    )  # fmt: skip
    assert speak(*arguments) == 0
    assert speaker.asked[0][1] == {"voice": "ryan"}  # the model has nothing to tell once more


def test_names_of_models_that_speak_are_suggested_where_one_is_needed(
    speaker: Speaker, capsysbinary: Capture
) -> None:
    assert run(["speak", "Hi.", "-o", "a.wav", "--model", "qwen3-tts"]) == 1
    error = capsysbinary.readouterr().err.decode()
    assert "did you mean 'qwen3-tts-0.6b-custom-voice'?" in error
    assert "tiny" not in error and "parakeet" not in error


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


def test_a_folder_that_takes_no_sound_is_told_before_the_model_loads(
    speaker: Speaker, capsysbinary: Capture
) -> None:
    assert speak("Hello", "-o", "none/a.wav") == 1
    assert capsysbinary.readouterr().err == (
        b"oscine: none: cannot write there: No such file or directory\n"
    )
    assert speaker.loaded == []
    assert speak("Hello", "-o", "/dev/null", "-f", "wav") == 0
    assert not Path("/dev/null").is_file()


def test_a_text_may_begin_with_a_dash(speaker: Speaker) -> None:
    assert speak("-o", "a.wav", "--", "-5 degrees") == 0
    assert speaker.asked[0][0] == "-5 degrees"


def test_help_says_what_every_option_takes(capsysbinary: Capture) -> None:
    assert run(["speak", "--help"]) == 0
    told = capsysbinary.readouterr().out.decode()
    assert not re.findall(r"--[\w-]+ +(?:INT|FLOAT|PATH|<str>)", told)


def test_what_the_model_refuses_is_one_line(speaker: Speaker, capsysbinary: Capture) -> None:
    assert speak("Hello", "-o", "a.wav", "--voice", "nobody") == 2
    assert capsysbinary.readouterr().err == (
        b"oscine: there is no voice 'nobody'; there are ryan, vivian\n"
    )
    assert files() == []


def test_an_end_that_did_not_come_is_told_once(speaker: Speaker, capsysbinary: Capture) -> None:
    assert speak("one ENDLESS", "-o", "a.wav") == 0
    assert capsysbinary.readouterr().err == (
        b"oscine: a.wav: stopped at 00:00.100, the most it may have; see --max-seconds, "
        b"--max-frames\n"
    )
    assert speak("one SILENT", "-o", "a.wav") == 0
    assert capsysbinary.readouterr().err == b""


def test_how_far_and_how_fast_it_is() -> None:
    assert so_far(1.0, 0.256, 20.0) == "26% of the text, 1.0 s of speech, 0.05x real time"
    assert so_far(30.0, None, 2.0) == "30.0 s of speech, 15.0x real time"
    assert [as_speed(1.0, spent) for spent in (0.0, 300.0, 1.25)] == ["0x", "0.0033x", "0.8x"]


def test_a_format_that_the_suffix_contradicts(speaker: Speaker, capsysbinary: Capture) -> None:
    assert speak("Hello", "-o", "a.wav", "-f", "mp3") == 2
    assert capsysbinary.readouterr().err == (
        b"oscine: a.wav is no name for mp3: leave --format out, or end in .mp3\n"
    )
    for name, form in (("a.opus", "ogg"), ("a.flac", "FLAC"), ("a.2", "wav")):
        assert speak("Hello", "-o", name, "-f", form) == 0


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


def test_models_that_do_not_speak_and_those_that_do_nothing_else(
    speaker: Speaker, model: Any, capsysbinary: Capture
) -> None:
    assert speak("Hello", "-o", "a.wav") == 2  # `model` of conftest stands in for Whisper
    assert capsysbinary.readouterr().err == (
        b"oscine: weights writes down and does not speak; oscine transcribe is its command\n"
    )
    assert run(["speak", "Hello", "-o", "a.wav", "--model", "tiny.en"]) == 2
    assert b"tiny.en writes down and does not speak" in capsysbinary.readouterr().err
    assert run(["transcribe", "a.wav", "--model", "qwen3-tts-0.6b-base"]) == 1  # no such recording
    Path("a.wav").write_bytes(b"sound")
    assert run(["transcribe", "a.wav", "--model", "qwen3-tts-0.6b-base"]) == 2
    assert b"qwen3-tts-0.6b-base speaks and does not" in capsysbinary.readouterr().err
    assert len(model.loaded) == 1
    model.speak = None
    for arguments in (["a.wav"], ["--live", "-"]):
        assert run(["transcribe", *arguments, "--model", "weights"]) == 2
        assert capsysbinary.readouterr().err == (
            b"oscine: weights speaks and does not write down; oscine speak is its command\n"
        )


@pytest.mark.parametrize("way", ["itself", "path", "link", "hard link"])
def test_what_is_read_is_not_written_over(
    speaker: Speaker, capsysbinary: Capture, way: str
) -> None:
    voice = VoiceFolder(Path("voices")).save("anna", Voice("", np.ones(4, np.float32)))
    for name, arguments in [
        ("ref.wav", ["Hello", "--reference", "ref.wav"]),
        ("said.txt", ["said.txt", "-f", "wav"]),
        (str(voice), ["Hello", "--voice", str(voice), "-f", "wav"]),
    ]:
        if name != str(voice):
            Path(name).write_bytes(b"precious")
        before = Path(name).read_bytes()
        target = Path("other.wav")
        target.unlink(missing_ok=True)
        if way == "link":
            target.symlink_to(name)
        elif way == "hard link":
            target.hardlink_to(name)
        else:
            target = Path(name) if way == "itself" else Path("weights", "..", name)
        assert speak(*arguments, "-o", str(target)) == 2
        error = capsysbinary.readouterr().err.decode()
        assert error.startswith(f"oscine: {name} would be overwritten by the speech")
        assert error.count("\n") == 1
        assert Path(name).read_bytes() == before
    assert speaker.loaded == []


@pytest.mark.parametrize("way", ["itself", "link"])
def test_a_voice_by_name_and_a_model_are_not_written_over(
    speaker: Speaker, capsysbinary: Capture, empty_home: Path, way: str
) -> None:
    voice = VoiceFolder(empty_home / "voices").save("anna", Voice("", np.ones(4, np.float32)))
    Path("weights", "speech_tokenizer").mkdir()
    names = ("model.safetensors", "config.json", "speech_tokenizer/model.safetensors")
    for file in (voice, *(Path("weights", name) for name in names)):
        if file is not voice:
            file.write_bytes(b"precious")
        before = file.read_bytes()
        target = file
        if way == "link":
            target = Path("other.wav")
            target.unlink(missing_ok=True)
            target.symlink_to(file)
        arguments = ("--voice", "anna") if file is voice else ()
        assert speak("Hello", *arguments, "-o", str(target), "-f", "wav") == 2
        error = capsysbinary.readouterr().err.decode()
        assert error.startswith(f"oscine: {file} would be overwritten by the speech")
        assert error.count("\n") == 1 and file.read_bytes() == before
    assert speaker.loaded == []
    for _ in range(2):  # sound that lies beside a model is no part of it
        assert speak("Hello", "-o", "weights/hello.wav") == 0


@pytest.mark.skipif(os.name != "posix", reason="Windows has other names and links")
@pytest.mark.parametrize(
    ("name", "code", "problem"),
    [
        ("none.wav/", 2, "none.wav/ is a folder; name a file in it"),
        ("weights/", 2, "weights/ is a folder"),
        ("x" * 300 + ".wav", 1, "cannot write: File name too long"),
        ("weights/../" * 500 + "a.wav", 1, "cannot write: File name too long"),
        ("lost.wav", 1, "none: cannot write there: No such file or directory"),
    ],
)
def test_a_file_that_cannot_be_is_told_before_the_model_loads(
    speaker: Speaker, capsysbinary: Capture, name: str, code: int, problem: str
) -> None:
    Path("lost.wav").symlink_to("none/a.wav")
    Path("found.wav").symlink_to("new.wav")
    assert speak("Hello", "-o", name) == code
    error = capsysbinary.readouterr().err.decode()
    assert problem in error and error.count("\n") == 1
    assert speaker.loaded == []
    assert speak("Hello", "-o", "found.wav") == 0
    assert Path("found.wav").is_symlink() and Path("new.wav").stat().st_size > 44


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="there are no such devices here")
@pytest.mark.parametrize("device", ["/dev/zero", "/dev/urandom", "/dev/null", "link"])
def test_a_device_is_neither_text_nor_reference(
    speaker: Speaker, capsysbinary: Capture, device: str
) -> None:
    Path("link").symlink_to("/dev/zero")
    for arguments, code in [([device], 2), (["Hello", "--reference", device], 1)]:
        assert speak(*arguments, "-o", "a.wav") == code
        error = capsysbinary.readouterr().err.decode()
        assert "is a device" in error and error.count("\n") == 1
    assert speaker.loaded == []
