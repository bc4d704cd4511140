"""One recording: transcribe it, write its results, keep what is done where it stops."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

from oscine.cli.console import OutputError, status, warn, write_stdout
from oscine.cli.jobs import Job
from oscine.cli.progress import OnProgress, progress_bar
from oscine.cli.results import ResultStore
from oscine.errors import Cancelled, OscineError, UsageError
from oscine.formats import LINES, render, timestamp
from oscine.subtitles import Layout, channel_name
from oscine.types import Segment, Transcript

if TYPE_CHECKING:
    from oscine.cli.common import AnyTranscriber
    from oscine.models.transcription import Transcription

log = logging.getLogger(__name__)

MAX_MISSING_S, MAX_MISSING_FRACTION = 2.0, 0.05  # of speech without text: up to these it is no news


@dataclass(frozen=True, slots=True)
class JobOptions:
    """What is wanted of every recording: `options` go to the model, the rest is done here.

    `output_format` is that of standard output, where there is only one.
    """

    output_format: str
    layout: Layout
    options: Mapping[str, Any]
    verbose: bool
    results: ResultStore


@dataclass(frozen=True, slots=True)
class JobResult:
    """One recording's transcription, as far as it came, and what it ended with; None: by itself."""

    job: Job
    stream: Transcription | None
    error: BaseException | None
    seconds: float


def run_job(model: AnyTranscriber, job: Job, job_options: JobOptions) -> bool:
    """Transcribe one recording and write it; False if it could not be, which is then reported.

    Where it is stopped half-way, what is finished is written first. Raises UsageError for what the
    model cannot do with any recording, OutputError where standard output takes no more.
    """
    if not job.targets and sys.stdout is None:  # closed by the caller, as `>&-` does
        raise OutputError("standard output is closed; name a folder with --output-dir")
    with progress_bar(job) as on_progress:
        result = transcribe_job(model, job, job_options, on_progress)
    return finish_job(result, job_options)


def transcribe_job(
    model: AnyTranscriber, job: Job, job_options: JobOptions, on_progress: OnProgress, **more: Any
) -> JobResult:
    """Transcribe a recording, of which nothing but lines for standard output is written yet.

    Whatever stops it is noted. `more` goes to the model's `stream`.
    """
    stream: Transcription | None = None
    error: BaseException | None = None
    started = perf_counter()
    try:
        stream = model.stream(job.source, progress=on_progress, **more, **job_options.options)
        consume(stream, job, job_options)
    except BaseException as stop:
        error = stop
    return JobResult(job, stream, error, perf_counter() - started)


def finish_job(result: JobResult, job_options: JobOptions) -> bool:
    """Write a recording's results and tell of them; False if they are not whole, which is reported.

    Raises what stopped the work where that is no fault of the recording, as in `run_job`; what is
    finished is then written first.
    """
    job, stream, error = result.job, result.stream, result.error
    if isinstance(error, OscineError) and not isinstance(error, UsageError | OutputError):
        if not isinstance(error, Cancelled):
            warn(str(error))
        write_partial(stream, job, job_options)
        return False
    if error is not None:
        if isinstance(error, KeyboardInterrupt | MemoryError):
            write_partial(stream, job, job_options)
        raise error
    assert stream is not None
    log.info(
        "%s: %s, %.1f s in %.1f s", job.source, stream.language, stream.duration, result.seconds
    )
    transcript = stream.transcript()
    written = write_results(transcript, job, job_options)
    warn_missing_text(job.source, transcript)
    if written and job.targets and sys.stderr.isatty():
        files = ", ".join(str(path) for path in job.targets.values())
        status(f"{job.source} -> {files}")
    return written


def consume(stream: Transcription, job: Job, job_options: JobOptions) -> None:
    """Have all segments made; those of a line format for stdout are written as they come."""
    segments: Iterable[Segment] = print_segments(stream) if job_options.verbose else stream
    if not streams_to_stdout(job, job_options):
        for _ in segments:
            pass
        return
    stop: BaseException | None = None

    def until_stopped() -> Iterator[Segment]:
        nonlocal stop
        try:
            yield from segments
        except (OscineError, KeyboardInterrupt, MemoryError) as reason:
            stop = reason  # first the writer gets to finish the cue that it has begun

    for text in LINES[job_options.output_format](until_stopped(), job_options.layout):
        write_stdout(text)
    if stop is not None:
        raise stop


def streams_to_stdout(job: Job, job_options: JobOptions) -> bool:
    """Whether it is written to stdout as it is made.

    Channels are not, as they come one after the other and are put in order of time at the end.
    """
    apart = job_options.options.get("split_channels", False)
    return not job.targets and job_options.output_format in LINES and not apart


def write_results(
    transcript: Transcript, job: Job, job_options: JobOptions, *, finished: bool = True
) -> bool:
    """Write what `consume` has not; False if a file could not be, which is then reported."""
    written = True
    for name, path in job.targets.items():
        try:
            text = render(transcript, name, job_options.layout)
            job_options.results.write(path, text, finished=finished)
        except OscineError as error:
            warn(str(error))
            written = False
        else:
            log.info("wrote %s", path)
    if not job.targets and not streams_to_stdout(job, job_options):
        write_stdout(render(transcript, job_options.output_format, job_options.layout))
    return written


def write_partial(stream: Transcription | None, job: Job, job_options: JobOptions) -> None:
    """Write the segments there are, if there are any, and say so."""
    if stream is None:
        return
    try:
        transcript = stream.transcript()
    except OscineError:  # it went with the process that it was in, of which was told
        return
    if not transcript.segments:
        return
    if write_results(transcript, job, job_options, finished=False):
        end = max(segment.end for segment in transcript.segments)
        warn(f"{job.source}: written as far as {timestamp(end, hours=False, marker='.')}")


def warn_missing_text(source: str, transcript: Transcript) -> None:
    """Warn of speech that no text was found for, unless it is little."""
    if (coverage := transcript.coverage) is None:
        return
    missing, speech = coverage.without_text, coverage.speech
    if missing > MAX_MISSING_S and missing > MAX_MISSING_FRACTION * speech:
        warn(f"{source}: {missing:.1f} of {speech:.1f} s of speech have no text")


def print_segments(stream: Iterable[Segment]) -> Iterator[Segment]:
    """The same segments, each printed on stderr as it passes."""
    for segment in stream:
        start, end = (
            timestamp(time, hours=False, marker=".") for time in (segment.start, segment.end)
        )
        language = f"({segment.language}) " if segment.language else ""
        flags = f" [{', '.join(segment.flags)}]" if segment.flags else ""
        text = f"{language}{channel_name(segment.channel)}{segment.text.strip()}{flags}"
        status(f"[{start} --> {end}] {text}")
        yield segment
