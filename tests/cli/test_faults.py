"""What goes wrong is one line on stderr and an exit code, and what was done before it is kept.

docs/faults.md lists these; tests/test_faults_page.py holds the list against the tests.
"""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from oscine.cli import run
from oscine.formats import FORMATS

from .conftest import SOUND

Recordings = Callable[..., list[str]]
Capture = pytest.CaptureFixture[bytes]

CLONING = "qwen3-tts-0.6b-base"

#: The command in a process of its own, with the model of conftest.
COMMAND = (
    "import sys, oscine; sys.path.insert(0, sys.argv.pop(1))\n"
    "from conftest import FakeModel; oscine.load = FakeModel().load\n"
    "from oscine.cli import main\n"
)


def transcribe(*arguments: str) -> int:
    return run(["transcribe", "--model", "weights", *arguments])


def start(script: str, *arguments: str, **pipes: Any) -> subprocess.Popen[bytes]:
    here = str(Path(__file__).parent)
    return subprocess.Popen(
        [sys.executable, "-c", script, here, "transcribe", "--model", "weights", *arguments],
        stderr=subprocess.PIPE,
        env=os.environ | {"OSCINE_HOME": os.path.abspath("home")},  # no record of one's own
        **pipes,
    )


def test_a_bad_recording_is_reported_and_the_rest_go_on(
    model: Any, recordings: Recordings, capsysbinary: Capture
) -> None:
    files = recordings("a.wav", "broken.wav", "b.wav")
    assert transcribe("missing.wav", *files) == 1
    error = capsysbinary.readouterr().err.decode()
    assert "oscine: missing.wav: no such file; check the path\n" in error
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
    assert transcribe(files[0], "-o", "file") == 1
    error = capsysbinary.readouterr().err
    assert error == b"oscine: file: is a file; name the folder that results go to\n"
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
    assert run(["transcribe", "a.wav", "--model", "x" * 5000]) == 2
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


def test_a_reader_that_has_gone_is_no_error(recordings: Recordings) -> None:
    files = recordings("a.wav")
    script = COMMAND + "sys.stdin.read(); main()"
    process = start(script, *files, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    _, error = process.communicate(b"")
    assert (process.returncode, error) == (1, b"")


def test_recordings_that_are_not_there_are_told_before_the_model_loads(
    model: Any, recordings: Recordings, capsysbinary: Capture
) -> None:
    recordings("a.wav")
    Path("empty.wav").touch()
    assert transcribe("missing.wav", "empty.wav", "a.wav") == 1
    assert len(model.loaded) == len(model.asked) == 1
    error = capsysbinary.readouterr().err.decode()
    assert error == (
        "oscine: missing.wav: no such file; check the path\n"
        "oscine: empty.wav: is empty; record or copy it again\n"
    )
    assert sorted(path.name for path in Path().glob("*.txt")) == ["a.txt"]
    model.loaded.clear()
    assert transcribe("missing.wav") == 1
    assert model.loaded == []


def refuse_new_files(monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    """As a disk does that is mounted for reading; permissions do not stop the superuser."""
    touch = Path.touch

    def refuse(path: Path, *arguments: Any, **options: Any) -> None:
        if path.parent.name == folder:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        touch(path, *arguments, **options)

    monkeypatch.setattr(Path, "touch", refuse)


def test_a_read_only_output_folder_is_told_before_the_model_loads(
    model: Any, recordings: Recordings, capsysbinary: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = recordings("a.wav")
    refuse_new_files(monkeypatch, "out")
    assert transcribe(*files, "-o", "out") == 1
    assert capsysbinary.readouterr().err == (
        b"oscine: out: cannot write there: Read-only file system\n"
    )
    assert model.loaded == []


def test_one_read_only_folder_does_not_stop_the_others(
    model: Any, recordings: Recordings, capsysbinary: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = recordings("locked/a.wav", "b.wav")
    refuse_new_files(monkeypatch, "locked")
    assert transcribe(*files) == 1
    assert capsysbinary.readouterr().err.startswith(b"oscine: locked: cannot write there: ")
    assert Path("b.txt").is_file()
    assert len(model.asked) == 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 16 KiB, if one may be mounted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(mount, capture_output=True).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        pytest.skip("only the superuser may mount a small disk, and only on Linux")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def fill(disk: Path) -> None:
    """Leave room for nothing but a name."""
    with (disk / "rest").open("wb", buffering=0) as file, pytest.raises(OSError, match="space"):
        while True:
            file.write(bytes(1024))


def test_a_full_disk_keeps_the_old_file_and_leaves_nothing_half_written(
    model: Any, recordings: Recordings, capsysbinary: Capture, small_disk: Path
) -> None:
    files = recordings("a.wav", "b.wav")
    (small_disk / "a.txt").write_text("old")
    fill(small_disk)
    assert transcribe(*files, "-o", str(small_disk)) == 1
    errors = capsysbinary.readouterr().err.decode().splitlines()
    assert errors == [
        f"oscine: {small_disk}/{name}.txt: cannot write: No space left on device" for name in "ab"
    ]
    assert (small_disk / "a.txt").read_text() == "old"
    assert sorted(os.listdir(small_disk)) == ["a.txt", "rest"]


def test_a_disk_that_is_full_at_the_last_moment(
    model: Any, recordings: Recordings, capsysbinary: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    assert transcribe(*recordings("a.wav"), "-f", "all") == 1
    errors = capsysbinary.readouterr().err.decode().splitlines()
    assert errors == [
        f"oscine: a.{name}: cannot write: No space left on device" for name in FORMATS
    ]
    assert sorted(os.listdir()) == ["a.wav", "weights"]


def test_too_little_memory_half_way_keeps_what_is_done(
    model: Any, recordings: Recordings, capsysbinary: Capture
) -> None:
    assert transcribe(*recordings("exhaust.wav", "b.wav")) == 1
    assert Path("exhaust.txt").read_text("utf-8") == "Olá,\n"
    assert b"there is not enough memory" in capsysbinary.readouterr().err


@pytest.mark.parametrize(("name", "code"), [("interrupt.wav", 130), ("broken.wav", 1)])
def test_a_cue_that_was_begun_is_kept(
    model: Any, recordings: Recordings, capsysbinary: Capture, name: str, code: int
) -> None:
    layout = "--word-timestamps --max-line-width 40 --max-line-count 2 -f srt".split()
    assert transcribe(*recordings(name), *layout) == code
    assert capsysbinary.readouterr().out.decode() == ("1\n00:00:00,000 --> 00:00:00,500\nOlá,\n\n")


@pytest.mark.skipif(os.name != "posix", reason="elsewhere a program is ended without being asked")
@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_signal_keeps_what_is_done(recordings: Recordings, name: str, code: int) -> None:
    files = recordings(f"{name}.wav", "b.wav")
    # Whoever runs the tests may have these ignored, as nohup does.
    script = "import signal\n" + "".join(
        f"signal.signal(signal.{each}, signal.{handler})\n"
        for each, handler in [
            ("SIGINT", "default_int_handler"), ("SIGTERM", "SIG_DFL"), ("SIGHUP", "SIG_DFL")
        ]
    )  # fmt: skip
    process = start(script + COMMAND + "main()", *files, stdout=subprocess.PIPE)
    out, error = process.communicate()
    assert (process.returncode, out) == (code, b"")
    assert error.decode() == (
        f"oscine: {name}.wav: written as far as 00:00.500\noscine: interrupted\n"
    )
    assert Path(f"{name}.txt").read_text("utf-8") == "Olá,\n"
    assert not Path("b.txt").exists()


@pytest.mark.skipif(os.name != "posix", reason="there is no SIGHUP")
def test_a_hang_up_that_is_ignored_ends_nothing(recordings: Recordings) -> None:
    files = recordings("SIGHUP.wav", "b.wav")
    script = "import signal, time\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
    script += COMMAND + "import conftest; conftest.time.sleep = print; main()"
    process = start(script, *files, stdout=subprocess.DEVNULL)
    _, error = process.communicate()
    assert (process.returncode, error) == (0, b"")
    assert Path("SIGHUP.txt").read_bytes() == Path("b.txt").read_bytes()


@pytest.mark.parametrize("module", ["oscine.cli", "oscine.terminal", "typer", "typer.core"])
def test_an_interrupt_while_the_command_is_imported_is_no_traceback(module: str) -> None:
    script = (
        "import sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name == {module!r}:\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "from oscine.__main__ import main\n"
        "main()"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, b"", b"")


@pytest.mark.parametrize("way", ["path", "link"])
def test_a_recording_is_not_written_over(
    model: Any, recordings: Recordings, capsysbinary: Capture, way: str
) -> None:
    recordings("talk.txt", "other.wav")
    Path("out").mkdir()
    if way == "link":
        Path("out/talk.txt").symlink_to("../talk.txt")
        assert transcribe("talk.txt", "-o", "out") == 2
    else:
        assert transcribe("out/../talk.txt", "-o", ".") == 2
    assert b"talk.txt would be overwritten by its own transcript" in capsysbinary.readouterr().err
    Path("out/other.txt").symlink_to("../talk.txt")
    assert transcribe("other.wav", "talk.txt", "-o", "out", "-f", "txt") == 2
    assert b"talk.txt would be overwritten by that of other.wav" in capsysbinary.readouterr().err
    assert model.loaded == [] and Path("talk.txt").read_bytes() == SOUND


@pytest.mark.skipif(os.name != "posix", reason="Windows has other names and links")
def test_a_transcript_that_cannot_be_is_told_before_the_model_loads(
    model: Any, recordings: Recordings, capsysbinary: Capture
) -> None:
    long = recordings("x" * 251 + ".wav")
    assert transcribe(*long, "-o", "out", "-f", "json") == 1
    assert b"cannot write: File name too long" in capsysbinary.readouterr().err
    Path("out/a.txt").symlink_to("none/a.txt")
    assert transcribe(*recordings("a.wav"), "-o", "out") == 1
    assert b"none: cannot write there: No such file" in capsysbinary.readouterr().err
    assert model.loaded == []


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="there are no such devices here")
@pytest.mark.parametrize("device", ["/dev/zero", "/dev/urandom", "/dev/null"])
def test_a_device_is_no_recording(
    model: Any, capsysbinary: Capture, device: str, tmp_path: Path
) -> None:
    assert transcribe(device, "-o", str(tmp_path)) == 1
    assert capsysbinary.readouterr().err.decode() == (
        f"oscine: {device}: is a device; give a file, or pipe a part of it in\n"
    )
    assert model.loaded == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["transcribe", "notes.txt"],
        ["transcribe", "talk.wav", "--audio-track", "2"],
        ["speak", "Hello", "-o", "a.wav", "--reference", "notes.txt", "--model", CLONING],
        ["voices", "save", "anna", "--audio", "notes.txt", "--model", CLONING],
        ["speak", "Hello", "-o", "a.xyz"],
        ["speak", "data.txt", "-o", "a.wav"],
        ["speak", "Hello", "-o", "a.wav", "--voice", "anna.safetensors", "--model", CLONING],
    ],
)
def test_inputs_are_checked_before_a_model_is_downloaded(
    recordings: Recordings,
    capsysbinary: Capture,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    arguments: list[str],
) -> None:
    """Without models and a network, the message is about the input."""
    for name in ("OSCINE_HOME", "HF_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.setenv("OSCINE_OFFLINE", "1")
    recordings("talk.wav")
    Path("notes.txt").write_text("These are notes.\n")
    Path("data.txt").write_bytes(b"\xff\xfe\x00")
    assert run(arguments) in (1, 2)
    error = capsysbinary.readouterr().err.decode()
    assert error.count("\n") == 1
    assert re.search(r"notes\.txt: |track 2|\.xyz is|data\.txt: |anna\.safetensors", error)
