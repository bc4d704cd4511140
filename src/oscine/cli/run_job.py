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
from oscine.cli.progress import Report, progress
from oscine.cli.results import Results
from oscine.errors import Cancelled, OscineError, UsageError
from oscine.formats import LINES, render, timestamp
from oscine.subtitles import Layout, channel_name
from oscine.types import Segment, Transcript

if TYPE_CHECKING:
    from oscine.cli.common import AnyTranscriber
    from oscine.models.transcription import Transcription

log = logging.getLogger(__name__)

MISSING_SECONDS, MISSING_SHARE = 2.0, 0.05  # of speech without text: up to these it is no news


@dataclass(frozen=True, slots=True)
class Asked:
    """What is wanted of every recording: `options` go to the model, the rest is done here.

    `output_format` is that of standard output, where there is only one.
    """

    output_format: str
    layout: Layout
    options: Mapping[str, Any]
    verbose: bool
    results: Results


@dataclass(frozen=True, slots=True)
class Work:
    """One recording's transcription, as far as it came, and what it ended with; None: by itself."""

    job: Job
    stream: Transcription | None
    error: BaseException | None
    seconds: float


def finish(model: AnyTranscriber, job: Job, asked: Asked) -> bool:
    """Transcribe one recording and write it; False if it could not be, which is then reported.

    Where it is stopped half-way, what is finished is written first. Raises UsageError for what the
    model cannot do with any recording, OutputError where standard output takes no more.
    """
    if not job.targets and sys.stdout is None:  # closed by the caller, as `>&-` does
        raise OutputError("standard output is closed; name a folder with --output-dir")
    with progress(job) as report:
        work = transcribed(model, job, asked, report)
    return conclude(work, asked)


def transcribed(model: AnyTranscriber, job: Job, asked: Asked, report: Report, **more: Any) -> Work:
    """Transcribe a recording, of which nothing but lines for standard output is written yet.

    Whatever stops it is noted. `more` goes to the model's `stream`.
    """
    stream: Transcription | None = None
    error: BaseException | None = None
    started = perf_counter()
    try:
        stream = model.stream(job.source, progress=report, **more, **asked.options)
        follow(stream, job, asked)
    except BaseException as stop:
        error = stop
    return Work(job, stream, error, perf_counter() - started)


def conclude(work: Work, asked: Asked) -> bool:
    """Write a recording's results and tell of them; False if they are not whole, which is reported.

    Raises what stopped the work where that is no fault of the recording, as in `finish`; what is
    finished is then written first.
    """
    job, stream, error = work.job, work.stream, work.error
    if isinstance(error, OscineError) and not isinstance(error, UsageError | OutputError):
        if not isinstance(error, Cancelled):
            warn(str(error))
        write_unfinished(stream, job, asked)
        return False
    if error is not None:
        if isinstance(error, KeyboardInterrupt | MemoryError):
            write_unfinished(stream, job, asked)
        raise error
    assert stream is not None
    log.info("%s: %s, %.1f s in %.1f s", job.source, stream.language, stream.duration, work.seconds)
    transcript = stream.transcript()
    written = write(transcript, job, asked)
    tell_gaps(job.source, transcript)
    if written and job.targets and sys.stderr.isatty():
        files = ", ".join(str(path) for path in job.targets.values())
        status(f"{job.source} -> {files}")
    return written


def follow(stream: Transcription, job: Job, asked: Asked) -> None:
    """Have all segments made; those of a line format for stdout are written as they come."""
    segments: Iterable[Segment] = shown(stream) if asked.verbose else stream
    if not goes_on(job, asked):
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

    for text in LINES[asked.output_format](until_stopped(), asked.layout):
        write_stdout(text)
    if stop is not None:
        raise stop


def goes_on(job: Job, asked: Asked) -> bool:
    """Whether it is written to stdout as it is made.

    Channels are not, as they come one after the other and are put in order of time at the end.
    """
    apart = asked.options.get("split_channels", False)
    return not job.targets and asked.output_format in LINES and not apart


def write(transcript: Transcript, job: Job, asked: Asked, *, finished: bool = True) -> bool:
    """Write what `follow` has not; False if a file could not be, which is then reported."""
    written = True
    for name, path in job.targets.items():
        try:
            text = render(transcript, name, asked.layout)
            asked.results.write(path, text, finished=finished)
        except OscineError as error:
            warn(str(error))
            written = False
        else:
            log.info("wrote %s", path)
    if not job.targets and not goes_on(job, asked):
        write_stdout(render(transcript, asked.output_format, asked.layout))
    return written


def write_unfinished(stream: Transcription | None, job: Job, asked: Asked) -> None:
    """Write the segments there are, if there are any, and say so."""
    if stream is None:
        return
    try:
        transcript = stream.transcript()
    except OscineError:  # it went with the process that it was in, of which was told
        return
    if not transcript.segments:
        return
    if write(transcript, job, asked, finished=False):
        end = max(segment.end for segment in transcript.segments)
        warn(f"{job.source}: written as far as {timestamp(end, hours=False, marker='.')}")


def tell_gaps(source: str, transcript: Transcript) -> None:
    """Warn of speech that no text was found for, unless it is little."""
    if (coverage := transcript.coverage) is None:
        return
    missing, speech = coverage.without_text, coverage.speech
    if missing > MISSING_SECONDS and missing > MISSING_SHARE * speech:
        warn(f"{source}: {missing:.1f} of {speech:.1f} s of speech have no text")


def shown(stream: Iterable[Segment]) -> Iterator[Segment]:
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
