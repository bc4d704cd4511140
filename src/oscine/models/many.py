"""Several recordings at once, in threads that share a model; results in the order of recordings.

While the device works on windows of some, others are decoded and their features made.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from functools import partial
from queue import Empty, SimpleQueue
from threading import Event
from typing import Any, Generic, TypeAlias, TypeVar

from oscine.engine.sequence import POLL
from oscine.models.asynchronous import in_thread
from oscine.models.cancel import Cancel, either

Item = TypeVar("Item")
Result = TypeVar("Result")
Stop: TypeAlias = Callable[[], bool]

AHEAD = 256  # results that may wait for one before them, which takes longer
RECORDING_BYTES = 128 << 20  # of ten minutes or more: samples, features, a process that decodes
MOST_UNKNOWN = 8  # recordings where a system does not tell its memory
SHARE = 4  # of the machine's memory that all of them together may take


class InOrder(Generic[Item, Result]):
    """Work on up to `most` items at once, each in a thread; its results in the order of the items.

    `work(item, stop)` asks `stop()` again and again whether it should end early: after `stop` of
    this, at the end of the program, and where `cancel` says so. All methods are for one thread.
    """

    def __init__(
        self, work: Callable[[Item, Stop], Result], most: int, cancel: Cancel | None = None
    ) -> None:
        self._work, self._most = work, most
        self._stopped = Event()
        self._asks = either(self._stopped, cancel)
        self._futures: deque[Future[Result]] = deque()  # whose results were not taken yet
        self._running = 0
        self._ended: SimpleQueue[None] = SimpleQueue()

    def add(self, item: Item) -> None:
        """Begin the work on an item once there is a place for it."""
        while self._running >= self._most or self._is_far_ahead():
            self._wait()
        future = in_thread(partial(self._work, item, self._asks))
        self._running += 1
        self._futures.append(future)
        future.add_done_callback(lambda _: self._ended.put(None))

    def results(self, *, wait: bool = False) -> Iterator[Result]:
        """Those before the first that is under way; with `wait` all, as they come.

        Raises what the work raised, in its turn.
        """
        while self._futures and (wait or self._futures[0].done()):
            while not self._futures[0].done():
                self._wait()
            yield self._futures.popleft().result()

    def stop(self) -> None:
        """Have all work end early, and wait for that."""
        self._stopped.set()
        while self._running:
            self._wait()

    def _is_far_ahead(self) -> bool:
        return len(self._futures) >= AHEAD and not self._futures[0].done()

    def _wait(self) -> None:
        """Until one more has ended; Ctrl-C ends the wait on every system."""
        while True:
            try:
                self._ended.get(timeout=POLL)
            except Empty:
                continue
            self._running -= 1
            return


def results_in_order(work: InOrder[Item, Result], items: Iterable[Item]) -> Iterator[Result]:
    """What comes of all items, each as soon as it and all before it are done.

    All work is stopped where one item fails, and where the caller stops iterating.
    """
    try:
        for item in items:
            work.add(item)
            yield from work.results()
        yield from work.results(wait=True)
    finally:
        work.stop()


def recordings_at_once(runner: Any) -> int:
    """How many recordings a runner is best given at once: windows that its backend gains from side
    by side, as far as the machine's memory goes.

    One where no device runs beside the host.
    """
    backend = getattr(runner, "backend", None)
    if backend is None or not backend.runs_ahead:
        return 1
    return max(1, min(int(backend.good_batch), room_for_recordings()))


def room_for_recordings() -> int:
    """How many may be in memory at once."""
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # there is no sysconf on Windows
        return MOST_UNKNOWN
    return memory // SHARE // RECORDING_BYTES
