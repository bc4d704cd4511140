"""`oscine models`: list models, download them and print their folders."""

from __future__ import annotations

from typing import Annotated

import typer

from oscine import hub, registry
from oscine.cli.common import Offline, log_to_stderr, set_up_logging
from oscine.cli.console import warn, write_path
from oscine.cli.download_bars import download_bars
from oscine.cli.jobs import print_table
from oscine.cli.openai_style import CommandGroup, OpenAIStyleCommand
from oscine.family import TASKS, Release

app = typer.Typer(
    cls=CommandGroup,
    help="List, download and locate models.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

Check = Annotated[
    bool,
    typer.Option("--check", help="Verify every file, and download damaged files again."),
]
Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="A name of `oscine models list`, or org/name on Hugging Face."
    ),
]


@app.command("list", cls=OpenAIStyleCommand)
def list_models() -> None:
    """List the models known by name.

    The table shows the task, the languages, the download size, and the folder of a downloaded
    model.
    """
    log_to_stderr()
    lines = []
    for family in registry.families():
        for name, model in family.models.items():
            does = TASKS[family.task]
            if name == registry.default_model(family.task):
                does += " (default)"
            lines.append(
                (name, does, model.languages, format_size(model), str(hub.find_local(name) or ""))
            )
    print_table(("name", "task", "languages", "download size", "folder"), lines)


def format_size(model: Release) -> str:
    """The size of a model's download, such as "1.6 GB"."""
    if model.megabytes < 1000:
        return f"{model.megabytes} MB"
    return f"{model.megabytes / 1000:.1f} GB"


@app.command(cls=OpenAIStyleCommand)
def pull(name: Name, check: Check = False, offline: Offline = False) -> None:
    """Download a model and print its folder.

    An interrupted download is resumed.
    """
    from oscine.verify import verify

    set_up_logging(verbose=False)
    with download_bars() as report:
        if check:
            folder, count = verify(name, offline, report)
        else:
            folder, count = hub.resolve(name, offline, report), 0
    if check:
        warn(f"{name}: {count} files are intact")
    write_path(folder)


@app.command(cls=OpenAIStyleCommand)
def path(name: Name, offline: Offline = False) -> None:
    """Print a model's folder.

    The model is downloaded first if necessary, unless --offline is given.
    """
    pull(name, offline=offline)
