"""Runs NumPy on all cores: it releases the GIL, so parts of a computation run in a thread pool.

BLAS is limited to one thread meanwhile. Its threads wait for each other by spinning, in each of
thousands of small products; on two cores with other load that is slower than one thread.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache, partial
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, TypeAlias, TypeVar

from oscine.errors import UsageError

Piece = TypeVar("Piece")

MAX_DEFAULT_THREADS = 16  # beyond, memory bandwidth is the limit
MAX_THREADS = 1024


def available_cores() -> int:
    """How many cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # Windows, macOS
        return os.cpu_count() or 1


@lru_cache(1)
def count() -> int:
    """Number of threads for NumPy: OSCINE_THREADS, else the number of cores, at most 16.

    Raises UsageError if the variable is not a valid number.
    """
    wanted = os.environ.get("OSCINE_THREADS", "").strip() or "0"
    return parse_count("OSCINE_THREADS", wanted) or min(available_cores(), MAX_DEFAULT_THREADS)


def parse_count(name: str, wanted: str | int) -> int:
    """Parse a number of threads; 0: one for each core. Raises UsageError, which contains `name`."""
    try:
        number = int(wanted)
    except (TypeError, ValueError):
        number = -1
    if not 0 <= number <= MAX_THREADS:
        raise UsageError(f"{name} must be a whole number from 0 to {MAX_THREADS}, not {wanted!r}")
    return number


def set_count(number: int) -> None:
    """Set the number of threads for NumPy; 0: one for each core.

    It applies to this process and those that it starts. Do not call it while a model is running.
    Raises UsageError for an invalid number.
    """
    os.environ["OSCINE_THREADS"] = str(parse_count("threads", number))
    count.cache_clear()
    pool.cache_clear()  # the threads of the old pool end once it is unreferenced


_Queue: TypeAlias = "SimpleQueue[Callable[[], None] | None]"


class Pool:
    """`size` threads that take work from one queue, until the pool is unreferenced.

    The queue is implemented in C. ThreadPoolExecutor's locks are implemented in Python: a
    KeyboardInterrupt between two of their steps leaves one locked, and later calls deadlock.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._queue: _Queue = SimpleQueue()
        for number in range(size):
            name = f"oscine_{number}"
            Thread(target=_worker_loop, args=(self._queue,), name=name, daemon=True).start()
        weakref.finalize(self, _stop_workers, self._queue, size)

    def run(self, work: Callable[[Piece], None], pieces: Sequence[Piece]) -> None:
        """Call `work` on every piece and wait. Raises the first error of a call."""
        ended: SimpleQueue[BaseException | None] = SimpleQueue()
        given_up: list[bool] = []
        try:
            for piece in pieces:
                self._queue.put(partial(_run_piece, work, piece, ended, given_up))
            for _ in pieces:
                if (error := ended.get()) is not None:
                    raise error
        except BaseException:
            given_up.append(True)  # pieces that have not started are skipped
            raise
        finally:
            error = None  # breaks a reference cycle with this frame


def _run_piece(
    work: Callable[[Piece], None],
    piece: Piece,
    ended: SimpleQueue[BaseException | None],
    given_up: list[bool],
) -> None:
    error: BaseException | None = None
    if not given_up:
        try:
            work(piece)
        except BaseException as raised:
            error = raised
            given_up.append(True)
    ended.put(error)


def _worker_loop(queue: _Queue) -> None:
    while (piece := queue.get()) is not None:
        piece()
        del piece  # it references arrays


def _stop_workers(queue: _Queue, size: int) -> None:
    for _ in range(size):
        queue.put(None)


@lru_cache(1)
def pool() -> Pool:
    """The threads, started on first use."""
    return Pool(count())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=pool.cache_clear)  # a child has none of its parent's threads


def after_fork(reset: Callable[[], None]) -> None:
    """Call a method in every forked child, as long as its object lives."""
    if hasattr(os, "register_at_fork"):
        method = weakref.WeakMethod(reset)
        os.register_at_fork(after_in_child=lambda: (found := method()) and found())


def parallel_for(work: Callable[[Piece], None], pieces: Iterable[Piece]) -> None:
    """Call `work` on every piece, in parallel; `work` must not call `parallel_for` itself.

    The pieces must not depend on the number of threads, so that the result does not either.
    """
    listed = list(pieces)
    if count() == 1 or len(listed) < 2:
        for piece in listed:
            work(piece)
        return
    pool().run(work, listed)


@lru_cache(1)
def _blas_controller() -> Any:
    """The controller of BLAS's threads; None if threadpoolctl is not installed."""
    try:
        from threadpoolctl import ThreadpoolController  # costs start-up time
    except ModuleNotFoundError:
        return None  # BLAS has one thread, as in a browser; otherwise it is only slower
    return ThreadpoolController()


def _let_any_thread_limit(libraries: Any) -> None:
    """Let any thread limit OpenBLAS: threadpoolctl 3.8 silently ignores limits from other threads
    than the one that set the first, so an engine's thread would compute on all cores."""
    for library in libraries.lib_controllers:
        if hasattr(library, "clear_controlling_thread"):  # not in older versions
            library.clear_controlling_thread(force=True)


class _OneThread:
    """The limit of BLAS to one thread in the whole process: the first thread that enters sets it,
    and the last one that leaves lifts it."""

    def __init__(self) -> None:
        self._lock, self._inside = Lock(), 0
        self._limit: Any = None

    def __enter__(self) -> None:
        libraries = _blas_controller()
        with self._lock:
            if not self._inside and libraries is not None:
                _let_any_thread_limit(libraries)
                self._limit = libraries.limit(limits=1, user_api="blas")
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside = max(0, self._inside - 1)  # forked inside, it is 0 already
            if not self._inside:
                self._lift()

    def _lift(self) -> None:
        if self._limit is not None:
            _let_any_thread_limit(_blas_controller())
            self._limit.restore_original_limits()
            _let_any_thread_limit(_blas_controller())
            self._limit = None

    def after_fork(self) -> None:
        """Reset in a forked child process, in which only the forking thread exists."""
        self._lock, self._inside = Lock(), 0
        self._lift()


_one_thread = _OneThread()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_one_thread.after_fork)


def single_threaded_blas() -> AbstractContextManager[None]:
    """Context in which BLAS computes each product in the calling thread."""
    return _one_thread
