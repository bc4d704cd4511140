"""A server in a process of its own, and requests to it, with the standard library alone."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.client import BadStatusLine, HTTPConnection, HTTPException, IncompleteRead
from pathlib import Path

HOST = "127.0.0.1"
PIECES = 20  # in which a slow client sends its body
START_S, END_S = 300.0, 400.0  # after which a server is given up


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request came to.

    `status` is 0 where the connection was refused or closed before an answer, and -1 where an
    answer was cut off; `seconds`: from the request to the end of the answer.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    seconds: float


class ServerProcess:
    """`oscine serve` on a free port of this machine, once it is ready.

    Raises SystemExit with the server's last lines if it does not start.
    """

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "oscine", "serve", "--offline", "--port", "0", *arguments],
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        self.lines: deque[str] = deque(maxlen=2000)  # the latest of its stderr
        self.port = 0
        self._ready = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._ready.wait(START_S)
        if not self.port or self.process.poll() is not None:
            self.kill()
            raise SystemExit("the server does not start:\n" + "".join(self.lines))

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            if line.startswith("oscine: ready on "):
                self.port = int(line.rpartition(":")[2])
                self._ready.set()
        self._ready.set()

    def held(self) -> dict[str, float]:
        """What the process holds: memory in MB, threads, open files."""
        folder = Path(f"/proc/{self.process.pid}")
        pages = int((folder / "statm").read_text().split()[1])
        return {
            "MB": pages * os.sysconf("SC_PAGE_SIZE") / 1e6,
            "threads": float(len(os.listdir(folder / "task"))),
            "files": float(len(os.listdir(folder / "fd"))),
        }

    def gauges(self) -> dict[str, float]:
        """The values of /metrics by name, added up over their labels."""
        found: dict[str, float] = {}
        for line in ask(self.port, "/metrics").body.decode().splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                name = name.partition("{")[0].removeprefix("oscine_")
                found[name] = found.get(name, 0.0) + float(value)
        return found

    def until_idle(self, seconds: float = 120.0) -> dict[str, float]:
        """Wait until no request is at work; what is held then and what waits in the engine."""
        end = time.monotonic() + seconds
        while True:
            values = self.gauges()
            waiting = values["sequences_running"] + values["sequences_waiting"]
            if not waiting + values["requests_at_work"] or time.monotonic() > end:
                time.sleep(0.2)  # for connections to be closed
                return {**self.held(), "requests": values["requests_at_work"], "queue": waiting}
            time.sleep(0.1)

    def terminate(self) -> None:
        """Ask it to end."""
        self.process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        """Its exit code, or -9 for one that does not end."""
        try:
            code = self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return -9
        self._reader.join(10)
        return code

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait()
        self._reader.join(10)


def multipart(
    fields: Iterable[tuple[str, str]], files: Iterable[tuple[str, bytes]] = ()
) -> tuple[str, bytes]:
    """The content type and the body of a form."""
    boundary = secrets.token_hex(16)
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in fields
    ]
    for name, content in files:
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"; filename="a"\r\n'
        parts += [
            head.encode(),
            b"Content-Type: application/octet-stream\r\n\r\n",
            content,
            b"\r\n",
        ]
    return f"multipart/form-data; boundary={boundary}", b"".join(
        (*parts, f"--{boundary}--\r\n".encode())
    )


def ask(
    port: int,
    path: str,
    content: tuple[str, bytes] | None = None,
    *,
    send_s: float = 0.0,
    read_s: float = 0.0,
    timeout: float = 600.0,
) -> Answer:
    """Send a request on a connection of its own: POST if there is content (its type and bytes).

    A slow client takes `send_s` to send its body, or leaves the answer unread for `read_s`.
    """
    started = time.monotonic()
    connection = HTTPConnection(HOST, port, timeout=timeout)
    status = 0
    try:
        with suppress(BrokenPipeError, ConnectionResetError):  # refused before the body has ended
            _send(connection, path, content, send_s, bool(read_s))
        response = connection.getresponse()
        status = -1
        time.sleep(read_s)
        body, headers = response.read(), {k.lower(): v for k, v in response.getheaders()}
        return Answer(response.status, headers, body, time.monotonic() - started)
    except (BadStatusLine, ConnectionError, IncompleteRead) as error:
        return Answer(status, {}, repr(error).encode(), time.monotonic() - started)
    except (HTTPException, OSError) as error:
        return Answer(-1, {}, repr(error).encode(), time.monotonic() - started)
    finally:
        connection.close()


def _send(
    connection: HTTPConnection,
    path: str,
    content: tuple[str, bytes] | None,
    send_s: float,
    small: bool,
) -> None:
    connection.connect()
    if small:  # so that little is read of what is sent
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.putrequest("GET" if content is None else "POST", path)
    connection.putheader("Connection", "close")
    if content is None:
        connection.endheaders()
        return
    kind, body = content
    connection.putheader("Content-Type", kind)
    connection.putheader("Content-Length", str(len(body)))
    connection.endheaders()
    if not send_s:
        connection.send(body)
        return
    size = max(1, -(-len(body) // PIECES))
    for start in range(0, len(body), size):
        connection.send(body[start : start + size])
        time.sleep(send_s / PIECES)
