"""`oscine transcribe`: speech to text or subtitles."""

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
from oscine.cli.job_pool import job_pool, run_jobs
from oscine.cli.jobs import (
    Job,
    are_writable,
    expand_tilde,
    is_readable,
    make_output_folder,
    pending_job,
    pending_jobs,
    plan_jobs,
    plan_single_job,
)
from oscine.cli.live import LISTEN_OPTIONS, LiveFormat, check_live, listen
from oscine.cli.openai_style import OpenAIStyleCommand, translate_foreign
from oscine.cli.parameters import command, select_options
from oscine.cli.results import ResultStore
from oscine.cli.run_job import JobOptions
from oscine.cli.watch import FolderWatcher, watch
from oscine.errors import UsageError
from oscine.files import expand_user
from oscine.formats import FORMATS, SUBTITLE_FORMATS
from oscine.options import options_of, renamed_options
from oscine.options.aliases import ALIASES, HINTS
from oscine.options.command import Dtype, LoadOptions, TranscribeCommand
from oscine.options.layout import Layout
from oscine.options.transcribe import TranscribeOptions
from oscine.registry import default_model

if TYPE_CHECKING:
    from oscine.cli.common import AnyTranscriber

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

ALL = "all"  # all output formats
NO_INPUT_MESSAGE = (
    "no input: give a file, a folder, or - for standard input; oscine transcribe --help lists the "
    "options"
)
MIN_TEMPERATURE_STEP = 0.01  # of temperature: more attempts at one window are a mistake


#: Option that only other programs have -> what to use instead.
ALL_HINTS = HINTS | {
    f"--{name.replace('_', '-')}": remedy
    for name, remedy in renamed_options(TranscribeOptions).items()
    if f"--{name.replace('_', '-')}" not in ALIASES
}


class TranscribeStyleCommand(OpenAIStyleCommand):
    """Accepts other programs' names of options, and prints a hint for those it does not have."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse arguments. Raises UsageError for an option that only another program has."""
        options: list[Any] = [each for each in self.params if each.param_type_name == "option"]
        takes_value = {name: not each.is_flag for each in options for name in each.opts}
        return super().parse_args(ctx, translate_foreign(args, takes_value, ALL_HINTS))


@command(app, TranscribeCommand, TranscribeOptions, Layout, style=TranscribeStyleCommand)
def transcribe(
    context: typer.Context,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE",
            help="Audio or video files in any format that FFmpeg reads, folders, or - for stdin.",
        ),
    ] = None,
    **given_options: Any,
) -> None:
    """Transcribe audio and video files.

    The transcript of a single recording is printed on stdout; progress and messages go to stderr.
    A recording that cannot be read is reported and the others are transcribed; the exit code is
    then 1.
    """
    # Report mistakes before any slow work.
    explicit = explicit_options(context)
    files = [expand_tilde(each) for each in files or []]
    args = select_options(TranscribeCommand, given_options)
    if args.output_dir == "":  # which Path takes for this folder
        raise UsageError("the name of the output folder is empty")
    output = None if args.output_dir is None else expand_user(args.output_dir)
    single = named_format(args.output_dir)
    folder = output if single is None else None
    formats = parse_formats(args, single)
    check_inputs(files, args, explicit, formats)
    options = {name: given_options[name] for name in options_of(TranscribeOptions)}
    layout = select_options(Layout, given_options)
    options["temperature"] = temperature_schedule(
        options["temperature"], args.temperature_increment_on_fallback
    )
    check_layout(layout, formats, args.live or options["word_timestamps"])
    # Options that the model does not support are reported later.
    checked = TranscribeOptions.of(**options, model_dir=args.model_dir)
    args = replace(args, dtype=resolve_dtype(args.dtype, args.fp16))
    written = FORMATS if ALL in formats else formats
    results = ResultStore(args.overwrite)
    jobs, complete = find_jobs(files, args, written, output, results)
    set_threads(args.threads)
    check_device(args.device, args.memory)
    if folder is not None:
        make_output_folder(folder)
    set_up_logging(args.verbose)
    if args.live:
        listen_options = {name: options[name] for name in LISTEN_OPTIONS & explicit}
        listen(
            load_transcriber(args),
            files,
            args.latency,
            listen_options,
            LiveFormat(formats[0], layout),
        )
        raise typer.Exit(0)
    start_decoder()
    job_options = JobOptions(written[0], layout, options, verbose=args.verbose, results=results)
    if args.watch is not None:
        transcribe_watched(args, written, folder, job_options)
    track = checked.audio_track
    able = [
        job for job in jobs if is_readable(job.source, track) and are_writable(job.targets, folder)
    ]
    if able:
        loaded = load_transcriber(args)
        complete &= run_jobs(loaded, able, job_options)
        print_timings(loaded)
    raise typer.Exit(0 if complete and len(able) == len(jobs) else 1)


def transcribe_watched(
    args: TranscribeCommand,
    formats: Sequence[str],
    output: Path | None,
    job_options: JobOptions,
) -> NoReturn:
    """Transcribe recordings as they arrive in a folder, until Ctrl-C; failures are reported.

    Recordings that are there already are transcribed too, unless they have results.
    """
    assert args.watch is not None
    folder = expand_tilde(args.watch)
    model = load_transcriber(args)
    arrivals = FolderWatcher(
        folder,
        lambda found: plan_jobs(found, formats, output),
        recursive=args.recursive,
        output=output,
    )

    def is_wanted(job: Job, was_there: bool) -> Job | None:
        skip = args.skip_existing or was_there
        needed = pending_job(job, job_options.results, skip_existing=skip)
        if needed is None or not is_readable(job.source, job_options.options["audio_track"]):
            return None
        return needed if are_writable(needed.targets, output) else None

    warn(f"watching {folder}; Ctrl-C ends this")
    with job_pool(model, job_options, model.recordings_at_once) as work:
        watch(arrivals, is_wanted, work)


def named_format(output: str | None) -> str | None:
    """The format of --output-dir if that names a result file, such as talk.srt; None for a folder.

    An existing folder, and a path with a separator at its end, are folders whatever their names.
    Raises UsageError for `-`, which is no folder: without the option a text is printed.
    """
    if output == "-":
        raise UsageError('output_dir="-": leave it out, and the text goes to standard output')
    if output is None or output.endswith(("/", os.sep)) or os.path.isdir(expand_user(output)):
        return None
    suffix = Path(output).suffix.lower().removeprefix(".")
    return suffix if suffix in FORMATS else None


def parse_formats(args: TranscribeCommand, single: str | None = None) -> tuple[str, ...]:
    """Names of the output formats without duplicates, in the given order.

    `single`: the format of the one result file that --output-dir names. Raises UsageError if
    another format is given as well.
    """
    default = "txt" if single is None else single
    names = ",".join(args.output_format or ()) or default
    formats = tuple(dict.fromkeys(names.split(",")))
    if single is not None and formats != (single,):
        raise UsageError(
            f"{args.output_dir} does not fit --output-format {','.join(formats)}; leave that out, "
            "or name a folder"
        )
    return formats


def check_inputs(
    files: list[str],
    args: TranscribeCommand,
    explicit: frozenset[str],
    formats: Sequence[str],
) -> None:
    """Raise UsageError for inputs and options that contradict each other.

    `explicit`: names of the options given on the command line.
    """
    if args.live:
        check_live(files, explicit, formats)
    elif args.latency is not None:
        raise UsageError("latency needs --live")
    elif args.watch is not None:
        if files:
            raise UsageError("--watch takes the recordings of its folder; leave out FILE")
        if named_format(args.output_dir) is not None:
            raise UsageError(f"{args.output_dir} is one file; name a folder for the results")
        if not os.path.isdir(expand_tilde(args.watch)):
            raise UsageError(f"{args.watch or repr('')}: is not a folder; name the one to watch")
    elif not files:
        raise UsageError(NO_INPUT_MESSAGE)


def find_jobs(
    files: list[str],
    args: TranscribeCommand,
    formats: Sequence[str],
    output: Path | None,
    results: ResultStore,
) -> tuple[tuple[Job, ...], bool]:
    """The jobs for the inputs, and whether all folders could be listed.

    `output`: the folder for the results, or the file of the only result. Raises UsageError for
    options that only apply to result files if there are none.
    """
    if args.skip_existing and args.overwrite:
        raise UsageError("overwrite does not go with skip_existing; leave out one")
    if args.live or args.watch is not None:
        return (), True
    found = find_recordings(files, recursive=args.recursive, output=output)
    if output is not None and named_format(args.output_dir) is not None:
        jobs = plan_single_job(found, formats[0], output)
    else:
        jobs = plan_jobs(found, formats, output)
    for name in ("skip_existing", "overwrite"):
        if getattr(args, name) and any(not job.targets for job in jobs):
            raise UsageError(f"{name} is for results in files; add --output-dir")
    return pending_jobs(jobs, results, skip_existing=args.skip_existing), found.complete


def check_layout(layout: Layout, formats: Sequence[str], word_timestamps: bool) -> None:
    """Raise UsageError for layout options without a subtitle format or without word timestamps."""
    for name in layout.requested:
        if not set(formats) & {*SUBTITLE_FORMATS, ALL}:
            raise UsageError(f"{name} is for subtitles; add --output-format srt, vtt or all")
        if not word_timestamps and name in layout.needing_words:
            raise UsageError(f"{name} needs word_timestamps")


def temperature_schedule(first: float, increment: float | None) -> tuple[float, ...]:
    """Temperatures from `first` up to 1 in steps, as in openai-whisper's command."""
    if increment is None:
        return (first,)
    if not MIN_TEMPERATURE_STEP <= increment < math.inf:
        raise UsageError(
            "temperature_increment_on_fallback must be at least "
            f"{MIN_TEMPERATURE_STEP}, not {increment}"
        )
    if not 0 <= first < 1:  # one attempt, or invalid, which TranscribeOptions reports
        return (first,)
    steps = int((1 - first) / increment + 1e-6)
    return tuple(round(first + step * increment, 6) for step in range(steps + 1))


def resolve_dtype(dtype: Dtype, fp16: bool | None) -> Dtype:
    """The dtype of --dtype, or that of openai-whisper's --fp16. Raises UsageError for both."""
    if fp16 is None:
        return dtype
    meant: Dtype = "f16" if fp16 else "f32"
    if dtype not in ("auto", meant):
        raise UsageError(f"--fp16 {fp16} contradicts --dtype {dtype}")
    return meant


def load_transcriber(load_options: LoadOptions) -> AnyTranscriber:
    """Load the model of the options, or the default. Raises UsageError for one that speaks."""
    name = load_options.model or default_model("transcribe")
    listener: AnyTranscriber = load_for_task("transcribe", name, load_options)
    return listener
