"""Recordings that harm their decoder: each costs one line, and the rest of a batch is written."""

from __future__ import annotations

import os
import signal
import struct
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oscine.audio import decoder_pool
from oscine.cli import run

CHECKPOINT = Path(__file__).parents[1] / "goldens" / "whisper_multi"
Capture = pytest.CaptureFixture[bytes]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """No process with another test's settings."""
    decoder_pool._end_all()
    yield
    decoder_pool._end_all()


def silence(path: Path, seconds: float = 1.0, channels: int = 1) -> str:
    with wave.open(str(path), "wb") as out:
        out.setparams((channels, 2, 16_000, 0, "NONE", ""))
        out.writeframes(bytes(int(2 * channels * 16_000 * seconds)))
    return str(path)


def transcribe(*arguments: str) -> int:
    return run(["transcribe", "--model", str(CHECKPOINT), "--device", "cpu", *arguments])


def lines(capture: Capture) -> list[str]:
    """What is said, but for what is said of silence."""
    said = capture.readouterr().err.decode().splitlines()
    return [line for line in said if "nothing to transcribe" not in line]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="signals are POSIX's")
@pytest.mark.parametrize(("number", "words", "more"), [
    (signal.SIGSEGV, "its decoder crashed (signal 11); convert it to wav or flac", ()),
    (signal.SIGKILL, "its decoder crashed (signal 9); convert it to wav or flac",
     ("--split-channels",)),
    (signal.SIGSTOP, "its decoder hangs: nothing came of it in 30 s; convert it to wav or flac",
     ()),
])  # fmt: skip
def test_a_decoder_that_crashes_or_hangs_costs_one_recording(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: Capture,
    number: int,
    words: str,
    more: tuple[str, ...],
) -> None:
    files = [silence(tmp_path / name, channels=2) for name in ("a.wav", "talk.aac", "b.wav")]
    read = decoder_pool._bytes_at

    def harmed(name: str, *place: Any) -> bytes:
        if name == files[1]:
            for decoder in decoder_pool._live:
                os.kill(decoder.process.pid, number)
        return read(name, *place)

    monkeypatch.setattr(decoder_pool, "_bytes_at", harmed)
    monkeypatch.setattr(decoder_pool, "_TICK_S", 0.1)  # so that 30 seconds are 3
    monkeypatch.setattr(decoder_pool, "HANG_TIMEOUT_S", 30)
    assert transcribe(*files, *more) == 1
    assert lines(capsysbinary) == [f"oscine: {files[1]}: {words}"]
    assert {path.name for path in tmp_path.glob("*.txt")} == {"a.txt", "b.txt"}


def test_a_list_of_recordings_is_refused_and_the_rest_are_written(
    tmp_path: Path, capsysbinary: Capture
) -> None:
    private = silence(tmp_path / "private.wav")
    listed = tmp_path / "talk.mp3"
    listed.write_text(f"ffconcat version 1.0\nfile {Path(private).name}\n")
    other = silence(tmp_path / "b.wav")
    assert transcribe(str(listed), other, "-o", str(tmp_path / "out")) == 1
    assert lines(capsysbinary) == [
        f"oscine: {listed}: is a playlist, not a recording; give the recordings that it names, "
        "or join them: ffmpeg -i LIST -c copy joined.mkv"
    ]
    assert os.listdir(tmp_path / "out") == ["b.txt"]


def test_a_recording_longer_than_allowed(tmp_path: Path, capsysbinary: Capture) -> None:
    """Also one whose header says that it is short."""
    files = [silence(tmp_path / f"{name}.wav", 2) for name in ("long", "lying")]
    files.append(silence(tmp_path / "short.wav", 1))
    lying = bytearray(Path(files[1]).read_bytes())
    lying[40:44] = struct.pack("<I", 320)
    Path(files[1]).write_bytes(lying)
    assert transcribe(*files, "--max-audio-seconds", "1.5") == 1
    assert lines(capsysbinary) == [
        f"oscine: {name}: is longer than the 1.5 s of --max-audio-seconds; "
        "cut it, or raise --max-audio-seconds"
        for name in files[:2]
    ]
    assert {path.name for path in tmp_path.glob("*.txt")} == {"short.txt"}
    assert transcribe(*files) == 0
    assert transcribe(files[0], "--max-audio-seconds", "0") == 2
    assert lines(capsysbinary)[-1] == "oscine: --max-audio-seconds must be above 0, not 0.0"


def test_a_home_folder_in_any_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    home = tmp_path / "home"
    home.mkdir()
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(home))
    silence(home / "a.wav")
    (home / "model").symlink_to(CHECKPOINT)
    assert transcribe("~/a.wav", "--output-dir=~/texts") == 0
    assert run(["transcribe", "~/a.wav", "--model=~/model", "--device=cpu", "-f", "all"]) == 0
    assert os.listdir(home / "texts") == ["a.txt"]
    assert {path.suffix for path in home.glob("a.*")} >= {".wav", ".srt", ".json"}
    assert os.listdir(tmp_path) == ["home"]
    assert run(["speak", "Hello.", "--output=~/none/a.wav", "--model=~/model"]) != 0
    assert f"{home / 'none'}" in lines(capsysbinary)[-1]
