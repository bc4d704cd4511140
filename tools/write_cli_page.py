"""Write docs/cli.md, the page of options, from their records: `make pages`.

tests/test_readme.py fails where the page is not what this writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import typer

from oscine.cli import app
from oscine.cli.option_names import use_flags
from oscine.cli.parameters import cli_default_of, group_options
from oscine.options import Option
from oscine.options.aliases import ALIASES, HINTS
from oscine.options.command import SpeakCommand, TranscribeCommand
from oscine.options.layout import Layout
from oscine.options.mcp import McpOptions
from oscine.options.serve import ServeOptions
from oscine.options.speak import SpeakOptions, VoiceOptions
from oscine.options.transcribe import TranscribeOptions

PAGE = Path(__file__).resolve().parent.parent / "docs" / "cli.md"
COMMANDS: dict[str, tuple[type[Any], ...]] = {
    "oscine transcribe FILE...": (TranscribeCommand, TranscribeOptions, Layout),
    "oscine speak TEXT": (SpeakCommand, VoiceOptions, SpeakOptions),
    "oscine serve": (ServeOptions,),
    "oscine mcp": (McpOptions,),
}
HEAD = """\
# Command line reference

`make pages` writes this page from the records in `src/oscine/options`, which the command line and
the Python API read too, and from the help of the other commands. In Python a name has underscores:
`--beam-size 5` is `beam_size=5`.

Names and values are those of openai-whisper's command, with dashes or underscores:
`--output_format srt`, `--fp16 False`. A yes-or-no option also has a `--no-` form, except
`--offline`, `--live` and `--play`. Where a number may be absent, `None` says so. An option that
cannot be carried out is refused by name, never ignored. *Only* names the family of models that
accepts an option where the others refuse it.
"""
OTHERS = """\
## Options of other programs

`oscine transcribe` accepts options of whisper.cpp, faster-whisper, whisper-ctranslate2, WhisperX
and parakeet-mlx where they mean the same. [coming-from.md](coming-from.md) has whole commands.
"""


def names(option: Option) -> str:
    """All spellings of an option."""
    flags = option.flags or (f"--{option.name.replace('_', '-')}",)
    parts = [part.strip() for flag in flags for part in flag.split("/")]
    return " ".join(f"`{part}`" for part in parts if part)


def default(option: Option) -> str:
    """The default as the command line takes it, or in words."""
    return use_flags(option.default_text) or default_value(cli_default_of(option))


def default_value(value: Any) -> str:
    """A value as the command line takes it, a switch in words; nothing for none."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return "" if value in (None, ()) else f"`{value}`"


def cell(text: str) -> str:
    """Text in a table."""
    return text.replace("|", "\\|")


def lines() -> Iterator[str]:
    """The page."""
    yield HEAD
    for command, kinds in COMMANDS.items():
        yield f"## `{command}`\n"
        for heading, options in group_options(kinds).items():
            yield f"### {heading}\n"
            yield "| option | meaning | default | only |\n|---|---|---|---|"
            for option in options:
                only = ", ".join(option.families)
                row = (names(option), use_flags(option.help), default(option), only)
                yield f"| {' | '.join(map(cell, row))} |"
            yield ""
    for name, command in other_commands(typer.main.get_command(app), "oscine"):
        yield from command_lines(name, command)
    yield from names_of_others()


def other_commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """The commands whose options have no records, with their names."""
    if hasattr(command, "list_commands"):
        for each in command.list_commands(None):
            yield from other_commands(command.get_command(None, each), f"{name} {each}")
    elif name not in [" ".join(known.split()[:2]) for known in COMMANDS]:
        yield name, command


def command_lines(name: str, command: Any) -> Iterator[str]:
    """A command: its help, and a table of its options."""
    arguments = [parameter for parameter in command.params if not is_option(parameter)]
    yield f"## `{' '.join((name, *(argument.metavar for argument in arguments)))}`\n"
    yield f"{command.help}\n"
    options = list(filter(is_option, command.params))
    if options:
        yield "| option | meaning | default |\n|---|---|---|"
        for option in options:
            meaning, _, shown = option.help.partition("[default: ")
            shown = shown.rstrip("]") or default_value(option.default)
            flags = " ".join(f"`{flag}`" for flag in option.opts)
            yield f"| {' | '.join(map(cell, (flags, meaning.strip(), shown)))} |"
        yield ""


def is_option(parameter: Any) -> bool:
    """Whether a parameter is an option, and not an argument."""
    return bool(parameter.opts[0].startswith("-"))


def names_of_others() -> Iterator[str]:
    """The options of other programs with their equivalents, and the remedies for the rest."""
    yield OTHERS
    yield "| there | here |\n|---|---|"
    for name, meant in ALIASES.items():
        yield f"| `{name}` | {f'`{meant}`' if meant else 'accepted without effect'} |"
    yield ""
    yield "| there | instead |\n|---|---|"
    for remedy, group in groupby(HINTS, key=HINTS.__getitem__):
        yield f"| {' '.join(f'`{name}`' for name in group)} | {cell(use_flags(remedy))} |"


def text() -> str:
    """The page as one text."""
    return "\n".join(lines()).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(text(), "utf-8")
