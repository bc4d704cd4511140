"""Progress bars of recordings, shown only if stderr is a terminal and results do not go to it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, TypeAlias

from oscine.cli.console import print_above, progress_bars
from oscine.cli.inputs import STANDARD_INPUT
from oscine.cli.jobs import Job
from oscine.terminal import printable

if TYPE_CHECKING:
    from rich.progress import Progress

#: (seconds done, seconds in all) -> None; None: no progress is reported.
OnProgress: TypeAlias = Callable[[float, float], None] | None


@contextmanager
def progress_bar(job: Job) -> Iterator[OnProgress]:
    """Context with the progress bar of one recording; gives its OnProgress."""
    disturbs = not job.targets and sys.stdout.isatty()
    if disturbs or not sys.stderr.isatty():
        yield None
        return
    with recording_bars() as bar:
        yield JobBar(bar, job).report


@contextmanager
def job_bars() -> Iterator[Callable[[Job], JobBar | None]]:
    """Context with progress bars below all messages; gives a function that adds one for a job."""
    if not sys.stderr.isatty():
        yield lambda job: None
        return
    with recording_bars(transient=True) as bar, print_above(bar.console):
        yield lambda job: JobBar(bar, job)


class JobBar:
    """The progress bar of one recording, with its speed. Any thread may report."""

    def __init__(self, recording_bars: Progress, job: Job) -> None:
        name = "standard input" if job.source == STANDARD_INPUT else job.source
        self._rows, self._task = (
            recording_bars,
            recording_bars.add_task(printable(name), total=None, speed=""),
        )
        self._started = perf_counter()

    def report(self, done: float, total: float) -> None:
        """Show progress; both arguments in seconds of audio."""
        speed = f"{done / (perf_counter() - self._started):.1f}x"
        self._rows.update(self._task, completed=done, total=total, speed=speed)

    def remove(self) -> None:
        """Remove the bar: the recording is finished."""
        self._rows.remove_task(self._task)


def recording_bars(transient: bool = False) -> Progress:
    """Progress bars with one row for each recording."""
    # slow to import
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

    return progress_bars(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[speed]}"),
        transient=transient,
    )
