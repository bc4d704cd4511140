"""NumPy on all cores: its loops let other threads run, so pieces of one job go to a pool.

The threads of BLAS itself are put to rest meanwhile. They wait for each other by spinning, in every
one of thousands of small products; on two cores that something else uses too, that takes longer
than one thread does.
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

MAX_DEFAULT_THREADS = 16  # taken unasked; beyond, memory is the bound
MAX_THREADS = 1024


def available_cores() -> int:
    """How many cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # Windows, macOS
        return os.cpu_count() or 1


@lru_cache(1)
def count() -> int:
    """How many cores NumPy work takes: OSCINE_THREADS, or those there are.

    Raises UsageError if that variable is no such number.
    """
    wanted = os.environ.get("OSCINE_THREADS", "").strip() or "0"
    return parse_count("OSCINE_THREADS", wanted) or min(available_cores(), MAX_DEFAULT_THREADS)


def parse_count(name: str, wanted: str | int) -> int:
    """A number of threads, 0 for as many as there are cores; UsageError names what set it."""
    try:
        number = int(wanted)
    except (TypeError, ValueError):
        number = -1
    if not 0 <= number <= MAX_THREADS:
        raise UsageError(f"{name} must be a whole number from 0 to {MAX_THREADS}, not {wanted!r}")
    return number


def set_count(number: int) -> None:
    """Have NumPy work take so many cores from now on; 0: as many as there are.

    It goes for the whole process, and for those that it starts. Raises UsageError for another
    number. Not while work is under way.
    """
    os.environ["OSCINE_THREADS"] = str(parse_count("threads", number))
    count.cache_clear()
    pool.cache_clear()  # threads of the old one end when nothing holds it


_Queue: TypeAlias = "SimpleQueue[Callable[[], None] | None]"


class Pool:
    """`size` threads that take pieces of work from one queue, until nothing holds the pool.

    The queue is written in C. The locks of ThreadPoolExecutor are written in Python: the exception
    of a signal (Ctrl-C) between two of their steps leaves one held, and later calls wait for ever.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._queue: _Queue = SimpleQueue()
        for number in range(size):
            name = f"oscine_{number}"
            Thread(target=_work, args=(self._queue,), name=name, daemon=True).start()
        weakref.finalize(self, _dismiss, self._queue, size)

    def run(self, work: Callable[[Piece], None], pieces: Sequence[Piece]) -> None:
        """Call `work` on every piece and wait. Raises what the first of them raises that fails."""
        ended: SimpleQueue[BaseException | None] = SimpleQueue()
        given_up: list[bool] = []
        try:
            for piece in pieces:
                self._queue.put(partial(_do, work, piece, ended, given_up))
            for _ in pieces:
                if (error := ended.get()) is not None:
                    raise error
        except BaseException:
            given_up.append(True)  # pieces that have not begun are left out
            raise
        finally:
            error = None  # or it would hold this frame, which holds it


def _do(
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


def _work(queue: _Queue) -> None:
    while (piece := queue.get()) is not None:
        piece()
        del piece  # it holds arrays


def _dismiss(queue: _Queue, size: int) -> None:
    for _ in range(size):
        queue.put(None)


@lru_cache(1)
def pool() -> Pool:
    """The threads, started on first use."""
    return Pool(count())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=pool.cache_clear)  # a child has none of its parent's threads


def parallel_for(work: Callable[[Piece], None], pieces: Iterable[Piece]) -> None:
    """Call `work` on every piece, side by side; it must not call `parallel_for` in turn.

    How the work is cut up must not hang on the number of threads, nor will the result then.
    """
    listed = list(pieces)
    if count() == 1 or len(listed) < 2:
        for piece in listed:
            work(piece)
        return
    pool().run(work, listed)


@lru_cache(1)
def _libraries() -> Any:
    """What sets the threads of BLAS, or None where threadpoolctl is not there."""
    try:
        from threadpoolctl import ThreadpoolController  # costs start-up time
    except ModuleNotFoundError:
        return None  # a BLAS of one thread, as in a browser; another one is only slower
    return ThreadpoolController()


def _let_any_thread_limit(libraries: Any) -> None:
    """threadpoolctl 3.8 takes limits of OpenBLAS only from the thread that set the first one, and
    passes over all others without a word: the thread of an engine would compute on all cores."""
    for library in libraries.lib_controllers:
        if hasattr(library, "clear_controlling_thread"):  # not in older versions
            library.clear_controlling_thread(force=True)


class _OneThread:
    """The limit, which goes for the whole process: the first that enters sets it, and the last that
    leaves lifts it, whichever threads they are in."""

    def __init__(self) -> None:
        self._lock, self._inside = Lock(), 0
        self._limit: Any = None

    def __enter__(self) -> None:
        libraries = _libraries()
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
            _let_any_thread_limit(_libraries())
            self._limit.restore_original_limits()
            _let_any_thread_limit(_libraries())
            self._limit = None

    def after_fork(self) -> None:
        """In a child, which has no thread but the one that forked."""
        self._lock, self._inside = Lock(), 0
        self._lift()


_one_thread = _OneThread()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_one_thread.after_fork)


def single_threaded_blas() -> AbstractContextManager[None]:
    """While it is entered, every product runs on the thread that asked for it."""
    return _one_thread
