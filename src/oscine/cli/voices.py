"""`oscine voices`: keep a voice to speak with, list those there are, remove one."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oscine.cli.engine import (
    Device,
    Dtype,
    Offline,
    Precision,
    Threads,
    check_device,
    set_threads,
    start_log,
)
from oscine.errors import HubError, UsageError

if TYPE_CHECKING:
    from oscine.models.qwen3_tts.config import Qwen3TtsConfig
    from oscine.models.qwen3_tts.voices import VoiceFolder

app = typer.Typer(
    help="Keep voices that were taken of recordings, list and remove them.",
    no_args_is_help=True,
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
        Path, typer.Option(help="A recording of the voice alone; 5 to 20 seconds are best.")
    ],
    text: Annotated[
        str | None, typer.Option(help="What it says, word for word: the voice gets nearer to it.")
    ] = None,
    model: Annotated[str, typer.Option(help="A base model, by name or path.")] = DEFAULT_MODEL,
    device: Device = "auto",
    dtype: Precision = Dtype.AUTO,
    threads: Threads = None,
    offline: Offline = False,
) -> None:
    """Take the voice of a recording and print the file it is kept in.

    Only of people who have agreed to it. Models of another size cannot use it.
    """
    from oscine.audio.io import open_source
    from oscine.cli.speak import load_speaker

    saved().file(name)  # a name that cannot be is told before anything slow begins
    if text is not None and not text.strip():
        raise UsageError("text is empty; leave it out where nobody knows what is said")
    open_source(audio)
    set_threads(threads)
    check_device(device)
    start_log(verbose=False)
    voice = load_speaker(model, device, dtype.value, offline=offline).voice_of(str(audio), text)
    typer.echo(saved().save(name, voice))


@app.command("list")
def list_voices(
    model: Annotated[
        str | None, typer.Option(help="Only what this model can speak with, by name or path.")
    ] = None,
) -> None:
    """List the saved voices, or with --model those that it can speak with."""
    config = None if model is None else config_of(model)
    show(config, model or "")


@app.command()
def remove(name: Name) -> None:
    """Delete a saved voice."""
    saved().remove(name)


def show_voices(model: str) -> None:
    """What `speak --voice` takes with a model, and its languages."""
    config = config_of(model)
    show(config, model)
    print("languages:", ", ".join(config.languages), file=sys.stderr)


def show(config: Qwen3TtsConfig | None, model: str) -> None:
    """A line a voice on stdout."""
    from rich.console import Console
    from rich.table import Table

    folder = saved()
    table = Table("voice", "of", box=None)
    for name in sorted(config.speakers) if config is not None else ():
        dialect = config.dialects.get(name) if config is not None else None
        table.add_row(name, f"{model} ({dialect})" if dialect else model)
    for name in folder.names() if config is None or config.kind == "base" else ():
        table.add_row(name, str(folder.file(name)))
    Console(width=None if sys.stdout.isatty() else 200, markup=False).print(table)


def config_of(model: str) -> Qwen3TtsConfig:
    """What a model that is on this machine says of itself, without its weights.

    Raises HubError where it is not here, CheckpointError where it is none that speaks.
    """
    from oscine import hub
    from oscine.models.qwen3_tts.sizes import read_config
    from oscine.models.qwen3_tts.weights import CODEC_FOLDER
    from oscine.weights import read_checkpoint

    path = hub.expanded(model) if os.path.exists(hub.expanded(model)) else hub.find(model)
    if path is None:
        raise HubError(f"model {model!r} is not on this machine; oscine models pull {model}")
    checkpoint = read_checkpoint(path)
    return read_config(checkpoint, read_checkpoint(checkpoint.folder / CODEC_FOLDER))
