"""`oscine transcribe`: recordings in, text or subtitles out."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oscine.cli.engine import (
    Device,
    Dtype,
    Offline,
    Precision,
    Threads,
    check_device,
    given,
    load_model,
    number,
    option,
    prepare_decoder,
    refuse_speaker,
    set_threads,
    start_log,
    tell_times,
    whole,
)
from oscine.cli.live import LISTENING, check_live, listen
from oscine.cli.openai_style import OpenAIStyle
from oscine.cli.outputs import are_writable, at_home, is_readable, make_folder, plan
from oscine.cli.work import Asked, finish
from oscine.errors import UsageError
from oscine.files import expanded
from oscine.formats import FORMATS, SUBTITLES
from oscine.models.parakeet.options import Segmenting
from oscine.models.whisper.options import (
    APPEND_PUNCTUATIONS,
    PREPEND_PUNCTUATIONS,
    TranscribeOptions,
)
from oscine.subtitles import Layout

if TYPE_CHECKING:
    from oscine.cli.engine import Listener

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


class Task(StrEnum):
    """What to write down."""

    TRANSCRIBE = "transcribe"
    TRANSLATE = "translate"


class OutputFormat(StrEnum):
    """oscine.formats.FORMATS, or all of them."""

    TXT = "txt"
    VTT = "vtt"
    SRT = "srt"
    TSV = "tsv"
    JSON = "json"
    ALL = "all"


def _maybe(text: str | None) -> str | None:
    """Text, or None for the word."""
    return None if text == "None" else text


def a_format(text: str) -> str:
    """One of the formats, by its name."""
    names = [each.value for each in OutputFormat]
    if text in names:
        return text
    parts = [part.strip().lower() for part in text.split(",")]
    meant = [f"-f {part}" for part in parts if part in names]
    remedy = f"; write {' '.join(meant)}" if len(meant) == len(parts) else ""
    raise typer.BadParameter(f"{text!r} is not one of {', '.join(names)}{remedy}")


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
        option("With --live: s until a word is final.  [default: 2]", number, "FLOAT"),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="A name of `oscine models list`, or a path.  [default: base]")
    ] = None,
    device: Device = "auto",
    dtype: Precision = Dtype.AUTO,
    fp16: Annotated[bool | None, option("openai-whisper's: --fp16 False is --dtype f32.")] = None,
    batch_size: Annotated[
        str | None,
        option(
            "Windows decoded side by side, up to 64; auto: what fits.  [default: 1]", _maybe, "N"
        ),
    ] = None,
    threads: Threads = None,
    offline: Offline = False,
    model_dir: Annotated[str | None, option("Refused: set OSCINE_HOME instead.")] = None,
    output_format: Annotated[
        list[str] | None,
        typer.Option(
            "--output-format",
            "-f",
            help="txt, vtt, srt, tsv, json or all; may be given again. More than one are always "
            "written to files.  [default: txt]",
            parser=a_format,
            metavar="FORMAT",
        ),
    ] = None,
    output_dir: Annotated[
        str | None,
        typer.Option(
            "--output-dir",
            "-o",
            metavar="FOLDER",
            help="Where files go. Without it one recording is written to stdout, "
            "and several recordings, a folder or `all` to files beside the recordings.",
        ),
    ] = None,
    verbose: Annotated[
        bool, typer.Option(help="Log to stderr, and show segments there as they come.")
    ] = False,
    language: Annotated[str | None, option("Code or English name; detected if not given.")] = None,
    multilingual: Annotated[bool, option("Find the language of every window.")] = False,
    language_detection_segments: Annotated[
        int, option("Most windows that are listened to for the language.")
    ] = 4,
    language_detection_threshold: Annotated[
        float | None, option("A language as likely as this is taken at once.", number, "FLOAT")
    ] = 0.5,
    task: Annotated[Task, option("Same language, or English.")] = Task.TRANSCRIBE,
    split_channels: Annotated[bool, option("Transcribe every channel apart.")] = False,
    max_audio_seconds: Annotated[
        float | None, option("Refuse recordings that are longer, s.", number, "FLOAT")
    ] = None,
    clip_timestamps: Annotated[
        str, option("Seconds start,end,start,...; the last end may be left out.")
    ] = "0",
    without_timestamps: Annotated[bool, option("Text only, one segment a window.")] = False,
    word_timestamps: Annotated[bool, option("The time of every word.")] = False,
    prepend_punctuations: Annotated[str, option("Joined to the word after.")] = (
        PREPEND_PUNCTUATIONS
    ),
    append_punctuations: Annotated[str, option("Joined to the word before.")] = (
        APPEND_PUNCTUATIONS
    ),
    max_words: Annotated[
        int | None, option("Parakeet: most words a segment.", whole, "INT")
    ] = None,
    silence_gap: Annotated[
        float | None,
        option("Parakeet: a pause, s, that ends a segment.  [default: 2]", number, "FLOAT"),
    ] = None,
    max_duration: Annotated[
        float | None, option("Parakeet: longest segment, s.  [default: 30]", number, "FLOAT")
    ] = None,
    highlight_words: Annotated[bool, option("srt, vtt: underline words in their turn.")] = False,
    max_line_width: Annotated[
        int | None, option("srt, vtt: most characters a line.", whole, "INT")
    ] = None,
    max_line_count: Annotated[
        int | None, option("srt, vtt: most lines a cue, over segments.", whole, "INT")
    ] = None,
    max_words_per_line: Annotated[
        int | None, option("srt, vtt: most words a cue.", whole, "INT")
    ] = None,
    initial_prompt: Annotated[str | None, option("Text before the first window.")] = None,
    carry_initial_prompt: Annotated[bool, option("Before every window.")] = False,
    hotwords: Annotated[str | None, option("Words that may come up, for every window.")] = None,
    condition_on_previous_text: Annotated[
        bool | None,
        option("Show each window the text before it.  [default: unless in batches]"),
    ] = None,
    prefix: Annotated[str | None, option("Words every window begins with.")] = None,
    temperature: Annotated[float, option("0: always the likeliest token.")] = 0.0,
    best_of: Annotated[
        int | None, option("Samples above temperature 0.  [default: 5]", whole, "INT")
    ] = None,
    beam_size: Annotated[
        int | None, option("Beams at temperature 0.  [default: 1, greedy]", whole, "INT")
    ] = None,
    patience: Annotated[
        float | None, option("Beams to finish, in parts of them.  [default: 1]", number, "FLOAT")
    ] = None,
    length_penalty: Annotated[
        float | None, option("0 to 1; None: the likeliest by token.", number, "FLOAT")
    ] = None,
    repetition_penalty: Annotated[float, option("Above 1: rather something new.")] = 1.0,
    no_repeat_ngram_size: Annotated[int, option("So many tokens never twice; 0: may be.")] = 0,
    seed: Annotated[int, option("Of the random numbers above temperature 0.")] = 0,
    suppress_tokens: Annotated[
        str, option("Ids never picked; -1: brackets, notes and the like.")
    ] = "-1",
    suppress_blank: Annotated[bool, option("No blank beginning.")] = True,
    max_initial_timestamp: Annotated[
        float | None, option("Latest first timestamp, s.", number, "FLOAT")
    ] = 1.0,
    sample_len: Annotated[
        int | None, option("Most tokens a window.  [default: 224]", whole, "INT")
    ] = None,
    temperature_increment_on_fallback: Annotated[
        float | None, option("Steps up to 1; None: never try again.", number, "FLOAT")
    ] = 0.2,
    compression_ratio_threshold: Annotated[
        float | None, option("Above it: repetitive.", number, "FLOAT")
    ] = 2.4,
    logprob_threshold: Annotated[
        float | None, option("Below it: unlikely.", number, "FLOAT")
    ] = -1.0,
    no_speech_threshold: Annotated[
        float | None, option("Above it, if unlikely too: silence.", number, "FLOAT")
    ] = 0.6,
    hallucination_silence_threshold: Annotated[
        float | None,
        option("With words: made-up text in longer silence, s, is left out.", number, "FLOAT"),
    ] = None,
    vad_filter: Annotated[
        bool,
        typer.Option(
            "--vad-filter/--no-vad-filter", " /--no-vad", help="Only where speech is detected."
        ),
    ] = True,
    vad_threshold: Annotated[float, option("Likelier than this: speech.")] = 0.5,
    vad_neg_threshold: Annotated[
        float | None,
        option("Less likely: no longer.  [default: 0.15 below]", number, "FLOAT"),
    ] = None,
    vad_min_speech_duration_ms: Annotated[int, option("Shorter speech is left out.")] = 0,
    vad_max_speech_duration_s: Annotated[float, option("Longer speech is cut.")] = math.inf,
    vad_min_silence_duration_ms: Annotated[int, option("Shorter silence is kept.")] = 2000,
    vad_speech_pad_ms: Annotated[int, option("Kept on either side of speech.")] = 400,
) -> None:
    """Write down what recordings say.

    One recording goes to stdout and nothing else does; progress and messages go to stderr. A
    recording that cannot be read is reported and the rest go on; the exit code is then 1.
    """
    # A mistake is told before anything slow begins.
    said = given(context)
    files = [at_home(each) for each in files or []]
    if output_dir == "":  # which Path takes for this folder
        raise UsageError("the name of the output folder is empty")
    folder = None if output_dir is None else expanded(output_dir)
    if live:
        check_live(files, said)
    elif latency is not None:
        raise UsageError("latency needs --live")
    elif not files:
        raise UsageError("Missing argument 'FILE...'.")
    options = {name: value for name, value in context.params.items() if name not in OWN}
    layout = Layout(**{each.name: options.pop(each.name) for each in fields(Layout)})
    increment = options.pop("temperature_increment_on_fallback")
    options["temperature"] = temperatures(temperature, increment)
    formats = tuple(dict.fromkeys(output_format or [OutputFormat.TXT.value]))
    check_layout(layout, formats, word_timestamps)
    check_options(options)
    stored = precision(dtype, fp16)
    written = FORMATS if OutputFormat.ALL in formats else formats
    jobs = () if live else plan(files, written, folder)
    set_threads(threads)
    check_device(device)
    if folder is not None:
        make_folder(folder)
    start_log(verbose)
    if live:
        loaded = load_listener(model, device, stored, offline=offline)
        listen(loaded, files, latency, {name: options[name] for name in LISTENING & said})
        raise typer.Exit(0)
    prepare_decoder()
    able = [job for job in jobs if is_readable(job.source) and are_writable(job.targets)]
    done = []
    if able:
        loaded = load_listener(model, device, stored, offline=offline)
        asked = Asked(written[0], layout, options, verbose=verbose)
        done = [finish(loaded, job, asked) for job in able]
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


def check_layout(layout: Layout, formats: Sequence[str], word_timestamps: bool) -> None:
    """Refuse a layout that nothing would be seen of, or that lacks the words."""
    for name in layout.asked:
        if not set(formats) & {*SUBTITLES, OutputFormat.ALL}:
            raise UsageError(f"{name} is for subtitles; add --output-format srt, vtt or all")
        if not word_timestamps:
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


def precision(dtype: Dtype, fp16: bool | None) -> str:
    """--dtype, or what openai-whisper's --fp16 means by it."""
    if fp16 is None:
        return dtype.value
    meant = Dtype.F16 if fp16 else Dtype.F32
    if dtype not in (Dtype.AUTO, meant):
        raise UsageError(f"--fp16 {fp16} contradicts --dtype {dtype.value}")
    return meant.value


def load_listener(name: str | None, device: str, dtype: str, *, offline: bool) -> Listener:
    """A model that writes down, `base` where none is named; UsageError for one that speaks."""
    from oscine import hub

    name = name or hub.DEFAULT_MODEL
    if name in hub.QWEN3_TTS and not os.path.exists(expanded(name)):
        raise refuse_speaker(name)
    loaded: Any = load_model(name, device, dtype, offline=offline)
    if hasattr(loaded, "speak"):
        raise refuse_speaker(name)
    listener: Listener = loaded
    return listener
