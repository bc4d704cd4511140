"""Work in threads as asyncio has it: calls that an event loop awaits, texts that one gives."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import AsyncIterable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from threading import Event, Thread, main_thread
from typing import TypeVar

from oscine.engine.scheduler import MOST_SLOTS
from oscine.engine.sequence import POLL
from oscine.errors import Cancelled, UsageError
from oscine.models.cancel import Cancel, either

T = TypeVar("T")


class AwaitedCalls:
    """Blocking calls of one model that event loops await, each in a thread of its own.

    At most `most` of a loop are under way at once, which is what the engine has slots for; others
    wait for their turn in the loop, without a thread and with nothing in memory.
    """

    def __init__(self, most: int = MOST_SLOTS) -> None:
        self._most = most
        self._turns: dict[asyncio.AbstractEventLoop, asyncio.Semaphore] = {}

    async def call(self, work: Callable[[Callable[[], bool]], T], cancel: Cancel | None) -> T:
        """What `work(cancelled)` returns or raises; `cancelled()` says whether it should stop.

        That is where `cancel` says so, where the task was cancelled, which waits no longer then,
        and where the program ends. Raises UsageError for a `cancel` that cannot be asked.
        """
        stop = Event()
        cancelled = either(stop, cancel)
        async with self._turns_of(asyncio.get_running_loop()):
            try:
                return await asyncio.wrap_future(in_thread(lambda: work(cancelled)))
            finally:
                stop.set()

    def _turns_of(self, loop: asyncio.AbstractEventLoop) -> asyncio.Semaphore:
        """Those of a loop; of loops that are closed none are kept."""
        if loop not in self._turns:
            going_on = {each: own for each, own in self._turns.items() if not each.is_closed()}
            self._turns = {**going_on, loop: asyncio.Semaphore(self._most)}
        return self._turns[loop]


def in_thread(work: Callable[[], T]) -> concurrent.futures.Future[T]:
    """Work in a thread of its own, which sees the caller's context variables."""
    result: concurrent.futures.Future[T] = concurrent.futures.Future()
    result.set_running_or_notify_cancel()  # whoever gives it up does not change what it says
    context = copy_context()

    def run() -> None:
        try:
            value = context.run(work)
        except BaseException as error:
            result.set_exception(error)
        else:
            result.set_result(value)

    Thread(target=run, name="oscine call").start()
    return result


class Worker:
    """A thread of its own for the calls of one stream: however many streams wait, none waits for
    a place in a pool that others hold."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None

    async def call(self, function: Callable[[], T]) -> T:
        """What a function returns or raises, which runs in the thread; the loop does not wait."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "oscine-stream")
        return await asyncio.get_running_loop().run_in_executor(self._pool, function)

    def close(self) -> None:
        """Let the thread end after the call that is under way."""
        if self._pool is not None:
            self._pool.shutdown(wait=False)
            self._pool = None


class AwaitedText(Iterator[str]):
    """The parts of an asynchronous text, for a thread other than its event loop's.

    It is made in the loop that the text belongs to. Raises UsageError where no loop runs, and where
    a part is asked for in the loop's own thread, which would wait for itself. Raises Cancelled once
    it is closed.
    """

    def __init__(self, text: AsyncIterable[str]) -> None:
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            problem = "an asynchronous text needs a running event loop: call stream in a coroutine"
            raise UsageError(problem) from None
        self._parts = aiter(text)
        self._awaited: concurrent.futures.Future[str | None] | None = None
        self._closed = False

    def __next__(self) -> str:
        if is_running(self._loop):
            raise UsageError("an asynchronous text is spoken by `async for audio in stream`")
        if self._closed or self._loop.is_closed():
            raise Cancelled("speaking was cancelled")
        self._awaited = asyncio.run_coroutine_threadsafe(self._next(), self._loop)
        if self._closed:  # meanwhile
            self._awaited.cancel()
        try:
            part = result(self._awaited)
        except concurrent.futures.CancelledError:
            raise Cancelled("speaking was cancelled") from None
        if part is None:
            raise StopIteration
        return part

    async def _next(self) -> str | None:
        return await anext(self._parts, None)

    def close(self) -> None:
        """Wait for no part any more. Any thread may call it."""
        self._closed = True
        if self._awaited is not None:
            self._awaited.cancel()


def result(future: concurrent.futures.Future[T]) -> T:
    """What a future gives or raises; Cancelled where the program ends before that."""
    while not future.done():
        concurrent.futures.wait([future], POLL)
        if not future.done() and not main_thread().is_alive():
            future.cancel()
            raise Cancelled("the program ends")
    return future.result()


def is_running(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether a loop runs in this thread."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
