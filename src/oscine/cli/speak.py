"""`oscine speak`: text in, speech out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oscine import hub
from oscine.audio.suffixes import SUFFIXES
from oscine.cli import sound_out, text_in
from oscine.cli.console import ArgumentError
from oscine.cli.engine import (
    Device,
    Dtype,
    Offline,
    Precision,
    Threads,
    check_device,
    check_speaks,
    given,
    load_speaker,
    number,
    option,
    prepare_decoder,
    set_threads,
    start_log,
    tell_times,
    whole,
)
from oscine.cli.openai_style import OpenAIStyle
from oscine.cli.outputs import STANDARD_INPUT, at_home
from oscine.cli.voices import released, saved, show_voices
from oscine.errors import UsageError
from oscine.files import expanded
from oscine.models.qwen3_tts.abilities import DEFAULT_VOICE, Abilities
from oscine.models.qwen3_tts.options import ELSEWHERE, SpeakOptions
from oscine.models.qwen3_tts.voices import LISTS, is_name

if TYPE_CHECKING:
    from oscine.models.qwen3_tts.pipeline import Qwen3Tts

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

#: What is said of the speech besides SpeakOptions.
CONDITIONING = ("voice", "language", "instruct", "reference", "reference_text")
EXAMPLE = 'oscine speak "Hello there." -o hello.wav'
AFTER_DASHES = (
    'a text that begins with a dash comes after --, as in oscine speak -o cold.wav -- "-5 degrees"'
)


class SpeakStyle(OpenAIStyle):
    """Answers what is likely to be typed by mistake."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As OpenAIStyle. Raises UsageError for text without quotes and options of elsewhere."""
        try:
            return super().parse_args(ctx, args)
        except ArgumentError as error:
            typed = str(getattr(error, "option_name", ""))
            name = typed.strip("-").replace("-", "_")
            if name in ELSEWHERE:
                raise UsageError(f"there is no option {name}: {ELSEWHERE[name]}") from None
            if typed and (not typed.startswith("--") or len(typed.split()) > 1):
                problem = error.format_message().removesuffix(".")
                raise UsageError(f"{problem}; {AFTER_DASHES}") from None
            if "unexpected extra argument" in error.format_message():
                raise UsageError(f"put the text in quotes, as in {EXAMPLE}") from None
            raise


@app.command(cls=SpeakStyle, no_args_is_help=True)
def speak(
    context: typer.Context,
    text: Annotated[
        str | None,
        typer.Argument(
            metavar="TEXT",
            help="What to say, in quotes; or a file that holds it; or - for what comes through "
            "standard input. After -- it may begin with a dash.",
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Where the speech goes: a file (.wav .raw .mp3 .flac .opus .ogg .m4a .aac), or - "
            "for standard output.  [default: standard output, if that is no terminal]",
        ),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            "-f",
            metavar="FORMAT",
            help="wav, raw, mp3 ...  [default: what FILE ends in; wav on standard output]",
        ),
    ] = None,
    play: Annotated[bool, typer.Option("--play", help="Play the speech while it is made.")] = False,
    model: Annotated[
        str | None,
        option(
            "A name of `oscine models list`, or a folder.  [default: qwen3-tts-0.6b-custom-voice]",
            metavar="MODEL",
        ),
    ] = None,
    voice: Annotated[
        str | None,
        option(
            "A voice of the model's own, or for base models one that was saved; help lists them.  "
            f"[default: {DEFAULT_VOICE}, if the model has voices]",
            metavar="NAME",
        ),
    ] = None,
    language: Annotated[
        str | None,
        option(
            "Of the text: a code, or its name in English or in itself.  [default: auto, which is "
            "for the model to find out]",
            metavar="LANGUAGE",
        ),
    ] = None,
    instruct: Annotated[
        str | None,
        option(
            "How to say it, in words (1.7b-custom-voice); what the voice is like (voice-design).",
            metavar="TEXT",
        ),
    ] = None,
    reference: Annotated[
        str | None,
        option(
            "A recording whose voice is cloned, or - for stdin; 5 to 15 s (base models).",
            metavar="FILE",
        ),
    ] = None,
    reference_text: Annotated[
        str | None,
        option(
            "The words that are said in the reference, or a file that holds them: the voice gets "
            "nearer.",
            metavar="TEXT",
        ),
    ] = None,
    x_vector_only: Annotated[
        bool | None,
        option(
            "Take only the sound of the reference's voice, and not how it speaks.  [default: on "
            "without --reference-text]"
        ),
    ] = None,
    reference_silence: Annotated[
        float | None,
        option(
            "Silence after the reference, 0 to 5: against its last words being said again.  "
            "[default: 0]",
            number,
            "SECONDS",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        option("With the same number the same speech.  [default: drawn]", whole, "NUMBER"),
    ] = None,
    temperature: Annotated[
        float | None,
        option(
            "How varied the speech is: more above 1, less below.  [default: 0.9]", number, "NUMBER"
        ),
    ] = None,
    top_k: Annotated[
        int | None,
        option(
            "Choose among so many likeliest codes; 0: among all.  [default: 50]", whole, "NUMBER"
        ),
    ] = None,
    top_p: Annotated[
        float | None,
        option(
            "Choose among the likeliest codes that have this share, up to 1, of the "
            "probability.  [default: 1, all]",
            number,
            "NUMBER",
        ),
    ] = None,
    repetition_penalty: Annotated[
        float | None,
        option("Above 1: avoid codes that have been used.  [default: 1.05]", number, "NUMBER"),
    ] = None,
    do_sample: Annotated[
        bool | None,
        option(
            "Choose by chance. Without it always the likeliest code, which sounds worse.  "
            "[default: on]"
        ),
    ] = None,
    subtalker_temperature: Annotated[
        float | None,
        option("--temperature of the fine codes.  [default: 0.9]", number, "NUMBER"),
    ] = None,
    subtalker_top_k: Annotated[
        int | None, option("--top-k of the fine codes.  [default: 50]", whole, "NUMBER")
    ] = None,
    subtalker_top_p: Annotated[
        float | None, option("--top-p of the fine codes.  [default: 1]", number, "NUMBER")
    ] = None,
    subtalker_do_sample: Annotated[
        bool | None, option("--do-sample of the fine codes.  [default: on]")
    ] = None,
    max_seconds: Annotated[
        float | None,
        option(
            "Stop after so much audio, pauses too.  [default: as much as the text can take]",
            number,
            "SECONDS",
        ),
    ] = None,
    max_frames: Annotated[
        int | None, option("Stop after so many frames, of 80 ms.", whole, "NUMBER")
    ] = None,
    streamed_text: Annotated[
        bool | None,
        option(
            "Show the model the text word by word while it speaks, not at once.  [default: on "
            "when cloning]"
        ),
    ] = None,
    guard: Annotated[
        bool,
        option(
            "Notice speech that never ends, falls silent or repeats itself: say it once more, "
            "or stop there."
        ),
    ] = True,
    device: Device = "auto",
    dtype: Precision = Dtype.AUTO,
    threads: Threads = None,
    offline: Offline = False,
    verbose: Annotated[
        bool, typer.Option(help="Tell time to the first audio, speed and seed on stderr.")
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
    start_log(verbose)
    if voice == LISTS:
        show_voices(model)
        return
    if text is None:
        raise UsageError(f"there is no text; for example: {EXAMPLE}")
    if text == reference == STANDARD_INPUT:
        raise UsageError("standard input cannot be both the text and the reference")
    set_threads(threads)
    check_device(device)
    words = text_in.open_text(text)
    if reference_text is not None:
        options["reference_text"] = text_in.open_words(reference_text)
    if reference is not None:
        from oscine.audio.io import open_source  # av is slow to import

        opened = open_source(reference)
        if reference == STANDARD_INPUT:  # which can be opened once
            options["reference"] = opened
        prepare_decoder()
    if (abilities := released(model)) is not None:
        name_somebody(abilities, options)
        how = {name: options[name] for name in CONDITIONING if name in options}
        if abilities.check(saved(), chosen, **how).instruct is None:
            options.pop("instruct", None)  # or the model would tell once more that it is left out
    named = (text, reference, reference_text, voice)
    read = [at_home(str(each)) for each in named if each is not None]
    out = sound_out.choose(output, form, play, read_files(model, voice, read))
    loaded = load_speaker(model, device, dtype.value, offline=offline)
    name_somebody(loaded.abilities, options)
    say_text(loaded, words, out, options)
    tell_times(loaded)


def read_files(model: str, voice: str | None, arguments: list[str]) -> Iterator[str]:
    """What the speech must not take the place of: arguments, a saved voice, the model's own files.

    Sound that lies in a model's folder is none of these. Raises HubError for what is no model.
    """
    from oscine.models.qwen3_tts.weights import CODEC_FOLDER  # slow to import

    yield from arguments
    if voice is not None and is_name(voice):
        yield str(saved().file(voice))
    local = expanded(model)
    place: Path | None = local
    if not os.path.exists(local):
        check_speaks(model)
        place = hub.find(model)
    if place is not None:
        folder = place if os.path.isdir(place) else place.parent
        for inside in (folder, folder / CODEC_FOLDER):
            with suppress(OSError):  # what cannot be listed is told as it is loaded
                files = (each for each in inside.iterdir() if each.is_file())
                yield from (str(each) for each in files if each.suffix.lower() not in SUFFIXES)


#: Names of the options that go to the model as they are.
OPTIONS = tuple(each.name for each in fields(SpeakOptions))


def name_somebody(abilities: Abilities, options: dict[str, Any]) -> None:
    """A voice for a model with its own, where none is asked for: a command should not need one."""
    if abilities.kind == "custom_voice":
        options.setdefault("voice", abilities.default_voice)


def say_text(
    model: Qwen3Tts, text: str | Iterator[str], out: sound_out.Out, options: dict[str, Any]
) -> None:
    """One text, with somebody's voice."""
    stream = model.stream(text, **options)
    stream.hold = out.waits  # a piece of the text that goes wrong can then be said once more
    sound_out.say(stream, out)
