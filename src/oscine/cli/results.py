"""Writes results and records their hashes, so that a result edited since is not overwritten.

A file in oscine's folder has a line for each result: hashes of its path and of its contents.
Modification times are not reliable: copies, archives and synchronised folders change them without
an edit, and some editors keep them. If the record is lost or cannot be written, results are
overwritten, as by any other program.
"""

from __future__ import annotations

import hashlib
import logging
import os
from enum import Enum, auto
from pathlib import Path

from oscine import hub
from oscine.errors import OscineError
from oscine.files import AtomicFile, is_special
from oscine.formats import write_result

log = logging.getLogger(__name__)

MAX_RECORD_BYTES = 8 << 20  # of the record: 100,000 results; the older half is forgotten then
HASH_DIGITS = 32  # hexadecimal digits: chance alone does not make two alike


class ResultState(Enum):
    """The state of the file at a result's path."""

    MISSING = auto()
    UNKNOWN = auto()  # not recorded: written by another program, or the record is lost
    COMPLETE = auto()
    PARTIAL = auto()  # of an interrupted transcription
    EDITED = auto()


class ResultStore:
    """Writes results and tracks their states; `overwrite`: replace edited results as well."""

    def __init__(self, overwrite: bool = False) -> None:
        self.overwrite = overwrite
        self._file = record_path()
        self._known: dict[str, tuple[str, str]] | None = None

    def state(self, path: Path) -> ResultState:
        """The state of the result at a path; MISSING for a pipe or device."""
        if not os.path.lexists(path) or is_special(path):
            return ResultState.MISSING
        if self._known is None:
            self._known = self._read()
        if (entry := self._known.get(_path_key(path))) is None:
            return ResultState.UNKNOWN
        try:
            with path.open("rb") as file:
                contents = hashlib.file_digest(file, "sha256").hexdigest()[:HASH_DIGITS]
        except OSError:
            return ResultState.UNKNOWN
        if contents != entry[0]:
            return ResultState.EDITED
        return ResultState.PARTIAL if entry[1] == "unfinished" else ResultState.COMPLETE

    def is_kept(self, path: Path) -> bool:
        """Whether a result must not be overwritten, because it was edited."""
        return not self.overwrite and self.state(path) is ResultState.EDITED

    def write(self, path: Path, text: str, *, finished: bool) -> None:
        """Write a result and record it. Raises OscineError if it cannot or must not be written."""
        if self.is_kept(path):
            raise OscineError(kept_message(path))
        write_result(path, text)
        contents = _hash_bytes(text.encode("utf-8", "backslashreplace"))
        entry = (contents, "whole" if finished else "unfinished")
        if self._known is not None:
            self._known[_path_key(path)] = entry
        try:
            self._note(" ".join((_path_key(path), *entry)) + "\n")
        except (OSError, OscineError) as error:
            log.debug("%s: what was written is not noted: %s", self._file, error)

    def _read(self) -> dict[str, tuple[str, str]]:
        """The latest entry of each path; damaged lines are skipped."""
        lines = (line.split() for line in self._newest(MAX_RECORD_BYTES).splitlines())
        return {line[0]: (line[1], line[2]) for line in lines if len(line) == 3}

    def _newest(self, most: int) -> str:
        """The last `most` bytes of the record, in complete lines."""
        try:
            with self._file.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - most))
                text = file.read(most).decode("ascii", "replace")
        except OSError:
            return ""
        return text if size <= most else text.partition("\n")[2]

    def _note(self, line: str) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        if self._file.exists() and self._file.stat().st_size > MAX_RECORD_BYTES:
            shorter = AtomicFile(self._file)
            try:
                shorter.file.write(self._newest(MAX_RECORD_BYTES // 2).encode("ascii", "replace"))
                shorter.keep()
            finally:
                shorter.discard()
        # Appended with a single write: several commands may run concurrently.
        number = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(number, line.encode("ascii"))
        finally:
            os.close(number)


def record_path() -> Path:
    """Path of the record of results."""
    return hub.home() / "results"


def kept_message(path: Path) -> str:
    """The message for an edited result that is not overwritten."""
    return f"{path}: was edited since it was written and is kept; to replace it: --overwrite"


def _path_key(path: Path) -> str:
    return _hash_bytes(os.fsencode(os.path.realpath(path)))


def _hash_bytes(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:HASH_DIGITS]
