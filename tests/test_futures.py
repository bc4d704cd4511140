"""KeyboardInterrupt at any moment leaves futures, and what is built of them, usable."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from oscine.audio import decoder_pool
from oscine.engine.generators import run
from oscine.engine.scheduler import Engine
from oscine.futures import Future
from oscine.models.ordered_pool import OrderedPool
from tests.engine.counting import Count, Runner, audio
from tests.engine.test_generators import SequenceGenerator

SECONDS = 20  # after which a thread is taken for hanging
MAX_MOMENTS = 3_000


def interrupt_at(moment: int, work: Callable[[], Any]) -> bool:
    """Call a function and interrupt it; False if it ends before that moment.

    CPython handles signals as a function of Python begins and as one of C returns; these are
    the moments that a profiler sees.
    """
    passed = 0

    def profile(_: Any, event: str, function: Any) -> None:
        nonlocal passed
        if event in ("call", "c_return"):
            passed += 1
            if passed == moment:
                sys.setprofile(None)
                raise KeyboardInterrupt

    try:
        sys.setprofile(profile)
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)
    return False


def check_every_moment(work: Callable[[], Any], is_usable: Callable[[], bool]) -> None:
    """Interrupt `work` at its first, second, ... moment, until it ends before; each time check."""
    for moment in range(1, MAX_MOMENTS):
        was_interrupted = interrupt_at(moment, work)
        ended: list[bool] = []
        thread = threading.Thread(target=lambda: ended.append(is_usable()), daemon=True)  # noqa: B023
        thread.start()
        thread.join(SECONDS)
        assert ended == [True], f"after an interrupt at moment {moment}"
        if not was_interrupted:
            return
    raise AssertionError("it never ended")


def counts(engine: Engine[Any]) -> bool:
    """Whether an engine computes a sequence."""
    sequence = Count(3, 4, audio(5))
    return bool(engine.submit(sequence).result(SECONDS) == sequence.alone())


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> Any:
    made = Engine(Runner(name=request.node.name))
    counts(made)  # its thread runs
    yield made
    made._device_thread.close()


def requests(engine: Engine[Any]) -> dict[str, Callable[[], Any]]:
    def two() -> SequenceGenerator[int]:
        first = yield Count(1, 3, audio(2))
        second = yield Count(first, 2)
        return int(second)

    def cancelled() -> None:
        sequence = engine.submit(Count(7, 500))
        sequence.cancel()
        sequence.exception()

    return {
        "wait": lambda: engine.submit(Count(1, 5, audio(1))).wait(lambda: None),
        "call": lambda: engine.call(lambda runner: runner.device),
        "pieces": lambda: list(engine.submit(Count(1, 5)).pieces(lambda: None)),  # type: ignore[attr-defined]
        "run": lambda: run(engine.submit, two(), lambda: None),
        "cancel": cancelled,
    }


@pytest.mark.parametrize("name", ["wait", "call", "pieces", "run", "cancel"])
def test_an_interrupt_at_any_moment_leaves_an_engine_usable(engine: Any, name: str) -> None:
    check_every_moment(requests(engine)[name], lambda: counts(engine))


def test_an_interrupt_at_any_moment_leaves_a_future_usable() -> None:
    future: Future[int] = Future()

    def look() -> None:
        future.done()
        future.add_done_callback(print)
        future.remove_done_callback(print)
        with pytest.raises(TimeoutError):
            future.result(0.001)

    other: list[Future[int]] = []

    def is_usable() -> bool:
        made: Future[int] = Future()
        threading.Timer(0.001, made.finish, [5]).start()
        other.append(made)
        return made.result(SECONDS) == 5 and not future.done()

    check_every_moment(look, is_usable)
    assert future.finish(1) and future.result() == 1


def test_an_interrupt_at_any_moment_ends_a_pool() -> None:
    """Its `stop`, which waits for the work that is running, returns."""
    ended: list[bool] = []

    def work(_: int, should_stop: Callable[[], bool]) -> None:
        while not should_stop():
            time.sleep(0.0005)

    pool = OrderedPool(work, 4)
    for number in range(4):
        pool.add(number)
    check_every_moment(lambda: list(pool.results()), lambda: True)
    thread = threading.Thread(target=lambda: ended.append(pool.stop() is None), daemon=True)
    thread.start()
    thread.join(SECONDS)
    assert ended == [True]


def test_an_interrupt_at_any_moment_leaves_the_watch_of_decoders_usable() -> None:
    watch = decoder_pool._Watch()
    watch.wake()
    check_every_moment(watch.wake, lambda: watch.wake() is None)
