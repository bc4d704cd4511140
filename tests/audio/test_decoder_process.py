"""Decoding in a process of its own: what goes wrong there costs one recording one line."""

from __future__ import annotations

import io
import itertools
import logging
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oscine.audio import decoder_pool
from oscine.audio import decoder_protocol as messages
from oscine.audio.decoder_process import RemoteFile, Stopped
from oscine.audio.io import channel_count, decode, open_source
from oscine.errors import AudioError

RATE = 16_000
LONG = np.round(9000 * np.sin(np.arange(60 * RATE) / 10)).astype("<i2")
posix = pytest.mark.skipif(not hasattr(os, "fork"), reason="signals and forks are POSIX's")
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")


def wav(samples: np.ndarray) -> bytes:
    data = samples.tobytes()
    form = struct.pack("<IHHIIHH", 16, 1, 1, RATE, 2 * RATE, 2, 16)
    size = struct.pack("<I", 36 + len(data))
    return b"RIFF" + size + b"WAVEfmt " + form + b"data" + struct.pack("<I", len(data)) + data


WAV = wav(LONG)


@pytest.fixture
def fresh() -> Any:
    """No process of another test."""
    decoder_pool._end_all()
    yield
    decoder_pool._end_all()


def pids() -> list[int]:
    return [decoder.process.pid for decoder in decoder_pool._live]


def whole(samples: np.ndarray) -> bool:
    return np.array_equal(samples, LONG / np.float32(32768))


def test_a_process_is_used_again_and_again(fresh):
    assert whole(decode(WAV).samples)
    (first,) = pids()
    assert channel_count(WAV) == 1
    with pytest.raises(AudioError, match="is not a recording"):
        decode(b"\0" * 1000)
    assert whole(decode(WAV).samples)
    assert pids() == [first]


@posix
@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGKILL])
def test_a_crash_costs_one_recording(fresh, number):
    blocks = open_source(WAV, name="talk.aac").blocks()
    next(blocks)
    (pid,) = pids()
    os.kill(pid, number)
    with pytest.raises(AudioError) as caught:
        list(blocks)
    crash = f"talk.aac: its decoder crashed (signal {int(number)}); convert it to wav or flac"
    assert str(caught.value) == crash
    assert not pids()
    assert whole(decode(WAV).samples)


@posix
def test_a_crash_while_channels_are_counted(fresh, monkeypatch):
    def crash(*_: Any) -> bytes:
        os.kill(pids()[0], signal.SIGSEGV)
        return b""

    with monkeypatch.context() as patched:
        patched.setattr(decoder_pool, "_bytes_at", crash)
        with pytest.raises(AudioError, match=r"^bytes: its decoder crashed \(signal 11\)"):
            channel_count(WAV)
    assert channel_count(WAV) == 1


@posix
def test_an_idle_process_that_was_killed_costs_nothing(fresh):
    decode(WAV)
    (pid,) = pids()
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert whole(decode(WAV).samples)
    assert pids() != [pid]


@posix
def test_a_decoder_that_hangs_is_ended(fresh, monkeypatch):
    decode(WAV)  # the process is started in its own time
    monkeypatch.setattr(decoder_pool, "HANG_TIMEOUT_S", 20)
    monkeypatch.setattr(decoder_pool, "_TICK_S", 0.1)
    blocks = open_source(WAV, name="talk.aac").blocks()
    next(blocks)
    os.kill(pids()[0], signal.SIGSTOP)
    with pytest.raises(
        AudioError, match=r"^talk.aac: its decoder hangs: nothing came of it in 20 s"
    ):
        list(blocks)
    assert not pids()
    monkeypatch.undo()
    assert whole(decode(WAV).samples)


def test_who_takes_time_between_blocks_is_not_a_decoder_that_hangs(monkeypatch):
    decode(WAV)
    monkeypatch.setattr(decoder_pool, "HANG_TIMEOUT_S", 10)
    monkeypatch.setattr(decoder_pool, "_TICK_S", 0.05)
    blocks = open_source(WAV).blocks()
    first = next(blocks)
    time.sleep(1)  # the watch has counted to twenty
    assert whole(np.concatenate([first, *blocks]))


def test_a_decoder_that_reads_without_an_end_is_ended(monkeypatch):
    monkeypatch.setattr(decoder_pool, "_TURNS", 0)
    monkeypatch.setattr(decoder_pool, "_MORE_BYTES", 1000)
    with pytest.raises(AudioError, match=r"^bytes: its decoder reads without an end; convert it"):
        decode(WAV)


def huge_sample(path: Path, size: int) -> None:
    """An mp4 whose first sample has `size` bytes, most of them a hole in the file."""
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as output:
        stream = output.add_stream("aac", rate=48_000, layout="mono")
        for start in range(0, 10 * 1024, 1024):
            frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), "f4"), "fltp", "mono")
            frame.sample_rate, frame.pts = 48_000, start
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    data = bytearray(file.getvalue())
    sizes = data.index(b"stsz") + 16
    data[sizes : sizes + 4] = struct.pack(">I", size)
    with path.open("wb") as out:
        out.write(data)
        out.truncate(size + len(data))


@linux
def test_a_demand_for_all_memory_costs_one_recording(fresh, tmp_path, monkeypatch):
    monkeypatch.setattr(decoder_pool, "MAX_MEMORY_BYTES", 450 << 20)
    path = tmp_path / "bomb.m4a"
    huge_sample(path, 400 << 20)
    with pytest.raises(AudioError, match=r"bomb.m4a: .*(Cannot allocate memory|more memory)"):
        decode(path)
    for pid in pids():
        status = Path(f"/proc/{pid}/status").read_text()
        assert int(status.split("VmPeak:")[1].split()[0]) <= 450 << 10
    assert whole(decode(WAV).samples)


@linux
def test_a_process_may_open_nothing(fresh):
    decode(WAV)
    (pid,) = pids()
    opened = len(os.listdir(f"/proc/{pid}/fd"))
    limits = Path(f"/proc/{pid}/limits").read_text()
    for name, most in [
        ("Max open files", opened),
        ("Max core file size", 0),
        ("Max address space", decoder_pool.MAX_MEMORY_BYTES),
    ]:
        assert limits.split(name)[1].split()[:2] == [str(most), str(most)]


@linux
def test_the_memory_of_a_process_does_not_grow_with_length(fresh):
    def peak(seconds: int) -> int:
        decode(wav(np.tile(LONG[: 10 * RATE], seconds // 10)))
        (pid,) = pids()
        status = Path(f"/proc/{pid}/status").read_text()
        decoder_pool._end_all()
        return int(status.split("VmHWM:")[1].split()[0])

    assert peak(600) < peak(20) + 4000  # kB; 580 s are 37,000


def test_a_process_knows_nothing_of_models_and_commands():
    lines = "import sys, oscine.audio.decoder_process\nprint(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True)
    assert "oscine.audio.container" in loaded.stdout
    strange = ("oscine.models", "oscine.cli", "oscine.hub", "oscine.weights", "typer", "socket")
    assert not [each for each in loaded.stdout.split() if each.startswith(strange)]


def test_leaving_early_keeps_the_process(fresh):
    source = open_source(WAV)
    for _ in range(3):
        blocks = source.blocks()
        next(blocks)
        blocks.close()
        assert len(pids()) == 1
    (pid,) = pids()
    assert whole(decode(source).samples)
    assert pids() == [pid]


def test_many_threads_at_once(fresh):
    found: list[bool] = []
    threads = [
        threading.Thread(target=lambda: found.append(whole(decode(WAV).samples))) for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 6
    assert len(pids()) <= decoder_pool.MAX_IDLE


def test_two_recordings_in_turn():
    both = zip(open_source(WAV).blocks(), open_source(wav(-LONG)).blocks(), strict=True)
    assert all(np.array_equal(one, -other) for one, other in both)


class Odd(io.BytesIO):
    """What a read after the first ones ends in."""

    def __init__(self, data: bytes, error: BaseException | object) -> None:
        super().__init__(data)
        self.error, self.reads = error, 0

    def read(self, size: int | None = -1, /) -> Any:
        self.reads += 1
        if self.reads < 4:
            return super().read(size)
        if isinstance(self.error, BaseException):
            raise self.error
        return self.error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(5, "Input/output error"), r"cannot be read \(Input/output error\); record it"),
        (ValueError("closed"), r"cannot be read \(closed\)"),
        (None, r"cannot be read \(it gives NoneType instead of bytes\)"),
        ("text", r"cannot be read \(it gives str instead of bytes\)"),
    ],
)
def test_a_file_object_that_fails_on_the_way(error, words):
    with pytest.raises(AudioError, match=f"^odd: {words}"):
        list(open_source(Odd(WAV, error), name="odd").blocks())
    assert whole(decode(WAV).samples)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, RuntimeError])
def test_what_is_raised_on_the_way_comes_through(kind):
    with pytest.raises(kind):
        list(open_source(Odd(WAV, kind())).blocks())
    assert whole(decode(WAV).samples)


def fake(tmp_path: Path, text: str) -> str:
    path = tmp_path / "python-fake"
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


@posix
@pytest.mark.parametrize(
    "program",
    [None, "", "missing", "#!/bin/sh\nexit 3\n", "#!/bin/sh\necho hello, I am no Python\n"],
)
def test_where_no_process_can_be_started_it_is_decoded_here(
    fresh, tmp_path, monkeypatch, caplog, program
):
    path = program and (
        fake(tmp_path, program) if program[0] == "#" else str(tmp_path / "python-missing")
    )
    monkeypatch.setattr(sys, "executable", path)
    with caplog.at_level(logging.DEBUG, "oscine.audio"):
        assert whole(decode(WAV).samples)
        assert channel_count(WAV) == 1
    assert not pids()
    assert "no decoder process (" in caplog.text
    assert all(record.levelno == logging.DEBUG for record in caplog.records)


def run(lines: str, **options: Any) -> subprocess.Popen[str]:
    """A program that has `data`, a recording, and the names of this module's imports."""
    head = (
        "import io, os, signal, sys, time\nimport numpy as np\n"
        "from oscine.audio import decoder_pool\nfrom oscine.audio.io import decode, open_source\n"
        "from oscine.errors import AudioError\n"
        "import wave\nfile = io.BytesIO()\nwith wave.open(file, 'wb') as out:\n"
        "    out.setparams((1, 2, 16000, 0, 'NONE', ''))\n"
        "    out.writeframes(bytes(2 * 16000 * 60))\ndata = file.getvalue()\n"
    )
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", head + lines],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


@posix
def test_a_fork_after_use_works_in_both():
    program = run(
        "blocks = open_source(data).blocks()\n"
        "next(blocks)\n"
        "decode(data)\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    try:\n"
        "        next(blocks)\n"
        "    except AudioError as error:\n"
        "        assert 'was forked' in str(error), error\n"
        "    sys.exit(7 if len(decode(data).samples) == 960000 else 1)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7\n"
        "print(sum(map(len, blocks)), len(decode(data).samples))\n"
    )
    out, err = program.communicate(timeout=60)
    assert out.split() == [str(960_000 - 65_536), "960000"], err
    assert not err


def gone(pid: int) -> bool:
    """Whether a process has ended, soon."""
    for _ in range(200):
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.05)
    return False


@linux
@pytest.mark.parametrize(
    "end", ["sys.exit(3)", "os._exit(3)", "os.kill(os.getpid(), 9)", "1 / 0", "next(blocks)"]
)
def test_no_process_outlives_its_parent(end):
    program = run(
        "blocks = open_source(data).blocks()\nnext(blocks)\ndecode(data)\n"
        f"print(*[each.process.pid for each in decoder_pool._live], flush=True)\n{end}\n"
    )
    out, _ = program.communicate(timeout=60)
    left = [int(pid) for pid in out.split()]
    assert len(left) == 2
    assert all(map(gone, left))


@posix
def test_an_interrupt_in_the_middle():
    """As a terminal sends it: to the parent and to its processes."""
    program = run(
        "decode(data)\nprint('go', flush=True)\n"
        "try:\n"
        "    while True:\n"
        "        decode(data)\n"
        "except KeyboardInterrupt:\n"
        "    print(len(decode(data).samples))\n",
        start_new_session=True,
    )
    assert program.stdout.readline() == "go\n"
    time.sleep(0.2)
    os.killpg(program.pid, signal.SIGINT)
    out, err = program.communicate(timeout=60)
    assert (out, err) == ("960000\n", "")


class Slow(io.BytesIO):
    """A pipe that takes and gives a few bytes at a time."""

    def write(self, data: Any, /) -> int:
        return super().write(bytes(data[:7]))

    def readinto(self, buffer: Any, /) -> int:
        return super().readinto(memoryview(buffer)[:5])


@given(st.lists(st.tuples(st.binary(min_size=1, max_size=1), st.binary(max_size=40)), max_size=5))
def test_messages_in_pieces(sent):
    pipe = Slow()
    for kind, body in sent:
        messages.send(pipe, kind, body)
    pipe.seek(0)
    assert [messages.receive(pipe) for _ in sent] == sent
    with pytest.raises(EOFError):
        messages.receive(pipe)


@pytest.mark.parametrize("data", [b"", b"B\0\0", b"B\xff\xff\xff\xff", b"B\0\0\0\5abcd"])
def test_what_is_no_message(data):
    with pytest.raises(EOFError):
        messages.receive(io.BytesIO(data))


class Whole:
    """A link to a parent that gives what it is asked for, and then no more."""

    def __init__(self, data: bytes, turns: int) -> None:
        self.data, self.turns = data, turns

    def send(self, kind: bytes, body: bytes) -> None:
        assert kind == messages.READ
        self.asked = messages.READ_RANGE.unpack(body)

    def receive(self) -> tuple[bytes, bytearray]:
        place, size = self.asked
        self.turns -= 1
        if self.turns < 0:
            return messages.STOP, bytearray()
        return messages.DATA, bytearray(self.data[place : place + size])


@given(
    data=st.binary(max_size=300),
    calls=st.lists(
        st.tuples(st.sampled_from([0, 1, 2]), st.integers(-50, 350)) | st.integers(-1, 400),
        max_size=12,
    ),
)
def test_a_remote_file_is_as_the_file(data, calls):
    remote, file = RemoteFile(Whole(data, 100), len(data), ".wav"), io.BytesIO(data)
    assert remote.name == "recording.wav"
    for call in calls:
        if isinstance(call, int):
            assert remote.read(call) == file.read(call)
        else:
            whence, place = call
            place = max(0, (0, file.tell(), len(data))[whence] + place)
            assert remote.seek(call[1], whence) == file.seek(place)
        assert remote.tell() == file.tell()


def test_a_remote_file_whose_parent_has_had_enough():
    remote = RemoteFile(Whole(b"abc", 1), 3, "")
    assert remote.read(2) == b"ab"
    remote.seek(9)
    for _ in itertools.repeat(None, 3):
        with pytest.raises(Stopped):
            remote.read(1)
