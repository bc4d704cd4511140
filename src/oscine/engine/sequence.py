"""Sequences: the unit of work of the engine, and a future of its result for the caller."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextvars import Context, copy_context
from enum import IntEnum
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from oscine.errors import Cancelled
from oscine.futures import POLL_INTERVAL_S, Future
from oscine.probe import current_probe

T = TypeVar("T")
Piece = TypeVar("Piece")
#: Called by a waiting caller from time to time; raises to cancel what it waits for.
CancelCheck = Callable[[], None]


def add_time(timings: dict[str, float], stage: str, milliseconds: float) -> None:
    """Add milliseconds to those of a stage."""
    timings[stage] = timings.get(stage, 0.0) + milliseconds


class Priority(IntEnum):
    """The order in which callers are served: the lower value first."""

    LIVE = 0
    INTERACTIVE = 1
    BULK = 2


class Caller:
    """A client of the engine, such as one recording: its priority and its timings.

    The queue serves callers of one priority in turns, a sequence each. `timings`: milliseconds by
    stage that the device has spent for this caller.
    """

    __slots__ = ("last_served", "priority", "timings")

    def __init__(self, priority: Priority = Priority.INTERACTIVE) -> None:
        self.priority = priority
        self.last_served = 0  # the number of the queue's admission that was its latest
        self.timings: dict[str, float] = {}

    def add_time(self, stage: str, milliseconds: float) -> None:
        """Add milliseconds to those of a stage."""
        add_time(self.timings, stage, milliseconds)


class EncoderInput:
    """An input of the encoder, compared by identity.

    `features`: float32 [frames, n_mels], or what the family's runner computes them from.
    The engine caches the encoder's output, so that several sequences over one input encode it once.
    """

    __slots__ = ("__weakref__", "batch_key", "features")

    def __init__(self, features: Any, batch_key: Any = None) -> None:
        """`batch_key`: inputs that are encoded in one pass have equal keys."""
        self.features, self.batch_key = features, batch_key


class Sequence(Future[T]):
    """A unit of work that takes `rows` rows of a batch, such as a window; a future of its result.

    Args:
        audio: The input of its encoder; None where it has none.
        rows: The number of its rows, as for beams.
        batch_key: Sequences with equal keys share a batch, and its recorded plans.
    """

    def __init__(
        self, audio: EncoderInput | None = None, rows: int = 1, batch_key: Any = None
    ) -> None:
        super().__init__()
        self.audio, self.rows, self.batch_key = audio, rows, batch_key
        self.caller = Caller()
        self.deadline: float | None = None  # of time.monotonic
        self.restart_count = 0  # how often its device was lost
        self.was_alone = False  # memory ran out although it had all memory; next time it fails
        self.submitted = 0.0  # of time.monotonic
        self.on_cancel: Callable[[], None] = _do_nothing  # wakes the engine
        self.cancel_requested = self._begun = False
        self.add_done_callback(_release_engine)
        #: The caller's context inside oscine.probe's `probing`; else None.
        self.context: Context | None = None

    def bind(self, caller: Caller, on_cancel: Callable[[], None]) -> None:
        """Set its caller and the time of its submission. Called by the engine."""
        self.caller, self.on_cancel, self.submitted = caller, on_cancel, time.monotonic()
        self.context = copy_context() if current_probe() is not None else None

    def wait(self, check_cancelled: CancelCheck | None = None) -> T:
        """Wait for the result. Raises the error that the sequence ended with.

        `check_cancelled` is called before and during the wait, in the caller's thread. Where it
        raises, or the wait is interrupted, the sequence is cancelled.
        """
        try:
            while True:
                if check_cancelled is not None:
                    check_cancelled()
                try:
                    return self.result(POLL_INTERVAL_S)
                except TimeoutError:
                    if self.done():  # with a TimeoutError of its own, or a moment ago
                        return self.result()
        except BaseException:
            self.cancel()
            raise

    def cancel(self) -> bool:
        """Cancel it, at the next poll where it is running. False where it has ended."""
        with self._lock:
            if self.done():
                return False
            self.cancel_requested = True
            begun, wake_engine = self._begun, self.on_cancel
        if not begun:
            self.fail(cancelled())
        wake_engine()
        return True

    def is_overdue(self, now: float) -> bool:
        """Whether its deadline has passed at `now`, of time.monotonic."""
        return self.deadline is not None and self.deadline < now

    def begin(self) -> bool:
        """Mark it as running; False where its caller has cancelled it. Called by the engine."""
        with self._lock:
            self._begun = not self.cancel_requested
        return self._begun

    def count_restart(self) -> None:
        """Note that it begins again from its prompt, as its device was lost."""
        self.restart_count += 1


class StreamedSequence(Sequence[T], Generic[T, Piece]):
    """A sequence that passes pieces of its result to its caller while it runs."""

    def __init__(
        self, audio: EncoderInput | None = None, rows: int = 1, batch_key: Any = None
    ) -> None:
        super().__init__(audio, rows, batch_key)
        self._pieces: SimpleQueue[Piece | None] = SimpleQueue()
        self.add_done_callback(lambda _: self._pieces.put(None))

    def push(self, piece: Piece) -> None:
        """Pass a piece to the caller. Called by the engine."""
        self._pieces.put(piece)

    @property
    def queued(self) -> int:
        """The number of pieces that the caller has not received yet."""
        return self._pieces.qsize()

    def pieces(self, check_cancelled: CancelCheck | None = None) -> Iterator[Piece]:
        """The pieces as they are computed. Raises the error that the sequence ended with.

        `check_cancelled` is called before and during each wait, and may raise to cancel. A caller
        that stops iterating cancels the sequence.
        """
        try:
            while True:
                if check_cancelled is not None:
                    check_cancelled()
                try:
                    piece = self._pieces.get(timeout=POLL_INTERVAL_S)
                except Empty:
                    continue
                if piece is None:
                    break
                yield piece
            self.result()
        finally:
            self.cancel()


class Call(Sequence[T]):
    """A function of the family's runner that has the device to itself between two bursts.

    It must be repeatable: where its device is lost, it is called again with a new runner.
    """

    def __init__(self, function: Callable[[Any], T]) -> None:
        super().__init__()
        self.function = function


def cancelled() -> Cancelled:
    """The error of a sequence that its caller has cancelled."""
    return Cancelled("the sequence was cancelled")


def _release_engine(sequence: Any) -> None:
    """Drop the references by which a sequence that has ended would keep its engine in memory."""
    sequence.on_cancel, sequence.context = _do_nothing, None


def _do_nothing() -> None:
    """The `on_cancel` of a sequence that is not submitted: there is no engine to wake."""
