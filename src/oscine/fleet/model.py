"""A model in several processes, one for each device, with the model's own methods and attributes.

Each call is a request to the least loaded worker. A worker whose process exits is replaced, and its
requests start again; items of a stream that were delivered are skipped.
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
REPLAY_TOLERANCE = 0.01  # of full scale, seconds or a probability
NO_SAMPLES = np.zeros(0, np.float32)
LOCAL_ATTRIBUTES = ("engine", "runner")  # of a model, which stay in their process
AUDIO_PARAMETERS = ("audio", "reference")  # the parameters that take one


class ReplayBuffer:
    """Buffers the items of a caller's iterator, so that a request can be started again."""

    def __init__(self, items: Iterable[Any]) -> None:
        self._items = iter(items)
        self._kept: list[Any] = []
        self._size = 0
        self._over = self._forgotten = False

    def item(self, place: int) -> tuple[Any, ...]:
        """(item,) at an index, () at the end. Raises DeviceError if it is no longer buffered."""
        if place < len(self._kept):
            return (self._kept[place],)
        if self._forgotten and place == 0 and self._size:
            raise DeviceError("the work cannot be restarted: its input exceeds the replay buffer")
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
    """The arguments of a request: values are sent; functions and iterators stay in this process."""

    def __init__(
        self,
        names: tuple[str, ...],
        given: tuple[Any, ...],
        options: Mapping[str, Any],
        stop: Event | None = None,
    ) -> None:
        """`names`: of the positional parameters. `stop`: set when the caller cancels."""
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
        """Prepare for a call of another worker."""
        self._told = False

    def stops(self) -> bool:
        """Whether the caller has cancelled; True only once for each worker."""
        if self._told:
            return False
        stopped = self._stop is not None and self._stop.is_set()
        self._told = stopped or (self._cancelled is not None and self._cancelled())
        return self._told

    def progress(self, done: float, total: float) -> None:
        """Report progress to the caller."""
        if self._progress is not None:
            self._progress(done, total)

    def item(self, iterator: int, place: int) -> tuple[Any, ...]:
        """(item,) of an iterator, () at its end."""
        return self._iterators[iterator].item(place)


def to_sendable(value: Any) -> Any:
    """A recording in the form that is sent: files by path, other sources with their bytes.

    Arrays are sent unchanged, and so are invalid values, which the model refuses.
    Raises AudioError.
    """
    if value is None or isinstance(value, np.ndarray | tuple | Audio | Source):
        return value
    try:
        return open_source(value)
    except UsageError:
        return value


class DeliveredItems:
    """What a caller has received of a stream: its length, and its end for comparison."""

    def __init__(self) -> None:
        self._size, self._end = 0, NO_SAMPLES

    def add(self, item: Any) -> None:
        """Add an item that is delivered."""
        self._size += _item_size(item)
        self._end = _end_of(self._end, item)

    def skip(self, next_item: Callable[[], Any]) -> Any:
        """Skip as much of another run; returns the rest of its last item, or None.

        Raises DeviceError if it differs from what was delivered.
        """
        left, end, rest = self._size, NO_SAMPLES, None
        differs = DeviceError("the work was restarted, and its result differs")
        while left:
            try:
                item = next_item()
            except StopIteration:
                raise differs from None
            if isinstance(item, Audio) and len(item.samples) > left:
                rest = Audio(item.samples[left:], item.rate)
                item = Audio(item.samples[:left], item.rate)
            end = _end_of(end, item)
            left -= _item_size(item)
        if not nearly_equal(self._end, end):
            raise differs
        return rest


def _item_size(item: Any) -> int:
    """The number of samples of audio, whose blocks may be split differently; 1 for other items."""
    return len(item.samples) if isinstance(item, Audio) else 1


def _end_of(before: Any, item: Any) -> Any:
    """The last samples or items, including `item`."""
    if isinstance(item, Audio):
        return np.concatenate([before, item.samples])[-LAST_SAMPLES:]
    return (*before, item)[-LAST_ITEMS:]


def nearly_equal(one: Any, other: Any) -> bool:
    """Whether two results are equal within REPLAY_TOLERANCE: another batch's values may differ."""
    if isinstance(one, np.ndarray):
        return one.shape == np.shape(other) and bool(np.allclose(one, other, 0, REPLAY_TOLERANCE))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, abs_tol=REPLAY_TOLERANCE)
    if is_dataclass(one) and type(one) is type(other):
        names = [field.name for field in fields(one)]
        return all(nearly_equal(getattr(one, name), getattr(other, name)) for name in names)
    if isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):
        return all(map(nearly_equal, one, other))
    return bool(one == other)


class RemoteCall:
    """One request, which is started again on another worker if its own exits."""

    def __init__(self, fleet: Fleet, name: str, arguments: CallArguments) -> None:
        self._fleet, self._name, self.arguments = fleet, name, arguments
        self._tries = 0
        self.request: Request | None = None

    def begin(self) -> Any:
        """Call the method; an ObjectSpec means a stream. Raises its errors, WorkerLostError."""
        if self.request is not None:
            self.request.drop()
            self.arguments.begin_again()
        arguments = self.arguments
        self.request = self._fleet.workers.request(arguments.stops)
        return self.request.ask(arguments, "call", self._name, arguments.given, arguments.options)

    def ask(self, operation: str, name: str, given: tuple[Any, ...], options: Any) -> Any:
        """Call the stream. Raises its errors, WorkerLostError."""
        assert self.request is not None
        return self.request.ask(self.arguments, operation, name, given, options)

    def result(self) -> Any:
        """Call the method, again after a loss. Raises DeviceError after MAX_TRIES losses."""
        while True:
            try:
                return self.begin()
            except WorkerLostError as lost:
                self.count(lost)

    def count(self, lost: WorkerLostError) -> None:
        """Count a loss. Raises DeviceError after MAX_TRIES losses."""
        self._tries += 1
        if self._tries >= MAX_TRIES:
            told = f"the work was given up: the process that did it {lost}, as did one before it"
            raise DeviceError(told) from None

    def pause(self) -> None:
        """Mark the request as idle; its attributes remain readable."""
        if self.request is not None:
            self.request.busy = False

    def drop(self) -> None:
        """End the request."""
        if self.request is not None:
            self.request.drop()


class RemoteStream(Iterator[Any]):
    """A stream of a model in another process, with the stream's own attributes and methods.

    To stop it, stop iterating, call `close` or leave its `with` block. `async for` does not block
    the event loop. Iterating raises the model's errors, and DeviceError if the work was restarted
    and its result differs from what was delivered.
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
        """Call the stream in its current process, and restart it after a loss."""
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
        """Restart the stream on another worker and skip what was delivered."""
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
        """Cancel the stream, also while another thread waits for it."""
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
        """Cancel the stream and end its thread."""
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
        """End its processes; the model is then unusable."""
        self._end()

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def device(self) -> str:
        """Names of the devices, separated by commas."""
        return ", ".join(about.device for about in self._abouts)

    @property
    def recordings_at_once(self) -> int:
        """Number of recordings to transcribe concurrently."""
        return sum(about.recordings_at_once for about in self._abouts)

    def transcribe_many(self, recordings: Iterable[Any], **asked: Any) -> Iterator[Any]:
        """Transcribe recordings concurrently on all devices, as Transcriber does on one."""
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
        """Perform an operation on each running worker and yield the results."""
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
        """Call a method of the model on the least loaded device."""
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
        """Call a method without blocking the event loop; cancelling the task cancels the work."""
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
    """Load a model by name or path on each of the devices, `gpu:N`. Raises oscine.load's errors."""
    threads = max(1, thread_count() // len(devices))
    families = registry.registered()
    request = LoadRequest(name, dtype, offline, deterministic, memory, families, threads)
    return Fleet(devices, request)
