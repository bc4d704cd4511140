"""A server on a free port of this machine, in a thread, with OpenAI's client, and slow models."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import uvicorn
from openai import OpenAI

from oscine.errors import Cancelled
from oscine.options.serve import ServeOptions
from oscine.server.app import Server
from oscine.server.catalog import Catalog, ServedModel
from oscine.server.run import connections
from oscine.types import Audio, Segment, Transcript


class Shelf:
    """Models that are loaded by their names, and what was done with them."""

    def __init__(self, models: dict[str, Any]) -> None:
        self.models = models
        self.done: list[str] = []

    def load(self, name: str) -> Any:
        self.done.append(f"load {name}")
        if isinstance(self.models[name], Exception):
            raise self.models[name]
        return self.models[name]

    def unload(self, model: Any) -> None:
        (name,) = (name for name, each in self.models.items() if each is model)
        self.done.append(f"unload {name}")

    def memory_used(self, model: Any) -> int:
        return 100

    def describe(self, name: str) -> tuple[Any, int]:
        return ("speak" if is_speaker(self.models[name]) else "transcribe"), 100


def is_speaker(model: Any) -> bool:
    return hasattr(model, "speak")


class Running:
    """A server that answers, with models that are loaded already."""

    def __init__(self, models: dict[str, Any], keys: tuple[str, ...] = (), **options: Any) -> None:
        self.options = ServeOptions.of(**options)
        self.catalog = Catalog((), (), Shelf(models))
        for name, model in models.items():
            task: Any = None if model is None else "speak" if is_speaker(model) else "transcribe"
            self.catalog.models[name] = ServedModel(name, name, model, task)
        self.catalog.ready = True
        self._clients: list[OpenAI] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._keys, self._started = keys, threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        assert self._started.wait(30)

    async def _serve(self) -> None:
        self.server = Server(self.options, self.catalog, self._keys)
        config = uvicorn.Config(
            self.server.app, http=connections(self.options), ws="websockets-sansio", lifespan="off",
            log_config=None, root_path=self.options.root_path, access_log=False,
            timeout_graceful_shutdown=1,
        )  # fmt: skip
        self.http = uvicorn.Server(config)
        self.loop = asyncio.get_running_loop()
        self.loop.call_soon(self._started.set)
        await self.http.serve(sockets=[self.listener])

    def client(self, key: str = "none", **more: Any) -> OpenAI:
        """OpenAI's client, which hides no refusal by trying again."""
        made = OpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0, **more)
        self._clients.append(made)
        return made

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds."""
        for _ in range(600):
            if holds():
                return
            time.sleep(0.05)
        raise AssertionError("it does not come true")

    def close(self) -> None:
        for client in self._clients:
            client.close()
        self.server.gate.stop()
        self.http.should_exit = True
        self._thread.join(30)
        assert not self._thread.is_alive()


class Scripted:
    """A model that transcribes a segment, and then waits to be released or cancelled."""

    device, languages = "NumPy", ("en",)

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.started, self.cancelled = threading.Semaphore(0), threading.Event()
        self.release = threading.Event()
        self.running = 0

    def stream(self, source: Any, *, cancel: Callable[[], bool], **options: Any) -> Any:
        if self.error is not None:
            raise self.error
        return ScriptedStream(self, cancel)


class ScriptedStream:
    def __init__(self, model: Scripted, cancel: Callable[[], bool]) -> None:
        self.model, self.cancel = model, cancel

    def __iter__(self) -> Iterator[Segment]:
        yield Segment(0, 0, 0.0, 1.0, " One", (1,), 0.0, 0.0, 1.0, 0.0)
        self.model.started.release()
        while not self.model.release.wait(0.01):
            if self.cancel():
                self.model.cancelled.set()
                raise Cancelled("cancelled")
        yield Segment(1, 0, 1.0, 2.0, " two", (2,), 0.0, 0.0, 1.0, 0.0)

    def transcript(self) -> Transcript:
        return Transcript(" One two", "en", (), 2.0, "scripted", "NumPy")


class ScriptedSpeaker:
    """A model that speaks a tenth of a second, and then waits to be released or cancelled."""

    device, name, voices = "NumPy", "speaker", ("ada",)

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.release, self.cancelled = threading.Event(), threading.Event()
        self.capabilities = SimpleNamespace(default_voice="ada", kind="custom_voice")

    def speak(self) -> None:
        raise NotImplementedError

    def stream(self, text: str, *, cancel: Callable[[], bool], **options: Any) -> Any:
        return ScriptedSpeech(self, cancel)


class ScriptedSpeech:
    rate, mark, seed, finish_reason = 24_000, "", 1, None

    def __init__(self, model: ScriptedSpeaker, cancel: Callable[[], bool]) -> None:
        self.model, self.cancel = model, cancel

    def __iter__(self) -> Iterator[Audio]:
        yield Audio(np.zeros(2400, np.float32), self.rate)
        while not self.model.release.wait(0.01):
            if self.cancel():
                self.model.cancelled.set()
                raise Cancelled("cancelled")
        if self.model.error is not None:
            raise self.model.error
        yield Audio(np.zeros(2400, np.float32), self.rate)

    def close(self) -> None:
        """Nothing is held."""
