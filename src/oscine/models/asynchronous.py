"""Work in threads as asyncio has it: calls that an event loop awaits, texts that one gives."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import AsyncIterable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from oscine.errors import Cancelled, UsageError

T = TypeVar("T")


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
            part = self._awaited.result()
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


def is_running(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether a loop runs in this thread."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
