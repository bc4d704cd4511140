"""Admits requests to the engine and runs each in a thread, until its end, deadline or client's end.

Requests at work submit to the engine's queue, which takes them in turns; the gate only bounds how
many there are.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from oscine.errors import Cancelled
from oscine.server.errors import ApiError, ClientGoneError, timed_out, to_api_error, unavailable
from oscine.server.request_warnings import collected

Receive = Callable[[], Awaitable[Any]]  # ASGI's, of one request

MAX_UNREAD = 16  # items that a client has not received, after which its work pauses
POLL_S = 0.05  # between two looks of paused work at its client
STUCK_S = 30.0  # after the deadline, until work that does not stop is left alone
MAX_RETRY_AFTER_S = 120  # clients give up at once where a server asks for more
END = object()  # after the last item of a job


class Job:
    """The work of one request: a function that runs in a thread and puts items for the client.

    The function receives the job, calls `put` for each item, polls `should_stop` and returns its
    result, which is `result` after the last item. `warnings` has what the library warned of.
    """

    def __init__(self, timeout_s: float) -> None:
        self.started = time.monotonic()
        self.deadline = self.started + timeout_s
        self.result: Any = None
        self.warnings: list[str] = []
        self._loop = asyncio.get_running_loop()
        self._items: asyncio.Queue[Any] = asyncio.Queue()
        self._room = threading.Semaphore(MAX_UNREAD)
        self._stopped = threading.Event()
        self._reason = ""  # why it was stopped: client, deadline or shutdown
        self._watch: asyncio.Task[None] | None = None
        self._error: BaseException | None = None

    # -- in its thread ------------------------------------------------------------------------

    def should_stop(self) -> bool:
        """Whether the work should end: its client is gone, or its time is over."""
        if not self._stopped.is_set() and time.monotonic() > self.deadline:
            self.stop("deadline")
        return self._stopped.is_set()

    def put(self, item: Any) -> None:
        """Pass an item to the client; waits while too many are unread. Raises Cancelled."""
        while not self._room.acquire(timeout=POLL_S):
            if self.should_stop():
                raise Cancelled("the request has ended")
        self._loop.call_soon_threadsafe(self._items.put_nowait, item)

    def run(self, work: Callable[[Job], Any]) -> None:
        """Run the work to its end."""
        try:
            if self.should_stop():
                raise Cancelled("the request has ended")
            with collected(self.warnings):
                self.result = work(self)
        except BaseException as error:  # the event loop raises it
            self._error = error
        with suppress(RuntimeError):  # the loop is closed, as the process ends
            self._loop.call_soon_threadsafe(self._items.put_nowait, END)

    # -- in the event loop --------------------------------------------------------------------

    def watch(self, receive: Receive) -> None:
        """Stop the work when the client closes its connection; its body has been received."""
        self._watch = asyncio.create_task(self._until_disconnect(receive))

    async def _until_disconnect(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.stop("client")

    def stop(self, reason: str) -> None:
        """Ask the work to stop. Any thread may call it; the first reason counts."""
        if not self._stopped.is_set():
            self._reason = reason
            self._stopped.set()

    async def next(self, patience_s: float | None = None) -> Any:
        """The next item, or END; None if there was none for `patience_s` seconds.

        Raises ApiError for an error of the work, ClientGoneError after a disconnect.
        """
        remaining = self.deadline + STUCK_S - time.monotonic()
        wait = max(0.0, remaining if patience_s is None else min(patience_s, remaining))
        try:
            item = await asyncio.wait_for(self._items.get(), wait)
        except TimeoutError:
            if time.monotonic() < self.deadline + STUCK_S:
                return None
            self.stop("deadline")
            raise timed_out() from None
        if item is not END:
            self._room.release()
            return item
        if self._error is not None:
            raise self._ended_by(self._error)
        return END

    def _ended_by(self, error: BaseException) -> BaseException:
        if isinstance(error, Cancelled):
            if self._reason == "client":
                return ClientGoneError()
            if self._reason == "deadline":
                return timed_out()
        if not isinstance(error, Exception):  # MemoryError is one, SystemExit of a decoder is not
            return to_api_error(error)
        return error

    async def wait(self) -> Any:
        """The result. Raises as `next`."""
        try:
            while await self.next() is not END:
                pass
            return self.result
        finally:
            self.close()

    def close(self) -> None:
        """Stop watching the client, and the work if it has not ended."""
        self.stop("client")
        if self._watch is not None:
            self._watch.cancel()


class Gate:
    """Bounds the number of requests at work, and knows how long they take.

    Args:
        max_requests: More raise 429.
        timeout_s: The longest that one may work.
    """

    def __init__(self, max_requests: int, timeout_s: float) -> None:
        self.max_requests, self.timeout_s = max_requests, timeout_s
        self.draining = False
        self.jobs: set[Job] = set()
        self._pool = ThreadPoolExecutor(max_requests, "oscine-request")
        self._seconds: deque[float] = deque(maxlen=32)  # of the latest jobs

    def check(self) -> None:
        """Raise ApiError if no request is admitted: 503 while draining, 429 while full."""
        if self.draining:
            raise unavailable("the server is shutting down", "shutting_down", 5)
        if len(self.jobs) >= self.max_requests:
            raise ApiError(
                429,
                f"{len(self.jobs)} requests are at work, which is the server's limit; try later",
                "queue_full",
                headers={"Retry-After": str(self.retry_after())},
            )

    def retry_after(self) -> int:
        """Seconds until a request is likely to end: the mean time of one, shared by all at work."""
        if not self._seconds:
            return 1
        mean = sum(self._seconds) / len(self._seconds)
        return min(MAX_RETRY_AFTER_S, max(1, math.ceil(mean / max(1, len(self.jobs)))))

    def start(
        self, work: Callable[[Job], Any], receive: Receive | None, release: Callable[[], None]
    ) -> Job:
        """Start the work of a request whose body has been received.

        `receive` is watched for its end; None: the caller stops the job. `release` is called when
        the work has ended. Raises ApiError.
        """
        self.check()
        job = Job(self.timeout_s)
        self.jobs.add(job)
        future = asyncio.get_running_loop().run_in_executor(self._pool, job.run, work)
        future.add_done_callback(lambda _: self._ended(job, release))
        if receive is not None:
            job.watch(receive)
        return job

    def _ended(self, job: Job, release: Callable[[], None]) -> None:
        """Free the place of a job; it keeps it until its thread has ended."""
        self.jobs.discard(job)
        release()
        self._seconds.append(time.monotonic() - job.started)

    async def drain(self, timeout_s: float) -> None:
        """Admit no more requests, and wait for those at work; stop them after `timeout_s`."""
        self.draining = True
        until = time.monotonic() + timeout_s
        while self.jobs and time.monotonic() < until:
            await asyncio.sleep(POLL_S)
        self.stop()

    def stop(self) -> None:
        """Stop all work."""
        self.draining = True
        for job in list(self.jobs):
            job.stop("shutdown")
