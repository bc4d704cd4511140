"""Standard streams that are closed, full or not read, and Ctrl-C while one is waited for."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oscine.audio.io import decode
from oscine.audio.write import FORMATS
from oscine.cli import run
from oscine.models.qwen3_tts.voices import Voice, VoiceFolder

from .conftest import SOUND
from .speaking import Speaker

Capture = pytest.CaptureFixture[bytes]

UNIX = pytest.mark.skipif(os.name != "posix", reason="a Unix shell closes streams")
#: The command in a process of its own, with models that say, or write, what they are told.
COMMAND = (
    "import sys, oscine; sys.path.insert(0, sys.argv.pop(1))\n"
    "from conftest import FakeModel; from speaking import Speaker\n"
    "oscine.load = (Speaker if sys.argv[1] == 'speak' else FakeModel)().load\n"
    "from oscine.cli import main; main()\n"
)
#: Whoever runs the tests may have it ignored, as nohup does.
DEFAULTS = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty_home: Path) -> Path:
    """With a recording, a folder for weights and a saved voice."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "weights").mkdir()
    (tmp_path / "a.wav").write_bytes(SOUND)
    VoiceFolder(empty_home / "voices").save("anna", Voice("", np.ones(4, np.float32), size="0b6"))
    return tmp_path


class Full:
    """As /dev/full: nothing fits, and that is told when it is flushed."""

    buffer = property(lambda self: self)
    encoding = "utf-8"

    def isatty(self) -> bool:
        return False

    def write(self, data: Any) -> int:
        return len(data)

    def flush(self) -> None:
        raise OSError(28, "No space left on device")


class FullAtOnce(Full):
    """The same without anything between."""

    def write(self, _: Any) -> int:
        raise OSError(28, "No space left on device")


WHAT_IS_PRINTED = [
    ["voices", "list"],
    ["voices", "list", "--model", "qwen3-tts-0.6b-custom-voice"],
    ["speak", "--voice", "help"],
    ["models", "list"],
    ["models", "path", "weights"],
    ["transcribe", "a.wav", "--model", "weights"],
    ["transcribe", "a.wav", "--model", "weights", "-f", "json"],
    ["speak", "one", "--model", "weights"],
    ["speak", "one", "--model", "weights", "-f", "mp3"],
    ["--version"],
]


def shell(redirected: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """The command with streams as a shell gives them; -1 for what is not given."""
    here = str(Path(__file__).parent)
    command = ["sh", "-c", f'exec "$@" {redirected}', "sh", sys.executable, "-c", COMMAND, here]
    return subprocess.run([*command, *arguments], capture_output=True)


@pytest.mark.parametrize("arguments", WHAT_IS_PRINTED, ids=" ".join)
@pytest.mark.parametrize("full", [False, True])
def test_standard_output_that_takes_nothing_is_one_line(
    model: Any, capsysbinary: Capture, monkeypatch: pytest.MonkeyPatch,
    arguments: list[str], full: bool,
) -> None:  # fmt: skip
    if arguments[0] == "speak" and "weights" in arguments:
        monkeypatch.setattr("oscine.load", Speaker().load)
    monkeypatch.setattr(sys, "stdout", Full() if full else None)
    assert run(arguments) == 1
    error = capsysbinary.readouterr().err.decode()
    assert error.count("\n") == 1
    assert error.startswith("oscine: standard output")
    assert ("cannot write: No space left" if full else "is closed") in error


@pytest.mark.parametrize("arguments", WHAT_IS_PRINTED, ids=" ".join)
def test_messages_that_nobody_takes_stop_nothing(
    model: Any, capsysbinary: Capture, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    if arguments[0] == "speak" and "weights" in arguments:
        monkeypatch.setattr("oscine.load", Speaker().load)
    assert run(arguments) == 0
    expected = capsysbinary.readouterr().out
    for stderr in (None, FullAtOnce()):
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stderr", stderr)
            assert run(arguments) == 0
        out = capsysbinary.readouterr().out
        assert len(out) == len(expected) > 0  # and no message in it; mp3 aside it is the same
        assert out == expected or "mp3" in arguments
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stderr", stderr)
            for wrong in ([], ["speak", "one", "-o", "a.doc"], ["voices", "remove", "nobody"]):
                assert run(wrong) == 2
        assert capsysbinary.readouterr().out == b""


@UNIX
@pytest.mark.parametrize("redirected", ["2>&-", "<&- 2>&-"])
@pytest.mark.parametrize("form", ["wav", "mp3"])
def test_a_file_is_written_without_stderr(redirected: str, form: str) -> None:
    done = shell(redirected, "speak", "one two", "--model", "weights", "-o", f"b.{form}", "-v")
    assert (done.returncode, done.stdout, done.stderr) == (2, b"", b"")  # there is no -v
    done = shell(redirected, "speak", "one two", "--model", "weights", "-o", f"b.{form}")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert decode(f"b.{form}", 24_000).duration == pytest.approx(0.2, abs=0.05)


@UNIX
@pytest.mark.parametrize(
    ("redirected", "arguments", "problem"),
    [
        (">&-", ["voices", "list"], "standard output is closed"),
        (">&-", ["transcribe", "a.wav", "--model", "weights"], "standard output is closed"),
        (">/dev/full", ["voices", "list"], "standard output: cannot write: No space left"),
        (">/dev/full", ["models", "--help"], "standard output: cannot write: No space left"),
        (">/dev/full", ["transcribe", "a.wav", "--model", "weights"], "cannot write: No space"),
        (">/dev/full", ["speak", "one", "--model", "weights"], "cannot write: No space left"),
    ],
)
def test_a_shell_that_takes_no_output(redirected: str, arguments: list[str], problem: str) -> None:
    done = shell(redirected, *arguments)
    assert (done.returncode, done.stdout) == (1, b"")
    assert problem in done.stderr.decode() and done.stderr.count(b"\n") == 1  # at exit neither


class Speaking:
    """The command, saying more than its pipe takes; the pipe is full at the end of `__init__`."""

    def __init__(self, form: str) -> None:
        self.source, target = os.pipe()
        command = [sys.executable, "-c", DEFAULTS + COMMAND, str(Path(__file__).parent)]
        arguments = ["speak", "word " * 20_000, "--model", "weights", "-f", form]
        self.process = subprocess.Popen(
            [*command, *arguments], stdout=target, stderr=subprocess.PIPE
        )
        while select.select([], [target], [], 0)[1] and self.process.poll() is None:
            time.sleep(0.01)
        os.close(target)

    def __enter__(self) -> Speaking:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stderr is not None
        self.process.stderr.close()


@UNIX
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("form", FORMATS)
def test_an_interrupt_while_a_pipe_is_full_keeps_what_was_spoken(form: str, name: str) -> None:
    with Speaking(form) as speaking:
        speaking.process.send_signal(getattr(signal, name))
        with open(speaking.source, "rb") as file:
            data = file.read()
        _, error = speaking.process.communicate()
    told = error.decode().splitlines()
    assert speaking.process.returncode == {"SIGINT": 130, "SIGTERM": 143}[name], told
    assert told[1:] == ["oscine: interrupted"]
    assert told[0].startswith("oscine: standard output: written as far as ")
    minutes, seconds = told[0].rsplit(" ", 1)[1].split(":")
    said = 60 * int(minutes) + float(seconds)
    length = len(data) / 48_000 if form == "raw" else decode(data, 24_000).duration
    assert length == pytest.approx(said, abs=0.001 if form in ("raw", "wav", "flac") else 0.15)
    assert said > 0


@UNIX
@pytest.mark.parametrize("form", ["wav", "mp3"])
def test_a_second_interrupt_does_not_wait_for_a_pipe_that_stays_full(form: str) -> None:
    with Speaking(form) as speaking:
        while speaking.process.poll() is None:  # two at once may be one
            speaking.process.send_signal(signal.SIGINT)
            time.sleep(0.2)
    os.close(speaking.source)
    assert speaking.process.returncode in (130, -signal.SIGINT)  # one may come at the very end


def test_lists_in_a_pipe_have_every_path_whole(
    tmp_path: Path, capsysbinary: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path.joinpath(*["a long name of a folder [bold] :smile: "] * 8)
    base = home / "models" / "base"
    base.mkdir(parents=True)
    for name in ("config.json", "tokenizer.json", "model.bin"):
        (base / name).write_bytes(b"{}")
    monkeypatch.setenv("OSCINE_HOME", str(home))
    monkeypatch.setenv("COLUMNS", "80")
    file = VoiceFolder(home / "voices").save("anna", Voice("", np.ones(4, np.float32)))
    for command, path in (("voices", file), ("models", base)):
        assert run([command, "list"]) == 0
        assert str(path) in capsysbinary.readouterr().out.decode()
