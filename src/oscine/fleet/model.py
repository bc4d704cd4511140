"""A model in several processes, one a device, with the methods and attributes that it has in one.

Each call of it is a request, which the least loaded worker does. A worker whose process ends is
replaced, and what it had under way begins again; of a stream, what was delivered is left out.
"""

from __future__ import annotations

import asyncio
import math
import sys
import weakref
from collections import Counter
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Mapping, Sized
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from threading import Event, RLock
from typing import Any, cast

import numpy as np

from oscine import registry
from oscine.audio.io import Source, open_source
from oscine.errors import Cancelled, DeviceError, UsageError
from oscine.files import expand_user
from oscine.fleet.worker import LoadRequest, Request, WorkerLostError, WorkerPool
from oscine.fleet.worker_process import ObjectSpec, RemoteIterator, RemoteProgress
from oscine.models.asynchronous import AsyncTextIterator, StreamExecutor
from oscine.models.base_model import Model
from oscine.models.cancel import as_should_stop
from oscine.models.transcription import Transcriber
from oscine.notebook import ProgressBar
from oscine.probe import current_probe
from oscine.threads import count as thread_count
from oscine.types import Audio

MAX_TRIES = 2  # of a request: it may be what ends the processes
MAX_REPLAY_BYTES = 64 << 20  # of an iterator's items, to begin again: 17 minutes of live audio
LAST_SAMPLES, LAST_ITEMS = 120_000, 100  # of what was delivered, by which it is known again
TOLERANCE = 0.01  # of full scale, seconds or a probability
NO_SAMPLES = np.zeros(0, np.float32)
LOCAL_ATTRIBUTES = ("engine", "runner")  # of a model, which stay in their process
AUDIO_PARAMETERS = ("audio", "reference")  # the parameters that take one


class ReplayBuffer:
    """The items of a caller's iterator, which are kept so that a request can begin again."""

    def __init__(self, items: Iterable[Any]) -> None:
        self._items = iter(items)
        self._kept: list[Any] = []
        self._size = 0
        self._over = self._forgotten = False

    def item(self, place: int) -> tuple[Any, ...]:
        """(item,) at a place, () at the end. Raises DeviceError for one that is not kept."""
        if place < len(self._kept):
            return (self._kept[place],)
        if self._forgotten and place == 0 and self._size:
            raise DeviceError("the work cannot begin again: too much has come since it began")
        item: Any = ()
        if not self._over:
            try:
                item = (next(self._items),)
            except StopIteration:
                self._over = True
        if item and not self._forgotten:
            self._kept.append(item[0])
            self._size += getattr(item[0], "nbytes", 0) or sys.getsizeof(item[0])
            if self._size > MAX_REPLAY_BYTES:
                self._kept, self._forgotten = [], True
        return cast("tuple[Any, ...]", item)


class CallArguments:
    """What a request is given: values that are sent, functions and iterators that stay here."""

    def __init__(
        self,
        names: tuple[str, ...],
        given: tuple[Any, ...],
        options: Mapping[str, Any],
        stop: Event | None = None,
    ) -> None:
        """`names`: of the positional parameters. `stop`: set where the caller wants no more."""
        options = dict(options)
        self._cancelled = as_should_stop(options.pop("cancel", None))
        self._stop, self._told = stop, False
        self._progress: Callable[[float, float], None] | None = None
        self._iterators: list[ReplayBuffer] = []
        self.awaited: AsyncTextIterator | None = None
        self.given = tuple(map(self._sent, chain(names, repeat("")), given))
        self.options = {name: self._sent(name, value) for name, value in options.items()}

    def _sent(self, name: str, value: Any) -> Any:
        if name in AUDIO_PARAMETERS:
            return to_sendable(value)
        if name == "voice" and isinstance(value, Path):
            return expand_user(value).absolute()
        if name == "progress" and value:
            self._progress = ProgressBar() if value is True else value
            return RemoteProgress()
        if isinstance(value, AsyncIterable):
            self.awaited = value = AsyncTextIterator(value)
        if isinstance(value, Iterable) and not isinstance(value, Sized):
            self._iterators.append(ReplayBuffer(value))
            return RemoteIterator(len(self._iterators) - 1)
        return value

    def begin_again(self) -> None:
        """Another worker is asked."""
        self._told = False

    def stops(self) -> bool:
        """Whether the caller has come to want no more; True once a worker."""
        if self._told:
            return False
        stopped = self._stop is not None and self._stop.is_set()
        self._told = stopped or (self._cancelled is not None and self._cancelled())
        return self._told

    def progress(self, done: float, total: float) -> None:
        """So much is done."""
        if self._progress is not None:
            self._progress(done, total)

    def item(self, iterator: int, place: int) -> tuple[Any, ...]:
        """(item,) of an iterator, () at its end."""
        return self._iterators[iterator].item(place)


def to_sendable(value: Any) -> Any:
    """A recording as it is sent: a file by its path, what else has bytes with these.

    Arrays are sent as they are, and so is what is none: the model says what is wrong with it.
    Raises AudioError.
    """
    if value is None or isinstance(value, np.ndarray | tuple | Audio | Source):
        return value
    try:
        return open_source(value)
    except UsageError:
        return value


class DeliveredItems:
    """What a caller has of a stream: how much, and the end of it, to know it again."""

    def __init__(self) -> None:
        self._size, self._end = 0, NO_SAMPLES

    def add(self, item: Any) -> None:
        """It is the caller's now."""
        self._size += _size(item)
        self._end = _end_of(self._end, item)

    def skip(self, next_item: Callable[[], Any]) -> Any:
        """Take as much from another run; what is left of its last item, else None.

        Raises DeviceError where it differs: what was delivered stands.
        """
        left, end, rest = self._size, NO_SAMPLES, None
        differs = DeviceError("the work was begun again, and came to another result")
        while left:
            try:
                item = next_item()
            except StopIteration:
                raise differs from None
            if isinstance(item, Audio) and len(item.samples) > left:
                rest = Audio(item.samples[left:], item.rate)
                item = Audio(item.samples[:left], item.rate)
            end = _end_of(end, item)
            left -= _size(item)
        if not nearly_equal(self._end, end):
            raise differs
        return rest


def _size(item: Any) -> int:
    """Samples of audio, whose pieces may be cut elsewhere; else an item counts as one."""
    return len(item.samples) if isinstance(item, Audio) else 1


def _end_of(before: Any, item: Any) -> Any:
    """The last samples, or items, with one more."""
    if isinstance(item, Audio):
        return np.concatenate([before, item.samples])[-LAST_SAMPLES:]
    return (*before, item)[-LAST_ITEMS:]


def nearly_equal(one: Any, other: Any) -> bool:
    """Whether two results say the same: numbers that a network computes differ in the last digits
    where it ran beside others."""
    if isinstance(one, np.ndarray):
        return one.shape == np.shape(other) and bool(np.allclose(one, other, 0, TOLERANCE))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, abs_tol=TOLERANCE)
    if is_dataclass(one) and type(one) is type(other):
        names = [field.name for field in fields(one)]
        return all(nearly_equal(getattr(one, name), getattr(other, name)) for name in names)
    if isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):
        return all(map(nearly_equal, one, other))
    return bool(one == other)


class RemoteCall:
    """One request, which another worker does from its beginning where its own ends."""

    def __init__(self, fleet: Fleet, name: str, arguments: CallArguments) -> None:
        self._fleet, self._name, self.arguments = fleet, name, arguments
        self._tries = 0
        self.request: Request | None = None

    def begin(self) -> Any:
        """What the method gives; Shape: a stream. Raises what it raises, WorkerLostError."""
        if self.request is not None:
            self.request.drop()
            self.arguments.begin_again()
        arguments = self.arguments
        self.request = self._fleet.workers.request(arguments.stops)
        return self.request.ask(arguments, "call", self._name, arguments.given, arguments.options)

    def ask(self, operation: str, name: str, given: tuple[Any, ...], options: Any) -> Any:
        """Of the stream. Raises what it raises, WorkerLostError."""
        assert self.request is not None
        return self.request.ask(self.arguments, operation, name, given, options)

    def result(self) -> Any:
        """`begin`, as often as it takes. Raises DeviceError where that is too often."""
        while True:
            try:
                return self.begin()
            except WorkerLostError as lost:
                self.count(lost)

    def count(self, lost: WorkerLostError) -> None:
        """It has to begin again. Raises DeviceError where it has too often."""
        self._tries += 1
        if self._tries >= MAX_TRIES:
            told = f"the work was given up: the process that did it {lost}, as did one before it"
            raise DeviceError(told) from None

    def pause(self) -> None:
        """No work is under way, though the caller may come back for values."""
        if self.request is not None:
            self.request.busy = False

    def drop(self) -> None:
        """It is over."""
        if self.request is not None:
            self.request.drop()


class RemoteStream(Iterator[Any]):
    """What a model gives as it comes, with the attributes and methods that it has in one process.

    To stop, stop iterating, or `close`, or leave its `with`. `async for` does not make the event
    loop wait. Iterating raises what the model raises, and DeviceError where the work had to begin
    again and came to another result than was delivered.
    """

    def __init__(self, work: RemoteCall, shape: ObjectSpec) -> None:
        self._work, self._shape = work, shape
        self._lock = RLock()
        self._thread = StreamExecutor()
        self._delivered = DeliveredItems()
        self._rest: Any = None  # of an item that was delivered in part before it began again
        self._values: dict[str, Any] = {}  # that were set
        self._closed = False

    def __repr__(self) -> str:
        return f"<{self._shape.kind} in another process>"

    def __next__(self) -> Any:
        with self._lock:
            if self._closed:
                raise StopIteration
            try:
                item = self._ask("next")
            except BaseException as end:
                self._work.pause()
                if self._closed and isinstance(end, Cancelled):  # meanwhile, by another thread
                    raise StopIteration from None
                raise
            self._delivered.add(item)
            return item

    def _ask(self, operation: str, name: str = "", *given: Any, **options: Any) -> Any:
        """What the stream answers, in whatever process it is by then."""
        with self._lock:
            while True:
                if operation == "next" and self._rest is not None:
                    rest, self._rest = self._rest, None
                    return rest
                try:
                    return self._work.ask(operation, name, given, options)
                except WorkerLostError as lost:
                    self._begin_again(lost)

    def _begin_again(self, lost: WorkerLostError) -> None:
        """The same stream on another worker, as far as this one had come."""
        while True:
            self._work.count(lost)
            try:
                self._work.begin()
                for name, value in self._values.items():
                    self._work.ask("set", name, (value,), {})
                self._rest = self._delivered.skip(lambda: self._work.ask("next", "", (), {}))
                return
            except WorkerLostError as another:
                lost = another

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        if name in self._shape.methods:
            return partial(self._ask, "call", name)
        if name in self._shape.values:
            return self._ask("get", name)
        raise AttributeError(f"{self._shape.kind!r} object has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            object.__setattr__(self, name, value)
            return
        self._values[name] = value
        self._ask("set", name, value)

    def __dir__(self) -> list[str]:
        return [*object.__dir__(self), *self._shape.methods, *self._shape.values]

    def __enter__(self) -> RemoteStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Want no more, and stop what is under way, also what another thread waits for."""
        self._closed = True
        if self._work.arguments.awaited is not None:
            self._work.arguments.awaited.close()
        if self._work.request is not None:
            self._work.request.close()

    def __del__(self) -> None:
        if "_work" in self.__dict__:
            self._work.drop()

    def __aiter__(self) -> RemoteStream:
        return self

    async def __anext__(self) -> Any:
        end = object()
        item: Any = end
        try:
            item = await self._thread.call(lambda: next(self, end))
        except asyncio.CancelledError:
            self.close()
            raise
        finally:
            if item is end:
                self._thread.close()
        if item is end:
            raise StopAsyncIteration
        return item

    async def aclose(self) -> None:
        """As `close`."""
        self.close()
        self._thread.close()

    async def __aenter__(self) -> RemoteStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class Fleet(Model[Any]):
    """A model that is loaded in a process for each of several devices.

    It has the methods and attributes of the model. Its processes end with it, with `close`, and
    with this process.
    """

    def __init__(self, devices: list[str], opening: LoadRequest) -> None:
        self.workers = WorkerPool(devices, opening)
        self._abouts = self.workers.ready()
        self._shape, self.name = self._abouts[0].shape, self._abouts[0].name
        self._end = weakref.finalize(self, self.workers.end)

    def close(self) -> None:
        """End its processes; nothing can be asked of it after that."""
        self._end()

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def device(self) -> str:
        """Where it runs."""
        return ", ".join(about.device for about in self._abouts)

    @property
    def recordings_at_once(self) -> int:
        """How many recordings it is best given at once."""
        return sum(about.recordings_at_once for about in self._abouts)

    def transcribe_many(self, recordings: Iterable[Any], **asked: Any) -> Iterator[Any]:
        """As Transcriber.transcribe_many, with recordings on all devices at once."""
        if "transcribe_many" not in self._shape.methods:  # the model says why
            return cast("Iterator[Any]", self.__getattr__("transcribe_many"))
        model: Any = self
        return Transcriber.transcribe_many(model, recordings, **asked)

    @property
    def timings(self) -> Mapping[str, float]:
        """Milliseconds that each stage took in all, on all devices."""
        total: Counter[str] = Counter()
        for timings in self._of_each("get", "timings"):
            total.update(timings)
        return dict(total)

    def trace(self) -> Mapping[str, tuple[int, float]]:
        """Passes and milliseconds by stage, as the devices measured them."""
        total: dict[str, tuple[int, float]] = {}
        for trace in self._of_each("call", "trace"):
            for stage, (passes, spent) in trace.items():
                before = total.get(stage, (0, 0.0))
                total[stage] = before[0] + passes, before[1] + spent
        return total

    def _of_each(self, operation: str, name: str) -> Iterator[Any]:
        """What each worker answers that is there."""
        for worker in self.workers.living():
            with suppress(WorkerLostError):
                request = worker.request()
                try:
                    yield request.ask(CallArguments((), (), {}), operation, name)
                finally:
                    request.drop()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name in LOCAL_ATTRIBUTES:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        if name in self._shape.methods:
            return partial(self._call, name)
        if (plain := name.removesuffix("_async")) in self._shape.methods:
            return partial(self._perform_async, plain)
        while True:  # a value, or an error that says why there is none
            request = self.workers.request()
            try:
                return request.ask(CallArguments((), (), {}), "get", name)
            except WorkerLostError:
                continue
            finally:
                request.drop()

    def __dir__(self) -> list[str]:
        return [*object.__dir__(self), *self._shape.methods, *self._shape.values]

    def _call(self, method: str, /, *given: Any, **options: Any) -> Any:
        """What the model's method gives, on the least loaded device."""
        return self._perform(method, given, options, None)

    def _perform(
        self, method: str, given: tuple[Any, ...], options: Mapping[str, Any], stop: Event | None
    ) -> Any:
        if current_probe() is not None:
            raise UsageError("probing looks into this process; load the model on one device")
        work = RemoteCall(
            self, method, CallArguments(self._shape.methods[method], given, options, stop)
        )
        try:
            result = work.result()
        except BaseException:
            work.drop()
            raise
        if isinstance(result, ObjectSpec):
            return RemoteStream(work, result)
        work.drop()
        return result

    async def _perform_async(self, method: str, /, *given: Any, **options: Any) -> Any:
        """The same, while the event loop goes on; a task that is cancelled stops the work."""
        stop, thread = Event(), StreamExecutor()
        try:
            return await thread.call(lambda: self._perform(method, given, options, stop))
        except asyncio.CancelledError:
            stop.set()
            raise
        finally:
            thread.close()


def open_fleet(
    devices: list[str],
    name: str,
    dtype: str,
    *,
    offline: bool,
    deterministic: bool = False,
    memory: str | int | None = None,
) -> Fleet:
    """A model by name or path on each of the devices, `gpu:N`. Raises what oscine.load raises."""
    threads = max(1, thread_count() // len(devices))
    families = registry.registered()
    request = LoadRequest(name, dtype, offline, deterministic, memory, families, threads)
    return Fleet(devices, request)
