"""Work on all cores: all of it is done, mistakes are told, and the result is that of one core."""

from __future__ import annotations

from threading import Barrier

import numpy as np
import pytest

from oscine import ops, threads
from oscine.ops.reference import Reference


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "THREADS", 2)
    threads.pool.cache_clear()


@pytest.mark.usefixtures("two")
def test_pieces_run_side_by_side() -> None:
    both = Barrier(2, timeout=20)
    threads.each(
        lambda _: both.wait() and None, range(2)
    )  # would break if one waited for the other


@pytest.mark.usefixtures("two")
def test_what_a_piece_raises_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        threads.each(lambda number: print(1 // number), [1, 0, 1])


def test_the_result_does_not_hang_on_the_number_of_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((900, 96)).astype(np.float32)
    linear = ops.Linear(rng.standard_normal((120, 96)).astype(np.float32), None)
    results = []
    for count in (1, 2, 3):
        monkeypatch.setattr(threads, "THREADS", count)
        threads.pool.cache_clear()
        with threads.single_threaded_blas():
            y = Reference().linear(x, linear, activation="gelu")
            results.append((y, Reference().attention(x, 4)))
    for y, attended in results[1:]:
        assert np.array_equal(y, results[0][0])
        assert np.array_equal(attended, results[0][1])


def test_blas_has_its_threads_back_afterwards() -> None:
    def counts() -> list[int]:
        return [library["num_threads"] for library in threads._libraries().info()]

    before = counts()
    with threads.single_threaded_blas():
        assert set(counts()) <= {1}
    assert counts() == before
