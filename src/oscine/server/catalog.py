"""The models that are served: by their names, by aliases and by OpenAI's names."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from oscine import registry
from oscine.errors import UsageError
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


@dataclass(slots=True)
class ServedModel:
    """A model of the list: `id` is its name for clients, `given` that of the command line."""

    id: str
    given: str
    model: Any = None  # None until it is loaded
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def task(self) -> Task:
        """What the loaded model does."""
        return "speak" if hasattr(self.model, "speak") else "transcribe"

    def to_dict(self) -> dict[str, Any]:
        """OpenAI's model object, with what this server knows beside."""
        row: dict[str, Any] = {
            "id": self.id,
            "object": "model",
            "created": self.created,
            "owned_by": "oscine",
            "loaded": self.model is not None,
        }
        if self.model is not None:
            languages = list(getattr(self.model, "languages", ()))
            row |= {"task": self.task, "device": self.model.device, "languages": languages}
        return row


class Catalog:
    """The models that clients may name; no other is ever loaded.

    Args:
        names: Names or paths of the models.
        aliases: Pairs NAME=MODEL.
        load: Loads a model by a name or path.

    Raises:
        UsageError: two models have one name, or an alias names no model.
    """

    def __init__(
        self, names: Sequence[str], aliases: Sequence[str], load: Callable[[str], Any]
    ) -> None:
        self._load = load
        self.models: dict[str, ServedModel] = {}
        for given in names:
            id = _public_name(given)
            if id in self.models:
                raise UsageError(f"two models are called {id!r}; rename the folder of one")
            self.models[id] = ServedModel(id, given)
        self.aliases: dict[str, str] = {}
        for pair in aliases:
            alias, _, target = (part.strip() for part in pair.partition("="))
            if target not in self.models:
                known = ", ".join(self.models)
                raise UsageError(f"alias {pair}: {target!r} is not served; models are {known}")
            self.aliases[alias] = target
        self.ready = False

    def load_all(self) -> None:
        """Load every model, and compile its kernels on a GPU. Raises what loading raises."""
        for served in self.models.values():
            model = self._load(served.given)
            warm_up(model)
            served.model = model
        self.ready = True

    def find(self, name: str, task: Task) -> ServedModel:
        """The model of a task that a client names. Raises ApiError: 404, or 503 while loading."""
        served = self.lookup(name, task)
        if served is None:
            raise self._not_found(name)
        if served.model is None:
            raise unavailable(f"model {served.id} is being loaded", "loading", 5)
        if served.task != task:
            raise ApiError(
                404,
                f"model {served.id} is for {TASKS[served.task]}, not for {TASKS[task]}",
                "model_not_found",
                param="model",
            )
        return served

    def lookup(self, name: str, task: Task | None = None) -> ServedModel | None:
        """The model of a name; OpenAI's names need the task. None if there is none."""
        name = self.aliases.get(name, name)
        if name in self.models:
            return self.models[name]
        known = registry.find_model(name)
        if known is not None and known[1] in self.models:
            return self.models[known[1]]
        for each in OPENAI_MODELS if task is None else (task,):
            if name in OPENAI_MODELS[each]:
                return next(
                    (
                        served
                        for served in self.models.values()
                        if served.model is None or served.task == each
                    ),
                    None,
                )
        return None

    def _not_found(self, name: str) -> ApiError:
        served = ", ".join([*self.models, *self.aliases])
        message = f"model {name[:100]!r} is not served here; models are {served}"
        return ApiError(404, message, "model_not_found", param="model")


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
