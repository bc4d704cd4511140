"""How a caller asks to stop: the same for every model."""

from __future__ import annotations

from collections.abc import Callable
from reprlib import repr as shortened
from threading import Event
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
