"""`oscine mcp` in a process of its own, with the client of the protocol's package."""

from __future__ import annotations

import asyncio
import json
import sys
import wave
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

import oscine
from oscine import formats

from .conftest import SPEECH, WHISPER

CUSTOM_VOICE = SPEECH / "custom_voice" / "ckpt"
FEW: dict[str, Any] = {"temperature": 0, "sample_len": 8, "vad_filter": False}


def with_client(
    folder: Path, work: Callable[[ClientSession], Awaitable[None]], *models: Path
) -> None:
    """Start the command with models in a folder, and use its tools."""
    arguments = [f"--model={model}" for model in models or (WHISPER, CUSTOM_VOICE)]
    command = ["-P", "-m", "oscine", "mcp", "--device=cpu", "--offline", *arguments]

    async def main() -> None:
        server = StdioServerParameters(command=sys.executable, args=command, cwd=folder)
        async with stdio_client(server) as (read, write), ClientSession(read, write) as client:
            await client.initialize()
            await work(client)

    asyncio.run(main())


async def call(client: ClientSession, tool: str, **arguments: Any) -> tuple[str, bool]:
    """The text of a tool's answer, and whether it is an error."""
    answer: Any = await client.call_tool(tool, arguments)
    (content,) = answer.content
    return content.text, answer.is_error


def test_the_tools_are_those_of_the_models_with_all_options(tmp_path: Path) -> None:
    async def both(client: ClientSession) -> None:
        tools = {tool.name: tool.input_schema for tool in (await client.list_tools()).tools}
        assert set(tools) == {"transcribe", "speak"}
        assert {"file", "format", "beam_size", "max_line_width"} <= set(
            tools["transcribe"]["properties"]
        )
        assert tools["transcribe"]["required"] == ["file"]
        assert {"text", "voice", "seed", "reference"} <= set(tools["speak"]["properties"])

    async def one(client: ClientSession) -> None:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["transcribe"]
        text, failed = await call(client, "speak", text="Hello.", file="a.wav")
        assert failed and "--model" in text

    with_client(tmp_path, both)
    with_client(tmp_path, one, WHISPER)


def test_a_recording_is_transcribed_as_the_library_does(
    tmp_path: Path, example: Path, whisper: Any
) -> None:
    expected = whisper.transcribe(example, **FEW)
    progress: list[float] = []

    async def report(done: float, total: float | None, _: str | None) -> None:
        progress.append(done)

    async def work(client: ClientSession) -> None:
        answer: Any = await client.call_tool(
            "transcribe", {"file": str(example), **FEW}, progress_callback=report
        )
        assert answer.content[0].text == formats.render(expected, "txt") and not answer.is_error
        text, failed = await call(client, "transcribe", file=str(example), format="json", **FEW)
        assert not failed and json.loads(text)["text"] == expected.text

    with_client(tmp_path, work)
    assert progress and progress == sorted(progress)


def test_a_text_is_spoken_into_a_file_below_the_folder(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    outside = tmp_path / "inside" / "link.wav"
    outside.symlink_to(tmp_path / "elsewhere.wav")
    few = {"max_seconds": 0.4, "seed": 7}
    model: Any = oscine.load(CUSTOM_VOICE, "cpu")
    voice = model.voices[0]
    expected = model.speak("Hello.", voice=voice, **few)

    async def work(client: ClientSession) -> None:
        given = {"text": "Hello.", "voice": voice, **few}
        text, failed = await call(client, "speak", file="made.wav", **given)
        assert not failed and "seed 7" in text
        with wave.open(str(tmp_path / "inside" / "made.wav")) as made:
            assert made.getnframes() == len(expected.samples)
        text, failed = await call(client, "speak", file="made.wav", **given)
        assert failed and "exists" in text
        text, failed = await call(client, "speak", file="made.wav", overwrite=True, **given)
        assert not failed
        for file in (
            "../made.wav",
            "/tmp/made.wav",
            "no/made.wav",
            "link.wav",
            "a\0.wav",
            "~/a.wav",
        ):
            text, failed = await call(client, "speak", file=file, **given)
            assert failed and text.startswith("file ") and "\n" not in text
        text, failed = await call(client, "speak", file="made.xyz", **given)
        assert failed and "xyz" in text

    with_client(tmp_path / "inside", work)
    assert not (tmp_path / "made.wav").exists() and not (tmp_path / "elsewhere.wav").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "file is required"),
        ({"file": "missing.wav"}, "missing.wav"),
        ({"file": "-"}, "-"),
        ({"file": "a.wav", "beam_sze": 5}, "beam_sze"),
        ({"file": "a.wav", "beam_size": "many"}, "beam_size"),
        ({"file": "a.wav", "format": "doc"}, "format"),
        ({"file": "a.wav", "model": "other"}, "other"),
        ({"file": ["a.wav"]}, "file must be one text"),
    ],
)
def test_wrong_arguments_are_answered_in_one_line(
    tmp_path: Path, arguments: dict[str, Any], message: str
) -> None:
    async def work(client: ClientSession) -> None:
        text, failed = await call(client, "transcribe", **arguments)
        assert failed and message in text and "\n" not in text

    with_client(tmp_path, work, WHISPER)


def test_a_cancelled_call_leaves_the_server_usable(tmp_path: Path, example: Path) -> None:
    async def work(client: ClientSession) -> None:
        running = asyncio.create_task(call(client, "transcribe", file=str(example), **FEW))
        await asyncio.sleep(0.2)
        running.cancel()
        text, failed = await call(client, "transcribe", file=str(example), **FEW)
        assert text and not failed

    with_client(tmp_path, work, WHISPER)
