"""The program of a decoder process: decodes recordings for its parent, and may do nothing else.

FFmpeg is C code that reads untrusted files. In a process of its own, a crash, a hang or a demand
for too much memory costs one recording. The process has no access to the file: it requests bytes
from its parent through the pipes that it was started with (decoder_protocol), and may open neither
files nor connections.
"""

from __future__ import annotations

import codecs
import importlib
import json
import logging
import os
import pkgutil
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, BinaryIO, cast

import av
import numpy as np

from oscine.audio import container
from oscine.audio import decoder_protocol as messages
from oscine.audio.demuxer import reason
from oscine.errors import AudioError
from oscine.types import Samples

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

READ_BYTES = 1 << 18  # per request: few requests for a wave file, little waste for a seek
_CACHED_WINDOWS = 2  # cached: FFmpeg and audio.container read at two positions alternately
BLOCK_SAMPLES = 1 << 15  # samples sent at a time
_PARENT_CHECK_INTERVAL_S = 5.0  # between checks that the parent is alive
_log = logging.getLogger(__name__)


class Stopped(Exception):  # noqa: N818  # a request, not an error
    """Raised when the parent has cancelled the job."""


class Link:
    """The two pipes to the parent; the process exits if the parent has ended."""

    def __init__(self, incoming: BinaryIO, outgoing: BinaryIO) -> None:
        self._incoming, self._outgoing = incoming, outgoing

    def send(self, kind: bytes, value: Any) -> None:
        """Send a message; a body that is not bytes is sent as JSON."""
        try:
            if isinstance(value, bytes):
                messages.send(self._outgoing, kind, value)
            else:
                messages.send_json(self._outgoing, kind, value)
        except OSError:
            os._exit(0)

    def receive(self) -> tuple[bytes, bytearray]:
        try:
            return messages.receive(self._incoming)
        except (EOFError, OSError):
            os._exit(0)


class RemoteFile:
    """The parent's recording as a file object. Raises Stopped if the job is cancelled."""

    def __init__(self, link: Link, size: int, suffix: str) -> None:
        self.name = "recording" + suffix
        self._link, self._size = link, size
        self._position = 0
        self._windows: deque[tuple[int, bytes]] = deque(maxlen=_CACHED_WINDOWS)
        self.stopped = False

    def read(self, size: int = -1) -> bytes:
        wanted = max(0, self._size - self._position) if size < 0 else size
        parts = []
        while wanted > 0 and (part := self._window()[:wanted]):
            parts.append(bytes(part))
            self._position += len(part)
            wanted -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _window(self) -> memoryview:
        """The cached bytes from the current position on: at least one unless at the end."""
        for number, (start, data) in enumerate(self._windows):
            if start <= self._position < start + len(data):
                self._windows.rotate(-number)  # least recently used is dropped first
                return memoryview(data)[self._position - start :]
        if data := self._ask():
            self._windows.appendleft((self._position, data))
        return memoryview(data)

    def _ask(self) -> bytes:
        if not self.stopped:
            self._link.send(messages.READ, messages.READ_RANGE.pack(self._position, READ_BYTES))
            kind, body = self._link.receive()
            if kind == messages.DATA:
                return bytes(body)
        self.stopped = True
        raise Stopped

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = (0, self._position, self._size)[whence]
        self._position = min(max(0, base + offset), 2**63)
        return self._position

    def tell(self) -> int:
        return self._position


class _Told(logging.Handler):
    """A logging handler that sends records to the parent."""

    def __init__(self, link: Link) -> None:
        super().__init__()
        self._link = link

    def emit(self, record: logging.LogRecord) -> None:
        self._link.send(messages.LOG, [record.name, record.levelno, record.getMessage()])


def perform(link: Link, job: dict[str, Any]) -> None:
    """Run one job, to its END or ERROR."""
    file = RemoteFile(link, job["size"], job["suffix"])
    recording = cast(BinaryIO, file)
    result: int | None = None
    try:
        if job["task"] == "channels":
            result = container.channel_count(job["name"], recording, job["track"])
        else:
            for block in _decode_blocks(job, recording):
                link.send(messages.BLOCK, block.tobytes())
    except Stopped:
        pass
    except AudioError as error:
        link.send(messages.ERROR, [error.problem, error.remedy])
        return
    except MemoryError:
        problem = "its decoder needs more memory than it may take"
        link.send(messages.ERROR, [problem, "convert it to wav or flac"])
        return
    except Exception as error:  # of PyAV or ours: reported with the recording's name
        _log.debug("%s", traceback.format_exc())
        problem = f"cannot be decoded ({type(error).__name__}: {reason(error)})"
        link.send(messages.ERROR, [problem, "convert it to wav or flac"])
        return
    link.send(messages.END, result)


def _decode_blocks(job: dict[str, Any], file: BinaryIO) -> Iterator[Samples]:
    """Decoded samples in blocks of BLOCK_SAMPLES; samples before an error are not lost."""
    waiting: list[Samples] = []
    count = 0
    wanted = container.DecodeRequest(**job["wanted"])
    try:
        for piece in container.decode_track(job["name"], file, wanted):
            waiting.append(piece)
            count += len(piece)
            if count >= BLOCK_SAMPLES:
                yield from _cut(waiting)
                waiting, count = [], 0
    except AudioError:
        yield from _cut(waiting)
        raise
    yield from _cut(waiting)


def _cut(pieces: list[Samples]) -> Iterator[Samples]:
    whole = np.concatenate(pieces) if pieces else np.zeros(0, np.float32)
    for start in range(0, len(whole), BLOCK_SAMPLES):
        yield whole[start : start + BLOCK_SAMPLES]


def restrict(memory: int) -> None:
    """Remove what decoding does not need: memory beyond `memory` bytes, new files and sockets.

    On systems without such limits (Windows) only crashes are contained.
    """
    if resource is None:
        return
    _load_all()
    opened = max(os.dup(0), 3)  # the lowest free descriptor: no higher one is open
    os.close(opened)
    for name, most in (("RLIMIT_CORE", 0), ("RLIMIT_AS", memory), ("RLIMIT_NOFILE", opened)):
        with suppress(AttributeError, ValueError, OSError):  # macOS does not support the second
            kind = getattr(resource, name)
            hard = resource.getrlimit(kind)[1]
            most = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(kind, (most, most))


def _load_all() -> None:
    """Import and load everything that would open a file on first use."""
    for name in ("utf-8-sig", "utf-16", "latin-1"):
        codecs.lookup(name)
    for module in pkgutil.walk_packages(av.__path__, "av."):
        if not module.name.endswith(("__main__", "datasets")):
            with suppress(ImportError):
                importlib.import_module(module.name)


def _end_with_parent(parent: int) -> None:
    """Exit if the parent is gone: a parent that was killed cannot end a decoder that hangs."""
    while os.getppid() == parent:
        time.sleep(_PARENT_CHECK_INTERVAL_S)
    os._exit(0)


def main() -> None:
    """Entry point; `sys.argv[1]` is the limit of memory in bytes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C and ends this process
    outgoing = os.fdopen(os.dup(1), "wb", 0)
    os.dup2(2, 1)  # output of libraries must not reach the message pipe
    link = Link(os.fdopen(0, "rb", 0, closefd=False), outgoing)
    logger = logging.getLogger("oscine")
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    logger.addHandler(_Told(link))
    if sys.platform != "win32":
        threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    restrict(int(sys.argv[1]))
    link.send(messages.HELLO, b"")
    while True:
        kind, body = link.receive()
        if kind == messages.JOB:
            perform(link, json.loads(body))
