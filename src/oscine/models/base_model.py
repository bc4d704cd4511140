"""The base class of every family's public model."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self

from oscine.engine.scheduler import Engine
from oscine.errors import OtherModelError, UsageError
from oscine.family import Task
from oscine.model_runner import RunnerT
from oscine.models.asynchronous import AsyncCalls
from oscine.registry import default_model

log = logging.getLogger(__name__)


#: By the task of a method that a model lacks: why it lacks it.
WRONG_TASK: Mapping[Task, str] = {
    "speak": "is a speech-to-text model and cannot speak",
    "transcribe": "is a text-to-speech model and cannot transcribe",
}


class ModelInfo(Protocol):
    """The part of a model that its results report."""

    name: str

    @property
    def device(self) -> str: ...
    @property
    def timings(self) -> Mapping[str, float]: ...


class Model(Generic[RunnerT]):
    """A model on a device, which any number of threads and tasks may call.

    All calls share its engine. A copy of a model is the model itself, since its weights are on the
    device once. A pickle contains no weights, only how the model was opened: unpickling opens it
    again.

    Args:
        runner: Runs the network.
        name: As given to oscine.load.
        rebuild: Makes another runner after the device was lost.
    """

    #: Opens the same model when it is unpickled; None if oscine.load did not open it.
    _reopen: Callable[[], Model[RunnerT]] | None = None

    def __init__(
        self, runner: RunnerT, name: str, rebuild: Callable[[], RunnerT] | None = None
    ) -> None:
        self.engine, self.name = Engine(runner, rebuild), name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} on {self.device}>"

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> tuple[Callable[[], Model[RunnerT]], tuple[()]]:
        if self._reopen is None:
            raise UsageError(f"{self!r} was not opened by oscine.load, so it cannot be pickled")
        return self._reopen, ()

    if not TYPE_CHECKING:  # type checkers should report such methods as missing

        def __getattr__(self, name: str) -> Any:
            if name in WRONG_TASK:
                can = f"oscine.load({default_model(name)!r}) can"
                own = self.__dict__.get("name")
                raise OtherModelError(f"{name}: {own} {WRONG_TASK[name]}; {can}")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @cached_property
    def _async_calls(self) -> AsyncCalls:
        """Runs the calls that event loops await."""
        return AsyncCalls()

    @property
    def runner(self) -> RunnerT:
        """Runs the network; replaced if the device is lost."""
        runner: RunnerT = self.engine.runner
        return runner

    @property
    def device(self) -> str:
        """The name of the device that the model runs on."""
        return self.runner.device

    @property
    def timings(self) -> Mapping[str, float]:
        """Milliseconds by stage, in total since the model was loaded."""
        return self.runner.timings

    def trace(self) -> Mapping[str, tuple[int, float]]:
        """Passes and milliseconds by stage, measured by the device."""
        return self.runner.trace()
