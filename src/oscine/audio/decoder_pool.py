"""Decodes recordings in child processes, which are kept for the next recording.

A process can read the recording only through this module, which reads the file object for it
(decoder_process describes the restrictions). A process that crashes, hangs or runs out of memory
costs its recording one line. If no process can be started, decoding happens in this process.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from oscine.audio import container
from oscine.audio import decoder_protocol as messages
from oscine.audio.container import DecodeRequest, Warn
from oscine.audio.demuxer import reason, suffix_of
from oscine.audio.ogg_chain import FileSlice
from oscine.errors import AudioError
from oscine.futures import WakeUp
from oscine.types import Samples

_log = logging.getLogger(__name__)

MAX_MEMORY_BYTES = 2 << 30  # address space of a process; FFmpeg and NumPy take 0.3 of it
START_TIMEOUT_S = 60  # until a process is ready; usually 0.3 s
HANG_TIMEOUT_S = 60  # without a message from a process that is waited for
MAX_IDLE = 4  # processes kept for the next recording
_TICK_S = 1.0  # seconds; counted, so that suspending the machine is no timeout
_STOP_TIMEOUT_S = 0.5  # to stop within a recording; starting a new process takes as long
_TURN_BYTES = 1 << 12  # minimum that an answer counts for, also at the end of a recording
_TURNS, _MORE_BYTES = 8, 64 << 20  # limit on reading before any audio is decoded
_PROGRAM = (
    "import sys; sys.path[:] = sys.argv[2:]; from oscine.audio.decoder_process import main; main()"
)
_REMEDY = "convert it to wav or flac"


def decode_track(
    name: str, file: BinaryIO | FileSlice, wanted: DecodeRequest, warn: Warn = _log.warning
) -> Iterator[Samples]:
    """Decode one audio track in a child process; see container.decode_track for the arguments.

    `file` is read from its start as samples are requested, and left at any position. Raises
    AudioError also if the decoder crashes, hangs or needs more than MAX_MEMORY_BYTES.
    """
    size = _file_size(name, file)
    decoder = _acquire_decoder()
    if decoder is None:
        yield from container.decode_track(name, file, wanted, warn)
        return
    job = {"task": "decode", "name": name, "size": size, "wanted": asdict(wanted)}
    yield from decoder.perform(file, job, warn)


def channel_count(name: str, file: BinaryIO | FileSlice, track: int | str | None = None) -> int:
    """Number of channels of the audio track, found in a child process. Raises AudioError."""
    size = _file_size(name, file)
    decoder = _acquire_decoder()
    if decoder is None:
        return container.channel_count(name, file, track)
    job = {"task": "channels", "name": name, "size": size, "track": track}
    work = decoder.perform(file, job)
    try:
        next(work)
    except StopIteration as end:
        return int(end.value)
    raise AssertionError("samples in place of a count")


def prepare() -> None:
    """Start a decoder process in the background, so that the first recording need not wait."""
    if not _idle and (decoder := _start_decoder()) is not None:
        _idle.append(decoder)


class _Decoder:
    """A child process that decodes one recording at a time. Raises OSError if it cannot start."""

    def __init__(self) -> None:
        self.overdue = False  # whether it was ended by a timeout
        self._waiting, self._turn = False, 0  # whether a message is awaited, and its number
        self._seen, self._ticks = 0, 0  # the last message number the watch saw, and how often
        self.patience = START_TIMEOUT_S
        self._ready = False
        self._whole = True  # whether no message was interrupted
        self._asked = 0  # bytes requested since the last audio
        paths = [str(Path(__file__).resolve().parents[2]), *filter(os.path.isabs, sys.path)]
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", _PROGRAM, str(MAX_MEMORY_BYTES), *paths],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        self._to: BinaryIO = self.process.stdin  # type: ignore[assignment]
        self._from: BinaryIO = self.process.stdout  # type: ignore[assignment]
        _live.add(self)

    def ready(self) -> bool:
        """Wait until it has started; returns whether it has. A process that has not is ended."""
        if self.process.poll() is not None:
            self.end()
            return False
        if self._ready:
            return True
        try:
            with suppress(EOFError, OSError, ValueError):
                self._ready = self._receive()[0] == messages.HELLO
        finally:
            if not self._ready:
                self.end()
        return self._ready

    def perform(
        self, file: BinaryIO | FileSlice, job: dict[str, Any], warn: Warn = _log.warning
    ) -> Generator[Samples, None, Any]:
        """Yields the samples of a recording as they are decoded; returns the result of the task."""
        name, finished = job["name"], False
        self._asked, self.patience = 0, HANG_TIMEOUT_S
        try:
            self._send_json(messages.JOB, job | {"suffix": suffix_of(file)})
            while True:
                kind, body = self._receive()
                if kind == messages.BLOCK:
                    self._asked = 0
                    yield np.frombuffer(body, np.float32)
                elif kind == messages.READ:
                    self._answer(name, file, job["size"], *messages.READ_RANGE.unpack(body))
                elif kind == messages.LOG:
                    logger, level, text = json.loads(body)
                    if level == logging.WARNING:
                        warn(text)
                    else:
                        logging.getLogger(logger).log(level, "%s", text)
                elif kind == messages.ERROR:
                    finished = True
                    raise AudioError(name, *json.loads(body))
                elif kind == messages.END:
                    finished = True
                    return json.loads(body)
        except (EOFError, OSError, ValueError):
            raise self._lost(name) from None
        finally:
            if finished or self._abandoned():
                self._keep()
            else:
                self.end()

    def _answer(
        self, name: str, file: BinaryIO | FileSlice, whole: int, position: int, size: int
    ) -> None:
        """Send the requested bytes; if they cannot be read, send STOP and raise AudioError."""
        try:
            if self._asked > _TURNS * whole + _MORE_BYTES:
                raise AudioError(name, "its decoder reads without an end", _REMEDY)
            size = min(size, messages.MAX_BODY_BYTES) if position < whole else 0
            data = _bytes_at(name, file, position, size)
            self._asked += max(len(data), _TURN_BYTES)
        except BaseException:  # anything that a file object raises, and Ctrl-C
            self._send(messages.STOP)
            raise
        self._send(messages.DATA, data)

    def _send(self, kind: bytes, body: bytes = b"") -> None:
        with self._watched():
            messages.send(self._to, kind, body)

    def _send_json(self, kind: bytes, value: Any) -> None:
        self._send(kind, json.dumps(value).encode("ascii"))

    def _receive(self) -> tuple[bytes, bytearray]:
        with self._watched():
            return messages.receive(self._from)

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Guards one message; if it is interrupted, the process cannot be used any more."""
        self._turn += 1
        self._whole, self._waiting = False, True
        _watch.wake()
        try:
            yield
            self._whole = True
        finally:
            self._waiting = False

    def tick(self) -> bool:
        """Called every second; returns whether a message is awaited."""
        turn = self._turn
        if not self._waiting:
            return False
        self._seen, self._ticks = turn, self._ticks + 1 if turn == self._seen else 0
        if self._ticks > self.patience:
            self.overdue = True
            with suppress(OSError):
                self.process.kill()
        return True

    def _lost(self, name: str) -> AudioError:
        """The error for a process that ended within a recording."""
        if self.process.returncode == _FORKED:
            problem = "this process was forked while it was being read"
            return AudioError(name, problem, "open it again")
        if self.overdue:
            problem = f"its decoder hangs: nothing came of it in {self.patience} s"
            return AudioError(name, problem, _REMEDY)
        self.end(wait=True)
        code = self.process.returncode
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return AudioError(name, f"its decoder crashed ({how})", _REMEDY)

    def _abandoned(self) -> bool:
        """Cancel the current job; returns whether the process can be used again."""
        if not self._whole or sys.is_finalizing() or self.process.returncode is not None:
            return False
        self.patience = 1
        until = time.monotonic() + _STOP_TIMEOUT_S
        with suppress(EOFError, OSError, ValueError):
            while time.monotonic() < until:
                kind, _ = self._receive()
                if kind in (messages.END, messages.ERROR):
                    return True
                if kind == messages.READ:
                    self._send(messages.STOP)
        return False

    def _keep(self) -> None:
        if len(_idle) < MAX_IDLE:
            _idle.append(self)
        else:
            self.end()

    def end(self, wait: bool = False) -> None:
        """End the process; with `wait`, let it exit by itself first."""
        _live.discard(self)
        for pipe in (self._to, self._from):
            with suppress(OSError):
                pipe.close()
        if wait:
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(2 * _TICK_S)
        self.process.kill()
        self.process.wait()

    def forget(self) -> None:
        """After a fork, in the child: drop the process without ending it, as it is the parent's."""
        self.process.returncode = _FORKED
        for pipe in (self._to, self._from):
            with suppress(OSError):
                pipe.close()


_FORKED = 1 << 20  # not an exit code


def _file_size(name: str, file: BinaryIO | FileSlice) -> int:
    try:
        return file.seek(0, os.SEEK_END)
    except (OSError, ValueError) as error:
        raise _unreadable_error(name, error) from None


def read_all(name: str, file: BinaryIO | FileSlice) -> bytes:
    """All bytes of a recording. Raises AudioError if it cannot be read."""
    return _bytes_at(name, file, 0, _file_size(name, file))


def _bytes_at(name: str, file: BinaryIO | FileSlice, position: int, size: int) -> bytes:
    """Bytes of a recording at a position; fewer than `size` only at its end.

    No seek for an empty read: systems refuse positions beyond their largest file (EINVAL).
    """
    data = b""
    try:
        if size:
            file.seek(position)
        while len(data) < size:
            part = file.read(size - len(data))
            if not isinstance(part, bytes | bytearray | memoryview):
                raise ValueError(f"it gives {type(part).__name__} instead of bytes")
            if not part:
                break
            data += part
    except (OSError, ValueError) as error:
        raise _unreadable_error(name, error) from None
    return data[:size]


def _unreadable_error(name: str, error: Exception) -> AudioError:
    return AudioError(name, f"cannot be read ({reason(error)})", "record it or convert it again")


class _Watch:
    """A thread that counts the seconds for which processes are waited for; it sleeps otherwise."""

    def __init__(self) -> None:
        self._waiting = WakeUp()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()  # a single thread: two would count twice as fast

    def wake(self) -> None:
        """Start counting: a process is waited for."""
        with self._starting:
            if self._thread is None:
                threading.Thread(target=self._run, name="oscine decoders", daemon=True).start()
        self._waiting.set()

    def _run(self) -> None:
        with self._starting:
            if self._thread is not None:  # a start was interrupted, and another was started
                return
            self._thread = threading.current_thread()
        while True:
            self._waiting.wait()
            time.sleep(_TICK_S)
            for decoder in list(_live):
                if decoder.tick():
                    self._waiting.set()


_idle: deque[_Decoder] = deque()
_live: set[_Decoder] = set()
_watch = _Watch()


def _acquire_decoder() -> _Decoder | None:
    """A process that is ready; None if there can be none."""
    while _idle:
        with suppress(IndexError):  # another thread was quicker
            decoder = _idle.pop()
            if decoder.ready():
                return decoder
    if (started := _start_decoder()) is None:
        return None
    if started.ready():
        return started
    _log.debug("no decoder process (it ended with %s): decoding here", started.process.returncode)
    return None


def _start_decoder() -> _Decoder | None:
    program = Path(sys.executable or "").name.lower()
    if getattr(sys, "frozen", False) or not program.startswith(("python", "pypy")):
        _log.debug("no decoder process (this is no plain Python): decoding here")
        return None
    try:
        return _Decoder()
    except OSError as error:  # Pyodide among others
        _log.debug("no decoder process (%s): decoding here", error)
        return None


def _end_all() -> None:
    _idle.clear()
    for decoder in list(_live):
        decoder.end()


def _after_fork() -> None:
    """Reset the state in a forked child, which has neither the processes nor the thread."""
    global _watch
    _watch = _Watch()
    _idle.clear()
    for decoder in list(_live):
        decoder.forget()
    _live.clear()


atexit.register(_end_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
