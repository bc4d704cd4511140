"""Whose turn it is: a model speaks for one stream at a time, in whatever threads they are.

A turn belongs to a stream, not to a thread: a stream may be handed on. Who asks for a turn waits
for it, but never for something that cannot happen, and not for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Condition, Thread, current_thread
from time import monotonic

from oscine.errors import UsageError

POLL = 0.1  # seconds between two looks at whether waiting is still of use
#: Seconds that others wait for a stream which nobody iterates over, or whose thread has ended.
PATIENCE, SHORT_PATIENCE = 60.0, 1.0


class Turn:
    """What one stream, or one call, knows of itself. `thread`: who iterated over it last."""

    def __init__(self) -> None:
        self.thread: Thread = current_thread()
        self.idle_since: float | None = None  # None while something is computed for it

    def go_on(self) -> None:
        """This thread iterates over it now."""
        self.thread, self.idle_since = current_thread(), None

    def rest(self) -> None:
        """Nothing is computed for it until somebody goes on."""
        self.idle_since = monotonic()

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Somebody else's code runs, such as that which gives the text."""
        self.rest()
        try:
            yield
        finally:
            self.idle_since = None


class Turns:
    """The turns of a model, which is called `name`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.owner: Turn | None = None
        self._changed = Condition()

    @contextmanager
    def taken(self, turn: Turn, check: Callable[[], None] = lambda: None) -> Iterator[None]:
        """The model for one alone; `check`, which may raise, is called now and then meanwhile.

        Raises UsageError where this thread iterates over the stream whose turn it is, as it would
        wait for itself, and where nobody has iterated over that for PATIENCE seconds.
        """
        try:
            self._wait(turn, check)
            yield
        finally:  # around the wait, so that nothing comes in between
            with self._changed:
                if self.owner is turn:
                    self.owner = None
                    self._changed.notify()

    def _wait(self, turn: Turn, check: Callable[[], None]) -> None:
        while True:
            check()
            with self._changed:
                owner = self.owner
                if owner is None:
                    self.owner = turn
                    return
                self._refuse(owner)
                self._changed.wait(POLL)

    def _refuse(self, owner: Turn) -> None:
        remedy = "iterate over it to its end, or close() it, before the next call"
        if owner.thread is current_thread():
            raise UsageError(f"{self.name} is still speaking in this thread's stream: {remedy}")
        since = owner.idle_since
        patience = PATIENCE if owner.thread.is_alive() else SHORT_PATIENCE
        if since is not None and monotonic() - since > patience:
            raise UsageError(
                f"{self.name} is still speaking in a stream that nobody iterates over: {remedy}"
            )
