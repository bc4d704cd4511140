"""Folders of recordings: what is taken, where results go, and what is left as it is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oscine.cli import results, run
from oscine.cli.results import ResultState, ResultStore

from .conftest import SOUND

Recordings = Callable[..., list[str]]
Capture = pytest.CaptureFixture[bytes]


def transcribe(*arguments: str) -> int:
    return run(["transcribe", *arguments])


def files_in(folder: str) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*.*"))


def test_a_tree_is_mirrored_into_the_output_folder(
    model: Any, recordings: Recordings, capsysbinary: Capture
) -> None:
    recordings(
        "in/a.wav", "in/one/a.wav", "in/one/two/b.mp3", "in/one/two/b.mkv", "in/.bin/c.wav",
        "in/one/.d.wav", "in/one/notes.pdf", "in/three/empty.pdf",
    )  # fmt: skip
    assert transcribe("in", "-r", "-o", "out", "-f", "srt") == 0
    expected = ["a.srt", "one/a.srt", "one/two/b.mkv.srt", "one/two/b.mp3.srt"]
    assert files_in("out") == expected
    error = capsysbinary.readouterr().err
    assert error == b"oscine: in: left out: 2 files; a file that is named is tried\n"


def test_a_tree_has_its_results_beside_the_recordings(model: Any, recordings: Recordings) -> None:
    recordings("in/a.wav", "in/one/b.wav")
    for _ in range(2):
        assert transcribe("in", "--recursive") == 0
        assert files_in("in") == ["a.txt", "a.wav", "one/b.txt", "one/b.wav"]


def test_an_output_folder_inside_is_not_looked_into(
    model: Any, recordings: Recordings, capsysbinary: Capture
) -> None:
    recordings("in/a.wav", "in/one/b.wav")
    for _ in range(2):
        assert transcribe("in", "-r", "-o", "in/texts") == 0
        assert files_in("in/texts") == ["a.txt", "one/b.txt"]
        assert capsysbinary.readouterr().err == b""


@pytest.mark.skipif(sys.platform == "win32", reason="links need permission there")
def test_links_to_folders_are_left_out(
    model: Any, recordings: Recordings, capsysbinary: Capture
) -> None:
    recordings("in/one/a.wav", "elsewhere/b.wav")
    Path("in/one/circle").symlink_to("..", target_is_directory=True)
    Path("in/outside").symlink_to("../elsewhere", target_is_directory=True)
    Path("in/one/c.wav").symlink_to("../../elsewhere/b.wav")
    assert transcribe("in", "-r", "-o", "out") == 0
    assert files_in("out") == ["one/a.txt", "one/c.txt"]
    assert b"left out: 2 folders;" in capsysbinary.readouterr().err


def test_a_folder_further_in_that_cannot_be_listed_does_not_stop_the_others(
    model: Any, recordings: Recordings, capsysbinary: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    recordings("in/a.wav", "in/closed/b.wav", "in/open/c.wav")
    listed = Path.iterdir

    def refuse(path: Path) -> Any:
        if path.name == "closed":
            raise PermissionError(13, "Permission denied")
        return listed(path)

    monkeypatch.setattr(Path, "iterdir", refuse)
    assert transcribe("in", "-r", "-o", "out") == 1
    assert files_in("out") == ["a.txt", "open/c.txt"]
    assert capsysbinary.readouterr().err == (
        f"oscine: {Path('in/closed')}: cannot be listed: Permission denied\n".encode()
    )


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("a.wav -r", "--recursive is for folders"),
        ("a.wav --skip-existing", "--skip-existing is for results in files; add --output-dir"),
        ("a.wav --overwrite", "--overwrite is for results in files; add --output-dir"),
        ("in --skip-existing --overwrite", "--overwrite does not go with --skip-existing"),
        ("--live --skip-existing", "--skip-existing does not go with --live"),
        ("--live --watch in", "--watch does not go with --live"),
        ("--watch in a.wav", "--watch takes the recordings of its folder; leave out FILE"),
        ("--watch none", "none: is not a folder; name the one to watch"),
        ("--watch a.wav", "a.wav: is not a folder"),
        ("--watch=", "'': is not a folder"),
    ],
)
def test_what_does_not_go_together_is_refused(
    model: Any, recordings: Recordings, capsysbinary: Capture, arguments: str, problem: str
) -> None:
    recordings("a.wav", "in/b.wav")
    assert transcribe(*arguments.split()) == 2
    assert capsysbinary.readouterr().err.startswith(f"oscine: {problem}".encode())
    assert model.loaded == []


def test_recordings_with_results_are_skipped(
    model: Any, recordings: Recordings, capsysbinary: Capture
) -> None:
    recordings("in/a.wav", "in/b.wav", "in/c.wav")
    recordings("out/a.txt", "out/b.txt", "out/b.srt")  # of whatever program
    assert transcribe("in", "-o", "out", "-f", "txt", "-f", "srt", "--skip-existing") == 0
    assert capsysbinary.readouterr().err == b"oscine: skipped 1 recording with results\n"
    assert len(model.asked) == 2
    assert [Path(f"out/{name}").read_bytes() == SOUND for name in ("a.txt", "b.txt", "b.srt")]
    assert Path("out/a.txt").read_bytes() == SOUND != Path("out/a.srt").read_bytes()
    assert transcribe("in", "-o", "out", "-f", "txt", "-f", "srt", "--skip-existing") == 0
    assert capsysbinary.readouterr().err == b"oscine: skipped 3 recordings with results\n"
    assert len(model.loaded) == 1  # nothing is loaded where nothing is to be done


def test_a_result_that_was_edited_is_kept(
    model: Any, recordings: Recordings, capsysbinary: Capture
) -> None:
    recordings("in/a.wav", "in/b.wav")
    assert transcribe("in", "-o", "out", "-f", "all") == 0
    before = Path("out/b.txt").stat()
    Path("out/a.txt").write_text("edited", "utf-8")
    os.utime("out/a.txt", ns=(before.st_atime_ns, before.st_mtime_ns))  # times do not tell
    os.utime("out/b.txt", ns=(0, 0))
    Path("out/a.srt").unlink()
    for _ in range(2):
        assert transcribe("in", "-o", "out", "-f", "all") == 0
        assert Path("out/a.txt").read_text("utf-8") == "edited"
        assert Path("out/a.srt").exists()
        assert capsysbinary.readouterr().err.decode() == (
            f"oscine: {Path('out/a.txt')}: was edited since it was written and is kept; "
            "to replace it: --overwrite\n"
        )
    asked = len(model.asked)
    assert transcribe("in/a.wav", "-o", "out") == 0
    assert len(model.asked) == asked  # nothing of it would be written
    assert transcribe("in/a.wav", "-o", "out", "--overwrite") == 0
    assert Path("out/a.txt").read_text("utf-8") == Path("out/b.txt").read_text("utf-8")
    capsysbinary.readouterr()
    assert transcribe("in", "-o", "out") == 0  # it is as it was written again
    assert b"edited" not in capsysbinary.readouterr().err


def test_a_result_that_is_edited_while_it_is_made_again_is_kept(
    model: Any, recordings: Recordings, capsysbinary: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    recordings("in/a.wav", "in/b.wav")
    assert transcribe("in") == 0
    stream = model.stream

    def edit(source: str, **more: Any) -> Any:
        Path("in/a.txt").write_text("edited", "utf-8")
        return stream(source, **more)

    monkeypatch.setattr(model, "stream", edit)
    assert transcribe("in") == 1
    assert Path("in/a.txt").read_text("utf-8") == "edited"
    assert b"a.txt: was edited" in capsysbinary.readouterr().err


def test_a_result_that_was_stopped_is_made_again(
    model: Any, recordings: Recordings, capsysbinary: Capture
) -> None:
    recordings("in/a.wav", "in/b_interrupt.wav", "in/c.wav")
    assert transcribe("in", "-o", "out", "--skip-existing") == 130
    half = Path("out/b_interrupt.txt").read_bytes()
    assert half and not Path("out/c.txt").exists()
    capsysbinary.readouterr()
    Path("in/b_interrupt.wav").rename("in/b.wav")
    Path("out/b_interrupt.txt").rename("out/b.txt")  # another path: it counts as whole
    assert transcribe("in", "-o", "out", "--skip-existing") == 0
    assert Path("out/b.txt").read_bytes() == half
    assert capsysbinary.readouterr().err == b"oscine: skipped 2 recordings with results\n"
    assert transcribe(*recordings("in/d_broken.wav"), "-o", "out") == 1
    assert ResultStore().state(Path("out/d_broken.txt")) is ResultState.PARTIAL
    assert transcribe("in", "-o", "out", "--skip-existing") == 1
    assert b"skipped 3 recordings" in capsysbinary.readouterr().err
    Path("out/d_broken.txt").write_text("edited", "utf-8")
    assert transcribe("in", "-o", "out", "--skip-existing") == 0  # it is somebody's now


def test_a_folder_goes_on_after_a_kill(tmp_path: Path) -> None:
    """A process that is killed leaves whole results alone; the next one makes the others."""
    (tmp_path / "in").mkdir()
    for name in "abcd":
        (tmp_path / "in" / f"{name}.wav").write_bytes(SOUND)
    program = (
        "import os, signal, sys; sys.path.insert(0, sys.argv[1]);"
        "import conftest, oscine; from oscine.cli import run; model = conftest.FakeModel();"
        "stream, kill = model.stream, sys.argv[2];\n"
        "def stop(source, **more):\n"
        "    if source.endswith(kill): os.kill(os.getpid(), signal.SIGKILL)\n"
        "    print(source[-5:], file=sys.stderr)\n"
        "    return stream(source, **more)\n"
        "model.stream = stop; oscine.load = model.load;"
        "sys.exit(run(['transcribe', 'in', '-o', 'out', '--skip-existing']))"
    )

    def start(kill: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [sys.executable, "-c", program, str(Path(__file__).parent), kill],
            cwd=tmp_path,
            env=os.environ | {"OSCINE_HOME": str(tmp_path / "home")},
            capture_output=True,
            timeout=60,
        )

    def worked_on(done: subprocess.CompletedProcess[bytes]) -> list[bytes]:
        return [line for line in done.stderr.splitlines() if line.endswith(b".wav")]

    killed = start("c.wav")
    assert killed.returncode == -getattr(signal, "SIGKILL", 9), killed.stderr
    assert worked_on(killed) == [b"a.wav", b"b.wav"]
    assert sorted(os.listdir(tmp_path / "out")) == ["a.txt", "b.txt"]
    again = start("none")
    assert again.returncode == 0
    assert worked_on(again) == [b"c.wav", b"d.wav"]
    assert b"oscine: skipped 2 recordings with results" in again.stderr
    assert len(os.listdir(tmp_path / "out")) == 4


def test_without_a_record_results_are_overwritten(
    model: Any, recordings: Recordings, monkeypatch: pytest.MonkeyPatch
) -> None:
    recordings("in/a.wav", "home")
    monkeypatch.setattr(results, "record_path", lambda: Path("home/results"))  # below a file
    for _ in range(2):
        assert transcribe("in") == 0
        assert Path("in/a.txt").read_bytes() != b"edited"
        Path("in/a.txt").write_bytes(b"edited")


def test_the_record_of_results_is_bounded_and_survives_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tmp_path / "home" / "results"
    monkeypatch.setattr(results, "record_path", lambda: record)
    monkeypatch.setattr(results, "MAX_RECORD_BYTES", 1000)
    for number in range(40):
        ResultStore().write(tmp_path / f"{number}.txt", f"text {number}", finished=True)
    assert record.stat().st_size < 1100
    states = [ResultStore().state(tmp_path / f"{number}.txt") for number in range(40)]
    assert states[0] is ResultState.UNKNOWN and set(states[-5:]) == {ResultState.COMPLETE}
    record.write_bytes(b"\xff\x00 x\n\n" + record.read_bytes()[-300:] + b"half a li")
    assert ResultStore().state(tmp_path / "39.txt") is ResultState.COMPLETE
    ResultStore().write(tmp_path / "40.txt", "more", finished=False)
    assert ResultStore().state(tmp_path / "41.txt") is ResultState.MISSING


def test_a_result_file_is_named_with_its_suffix(model: Any, recordings: Recordings) -> None:
    recordings("a.wav")
    Path("texts").mkdir()
    assert transcribe("a.wav", "-o", "texts/talk.srt") == 0
    assert transcribe("a.wav", "-o", "Talk.JSON", "-f", "json") == 0
    assert files_in(".") == ["Talk.JSON", "a.wav", "texts/talk.srt"]
    assert Path("texts/talk.srt").read_text("utf-8").startswith("1\n00:00:00,000")
    Path("old.txt").mkdir()  # folders, whatever their names
    assert transcribe("a.wav", "-o", "old.txt") == transcribe("a.wav", "-o", "new.txt/") == 0
    assert files_in("old.txt") == files_in("new.txt") == ["a.txt"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["a.wav", "b.wav", "-o", "out.txt"], "one file, but there are several recordings; name a"),
        (["in", "-o", "out.txt"], "out.txt is one file, but the input is a folder; name a folder"),
        (["--watch", "in", "-o", "out.txt"], "out.txt is one file; name a folder for the results"),
        (["a.wav", "-f", "srt", "-o", "out.txt"], "out.txt does not fit --output-format srt; leav"),
        (["a.wav", "-f", "all", "-o", "out.txt"], "out.txt does not fit --output-format all; leav"),
        (["note.txt", "-o", "note.txt"], "note.txt would be overwritten by its own transcript"),
        (
            ["a.wav", "-o", "-"],
            "--output-dir -: leave it out, and the text goes to standard output",
        ),
    ],
)
def test_one_result_file_has_one_recording(
    model: Any, recordings: Recordings, capsysbinary: Capture, arguments: list[str], problem: str
) -> None:
    recordings("a.wav", "b.wav", "in/c.wav", "note.txt")
    assert transcribe(*arguments) == 2
    error = capsysbinary.readouterr().err.decode()
    assert problem in error and error.count("\n") == 1
    assert model.loaded == [] and not Path("out.txt").exists() and not Path("-").exists()
