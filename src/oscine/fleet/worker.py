"""Worker processes from the parent's side: each has the model on one device and serves requests."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from pickle import PicklingError
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any, BinaryIO, Protocol, cast
from weakref import WeakSet

from oscine.errors import Cancelled, DeviceError, UsageError
from oscine.family import Family
from oscine.fleet import messages
from oscine.fleet.messages import NO_REQUEST, Connection, Message
from oscine.fleet.worker_process import ObjectSpec
from oscine.futures import POLL_INTERVAL_S, Future, wait_for_any

log = logging.getLogger(__name__)

MAX_LOSSES = 2  # lost processes of one device that are replaced
_PROGRAM = (
    "import sys; sys.path[:] = sys.argv[1:]; from oscine.fleet.worker_process import main; "
    "from oscine.loading import load; main(load)"
)


class WorkerLostError(Exception):
    """The worker process has exited while a request was in progress."""


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """What a worker loads: as oscine.load takes it. `threads`: of NumPy in each process."""

    name: str
    dtype: str
    offline: bool
    deterministic: bool
    memory: str | int | None
    families: tuple[Family, ...]
    threads: int


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A worker's description of its model."""

    shape: ObjectSpec
    name: str
    device: str
    recordings_at_once: int


def log_from_worker(name: str, level: int, text: str) -> None:
    """Log what a worker has logged."""
    logging.getLogger(name).log(level, "%s", text)


class Worker:
    """A process that loads the model on a device, `gpu:N`.

    `about` is there once it has; its error where it cannot. `on_loss` is called, by a thread of the
    worker, where the process ends although it has not been told to.
    """

    def __init__(
        self, device: str, opening: LoadRequest, on_loss: Callable[[Worker], None]
    ) -> None:
        self.device, self._on_loss = device, on_loss
        self.about: Future[ModelInfo] = Future()
        self.requests: dict[int, Request] = {}
        self.served = 0  # requests so far
        self.ended = False  # it was told to
        self.lost = ""  # how the process ended
        self._numbers = count(NO_REQUEST + 1)
        self._lock = Lock()  # of `requests` and `lost`, so that no request is left behind
        self._last_words = b""
        self.process = start_process(opening.threads)
        stdout, stdin = cast(BinaryIO, self.process.stdout), cast(BinaryIO, self.process.stdin)
        self._pipes = Connection(stdout, stdin)
        level = logging.getLogger("oscine").getEffectiveLevel()
        how = opening.offline, opening.deterministic, opening.memory
        what = opening.name, device, opening.dtype, *how
        self._pipes.send(NO_REQUEST, messages.LOAD, *what, level, opening.families)
        listening = Thread(target=self._listen, name=f"oscine errors {device}", daemon=True)
        listening.start()
        Thread(target=self._read, args=(listening,), name=f"oscine {device}", daemon=True).start()

    @property
    def load(self) -> int:
        """Number of requests in progress."""
        return sum(request.busy for request in list(self.requests.values()))

    def request(self) -> Request:
        """A new request. Raises WorkerLostError."""
        with self._lock:
            if self.lost:
                raise WorkerLostError(self.lost)
            number, self.served = next(self._numbers), self.served + 1
            self.requests[number] = Request(self, number)
            return self.requests[number]

    def send(self, request: int, kind: int, *said: Any) -> None:
        self._pipes.send(request, kind, *said)

    def end(self) -> None:
        """Kill the process; requests in progress fail."""
        self.ended = True
        self.process.kill()
        self.process.wait()

    def abandon_after_fork(self) -> None:
        """Detach from the worker in a forked process: it belongs to the parent."""
        self._lock, self.ended = Lock(), True
        self.lost = "is the one of the process that this one was forked from"
        for request in list(self.requests.values()):
            request.inbox = SimpleQueue()  # of the old one a thread may have had the lock
            request.inbox.put(Message(request.number, messages.LOST, b"", []))
        self.process.returncode = 0
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                with suppress(OSError):
                    os.close(pipe.fileno())  # not close(), which waits for a thread of the other's

    def _read(self, listening: Thread) -> None:
        """Thread that dispatches the worker's messages to their requests."""
        with suppress(EOFError, OSError, ValueError):
            while True:
                message = self._pipes.receive()
                if message.request == NO_REQUEST:
                    self._note(message)
                elif (request := self.requests.get(message.request)) is not None:
                    request.inbox.put(message)
        self._pipes.close()
        self.process.kill()  # it may have closed its pipes alone
        self.process.wait()
        listening.join()
        self._leave()

    def _note(self, message: Message) -> None:
        """Handle a message that belongs to no request: the result of loading, or a log record."""
        said = message.read()
        if message.kind == messages.LOG:
            log_from_worker(*said)
        elif message.kind == messages.RESULT:
            self._last_words = b""  # drivers print much as they are opened
            self.about.finish(ModelInfo(*said))
        else:
            self.about.fail(said[0])
            self.end()

    def _listen(self) -> None:
        """Thread that keeps the last line on the worker's stderr, which may explain its exit."""
        assert self.process.stderr is not None
        with self.process.stderr as errors:
            for line in errors:
                self._last_words = line.strip()[:300] or self._last_words

    def _leave(self) -> None:
        """Notify all waiting requests that the process has exited."""
        with self._lock:
            self.lost = self._how_it_ended()
            waiting = list(self.requests.values())
        self.about.fail(DeviceError(f"{self.device}: its process {self.lost}"))
        if not self.ended:
            self._on_loss(self)  # first, so that waiting requests find another worker
        for request in waiting:
            request.inbox.put(Message(request.number, messages.LOST, b"", []))

    def _how_it_ended(self) -> str:
        code = self.process.returncode
        how = f"ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        words = self._last_words.decode("utf-8", "replace")
        return f"{how}: {words}" if words else how


class CallerCallbacks(Protocol):
    """The functions of a caller that a request uses while it waits."""

    def stops(self) -> bool:
        """Whether the caller has cancelled; True only once."""

    def progress(self, done: float, total: float) -> None:
        """Report progress."""

    def item(self, iterator: int, place: int) -> tuple[Any, ...]:
        """(item,) of an iterator, () at its end."""


class Request:
    """One request to a worker: a call of the model, and calls of the stream that it returned.

    Only one thread may wait at a time; its callbacks may make further calls.
    """

    def __init__(self, worker: Worker, number: int) -> None:
        self.worker, self.number = worker, number
        self.inbox: SimpleQueue[Message] = SimpleQueue()
        self.busy = True  # as the others count it
        self._turns = count(1)
        self._answers: dict[int, tuple[int, Any]] = {}
        self._waited: set[int] = set()

    def ask(self, serving: CallerCallbacks, operation: str, name: str = "", *given: Any) -> Any:
        """The answer; Shape: a stream has come of it. `given`: positional arguments, keywords.

        Raises what the worker raises, what the caller's own functions raise, StopIteration, and
        WorkerLostError. Where the wait is interrupted, the worker stops.
        """
        turn = next(self._turns)
        arguments = given or ((), {})
        stopped = (
            serving.stops()
        )  # sent with it: a short work would end before a message of its own
        try:
            self.worker.send(self.number, messages.ASK, turn, stopped, operation, name, *arguments)
        except (PicklingError, TypeError, AttributeError) as error:
            told = f"{name}: what it is given cannot be sent to another process ({error})"
            raise UsageError(told) from None
        self._waited.add(turn)
        try:
            while turn not in self._answers:
                self._take(serving)
        except WorkerLostError:
            raise
        except BaseException:
            self.worker.send(self.number, messages.INTERRUPT)
            raise
        finally:
            self._waited.discard(turn)
        kind, answer = self._answers.pop(turn)
        if kind == messages.ERROR:
            raise answer
        if kind == messages.END:
            raise StopIteration
        return answer

    def _take(self, serving: CallerCallbacks) -> None:
        """Deal with the next message, if there is one within a moment."""
        if serving.stops():
            self.worker.send(self.number, messages.CANCEL)
        try:
            message = self.inbox.get(timeout=POLL_INTERVAL_S)
        except Empty:
            return
        if message.kind == messages.LOST:
            self.inbox.put(message)  # for the next call that waits
            raise WorkerLostError(self.worker.lost)
        said = message.read()
        if message.kind == messages.LOG:
            log_from_worker(*said)
            return
        if message.kind == messages.PROGRESS:
            serving.progress(*said)
            return
        if message.kind == messages.PULL:
            self.worker.send(self.number, messages.ITEM, *serving.item(*said))
            return
        turn = said[0] or max(self._waited)  # 0: the worker could not read what it was asked
        if turn in self._waited:  # else the wait for it was interrupted
            self._answers[turn] = message.kind, said[1] if len(said) > 1 else None

    def close(self) -> None:
        """Cancel the request and close its stream, whose attributes remain readable."""
        self.busy = False
        self.worker.send(self.number, messages.CLOSE)

    def drop(self) -> None:
        """End the request and release its stream. Thread-safe."""
        if self.worker.requests.pop(self.number, None) is not None:
            self.worker.send(self.number, messages.DROP)


class WorkerPool:
    """The workers of a model. The least loaded takes the next request."""

    def __init__(self, devices: list[str], opening: LoadRequest) -> None:
        self._opening = opening
        self._lock = Lock()
        self._losses: Counter[str] = Counter()
        self._workers: list[Worker] = []
        self._ended = False
        live.add(self)
        try:
            for device in devices:
                self._workers.append(Worker(device, opening, self._replace))
        except BaseException:
            self.end()
            raise

    def ready(self) -> list[ModelInfo]:
        """Wait until all workers have loaded the model, and return their descriptions of it.

        A worker whose device fails is left out with a warning. Raises the errors of loading, and
        DeviceError if no device works.
        """
        problems: list[DeviceError] = []
        abouts: list[ModelInfo] = []
        for worker in list(self._workers):
            try:
                abouts.append(worker.about.result())
            except DeviceError as error:
                problems.append(error)
            except BaseException:
                self.end()
                raise
        if not abouts:
            self.end()
            raise problems[0]
        for problem in problems:
            log.warning("continuing without a device: %s", problem)
        return abouts

    def living(self) -> list[Worker]:
        """Workers that can take requests."""
        with self._lock:
            workers = list(self._workers)
        return [w for w in workers if w.about.done() and w.about.exception() is None and not w.lost]

    def request(self, stops: Callable[[], bool] = lambda: False) -> Request:
        """Make a request to the least loaded worker; waits while workers are starting.

        Raises DeviceError if no worker is left, Cancelled.
        """
        while True:
            if living := self.living():
                with self._lock:
                    worker = min(living, key=lambda worker: (worker.load, worker.served))
                    with suppress(WorkerLostError):  # it has just ended
                        return worker.request()
                continue
            with self._lock:
                starting = [w.about for w in self._workers if not w.about.done()]
            if not starting:
                raise DeviceError("the processes of all devices have ended; load the model again")
            if stops():
                raise Cancelled("the work was cancelled")
            wait_for_any(starting, POLL_INTERVAL_S)

    def end(self) -> None:
        """Kill all processes."""
        with self._lock:
            self._ended, workers = True, self._workers
            self._workers = []
        for worker in workers:
            worker.end()

    def abandon_after_fork(self) -> None:
        """Detach from the workers in a forked process: they belong to the parent."""
        self._lock, self._ended = Lock(), True
        for worker in self._workers:
            worker.abandon_after_fork()
        self._workers = []

    def _replace(self, worker: Worker) -> None:
        """Replace a worker that has exited, unless its device was lost too often."""
        with self._lock:
            if self._ended or worker not in self._workers:
                return
            self._workers.remove(worker)
            if not worker.about.done() or worker.about.exception() is not None:
                return  # `ready` tells of it
            self._losses[worker.device] += 1
            again = self._losses[worker.device] <= MAX_LOSSES
            outcome = "another takes its work" if again else "continuing without it"
            log.warning("%s: its process %s; %s", worker.device, worker.lost, outcome)
            if again:
                with suppress(DeviceError):
                    other = Worker(worker.device, self._opening, self._replace)
                    other.about.add_done_callback(partial(_tell_failure, worker.device))
                    self._workers.append(other)


def _tell_failure(device: str, about: Future[ModelInfo]) -> None:
    if (problem := about.exception()) is not None:
        log.warning("%s: its process cannot be replaced: %s", device, problem)


def start_process(threads: int) -> subprocess.Popen[bytes]:
    """Start a worker process, which waits for a LOAD message. Raises DeviceError."""
    program = Path(sys.executable or "").name.lower()
    if getattr(sys, "frozen", False) or not program.startswith(("python", "pypy")):
        raise DeviceError('device="all" starts Python processes, which this program cannot')
    paths = [str(Path(__file__).resolve().parents[2]), *filter(os.path.isabs, sys.path)]
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-c", _PROGRAM, *paths],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | {"OSCINE_THREADS": str(threads)},
            start_new_session=True,  # Ctrl-C is for this process, which ends its workers
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0)
            | getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        )
    except OSError as error:
        raise DeviceError(f"no process can be started for a device ({error})") from error


live: WeakSet[WorkerPool] = WeakSet()


def _after_fork() -> None:
    for workers in list(live):
        workers.abandon_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
