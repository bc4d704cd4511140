"""Several recordings at once, each written as soon as it and all before it are done."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from oscine.cli.inputs import STANDARD_INPUT
from oscine.cli.jobs import Job
from oscine.cli.progress import Bar, progress_of_several
from oscine.cli.run_job import Asked, Work, conclude, finish, shown, transcribed, write_unfinished
from oscine.errors import OscineError, UsageError

if TYPE_CHECKING:
    from oscine.cli.common import AnyTranscriber
    from oscine.models.ordered_pool import OrderedPool


def finish_all(model: AnyTranscriber, jobs: Sequence[Job], asked: Asked) -> bool:
    """Transcribe all recordings and write them; whether all could be.

    Standard output and standard input are for one at a time.
    """
    alone = len(jobs) == 1 or any(job.source == STANDARD_INPUT for job in jobs)
    with several(model, asked, 1 if alone else model.recordings_at_once) as work:
        for job in jobs:
            work.add(job)
    return work.complete


@contextmanager
def several(model: AnyTranscriber, asked: Asked, most: int) -> Iterator[Several]:
    """Work on up to `most` recordings at once; all that were added are written at the end.

    Where it ends by an error or Ctrl-C, what is done by then is written, also of recordings that
    are under way.
    """
    with progress_of_several() if most > 1 else nullcontext(no_bar) as bar_of:
        work = Several(model, asked, most, bar_of)
        try:
            yield work
            work.write(wait=True)
        except BaseException:
            work.stop()
            raise


def no_bar(_: Job) -> None:
    """Where recordings come one by one, each has a bar by itself."""


class Several:
    """Work on recordings in threads that share a model; on one at a time in the main thread.

    All methods are for the main thread, which alone writes results and tells of them.
    """

    def __init__(
        self, model: AnyTranscriber, asked: Asked, most: int, bar_of: Callable[[Job], Bar | None]
    ) -> None:
        from oscine.models.ordered_pool import OrderedPool  # slow to import

        self._model, self._asked, self._most, self._bar_of = model, asked, most, bar_of
        self._order: OrderedPool[Job, Work] = OrderedPool(self._transcribed, most)
        self._written: Work | None = None  # that is being written
        self.complete = True  # all that was written so far

    def add(self, job: Job) -> None:
        """Begin with a recording once there is a place; what is done by then is written."""
        if self._most == 1:
            self.complete &= finish(self._model, job, self._asked)
            return
        self._order.add(job)
        self.write()

    def _transcribed(self, job: Job, stop: Callable[[], bool]) -> Work:
        """In a thread of its own; what it says is shown when it is its turn."""
        bar = self._bar_of(job)
        try:
            quiet = replace(self._asked, verbose=False)
            report = None if bar is None else bar.report
            return transcribed(self._model, job, quiet, report, cancel=stop)
        finally:
            if bar is not None:
                bar.remove()

    def write(self, *, wait: bool = False) -> None:
        """What is done, up to the first recording that is under way; `wait`: all."""
        for work in self._order.results(wait=wait):
            self._written = work
            if self._asked.verbose and work.stream is not None:
                for _ in shown(work.stream.transcript().segments):
                    pass
            self.complete &= conclude(work, self._asked)
            self._written = None

    def stop(self) -> None:
        """End all that is under way and write what there is of each recording."""
        self._order.stop()
        interrupted = self._written
        done = [interrupted] if interrupted is not None and interrupted.error is None else []
        for work in [*done, *self._order.results(wait=True)]:
            if work.error is None or isinstance(work.error, OscineError):
                with suppress(UsageError):  # the first of them is told
                    conclude(work, self._asked)
            else:
                write_unfinished(work.stream, work.job, self._asked)
