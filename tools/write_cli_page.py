"""Write docs/cli.md, the page of options, from their records: `make pages`.

tests/test_readme.py fails where the page is not what this writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from oscine.cli.parameters import cli_default_of, group_options
from oscine.options import Option
from oscine.options.aliases import ALIASES, HINTS
from oscine.options.command import SpeakCommand, TranscribeCommand
from oscine.options.layout import Layout
from oscine.options.speak import SpeakOptions, VoiceOptions
from oscine.options.transcribe import TranscribeOptions

PAGE = Path(__file__).resolve().parent.parent / "docs" / "cli.md"
COMMANDS: dict[str, tuple[type[Any], ...]] = {
    "oscine transcribe FILE...": (TranscribeCommand, TranscribeOptions, Layout),
    "oscine speak TEXT": (SpeakCommand, VoiceOptions, SpeakOptions),
}
HEAD = """\
# Command line reference

`make pages` writes this page from the records in `src/oscine/options`, which the command line and
the Python API read too. In Python a name has underscores: `--beam-size 5` is `beam_size=5`. The
options of `oscine voices`, `models` and `doctor` are in the `--help` of each.

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
    value = cli_default_of(option)
    if option.default_text or value is None:
        return option.default_text
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"`{value}`"


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
                row = (names(option), option.help, default(option), only)
                yield f"| {' | '.join(map(cell, row))} |"
            yield ""
    yield from names_of_others()


def names_of_others() -> Iterator[str]:
    """The options of other programs with their equivalents, and the remedies for the rest."""
    yield OTHERS
    yield "| there | here |\n|---|---|"
    for name, meant in ALIASES.items():
        yield f"| `{name}` | {f'`{meant}`' if meant else 'accepted without effect'} |"
    yield ""
    yield "| there | instead |\n|---|---|"
    for remedy, group in groupby(HINTS, key=HINTS.__getitem__):
        yield f"| {' '.join(f'`{name}`' for name in group)} | {cell(remedy)} |"


def text() -> str:
    """The page as one text."""
    return "\n".join(lines()).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(text(), "utf-8")
