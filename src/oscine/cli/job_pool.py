"""Transcribes several recordings concurrently and writes their results in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from oscine.cli.inputs import STANDARD_INPUT
from oscine.cli.jobs import Job
from oscine.cli.progress import JobBar, job_bars
from oscine.cli.run_job import (
    JobOptions,
    JobResult,
    finish_job,
    print_segments,
    run_job,
    transcribe_job,
    write_partial,
)
from oscine.errors import OscineError, UsageError

if TYPE_CHECKING:
    from oscine.cli.common import AnyTranscriber
    from oscine.models.ordered_pool import OrderedPool


def run_jobs(model: AnyTranscriber, jobs: Sequence[Job], job_options: JobOptions) -> bool:
    """Transcribe all recordings and write their results; False if any failed.

    Recordings run one at a time if one is standard input.
    """
    alone = len(jobs) == 1 or any(job.source == STANDARD_INPUT for job in jobs)
    with job_pool(model, job_options, 1 if alone else model.recordings_at_once) as work:
        for job in jobs:
            work.add(job)
    return work.complete


@contextmanager
def job_pool(model: AnyTranscriber, job_options: JobOptions, max_jobs: int) -> Iterator[JobPool]:
    """Work on up to `max_jobs` recordings at once; all that were added are written at the end.

    Where it ends by an error or Ctrl-C, what is done by then is written, also of recordings that
    are under way.
    """
    with job_bars() if max_jobs > 1 else nullcontext(no_bar) as bar_of:
        work = JobPool(model, job_options, max_jobs, bar_of)
        try:
            yield work
            work.write(wait=True)
        except BaseException:
            work.stop()
            raise


def no_bar(_: Job) -> None:
    """No shared progress bars: a single recording at a time shows its own."""


class JobPool:
    """Transcribes recordings in threads that share a model; one at a time in the main thread.

    Call its methods from the main thread only, which alone writes results and messages.
    """

    def __init__(
        self,
        model: AnyTranscriber,
        job_options: JobOptions,
        max_jobs: int,
        bar_of: Callable[[Job], JobBar | None],
    ) -> None:
        from oscine.models.ordered_pool import OrderedPool  # slow to import

        self._model, self._options, self._max_jobs, self._bar_of = (
            model,
            job_options,
            max_jobs,
            bar_of,
        )
        self._order: OrderedPool[Job, JobResult] = OrderedPool(self._transcribed, max_jobs)
        self._written: JobResult | None = None  # that is being written
        self.complete = True  # all that was written so far

    def add(self, job: Job) -> None:
        """Start a recording once a thread is free, and write the results finished by then."""
        if self._max_jobs == 1:
            self.complete &= run_job(self._model, job, self._options)
            return
        self._order.add(job)
        self.write()

    def _transcribed(self, job: Job, stop: Callable[[], bool]) -> JobResult:
        """Transcribe a recording in a worker thread; `write` prints its segments later."""
        bar = self._bar_of(job)
        try:
            quiet = replace(self._options, verbose=False)
            report = None if bar is None else bar.report
            return transcribe_job(self._model, job, quiet, report, cancel=stop)
        finally:
            if bar is not None:
                bar.remove()

    def write(self, *, wait: bool = False) -> None:
        """Write finished results in order, up to the first unfinished recording; `wait`: all."""
        for work in self._order.results(wait=wait):
            self._written = work
            if self._options.verbose and work.stream is not None:
                for _ in print_segments(work.stream.transcript().segments):
                    pass
            self.complete &= finish_job(work, self._options)
            self._written = None

    def stop(self) -> None:
        """Cancel all running recordings and write what is finished of each."""
        self._order.stop()
        interrupted = self._written
        done = [interrupted] if interrupted is not None and interrupted.error is None else []
        for work in [*done, *self._order.results(wait=True)]:
            if work.error is None or isinstance(work.error, OscineError):
                with suppress(UsageError):  # the first of them is told
                    finish_job(work, self._options)
            else:
                write_partial(work.stream, work.job, self._options)
