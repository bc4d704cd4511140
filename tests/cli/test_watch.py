"""A folder that is watched: what arrives is transcribed once it is whole."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from oscine.cli import run, watch

from .conftest import SOUND, wave_file

Recordings = Callable[..., list[str]]
Capture = pytest.CaptureFixture[bytes]
Step = Callable[[], object]


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """steps(a, b, ...): what happens between looks, one after another; then Ctrl-C."""
    monkeypatch.setattr(watch, "SETTLE_TIME_S", 0.0)

    def set_steps(*listed: Step) -> None:
        waiting: Iterator[Step] = iter(listed)

        def pause(seconds: float) -> None:
            assert seconds >= watch.POLL_INTERVAL_S
            step = next(waiting, None)
            if step is None:
                raise KeyboardInterrupt
            step()

        monkeypatch.setattr(watch, "pause", pause)

    return set_steps


def nothing() -> None:
    pass


def start(*arguments: str) -> int:
    return run(["transcribe", "--watch", "in", *arguments])


def test_what_arrives_is_transcribed_once(
    model: Any, recordings: Recordings, steps: Any, capsysbinary: Capture
) -> None:
    recordings("in/old.wav", "in/done.wav", "in/done.txt", "in/notes.pdf")
    heard: list[int] = []

    def count() -> None:
        heard.append(len(model.asked))

    steps(
        count,  # what is there waits for a second look
        count,
        lambda: recordings("in/new.mp3", "in/.hidden.mp3", "in/deeper/other.mp3"),
        nothing,
        count,
        nothing,
        count,
    )
    assert start() == 130
    assert heard == [0, 1, 2, 2]
    assert sorted(os.listdir("in")) == sorted(
        ["old.wav", "old.txt", "done.wav", "done.txt", "notes.pdf", "new.mp3", "new.txt",
         ".hidden.mp3", "deeper"]
    )  # fmt: skip
    assert Path("in/done.txt").read_bytes() == SOUND
    assert len(model.loaded) == 1
    assert capsysbinary.readouterr().err == (
        b"oscine: watching in; Ctrl-C ends this\noscine: interrupted\n"
    )


def test_a_file_that_grows_waits_until_it_is_whole(
    model: Any, recordings: Recordings, steps: Any
) -> None:
    def grow() -> None:
        assert model.asked == []
        with Path("in/a.wav").open("ab") as file:
            file.write(SOUND)

    Path("in").mkdir(exist_ok=True)
    steps(lambda: Path("in/a.wav").touch(), nothing, nothing, grow, grow, grow, nothing, nothing)
    recordings("in/z.pdf")
    assert start() == 130
    assert len(model.asked) == 1


def test_a_file_has_to_keep_still_for_a_while(
    model: Any, recordings: Recordings, steps: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "SETTLE_TIME_S", 3600.0)
    recordings("in/a.wav")
    steps(nothing, nothing, nothing)
    assert start() == 130
    assert model.asked == []


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux tells")
def test_a_file_that_is_open_for_writing_waits(
    model: Any, recordings: Recordings, steps: Any
) -> None:
    recordings("in/a.wav", "in/b.wav")
    if not watch.is_being_written("in/a.wav"):
        with Path("in/a.wav").open("ab"):
            if not watch.is_being_written("in/a.wav"):
                pytest.skip("this file system has no leases")
    writer = Path("in/a.wav").open("ab")
    with Path("in/b.wav").open("rb"):  # who reads does not matter
        steps(nothing, nothing, nothing, writer.close, nothing)
        assert start() == 130
    assert len(model.asked) == 2
    assert sorted(Path("in").glob("*.txt")) == [Path("in/a.txt"), Path("in/b.txt")]


def test_a_recording_that_is_replaced_is_transcribed_again(
    model: Any, recordings: Recordings, steps: Any, capsysbinary: Capture
) -> None:
    recordings("in/a.wav", "in/b.wav", "in/z.pdf")

    def replace(*names: str) -> None:
        for name in names:
            Path(name).write_bytes(wave_file(320))

    steps(
        nothing,
        nothing,
        lambda: Path("in/b.txt").write_text("edited", "utf-8"),
        lambda: replace("in/a.wav", "in/b.wav"),
        nothing,
        nothing,
        lambda: Path("in/a.wav").unlink(),
        nothing,
        lambda: recordings("in/a.wav"),  # a recorder that has one name for all
        nothing,
        nothing,
    )
    assert start() == 130
    assert len(model.asked) == 4
    assert Path("in/b.txt").read_text("utf-8") == "edited"
    assert capsysbinary.readouterr().err.count(b"b.txt: was edited") == 1


def test_what_fails_does_not_end_the_watch(
    model: Any, recordings: Recordings, steps: Any, capsysbinary: Capture
) -> None:
    recordings("in/a_broken.wav", "in/b.wav")
    Path("in/empty.wav").touch()
    steps(nothing, nothing, lambda: recordings("in/c.wav"), nothing, nothing)
    assert start("-o", "out") == 130
    assert sorted(os.listdir("out")) == ["a_broken.txt", "b.txt", "c.txt"]
    assert capsysbinary.readouterr().err.count(b"in/a_broken.wav: is damaged after 1 s") == 1


def test_a_tree_is_watched(model: Any, recordings: Recordings, steps: Any) -> None:
    recordings("in/a.wav")
    steps(nothing, nothing, lambda: recordings("in/one/two/b.wav"), nothing, nothing)
    assert start("-r", "-o", "in/out") == 130
    assert Path("in/out/a.txt").exists() and Path("in/out/one/two/b.txt").exists()
    assert len(model.asked) == 2


def test_a_folder_that_goes_away_ends_the_watch(
    model: Any, recordings: Recordings, steps: Any, capsysbinary: Capture
) -> None:
    recordings("in/a.wav")
    steps(nothing, lambda: Path("in").rename("gone"))
    assert start("-o", "out") == 1
    assert capsysbinary.readouterr().err.endswith(
        b"oscine: in: cannot be listed: No such file or directory\n"
    )


def test_results_that_would_have_one_name_are_told_once(
    model: Any, recordings: Recordings, steps: Any, capsysbinary: Capture
) -> None:
    recordings("in/a.wav", "in/a.mp3", "in/a.wav.mp3")
    steps(nothing, nothing, lambda: Path("in/a.wav.mp3").unlink(), nothing, nothing)
    assert start("-o", "out") == 130
    assert sorted(os.listdir("out")) == ["a.mp3.txt", "a.wav.txt"]
    assert capsysbinary.readouterr().err.count(b"waiting until this is resolved") == 1


def test_ctrl_c_within_a_recording_keeps_what_is_done(
    model: Any, recordings: Recordings, steps: Any, capsysbinary: Capture
) -> None:
    recordings("in/interrupt.wav")
    steps(nothing, nothing, nothing)
    assert start() == 130
    assert Path("in/interrupt.txt").stat().st_size
    steps(nothing, nothing)
    Path("in/interrupt.wav").rename("in/other.wav")
    assert start() == 130
    assert Path("in/other.txt").exists()
