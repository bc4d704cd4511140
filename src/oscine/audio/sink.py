"""Where a sound file's bytes go, with errors kept for Python: FFmpeg calls it from C."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

import av

from oscine.audio.container import reason
from oscine.errors import OscineError
from oscine.files import cannot_write

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


class Sink:
    """Where bytes go, counted from where the file stood.

    FFmpeg calls it from C, which exceptions do not pass: the first is kept for `told` to raise, and
    what comes after it is dropped.
    """

    def __init__(self, file: BinaryIO, name: str) -> None:
        self.name = name
        self.error: OSError | None = None
        self._file = file
        self._returns = goes_back(file)
        self._start = file.tell() if self._returns else 0
        self._place = self._end = 0

    def seekable(self) -> bool:
        """Whether what was written can be written over."""
        return self._returns

    def write(self, data: bytes) -> int:
        """All of it."""
        waiting = memoryview(data)
        with self._kept():
            while len(waiting):
                taken = self._file.write(waiting)
                waiting = waiting[len(waiting) if taken is None else taken :]
        self._place += len(data)
        self._end = max(self._end, self._place)
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """As a file."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._end}[whence]
        self._place = base + offset
        with self._kept():
            self._file.seek(self._start + self._place)
        return self._place

    def tell(self) -> int:
        """As a file."""
        return self._place

    @contextmanager
    def _kept(self) -> Iterator[None]:
        if self.error is None:
            try:
                yield
            except OSError as error:
                self.error = error
        else:
            with suppress(OSError):
                yield

    def flush(self) -> None:
        """What was written goes to its reader now."""
        with self.told(), self._kept():
            if callable(flush := getattr(self._file, "flush", None)):
                flush()

    @contextmanager
    def told(self) -> Iterator[None]:
        """Errors of the file and of FFmpeg as one line; a reader that has gone stays as it is."""
        problem: Exception | None = None
        try:
            yield
        except (OSError, ValueError, av.error.FFmpegError) as error:
            problem = error
        if isinstance(self.error, BrokenPipeError):
            raise self.error
        if self.error is not None:
            raise cannot_write(self.name, self.error) from self.error
        if problem is not None:
            raise OscineError(f"{self.name}: cannot be written ({reason(problem)})") from problem


def goes_back(file: BinaryIO) -> bool:
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
