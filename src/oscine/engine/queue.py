"""The queue of sequences that wait for a slot, and the order in which they are admitted."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from oscine.engine.sequence import Caller, Priority, Sequence

PRIORITY_AGING_S = 2.0  # seconds of waiting that raise a caller by one priority


class Queue:
    """A fair queue of sequences: by priority of the caller, and then in turns between callers.

    Live callers come before interactive ones, and these before bulk. The sequences of one caller
    keep their order. Waiting raises the priority of a caller, which prevents starvation.
    """

    def __init__(self) -> None:
        self._waiting: dict[Caller, deque[Sequence[Any]]] = {}
        self._served = self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Sequence[Any]]:
        return (sequence for waiting in self._waiting.values() for sequence in waiting)

    def add(self, sequence: Sequence[Any], *, first: bool = False) -> None:
        """Queue a sequence behind the others of its caller, or with `first` before them."""
        waiting = self._waiting.setdefault(sequence.caller, deque())
        if first:
            waiting.appendleft(sequence)
        else:
            waiting.append(sequence)
        self._count += 1

    def head(self) -> Sequence[Any] | None:
        """The next sequence to admit; None where the queue is empty."""
        now = time.monotonic()

        def order(caller: Caller) -> tuple[int, int, float]:
            first = self._waiting[caller][0]
            aged = int((now - first.submitted) / PRIORITY_AGING_S)
            return max(Priority.LIVE, caller.priority - aged), caller.last_served, first.submitted

        caller = min(self._waiting, key=order, default=None)
        return None if caller is None else self._waiting[caller][0]

    def take(self, sequence: Sequence[Any]) -> None:
        """Remove a sequence that is admitted; other callers of its priority come first now."""
        self._served += 1
        sequence.caller.last_served = self._served
        self.remove(sequence)

    def remove(self, sequence: Sequence[Any]) -> None:
        """Remove a sequence."""
        waiting = self._waiting[sequence.caller]
        waiting.remove(sequence)
        self._count -= 1
        if not waiting:
            del self._waiting[sequence.caller]

    @property
    def is_urgent(self) -> bool:
        """Whether a live caller waits."""
        return any(caller.priority == Priority.LIVE for caller in self._waiting)
