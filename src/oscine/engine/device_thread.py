"""The thread of a device, in which all models on the device run their batches by turns."""

from __future__ import annotations

import atexit
import logging
import os
from threading import Lock, RLock, Thread, current_thread
from typing import Protocol
from weakref import WeakSet

from oscine.futures import WakeUp

log = logging.getLogger(__name__)

IDLE_TIMEOUT_S = 30.0  # without work, until engines release memory and the thread ends
SHUTDOWN_TIMEOUT_S = 10.0  # to wait for the running iteration when the process ends


class DeviceClient(Protocol):
    """An engine, as the thread of its device uses it."""

    @property
    def has_work(self) -> bool: ...
    def run_iteration(self) -> None: ...
    def release_idle_memory(self) -> None: ...
    def close(self) -> None: ...


class DeviceThread:
    """Runs the engines of one device by turns, in a thread that exists while there is work."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock, self._changed = RLock(), WakeUp()
        self._engines: dict[DeviceClient, None] = {}  # those that have work, in order
        self._thread: Thread | None = None
        self._closing = False

    def wake(self, engine: DeviceClient) -> None:
        """Run an engine that has work. Any thread may call it.

        Where no thread can be started, as in a browser, the calling thread takes its place until no
        work is left. At the end of the process the engine is closed instead.
        """
        with self._lock:
            if self._closing and self._thread is None:
                engine.close()
                return
            self._engines[engine] = None
            has_thread = self._thread is not None or self._start()
            self._changed.set()
        if not has_thread:
            self._run(0)

    def _start(self) -> bool:
        """Whether the thread could be started; `_run` sets `_thread`.

        An interrupt of Thread.start or Thread.is_alive leaves open whether the thread runs.
        """
        try:
            Thread(target=self._run, name=f"oscine {self._name}", daemon=True).start()
        except RuntimeError:
            return False
        return True

    @property
    def is_current(self) -> bool:
        """Whether the calling thread is the device's."""
        return current_thread() is self._thread

    @property
    def is_shared(self) -> bool:
        """Whether several engines have work."""
        return len(self._engines) > 1

    def close(self) -> None:
        """End the thread after the running iteration."""
        with self._lock:
            self._closing = True
            self._changed.set()
            thread = self._thread
        if thread is not None and thread is not current_thread():
            thread.join(SHUTDOWN_TIMEOUT_S)

    def _run(self, idle_timeout: float | None = None) -> None:
        """Run engines until there was no work for `idle_timeout` s; None: IDLE_TIMEOUT_S."""
        with self._lock:
            if self._thread is not None:  # a start was interrupted, and another was started
                return
            self._thread = current_thread()
        served: WeakSet[DeviceClient] = WeakSet()
        timeout = IDLE_TIMEOUT_S if idle_timeout is None else idle_timeout
        try:
            while engines := self._wait_for_work(served, timeout):
                for engine in engines:
                    engine.run_iteration()
                    served.add(engine)
                    with self._lock:
                        if not engine.has_work:
                            self._engines.pop(engine, None)
                del engine, engines  # else the thread would keep a model that its owner drops
        finally:
            with self._lock:
                if self.is_current:  # it failed, or was interrupted
                    self._thread = None

    def _wait_for_work(
        self, served: WeakSet[DeviceClient], idle_timeout: float
    ) -> list[DeviceClient]:
        """The engines that have work; none where the thread has to end."""
        with self._lock:
            is_idle = not self._engines and not self._closing and idle_timeout > 0
            self._changed.clear()
        if is_idle:
            self._changed.wait(idle_timeout)
        with self._lock:
            if self._engines and not self._closing:
                return list(self._engines)
            self._thread = None
            if self._closing:
                for engine in self._engines:
                    engine.close()
            elif idle_timeout:
                for engine in list(served):
                    engine.release_idle_memory()
            return []


_threads: dict[str, DeviceThread] = {}
_lock = Lock()


def device_thread(device: str) -> DeviceThread:
    """The thread of a device, by the device's name."""
    with _lock:
        if device not in _threads:
            _threads[device] = DeviceThread(device)
        return _threads[device]


def _close_all() -> None:
    """End all threads before the interpreter exits: none may be on a device by then."""
    for thread in list(_threads.values()):
        thread.close()


atexit.register(_close_all)


def _after_fork() -> None:
    """Forget the threads of the parent, which a forked child does not have."""
    global _lock
    _lock = Lock()
    _threads.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
