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

        Where no thread can be started, as in a browser, the work is done before it returns.
        """
        with self._changed:
            self._engines[engine] = None
            threadless = self._thread is None and not self._closing and not self._start()
            self._changed.notify()
        while threadless and engine.has_work:
            engine.turn()

    def _start(self) -> bool:
        """Whether the thread could be started."""
        self._thread = Thread(target=self._run, name=f"oscine {self._name}", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            self._thread = None
        return self._thread is not None

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
        if thread is not None:
            thread.join(LAST_TURN)

    def _run(self) -> None:
        idle: WeakSet[Turning] = WeakSet()
        while True:
            with self._changed:
                if not self._engines and not self._closing:
                    self._changed.wait(IDLE)
                if self._closing or not self._engines:
                    break
                engines = list(self._engines)
            for engine in engines:
                engine.turn()
                idle.add(engine)
                with self._changed:
                    if not engine.has_work:
                        self._engines.pop(engine, None)
            del engine, engines  # a model that its owner drops goes away
        with self._changed:
            for engine in () if self._closing else list(idle):
                engine.rest()
            self._thread = None
            if self._engines and not self._closing:
                self._start()


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
