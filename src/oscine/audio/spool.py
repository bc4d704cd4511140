"""Access to the bytes of a recording, repeatedly: of files, file objects and pipes."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from oscine.audio.demuxer import reason
from oscine.audio.ogg_chain import FileSlice
from oscine.errors import AudioError

_DISK_FULL_REMEDY = "free some room there, or set TMPDIR to another folder"
SPOOL_BYTES = 32 << 20  # larger pipes go to a temporary file


class Spool:
    """A copy of a source that cannot be rewound: in memory if small, else in a temporary file."""

    def __init__(self, name: str, read: Callable[[int], Any]) -> None:
        self._name = name
        self._read: Callable[[int], Any] | None = read
        self._file = tempfile.SpooledTemporaryFile(max_size=SPOOL_BYTES)
        weakref.finalize(self, self._file.close)

    @contextmanager
    def __call__(self) -> Iterator[BinaryIO]:
        read, self._read = self._read, None
        while read is not None:
            chunk = _read_bytes(self._name, read, 1 << 20)
            if not chunk:
                break
            try:
                self._file.write(chunk)
            except OSError as error:
                problem = f"cannot be kept aside in {_temp_folder()} ({reason(error)})"
                raise AudioError(self._name, problem, _DISK_FULL_REMEDY) from None
        if not self._file.seek(0, os.SEEK_END):
            raise AudioError(self._name, "is empty", "record or copy it again")
        self._file.seek(0)
        yield self._file  # type: ignore[misc]


@contextmanager
def open_file(label: str, path: Path) -> Iterator[BinaryIO]:
    """Open a file, which may have disappeared since it was checked."""
    try:
        file = path.open("rb")
    except OSError as error:
        remedy = "record it or convert it again"
        raise AudioError(label, f"cannot be read ({reason(error)})", remedy) from None
    with file:
        yield file


def _temp_folder() -> str:
    """The temporary folder, for a message; finding it fails too if none is writable."""
    try:
        return tempfile.gettempdir()
    except OSError:
        return "any temporary folder"


class LazyPipe:
    """A pipe that is opened at the first read, so that making a Source does not block."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None

    def read(self, size: int) -> bytes:
        if self._file is None:
            self._file = self._path.open("rb")
        chunk = self._file.read(size)
        if not chunk:
            self._file.close()
        return chunk


@contextmanager
def in_place(label: str, file: Any, start: int) -> Iterator[BinaryIO | FileSlice]:
    """A file object from its current position, which is restored afterwards."""
    try:
        end = file.seek(0, os.SEEK_END)
        file.seek(start)
    except (OSError, ValueError) as error:
        raise AudioError(label, f"cannot be read again ({reason(error)})") from None
    try:
        yield FileSlice(file, start, end) if start else file
    finally:
        with suppress(OSError, ValueError):
            file.seek(start)


def _read_bytes(name: str, read: Callable[[int], Any], size: int) -> bytes:
    try:
        chunk = read(size)
    except (OSError, ValueError) as error:
        raise AudioError(name, f"cannot be read ({reason(error)})") from None
    if chunk is None:
        raise AudioError(name, "has no data ready", "open it in blocking mode")
    if isinstance(chunk, str):
        raise AudioError(name, "is open as text", "open it with mode 'rb'")
    if not isinstance(chunk, bytes | bytearray | memoryview):  # bytes(5) would be zeros, for ever
        raise AudioError(name, f"gives {type(chunk).__name__} instead of bytes", "open a file")
    return bytes(chunk)
