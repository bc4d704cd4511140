"""The thread of a device: where it cannot start, fails at rest, or the process ends."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from oscine.engine import device_thread
from oscine.engine.scheduler import Engine
from oscine.errors import Cancelled, DeviceLostError, UsageError
from tests.engine.counting import Count, Runner, audio

SECONDS = 20  # after which what waits is taken for hanging


def refuse(self: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_a_device_that_is_lost_while_it_rests_is_found_by_the_next_sequence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(device_thread, "IDLE_TIMEOUT_S", 0.05)
    runner = Runner(name="counting lost at rest")
    engine = Engine(runner, rebuild=lambda: Runner(name=runner.device))
    engine.submit(Count(1, 5, audio(1))).wait()

    def lost(slots: int, encoder_slots: int, *, plans: bool = False) -> None:
        raise DeviceLostError(runner.device, "a test")

    monkeypatch.setattr(runner, "release", lost)
    runner.backend.lose_after = runner.backend.submits
    until = time.monotonic() + SECONDS
    while engine._device_thread._thread is not None and time.monotonic() < until:
        time.sleep(0.01)
    sequence = engine.submit(Count(1, 5))
    assert sequence.result(SECONDS) == sequence.alone()  # type: ignore[attr-defined]
    engine._device_thread.close()


def test_a_thread_knows_whether_models_share_it() -> None:
    first, second = (Engine(Runner(name="counting shared")) for _ in range(2))
    thread = first._device_thread
    assert not first.call(lambda _: thread.is_shared)
    assert first.call(lambda _: (thread.wake(second), thread.is_shared)[1])
    thread.close()


def test_a_thread_whose_start_was_interrupted_is_started_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(self: threading.Thread) -> None:
        raise KeyboardInterrupt

    engine = Engine(Runner(name="counting interrupted"))
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            engine.submit(Count(1, 5))
    sequence = engine.submit(Count(1, 5))
    assert sequence.result(SECONDS) == sequence.alone()  # type: ignore[attr-defined]
    engine._device_thread.close()


def test_without_threads_work_from_within_work_is_refused_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threading.Thread, "start", refuse)
    engine = Engine(Runner(name="counting within"))
    refused: list[BaseException] = []

    def within(_: Any) -> None:
        with pytest.raises(UsageError, match="from within its own work") as error:
            engine.submit(Count(1, 1))
        refused.append(error.value)

    sequence = Count(1, 5)
    sequence.add_done_callback(within)
    assert engine.submit(sequence).result(0) == sequence.alone()
    engine.call(within)
    assert len(refused) == 2


def test_without_more_threads_one_caller_works_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a process has as many threads as its system allows."""
    engine = Engine(Runner(name="counting crowded"))
    wrong: list[object] = []

    def work(number: int) -> None:
        for turn in range(20):
            sequence = Count(number * 100 + turn, 40, audio(number))
            if engine.submit(sequence).result(SECONDS) != sequence.alone():
                wrong.append(sequence)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    start = threading.Thread.start
    monkeypatch.setattr(
        threading.Thread, "start", lambda self: (start if self in threads else refuse)(self)
    )
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert engine._device_thread._thread is None


def test_what_is_under_way_when_the_process_ends_is_given_up() -> None:
    engine = Engine(Runner(name="counting at the end"))
    running = engine.submit(Count(1, 10**9))
    engine._device_thread.close()
    after = engine.submit(Count(1, 1))
    for sequence in (running, after):
        with pytest.raises(Cancelled, match="the program ends"):
            sequence.result(SECONDS)


AT_EXIT = """
import atexit, sys
atexit.register(lambda: print("before the import:", tell()))
sys.path.insert(0, sys.argv[1])
from oscine.engine.scheduler import Engine
from oscine.errors import Cancelled
from tests.engine.counting import Count, Runner
engine = Engine(Runner())
def tell():
    try:
        return engine.submit(Count(1, 3)).wait() == Count(1, 3).alone()
    except Cancelled as error:
        return error
atexit.register(lambda: print("after it:", tell()))
engine.submit(Count(1, 10**9))
engine.submit(Count(1, 10)).wait()
"""


def test_a_handler_at_exit_does_not_wait_for_ever(pytestconfig: pytest.Config) -> None:
    run = subprocess.run(
        [sys.executable, "-c", AT_EXIT, str(pytestconfig.rootpath)],
        capture_output=True, text=True, timeout=2 * SECONDS, check=True,
    )  # fmt: skip
    assert run.stdout.splitlines() == ["after it: True", "before the import: the program ends"]
