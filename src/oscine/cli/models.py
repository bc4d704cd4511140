"""`oscine models`: list what is known and what is here, fetch a model, print where it lies."""

from __future__ import annotations

from typing import Annotated

import typer

from oscine import hub, registry
from oscine.cli.console import emit_path, tell
from oscine.cli.download_bars import download_bars
from oscine.cli.engine import Offline, start_log, start_messages
from oscine.cli.outputs import print_table
from oscine.family import TASKS, Release

app = typer.Typer(
    help="List, fetch and find models.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

Check = Annotated[
    bool,
    typer.Option("--check", help="Check each file's bytes, and fetch again what is damaged."),
]
Name = Annotated[str, typer.Argument(help="A name of `oscine models list`, or a Hub's org/name.")]


@app.command("list")
def list_models() -> None:
    """List the models known by name: what each does, and where it lies if it is here."""
    start_messages()
    lines = []
    for family in registry.families():
        for name, model in family.models.items():
            does = TASKS[family.task]
            if name == registry.default(family.task):
                does += " (default)"
            lines.append((name, does, model.languages, size(model), str(hub.find(name) or "")))
    print_table(("name", "does", "languages", "download", "here"), lines)


def size(model: Release) -> str:
    """Of its download, for people."""
    if model.megabytes < 1000:
        return f"{model.megabytes} MB"
    return f"{model.megabytes / 1000:.1f} GB"


@app.command()
def pull(name: Name, check: Check = False, offline: Offline = False) -> None:
    """Fetch a model and print its folder; continue where an earlier attempt was cut."""
    from oscine.verify import verify

    start_log(verbose=False)
    with download_bars() as report:
        if check:
            folder, count = verify(name, offline, report)
        else:
            folder, count = hub.resolve(name, offline, report), 0
    if check:
        tell(f"{name}: {count} files are as they should be")
    emit_path(folder)


@app.command()
def path(name: Name, offline: Offline = False) -> None:
    """Print a model's folder; where it is not here it is fetched first, unless --offline."""
    pull(name, offline=offline)
