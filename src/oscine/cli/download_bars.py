"""Progress bars for downloads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, DownloadColumn, TaskID, TextColumn, TransferSpeedColumn

from oscine import download
from oscine.cli.console import progress_bars
from oscine.terminal import printable


@contextmanager
def download_bars() -> Iterator[download.Progress]:
    """Context that gives a `progress` for `hub.resolve`: it shows a bar for each file."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
    )
    shown = progress_bars(*columns)
    tasks: dict[str, TaskID] = {}

    def report(file: str, done: int, total: int) -> None:
        if file not in tasks:
            shown.start()  # not earlier: without a file an empty line is printed
            tasks[file] = shown.add_task(printable(file), total=total)
        shown.update(tasks[file], completed=done)

    try:
        yield report
    finally:
        if tasks:
            shown.stop()
