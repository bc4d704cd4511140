"""The `cancel` argument of every model: an event or a function that tells it to stop."""

from __future__ import annotations

from collections.abc import Callable
from reprlib import repr as shortened
from threading import Event, main_thread
from typing import TypeAlias

from oscine.errors import UsageError

Cancel: TypeAlias = Callable[[], bool] | Event


def as_should_stop(cancel: Cancel | None) -> Callable[[], bool] | None:
    """A function that says whether to stop; None for None.

    Raises UsageError if `cancel` is neither an event nor callable.
    """
    if isinstance(cancel, Event):
        return cancel.is_set
    if cancel is not None and not callable(cancel):
        raise UsageError(
            "cancel must be a threading.Event, or a function that says whether to stop, not "
            f"{shortened(cancel)}"
        )
    return cancel


def either_should_stop(stop: Event, cancel: Cancel | None) -> Callable[[], bool]:
    """A function that says whether `stop` is set, `cancel` asks to stop, or the program ends.

    The end of the program counts because it waits for its threads. Raises UsageError if `cancel`
    is neither an event nor callable.
    """
    cancelled = as_should_stop(cancel)

    def should_stop() -> bool:
        ended = stop.is_set() or not main_thread().is_alive()
        return ended or (cancelled is not None and cancelled())

    return should_stop
