"""Work on all cores: all of it is done, mistakes are told, and the result is that of one core."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
from collections.abc import Iterator
from threading import Barrier, Thread
from threading import enumerate as enumerate_threads
from types import SimpleNamespace

import numpy as np
import pytest

from oscine import ops, threads
from oscine.errors import UsageError
from oscine.ops.reference import Reference


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test may choose; afterwards it is as the environment has it."""
    with monkeypatch.context() as patch:
        patch.setenv("OSCINE_THREADS", "0")
        threads.count.cache_clear()
        yield
    threads.count.cache_clear()
    threads.pool.cache_clear()


@pytest.fixture
def two() -> None:
    threads.set_count(2)


def test_as_many_as_there_are_cores_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert threads.count() == min(threads.available_cores(), threads.MAX_DEFAULT_THREADS)
    threads.set_count(3)
    assert (threads.count(), threads.pool().size) == (3, 3)
    threads.set_count(0)
    assert threads.count() == min(threads.available_cores(), threads.MAX_DEFAULT_THREADS)
    monkeypatch.setenv("OSCINE_THREADS", " 5 ")
    threads.count.cache_clear()
    assert threads.count() == 5


@pytest.mark.parametrize("wanted", ["-1", "two", "1.5", "9" * 30])
def test_another_number_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, wanted: str) -> None:
    monkeypatch.setenv("OSCINE_THREADS", wanted)
    threads.count.cache_clear()
    with pytest.raises(UsageError, match="OSCINE_THREADS must be a whole number from 0 to 1024"):
        threads.count()
    with pytest.raises(UsageError, match="threads must be a whole number from 0 to 1024"):
        threads.set_count(wanted)  # type: ignore[arg-type]


@pytest.mark.usefixtures("two")
def test_pieces_run_side_by_side() -> None:
    both = Barrier(2, timeout=20)
    threads.parallel_for(
        lambda _: both.wait() and None, range(2)
    )  # would break if one waited for the other


@pytest.mark.usefixtures("two")
def test_what_a_piece_raises_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        threads.parallel_for(lambda number: print(1 // number), [1, 0, 1])


def test_the_result_does_not_hang_on_the_number_of_threads() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((900, 96)).astype(np.float32)
    linear = ops.Linear(rng.standard_normal((120, 96)).astype(np.float32), None)
    results = []
    for count in (1, 2, 3):
        threads.set_count(count)
        with threads.single_threaded_blas():
            y = Reference().linear(x, linear, activation="gelu")
            results.append((y, Reference().attention(x, 4)))
    for y, attended in results[1:]:
        assert np.array_equal(y, results[0][0])
        assert np.array_equal(attended, results[0][1])


def blas_threads() -> list[int]:
    return [library["num_threads"] for library in threads._blas_controller().info()]


def test_blas_has_its_threads_back_afterwards() -> None:
    before = blas_threads()
    with threads.single_threaded_blas():
        assert set(blas_threads()) <= {1}
    assert blas_threads() == before


def test_blas_is_limited_in_one_thread_after_another() -> None:
    """The program's own thread finds the speech, and then the engine's computes."""
    inside: list[int] = []

    def compute() -> None:
        with threads.single_threaded_blas():
            inside.extend(blas_threads())

    limit = threads._blas_controller().limit(limits=2, user_api="blas")
    try:
        with threads.single_threaded_blas():
            pass
        before = blas_threads()
        thread = Thread(target=compute)
        thread.start()
        thread.join()
        assert set(inside) <= {1}
        assert blas_threads() == before
    finally:
        limit.restore_original_limits()


class Libraries:
    """A BLAS of three threads, as threadpoolctl sets them."""

    threads = 3
    lib_controllers = ()

    def limit(self, limits: int, user_api: str) -> SimpleNamespace:
        before, self.threads = self.threads, limits
        return SimpleNamespace(restore_original_limits=lambda: setattr(self, "threads", before))


def test_blas_has_its_threads_back_after_blocks_that_overlap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In two threads: the one that enters first leaves first, and the limit lasts until the end."""
    libraries = Libraries()
    monkeypatch.setattr(threads, "_blas_controller", lambda: libraries)
    first, second = threads.single_threaded_blas(), threads.single_threaded_blas()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert libraries.threads == 1
    second.__exit__(None, None, None)
    assert libraries.threads == 3


def test_pieces_after_one_that_fails_are_left_out() -> None:
    begun: list[int] = []
    pool = threads.Pool(1)

    def work(piece: int) -> None:
        begun.append(piece)
        raise ValueError(piece)

    with pytest.raises(ValueError, match="0"):
        pool.run(work, range(1000))
    pool.run(begun.append, [-1])
    assert begun[0] == 0 and begun[-1] == -1 and len(begun) < 1000


def test_threads_end_with_their_pool() -> None:
    pool = threads.Pool(3)
    pool.run(lambda piece: None, range(9))
    mine = [thread for thread in enumerate_threads() if thread.name.startswith("oscine_")][-3:]
    del pool
    gc.collect()
    for thread in mine:
        thread.join(10)
    assert len(mine) == 3 and not any(thread.is_alive() for thread in mine)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no such timer")
def test_an_interrupt_at_any_moment_leaves_the_pool_usable() -> None:
    """2000 of them, in a process of its own; locks of Python would be left held by some."""
    ran = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=120
    )
    assert (ran.returncode, ran.stdout) == (0, "2000\n"), ran.stderr


INTERRUPTED = """
import random, signal
from oscine.threads import Pool

def interrupt(*_):
    raise KeyboardInterrupt

pool, stopped = Pool(2), 0
pool.run(str, range(4))
signal.signal(signal.SIGALRM, interrupt)
for number in range(2000):
    try:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 1e-3))
        while True:
            pool.run(str, range(4))
    except KeyboardInterrupt:
        stopped += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
    pool.run(str, range(4))
print(stopped)
"""
