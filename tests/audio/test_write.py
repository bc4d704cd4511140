"""Sound files that are written: whole, as they come, into pipes, and where that fails."""

from __future__ import annotations

import errno
import io
import os
import struct
import subprocess
import sys
import wave
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

import av
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oscine.audio import encode, write
from oscine.audio.encode import pcm16
from oscine.audio.io import decode
from oscine.audio.write import FORMATS, AudioWriter, format_of, save
from oscine.errors import NonFiniteError, OscineError, UsageError
from oscine.types import Audio

from .comments import comment_of

RATE = 24_000
CODED = [name for name in FORMATS if name not in ("wav", "raw")]
#: How late, and how much longer, a decoder may find what an encoder has taken: its own delay.
SLACK = 0.1


def speechlike(seconds: float = 1.5, rate: int = RATE) -> Audio:
    """A gliding voice with pauses, so that only the right place fits."""
    time = np.arange(int(seconds * rate)) / rate
    tone = np.sin(2 * np.pi * (150 * time + 60 * time**2)) + 0.4 * np.sin(2 * np.pi * 900 * time)
    loudness = np.clip(np.sin(2 * np.pi * 2.3 * time), 0, None)
    return Audio((0.4 * tone * loudness).astype(np.float32), rate)


class Pipe:
    """Takes bytes and cannot go back."""

    def __init__(self) -> None:
        self.data = b""
        self.flushed = 0

    def write(self, data: Any) -> int:
        self.data += bytes(data)
        return len(data)

    def flush(self) -> None:
        self.flushed = len(self.data)


class Full(io.BytesIO):
    """A disk with room for so many bytes."""

    room = 100

    def write(self, data: Any) -> int:
        if self.tell() + len(data) > self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(data)


def heard(data: bytes, rate: int = RATE) -> np.ndarray:
    """What a player hears, decoded by PyAV itself and not by ours."""
    with av.open(io.BytesIO(data)) as container:
        chain = av.AudioResampler("flt", "mono", rate)
        frames = [f for frame in container.decode(audio=0) for f in chain.resample(frame)]
        frames += chain.resample(None)
    return np.concatenate([frame.to_ndarray().reshape(-1) for frame in frames])


def likeness(samples: np.ndarray, found: np.ndarray) -> float:
    """Highest correlation at a delay of up to SLACK; all of `samples` must be there."""
    most = int(SLACK * RATE)
    assert len(samples) - 2 <= len(found) <= len(samples) + 2 * most
    found = np.pad(found, (0, most + len(samples)))
    spans = np.lib.stride_tricks.sliding_window_view(found, len(samples))[: most + 1]
    return float(
        np.max(spans @ samples / (np.linalg.norm(spans, axis=1) * np.linalg.norm(samples)))
    )


@pytest.mark.parametrize("pipe", [False, True])
@pytest.mark.parametrize("name", CODED)
def test_all_that_was_written_is_heard(name: str, pipe: bool) -> None:
    audio = speechlike()
    target: Any = Pipe() if pipe else io.BytesIO()
    save(audio, target, name)
    found = heard(target.data if pipe else target.getvalue())
    assert likeness(audio.samples, found) > 0.99
    if name in ("opus", "ogg", "flac") or (name == "mp3" and not pipe):
        assert abs(len(found) - len(audio.samples)) <= 2  # their headers tell the padding


@pytest.mark.parametrize("name", FORMATS)
def test_pieces_are_the_whole(name: str, tmp_path: Path) -> None:
    audio = speechlike()
    save(audio, tmp_path / f"whole.{name}")
    with AudioWriter(tmp_path / f"pieces.{name}", RATE) as writer:
        for start in range(0, len(audio.samples), 1_921):
            writer.write(audio.samples[start : start + 1_921])
        writer.write(np.zeros(0, np.float32))
        assert writer.duration == audio.duration
        assert not (tmp_path / f"pieces.{name}").exists()
    assert sorted(os.listdir(tmp_path)) == [f"pieces.{name}", f"whole.{name}"]
    whole, pieces = (tmp_path / f"{kind}.{name}" for kind in ("whole", "pieces"))
    if name in ("wav", "raw"):
        assert whole.read_bytes() == pieces.read_bytes()
    else:
        np.testing.assert_allclose(heard(whole.read_bytes()), heard(pieces.read_bytes()), atol=2e-3)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-3, 3, width=32), max_size=40), st.sampled_from([8_000, 24_000, 44_100]))
def test_wav_flac_and_raw_are_the_rounded_samples(numbers: list[float], rate: int) -> None:
    samples = np.array(numbers, np.float32)
    expected = [round(max(-1.0, min(1.0, float(x))) * 32767) for x in samples]
    files = {name: io.BytesIO() for name in ("wav", "raw", "flac")}
    for name, file in files.items():
        save(Audio(samples, rate), file, name)
    with wave.open(io.BytesIO(files["wav"].getvalue())) as read:
        form = (read.getnchannels(), read.getsampwidth(), read.getframerate(), read.getnframes())
        assert form == (1, 2, rate, len(samples))
        data = read.readframes(len(samples))
    found = np.frombuffer(data, "<i2")
    assert np.abs(found - np.array(expected, int)).max(initial=0) <= 1  # in float32: one half off
    assert data == files["raw"].getvalue() == pcm16(samples).tobytes()
    if len(samples):
        flac = decode(files["flac"].getvalue(), rate).samples
        np.testing.assert_array_equal(flac * 32768, found)


def test_full_scale_and_halves() -> None:
    samples = np.array([0, 1, -1, 1.5, -9, 0.5, 1e-6], np.float32)
    assert pcm16(samples).tolist() == [0, 32767, -32767, 32767, -32767, 16384, 0]


def test_a_pipe_gets_a_wave_header_with_open_lengths_at_once() -> None:
    pipe = Pipe()
    writer = AudioWriter(pipe, RATE)  # type: ignore[arg-type]
    assert len(pipe.data) == 44
    assert (
        struct.unpack("<I", pipe.data[4:8]) == struct.unpack("<I", pipe.data[40:]) == (2**32 - 1,)
    )
    writer.write(np.zeros(10, np.float32))
    assert pipe.flushed == len(pipe.data) == 64  # a player need not wait for the end
    writer.close()
    writer.close()
    assert len(pipe.data) == 64
    assert len(decode(pipe.data, RATE).samples) == 10


@pytest.mark.parametrize("name", CODED)
def test_a_pipe_gets_coded_audio_as_it_comes(name: str) -> None:
    pipe = Pipe()
    writer = AudioWriter(pipe, RATE, name)  # type: ignore[arg-type]
    audio = speechlike(2.0)
    for half in np.split(audio.samples, 2):
        writer.write(half)
        before = pipe.flushed
    assert len(heard(pipe.data[:before])) > 0.7 * len(audio.samples)
    writer.close()


def test_a_file_object_is_written_from_where_it_stands(tmp_path: Path) -> None:
    for name in FORMATS:
        memory = io.BytesIO(b"before")
        memory.seek(0, 2)
        save(speechlike(0.3), memory, name)
        assert memory.getvalue().startswith(b"before")
        assert memory.tell() == len(memory.getvalue())
        alone = io.BytesIO()
        save(speechlike(0.3), alone, name)
        if name != "ogg" and name != "opus":  # whose streams have random numbers
            assert memory.getvalue()[6:] == alone.getvalue()
    file = tmp_path / "appended"
    for _ in range(2):
        with file.open("ab") as opened:
            save(speechlike(0.1), opened)
    assert file.stat().st_size == 2 * (44 + 4_800)  # nothing was gone back to


@pytest.mark.parametrize(
    ("target", "name", "expected"),
    [
        ("a.WAV", None, "wav"),
        ("a.b.mp3", None, "mp3"),
        ("a.mp3", "flac", "flac"),
        ("a", "PCM", "raw"),
        (Path("x.pcm"), None, "raw"),
        (io.BytesIO(), None, "wav"),
        (io.BytesIO(), ".opus", "opus"),
    ],
)
def test_formats_by_suffix_or_name(target: Any, name: str | None, expected: str) -> None:
    assert format_of(target, name) == expected


@pytest.mark.parametrize(
    ("target", "name", "problem"),
    [
        (
            "a.doc",
            None,
            "a.doc: .doc is not an audio format; supported: wav, raw, mp3, flac, opus, ",
        ),
        ("a", None, "a: no suffix names a format; supported: wav"),
        ("a.wav", "doc", "unknown audio format 'doc'; supported: wav"),
    ],
)
def test_unknown_formats_are_told_those_there_are(
    target: str, name: str | None, problem: str
) -> None:
    with pytest.raises(UsageError, match=problem.replace(".", r"\.")):
        save(speechlike(0.1), target, name)


def test_an_encoder_that_pyav_lacks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(encode.CODECS, "mp3", encode.Codec("mp3", "libnone"))
    with pytest.raises(UsageError, match="mp3 cannot be written: PyAV has no encoder"):
        save(speechlike(0.1), tmp_path / "a.mp3")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["wav", "mp3"])
def test_samples_that_are_not_finite(bad: float, name: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.{name}"
    path.write_bytes(b"old")
    with pytest.raises(NonFiniteError, match="non-finite samples"):
        save(Audio(np.array([0, bad], np.float32), RATE), path)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize(
    "samples", [np.zeros((2, 2), np.float32), np.zeros((), np.float32), np.array(["a"])]
)
def test_what_is_no_samples(samples: Any) -> None:
    with (
        pytest.raises(UsageError, match="is not mono samples"),
        AudioWriter(io.BytesIO(), RATE) as writer,
    ):
        writer.write(samples)


@pytest.mark.parametrize("rate", [0, -1, 24_000.5, True, 1 << 30])
def test_what_is_no_rate(rate: Any) -> None:
    with pytest.raises(UsageError, match="a sample rate is whole hertz"):
        AudioWriter(io.BytesIO(), rate)


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        (None, "NoneType cannot be written to; give a path or a binary file object"),
        (3, "int cannot be written to"),
        (b"a.wav", "bytes cannot be written to"),
        (io.StringIO(), "open as text; open it with mode 'wb'"),
        ("a\0.wav", r"'a\\x00\.wav' is not a file name"),
        (Path("a\0.wav"), "is not a file name"),
        ("\ud800.wav", r"'\\ud800\.wav' is not a file name"),
    ],
)
@pytest.mark.parametrize("form", [None, "wav", "mp3"])
def test_what_is_no_place_for_sound(target: Any, problem: str, form: str | None) -> None:
    with pytest.raises(UsageError, match=problem):
        save(speechlike(0.1), target, form)


@pytest.mark.parametrize("name", FORMATS)
def test_file_objects_that_take_no_sound(name: str, tmp_path: Path) -> None:
    class Text:
        def write(self, data: str) -> int:
            return len(data + "\n")

    (tmp_path / "a").touch()
    with (tmp_path / "a").open("rb") as read_only:
        with pytest.raises(OscineError, match=r"a: cannot write: (write|File not)"):
            save(speechlike(0.1), read_only, name)  # type: ignore[arg-type]
    with pytest.raises(OscineError, match=r"a: cannot be written .*closed"):
        save(speechlike(0.1), read_only, name)  # type: ignore[arg-type]
    with pytest.raises(OscineError, match="file object: cannot be written"):
        save(speechlike(0.1), Text(), name)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="an audio format must be a name, not 3; supported: wav"):
        save(speechlike(0.1), io.BytesIO(), 3)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", FORMATS)
def test_no_samples_at_all_are_a_file(name: str, tmp_path: Path) -> None:
    save(Audio(np.zeros(0, np.float32), RATE), tmp_path / f"a.{name}")
    assert os.listdir(tmp_path) == [f"a.{name}"]


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("rate", [8_000, 11_111, 44_100, 96_000])
def test_other_rates(name: str, rate: int) -> None:
    audio = speechlike(0.5, rate)
    memory = io.BytesIO()
    save(audio, memory, name)
    if name != "raw":
        assert len(heard(memory.getvalue())) / RATE == pytest.approx(0.5, abs=3 * SLACK)


@pytest.mark.parametrize("name", FORMATS)
def test_a_disk_that_is_full(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / f"a.{name}"
    old.write_bytes(b"old")

    class FullDisk(write.AtomicFile):
        def __init__(self, path: Path) -> None:
            super().__init__(path)
            self.file.close()
            self.file = Full()

    monkeypatch.setattr(write, "AtomicFile", FullDisk)
    with pytest.raises(OscineError, match=rf"a\.{name}: cannot write: No space left on device"):
        save(speechlike(5.0), old)
    assert os.listdir(tmp_path) == [old.name]
    assert old.read_bytes() == b"old"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux alone has such a disk")
@pytest.mark.parametrize("name", FORMATS)
def test_a_disk_that_is_full_is_quiet_in_ffmpeg(
    name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    for seconds in (0.01, 3.0):
        with pytest.raises(OscineError, match="/dev/full: cannot write: No space left"):
            save(speechlike(seconds), "/dev/full", name)
        with open("/dev/full", "wb", buffering=0) as file:  # also by its own name
            with pytest.raises(OscineError, match="/dev/full: cannot write: No space left"):
                save(speechlike(seconds), file, name)
    assert capfd.readouterr() == ("", "")


def test_where_no_file_can_be(tmp_path: Path) -> None:
    (tmp_path / "folder.wav").mkdir()
    for name, problem in [("folder.wav", "it is a folder"), ("none/a.wav", "No such file")]:
        with pytest.raises(OscineError, match=f"{name}: cannot write: {problem}"):
            save(speechlike(0.1), tmp_path / name)
    assert os.listdir(tmp_path) == ["folder.wav"]


def test_devices_and_links_are_written_through(tmp_path: Path) -> None:
    save(speechlike(0.1), "/dev/null", "wav")
    assert not Path("/dev/null").is_file()
    target, link = tmp_path / "a.wav", tmp_path / "link.wav"
    target.write_bytes(b"old")
    link.symlink_to(target)
    save(speechlike(0.1), link)
    assert link.is_symlink()
    assert target.stat().st_size == 44 + 4_800


def test_an_exception_inside_leaves_no_file_and_what_is_abandoned_takes_no_more(
    tmp_path: Path,
) -> None:
    for name in FORMATS:
        with (
            pytest.raises(KeyboardInterrupt),
            AudioWriter(tmp_path / f"a.{name}", RATE) as writer,
        ):
            writer.write(speechlike(0.1).samples)
            raise KeyboardInterrupt
        with pytest.raises(UsageError, match="is closed"):
            writer.write(speechlike(0.1).samples)
    assert os.listdir(tmp_path) == []


def test_a_reader_that_has_gone_is_a_broken_pipe() -> None:
    script = (
        "import sys, numpy as np; from oscine.audio.write import AudioWriter\n"
        "sys.stdin.read()\n"
        "try:\n"
        "    w = AudioWriter(sys.stdout.buffer, 24000, sys.argv[1])\n"
        "    for _ in range(50): w.write(np.random.uniform(-1, 1, 24000))\n"
        "except BrokenPipeError: sys.exit(7)\n"
    )
    for name in ("wav", "mp3"):
        process = subprocess.Popen(
            [sys.executable, "-c", script, name],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout is not None
        process.stdout.close()
        process.stdout = None
        process.communicate(b"")
        assert process.returncode == 7


class Interrupted(Pipe):
    """Takes some bytes and then, once, Ctrl-C instead."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room: int | None = room

    def write(self, data: Any) -> int:
        if self.room is None:
            return super().write(data)
        if not self.room:
            self.room = None
            raise KeyboardInterrupt
        taken = super().write(bytes(data)[: self.room])
        self.room -= taken
        return taken


class InterruptedFile(io.BytesIO):
    """The same where one can go back; nobody knows then where it stands."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room: int | None = room

    def write(self, data: Any) -> int:
        if self.room is not None and self.tell() + len(data) > self.room:
            super().write(bytes(data)[:-1])
            self.room = None
            raise KeyboardInterrupt
        return super().write(data)


@pytest.mark.parametrize("kind", [Interrupted, InterruptedFile])
@pytest.mark.parametrize("room", [0, 1, 60, 5_000])
@pytest.mark.parametrize("name", FORMATS)
def test_what_an_interrupt_stops_half_way_is_finished_by_closing(
    name: str, room: int, kind: Any
) -> None:
    audio = speechlike(3.0)
    file = kind(room)
    interrupts = 0
    try:
        writer = AudioWriter(file, RATE, name)
    except KeyboardInterrupt:  # in the header: there is no speech to keep
        return
    for piece in np.split(audio.samples, 6):
        try:
            writer.write(piece)
        except KeyboardInterrupt:
            interrupts += 1
            break
    count = writer.count
    while writer.open:  # in the last bytes
        try:
            writer.close()
        except KeyboardInterrupt:
            interrupts += 1
    data = file.data if kind is Interrupted else file.getvalue()
    assert interrupts == 1 and file.room is None
    if name == "raw":
        assert data == pcm16(audio.samples[:count]).tobytes()
    elif name == "wav":
        assert data[44:] == pcm16(audio.samples[:count]).tobytes()
    else:
        assert likeness(audio.samples[:count], heard(data)) > 0.99


def test_an_interrupt_while_finishing_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stopped(write.AtomicFile):
        def keep(self) -> None:
            raise KeyboardInterrupt

    monkeypatch.setattr(write, "AtomicFile", Stopped)
    for name in FORMATS:
        with pytest.raises(KeyboardInterrupt):
            save(speechlike(0.1), tmp_path / f"a.{name}")
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(os.name != "posix", reason="Windows has no such pipes")
@pytest.mark.parametrize("name", FORMATS)
def test_a_pipe_that_does_not_wait_is_waited_for(name: str) -> None:
    audio = speechlike(4.0)
    found: list[bytes] = []
    source, target = os.pipe()
    os.set_blocking(target, False)
    filled = 0
    with open(source, "rb") as reading, open(target, "wb") as writing:
        with suppress(BlockingIOError):
            while True:
                filled += os.write(target, bytes(4096))
        reader = Thread(target=lambda: found.append(reading.read()))
        reader.start()
        save(audio, writing, name)
        writing.close()
        reader.join()
    data = found[0][filled:]
    if name in ("wav", "raw"):
        assert data.endswith(pcm16(audio.samples).tobytes())
    else:
        assert likeness(audio.samples, heard(data)) > 0.99


# -- metadata -------------------------------------------------------------------------------------

COMMENTS = ['{"synthetic": true}', "é – 说", "x" * 1001, ""]


@pytest.mark.parametrize("comment", COMMENTS)
@pytest.mark.parametrize("name", ["wav", *CODED])
def test_a_comment_is_read_back_in_every_format(tmp_path: Path, name: str, comment: str) -> None:
    """From a file and a pipe; the sound is the same as without it."""
    audio = speechlike(0.5)
    save(audio, tmp_path / f"a.{name}", comment=comment)
    save(audio, tmp_path / f"b.{name}")
    pipe = Pipe()
    save(audio, pipe, name, comment=comment)  # type: ignore[arg-type]
    (tmp_path / "pipe").write_bytes(pipe.data)
    assert comment_of(tmp_path / f"a.{name}") == comment_of(tmp_path / "pipe") == comment
    assert comment_of(tmp_path / f"b.{name}") == ""
    heard = [decode(tmp_path / f"{file}.{name}", RATE).samples for file in "ab"]
    assert np.array_equal(*heard)


def test_raw_has_no_comment(tmp_path: Path) -> None:
    audio = speechlike(0.5)
    save(audio, tmp_path / "a.raw", comment="x")
    assert (tmp_path / "a.raw").read_bytes() == pcm16(audio.samples).tobytes()


@pytest.mark.parametrize("comment", COMMENTS)
def test_a_wave_file_with_a_comment_is_whole_chunks(tmp_path: Path, comment: str) -> None:
    save(speechlike(0.1), tmp_path / "a.wav", comment=comment)
    data = (tmp_path / "a.wav").read_bytes()
    assert struct.unpack("<4sI4s", data[:12]) == (b"RIFF", len(data) - 8, b"WAVE")
    names, place = [], 12
    while place < len(data):
        name, size = struct.unpack("<4sI", data[place : place + 8])
        names.append(name)
        place += 8 + size + size % 2
    assert names == [b"fmt ", b"LIST", b"data"] and place == len(data)
    with wave.open(str(tmp_path / "a.wav")) as file:
        assert file.getnframes() == len(speechlike(0.1).samples)
