"""The program of a worker process: it loads a model on one device and serves its parent's requests.

Each request has its own thread; the model's engine batches their work. The process exits when its
parent does, also if that was killed.
"""

from __future__ import annotations

import inspect
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import count
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any

from oscine import registry
from oscine.errors import Cancelled, OscineError, OtherModelError
from oscine.fleet import messages
from oscine.fleet.messages import NO_REQUEST, Connection, Message

Load = Callable[..., Any]
STOP_KINDS = (messages.CANCEL, messages.INTERRUPT, messages.CLOSE, messages.DROP)

#: The number of the request that this thread works for.
_request: ContextVar[int] = ContextVar("_request", default=NO_REQUEST)


@dataclass(frozen=True, slots=True)
class ObjectSpec:
    """The public interface of an object in the other process: its methods with the names of their
    parameters, and other attributes."""

    kind: str
    methods: Mapping[str, tuple[str, ...]]
    values: frozenset[str]


@dataclass(frozen=True, slots=True)
class RemoteIterator:
    """Stands for an iterator of the parent, whose items are requested one by one."""

    number: int


class RemoteProgress:
    """Stands for a progress function of the parent."""


def describe_object(given: Any) -> ObjectSpec:
    """The interface of an object; coroutine functions are left out, as the parent makes its own."""
    kind = type(given)
    names = {name for name in (*dir(kind), *getattr(given, "__dict__", {})) if name[0] != "_"}
    methods, values = {}, set()
    for name in sorted(names):
        member = inspect.getattr_static(kind, name, None)
        if isinstance(member, staticmethod | classmethod):
            member = member.__func__
        if not callable(member):
            values.add(name)
        elif not inspect.iscoroutinefunction(member):
            methods[name] = parameter_names(getattr(given, name))
    return ObjectSpec(kind.__name__, methods, frozenset(values))


def parameter_names(method: Callable[..., Any]) -> tuple[str, ...]:
    """The names of a method's parameters; empty for one that is not written in Python."""
    try:
        return tuple(inspect.signature(method).parameters)
    except (TypeError, ValueError):
        return ()


class RequestHandler:
    """Serves one request in its own thread: a call of the model, then of the stream it returned."""

    def __init__(self, model: Any, number: int, link: Connection) -> None:
        self._target, self._is_stream = model, False
        self._number, self._link = number, link
        self.inbox: SimpleQueue[Message] = SimpleQueue()
        self.stopped = Event()
        self.over = False

    def run(self) -> None:
        """Handle messages until the request ends."""
        _request.set(self._number)
        while not self.over:
            self._do(self.inbox.get())
        self._target = None

    def _do(self, message: Message) -> None:
        if message.kind == messages.ASK:
            self._answer(message)
        elif message.kind == messages.DROP:
            self.over = True
        elif message.kind == messages.CLOSE and hasattr(self._target, "close"):
            self._target.close()

    def _answer(self, message: Message) -> None:
        """Perform one call and send its result."""
        turn = 0
        try:
            turn, stopped, *what = message.read()
            if stopped:
                self.stopped.set()
            result = self._ask(*what)
            if isinstance(result, Iterator):
                self._target, self._is_stream = result, True
                self._link.send(self._number, messages.STREAM, turn, describe_object(result))
            else:
                self._send_result(turn, what[1], result)
        except StopIteration:
            self._link.send(self._number, messages.END, turn)
        except BaseException as error:  # all of it is the parent's to raise
            self._fail(turn, error)
        self.over = self.over or not self._is_stream

    def _ask(
        self, operation: str, name: str, given: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        """Perform an operation: call a method, get the next item, get or set an attribute."""
        target = self._target
        if operation == "next":
            return next(target)
        if operation == "set":
            return setattr(target, name, *given)
        found = getattr(target, name)
        if operation == "get":
            return found
        if not self._is_stream and "cancel" in parameter_names(found):
            options["cancel"] = self.stopped
        result = found(
            *map(self._resolve_argument, given),
            **{key: self._resolve_argument(each) for key, each in options.items()},
        )
        return None if result is target else result

    def _send_result(self, turn: int, name: str, result: Any) -> None:
        """Send a result. Raises OtherModelError, an AttributeError, if it cannot be pickled."""
        try:
            self._link.send(self._number, messages.RESULT, turn, result)
        except Exception as error:
            told = f"{name} cannot be had from the process of a device ({error})"
            raise OtherModelError(told) from None

    def _fail(self, turn: int, error: BaseException) -> None:
        if not isinstance(error, OscineError):  # a fault, which its place helps to find
            error.add_note("in the worker:\n" + "".join(traceback.format_exception(error)))
        try:
            self._link.send(self._number, messages.ERROR, turn, error)
        except Exception:  # it cannot be pickled
            told = "".join(traceback.format_exception_only(error)).strip()
            self._link.send(self._number, messages.ERROR, turn, RuntimeError(told))

    def _resolve_argument(self, value: Any) -> Any:
        """An argument for the model: placeholders for objects of the parent are replaced."""
        if isinstance(value, RemoteIterator):
            return self._pull(value.number)
        if isinstance(value, RemoteProgress):
            return lambda done, total: self._link.send(self._number, messages.PROGRESS, done, total)
        return value

    def _pull(self, iterator: int) -> Iterator[Any]:
        """Yield the items of an iterator of the parent; handles its other messages meanwhile."""
        for place in count():
            self._link.send(self._number, messages.PULL, iterator, place)
            while (message := self.inbox.get()).kind in (messages.ASK, messages.CANCEL):
                self._do(message)
            if message.kind != messages.ITEM:  # none will come
                self.over = self.over or message.kind == messages.DROP
                raise Cancelled("the work was cancelled")
            item = message.read()
            if not item:
                return
            yield item[0]


class LogForwarder(logging.Handler):
    """Logging handler that sends records to the parent, which logs them in the request's thread."""

    def __init__(self, link: Connection) -> None:
        super().__init__()
        self._link = link

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        self._link.send(_request.get(), messages.LOG, record.name, record.levelno, text)


def serve(link: Connection, load: Load) -> None:
    """Load the model named by the first message, and serve requests until the parent exits."""
    jobs: dict[int, RequestHandler] = {}
    model = load_model(link, load, link.receive())
    while True:
        message = link.receive()
        number, kind = message.request, message.kind
        if kind == messages.ASK and number not in jobs:
            jobs = {each: job for each, job in jobs.items() if not job.over}
            jobs[number] = RequestHandler(model, number, link)
            Thread(target=jobs[number].run, name=f"oscine request {number}", daemon=True).start()
        if (job := jobs.get(number)) is not None:
            if kind in STOP_KINDS:
                job.stopped.set()
            job.inbox.put(message)


def load_model(link: Connection, load: Load, message: Message) -> Any:
    """Load the model and send its interface, or the error, to the parent."""
    try:
        name, device, dtype, offline, deterministic, memory, level, families = message.read()
        logging.getLogger().setLevel(level)
        for family in families:
            registry.register(family)
        model = load(
            name, device, dtype, offline=offline, deterministic=deterministic, memory=memory
        )
        about = (
            describe_object(model),
            model.name,
            model.device,
            getattr(model, "recordings_at_once", 1),
        )
        link.send(NO_REQUEST, messages.RESULT, *about)
        return model
    except Exception as error:
        link.send(NO_REQUEST, messages.ERROR, error)
        return None


def main(load: Load) -> None:
    """Run a worker that communicates with its parent over standard input and output."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this
    incoming, outgoing = os.fdopen(os.dup(0), "rb", 0), os.fdopen(os.dup(1), "wb", 0)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.dup2(2, 1)  # output of libraries must not mix with messages
    os.close(nowhere)
    sys.stdin = open(0, encoding="utf-8", closefd=False)
    link = Connection(incoming, outgoing)
    logging.getLogger().addHandler(LogForwarder(link))
    try:
        serve(link, load)
    except (EOFError, OSError):
        os._exit(0)
