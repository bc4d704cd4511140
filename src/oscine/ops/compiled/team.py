"""Runs a kernel on all cores: threads take pieces of its items, without a lock and without the GIL.

A thread of `oscine.threads` takes 20 µs to begin, as long as a small product. A team's threads look
for work for a while before they sleep, so that a decoding step finds them awake. The caller
computes pieces itself and waits only for pieces that have begun: a thread that is not scheduled
delays nothing.
"""

from __future__ import annotations

import ctypes
import time
import weakref
from collections.abc import Sequence
from threading import Lock, Thread

from oscine import threads
from oscine.ops.compiled.library import Library
from oscine.ops.compiled.words import DONE, PIECE_BITS, PIECE_MASK, TEAM_WORDS, TICKET

LOOKS = 30_000  # for work before a thread sleeps, some 50 µs: longer than between two ops
WAIT_LOOKS = (
    30_000  # for the end of others' pieces, which take less, before the core is left to them
)


class Team:
    """The caller and the threads of a library; one call at a time has the threads."""

    def __init__(self, library: Library) -> None:
        self.library, self._lock = library, Lock()
        self._crew: Crew | None = None
        threads.after_fork(self._reset)

    def _reset(self) -> None:
        """Forget the threads, which a forked child does not have."""
        self._lock, self._crew = Lock(), None

    def run(self, kernel: str, words: Sequence[int], items: int, grain: int) -> None:
        """Compute `items` of a kernel in pieces of at least `grain`; words: its arguments."""
        arguments = (ctypes.c_int64 * len(words))(*words)
        size = threads.count()
        if items <= grain or size == 1 or not self._lock.acquire(blocking=False):
            self.library.call[kernel](arguments, 0, items)
            return
        try:
            if self._crew is None or len(self._crew) != size - 1:
                self._crew = Crew(self.library, size - 1)
            grain = max(grain, -(-items // PIECE_MASK))
            self._crew.divide(self.library.address[kernel], arguments, items, grain)
        finally:
            self._lock.release()


class Crew:
    """The threads beside the caller, which end once the crew is unreferenced."""

    def __init__(self, library: Library, size: int) -> None:
        self._divide = library.call["divide"]
        self._memory = (ctypes.c_int64 * (TEAM_WORDS + 8))()
        address = ctypes.addressof(self._memory)
        self._address = address + -address % 64  # the beginning of a cache line
        self._done = ctypes.c_int64.from_address(self._address + 8 * DONE)
        self._ticket = ctypes.c_int64.from_address(self._address + 8 * TICKET)
        self._workers = [Worker(library, self._memory, self._address) for _ in range(size)]
        for number, worker in enumerate(self._workers):
            name = f"oscine_kernels_{number}"
            Thread(target=worker.loop, name=name, daemon=True).start()
        weakref.finalize(self, _stop, self._workers)

    def __len__(self) -> int:
        return len(self._workers)

    def divide(
        self, kernel: int, words: ctypes.Array[ctypes.c_int64], items: int, grain: int
    ) -> None:
        """Compute a kernel's items together with the threads, which are awakened."""
        for worker in self._workers:
            if not worker.awake:
                worker.awake = True
                worker.signal.release()
        own = (ctypes.c_int64 * 6)(self._address, kernel, ctypes.addressof(words), grain, items)
        try:
            self._divide(own, 0, WAIT_LOOKS)
            if own[5] < -(-items // grain):
                self._wait()
        finally:  # after Ctrl-C too: a thread would still write to what the caller frees
            self._wait()

    def _wait(self) -> None:
        """Wait until all pieces that have begun are computed; all have, once `divide` returns."""
        while self._done.value < self._ticket.value >> PIECE_BITS & PIECE_MASK:
            # A thread has begun a piece and is not scheduled: leave it the core. The lock of the
            # GIL, which this takes, makes its results visible.
            time.sleep(0)


class Worker:
    """A thread of a crew: sleeps until `signal` is released, then computes while there is work."""

    def __init__(
        self, library: Library, memory: ctypes.Array[ctypes.c_int64], address: int
    ) -> None:
        self._library, self._memory = library, memory  # both live as long as the thread
        self._words = (ctypes.c_int64 * 1)(address)
        self.signal, self.awake, self.stopped = Lock(), False, False
        self.signal.acquire()

    def loop(self) -> None:
        join = self._library.call["join"]
        while True:
            self.signal.acquire()
            if self.stopped:
                return
            join(self._words, 0, LOOKS)
            self.awake = False


def _stop(workers: list[Worker]) -> None:
    for worker in workers:
        worker.stopped = True
        if not worker.awake:
            worker.awake = True
            worker.signal.release()
