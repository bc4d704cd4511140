"""A child of a process whose engine is at work has an engine of its own."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from oscine.engine.scheduler import Engine
from oscine.errors import DeviceError
from tests.engine.counting import Count, Runner

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]


def ended(child: int) -> int:
    """How it ended, by its own doing or, where it hangs, by a signal."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_forked_child_has_an_engine_of_its_own() -> None:
    engine = Engine(Runner(name="counting forks"))
    engine.runner.backend.is_async = False  # as NumPy
    under_way = engine.submit(Count(7, 10**9))
    engine.submit(Count(1, 5)).wait()
    child = os.fork()
    if child == 0:
        good = 0
        try:
            with pytest.raises(DeviceError, match="forked"):
                under_way.wait()
            sequence = Count(3, 9)
            good = engine.submit(sequence).wait() == sequence.alone()
        finally:
            os._exit(0 if good else 1)
    assert ended(child) == 0
    under_way.cancel()
    engine._device_thread.close()


def test_a_fork_while_a_thread_looks_at_a_sequence_leaves_it_readable() -> None:
    engine = Engine(Runner(name="counting held", is_async=False))
    sequence, held, over = Count(7, 10**9), threading.Event(), threading.Event()
    engine.submit(sequence)

    def hold() -> None:
        with sequence._lock:
            held.set()
            over.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = os.fork()
    if child == 0:
        os._exit(0 if isinstance(sequence.exception(), DeviceError) else 1)
    over.set()
    thread.join()
    assert ended(child) == 0
    sequence.cancel()
    engine._device_thread.close()
