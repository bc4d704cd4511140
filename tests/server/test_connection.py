"""Connections: clients that send no request, and more of them than descriptors."""

from __future__ import annotations

import socket
from collections.abc import Callable

import httpx2
import pytest

from oscine.server import connection

from .running import Running

Serve = Callable[..., Running]
HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


def connect(running: Running) -> socket.socket:
    return socket.create_connection(("127.0.0.1", running.port), timeout=20)


def is_closed(client: socket.socket) -> bool:
    """Whether the server closes a connection."""
    try:
        return client.recv(1000) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize(
    "sent", [b"", b"GET /hea", HEALTH + b"GET /hea"], ids=["nothing", "first", "second"]
)
def test_a_head_that_does_not_end_is_given_up(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    """Also the second one of a connection."""
    monkeypatch.setattr(connection, "HEAD_S", 0.2)
    running = serve({})
    with connect(running) as client:
        client.sendall(sent[: len(HEALTH)])
        if len(sent) > len(HEALTH):
            answer = b""
            while not answer.endswith(b'{"status":"ok"}'):
                answer += client.recv(1000)
            client.sendall(sent[len(HEALTH) :])
        assert is_closed(client)
    running.until(lambda: not running.http.server_state.connections)


def test_an_answer_may_take_longer_than_a_head(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A body, too: here it is sent after the time for a head."""
    monkeypatch.setattr(connection, "HEAD_S", 0.2)
    running = serve({})
    with connect(running) as client:
        head = "POST /v1/audio/speech HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n"
        client.sendall(head.encode())
        client.settimeout(0.5)
        with pytest.raises(TimeoutError):
            client.recv(1)
        client.sendall(b"{}")
        client.settimeout(20)
        assert client.recv(1000).startswith(b"HTTP/1.1 400 ")


def test_connections_are_bounded(serve: Serve) -> None:
    running = serve({}, max_requests=1)
    clients = [connect(running) for _ in range(9)]
    assert is_closed(clients[-1])
    clients.pop(0).close()
    running.until(lambda: len(running.http.server_state.connections) == 7)
    assert httpx2.get(f"{running.url}/health").status_code == 200
    for client in clients:
        client.close()
