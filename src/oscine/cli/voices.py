"""`oscine voices`: save, list and remove cloned voices."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from oscine import registry
from oscine.cli.common import (
    Device,
    Memory,
    Offline,
    Precision,
    Threads,
    check_device,
    load_for_task,
    log_to_stderr,
    require_task,
    set_threads,
    set_up_logging,
    start_decoder,
    wrong_task_error,
)
from oscine.cli.console import status, warn, write_path
from oscine.cli.inputs import STANDARD_INPUT
from oscine.cli.jobs import print_table
from oscine.cli.openai_style import CommandGroup, OpenAIStyleCommand
from oscine.cli.text_input import open_reference_text
from oscine.errors import CheckpointError, HubError, OscineError, PackageError, UsageError
from oscine.family import Capabilities, Family, SpeechModel, VoiceStore, VoiceSupport
from oscine.files import expand_user
from oscine.options.command import LoadOptions

DEFAULT_MODEL = registry.default_cloning_model()

app = typer.Typer(
    cls=CommandGroup,
    help="Save, list and remove cloned voices.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="Name of the voice: letters, digits and spaces."),
]


def speaking_of(model: str) -> VoiceSupport:
    """What a model's family says of its voices; the default's family where that one is not known,
    or does not speak."""
    family = family_of(model)
    if family is None or family.task != "speak":
        default = registry.default_model("speak")
        family = next(each for each in registry.families("speak") if default in each.models)
    return registry.voice_support_of(family)


def family_of(model: str) -> Family | None:
    """The family of a model, by its name or its checkpoint; None if it is unknown."""
    from oscine.weights import read_checkpoint

    path = expand_user(model)
    if not os.path.exists(path):
        found = registry.find_model(model)
        return None if found is None else found[0]
    try:
        return registry.detect_family(read_checkpoint(path))
    except CheckpointError:  # reported when the model is loaded
        return None


def saved_voices(model: str) -> VoiceStore:
    """The store of saved voices of a model's family."""
    return speaking_of(model).saved()


def all_voice_stores() -> list[VoiceStore]:
    """The voice stores of all families; a family that fails is reported and skipped."""
    stores = []
    for family in registry.families("speak"):
        try:
            with registry.plugin_errors(family, "be asked for voices"):
                stores.append(registry.voice_support_of(family).saved())
        except PackageError as error:
            warn(str(error))
    return stores


@app.command(cls=OpenAIStyleCommand)
def save(
    name: Name,
    audio: Annotated[
        str,
        typer.Option(
            "--audio",
            metavar="FILE",
            help="Recording of the voice only, or - for stdin; ideally 5 to 15 seconds.",
        ),
    ],
    text: Annotated[
        str | None,
        typer.Option(
            "--text",
            metavar="TEXT",
            help="Exact transcript of the recording, or a file with it; improves the voice.",
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite an existing voice of this name.")
    ] = False,
    model: Annotated[
        str, typer.Option("--model", metavar="MODEL", help="A base model, by name or path.")
    ] = DEFAULT_MODEL,
    device: Device = "auto",
    dtype: Precision = "auto",
    threads: Threads = None,
    offline: Offline = False,
    memory: Memory = None,
) -> None:
    """Save the voice of a recording, and print the path of its file.

    Clone only voices of people who have agreed to it. A saved voice works with models of the same
    size.
    """
    from oscine.audio.io import check_contents, open_source

    log_to_stderr()
    # An invalid name is reported before anything slow begins.
    file = saved_voices(model).path_to_write(name)
    there = os.path.exists(file)
    if there and not force:
        raise UsageError(f"voice {file.stem!r} exists already; --force overwrites it")
    if text is not None:
        text = speaking_of(model).check_words(open_reference_text(text), "text")
    opened = open_source(audio)
    recording = opened if audio == STANDARD_INPUT else audio  # standard input can be opened once
    start_decoder()
    if (capabilities := released_capabilities(model)) is not None:
        capabilities.require_cloning()
    check_contents(opened)
    set_threads(threads)
    check_device(device, memory)
    set_up_logging(verbose=False)
    how = LoadOptions(device=device, dtype=dtype, offline=offline, memory=memory)
    speaker: SpeechModel = load_for_task("speak", model, how)
    file = saved_voices(model).save(name, speaker.voice_of(recording, text))
    done = "replaced" if there else "saved"
    warn(f"voice {name!r} {done}; speak with it: --model {model} --voice {name!r}")
    write_path(file)


@app.command("list", cls=OpenAIStyleCommand)
def list_voices(
    model: Annotated[
        str | None,
        typer.Option(
            "--model", metavar="MODEL", help="List only the voices that this model can use."
        ),
    ] = None,
) -> None:
    """List the saved voices.

    With --model, list only the voices that the model can use.
    """
    log_to_stderr()
    if model is None:
        print_saved_voices()
    else:
        print_voices(capabilities_of(model))


@app.command(cls=OpenAIStyleCommand)
def remove(name: Name) -> None:
    """Delete a saved voice."""
    log_to_stderr()
    stores = all_voice_stores()
    holder = next((store for store in stores if store.has(name)), stores[0])
    holder.remove(name)
    warn(f"voice {name!r} removed")


def print_voices_and_languages(model: str) -> None:
    """What `speak --voice` and `--language` take with a model."""
    capabilities = capabilities_of(model)
    print_voices(capabilities)
    status(f"languages: {', '.join(('auto', *capabilities.languages))}")


def print_voices(capabilities: Capabilities) -> None:
    """The voices of a model, a line each on stdout; a line on stderr where it has none."""
    if capabilities.kind == "base":
        print_saved_voices(capabilities)
    elif capabilities.kind == "voice_design":
        warn(f"{capabilities.name} has no voices: describe one with --instruct")
    else:
        dialects = any(capabilities.speakers.values())
        head = ("voice", "speaks Chinese as") if dialects else ("voice",)
        lines = [(name, dialect or "") for name, dialect in capabilities.speakers.items()]
        print_table(head, [line[: len(head)] for line in lines])


def print_saved_voices(capabilities: Capabilities | None = None) -> None:
    """The voices of this machine's user, or those that a base model can speak with.

    What is damaged is told on stderr; it is listed only where no model is asked about.
    """
    names, shown = 0, []
    for store in all_voice_stores() if capabilities is None else [saved_voices(capabilities.name)]:
        for name in store.names():
            names += 1
            try:
                voice = store.load(name)
                usable = capabilities is None or capabilities.accepts_voice(voice)
            except OscineError as error:
                warn(str(error))
                usable = capabilities is None
            if usable:
                shown.append((name, str(store.path_of(name))))
    if shown:
        print_table(("voice", "file"), shown)
    elif not names:
        warn("no voices are saved; oscine voices save NAME --audio FILE saves one")
    elif capabilities is not None:
        warn(f"{capabilities.name} can speak with none of the saved voices")


def released_capabilities(model: str) -> Capabilities | None:
    """The capabilities of a released model, downloaded or not; None for any other."""
    if os.path.exists(expand_user(model)):
        return None
    found = registry.find_model(model)
    if found is None or found[0].task != "speak":
        return None
    family, name = found
    with registry.plugin_errors(family, f"tell of {name}"):
        return registry.voice_support_of(family).released(name)


def capabilities_of(model: str) -> Capabilities:
    """The capabilities of a released model, or of a local one by its files.

    Raises HubError if it is not on this machine, CheckpointError, UsageError if it does not speak.
    """
    from oscine import hub
    from oscine.weights import read_checkpoint

    if (found := released_capabilities(model)) is not None:
        return found
    path: Path | None = expand_user(model)
    if not os.path.exists(expand_user(model)):
        require_task(model, "speak")
        path = hub.find_local(model)
    if path is None:
        raise HubError(f"model {model!r} is not on this machine; oscine models pull {model}")
    checkpoint = read_checkpoint(path)
    family = registry.detect_family(checkpoint)
    if family.task != "speak":
        raise wrong_task_error(model, "speak")
    with registry.plugin_errors(family, f"tell of {model}"):
        return registry.voice_support_of(family).capabilities(checkpoint, model)
