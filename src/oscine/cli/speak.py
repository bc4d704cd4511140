"""`oscine speak`: text in, speech out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oscine import hub
from oscine.cli import sound_out, text_in
from oscine.cli.engine import (
    Device,
    Dtype,
    Offline,
    Precision,
    Threads,
    check_device,
    check_speaks,
    given,
    load_model,
    number,
    option,
    refuse_listener,
    set_threads,
    start_log,
    tell_times,
    whole,
)
from oscine.cli.openai_style import OpenAIStyle
from oscine.cli.outputs import STANDARD_INPUT
from oscine.cli.voices import released, saved, show_voices
from oscine.errors import UsageError
from oscine.models.qwen3_tts.abilities import DEFAULT_VOICE
from oscine.models.qwen3_tts.options import SpeakOptions

if TYPE_CHECKING:
    from oscine.models.qwen3_tts.pipeline import Qwen3Tts

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

#: What is said of the speech besides SpeakOptions.
CONDITIONING = ("voice", "language", "instruct", "reference", "reference_text")
HELP = "help"
EXAMPLE = 'oscine speak "Hello there." -o hello.wav'


@app.command(cls=OpenAIStyle, no_args_is_help=True)
def speak(
    context: typer.Context,
    text: Annotated[
        str | None,
        typer.Argument(
            metavar="TEXT", help="What to say; a file that says it; or - for stdin, as it comes."
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            help="A file (.wav .raw .mp3 .flac .opus .ogg .m4a .aac), or - for stdout, which it "
            "also is without this where that is no terminal.",
        ),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format", "-f", help="Instead of what the suffix says; on stdout wav or another."
        ),
    ] = None,
    play: Annotated[
        bool, typer.Option("--play", help="Let it be heard while it is made (extra `play`).")
    ] = False,
    model: Annotated[
        str | None,
        option(
            "A name of `oscine models list`, or a path.  [default: qwen3-tts-0.6b-custom-voice]"
        ),
    ] = None,
    voice: Annotated[
        str | None,
        option(
            "One of the model's speakers, or a voice that was saved; help: list them.  "
            f"[default: {DEFAULT_VOICE}, where the model has speakers]"
        ),
    ] = None,
    language: Annotated[
        str | None, option("Code or English name.  [default: auto, the text's own]")
    ] = None,
    instruct: Annotated[
        str | None, option("How to say it; for voice design: what voice says it.")
    ] = None,
    reference: Annotated[
        Path | None, option("A recording to take the voice of (base models).")
    ] = None,
    reference_text: Annotated[
        str | None, option("What it says: the voice gets nearer to it.")
    ] = None,
    x_vector_only: Annotated[
        bool | None, option("Take only the sound of the voice.  [default: without its text]")
    ] = None,
    reference_silence: Annotated[
        float | None, option("Seconds of silence put after it.  [default: 0]", number, "FLOAT")
    ] = None,
    seed: Annotated[
        int | None, option("The same seed, the same speech.  [default: drawn]", whole, "INT")
    ] = None,
    temperature: Annotated[
        float | None, option("Above 0: how freely to choose.  [default: 0.9]", number, "FLOAT")
    ] = None,
    top_k: Annotated[
        int | None, option("Of so many likeliest; 0: all.  [default: 50]", whole, "INT")
    ] = None,
    top_p: Annotated[
        float | None, option("Of the likeliest with this share.  [default: 1]", number, "FLOAT")
    ] = None,
    repetition_penalty: Annotated[
        float | None, option("Above 1: less of the same.  [default: 1.05]", number, "FLOAT")
    ] = None,
    do_sample: Annotated[
        bool | None, option("Off: always the likeliest, which sounds worse.  [default: on]")
    ] = None,
    subtalker_temperature: Annotated[
        float | None, option("The same for the fine codes.", number, "FLOAT")
    ] = None,
    subtalker_top_k: Annotated[
        int | None, option("The same for the fine codes.", whole, "INT")
    ] = None,
    subtalker_top_p: Annotated[
        float | None, option("The same for the fine codes.", number, "FLOAT")
    ] = None,
    subtalker_do_sample: Annotated[bool | None, option("The same for the fine codes.")] = None,
    max_seconds: Annotated[
        float | None,
        option("Most speech in all.  [default: bounded by the text]", number, "FLOAT"),
    ] = None,
    max_frames: Annotated[int | None, option("The same in frames of 80 ms.", whole, "INT")] = None,
    streamed_text: Annotated[
        bool | None,
        option("Hear the text while speaking.  [default: when cloning]"),
    ] = None,
    guard: Annotated[
        bool, option("Watch for an end that never comes, silence, repetition.")
    ] = True,
    device: Device = "auto",
    dtype: Precision = Dtype.AUTO,
    threads: Threads = None,
    offline: Offline = False,
    verbose: Annotated[
        bool, typer.Option(help="Log to stderr: time to the first audio, speed, seed.")
    ] = False,
) -> None:
    """Say a text.

    The speech goes to a file, a pipe or the loudspeaker, and nothing else does; progress and
    messages go to stderr. Of what is interrupted, the part that was spoken is kept.
    """
    # A mistake is told before anything slow begins.
    said = given(context)
    options = {name: context.params[name] for name in (*CONDITIONING, *OPTIONS) if name in said}
    chosen = SpeakOptions.of(**{name: options[name] for name in options if name in OPTIONS})
    model = model or hub.DEFAULT_VOICE_MODEL
    if voice == HELP:
        start_log(verbose)
        show_voices(model)
        return
    if text is None:
        raise UsageError(f"there is no text; for example: {EXAMPLE}")
    if text == str(reference) == STANDARD_INPUT:
        raise UsageError("standard input cannot be both the text and the reference")
    set_threads(threads)
    check_device(device)
    words = text_in.open_text(text)
    if reference is not None:
        from oscine.audio.io import open_source  # av is slow to import

        open_source(reference)
    if (abilities := released(model)) is not None:
        how = {name: options[name] for name in CONDITIONING if name in options}
        abilities.check(saved(), chosen, **how)
    out = sound_out.choose(output, form, play)
    start_log(verbose)
    loaded = load_speaker(model, device, dtype.value, offline=offline)
    say_text(loaded, words, out, options)
    tell_times(loaded)


#: Names of the options that go to the model as they are.
OPTIONS = tuple(each.name for each in fields(SpeakOptions))


def say_text(
    model: Qwen3Tts, text: str | Iterator[str], out: sound_out.Out, options: dict[str, Any]
) -> None:
    """One text, with somebody's voice."""
    if (reference := options.pop("reference", None)) is not None:
        options["reference"] = str(reference)
    stream = model.stream(text, **options)
    stream.hold = out.waits  # a piece of the text that goes wrong can then be said once more
    sound_out.say(stream, out)


def load_speaker(name: str, device: str, dtype: str, *, offline: bool) -> Qwen3Tts:
    """A model that speaks; UsageError for one that writes down, before it is fetched if known."""
    if not os.path.exists(hub.expanded(name)):
        check_speaks(name)
    loaded: Any = load_model(name, device, dtype, offline=offline)
    if not hasattr(loaded, "speak"):
        raise refuse_listener(name)
    speaker: Qwen3Tts = loaded
    return speaker
