"""The models that are served: by their names, by aliases and by OpenAI's names."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from oscine import registry
from oscine.errors import OscineError, UsageError
from oscine.family import TASKS, Task
from oscine.files import expand_user
from oscine.server.errors import ApiError, unavailable

log = logging.getLogger(__name__)

#: OpenAI's names of models, which mean the first model served for the task.
OPENAI_MODELS: Mapping[Task, tuple[str, ...]] = {
    "transcribe": (
        *("whisper-1", "gpt-transcribe", "gpt-4o-transcribe", "gpt-4o-mini-transcribe"),
        "gpt-4o-mini-transcribe-2025-12-15",
    ),
    "speak": ("tts-1", "tts-1-hd", "gpt-4o-mini-tts", "gpt-4o-mini-tts-2025-12-15"),
}
WARM_UP_S = 1.0  # of noise, as silence lets some models decode for long


class Loader(Protocol):
    """Loads and unloads models; the command provides it, as the server loads none itself."""

    def load(self, name: str) -> Any:
        """The model of a name or path."""

    def unload(self, model: Any) -> None:
        """Free the memory of a model that is not in use."""

    def memory_used(self, model: Any) -> int:
        """Bytes that a model has allocated on its device."""

    def describe(self, name: str) -> tuple[Task | None, int]:
        """The task of a model that is not loaded, None if unknown, and the bytes of its files."""


@dataclass(slots=True, eq=False)
class ServedModel:
    """A model of the list: `id` is its name for clients, `given` that of the command line.

    `task`: None until it is known. `nbytes`: the memory that it took when it was loaded, or the
    size of its files before. `users`: requests that use it; `last_used`: of time.monotonic.
    """

    id: str
    given: str
    model: Any = None  # None while it is not loaded
    task: Task | None = None
    nbytes: int = 0
    users: int = 0
    last_used: float = field(default_factory=time.monotonic)
    created: int = field(default_factory=lambda: int(time.time()))

    def to_dict(self) -> dict[str, Any]:
        """OpenAI's model object, with what this server knows beside."""
        row: dict[str, Any] = {
            "id": self.id,
            "object": "model",
            "created": self.created,
            "owned_by": "oscine",
            "loaded": self.model is not None,
        }
        if self.task is not None:
            row["task"] = self.task
        if self.model is not None:
            languages = list(getattr(self.model, "languages", ()))
            row |= {"device": self.model.device, "languages": languages}
        return row

    def release(self) -> None:
        """End a use of the model."""
        self.users -= 1
        self.last_used = time.monotonic()


class Catalog:
    """The models that clients may name; no other is ever loaded.

    A model is loaded at the start, or when it is first used; it is unloaded after a time without
    use, or where another needs its memory. All but `load_first` is called in the event loop.

    Args:
        names: Names or paths of the models.
        aliases: Pairs NAME=MODEL.
        loader: Loads the models.
        max_memory: Bytes that the loaded models may take together; None: no limit.
        keep_alive_s: Seconds without use until a model is unloaded; None: it stays.

    Raises:
        UsageError: two models have one name, or an alias names no model.
    """

    def __init__(
        self,
        names: Sequence[str],
        aliases: Sequence[str],
        loader: Loader,
        *,
        max_memory: int | None = None,
        keep_alive_s: float | None = None,
    ) -> None:
        self._loader, self._max_memory, self.keep_alive_s = loader, max_memory, keep_alive_s
        self.models: dict[str, ServedModel] = {}
        for given in names:
            id = _public_name(given)
            if id in self.models:
                raise UsageError(f"two models are called {id!r}; rename the folder of one")
            task, nbytes = loader.describe(given)
            self.models[id] = ServedModel(id, given, task=task, nbytes=nbytes)
        self.aliases: dict[str, str] = {}
        for pair in aliases:
            alias, _, target = (part.strip() for part in pair.partition("="))
            if target not in self.models:
                known = ", ".join(self.models)
                raise UsageError(f"alias {pair}: {target!r} is not served; models are {known}")
            self.aliases[alias] = target
        self.ready = False
        self._loading = asyncio.Lock()  # one model at a time

    # -- loading ------------------------------------------------------------------------------

    def load_first(self) -> None:
        """Load the models that fit together, in their order. Raises what loading raises.

        Called in a thread before requests are taken.
        """
        for served in self.models.values():
            if self.memory_used and not self._fits(served):
                continue  # it is loaded when it is used
            self._load(served)
        self.ready = True

    def _load(self, served: ServedModel) -> None:
        model = self._loader.load(served.given)
        served.task = "speak" if hasattr(model, "speak") else "transcribe"
        warm_up(model)
        served.nbytes, served.last_used = self._loader.memory_used(model), time.monotonic()
        served.model = model

    @property
    def memory_used(self) -> int:
        """Bytes that the loaded models took when they were loaded."""
        return sum(served.nbytes for served in self.models.values() if served.model is not None)

    def _fits(self, served: ServedModel) -> bool:
        """Whether there is memory for another model."""
        return self._max_memory is None or self.memory_used + served.nbytes <= self._max_memory

    async def use(self, name: str, task: Task, timeout_s: float) -> ServedModel:
        """The model of a task that a client names, loaded; `release` ends its use.

        Raises ApiError: 404, or 503 while the server starts, if memory is short, or if the model
        cannot be loaded.
        """
        served = self._find(name, task)
        served.users += 1
        try:
            if served.model is None:
                if not self.ready:
                    raise unavailable(f"model {served.id} is being loaded", "loading", 5)
                loading = asyncio.ensure_future(self._load_on_demand(served))
                await asyncio.wait_for(asyncio.shield(loading), timeout_s)
            self._check_task(served, task)
        except TimeoutError:
            served.release()
            raise unavailable(f"model {served.id} is being loaded", "loading", 5) from None
        except BaseException:
            served.release()
            raise
        return served

    async def _load_on_demand(self, served: ServedModel) -> None:
        """Load a model, after unloading others where memory is short. Raises ApiError."""
        async with self._loading:
            if served.model is not None:
                return
            while not self._fits(served):
                loaded = [each for each in self.models.values() if each.model is not None]
                idle = [each for each in loaded if not each.users]
                if idle:
                    await self._unload(min(idle, key=lambda each: each.last_used))
                elif loaded:
                    message = f"there is no memory for {served.id} while other models are at work"
                    raise unavailable(message, "models_busy", 5)
                else:
                    break  # the size of its files may mislead: alone it is tried
            try:
                await asyncio.get_running_loop().run_in_executor(None, self._load, served)
            except OscineError as error:
                log.error("model %s cannot be loaded: %s", served.id, error)
                raise unavailable(
                    f"model {served.id} cannot be loaded", "loading_failed", 30
                ) from error

    async def unload_idle(self) -> None:
        """Unload the models that have not been used for the time to keep them."""
        if self.keep_alive_s is None or not self.ready:
            return
        until = time.monotonic() - self.keep_alive_s
        for served in self.models.values():
            async with self._loading:
                if served.model is not None and not served.users and served.last_used <= until:
                    await self._unload(served)

    async def _unload(self, served: ServedModel) -> None:
        """Give up the only reference to a model, so that the loader can free its memory."""
        owned, served.model = [served.model], None
        log.info("model %s is unloaded", served.id)
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, lambda: self._loader.unload(owned.pop()))

    # -- names --------------------------------------------------------------------------------

    def _find(self, name: str, task: Task) -> ServedModel:
        """The model of a name, which may be unloaded. Raises ApiError: 404."""
        served = self.lookup(name, task)
        if served is None:
            known = ", ".join([*self.models, *self.aliases])
            message = f"model {name[:100]!r} is not served here; models are {known}"
            raise ApiError(404, message, "model_not_found", param="model")
        self._check_task(served, task)
        return served

    def _check_task(self, served: ServedModel, task: Task) -> None:
        if served.task not in (None, task):
            assert served.task is not None
            message = f"model {served.id} is for {TASKS[served.task]}, not for {TASKS[task]}"
            raise ApiError(404, message, "model_not_found", param="model")

    def lookup(self, name: str, task: Task | None = None) -> ServedModel | None:
        """The model of a name; of OpenAI's names the first of their task. None if there is none."""
        name = self.aliases.get(name, name)
        if name in self.models:
            return self.models[name]
        known = registry.find_model(name)
        if known is not None and known[1] in self.models:
            return self.models[known[1]]
        for each in OPENAI_MODELS if task is None else (task,):
            if name in OPENAI_MODELS[each]:
                fitting = (served for served in self.models.values() if served.task in (each, None))
                return next(fitting, None)
        return None


def _public_name(given: str) -> str:
    """The name of a model for clients: that of a path's last part, which shows no folder."""
    path = expand_user(given)
    if os.path.exists(path):
        absolute = Path(os.path.abspath(path))
        return absolute.name if absolute.is_dir() else absolute.stem
    found = registry.find_model(given)
    return given if found is None else found[1]


def warm_up(model: Any) -> None:
    """Compile what a GPU needs for a first request, so that no client waits for it."""
    if model.device == "NumPy":
        return
    if hasattr(model, "speak"):
        voice = model.capabilities.default_voice
        if voice is not None:
            model.speak("Hello.", voice=voice, max_seconds=1.0)
        return
    noise = np.random.default_rng(0).normal(0, 0.05, round(16_000 * WARM_UP_S))
    model.transcribe((noise.astype(np.float32), 16_000), vad_filter=False, temperature=0)
