"""Connects blocking work to asyncio: awaitable calls in threads, and asynchronous text."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import AsyncIterable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from threading import Event, Thread, main_thread
from typing import TypeVar

from oscine.engine.scheduler import MAX_SLOTS
from oscine.errors import Cancelled, UsageError
from oscine.futures import POLL_INTERVAL_S, Future
from oscine.models.cancel import Cancel, either_should_stop

T = TypeVar("T")


class AsyncCalls:
    """Runs blocking calls of one model for event loops, each call in its own thread.

    At most `max_running` calls of a loop run at once, which is the engine's number of slots; others
    wait in the loop without a thread.
    """

    def __init__(self, max_running: int = MAX_SLOTS) -> None:
        self._max_running = max_running
        self._semaphores: dict[asyncio.AbstractEventLoop, asyncio.Semaphore] = {}

    async def call(self, work: Callable[[Callable[[], bool]], T], cancel: Cancel | None) -> T:
        """Run `work(should_stop)` in a thread and return its result, or raise its error.

        `should_stop()` is true once `cancel` asks to stop, the task is cancelled or the program
        ends. A cancelled task does not wait for the thread. Raises UsageError if `cancel` is
        neither an event nor callable.
        """
        stop = Event()
        should_stop = either_should_stop(stop, cancel)
        async with self._semaphore(asyncio.get_running_loop()):
            try:
                return await _await(run_in_thread(lambda: work(should_stop)))
            finally:
                stop.set()

    def _semaphore(self, loop: asyncio.AbstractEventLoop) -> asyncio.Semaphore:
        """The semaphore of a loop; those of closed loops are dropped."""
        if loop not in self._semaphores:
            kept = {each: own for each, own in self._semaphores.items() if not each.is_closed()}
            self._semaphores = {**kept, loop: asyncio.Semaphore(self._max_running)}
        return self._semaphores[loop]


async def _await(future: Future[T]) -> T:
    """The result of a future, without blocking the event loop."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def report(_: Future[T]) -> None:
        with suppress(RuntimeError):  # the loop is closed: its task was cancelled
            loop.call_soon_threadsafe(ended.set)

    future.add_done_callback(report)
    await ended.wait()
    return future.result()


def run_in_thread(work: Callable[[], T]) -> Future[T]:
    """Run work in a new thread that sees the caller's context variables."""
    result: Future[T] = Future()
    context = copy_context()

    def run() -> None:
        try:
            value = context.run(work)
        except BaseException as error:
            result.fail(error)
        else:
            result.finish(value)

    Thread(target=run, name="oscine call").start()
    return result


class StreamExecutor:
    """Runs the calls of one stream in a thread of its own, so that no stream waits for others."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None

    async def call(self, function: Callable[[], T]) -> T:
        """Run a function in the thread without blocking the event loop; returns its result."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "oscine-stream")
        return await asyncio.get_running_loop().run_in_executor(self._pool, function)

    def close(self) -> None:
        """End the thread after the call that is running."""
        if self._pool is not None:
            self._pool.shutdown(wait=False)
            self._pool = None


class AsyncTextIterator(Iterator[str]):
    """Iterates over an asynchronous text in a thread other than its event loop's.

    It is made in the loop that the text belongs to. Raises UsageError if no loop runs, or if it is
    advanced in the loop's own thread, which would wait for itself; Cancelled once it is closed.
    """

    def __init__(self, text: AsyncIterable[str]) -> None:
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            problem = "an asynchronous text needs a running event loop: call stream in a coroutine"
            raise UsageError(problem) from None
        self._parts = aiter(text)
        self._next_part: concurrent.futures.Future[str | None] | None = None
        self._closed = False

    def __next__(self) -> str:
        if is_running(self._loop):
            raise UsageError("an asynchronous text is spoken by `async for audio in stream`")
        if self._closed or self._loop.is_closed():
            raise Cancelled("speaking was cancelled")
        self._next_part = asyncio.run_coroutine_threadsafe(self._next(), self._loop)
        if self._closed:  # by another thread in the meantime
            self._next_part.cancel()
        try:
            part = wait_for_result(self._next_part)
        except concurrent.futures.CancelledError:
            raise Cancelled("speaking was cancelled") from None
        if part is None:
            raise StopIteration
        return part

    async def _next(self) -> str | None:
        return await anext(self._parts, None)

    def close(self) -> None:
        """Stop waiting for the next part. Any thread may call it."""
        self._closed = True
        if self._next_part is not None:
            self._next_part.cancel()


def wait_for_result(future: concurrent.futures.Future[T]) -> T:
    """The result or error of a future. Raises Cancelled if the program ends before."""
    while not future.done():
        concurrent.futures.wait([future], POLL_INTERVAL_S)
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
