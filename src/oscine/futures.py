"""Futures and wake-ups that KeyboardInterrupt cannot leave locked.

`concurrent.futures` and `threading.Condition` take their locks in Python: an interrupt between two
of their steps leaves one locked, and the thread that needs it next waits forever. Here `with` takes
locks of C, which Python interrupts before or after, and holds each for a few steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from threading import Lock, RLock
from time import monotonic
from typing import Any, Generic, TypeVar

T = TypeVar("T")

#: The longest single wait: on Windows Ctrl-C ends none, and an interrupt may lose a callback.
POLL_INTERVAL_S = 0.05


class Future(Generic[T]):
    """The result of work in another thread; it ends once, with a result or an error."""

    def __init__(self) -> None:
        self._lock = RLock()  # a signal handler may end it while its thread looks at it
        self._callbacks: list[Callable[[Any], object]] = []
        self._outcome: tuple[T | None, BaseException | None] | None = None

    def done(self) -> bool:
        """Whether it has ended."""
        return self._outcome is not None

    def result(self, timeout: float | None = None) -> T:
        """Wait for the result. Raises the error that it ended with, and TimeoutError after
        `timeout` seconds; None: no limit.
        """
        error = self.exception(timeout)
        if error is not None:
            try:
                raise error
            finally:
                del self, error  # breaks a reference cycle of the error with this frame
        assert self._outcome is not None
        result, _ = self._outcome
        return result  # type: ignore[return-value]

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the error that it ends with; None where it ends with a result.

        Raises TimeoutError after `timeout` seconds; None: no limit.
        """
        until = None if timeout is None else monotonic() + timeout
        while (outcome := self._outcome) is None:
            left = POLL_INTERVAL_S if until is None else until - monotonic()
            if left <= 0:
                raise TimeoutError
            wait_for_any([self], min(left, POLL_INTERVAL_S))
        return outcome[1]

    def finish(self, result: T) -> bool:
        """End it with a result. False where it has ended before."""
        return self._end((result, None))

    def fail(self, error: BaseException) -> bool:
        """End it with an error. False where it has ended before."""
        return self._end((None, error))

    def _end(self, outcome: tuple[T | None, BaseException | None]) -> bool:
        with self._lock:
            if self._outcome is not None:
                return False
            self._outcome = outcome
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)
        return True

    def add_done_callback(self, callback: Callable[[Any], object]) -> None:
        """Call a function with this future in the thread that ends it; at once if it has ended."""
        with self._lock:
            if self._outcome is None:
                self._callbacks.append(callback)
                return
        callback(self)

    def remove_done_callback(self, callback: Callable[[Any], object]) -> None:
        """Forget a function that was added."""
        with self._lock:
            if callback in self._callbacks:
                self._callbacks.remove(callback)

    def after_fork(self) -> None:
        """Replace its lock in a forked child: threads of the parent may hold it."""
        self._lock = RLock()


def wait_for_any(futures: Iterable[Future[Any]], timeout: float) -> None:
    """Wait until one of the futures has ended, for at most `timeout` seconds."""
    listed = list(futures)
    ended: SimpleQueue[Any] = SimpleQueue()
    try:
        for future in listed:
            future.add_done_callback(ended.put)
        ended.get(timeout=timeout)
    except Empty:
        pass
    finally:
        for future in listed:
            future.remove_done_callback(ended.put)


class WakeUp:
    """Wakes the one thread that waits for it, or its next wait; several before count as one."""

    def __init__(self) -> None:
        self._unset = Lock()  # locked while it is not set
        self._unset.acquire()

    def set(self) -> None:
        """Wake the thread."""
        try:
            self._unset.release()
        except RuntimeError:  # it is set
            return

    def wait(self, timeout: float = -1) -> None:
        """Wait until it is set, for at most `timeout` seconds (-1: no limit), and clear it."""
        self._unset.acquire(timeout=timeout)

    def clear(self) -> None:
        """Forget that it was set."""
        self._unset.acquire(blocking=False)
