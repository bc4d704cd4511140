"""A model that stays loaded on a device, and outlives the loss of that device: of every family."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from threading import RLock
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

from oscine.engine.runner import OnDevice
from oscine.engine.scheduler import Engine
from oscine.engine.sequence import Caller
from oscine.errors import DeviceLostError, OtherModelError, UsageError
from oscine.family import Task
from oscine.models.asynchronous import AwaitedCalls
from oscine.registry import default

log = logging.getLogger(__name__)


#: What only models of the other task do: why this one does not.
ELSEWHERE: Mapping[Task, str] = {
    "speak": "writes down and cannot speak",
    "transcribe": "speaks and cannot write down",
}


#: The request that this thread works for, where no engine knows it.
booked_to: ContextVar[Caller | None] = ContextVar("booked_to", default=None)

Held = TypeVar("Held", bound=OnDevice)
Held_co = TypeVar("Held_co", bound=OnDevice, covariant=True)
Result = TypeVar("Result")


class RunOnEngine(Protocol[Held_co]):
    """Model.run, for code that needs the engine and nothing else of the model."""

    def __call__(self, work: Callable[[Held_co], Result]) -> Result: ...


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


class Alone(Model[Held]):
    """A model that one caller has to itself at a time, under `lock`; streams may be interleaved."""

    def __init__(self, decoder: Held, name: str, rebuild: Callable[[], Held] | None = None) -> None:
        self.decoder, self.name = decoder, name
        self.lock = RLock()
        self._rebuild = rebuild

    @property
    def runner(self) -> Held:
        return self.decoder

    def current(self) -> Held:
        """What runs its network now."""
        return self.decoder

    def run(self, work: Callable[[Held], Result]) -> Result:
        """The result of `work(engine)`, which has the engine to itself, as in `surviving`."""

        def alone() -> Result:
            with self.lock, self._booked():
                return work(self.decoder)

        return self.surviving(alone)

    @contextmanager
    def _booked(self) -> Iterator[None]:
        """What is done inside is booked to the request that `booked_to` names; lock held."""
        caller, before = booked_to.get(), dict(self.decoder.timings)
        token = booked_to.set(None)  # work within the work is part of it
        try:
            yield
        finally:
            booked_to.reset(token)
            if caller is not None:
                for stage, spent in self.decoder.timings.items():
                    caller.clock(stage, spent - before.get(stage, 0.0))

    def forget(self) -> None:
        """Called when the engine is lost, with all that it held; lock held."""

    def surviving(self, work: Callable[[], Result]) -> Result:
        """The result of work that can be done over: on a new device, as often as one is lost.

        Raises DeviceLostError where there is no way to make another.
        """
        while True:
            try:
                return work()
            except DeviceLostError as lost:
                if self._rebuild is None:
                    raise
                log.warning("%s; going on from the piece it was at", lost)
            with self.lock:
                self.forget()
                timings = self.decoder.timings
                self.decoder = self._rebuild()
                self.decoder.timings = timings
