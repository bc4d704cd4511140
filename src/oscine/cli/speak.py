"""`oscine speak`: text to speech."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from oscine import hub, registry
from oscine.audio.file_types import SUFFIXES
from oscine.cli import audio_output, text_input, word_times
from oscine.cli.common import (
    check_device,
    explicit_options,
    load_for_task,
    print_timings,
    require_task,
    set_threads,
    set_up_logging,
    start_decoder,
)
from oscine.cli.console import ArgumentError, warn
from oscine.cli.inputs import STANDARD_INPUT
from oscine.cli.jobs import expand_tilde
from oscine.cli.openai_style import OpenAIStyleCommand
from oscine.cli.parameters import command, select_options
from oscine.cli.voices import (
    all_voice_stores,
    print_voices_and_languages,
    released_capabilities,
    saved_voices,
)
from oscine.errors import OscineError, UsageError
from oscine.family import LIST_VOICES, Capabilities, SpeechModel
from oscine.files import expand_user
from oscine.options import options_of, renamed_options
from oscine.options.command import SpeakCommand
from oscine.options.speak import SpeakOptions, VoiceOptions

if TYPE_CHECKING:
    from oscine.audio.io import Source

Text: TypeAlias = str | Iterator[str]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

EXAMPLE = 'oscine speak "Hello there." -o hello.wav'
NO_INPUT_MESSAGE = (
    "no input: give a text in quotes, a text file, or - for standard input, as in "
    f"{EXAMPLE}; oscine speak --help lists the options"
)
DASH_HINT = (
    'a text that begins with a dash comes after --, as in oscine speak -o cold.wav -- "-5 degrees"'
)


class SpeakStyleCommand(OpenAIStyleCommand):
    """Explains likely mistakes: text without quotes, and options of other programs."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse arguments. Raises UsageError for text without quotes and unsupported options."""
        try:
            return super().parse_args(ctx, args)
        except ArgumentError as error:
            typed = str(getattr(error, "option_name", ""))
            name = typed.strip("-").replace("-", "_")
            if name in (remedies := renamed_options(SpeakOptions)):
                raise UsageError(f"there is no option {name}: {remedies[name]}") from None
            if typed and (not typed.startswith("--") or len(typed.split()) > 1):
                problem = error.format_message().removesuffix(".")
                raise UsageError(f"{problem}; {DASH_HINT}") from None
            if "unexpected extra argument" in error.format_message():
                raise UsageError(f"put the text in quotes, as in {EXAMPLE}") from None
            raise


@command(app, SpeakCommand, VoiceOptions, SpeakOptions, style=SpeakStyleCommand)
def speak(
    context: typer.Context,
    text: Annotated[
        str | None,
        typer.Argument(
            metavar="TEXT",
            help="Text in quotes, a text file, or - for stdin. A text that begins with a dash "
            "comes after --.",
        ),
    ] = None,
    **given_options: Any,
) -> None:
    """Synthesize speech from text.

    The speech is written to a file or stdout, or played; progress and messages go to stderr. If
    the command is interrupted, the speech generated so far is kept.
    """
    # Report mistakes before any slow work.
    explicit = {
        name: given_options[name] for name in explicit_options(context) if name in given_options
    }
    voice_args = {name: explicit[name] for name in options_of(VoiceOptions) if name in explicit}
    options = {name: explicit[name] for name in options_of(SpeakOptions) if name in explicit}
    checked = SpeakOptions.of(**options)
    args = select_options(SpeakCommand, given_options)
    voice_options = select_options(VoiceOptions, given_options)
    model = args.model or registry.default_model("speak")
    set_up_logging(args.verbose)
    if voice_options.voice == LIST_VOICES:
        print_voices_and_languages(model)
        return
    if text is None:
        raise UsageError(NO_INPUT_MESSAGE)
    if text == voice_options.reference == STANDARD_INPUT:
        raise UsageError("standard input cannot be both the text and the reference")
    set_threads(args.threads)
    check_device(args.device, args.memory)
    texts, targets = plan_texts(text, args)
    if voice_options.reference_text is not None:
        voice_args["reference_text"] = text_input.open_reference_text(voice_options.reference_text)
    opened: Source | None = None
    if voice_options.reference is not None:
        from oscine.audio.io import check_contents, open_source  # av is slow to import

        opened = open_source(voice_options.reference)
        if voice_options.reference == STANDARD_INPUT:  # which can be opened once
            voice_args["reference"] = opened
        start_decoder()
    if (capabilities := released_capabilities(model)) is not None:
        apply_default_voice(capabilities, voice_args)
        if capabilities.check(saved_voices(model), checked, **voice_args).instruct is None:
            voice_args.pop("instruct", None)  # or the model would warn again that it is ignored
    times, outputs = plan_outputs(model, text, args, voice_options, targets)
    if opened is not None:
        check_contents(opened)
    loaded = load_for_task("speak", model, args)
    apply_default_voice(loaded.capabilities, voice_args)
    speak_all(loaded, texts, outputs, voice_args | options, times)
    print_timings(loaded)


def plan_texts(text: str, args: SpeakCommand) -> tuple[list[tuple[int, Text]], list[str | None]]:
    """The texts to speak, each with its line number (0: the whole text), and their output files."""
    words = text_input.open_text(text, plain=args.plain and not args.lines)
    if not args.lines:
        return [(0, words)], [args.output]
    lines = text_input.split_lines(words, plain=args.plain)
    return [*lines], [*audio_output.numbered_files(args.output, args.format, len(lines))]


def plan_outputs(
    model: str,
    text: str,
    args: SpeakCommand,
    voice_options: VoiceOptions,
    targets: list[str | None],
) -> tuple[word_times.WordTimes | None, list[audio_output.AudioOutput]]:
    """The word times and the outputs of all texts, checked before any slow work.

    Raises UsageError and OscineError, as `plan_word_times` and `plan_output` do.
    """
    named = (text, voice_options.reference, voice_options.reference_text, voice_options.voice)
    read = [expand_tilde(str(each)) for each in named if each is not None]
    inputs = list(protected_files(model, voice_options.voice, read))
    times = word_times.plan_word_times(args, inputs)
    planned = (audio_output.plan_output(each, args.format, args.play, inputs) for each in targets)
    return times, [replace(out, marked=args.mark) for out in planned]


def protected_files(model: str, voice: str | None, arguments: list[str]) -> Iterator[str]:
    """Files that the speech must not overwrite: arguments, a saved voice, the model's files.

    Audio files in a model's folder are not protected. Raises HubError for an unknown model.
    """
    yield from arguments
    if voice is not None:
        with suppress(UsageError):  # a path, not the name of a voice
            yield from (str(store.path_of(voice)) for store in all_voice_stores())
    local = expand_user(model)
    place: Path | None = local
    if not os.path.exists(local):
        require_task(model, "speak")
        place = hub.find_local(model)
    if place is not None:
        folder = place if os.path.isdir(place) else place.parent
        more = (file for family in registry.families("speak") for file in family.files)
        for inside in (folder, *(folder / file for file in more if file.endswith("/"))):
            with suppress(OSError):  # reported when the model is loaded
                files = (each for each in inside.iterdir() if each.is_file())
                yield from (str(each) for each in files if each.suffix.lower() not in SUFFIXES)


def apply_default_voice(capabilities: Capabilities, options: dict[str, Any]) -> None:
    """Set the model's default voice, if it has one and none is given."""
    if capabilities.default_voice is not None:
        options.setdefault("voice", capabilities.default_voice)


def speak_all(
    model: SpeechModel,
    texts: list[tuple[int, Text]],
    outputs: list[audio_output.AudioOutput],
    options: dict[str, Any],
    times: word_times.WordTimes | None = None,
) -> None:
    """Speak each text into its output; a line that fails is reported, and the others are spoken.

    Raises OscineError at the end if any line failed; a single text raises its own error.
    """
    if times is not None:
        times.load(options.get("language"))
    numbers = [number for number, _ in texts]
    if any(numbers) and (reference := options.pop("reference", None)) is not None:
        words, silence = options.pop("reference_text", None), options.pop("reference_silence", 0.0)
        options["voice"] = model.voice_of(reference, words, silence=silence)  # encoded only once
    failed = 0
    for (number, text), out in zip(texts, outputs, strict=True):
        try:
            speak_text(model, text, out, options, times)
        except OscineError as error:
            if not number:
                raise
            warn(f"line {number}, {out.name}: {error}")
            failed += 1
    if failed:
        raise OscineError(f"{failed} of {len(texts)} lines could not be spoken")


def speak_text(
    model: SpeechModel,
    text: Text,
    out: audio_output.AudioOutput,
    options: dict[str, Any],
    times: word_times.WordTimes | None,
) -> None:
    """Speak one text; `times`: where its word times are written."""
    stream = model.stream(text, **options)
    stream.buffer_pieces = out.waits  # a piece of the text can then be generated again if it fails
    if times is None:
        audio_output.write_speech(stream, out)
        return
    kept: Any = word_times.BufferedStream(stream)
    audio_output.write_speech(kept, out)
    times.write(kept)
