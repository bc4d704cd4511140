"""One recording after another: show progress, write results, keep what is done when it stops."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Any

from oscine.cli import tell
from oscine.cli.outputs import STANDARD_INPUT, Job
from oscine.errors import OscineError, UsageError
from oscine.formats import LINES, render, timestamp, write_result
from oscine.types import Segment

if TYPE_CHECKING:
    from oscine.models.whisper.pipeline import Whisper
    from oscine.models.whisper.stream import Stream

log = logging.getLogger(__name__)

Report = Callable[[float, float], None]


class OutputError(OscineError):
    """Standard output is full or closed: no other recording would fare better."""


def finish(
    model: Whisper, job: Job, output_format: str, options: Mapping[str, Any], *, verbose: bool
) -> bool:
    """Transcribe one recording and write it; False if it could not be, which is then reported.

    Where it is stopped half-way, what is finished is written first. Raises UsageError for what the
    model cannot do with any recording, OutputError where standard output takes no more.
    """
    if not job.targets and sys.stdout is None:  # closed by the caller, as `>&-` does
        raise OutputError("standard output is closed; name a folder with --output-dir")
    stream: Stream | None = None
    started = perf_counter()
    try:
        with progress(job) as report:
            stream = model.stream(job.source, progress=report, **options)
            follow(stream, job, output_format, verbose=verbose)
    except (UsageError, OutputError):
        raise
    except OscineError as error:
        tell(str(error))
        write_unfinished(stream, job, output_format)
        return False
    except KeyboardInterrupt:
        write_unfinished(stream, job, output_format)
        raise
    spent = perf_counter() - started
    log.info("%s: %s, %.1f s in %.1f s", job.source, stream.language, stream.duration, spent)
    return write(stream, job, output_format)


def follow(stream: Stream, job: Job, output_format: str, *, verbose: bool) -> None:
    """Have all segments made; a line format that goes to stdout is written as they come."""
    segments: Iterable[Segment] = shown(stream) if verbose else stream
    if not job.targets and output_format in LINES:
        for text in LINES[output_format](segments):
            emit(text)
    else:
        for _ in segments:
            pass


def write(stream: Stream, job: Job, output_format: str) -> bool:
    """Write what `follow` has not; False if a file could not be, which is then reported."""
    transcript = stream.transcript()
    written = True
    for name, path in job.targets.items():
        try:
            write_result(path, render(transcript, name))
        except OscineError as error:
            tell(str(error))
            written = False
        else:
            log.info("wrote %s", path)
    if not job.targets and output_format not in LINES:
        emit(render(transcript, output_format))
    return written


def write_unfinished(stream: Stream | None, job: Job, output_format: str) -> None:
    """Write the segments there are, if there are any, and say so."""
    if stream is None or not (segments := stream.transcript().segments):
        return
    if write(stream, job, output_format):
        until = timestamp(segments[-1].end, hours=False, marker=".")
        tell(f"{job.source}: written as far as {until}")


def shown(stream: Iterable[Segment]) -> Iterator[Segment]:
    """The same segments, each printed on stderr as it passes."""
    for segment in stream:
        start, end = (
            timestamp(time, hours=False, marker=".") for time in (segment.start, segment.end)
        )
        print(f"[{start} --> {end}] {segment.text.strip()}", file=sys.stderr)
        yield segment


def tell_times(model: Whisper) -> None:
    """OSCINE_TRACE: milliseconds by stage since loading; on a GPU also those it measures itself."""
    for stage, spent in model.decoder.timings.items():
        tell(f"{stage}: {spent:.1f} ms")
    for stage, (passes, spent) in model.decoder.trace().items():
        tell(f"{stage} on the GPU: {spent:.1f} ms in {passes} passes")


def emit(text: str) -> None:
    """UTF-8 on standard output, whatever the terminal or locale claims to be.

    Raises BrokenPipeError where the reader has gone, OutputError where nothing more fits.
    """
    try:
        sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace"))
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"standard output: cannot write: {error.strerror or error}") from error


@contextmanager
def progress(job: Job) -> Iterator[Report | None]:
    """A bar on stderr with audio seconds a second; none where it would not be seen or disturb."""
    disturbs = not job.targets and sys.stdout.isatty()
    if disturbs or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console  # costs start-up time
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[speed]}"),
    )
    name = "standard input" if job.source == STANDARD_INPUT else job.source
    with Progress(*columns, console=Console(stderr=True)) as bars:
        task = bars.add_task(name, total=None, speed="")
        started = perf_counter()

        def report(done: float, total: float) -> None:
            speed = done / (perf_counter() - started)
            bars.update(task, completed=done, total=total, speed=f"{speed:.1f}x")

        yield report
