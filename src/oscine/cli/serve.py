"""`oscine serve`: an HTTP server with OpenAI's audio API."""

from __future__ import annotations

import os
from typing import Any

import typer

from oscine import hub
from oscine.cli.common import check_device, load_model, set_threads, set_up_logging
from oscine.cli.console import warn
from oscine.cli.parameters import command
from oscine.errors import needed
from oscine.files import expand_user
from oscine.options.serve import ServeOptions

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@command(app, ServeOptions)
def serve(**given_options: Any) -> None:
    """Serve models over HTTP, with OpenAI's audio API.

    Clients of OpenAI transcribe and speak with base_url http://127.0.0.1:8000/v1. SIGTERM and
    Ctrl-C let the requests at work end.
    """
    options = ServeOptions.of(**given_options)
    set_up_logging(options.verbose)
    set_threads(options.threads)
    check_device(options.device, options.memory)
    for name in options.model:
        if not os.path.exists(expand_user(name)):
            hub.lookup(name)
    with needed("oscine[server]", "oscine serve"):
        from oscine.server.run import serve as run  # FastAPI and uvicorn are slow to import
    run(options, lambda name: load_model(name, options), warn)
