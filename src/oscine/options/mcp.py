"""Options of `oscine mcp`: which models its tools use, and where they write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from oscine.options import Group, Options, option
from oscine.options.checks import any_value, flag
from oscine.options.command import LoadOptions
from oscine.options.serve import check_texts


@dataclass(frozen=True, slots=True, kw_only=True)
class McpOptions(LoadOptions, Options):
    """Options of the tools. Make one with `of`, which checks them."""

    purpose = "mcp"

    # fmt: off
    model: Any = option(
        (), check_texts,
        "A model for the tools: a name (see `oscine models list`), org/name on Hugging Face, or a "
        "path; repeat it for several.",
        Group.MODEL, metavar="MODEL", default_text="base", repeatable=True)
    folder: str = option(
        ".", any_value, "Folder of the recordings; speech is written below it, nowhere else.",
        Group.OUTPUT, metavar="FOLDER")
    verbose: bool = option(
        False, flag, "Log to stderr.", Group.OUTPUT, flags=("--verbose",))
    # fmt: on
