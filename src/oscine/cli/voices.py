"""`oscine voices`: keep a voice to speak with, list those there are, remove one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oscine.cli.console import emit_path, remark, tell
from oscine.cli.engine import (
    Device,
    Offline,
    Precision,
    Threads,
    check_device,
    check_speaks,
    load_speaker,
    prepare_decoder,
    set_threads,
    start_log,
)
from oscine.cli.outputs import STANDARD_INPUT, print_table
from oscine.cli.text_in import open_words
from oscine.errors import HubError, OscineError, UsageError
from oscine.files import expanded

if TYPE_CHECKING:
    from oscine.models.qwen3_tts.abilities import Abilities
    from oscine.models.qwen3_tts.voices import VoiceFolder

app = typer.Typer(
    help="Keep voices that were taken of recordings, list and remove them.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

DEFAULT_MODEL = "qwen3-tts-0.6b-base"  # speakers of their own cannot be lent another voice

Name = Annotated[str, typer.Argument(help="What the voice is called: letters, digits, spaces.")]


def saved() -> VoiceFolder:
    """The voices of this machine's user."""
    from oscine import hub
    from oscine.models.qwen3_tts.voices import VoiceFolder

    return VoiceFolder(hub.home() / "voices")


@app.command()
def save(
    name: Name,
    audio: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="A recording of the voice alone, or - for stdin; 5 to 15 seconds are best.",
        ),
    ],
    text: Annotated[
        str | None,
        typer.Option(
            help="What it says, word for word, or a file that holds that: the voice gets nearer."
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a voice that has the name already.")
    ] = False,
    model: Annotated[
        str, typer.Option(metavar="MODEL", help="A base model, by name or path.")
    ] = DEFAULT_MODEL,
    device: Device = "auto",
    dtype: Precision = "auto",
    threads: Threads = None,
    offline: Offline = False,
) -> None:
    """Take the voice of a recording and print the file it is kept in.

    Only of people who have agreed to it. Models of another size cannot use it.
    """
    from oscine.audio.io import open_source
    from oscine.models.qwen3_tts.voices import checked_words

    file = saved().place(name)  # a name that cannot be is told before anything slow begins
    there = os.path.exists(file)
    if there and not force:
        raise UsageError(f"there is a voice {file.stem!r} already; --force takes its place")
    if text is not None:
        text = checked_words(open_words(text), "text")
    opened = open_source(audio)
    recording = opened if audio == STANDARD_INPUT else audio  # standard input can be opened once
    prepare_decoder()
    if (abilities := released(model)) is not None:
        abilities.refuse_cloning()
    set_threads(threads)
    check_device(device)
    start_log(verbose=False)
    voice = load_speaker(model, device, dtype, offline=offline).voice_of(recording, text)
    file = saved().save(name, voice)
    done = "replaced" if there else "saved"
    tell(f"voice {name!r} {done}; speak with it: --model {model} --voice {name!r}")
    emit_path(file)


@app.command("list")
def list_voices(
    model: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="Only what it can speak with, by name or path."),
    ] = None,
) -> None:
    """List the saved voices, or with --model those that it can speak with."""
    if model is None:
        show_saved()
    else:
        show(abilities_of(model))


@app.command()
def remove(name: Name) -> None:
    """Delete a saved voice."""
    saved().remove(name)
    tell(f"voice {name!r} removed")


def show_voices(model: str) -> None:
    """What `speak --voice` and `--language` take with a model."""
    abilities = abilities_of(model)
    show(abilities)
    remark(f"languages: {', '.join(('auto', *abilities.languages))}")


def show(abilities: Abilities) -> None:
    """The voices of a model, a line each on stdout; a line on stderr where it has none."""
    if abilities.kind == "base":
        show_saved(abilities)
    elif abilities.kind == "voice_design":
        tell(f"{abilities.name} has no voices: describe one with --instruct")
    else:
        dialects = any(abilities.speakers.values())
        head = ("voice", "speaks Chinese as") if dialects else ("voice",)
        lines = [(name, dialect or "") for name, dialect in abilities.speakers.items()]
        print_table(head, [line[: len(head)] for line in lines])


def show_saved(abilities: Abilities | None = None) -> None:
    """The voices of this machine's user, or those that a base model can speak with.

    What is damaged is told on stderr; it is listed only where no model is asked about.
    """
    folder = saved()
    names, shown = folder.names(), []
    for name in names:
        try:
            voice = folder.load(name)
            usable = abilities is None or abilities.understands(voice)
        except OscineError as error:
            tell(str(error))
            usable = abilities is None
        if usable:
            shown.append((name, str(folder.file(name))))
    if shown:
        print_table(("voice", "file"), shown)
    elif not names:
        tell("no voices are saved; oscine voices save NAME --audio FILE saves one")
    elif abilities is not None:
        tell(f"{abilities.name} can speak with none of the saved voices")


def released(model: str) -> Abilities | None:
    """What a released model can be asked for, whether or not it is here; None for any other."""
    from oscine import hub
    from oscine.models.qwen3_tts.abilities import Abilities

    if os.path.exists(expanded(model)):
        return None
    name = hub.known(model)
    if name not in hub.SPEAKS:
        return None
    kind, size = hub.SPEAKS[name]
    speakers = hub.SPEAKERS if kind == "custom_voice" else {}
    return Abilities(name, kind, size, speakers, hub.LANGUAGES)


def abilities_of(model: str) -> Abilities:
    """What a model can be asked for: of a released one, or of one on this machine by its files.

    Raises HubError where it is not here, CheckpointError and UsageError where it does not speak.
    """
    from oscine import hub
    from oscine.models.qwen3_tts.abilities import Abilities
    from oscine.models.qwen3_tts.config import read_config
    from oscine.models.qwen3_tts.weights import CODEC_FOLDER
    from oscine.weights import read_checkpoint

    if (found := released(model)) is not None:
        return found
    path: Path | None = expanded(model)
    if not os.path.exists(expanded(model)):
        check_speaks(model)
        path = hub.find(model)
    if path is None:
        raise HubError(f"model {model!r} is not on this machine; oscine models pull {model}")
    checkpoint = read_checkpoint(path)
    config = read_config(checkpoint, read_checkpoint(checkpoint.folder / CODEC_FOLDER))
    return Abilities.of(config, model)
