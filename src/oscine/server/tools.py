"""`oscine mcp`: transcribe and speak as tools of the Model Context Protocol, on stdin and stdout.

A program that has a language model starts it, and may read what its user may. Source: "Tools" in
https://modelcontextprotocol.io/specification.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from mcp.server import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
)

import oscine
from oscine import formats
from oscine.audio.write import FORMATS as AUDIO_FORMATS
from oscine.audio.write import format_of
from oscine.errors import OscineError, UsageError
from oscine.family import Task
from oscine.files import expand_user
from oscine.options.layout import Layout
from oscine.options.mcp import McpOptions
from oscine.options.speak import SpeakOptions, VoiceOptions
from oscine.options.transcribe import TranscribeOptions
from oscine.registry import default_model
from oscine.server.catalog import Catalog, Loader
from oscine.server.errors import ApiError, invalid, named_options
from oscine.server.fields import Fields
from oscine.server.schema import TEXT, properties

LOAD_TIMEOUT_S = 3600.0  # a model may be downloaded
FORMATS = (*formats.LINE_FORMATS, "json")

#: Called with the seconds of a recording that are done, and all of them.
Report = Callable[[float, float], None]


class Tools:
    """The tools of the models of a catalog.

    Args:
        catalog: The models, which are loaded when they are first used.
        folder: Relative paths begin there, and speech is written below it.
    """

    def __init__(self, catalog: Catalog, folder: Path) -> None:
        self._catalog, self._folder = catalog, folder

    def listing(self) -> list[Tool]:
        """A tool for each task that a model has."""
        tools = [self._transcribe_tool(), self._speak_tool()]
        return [tool for tool in tools if self._models(_TASKS[tool.name])]

    def _models(self, task: Task) -> list[str]:
        """The names of the models of a task, and of those whose task loading tells."""
        models = self._catalog.models
        return [name for name, served in models.items() if served.task in (task, None)]

    def _transcribe_tool(self) -> Tool:
        own = {
            "file": {**TEXT, "description": "Path of the recording or video."},
            "format": {**TEXT, "enum": [*FORMATS], "description": "Form of the result; txt."},
            "model": {**TEXT, "enum": self._models("transcribe")},
        }
        schema = _schema({**properties(TranscribeOptions, Layout), **own}, ["file"])
        text = "Transcribe a recording or video to text, subtitles or JSON with times."
        return Tool(name="transcribe", description=text, input_schema=schema)

    def _speak_tool(self) -> Tool:
        own = {
            "text": {**TEXT, "description": "What to say."},
            "file": {
                **TEXT,
                "description": "Path of the audio file to write, below the folder of the server; "
                f"its suffix is the format: {', '.join(AUDIO_FORMATS)}.",
            },
            "overwrite": {"type": "boolean", "description": "Replace a file that exists."},
            "model": {**TEXT, "enum": self._models("speak")},
        }
        schema = _schema({**properties(VoiceOptions, SpeakOptions), **own}, ["text", "file"])
        text = "Speak a text with a synthetic voice, and write an audio file."
        return Tool(name="speak", description=text, input_schema=schema)

    async def call(self, name: str, arguments: Mapping[str, Any], report: Report) -> str:
        """The result of a tool as text. Raises ApiError and OscineError, in words for the model."""
        if name not in _TASKS:
            raise invalid("name", f"{name[:40]!r} is not a tool of this server")
        fields = Fields(arguments)
        task = _TASKS[name]
        known = self._models(task)
        if not known:
            raise invalid("name", f"{name} needs a model of its kind; see --model")
        model = fields.text("model") or known[0]
        run = self._transcribe if task == "transcribe" else self._speak
        work = run(fields, report)
        served = await self._catalog.use(model, task, LOAD_TIMEOUT_S)
        try:
            return await work(served.model)
        finally:
            served.release()

    def _transcribe(self, fields: Fields, report: Report) -> Callable[[Any], Awaitable[str]]:
        """Check the arguments of `transcribe`; returns the work."""
        file = str(self._path(fields.required_text("file")))
        chosen = fields.choice("format", FORMATS, "txt")
        options, layout_options = fields.options(TranscribeOptions), fields.options(Layout)
        _refuse(fields)
        with named_options({name: name for name in (*options, *layout_options)}):
            layout = Layout(**layout_options)
            if layout.needing_words:
                options.setdefault("word_timestamps", True)
            TranscribeOptions.of(**options)

        async def work(model: Any) -> str:
            transcript = await model.transcribe_async(file, progress=report, **options)
            return formats.render(transcript, chosen, layout)

        return work

    def _speak(self, fields: Fields, _: Report) -> Callable[[Any], Awaitable[str]]:
        """Check the arguments of `speak`; returns the work."""
        text, file = fields.required_text("text"), fields.required_text("file")
        target = self._target(file, fields.flag("overwrite", False))
        options, own = fields.options(VoiceOptions), fields.options(SpeakOptions)
        _refuse(fields)
        if "reference" in options:
            options["reference"] = str(self._path(str(options["reference"])))
        with named_options({name: name for name in (*options, *own)}):
            SpeakOptions.of(**own)

        async def work(model: Any) -> str:
            speech = await model.speak_async(text, **options, **own)
            await asyncio.to_thread(speech.save, target)
            return f"{target}: {speech.duration:.1f} s, seed {speech.seed}, {speech.finish_reason}"

        return work

    def _path(self, given: str) -> Path:
        """The path of a file to read; a relative one begins at the folder."""
        return self._folder / expand_user(given)

    def _target(self, given: str, overwrite: bool) -> Path:
        """The path of a file to write. Raises ApiError for one that is not below the folder."""
        try:
            target = self._path(given).resolve()
            inside = target.is_relative_to(self._folder) and target.parent.is_dir()
            exists = inside and target.exists()
        except (OSError, ValueError):  # a loop of links, a zero byte
            inside = exists = False
        if not inside:
            raise invalid("file", f"file {given[:200]!r} is not in a folder below {self._folder}")
        if exists and not (overwrite and target.is_file()):
            raise invalid("file", f"file {given[:200]!r} exists; choose another, or overwrite it")
        with named_options({"format": "file"}):
            format_of(target)
        return target


_TASKS: dict[str, Task] = {"transcribe": "transcribe", "speak": "speak"}


def _schema(fields: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": fields,
        "required": required,
        "additionalProperties": False,
    }


def _refuse(fields: Fields) -> None:
    """Raise ApiError for an argument that nothing has taken."""
    for name in fields.rest():
        raise invalid(name, f"{name[:40]!r} is not an argument of this tool")


async def serve(tools: Tools) -> None:
    """Answer a client on stdin and stdout until it closes stdin; its cancellations stop work."""

    async def on_list(_: Any, __: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=tools.listing())

    async def on_call(
        context: ServerRequestContext[Any], params: CallToolRequestParams
    ) -> CallToolResult:
        report = _reporter(context)
        try:
            text = await tools.call(params.name, params.arguments or {}, report)
        except (ApiError, OscineError) as error:
            return CallToolResult(content=[TextContent(text=str(error))], is_error=True)
        return CallToolResult(content=[TextContent(text=text)])

    server = Server(
        "oscine", version=oscine.__version__, on_list_tools=on_list, on_call_tool=on_call
    )
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def _reporter(context: ServerRequestContext[Any]) -> Report:
    """Passes the progress of a recording to the client, from the thread that works on it."""
    loop = asyncio.get_running_loop()

    def report(done: float, total: float) -> None:
        asyncio.run_coroutine_threadsafe(context.session.report_progress(done, total), loop)

    return report


def run(options: McpOptions, loader: Loader) -> None:
    """Offer the tools until the client closes stdin. Raises UsageError for options."""
    folder = expand_user(options.folder)
    if not os.path.isdir(folder):
        raise UsageError(f"folder={options.folder!r} is not a folder")
    catalog_models = options.model or (default_model("transcribe"),)

    async def main() -> None:
        catalog = Catalog(catalog_models, (), loader)
        catalog.ready = True  # models are loaded when they are used
        await serve(Tools(catalog, folder.resolve()))

    asyncio.run(main())
