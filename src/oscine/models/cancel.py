"""How a caller asks to stop: the same for every model."""

from __future__ import annotations

from collections.abc import Callable
from reprlib import repr as shortened
from threading import Event, main_thread
from typing import TypeAlias

from oscine.errors import UsageError

Cancel: TypeAlias = Callable[[], bool] | Event


def asked_to_stop(cancel: Cancel | None) -> Callable[[], bool] | None:
    """What says whether to stop; None: nothing does. Raises UsageError for anything else."""
    if isinstance(cancel, Event):
        return cancel.is_set
    if cancel is not None and not callable(cancel):
        raise UsageError(
            "cancel must be a threading.Event, or a function that says whether to stop, not "
            f"{shortened(cancel)}"
        )
    return cancel


def either(stop: Event, cancel: Cancel | None) -> Callable[[], bool]:
    """What says to stop where the event is set, where `cancel` says so, and where the program ends,
    which waits for its threads. Raises UsageError as asked_to_stop."""
    asked = asked_to_stop(cancel)

    def stopped() -> bool:
        ended = stop.is_set() or not main_thread().is_alive()
        return ended or (asked is not None and asked())

    return stopped
