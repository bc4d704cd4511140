"""`oscine mcp`: transcription and speech as tools for programs with a language model."""

from __future__ import annotations

from typing import Any

import typer

from oscine.cli.parameters import command
from oscine.cli.serve import ServedModels, set_up
from oscine.errors import needed
from oscine.options.mcp import McpOptions

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@command(app, McpOptions)
def mcp(**given_options: Any) -> None:
    """Serve tools over MCP, for language models.

    A program with a language model starts this command and talks to it on stdin and stdout, in the
    Model Context Protocol; its tools transcribe and speak.
    """
    options = McpOptions.of(**given_options)
    set_up(options)
    with needed("oscine[mcp]", "oscine mcp"):
        from oscine.server.tools import run  # the protocol's package is slow to import
    run(options, ServedModels(options))
