"""`oscine models`: list what is known and what is here, fetch a model, print where it lies."""

from __future__ import annotations

from typing import Annotated

import typer

from oscine import hub
from oscine.cli.console import emit_path, tell
from oscine.cli.download_bars import download_bars
from oscine.cli.engine import Offline, start_log
from oscine.cli.outputs import print_table

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

_LANGUAGES = {hub.ENGLISH: "English", hub.MULTILINGUAL: "99", hub.MULTILINGUAL_V3: "100"}


def languages(name: str, model: hub.Model) -> str:
    """How many, or which: Whisper's vocabularies tell, Parakeet's version does."""
    if name in hub.QWEN3_TTS:
        return str(len(hub.LANGUAGES))
    if name in hub.PARAKEET:
        return "25" if "-v3" in name else "English"
    return _LANGUAGES[model.n_vocab]


@app.command("list")
def list_models() -> None:
    """List the models known by name: what each does, and where it lies if it is here."""
    lines = []
    for name, model in hub.EVERY.items():
        folder = hub.find(name)
        does = "text to speech" if name in hub.QWEN3_TTS else "speech to text"
        if name in (hub.DEFAULT_MODEL, hub.DEFAULT_VOICE_MODEL):
            does += " (default)"
        here = str(folder) if folder else ""
        lines.append((name, does, languages(name, model), size(model), here))
    print_table(("name", "does", "languages", "download", "here"), lines)


def size(model: hub.Model) -> str:
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
