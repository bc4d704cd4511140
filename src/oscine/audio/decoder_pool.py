"""Recordings decoded in processes of their own, which are kept for the next one.

A process has no way to the recording but through this module, which reads the file object for it
(decoder_process says what it may not do). One that crashes, hangs or takes all memory costs its
recording one line. Where no process can be started, all is decoded in this one.
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
from oscine.audio.ogg_chain import Part
from oscine.errors import AudioError
from oscine.types import Samples

_log = logging.getLogger(__name__)

MAX_MEMORY_BYTES = 2 << 30  # of addresses that a process may take; FFmpeg and NumPy are 0.3 of it
START_TIMEOUT_S = 60  # until a process is ready; it takes a third of one on a machine at rest
HANG_TIMEOUT_S = 60  # without a word of a process that is waited for: it hangs
MAX_IDLE = 4  # processes that wait for the next recording
_TICK = 1.0  # seconds; they are counted, so that a machine that slept ends nothing
_STOP_TIMEOUT_S = 0.5  # to stop in the middle of a recording; a new process takes as long
_TURN_BYTES = 1 << 12  # that an answer counts for at least, as at the end of a recording
_TURNS, _MORE_BYTES = 8, 64 << 20  # that it may be read, and more, before any sound comes of it
_PROGRAM = (
    "import sys; sys.path[:] = sys.argv[2:]; from oscine.audio.decoder_process import main; main()"
)
_REMEDY = "convert it to wav or flac"


def decode_track(
    name: str, file: BinaryIO | Part, wanted: DecodeRequest, warn: Warn = _log.warning
) -> Iterator[Samples]:
    """As container.decoded, in another process.

    `file` is read from its beginning while samples are asked for; it is left wherever it is. Raises
    AudioError also where the decoder crashes, hangs or needs more than MAX_MEMORY_BYTES.
    """
    size = _size(name, file)
    decoder = _take()
    if decoder is None:
        yield from container.decode_track(name, file, wanted, warn)
        return
    job = {"task": "decode", "name": name, "size": size, "wanted": asdict(wanted)}
    yield from decoder.perform(file, job, warn)


def channel_count(name: str, file: BinaryIO | Part, track: int | str | None = None) -> int:
    """As container.channel_count, in another process."""
    size = _size(name, file)
    decoder = _take()
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
    """Start a process now, without waiting for it, so that the first recording need not."""
    if not _idle and (decoder := _started()) is not None:
        _idle.append(decoder)


class _Decoder:
    """A process that decodes one recording at a time. Raises OSError where none can be started."""

    def __init__(self) -> None:
        self.overdue = False  # it was ended because it kept silent
        self._waiting, self._turn = False, 0  # for which message of it, if for any
        self._seen, self._ticks = 0, 0  # the turn that the watch saw last, and how often
        self.patience = START_TIMEOUT_S
        self._ready = False
        self._whole = True  # no message was interrupted half-way
        self._asked = 0  # bytes, since the last sound
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
        """Wait until it is started; where it is not there, it is ended."""
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
        self, file: BinaryIO | Part, job: dict[str, Any], warn: Warn = _log.warning
    ) -> Generator[Samples, None, Any]:
        """Samples of a recording as they come; returns the result of the task."""
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
                    self._answer(name, file, job["size"], *messages.PLACE.unpack(body))
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

    def _answer(self, name: str, file: BinaryIO | Part, whole: int, place: int, size: int) -> None:
        """What it asks for; STOP, and an AudioError, where that cannot be read."""
        try:
            if self._asked > _TURNS * whole + _MORE_BYTES:
                raise AudioError(name, "its decoder reads without an end", _REMEDY)
            size = min(size, messages.MAX_BODY_BYTES) if place < whole else 0
            data = _bytes_at(name, file, place, size)
            self._asked += max(len(data), _TURN_BYTES)
        except BaseException:  # whatever a file object raises, and Ctrl-C
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
        """One message; where this is interrupted, the process is of no use any more."""
        self._turn += 1
        self._whole, self._waiting = False, True
        _watch.wake()
        try:
            yield
            self._whole = True
        finally:
            self._waiting = False

    def tick(self) -> bool:
        """A second has gone by; whether it is waited for."""
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
        """It has gone in the middle of a recording: why."""
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
        """Have it stop where it is; whether it can be used again."""
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
        """End the process; with `wait`, if it is about to end it may do so by itself."""
        _live.discard(self)
        for pipe in (self._to, self._from):
            with suppress(OSError):
                pipe.close()
        if wait:
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(2 * _TICK)
        self.process.kill()
        self.process.wait()

    def forget(self) -> None:
        """In a process that was forked: it is the other one's."""
        self.process.returncode = _FORKED
        for pipe in (self._to, self._from):
            with suppress(OSError):
                pipe.close()


_FORKED = 1 << 20  # no exit code


def _size(name: str, file: BinaryIO | Part) -> int:
    try:
        return file.seek(0, os.SEEK_END)
    except (OSError, ValueError) as error:
        raise _unreadable(name, error) from None


def read_all(name: str, file: BinaryIO | Part) -> bytes:
    """All bytes of a recording. Raises AudioError where it cannot be read."""
    return _bytes_at(name, file, 0, _size(name, file))


def _bytes_at(name: str, file: BinaryIO | Part, place: int, size: int) -> bytes:
    """Bytes of a recording; fewer than `size` at its end alone.

    For none there is no seek: a system refuses places beyond its largest file (EINVAL).
    """
    data = b""
    try:
        if size:
            file.seek(place)
        while len(data) < size:
            part = file.read(size - len(data))
            if not isinstance(part, bytes | bytearray | memoryview):
                raise ValueError(f"it gives {type(part).__name__} instead of bytes")
            if not part:
                break
            data += part
    except (OSError, ValueError) as error:
        raise _unreadable(name, error) from None
    return data[:size]


def _unreadable(name: str, error: Exception) -> AudioError:
    return AudioError(name, f"cannot be read ({reason(error)})", "record it or convert it again")


class _Watch:
    """A thread that counts the seconds which processes are waited for; it sleeps meanwhile."""

    def __init__(self) -> None:
        self._waiting = threading.Event()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()  # one thread alone: two would count twice as fast

    def wake(self) -> None:
        """A process is waited for."""
        with self._starting:
            if self._thread is None:
                name = "oscine decoders"
                self._thread = threading.Thread(target=self._run, name=name, daemon=True)
                self._thread.start()
        if not self._waiting.is_set():
            self._waiting.set()

    def _run(self) -> None:
        while True:
            self._waiting.wait()
            self._waiting.clear()
            time.sleep(_TICK)
            for decoder in list(_live):
                if decoder.tick():
                    self._waiting.set()


_idle: deque[_Decoder] = deque()
_live: set[_Decoder] = set()
_watch = _Watch()


def _take() -> _Decoder | None:
    """A process that is ready; None where there can be none."""
    while _idle:
        with suppress(IndexError):  # another thread was quicker
            decoder = _idle.pop()
            if decoder.ready():
                return decoder
    if (started := _started()) is None:
        return None
    if started.ready():
        return started
    _log.debug("no decoder process (it ended with %s): decoding here", started.process.returncode)
    return None


def _started() -> _Decoder | None:
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
    """The child has neither its parent's processes nor its thread."""
    global _watch
    _watch = _Watch()
    _idle.clear()
    for decoder in list(_live):
        decoder.forget()
    _live.clear()


atexit.register(_end_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
