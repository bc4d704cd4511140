"""HTTP requests to untrusted servers: responses are bounded in bytes and time.

Only http and https are used, also after redirects. All failures are ServerErrors of one line.
"""

from __future__ import annotations

import http.client
import importlib
import importlib.util
import io
import math
import ssl
import time
import urllib.error
import urllib.request
from functools import partial
from typing import IO, Any
from urllib.parse import urlsplit

from oscine.errors import HubError

READ_TIMEOUT_S = 15.0  # seconds without a byte before a connection is considered dead
MIN_TIMEOUT_S = 1.0  # of a request shortly before MAX_SILENCE_S ends
SPEED_WINDOW_S = 30.0  # seconds over which the speed of a server is measured
MIN_BYTES_PER_S = 1024.0  # bytes a second; slower than that, a small model would take days
MAX_HEADER_BYTES = 1 << 18  # of a status line, headers and what else surrounds a body
MAX_PAGE_BYTES = 1 << 24  # of a listing
MAX_SILENCE_S = (
    60.0  # seconds without a byte of a file, over all attempts, after which it is given up
)
READ_BYTES = 1 << 20
#: What Python raises for a connection, an address or an answer that is wrong.
NETWORK_ERRORS = (OSError, http.client.HTTPException, ValueError)


class ServerError(HubError):
    """A server that cannot be reached, or an answer that cannot be used.

    `code` is that of HTTP, if there is one. `final`: asking again would bring the same.
    """

    def __init__(self, problem: str, *, code: int = 0, final: bool = False) -> None:
        super().__init__(problem)
        self.code, self.final = code, final


class SpeedMonitor:
    """Measures the speed of a server, and ends a connection that is too slow.

    `until`: the time at which MAX_SILENCE_S since the last byte is over.
    """

    def __init__(self, slowest: float) -> None:
        self._slowest = slowest
        self._since, self._bytes = time.monotonic(), 0
        self.until = self._since + MAX_SILENCE_S

    def count(self, length: int) -> None:
        """Add received bytes. Raises ServerError at the end of a window with too few bytes."""
        self._bytes += length
        now = time.monotonic()
        if length:
            self.until = now + MAX_SILENCE_S
        seconds = now - self._since
        if seconds < SPEED_WINDOW_S:
            return
        if self._bytes < self._slowest * seconds:
            raise ServerError("the server sends too slowly; try again later", final=True)
        self._since, self._bytes = time.monotonic(), 0


class _BoundedStream(io.RawIOBase):
    """The bytes of a socket: `left` more at most, headers included, and none after `until`."""

    def __init__(self, raw: io.RawIOBase, slowest: float, until: float) -> None:
        self._raw, self._pace, self.left, self.until = (
            raw,
            SpeedMonitor(slowest),
            MAX_HEADER_BYTES,
            until,
        )

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        count = self._raw.readinto(buffer)
        self.left -= count or 0
        if self.left < 0:
            raise ServerError("the server sends more than such an answer can have", final=True)
        if time.monotonic() > self.until:
            raise ServerError("the server takes too long to answer")
        self._pace.count(count or 0)
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


class _BoundedResponse(http.client.HTTPResponse):
    """An answer whose headers are bounded and here by `until`, with a body of about `most` bytes
    at most.
    """

    def __init__(
        self, sock: Any, *rest: Any, most: int, slowest: float, until: float, **more: Any
    ) -> None:
        super().__init__(sock, *rest, **more)
        self._most, self._wire = most, _BoundedStream(self.fp.detach(), slowest, until)
        self.fp = io.BufferedReader(self._wire)

    def begin(self) -> None:
        super().begin()
        self._wire.left = MAX_HEADER_BYTES + 8 * self._most  # a chunk of one byte is sent as six
        self._wire.until = math.inf


class _BoundedHandler(urllib.request.AbstractHTTPHandler):
    """Opens http and https URLs with bounded responses."""

    def __init__(self, most: int, slowest: float, until: float) -> None:
        super().__init__()
        self._response_class = partial(_BoundedResponse, most=most, slowest=slowest, until=until)

    def _connection(self, kind: Any, host: str, **settings: Any) -> Any:
        connection = kind(host, **settings)
        connection.response_class = self._response_class
        return connection

    def http_open(self, request: urllib.request.Request) -> Any:
        return self.do_open(partial(self._connection, http.client.HTTPConnection), request)

    def https_open(self, request: urllib.request.Request) -> Any:
        kind = partial(self._connection, http.client.HTTPSConnection)
        return self.do_open(kind, request, context=_tls_context())

    http_request = https_request = urllib.request.AbstractHTTPHandler.do_request_


class _HttpRedirects(urllib.request.HTTPRedirectHandler):
    """Redirections to http and https alone; Python's own follows ftp too, and reads any body."""

    def http_error_302(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
    ) -> Any:
        fp.close()  # so that nothing of the body is read
        return super().http_error_302(req, fp, code, msg, headers)

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302

    def redirect_request(self, req: Any, fp: Any, *rest: Any) -> Any:
        _check_url(rest[-1])
        return super().redirect_request(req, fp, *rest)


def open_url(
    url: str,
    headers: dict[str, str],
    *,
    most: int,
    token: str | None = None,
    timeout: float = READ_TIMEOUT_S,
    slowest: float = MIN_BYTES_PER_S,
    until: float = math.inf,
) -> http.client.HTTPResponse:
    """A server's answer of at most about `most` bytes, which `read_block` reads.

    Raises ServerError, also where its headers, after all redirections, are not here by `until`.
    """
    timeout = min(timeout, max(MIN_TIMEOUT_S, until - time.monotonic()))
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        _BoundedHandler(most, slowest, until),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        _HttpRedirects(),
    ):
        opener.add_handler(handler)
    try:
        _check_url(url)
        request = urllib.request.Request(url, headers={"User-Agent": "oscine", **headers})
        if token:
            # Hubs redirect to a content network that must not see the token.
            request.add_unredirected_header("Authorization", f"Bearer {token}")
        answer = opener.open(request, timeout=timeout)
        if not isinstance(answer, http.client.HTTPResponse):
            raise ServerError("no answer", final=True)
        return answer
    except urllib.error.HTTPError as error:
        error.close()
        problem = f"the server answers {error.code} {shown(error.reason)}"
        raise ServerError(problem, code=error.code, final=error.code < 500) from error
    except NETWORK_ERRORS as error:
        raise _server_error(error) from error


def read_block(response: http.client.HTTPResponse, most: int = READ_BYTES) -> bytes:
    """The bytes of a body that have arrived, at most `most`; empty at its end.

    Raises ServerError.
    """
    try:
        return response.read1(most)
    except NETWORK_ERRORS as error:
        raise _server_error(error) from error


def read_page(
    url: str, accept: str, *, token: str | None = None, timeout: float = READ_TIMEOUT_S
) -> tuple[bytes, str, str]:
    """A page of at most PAGE_BYTES, its type, and its address after redirections.

    Raises ServerError, also for a page that takes more than WINDOW seconds.
    """
    with open_url(
        url,
        {"Accept": accept},
        most=MAX_PAGE_BYTES,
        token=token,
        timeout=timeout,
        slowest=math.inf,
        until=time.monotonic() + SPEED_WINDOW_S,
    ) as response:
        stated, page = response.length, bytearray()
        while len(page) != stated and (block := read_block(response)):
            page += block
            if len(page) > MAX_PAGE_BYTES:
                raise ServerError("the server sends more than a listing can have", final=True)
        if stated is not None and len(page) < stated:
            raise ServerError("the connection closed early")
        return bytes(page), response.headers.get_content_type(), response.url


def _check_url(url: str) -> None:
    """Raise ServerError for an address that is not of http or https, or that holds a login."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https"):
        problem = f"{shown(url)} is not an http or https URL"
        raise ServerError(problem, final=True)
    if "@" in parts.netloc:
        raise ServerError(f"{shown(parts.hostname or '')} wants a login", final=True)


def _tls_context() -> ssl.SSLContext:
    """The system's certificates; where Python has none (macOS, python.org), certifi's."""
    paths = ssl.get_default_verify_paths()
    if paths.cafile is None and paths.capath is None and importlib.util.find_spec("certifi"):
        return ssl.create_default_context(cafile=importlib.import_module("certifi").where())
    return ssl.create_default_context()


def _server_error(error: BaseException) -> ServerError:
    reason = getattr(error, "reason", None)  # of an URLError, the error inside
    if isinstance(reason, ServerError):
        return reason
    return ServerError(shown(reason or error) or type(error).__name__)


def shown(text: object) -> str:
    """Text from a server as part of one line: without line breaks and control characters."""
    words = " ".join(str(text).split())
    return "".join(c if c.isprintable() else "�" for c in words)[:200]
