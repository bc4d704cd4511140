"""`oscine serve`: an HTTP server with OpenAI's audio API."""

from __future__ import annotations

import gc
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import typer

from oscine import hub, registry
from oscine.cli.common import check_device, load_model, set_threads, set_up_logging
from oscine.cli.console import warn
from oscine.cli.parameters import command
from oscine.errors import OscineError, needed
from oscine.family import Task
from oscine.files import expand_user
from oscine.options.command import LoadOptions
from oscine.options.mcp import McpOptions
from oscine.options.serve import ServeOptions

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@command(app, ServeOptions)
def serve(**given_options: Any) -> None:
    """Serve models over HTTP, with OpenAI's audio API.

    Clients of OpenAI transcribe and speak with base_url http://127.0.0.1:8000/v1. SIGTERM and
    Ctrl-C let the requests at work end.
    """
    options = ServeOptions.of(**given_options)
    set_up(options)
    with needed("oscine[server]", "oscine serve"):
        from oscine.server.run import serve as run  # FastAPI and uvicorn are slow to import
    run(options, ServedModels(options), warn)


def set_up(options: ServeOptions | McpOptions) -> None:
    """Set logging and threads. Raises UsageError for a wrong device or an unknown model."""
    set_up_logging(options.verbose)
    set_threads(options.threads)
    check_device(options.device, options.memory)
    for name in options.model:
        if not os.path.exists(expand_user(name)):
            hub.lookup(name)


class ServedModels:
    """Loads and unloads models for the server, with the options of the command."""

    def __init__(self, options: LoadOptions) -> None:
        self._options = options

    def load(self, name: str) -> Any:
        """The model of a name or path. Raises as oscine.load."""
        return load_model(name, self._options)

    def unload(self, model: Any) -> None:
        """Free the memory of a model that has no other owner, on a GPU also its device."""
        del model
        gc.collect()  # its plans and their buffers refer to each other

    def memory_used(self, model: Any) -> int:
        """Bytes that a model has allocated; 0 for one in processes of its own."""
        engine = getattr(model, "engine", None)
        return 0 if engine is None else int(engine.runner.backend.budget.used)

    def describe(self, name: str) -> tuple[Task | None, int]:
        """The task of a model that is not loaded, None if unknown, and the bytes of its files."""
        from oscine.weights import read_checkpoint

        path: Path | None = expand_user(name)
        task: Task | None = None
        if path is None or not os.path.exists(path):
            found, path = registry.find_model(name), hub.find_local(name)
            task = None if found is None else found[0].task
        if path is None:
            return task, 0
        if task is None:
            with suppress(OscineError):  # reported when it is loaded
                task = registry.detect_family(read_checkpoint(path)).task
        files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
        return task, sum(file.stat().st_size for file in files)
