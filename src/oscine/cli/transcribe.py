"""`oscine transcribe`: recordings in, text or subtitles out."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from oscine.cli.common import (
    check_device,
    explicit_options,
    load_for_task,
    print_timings,
    set_threads,
    set_up_logging,
    start_decoder,
)
from oscine.cli.console import warn
from oscine.cli.inputs import find_recordings
from oscine.cli.job_pool import finish_all, several
from oscine.cli.jobs import (
    Job,
    are_writable,
    expand_tilde,
    is_readable,
    make_folder,
    pending_job,
    pending_jobs,
    plan_jobs,
)
from oscine.cli.live import LISTENING, Shown, check_live, listen
from oscine.cli.openai_style import OpenAIStyle, translated
from oscine.cli.parameters import chosen, command
from oscine.cli.results import Results
from oscine.cli.run_job import Asked
from oscine.cli.watch import Arrivals, watch
from oscine.errors import UsageError
from oscine.files import expand_user
from oscine.formats import FORMATS, SUBTITLES
from oscine.options import options_of, replaced
from oscine.options.command import Dtype, LoadOptions, TranscribeCommand
from oscine.options.layout import Layout
from oscine.options.others import ANSWERED, TAKEN
from oscine.options.transcribe import TranscribeOptions
from oscine.registry import default_model

if TYPE_CHECKING:
    from oscine.cli.common import AnyTranscriber

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

ALL = "all"  # of the formats
SMALLEST_STEP = 0.01  # of temperature: more attempts at one window are a mistake


#: What only other programs have, and what does here what it asks for.
ANSWERS = ANSWERED | {
    f"--{name.replace('_', '-')}": remedy
    for name, remedy in replaced(TranscribeOptions).items()
    if f"--{name.replace('_', '-')}" not in TAKEN
}


class TranscribeStyle(OpenAIStyle):
    """Takes what other programs call these options, and answers what they have besides."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As OpenAIStyle. Raises UsageError for an option that only another program has."""
        options: list[Any] = [each for each in self.params if each.param_type_name == "option"]
        own = {name: not each.is_flag for each in options for name in each.opts}
        return super().parse_args(ctx, translated(args, own, ANSWERS))


@command(app, TranscribeCommand, TranscribeOptions, Layout, style=TranscribeStyle)
def transcribe(
    context: typer.Context,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE",
            help="Recordings in any container FFmpeg reads, folders of them, or - for stdin.",
        ),
    ] = None,
    **given_options: Any,
) -> None:
    """Write down what recordings say.

    One recording goes to stdout and nothing else does; progress and messages go to stderr. A
    recording that cannot be read is reported, the others are done, and the exit code is 1.
    """
    # A mistake is told before anything slow begins.
    said = explicit_options(context)
    files = [expand_tilde(each) for each in files or []]
    own = chosen(TranscribeCommand, given_options)
    if own.output_dir == "":  # which Path takes for this folder
        raise UsageError("the name of the output folder is empty")
    folder = None if own.output_dir is None else expand_user(own.output_dir)
    formats = formats_of(own)
    check_files(files, own, said, formats)
    options = {name: given_options[name] for name in options_of(TranscribeOptions)}
    layout = chosen(Layout, given_options)
    increment = own.temperature_increment_on_fallback
    options["temperature"] = temperatures(options["temperature"], increment)
    check_layout(layout, formats, own.live or options["word_timestamps"])
    TranscribeOptions.of(**options, model_dir=own.model_dir)  # what this model lacks is told later
    own = replace(own, dtype=precision(own.dtype, own.fp16))
    written = FORMATS if ALL in formats else formats
    results = Results(own.overwrite)
    jobs, complete = jobs_of(files, own, written, folder, results)
    set_threads(own.threads)
    check_device(own.device)
    if folder is not None:
        make_folder(folder)
    set_up_logging(own.verbose)
    if own.live:
        told = {name: options[name] for name in LISTENING & said}
        listen(load_listener(own), files, own.latency, told, Shown(formats[0], layout))
        raise typer.Exit(0)
    start_decoder()
    asked = Asked(written[0], layout, options, verbose=own.verbose, results=results)
    if own.watch is not None:
        transcribe_arrivals(own, written, folder, asked)
    able = [job for job in jobs if is_readable(job.source) and are_writable(job.targets, folder)]
    if able:
        loaded = load_listener(own)
        complete &= finish_all(loaded, able, asked)
        print_timings(loaded)
    raise typer.Exit(0 if complete and len(able) == len(jobs) else 1)


def transcribe_arrivals(
    own: TranscribeCommand, formats: Sequence[str], output: Path | None, asked: Asked
) -> NoReturn:
    """Transcribe what arrives in a folder until Ctrl-C; what fails is told, and the rest goes on.

    What is there already is transcribed too, unless it has its results.
    """
    assert own.watch is not None
    folder = expand_tilde(own.watch)
    model = load_listener(own)
    arrivals = Arrivals(
        folder,
        lambda found: plan_jobs(found, formats, output),
        recursive=own.recursive,
        output=output,
    )

    def is_wanted(job: Job, was_there: bool) -> Job | None:
        skip = own.skip_existing or was_there
        needed = pending_job(job, asked.results, skip_existing=skip)
        if needed is None or not is_readable(job.source):
            return None
        return needed if are_writable(needed.targets, output) else None

    warn(f"watching {folder}; Ctrl-C ends this")
    with several(model, asked, model.recordings_at_once) as work:
        watch(arrivals, is_wanted, work)


def formats_of(own: TranscribeCommand) -> tuple[str, ...]:
    """Formats by name, each once, in the order in which they were given."""
    return tuple(
        dict.fromkeys(name for each in own.output_format or ["txt"] for name in each.split(","))
    )


def check_files(
    files: list[str], own: TranscribeCommand, said: frozenset[str], formats: Sequence[str]
) -> None:
    """Refuse recordings with --live and its options without it; `said`: names of what was given."""
    if own.live:
        check_live(files, said, formats)
    elif own.latency is not None:
        raise UsageError("latency needs --live")
    elif own.watch is not None:
        if files:
            raise UsageError("watch takes what is in its folder; leave out FILE")
        if not os.path.isdir(expand_tilde(own.watch)):
            raise UsageError(f"{own.watch or repr('')}: is not a folder; name the one to watch")
    elif not files:
        raise UsageError("Missing argument 'FILE...'.")


def jobs_of(
    files: list[str],
    own: TranscribeCommand,
    formats: Sequence[str],
    folder: Path | None,
    results: Results,
) -> tuple[tuple[Job, ...], bool]:
    """What there is to do before anything arrives, and whether all folders could be listed.

    Options of files with results are refused where there are no such.
    """
    if own.skip_existing and own.overwrite:
        raise UsageError("overwrite does not go with skip_existing; leave out one")
    if own.live or own.watch is not None:
        return (), True
    found = find_recordings(files, recursive=own.recursive, output=folder)
    jobs = plan_jobs(found, formats, folder)
    for name in ("skip_existing", "overwrite"):
        if getattr(own, name) and any(not job.targets for job in jobs):
            raise UsageError(f"{name} is for results in files; add --output-dir")
    return pending_jobs(jobs, results, skip_existing=own.skip_existing), found.complete


def check_layout(layout: Layout, formats: Sequence[str], word_timestamps: bool) -> None:
    """Refuse a layout that nothing would be seen of, or that lacks the words."""
    for name in layout.asked:
        if not set(formats) & {*SUBTITLES, ALL}:
            raise UsageError(f"{name} is for subtitles; add --output-format srt, vtt or all")
        if not word_timestamps and name in layout.of_words:
            raise UsageError(f"{name} needs word_timestamps; add --word-timestamps")


def temperatures(first: float, increment: float | None) -> tuple[float, ...]:
    """openai-whisper's command: from the first up to 1 in steps; no steps without an increment."""
    if increment is None:
        return (first,)
    if not SMALLEST_STEP <= increment < math.inf:
        raise UsageError(
            f"temperature_increment_on_fallback must be at least {SMALLEST_STEP}, not {increment}"
        )
    if not 0 <= first < 1:  # one attempt, or a mistake that TranscribeOptions tells
        return (first,)
    steps = int((1 - first) / increment + 1e-6)
    return tuple(round(first + step * increment, 6) for step in range(steps + 1))


def precision(dtype: Dtype, fp16: bool | None) -> Dtype:
    """--dtype, or what openai-whisper's --fp16 means by it."""
    if fp16 is None:
        return dtype
    meant: Dtype = "f16" if fp16 else "f32"
    if dtype not in ("auto", meant):
        raise UsageError(f"--fp16 {fp16} contradicts --dtype {dtype}")
    return meant


def load_listener(wanted: LoadOptions) -> AnyTranscriber:
    """A model that writes down, the default where none is named; UsageError for one that speaks."""
    name = wanted.model or default_model("transcribe")
    listener: AnyTranscriber = load_for_task("transcribe", name, wanted)
    return listener
