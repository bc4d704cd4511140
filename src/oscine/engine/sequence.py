"""Sequences: what one row of a batch computes, and how its caller waits for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from contextvars import Context, copy_context
from enum import IntEnum
from queue import Empty, SimpleQueue
from threading import Condition
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from oscine.errors import Cancelled
from oscine.probe import current_probe

T = TypeVar("T")
Piece = TypeVar("Piece")
Check = Callable[[], None]

POLL = 0.05  # seconds between two calls of a waiting caller's `check`


def book(timings: dict[str, float], stage: str, milliseconds: float) -> None:
    """Add to the milliseconds of a stage."""
    timings[stage] = timings.get(stage, 0.0) + milliseconds


class Priority(IntEnum):
    """Who goes first where several wait: the lower."""

    LIVE = 0
    INTERACTIVE = 1
    BULK = 2


class Caller:
    """One request, as the engine's order counts it; `timings`: its milliseconds by stage.

    Callers of one priority take turns, sequence by sequence.
    """

    __slots__ = ("priority", "served", "timings")

    def __init__(self, priority: Priority = Priority.INTERACTIVE) -> None:
        self.priority = priority
        self.served = 0  # the engine's count of admissions when it was this caller's turn
        self.timings: dict[str, float] = {}

    def clock(self, stage: str, milliseconds: float) -> None:
        """Add to a stage."""
        book(self.timings, stage, milliseconds)


class EncoderInput:
    """Features [frames, n_mels] for the encoder; compared by identity.

    The engine keeps what it encoded them to for as long as there is room, so that several
    sequences over one input encode it once.
    """

    __slots__ = ("__weakref__", "features", "how")

    def __init__(self, features: NDArray[np.float32], how: Any = None) -> None:
        """`how`: what else the encoding depends on; inputs of one batch have the same."""
        self.features, self.how = features, how


class Sequence(Future[T]):
    """What one row of a batch computes, or a group of `rows`; a future of its result.

    Args:
        audio: What its encoder reads; None for none.
        rows: Rows of the batch that it takes.
        executor: Sequences of one lane share recorded plans.
    """

    def __init__(
        self, audio: EncoderInput | None = None, rows: int = 1, batch_key: Any = None
    ) -> None:
        super().__init__()
        self.audio, self.rows, self.batch_key = audio, rows, batch_key
        self.caller = Caller()
        self.deadline: float | None = None  # of time.monotonic
        self.restarts = 0  # how often a device was lost under it
        self.submitted = 0.0
        self.wake: Callable[[], None] = _nothing  # tells the engine that it is cancelled
        self.unwanted = False
        self.add_done_callback(_let_go)
        #: The caller's context where it looks into the network (oscine.probe); else None.
        self.context: Context | None = None

    def bind(self, caller: Caller, wake: Callable[[], None]) -> None:
        """Note who has submitted it, and when."""
        self.caller, self.wake, self.submitted = caller, wake, time.monotonic()
        self.context = copy_context() if current_probe() is not None else None

    def wait(self, check: Check | None = None) -> T:
        """The result; raises what the sequence ended with.

        `check` is called before and during the wait, in the caller's thread. Where it raises, or
        the wait is interrupted, the sequence is cancelled.
        """
        try:
            while True:
                if check is not None:
                    check()
                try:
                    return self.result(POLL)
                except TimeoutError:
                    if self.done():  # with this error, or since
                        return self.result()
        except BaseException:
            self.cancel()
            raise

    def cancel(self) -> bool:
        """Stop it: at once where it waits for its turn, else at the next poll."""
        if self.done():
            return False
        self.unwanted = True
        super().cancel()
        self.wake()
        return True

    def is_late(self, now: float) -> bool:
        """Whether its deadline has passed; `now` of time.monotonic."""
        return self.deadline is not None and self.deadline < now

    def begin(self) -> bool:
        """The engine's: it has a slot. False where its caller has given it up."""
        return not self.unwanted if self.running() else self.set_running_or_notify_cancel()

    def finish(self, result: T) -> None:
        """The engine's: it has ended."""
        with suppress(InvalidStateError):  # its caller has given it up
            self.set_result(result)

    def fail(self, error: BaseException) -> None:
        """The engine's: it has ended with an error."""
        with suppress(InvalidStateError):  # likewise, which can be at any moment
            self.set_exception(error)

    def after_fork(self) -> None:
        """In a forked child: whoever held its lock, or waits for it, is the parent's."""
        self._condition, self._waiters = Condition(), []

    def restart(self) -> None:
        """The engine's: it begins again from its prompt, on another device."""
        self.restarts += 1


class StreamedSequence(Sequence[T], Generic[T, Piece]):
    """A sequence whose caller receives pieces of its result while it runs."""

    def __init__(
        self, audio: EncoderInput | None = None, rows: int = 1, batch_key: Any = None
    ) -> None:
        super().__init__(audio, rows, batch_key)
        self._pieces: SimpleQueue[Piece | None] = SimpleQueue()
        self.add_done_callback(lambda _: self._pieces.put(None))

    def push(self, piece: Piece) -> None:
        """The engine's: hand a piece over."""
        self._pieces.put(piece)

    @property
    def waiting(self) -> int:
        """Pieces that the caller has not taken yet."""
        return self._pieces.qsize()

    def pieces(self, check: Check | None = None) -> Iterator[Piece]:
        """The pieces as they come; raises what the sequence ended with. `check`: as in `wait`.

        A caller that stops iterating cancels the sequence.
        """
        try:
            while True:
                if check is not None:
                    check()
                try:
                    piece = self._pieces.get(timeout=POLL)
                except Empty:
                    continue
                if piece is None:
                    break
                yield piece
            self.result()
        finally:
            self.cancel()


class Call(Sequence[T]):
    """Work that has a device to itself between two bursts: a function of the family's runner.

    It must be repeatable: where the device is lost under it, it is called again with a new runner.
    """

    def __init__(self, work: Callable[[Any], T]) -> None:
        super().__init__()
        self.work = work


def cancelled() -> Cancelled:
    """What a sequence ends with that its caller gave up."""
    return Cancelled("the sequence was cancelled")


def _let_go(sequence: Any) -> None:
    """A sequence that has ended keeps no engine in memory."""
    sequence.wake, sequence.context = _nothing, None


def _nothing() -> None:
    """Before it is submitted there is no engine to wake."""
