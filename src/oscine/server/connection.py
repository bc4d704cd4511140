"""Connections: how many there are, and how long one may take to send the head of a request."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S = 15.0  # from the connection, or the first byte of another request, to the end of its head


class Connection(H11Protocol):
    """uvicorn's connection, which itself would wait for ever for a request.

    Args:
        most: Connections that may be open; one more is closed at once, as each takes a descriptor,
            and without one no request can be carried out.
        given: Of uvicorn.
    """

    def __init__(self, most: int, **given: Any) -> None:
        super().__init__(**given)
        self._most = most
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin a connection."""
        super().connection_made(transport)
        if len(self.connections) > self._most:
            transport.abort()
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Receive a part of a request."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the connection."""
        self._unwatch()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Close the connection in HEAD_S seconds if the head of a request is not whole by then."""
        if self.conn.their_state is not h11.IDLE:
            self._unwatch()
        elif self._timer is None:
            self._timer = self.loop.call_later(HEAD_S, self.transport.abort)

    def _unwatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
