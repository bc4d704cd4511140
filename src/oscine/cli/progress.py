"""How far recordings are: bars on stderr, where they are seen and disturb nothing."""

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

#: Is told seconds done and in all; None: nobody is told.
OnProgress: TypeAlias = Callable[[float, float], None] | None


@contextmanager
def progress_bar(job: Job) -> Iterator[OnProgress]:
    """A bar for one recording."""
    disturbs = not job.targets and sys.stdout.isatty()
    if disturbs or not sys.stderr.isatty():
        yield None
        return
    with recording_bars() as bar:
        yield JobBar(bar, job).report


@contextmanager
def job_bars() -> Iterator[Callable[[Job], JobBar | None]]:
    """Gives a function that adds a bar for a recording. They stay below all messages, and one whose
    recording is done is taken away."""
    if not sys.stderr.isatty():
        yield lambda job: None
        return
    with recording_bars(transient=True) as bar, print_above(bar.console):
        yield lambda job: JobBar(bar, job)


class JobBar:
    """One recording's, with audio seconds a second. Any thread may report."""

    def __init__(self, recording_bars: Progress, job: Job) -> None:
        name = "standard input" if job.source == STANDARD_INPUT else job.source
        self._rows, self._task = (
            recording_bars,
            recording_bars.add_task(printable(name), total=None, speed=""),
        )
        self._started = perf_counter()

    def report(self, done: float, total: float) -> None:
        """Seconds done and in all."""
        speed = f"{done / (perf_counter() - self._started):.1f}x"
        self._rows.update(self._task, completed=done, total=total, speed=speed)

    def remove(self) -> None:
        """Its recording is done."""
        self._rows.remove_task(self._task)


def recording_bars(transient: bool = False) -> Progress:
    """Bars with one row a recording."""
    # costs start-up time
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

    return progress_bars(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[speed]}"),
        transient=transient,
    )
