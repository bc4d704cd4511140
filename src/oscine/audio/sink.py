"""Where a sound file's bytes go. FFmpeg's are noted first: it calls from C, which loses errors."""

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

#: A pipe takes as much as this wholly or not at all, also when Ctrl-C ends the wait for room.
WHOLE = getattr(select, "PIPE_BUF", 512)


class Sink:
    """Where bytes go, counted from where the file stood.

    FFmpeg calls it from C, which exceptions do not pass, Ctrl-C neither. So `write` and `seek` only
    note what is to be done, and `told` does it. What Ctrl-C stops is done by the next `told`.
    """

    def __init__(self, file: BinaryIO, name: str) -> None:
        self.name = name
        self._calls: list[bytes | int] = []  # to be written, or the place of what follows
        #: Not a method of ours: a signal is handled where Python's code begins, so in the callback.
        self.write: Callable[[bytes], None] = self._calls.append
        self._file = file
        self._returns = is_seekable(file)
        self._start = file.tell() if self._returns else 0
        raw = getattr(file, "raw", file)
        self._pipe = raw if isinstance(raw, io.FileIO) and not self._returns else None
        self._put = file.write if self._pipe is None else self._pipe.write
        self._place = 0  # of the first call
        self._stands: int | None = 0  # where the file stands; None: unknown
        self._counts: list[int | None] = []  # bytes of the first call that are written, in parts
        self._lost = False

    def seekable(self) -> bool:
        """Whether what was written can be written over."""
        return self._returns

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """To a place; from others FFmpeg asks for a size, and goes without."""
        if whence != os.SEEK_SET:
            return -1
        self._calls.append(offset)
        return offset

    def tell(self) -> int:
        """There must be one; FFmpeg counts for itself."""
        return self._place

    def flush(self) -> None:
        """What was written goes to its reader now."""
        with self.flushing():
            pass
        with self._named():
            if callable(flush := getattr(self._file, "flush", None)):
                flush()

    @contextmanager
    def flushing(self) -> Iterator[None]:
        """Do what is asked for inside; errors of the file and of FFmpeg as one line.

        A reader that has gone stays BrokenPipeError. After an error nothing more is written.
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
        """All calls in turn. Ctrl-C may end any call of ours: what counts is then as it was."""
        if self._lost:
            self._calls.clear()
        if self._pipe is not None:
            self._file.flush()  # what others have written to it
        while self._calls:
            call = self._calls[0]
            if isinstance(call, int):
                self._place = call
            else:
                end = self._place + len(call)
                self._write_all(call)
                self._place = self._stands = end
            del self._calls[0]
            self._counts = []
        self._go_to(self._place)

    def _write_all(self, data: bytes) -> None:
        """What is missing of the first call."""
        while (done := self._written(len(data))) < len(data):
            if self._counts and self._counts[-1] is None and self._pipe is not None:
                select.select([], [self._pipe], [])  # it does not wait by itself
            self._go_to(self._place + done)
            self._stands = None
            part = memoryview(data)[done:] if self._pipe is None else data[done : done + WHOLE]
            # C writes and counts: a signal is not handled between the two.
            self._counts.extend(map(self._put, (part,)))

    def _written(self, size: int) -> int:
        """How much of it is; None is nothing of a pipe's and all of others'."""
        done = 0
        for count in self._counts:
            if count is None:
                count = 0 if self._pipe is not None else size - done
            done += count
        return done

    def _go_to(self, place: int) -> None:
        if self._returns and self._stands != place:
            self._file.seek(self._start + place)
            self._stands = place


def is_seekable(file: BinaryIO) -> bool:
    """Not in pipes, nor where everything is put at the end (`>>`)."""
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
        return False  # a device says that it goes anywhere
    if fcntl is None:
        return "a" not in str(getattr(file, "mode", ""))
    return not fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_APPEND
