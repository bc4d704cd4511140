"""Sequences that wait for a slot, and whose turn it is."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from oscine.engine.sequence import Caller, Priority, Sequence

AGEING = 2.0  # seconds of waiting that count as much as one priority


class Queue:
    """Fair by sequence, not by request.

    Live callers come before interactive ones before bulk; callers of one priority take turns; the
    sequences of one caller keep their order. Waiting raises a caller's priority, so that none
    starves.
    """

    def __init__(self) -> None:
        self._waiting: dict[Caller, deque[Sequence[Any]]] = {}
        self._served = self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Sequence[Any]]:
        return (sequence for waiting in self._waiting.values() for sequence in waiting)

    def add(self, sequence: Sequence[Any], *, first: bool = False) -> None:
        """Wait behind the caller's others, or before them."""
        waiting = self._waiting.setdefault(sequence.caller, deque())
        if first:
            waiting.appendleft(sequence)
        else:
            waiting.append(sequence)
        self._count += 1

    def head(self) -> Sequence[Any] | None:
        """The sequence whose turn it is; None where none waits."""
        now = time.monotonic()

        def order(caller: Caller) -> tuple[int, int, float]:
            first = self._waiting[caller][0]
            aged = int((now - first.submitted) / AGEING)
            return max(Priority.LIVE, caller.priority - aged), caller.served, first.submitted

        caller = min(self._waiting, key=order, default=None)
        return None if caller is None else self._waiting[caller][0]

    def take(self, sequence: Sequence[Any]) -> None:
        """It has its slot: its caller comes after the others now."""
        self._served += 1
        sequence.caller.served = self._served
        self.remove(sequence)

    def remove(self, sequence: Sequence[Any]) -> None:
        """It waits no more."""
        waiting = self._waiting[sequence.caller]
        waiting.remove(sequence)
        self._count -= 1
        if not waiting:
            del self._waiting[sequence.caller]

    @property
    def is_urgent(self) -> bool:
        """Whether a live caller waits."""
        return any(caller.priority == Priority.LIVE for caller in self._waiting)
