"""Runs one job: transcribes a recording and writes its results, also if it is interrupted."""

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
from oscine.errors import Cancelled, DeviceError, OscineError, UsageError
from oscine.formats import LINE_FORMATS, render, timestamp
from oscine.subtitles import Layout, channel_name
from oscine.types import Segment, Transcript

if TYPE_CHECKING:
    from oscine.cli.common import AnyTranscriber
    from oscine.models.transcription import Transcription

log = logging.getLogger(__name__)

MAX_MISSING_S, MAX_MISSING_FRACTION = 2.0, 0.05  # of speech without text: up to these it is no news


@dataclass(frozen=True, slots=True)
class JobOptions:
    """Options of all jobs: `options` are passed to the model, the others are used here.

    `output_format` is the format of standard output, which has only one.
    """

    output_format: str
    layout: Layout
    options: Mapping[str, Any]
    verbose: bool
    results: ResultStore


@dataclass(frozen=True, slots=True)
class JobResult:
    """The transcription of one recording, and the exception that ended it; None if complete."""

    job: Job
    stream: Transcription | None
    error: BaseException | None
    seconds: float


def run_job(model: AnyTranscriber, job: Job, job_options: JobOptions) -> bool:
    """Transcribe one recording and write its results; False if that failed, which is reported.

    If it is interrupted, the finished segments are written first. Raises UsageError for options
    that the model does not support, OutputError if standard output is full or closed.
    """
    if not job.targets and sys.stdout is None:  # closed by the caller, as `>&-` does
        raise OutputError("standard output is closed; name a folder with --output-dir")
    with progress_bar(job) as on_progress:
        result = transcribe_job(model, job, job_options, on_progress)
    return finish_job(result, job_options)


def transcribe_job(
    model: AnyTranscriber, job: Job, job_options: JobOptions, on_progress: OnProgress, **more: Any
) -> JobResult:
    """Transcribe a recording; only line formats on standard output are written meanwhile.

    Any exception is kept in the result. `more`: further arguments of the model's `stream`.
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
    """Write the results of a recording; False if they are incomplete, which is reported.

    Raises the exception that ended the job if the recording is not its cause, as `run_job` does;
    the finished segments are written first.
    """
    job, stream, error = result.job, result.stream, result.error
    if isinstance(error, OscineError) and not isinstance(error, UsageError | OutputError):
        if not isinstance(error, Cancelled):
            warn(f"{job.source}: {error}" if isinstance(error, DeviceError) else str(error))
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
    """Compute all segments; a line format on stdout is written as they arrive."""
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
            stop = reason  # raised after the writer has finished its last cue

    for text in LINE_FORMATS[job_options.output_format](until_stopped(), job_options.layout):
        write_stdout(text)
    if stop is not None:
        raise stop


def streams_to_stdout(job: Job, job_options: JobOptions) -> bool:
    """Whether segments are written to stdout while they are computed.

    Not with split channels: these are transcribed one after another and merged at the end.
    """
    apart = job_options.options.get("split_channels", False)
    return not job.targets and job_options.output_format in LINE_FORMATS and not apart


def write_results(
    transcript: Transcript, job: Job, job_options: JobOptions, *, finished: bool = True
) -> bool:
    """Write the results that `consume` did not; False if a file failed, which is reported."""
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
    """Write the finished segments of an interrupted transcription, with a message."""
    if stream is None:
        return
    try:
        transcript = stream.transcript()
    except OscineError:  # lost with its worker process, which was reported
        return
    if not transcript.segments:
        return
    if write_results(transcript, job, job_options, finished=False):
        end = max(segment.end for segment in transcript.segments)
        warn(f"{job.source}: written as far as {timestamp(end, hours=False, marker='.')}")


def warn_missing_text(source: str, transcript: Transcript) -> None:
    """Warn if more than a little of the detected speech has no text."""
    if (coverage := transcript.coverage) is None:
        return
    missing, speech = coverage.without_text, coverage.speech
    if missing > MAX_MISSING_S and missing > MAX_MISSING_FRACTION * speech:
        warn(f"{source}: {missing:.1f} of {speech:.1f} s of speech have no text")


def print_segments(stream: Iterable[Segment]) -> Iterator[Segment]:
    """Pass segments through and print each on stderr."""
    for segment in stream:
        start, end = (
            timestamp(time, hours=False, marker=".") for time in (segment.start, segment.end)
        )
        language = f"({segment.language}) " if segment.language else ""
        flags = f" [{', '.join(segment.flags)}]" if segment.flags else ""
        text = f"{language}{channel_name(segment.channel)}{segment.text.strip()}{flags}"
        status(f"[{start} --> {end}] {text}")
        yield segment
