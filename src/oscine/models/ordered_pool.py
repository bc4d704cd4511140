"""Works on several recordings at once, in threads; results keep the order of the recordings.

While the device computes windows of some recordings, others are decoded and their features made.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from queue import Empty, SimpleQueue
from threading import Event
from typing import Any, Generic, TypeAlias, TypeVar

from oscine.futures import POLL_INTERVAL_S, Future
from oscine.models.asynchronous import run_in_thread
from oscine.models.cancel import Cancel, either_should_stop

Item = TypeVar("Item")
Result = TypeVar("Result")
ShouldStop: TypeAlias = Callable[[], bool]

MAX_FINISHED_AHEAD = 256  # results that wait for an earlier item
BYTES_PER_RECORDING = 128 << 20  # of ten minutes or more: samples, features, decoder process
DEFAULT_MAX_RECORDINGS = 8  # where the memory of the machine is unknown
MEMORY_DIVISOR = 4  # recordings together take at most this fraction of the machine's memory


class OrderedPool(Generic[Item, Result]):
    """Runs work on up to `max_running` items, each in a thread, and yields results in item order.

    `work(item, should_stop)` polls `should_stop()` and ends early if it is true: after `stop`, at
    the end of the program, and when `cancel` asks to stop. All methods are for one thread.
    """

    def __init__(
        self,
        work: Callable[[Item, ShouldStop], Result],
        max_running: int,
        cancel: Cancel | None = None,
    ) -> None:
        self._work, self._max_running = work, max_running
        self._stopped = Event()
        self._should_stop = either_should_stop(self._stopped, cancel)
        self._futures: deque[Future[Result]] = deque()  # whose results have not been taken
        self._running = 0
        self._ended: SimpleQueue[None] = SimpleQueue()

    def add(self, item: Item) -> None:
        """Start the work on an item, after waiting until fewer than `max_running` run."""
        while self._running >= self._max_running or self._is_far_ahead():
            self._wait()
        future = run_in_thread(partial(self._work, item, self._should_stop))
        self._running += 1
        self._futures.append(future)
        future.add_done_callback(lambda _: self._ended.put(None))

    def results(self, *, wait: bool = False) -> Iterator[Result]:
        """The results before the first unfinished item; with `wait`, of all items as they end.

        Raises what the work on an item raised, when it is that item's turn.
        """
        while self._futures and (wait or self._futures[0].done()):
            while not self._futures[0].done():
                self._wait()
            yield self._futures.popleft().result()

    def stop(self) -> None:
        """Ask all work to end early, and wait until it has."""
        self._stopped.set()
        while self._running:
            self._wait()

    def _is_far_ahead(self) -> bool:
        return len(self._futures) >= MAX_FINISHED_AHEAD and not self._futures[0].done()

    def _wait(self) -> None:
        """Wait until one more item has ended; Ctrl-C interrupts the wait on every system."""
        while True:
            try:
                self._ended.get(timeout=POLL_INTERVAL_S)
            except Empty:
                continue
            self._running -= 1
            return


def map_in_order(pool: OrderedPool[Item, Result], items: Iterable[Item]) -> Iterator[Result]:
    """The results of all items in order, each as soon as it and all before it are available.

    All work is stopped if an item fails, or if the caller stops iterating.
    """
    try:
        for item in items:
            pool.add(item)
            yield from pool.results()
        yield from pool.results(wait=True)
    finally:
        pool.stop()


def recordings_at_once(runner: Any) -> int:
    """The default number of recordings to work on at once.

    That is the batch size that the runner's backend prefers, as far as the machine's memory
    allows; 1 if no device runs beside the host.
    """
    backend = getattr(runner, "backend", None)
    if backend is None or not backend.is_async:
        return 1
    return max(1, min(int(backend.preferred_batch), max_recordings_in_memory()))


def max_recordings_in_memory() -> int:
    """The number of recordings that fit into the machine's memory at once."""
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        return DEFAULT_MAX_RECORDINGS
    return memory // MEMORY_DIVISOR // BYTES_PER_RECORDING
