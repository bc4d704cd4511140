"""A model that is loaded on a device, and shared by its callers: of every family."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

from oscine.engine.runner import OnDevice
from oscine.engine.scheduler import Engine
from oscine.errors import OtherModelError, UsageError
from oscine.family import Task
from oscine.models.asynchronous import AwaitedCalls
from oscine.registry import default

log = logging.getLogger(__name__)


#: What only models of the other task do: why this one does not.
ELSEWHERE: Mapping[Task, str] = {
    "speak": "writes down and cannot speak",
    "transcribe": "speaks and cannot write down",
}


Held = TypeVar("Held", bound=OnDevice)


class Loaded(Protocol):
    """What a result tells of the model that made it."""

    name: str

    @property
    def device(self) -> str: ...
    @property
    def timings(self) -> Mapping[str, float]: ...


class Model(Generic[Held]):
    """A model that is loaded: the base of every family's public model.

    Calls of any threads and tasks share its engine, and so the device. A copy of a model is the
    model itself, as its weights are on the device once. A pickle holds how the model was opened and
    no weights: it is opened so again where the pickle is read.

    `runner` runs its network; `rebuild` makes another where its device was lost.
    """

    #: Opens the same model in another process, once pickled; None where it was not opened by name.
    _reopen: Callable[[], Model[Held]] | None = None

    def __init__(self, runner: Held, name: str, rebuild: Callable[[], Held] | None = None) -> None:
        self.engine, self.name = Engine(runner, rebuild), name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} on {self.device}>"

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> tuple[Callable[[], Model[Held]], tuple[()]]:
        if self._reopen is None:
            raise UsageError(f"{self!r} was not opened by oscine.load, so it cannot be pickled")
        return self._reopen, ()

    if not TYPE_CHECKING:  # to whoever checks types there is no such method

        def __getattr__(self, name: str) -> Any:
            if name in ELSEWHERE:
                can = f"oscine.load({default(name)!r}) can"
                raise OtherModelError(
                    f"{name}: {self.__dict__.get('name')} {ELSEWHERE[name]}; {can}"
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @cached_property
    def _awaited(self) -> AwaitedCalls:
        """Its calls that event loops wait for."""
        return AwaitedCalls()

    @property
    def runner(self) -> Held:
        """What runs its network now: another one once its device was lost."""
        runner: Held = self.engine.runner
        return runner

    @property
    def device(self) -> str:
        """Where it runs."""
        return self.runner.device

    @property
    def timings(self) -> Mapping[str, float]:
        """Milliseconds that each stage took in all, since the model was loaded."""
        return self.runner.timings

    def trace(self) -> Mapping[str, tuple[int, float]]:
        """Passes and milliseconds by stage, as the device measured them."""
        return self.runner.trace()
