"""`oscine transcribe`: recordings in, text or subtitles out."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Mapping
from dataclasses import fields
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oscine.cli.live import LISTENING, check_live, listen
from oscine.cli.openai_style import OpenAIStyle
from oscine.cli.outputs import are_writable, is_readable, make_folder, plan
from oscine.cli.work import Asked, finish, tell_times
from oscine.errors import UsageError
from oscine.formats import FORMATS, SUBTITLES
from oscine.models.parakeet.options import Segmenting
from oscine.models.whisper.options import (
    APPEND_PUNCTUATIONS,
    PREPEND_PUNCTUATIONS,
    TranscribeOptions,
)
from oscine.subtitles import Layout
from oscine.threads import count, set_count

if TYPE_CHECKING:
    from oscine.loading import Model

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


class Task(StrEnum):
    """What to write down."""

    TRANSCRIBE = "transcribe"
    TRANSLATE = "translate"


class Dtype(StrEnum):
    """How weights are held."""

    AUTO = "auto"
    F32 = "f32"
    F16 = "f16"


class OutputFormat(StrEnum):
    """oscine.formats.FORMATS, or all of them."""

    TXT = "txt"
    VTT = "vtt"
    SRT = "srt"
    TSV = "tsv"
    JSON = "json"
    ALL = "all"


def _number(text: str | float | None) -> float | None:
    """A number, or None for the word, as openai-whisper's optional_float."""
    if text is None or text == "None":
        return None
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a number or None") from None


def _whole(text: str | int | None) -> int | None:
    """A whole number, or None for the word."""
    if text is None or text == "None":
        return None
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a whole number or None") from None


def _maybe(text: str | None) -> str | None:
    """Text, or None for the word."""
    return None if text == "None" else text


def _option(help_text: str, parser: Any = None, metavar: str | None = None) -> Any:
    return typer.Option(help=help_text, parser=parser, metavar=metavar)


SMALLEST_STEP = 0.01  # of temperature: more attempts at one window are a mistake


@app.command(cls=OpenAIStyle, no_args_is_help=True)
def transcribe(
    context: typer.Context,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE...",
            help="Recordings in any container FFmpeg reads, folders of them, or - for stdin.",
        ),
    ] = None,
    live: Annotated[
        bool,
        typer.Option(
            "--live",
            help="Write words as they are said: of the microphone, or of raw 16-bit samples at "
            "16 kHz on stdin, where FILE is -.",
        ),
    ] = False,
    latency: Annotated[
        float | None,
        _option("With --live: s until a word is final.  [default: 2]", _number, "FLOAT"),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="A name of `oscine models list`, or a path.  [default: base]")
    ] = None,
    device: Annotated[
        str, typer.Option(help="auto, cpu, gpu, gpu:N, or part of an adapter's name.")
    ] = "auto",
    dtype: Annotated[Dtype, typer.Option(help="How weights are held.")] = Dtype.AUTO,
    fp16: Annotated[bool | None, _option("openai-whisper's: --fp16 False is --dtype f32.")] = None,
    batch_size: Annotated[
        str | None,
        _option(
            "Windows decoded side by side, up to 64; auto: what fits.  [default: 1]", _maybe, "N"
        ),
    ] = None,
    threads: Annotated[
        int | None,
        _option("Cores that NumPy work takes; 0: all (also OSCINE_THREADS).", _whole, "INT"),
    ] = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Fetch nothing (also OSCINE_OFFLINE=1).")
    ] = False,
    model_dir: Annotated[str | None, _option("Refused: set OSCINE_HOME instead.")] = None,
    output_format: Annotated[
        OutputFormat,
        typer.Option("--output-format", "-f", help="`all` always writes files."),
    ] = OutputFormat.TXT,
    output_dir: Annotated[
        Path | None,
        typer.Option(
            "--output-dir",
            "-o",
            help="Where files go. Without it one recording is written to stdout, "
            "and several recordings, a folder or `all` to files beside the recordings.",
        ),
    ] = None,
    verbose: Annotated[
        bool, typer.Option(help="Log to stderr, and show segments there as they come.")
    ] = False,
    language: Annotated[str | None, _option("Code or English name; detected if not given.")] = None,
    multilingual: Annotated[bool, _option("Find the language of every window.")] = False,
    language_detection_segments: Annotated[
        int, _option("Most windows that are listened to for the language.")
    ] = 4,
    language_detection_threshold: Annotated[
        float | None, _option("A language as likely as this is taken at once.", _number, "FLOAT")
    ] = 0.5,
    task: Annotated[Task, _option("Same language, or English.")] = Task.TRANSCRIBE,
    split_channels: Annotated[bool, _option("Transcribe every channel apart.")] = False,
    clip_timestamps: Annotated[
        str, _option("Seconds start,end,start,...; the last end may be left out.")
    ] = "0",
    without_timestamps: Annotated[bool, _option("Text only, one segment a window.")] = False,
    word_timestamps: Annotated[bool, _option("The time of every word.")] = False,
    prepend_punctuations: Annotated[str, _option("Joined to the word after.")] = (
        PREPEND_PUNCTUATIONS
    ),
    append_punctuations: Annotated[str, _option("Joined to the word before.")] = (
        APPEND_PUNCTUATIONS
    ),
    max_words: Annotated[
        int | None, _option("Parakeet: most words a segment.", _whole, "INT")
    ] = None,
    silence_gap: Annotated[
        float | None,
        _option("Parakeet: a pause, s, that ends a segment.  [default: 2]", _number, "FLOAT"),
    ] = None,
    max_duration: Annotated[
        float | None, _option("Parakeet: longest segment, s.  [default: 30]", _number, "FLOAT")
    ] = None,
    highlight_words: Annotated[bool, _option("srt, vtt: underline words in their turn.")] = False,
    max_line_width: Annotated[
        int | None, _option("srt, vtt: most characters a line.", _whole, "INT")
    ] = None,
    max_line_count: Annotated[
        int | None, _option("srt, vtt: most lines a cue, over segments.", _whole, "INT")
    ] = None,
    max_words_per_line: Annotated[
        int | None, _option("srt, vtt: most words a cue.", _whole, "INT")
    ] = None,
    initial_prompt: Annotated[str | None, _option("Text before the first window.")] = None,
    carry_initial_prompt: Annotated[bool, _option("Before every window.")] = False,
    hotwords: Annotated[str | None, _option("Words that may come up, for every window.")] = None,
    condition_on_previous_text: Annotated[
        bool | None,
        _option("Show each window the text before it.  [default: unless in batches]"),
    ] = None,
    prefix: Annotated[str | None, _option("Words every window begins with.")] = None,
    temperature: Annotated[float, _option("0: always the likeliest token.")] = 0.0,
    best_of: Annotated[
        int | None, _option("Samples above temperature 0.  [default: 5]", _whole, "INT")
    ] = None,
    beam_size: Annotated[
        int | None, _option("Beams at temperature 0.  [default: 1, greedy]", _whole, "INT")
    ] = None,
    patience: Annotated[
        float | None, _option("Beams to finish, in parts of them.  [default: 1]", _number, "FLOAT")
    ] = None,
    length_penalty: Annotated[
        float | None, _option("0 to 1; None: the likeliest by token.", _number, "FLOAT")
    ] = None,
    repetition_penalty: Annotated[float, _option("Above 1: rather something new.")] = 1.0,
    no_repeat_ngram_size: Annotated[int, _option("So many tokens never twice; 0: may be.")] = 0,
    seed: Annotated[int, _option("Of the random numbers above temperature 0.")] = 0,
    suppress_tokens: Annotated[
        str, _option("Ids never picked; -1: brackets, notes and the like.")
    ] = "-1",
    suppress_blank: Annotated[bool, _option("No blank beginning.")] = True,
    max_initial_timestamp: Annotated[
        float | None, _option("Latest first timestamp, s.", _number, "FLOAT")
    ] = 1.0,
    sample_len: Annotated[
        int | None, _option("Most tokens a window.  [default: 224]", _whole, "INT")
    ] = None,
    temperature_increment_on_fallback: Annotated[
        float | None, _option("Steps up to 1; None: never try again.", _number, "FLOAT")
    ] = 0.2,
    compression_ratio_threshold: Annotated[
        float | None, _option("Above it: repetitive.", _number, "FLOAT")
    ] = 2.4,
    logprob_threshold: Annotated[
        float | None, _option("Below it: unlikely.", _number, "FLOAT")
    ] = -1.0,
    no_speech_threshold: Annotated[
        float | None, _option("Above it, if unlikely too: silence.", _number, "FLOAT")
    ] = 0.6,
    hallucination_silence_threshold: Annotated[
        float | None,
        _option("With words: made-up text in longer silence, s, is left out.", _number, "FLOAT"),
    ] = None,
    vad_filter: Annotated[
        bool,
        typer.Option(
            "--vad-filter/--no-vad-filter", " /--no-vad", help="Only where speech is detected."
        ),
    ] = True,
    vad_threshold: Annotated[float, _option("Likelier than this: speech.")] = 0.5,
    vad_neg_threshold: Annotated[
        float | None,
        _option("Less likely: no longer.  [default: 0.15 below]", _number, "FLOAT"),
    ] = None,
    vad_min_speech_duration_ms: Annotated[int, _option("Shorter speech is left out.")] = 0,
    vad_max_speech_duration_s: Annotated[float, _option("Longer speech is cut.")] = math.inf,
    vad_min_silence_duration_ms: Annotated[int, _option("Shorter silence is kept.")] = 2000,
    vad_speech_pad_ms: Annotated[int, _option("Kept on either side of speech.")] = 400,
) -> None:
    """Write down what recordings say.

    One recording goes to stdout and nothing else does; progress and messages go to stderr. A
    recording that cannot be read is reported and the rest go on; the exit code is then 1.
    """
    # A mistake is told before anything slow begins.
    given = frozenset(
        name
        for name in context.params
        if getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"
    )
    if live:
        check_live(files or [], given)
    elif latency is not None:
        raise UsageError("latency needs --live")
    elif not files:
        raise UsageError("Missing argument 'FILE...'.")
    options = {name: value for name, value in context.params.items() if name not in OWN}
    layout = Layout(**{each.name: options.pop(each.name) for each in fields(Layout)})
    increment = options.pop("temperature_increment_on_fallback")
    options["temperature"] = temperatures(temperature, increment)
    check_layout(layout, output_format, word_timestamps)
    check_options(options)
    stored = precision(dtype, fp16)
    chosen = output_format.value
    jobs = () if live else plan(files or [], FORMATS if chosen == "all" else (chosen,), output_dir)
    set_threads(threads)
    check_device(device)
    if output_dir is not None:
        make_folder(output_dir)
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING, format="oscine: %(message)s"
    )
    if live:
        loaded = load_model(model, device, stored, offline=offline)
        listen(loaded, files or [], latency, {name: options[name] for name in LISTENING & given})
        raise typer.Exit(0)
    able = [job for job in jobs if is_readable(job.source) and are_writable(job.targets)]
    done = []
    if able:
        loaded = load_model(model, device, stored, offline=offline)
        asked = Asked(chosen, layout, options, verbose=verbose)
        done = [finish(loaded, job, asked) for job in able]
        if os.environ.get("OSCINE_TRACE", "0") not in ("", "0"):
            tell_times(loaded)
    raise typer.Exit(0 if all(done) and len(able) == len(jobs) else 1)


#: Parameters that are no options of a transcription.
OWN = frozenset(
    "files live latency model device dtype fp16 threads offline "
    "output_format output_dir verbose".split()
)


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse what no model can carry out; what this one cannot, is told once it is known."""
    segmenting = {each.name: options[each.name] for each in fields(Segmenting)}
    Segmenting.of(**segmenting)
    TranscribeOptions.of(**{name: options[name] for name in options.keys() - segmenting.keys()})


def check_layout(layout: Layout, output_format: OutputFormat, word_timestamps: bool) -> None:
    """Refuse a layout that nothing would be seen of, or that lacks the words."""
    for name in layout.asked:
        if output_format not in (*SUBTITLES, OutputFormat.ALL):
            raise UsageError(f"{name} is for subtitles; add --output-format srt, vtt or all")
        if not word_timestamps:
            raise UsageError(f"{name} needs word_timestamps; add --word-timestamps")


def set_threads(number: int | None) -> None:
    """--threads, or a look at whether OSCINE_THREADS is a number."""
    if number is None:
        count()
    else:
        set_count(number)


def check_device(device: str) -> None:
    """Refuse what is known to be no device without looking for any."""
    if device not in ("auto", "cpu") or "OSCINE_DEVICE" in os.environ:
        from oscine.loading import wanted_device  # slow to import

        wanted_device(device)


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


def precision(dtype: Dtype, fp16: bool | None) -> str:
    """--dtype, or what openai-whisper's --fp16 means by it."""
    if fp16 is None:
        return dtype.value
    meant = Dtype.F16 if fp16 else Dtype.F32
    if dtype not in (Dtype.AUTO, meant):
        raise UsageError(f"--fp16 {fp16} contradicts --dtype {dtype.value}")
    return meant.value


def load_model(name: str | None, device: str, dtype: str, *, offline: bool) -> Model:
    """Load by name or path, showing what is fetched.

    Imports here, as a wrong option should not wait for them.
    """
    import oscine
    from oscine import hub

    name = name or hub.DEFAULT_MODEL
    if not os.path.exists(name) and hub.find(name) is None and not hub.is_offline(offline):
        from oscine.cli.models import download_bars

        with download_bars() as report:
            hub.resolve(name, progress=report)
    return oscine.load(name, device=device, dtype=dtype, offline=offline)
