"""Writes speech to a file, standard output or the loudspeaker while it is generated."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Protocol

from oscine.cli.console import progress_bars, status, warn
from oscine.cli.jobs import check_writable_file, expand_tilde, file_ids, find_overwritten
from oscine.errors import OscineError, UsageError
from oscine.formats import timestamp
from oscine.terminal import printable

if TYPE_CHECKING:
    from oscine.types import Audio, Samples

log = logging.getLogger(__name__)

STANDARD_OUTPUT = "-"


class SpeechStreamLike(Protocol):
    """The part of SpeechStream that is used here."""

    seed: int

    @property
    def mark(self) -> str: ...
    @property
    def limited(self) -> bool: ...
    @property
    def share(self) -> float | None: ...
    @property
    def first_audio(self) -> float | None: ...
    def __iter__(self) -> Iterator[Audio]: ...


class Writer(Protocol):
    """The interface of AudioWriter and Player."""

    name: str

    @property
    def open(self) -> bool: ...
    @property
    def duration(self) -> float: ...
    def write(self, samples: Samples) -> None: ...
    def close(self) -> None: ...
    def abandon(self) -> None: ...


@dataclass(frozen=True, slots=True)
class AudioOutput:
    """`path`: a file, `-`, or None for none; `form`: of oscine.audio.write.FORMATS; `marked`:
    whether it says that a program has made the speech."""

    path: str | None
    form: str | None
    play: bool
    marked: bool = True

    @property
    def name(self) -> str:
        """Name in messages."""
        if self.path is None:
            return "loudspeaker"
        return "standard output" if self.path == STANDARD_OUTPUT else self.path

    @property
    def waits(self) -> bool:
        """Whether the speech is only used once it is complete, as in a file."""
        return not self.play and self.path != STANDARD_OUTPUT

    def open(self, rate: int, mark: str) -> list[Writer]:
        """Open all writers, the loudspeaker last, since closing it waits until it has played."""
        from oscine.audio.play import Player
        from oscine.audio.write import AudioWriter

        writers: list[Writer] = []
        if self.path is not None:
            target = sys.stdout.buffer if self.path == STANDARD_OUTPUT else self.path
            comment = mark if self.marked else None
            writers.append(AudioWriter(target, rate, self.form, name=self.name, comment=comment))
        if self.play:
            try:
                writers.append(Player(rate))
            except OscineError:
                for writer in writers:
                    writer.abandon()
                raise
        return writers


def plan_output(
    output: str | None, form: str | None, play: bool, inputs: Iterable[str] = ()
) -> AudioOutput:
    """The output that the options ask for, checked before slow work; `inputs`: paths that are read.

    Without -o and --play speech goes to standard output, but not to a terminal.
    Raises UsageError for contradictory or unsupported options, OscineError for an output that is
    not writable.
    """
    from oscine.audio.play import load_player  # av is slow to import
    from oscine.audio.write import format_of

    if output is None and not play:
        if sys.stdout is not None and sys.stdout.isatty():
            raise UsageError("say where the speech goes: -o FILE, -o - for a pipe, or --play")
        output = STANDARD_OUTPUT
    if output == "":
        raise UsageError("the name of the output file is empty")
    output = output and expand_tilde(output)
    if output is None and form is not None:
        raise UsageError("format is for a file; add --output")
    if play:
        load_player()
    if output is None:
        return AudioOutput(None, None, play)
    if output != STANDARD_OUTPUT:
        return AudioOutput(output, check_file(output, form, inputs), play)
    if sys.stdout is None:
        raise OscineError("standard output is closed; name a file with --output")
    if sys.stdout.isatty():
        raise UsageError("sound is not for a terminal; name a file with --output, or use --play")
    return AudioOutput(output, format_of(sys.stdout.buffer, form or "wav"), play)


def numbered_files(output: str | None, form: str | None, count: int) -> list[str]:
    """File names for `count` texts: a.wav gives a-001.wav, a-002.wav ..., a folder 001.wav ...

    Raises UsageError without an output file or folder.
    """
    if output in (None, STANDARD_OUTPUT):
        raise UsageError(
            "--lines writes a file for each line; name one with --output: a.wav gives a-001.wav ..."
        )
    output = expand_tilde(output)
    if os.path.isdir(output) or output.endswith(os.sep):
        begin, suffix = os.path.join(output, ""), f".{form or 'wav'}"
    else:
        stem, suffix = os.path.splitext(output)
        begin = f"{stem}-"
    width = max(3, len(str(count)))
    return [f"{begin}{number:0{width}}{suffix}" for number in range(1, count + 1)]


def check_file(output: str, form: str | None, inputs: Iterable[str]) -> str:
    """The format of an output file. Raises UsageError, OscineError if it cannot be written."""
    from oscine.audio.encode import CODECS
    from oscine.audio.write import FORMATS, format_of

    path = Path(output)
    separators = tuple(filter(None, (os.sep, os.altsep)))
    if os.path.isdir(output) or output.endswith(separators):
        raise UsageError(f"{output} is a folder; name a file in it")
    chosen = format_of(path, form)
    suffix = path.suffix.lower().removeprefix(".")
    if suffix in FORMATS and CODECS.get(suffix, suffix) != CODECS.get(chosen, chosen):
        raise UsageError(
            f"{output} does not fit --format {chosen}: leave it out, or end in .{chosen}"
        )
    lost = find_overwritten(path, file_ids(inputs)) if os.path.exists(output) else None
    if lost is not None:
        raise UsageError(f"{lost} would be overwritten by the speech; choose another --output")
    check_writable_file(path)
    return chosen


def write_speech(stream: SpeechStreamLike, out: AudioOutput) -> None:
    """Generate all speech of a stream and write it as it arrives.

    If it is interrupted, the part that was generated is kept, with a message. Raises the errors of
    the stream and the writers.
    """
    started = perf_counter()
    writers: list[Writer] = []
    try:
        with speech_progress(out) as report:
            for piece in stream:
                writers = writers or out.open(piece.rate, stream.mark)
                for writer in writers:
                    writer.write(piece.samples)
                report(writers[0].duration, stream.share)
        spent = perf_counter() - started
        for writer in writers:
            writer.close()
    except BrokenPipeError:
        abandon(writers)
        raise
    except (OscineError, KeyboardInterrupt, MemoryError):
        keep_partial(writers)
        raise
    report_end(stream, out, writers[0].duration if writers else 0.0, spent)


def keep_partial(writers: list[Writer]) -> None:
    """Complete the file with the speech so far, and stop playback."""
    try:
        for writer in writers:
            if writer.name != "loudspeaker" and writer.open and writer.duration:
                with suppress(OscineError, BrokenPipeError):  # the first error is reported instead
                    writer.close()
                    end = timestamp(writer.duration, hours=False, marker=".")
                    warn(f"{writer.name}: written as far as {end}")
    finally:
        abandon(writers)


def abandon(writers: list[Writer]) -> None:
    """Abandon all writers that are not closed."""
    for writer in writers:
        writer.abandon()


def report_end(stream: SpeechStreamLike, out: AudioOutput, duration: float, spent: float) -> None:
    """Report duration and speed on a terminal and in the log, and warn if a limit was reached."""
    speed = format_speed(duration, spent)
    if stream.first_audio is not None:
        log.info("first audio after %.0f ms", 1000 * stream.first_audio)
    told = "%s: %.1f s of speech in %.1f s, %s real time, seed %d"
    log.info(told, out.name, duration, spent, speed, stream.seed)
    if stream.limited:
        end = timestamp(duration, hours=False, marker=".")
        warn(f"{out.name}: stopped at {end}, the limit; see --max-seconds, --max-frames")
    quiet = not log.isEnabledFor(logging.INFO)
    if quiet and out.path not in (None, STANDARD_OUTPUT) and sys.stderr.isatty():
        told = f"{duration:.1f} s of speech in {spent:.1f} s ({speed} real time) -> {out.path}"
        status(told)


def format_speed(duration: float, spent: float) -> str:
    """Speed as a multiple of real time, such as "3.2x"."""
    speed = duration / spent if spent > 0 else 0.0
    return f"{speed:.1f}x" if speed >= 1 else f"{speed:.2g}x"


@contextmanager
def speech_progress(out: AudioOutput) -> Iterator[Callable[[float, float | None], None]]:
    """Context that shows progress on a terminal: share of the text, seconds of speech, speed."""
    if not sys.stderr.isatty():
        yield lambda _, __: None
        return
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn  # costs start-up time

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        TextColumn("{task.fields[made]}"),
        TimeElapsedColumn(),
    )
    with progress_bars(*columns, transient=True) as bar:
        task = bar.add_task(printable(out.name), total=None, made="")
        started = perf_counter()

        def report(seconds: float, share: float | None) -> None:
            bar.update(task, made=format_progress(seconds, share, perf_counter() - started))

        yield report


def format_progress(seconds: float, share: float | None, spent: float) -> str:
    """The text of the progress bar."""
    part = "" if share is None else f"{share:.0%} of the text, "
    return f"{part}{seconds:.1f} s of speech, {format_speed(seconds, spent)} real time"
