"""`oscine transcribe --watch FOLDER`: transcribes recordings as they arrive, once complete."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn, Protocol

from oscine.cli.console import warn
from oscine.cli.inputs import InputFiles, list_recordings
from oscine.cli.jobs import Job
from oscine.errors import OscineError, UsageError

POLL_INTERVAL_S = 1.0  # minimum between polls of the folder
SETTLE_TIME_S = 2.0  # a file is complete if its size and time have not changed for this long
IDLE_FACTOR = 10  # idle time as a multiple of a poll's time: large folders are polled less often

#: (size, modification time, inode) of a file.
FileSignature = tuple[int, int, int]


class FolderWatcher:
    """Finds the recordings of a folder that are complete and new, or changed since the last poll.

    `plan` makes jobs of recordings.
    """

    def __init__(
        self,
        folder: str,
        plan: Callable[[InputFiles], tuple[Job, ...]],
        *,
        recursive: bool,
        output: Path | None,
    ) -> None:
        self._folder, self._plan = folder, plan
        self._recursive, self._output = recursive, output
        self._given: dict[str, FileSignature] = {}
        self._waiting: dict[str, tuple[FileSignature, float]] = {}
        self._old: set[str] | None = None
        self._problem = ""

    def poll(self) -> Iterator[tuple[Job, bool]]:
        """Yield (job, whether it existed before the watch began) for recordings that are ready.

        Raises OscineError if the folder can no longer be listed.
        """
        try:
            found = list_recordings(self._folder, recursive=self._recursive, output=self._output)
        except UsageError as error:  # it could be when the command was called
            raise OscineError(str(error)) from error
        there = found.output_subfolders.keys()
        if self._old is None:
            self._old = set(there)
        self._old &= there
        for known in (self._given, self._waiting):
            for gone in known.keys() - there:
                del known[gone]
        for job in self._jobs(found):
            now = file_signature(job.source)
            if now is None or self._given.get(job.source) == now:
                continue
            if self._is_whole(job.source, now):
                self._given[job.source] = now
                self._waiting.pop(job.source, None)
                yield job, job.source in self._old
                self._old.discard(job.source)

    def _jobs(self, found: InputFiles) -> tuple[Job, ...]:
        """Plan jobs; a conflict between results is reported once until it is resolved."""
        try:
            jobs = self._plan(found)
        except UsageError as error:
            if str(error) != self._problem:
                warn(f"{error}; waiting until this is resolved")
            self._problem = str(error)
            return ()
        self._problem = ""
        return jobs

    def _is_whole(self, source: str, now: FileSignature) -> bool:
        before, since = self._waiting.get(source, (None, 0.0))
        if before != now or not now[0]:
            self._waiting[source] = (now, time.monotonic())
            return False
        settled = time.monotonic() - since >= SETTLE_TIME_S
        return settled and not is_being_written(source)


class JobQueue(Protocol):
    """Runs jobs, possibly several at once, as JobPool does."""

    def add(self, job: Job) -> None: ...
    def write(self) -> None: ...


def watch(
    arrivals: FolderWatcher, wanted: Callable[[Job, bool], Job | None], worker: JobQueue
) -> NoReturn:
    """Have a worker do all that arrives, as `poll` gives it and as it is `wanted`, until this is
    interrupted; what is done by the next look is written then."""
    while True:
        started = time.monotonic()
        for job, was_there in arrivals.poll():
            if (needed := wanted(job, was_there)) is not None:
                worker.add(needed)
            started = time.monotonic()
        worker.write()
        pause(max(POLL_INTERVAL_S, IDLE_FACTOR * (time.monotonic() - started)))


def pause(seconds: float) -> None:
    """Wait before the next poll."""
    time.sleep(seconds)


def file_signature(source: str) -> FileSignature | None:
    """The signature of a file, which changes with its contents; None if it does not exist."""
    try:
        status = os.stat(source)
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns, status.st_ino


def is_being_written(source: str) -> bool:
    """Whether another process has a file open for writing, on Linux and for the user's own files.

    A read lease is refused as long as the file is open for writing: fcntl(2). If the lease is
    broken meanwhile, the signal is SIGURG, which is ignored.
    """
    try:
        import fcntl

        lease, choose = fcntl.F_SETLEASE, fcntl.F_SETSIG
    except (ImportError, AttributeError):  # Windows, macOS
        return False
    try:
        number = os.open(source, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return False  # reported when it is read
    try:
        fcntl.fcntl(number, choose, signal.SIGURG)
        fcntl.fcntl(number, lease, fcntl.F_RDLCK)
        fcntl.fcntl(number, lease, fcntl.F_UNLCK)
    except OSError as error:
        return error.errno == errno.EAGAIN
    finally:
        os.close(number)
    return False
