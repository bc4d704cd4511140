"""NumPy on all cores: its loops let other threads run, so pieces of one job go to a pool.

The threads of BLAS itself are put to rest meanwhile. They wait for each other by spinning, in every
one of thousands of small products; on two cores that something else uses too, that takes longer
than one thread does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any, TypeVar

Piece = TypeVar("Piece")

MOST_THREADS = 16  # beyond, memory is the bound


def cores() -> int:
    """How many cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # Windows, macOS
        return os.cpu_count() or 1


THREADS = min(cores(), MOST_THREADS)


@lru_cache(1)
def pool() -> ThreadPoolExecutor:
    """The threads, started on first use."""
    return ThreadPoolExecutor(THREADS, "oscine")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=pool.cache_clear)  # a child has none of its parent's threads


def each(work: Callable[[Piece], None], pieces: Iterable[Piece]) -> None:
    """Call `work` on every piece, side by side; it must not call `each` in turn.

    How the work is cut up must not hang on the number of threads, nor will the result then.
    """
    listed = list(pieces)
    if THREADS == 1 or len(listed) < 2:
        for piece in listed:
            work(piece)
        return
    for _ in pool().map(work, listed):
        pass  # raises what a piece raised


@lru_cache(1)
def _libraries() -> Any:
    from threadpoolctl import ThreadpoolController  # costs start-up time

    return ThreadpoolController()


def single_threaded_blas() -> AbstractContextManager[Any]:
    """While it is entered, every product runs on the thread that asked for it."""
    limits: AbstractContextManager[Any] = _libraries().limit(limits=1, user_api="blas")
    return limits
