"""Output of an audio file's bytes. FFmpeg's calls from C, which loses errors, are queued."""

from __future__ import annotations

import io
import os
import select
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO

from oscine.audio.demuxer import reason
from oscine.audio.ffmpeg import av
from oscine.errors import OscineError
from oscine.files import write_error

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

#: A write of this size to a pipe is atomic, also when Ctrl-C ends the wait for space.
ATOMIC_WRITE_BYTES = getattr(select, "PIPE_BUF", 512)


class Sink:
    """Receives bytes; positions count from where the file was at first.

    FFmpeg calls it from C, through which exceptions, and so Ctrl-C, cannot pass. So `write` and
    `seek` only queue a call, and `flushing` executes the queue. What Ctrl-C interrupts is done by
    the next `flushing`.
    """

    def __init__(self, file: BinaryIO, name: str) -> None:
        self.name = name
        self._calls: list[bytes | int] = []  # bytes to write, or the position of those that follow
        #: Not a method of ours: a signal is handled where Python's code begins, so in the callback.
        self.write: Callable[[bytes], None] = self._calls.append
        self._file = file
        self._seekable = is_seekable(file)
        self._start = file.tell() if self._seekable else 0
        raw = getattr(file, "raw", file)
        self._pipe = raw if isinstance(raw, io.FileIO) and not self._seekable else None
        self._put = file.write if self._pipe is None else self._pipe.write
        self._position = 0  # position of the first call
        self._file_position: int | None = 0  # position of the file; None: unknown
        self._counts: list[int | None] = []  # bytes of the first call that were written, in parts
        self._lost = False

    def seekable(self) -> bool:
        """Whether written bytes can be overwritten."""
        return self._seekable

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Queue a seek; for a whence that asks for the size, FFmpeg gets none."""
        if whence != os.SEEK_SET:
            return -1
        self._calls.append(offset)
        return offset

    def tell(self) -> int:
        """Required by the interface; FFmpeg counts for itself."""
        return self._position

    def flush(self) -> None:
        """Send what was written to its reader now."""
        with self.flushing():
            pass
        with self._named():
            if callable(flush := getattr(self._file, "flush", None)):
                flush()

    @contextmanager
    def flushing(self) -> Iterator[None]:
        """Execute the calls that are queued inside; errors of the file and of FFmpeg are one line.

        A reader that has closed stays BrokenPipeError. After an error nothing more is written.
        """
        problem: Exception | None = None
        try:
            yield
        except (OSError, ValueError, av.error.FFmpegError) as error:
            problem = error
        with self._named():
            self._do()
        if problem is not None:
            raise OscineError(f"{self.name}: cannot be written ({reason(problem)})") from problem

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            self._lost = True
            raise
        except OSError as error:
            self._lost = True
            raise write_error(self.name, error) from error
        except (TypeError, ValueError) as error:  # it is open as text, or closed
            self._lost = True
            raise OscineError(f"{self.name}: cannot be written ({reason(error)})") from error

    def _do(self) -> None:
        """Execute all calls in order. Ctrl-C may interrupt any of them without losing count."""
        if self._lost:
            self._calls.clear()
        if self._pipe is not None:
            self._file.flush()  # what others have buffered in it
        while self._calls:
            call = self._calls[0]
            if isinstance(call, int):
                self._position = call
            else:
                end = self._position + len(call)
                self._write_all(call)
                self._position = self._file_position = end
            del self._calls[0]
            self._counts = []
        self._seek_file(self._position)

    def _write_all(self, data: bytes) -> None:
        """Write the rest of the first call."""
        while (done := self._written(len(data))) < len(data):
            if self._counts and self._counts[-1] is None and self._pipe is not None:
                select.select([], [self._pipe], [])  # a non-blocking pipe
            self._seek_file(self._position + done)
            self._file_position = None
            part = (
                memoryview(data)[done:]
                if self._pipe is None
                else data[done : done + ATOMIC_WRITE_BYTES]
            )
            # C writes and counts: a signal is not handled between the two.
            self._counts.extend(map(self._put, (part,)))

    def _written(self, size: int) -> int:
        """Number of bytes written; None means none for a pipe and all for other files."""
        done = 0
        for count in self._counts:
            if count is None:
                count = 0 if self._pipe is not None else size - done
            done += count
        return done

    def _seek_file(self, position: int) -> None:
        if self._seekable and self._file_position != position:
            self._file.seek(self._start + position)
            self._file_position = position


def is_seekable(file: BinaryIO) -> bool:
    """Whether a file can be overwritten: not a pipe, and not opened for appending (`>>`)."""
    try:
        if not file.seekable():
            return False
        file.tell()
    except (AttributeError, OSError, ValueError):
        return False
    try:
        descriptor = file.fileno()
    except (AttributeError, OSError, ValueError):
        return True  # in memory
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        return False  # a device claims to be seekable
    if fcntl is None:
        return "a" not in str(getattr(file, "mode", ""))
    return not fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_APPEND
