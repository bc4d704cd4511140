"""Keeps what the library warns of a client's request out of the server's log.

Such a warning (a recording that breaks off, a text without speech) is for the client, whose
requests could otherwise fill the log. Warnings of loading and of devices are the operator's.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

MAX_WARNINGS = 20  # that are kept for a request

#: The warnings of the request that this thread works for.
_collected: ContextVar[list[str] | None] = ContextVar("_collected", default=None)


@contextmanager
def collected(warnings: list[str]) -> Iterator[None]:
    """Inside the block, warnings of this thread are appended to `warnings`, each once."""
    token = _collected.set(warnings)
    try:
        yield
    finally:
        _collected.reset(token)


class RequestWarnings(logging.Filter):
    """Filter of a handler that collects warnings of requests and passes them on if `verbose`."""

    def __init__(self, verbose: bool) -> None:
        super().__init__()
        self._verbose = verbose

    def filter(self, record: logging.LogRecord) -> bool:
        warnings = _collected.get()
        if warnings is None or record.levelno != logging.WARNING:
            return True
        message = record.getMessage()
        if len(warnings) < MAX_WARNINGS and message not in warnings:
            warnings.append(message)
        return self._verbose


@contextmanager
def kept_from_log(verbose: bool) -> Iterator[None]:
    """Inside the block, the handlers of the root logger log warnings of requests if `verbose`."""
    handlers, made = list(logging.getLogger().handlers), RequestWarnings(verbose)
    for handler in handlers:
        handler.addFilter(made)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(made)
