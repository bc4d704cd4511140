"""Servers and models for their tests, which need the extras `server` and `mcp`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import oscine

GOLDENS = Path(__file__).resolve().parents[1] / "goldens"
WHISPER = GOLDENS / "whisper_multi"
SPEECH = GOLDENS / "qwen3_tts"

NEEDED = ("fastapi", "mcp", "openai", "uvicorn", "websockets", "wyoming")
collect_ignore_glob = [] if all(map(find_spec, NEEDED)) else ["test_*.py"]


@pytest.fixture
def serve() -> Iterator[Callable[..., Any]]:
    """serve({name: model}, keys, **options): a server, which ends with the test."""
    from .running import Running

    running: list[Running] = []

    def start(*given: Any, **options: Any) -> Running:
        running.append(Running(*given, **options))
        return running[-1]

    yield start
    for each in running:
        each.close()


@pytest.fixture(scope="session")
def whisper() -> Any:
    """A small multilingual Whisper with random weights."""
    return oscine.load(WHISPER, "cpu")


@pytest.fixture(scope="session")
def speakers() -> dict[str, Any]:
    """Small Qwen3-TTS models with random weights, by kind."""
    kinds = ("custom_voice", "base", "voice_design")
    return {kind: oscine.load(SPEECH / kind / "ckpt", "cpu") for kind in kinds}
