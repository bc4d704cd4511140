"""The thread of a device: all models on it take turns, burst by burst."""

from __future__ import annotations

import atexit
import logging
import os
from threading import Condition, Lock, Thread, current_thread
from typing import Protocol
from weakref import WeakSet

log = logging.getLogger(__name__)

IDLE = 30.0  # seconds without work after which memory is given back and the thread ends
LAST_TURN = 10.0  # seconds that the end of the process waits for the turn that is under way


class Turning(Protocol):
    """An engine, as its device's thread sees it."""

    @property
    def has_work(self) -> bool: ...
    def turn(self) -> None: ...
    def rest(self) -> None: ...
    def close(self) -> None: ...


class Driver:
    """Runs the turns of the engines of one device, in a thread that exists while there is work."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._changed = Condition()
        self._engines: dict[Turning, None] = {}  # those that have work, in order
        self._thread: Thread | None = None
        self._closing = False

    def wake(self, engine: Turning) -> None:
        """There is work for an engine. Any thread may call it.

        Where no thread can be started, as in a browser, the caller's takes its place until there is
        no work left. At the end of the process there is no work: what waits is given up.
        """
        with self._changed:
            if self._closing and self._thread is None:
                engine.close()
                return
            self._engines[engine] = None
            here = (self._thread is None or not self._thread.is_alive()) and not self._start()
            if here:
                self._thread = current_thread()
            self._changed.notify()
        if here:
            self._run(0)

    def _start(self) -> bool:
        """Whether the thread could be started."""
        self._thread = Thread(target=self._run, name=f"oscine {self._name}", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            return False
        return True

    @property
    def is_current(self) -> bool:
        """Whether the calling thread is the device's."""
        return current_thread() is self._thread

    def close(self) -> None:
        """End after the turn that is under way."""
        with self._changed:
            self._closing = True
            self._changed.notify()
            thread = self._thread
        if thread is not None and thread.is_alive() and thread is not current_thread():
            thread.join(LAST_TURN)

    def _run(self, patience: float | None = None) -> None:
        """Take turns until there has been no work for `patience` seconds; None: IDLE."""
        idle: WeakSet[Turning] = WeakSet()
        try:
            while engines := self._next(idle, IDLE if patience is None else patience):
                for engine in engines:
                    engine.turn()
                    idle.add(engine)
                    with self._changed:
                        if not engine.has_work:
                            self._engines.pop(engine, None)
                del engine, engines  # a model that its owner drops goes away
        finally:
            with self._changed:
                if self.is_current:  # it was interrupted
                    self._thread = None

    def _next(self, idle: WeakSet[Turning], patience: float) -> list[Turning]:
        """The engines that have work; none where this thread is the device's no longer."""
        with self._changed:
            if not self.is_current:  # its start was interrupted, and another was started
                return []
            if not self._engines and not self._closing and patience:
                self._changed.wait(patience)
            if self._engines and not self._closing:
                return list(self._engines)
            self._thread = None
            if self._closing:
                for engine in self._engines:
                    engine.close()
            elif patience:
                for engine in list(idle):
                    engine.rest()
            return []


_drivers: dict[str, Driver] = {}
_lock = Lock()


def driver_of(device: str) -> Driver:
    """The driver of a device, by its name."""
    with _lock:
        if device not in _drivers:
            _drivers[device] = Driver(device)
        return _drivers[device]


def _close_all() -> None:
    """At the end of the process: no thread may be on a device while Python takes itself apart."""
    for driver in list(_drivers.values()):
        driver.close()


atexit.register(_close_all)


def _after_fork() -> None:
    """A child has none of its parent's threads."""
    global _lock
    _lock = Lock()
    _drivers.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
