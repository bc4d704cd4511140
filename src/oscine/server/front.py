"""What every request passes first: its id, Host and Origin, its key, and the size of its body.

An ASGI application around the one with the routes. It also answers errors that no route has
handled, and logs requests: method, path, status and time, and nothing of headers, queries or
bodies.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from hashlib import sha256
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from oscine.errors import OscineError, UsageError
from oscine.files import expand_user
from oscine.options.serve import ServeOptions
from oscine.server.errors import ApiError, ClientGoneError, to_api_error
from oscine.server.metrics import Metrics

log = logging.getLogger(__name__)

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Message, Receive, Send], Awaitable[None]]

#: Paths that need no key, for supervisors.
OPEN_PATHS = ("/health", "/health/ready")
MAX_KEY_FILE_BYTES = 1 << 20
#: How long the body of a refused request is still received and discarded, in seconds: a client that
#: is cut off while it sends sees a reset instead of the answer.
DRAIN_S = 5.0
BODY_IDLE_S = 30.0  # without a part of the body, after which a client is given up
OPEN_PER_REQUEST = 4  # requests that are being received for each that may be at work
_REQUEST_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_KEY = re.compile(r"[!-~]{1,512}")
_HEADER_NAMES = re.compile(r"[A-Za-z0-9, -]{1,2000}")


def read_keys(file: str) -> tuple[str, ...]:
    """The keys of a file: one per line; empty lines and those that begin with # are skipped.

    Raises UsageError for a file without keys, or with one that no header can carry; no message
    quotes a key.
    """
    try:
        with open(expand_user(file), "rb") as opened:
            lines = opened.read(MAX_KEY_FILE_BYTES).decode("utf-8", "replace").splitlines()
    except OSError as error:
        raise UsageError(f"api_key_file {file!r} cannot be read ({error.strerror})") from None
    keys = [line.strip() for line in lines]
    keys = [key for key in keys if key and not key.startswith("#")]
    for number, key in enumerate(keys, start=1):
        if not _KEY.fullmatch(key):
            raise UsageError(f"api_key_file {file!r}: key {number} is not printable ASCII")
    if not keys:
        raise UsageError(f"api_key_file {file!r} holds no key; write one per line")
    return tuple(keys)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address. A name other than localhost is none."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def parse_address(address: str) -> tuple[str, int]:
    """Host and port of tcp://HOST:PORT. Raises UsageError."""
    try:
        parts = urlsplit(address)
        host, port, rest = parts.hostname, parts.port, parts.path + parts.query
    except ValueError:
        host = None
    if host is None or port is None or rest or parts.scheme != "tcp":
        raise UsageError(f"wyoming={address} must be an address such as tcp://127.0.0.1:10300")
    return host, port


def check_exposure(options: ServeOptions) -> None:
    """Raise UsageError for a server without a key that other machines can reach."""
    closed = options.api_key_file is not None or options.allow_unauthenticated
    if not closed and not is_loopback(options.host):
        raise UsageError(
            f"host={options.host} can be reached by other machines: give api_key_file, or "
            "allow_unauthenticated to serve everyone who reaches it"
        )
    if options.wyoming is None or options.allow_unauthenticated:
        return
    if not is_loopback(parse_address(options.wyoming)[0]):
        raise UsageError(
            f"wyoming={options.wyoming} can be reached by other machines, and its protocol has no "
            "keys: give allow_unauthenticated to serve everyone who reaches it"
        )


class Front:
    """The ASGI application around `app`, which has the routes."""

    def __init__(
        self, app: App, options: ServeOptions, keys: tuple[str, ...], metrics: Metrics
    ) -> None:
        self.app, self.options, self.metrics = app, options, metrics
        self.open = 0  # admitted requests that are being received or answered
        # Of equal length, so that a comparison takes the same time for any key.
        self._digests = tuple(sha256(key.encode()).digest() for key in keys)
        self._origins = frozenset(origin.rstrip("/") for origin in options.cors_origin)
        self._hosts = frozenset(host.lower() for host in options.allowed_host)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Handle a request or a WebSocket; events of the server's lifespan pass."""
        if scope["type"] == "http":
            await Exchange(self, scope, receive, send).run()
        elif scope["type"] == "websocket":
            await self._open_websocket(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _open_websocket(self, scope: Message, receive: Receive, send: Send) -> None:
        """Handle a WebSocket; one that may not be opened is refused with 403 before it is."""
        started, path = time.monotonic(), scope["path"][:200]
        try:
            self.check(headers_of(scope), route_of(scope))
        except ApiError as error:
            log.info("WebSocket %r refused: %s", path, error.code)
            await receive()  # its request
            await send({"type": "websocket.close", "code": 1008})
            return
        self.open += 1
        try:
            await self.app(scope, receive, send)
        except Exception as error:
            log.error("WebSocket %r failed", path, exc_info=error)
        finally:
            self.open -= 1
            log.info("WebSocket %r %.3f s", path, time.monotonic() - started)

    def check(self, headers: dict[str, str], path: str) -> None:
        """Raise ApiError for a request that may not be answered."""
        self._check_host(headers.get("host", ""))
        self._check_origin(headers)
        if path in OPEN_PATHS:
            return
        self._check_key(headers.get("authorization", ""))
        if self.open >= OPEN_PER_REQUEST * self.options.max_requests:
            raise ApiError(
                429, "too many requests are open", "queue_full", headers={"Retry-After": "5"}
            )
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length) > self.options.max_body_bytes:
            raise self.too_large()

    def _check_host(self, host: str) -> None:
        """Refuse other names: a page whose name resolves to this machine would be same-origin."""
        if self._digests:  # such a page has no key
            return
        name = host_name(host)
        if name != "localhost" and name not in self._hosts and not is_address(name):
            raise ApiError(
                403, f"Host {name[:100]!r} is not served; see --allowed-host", "host_not_allowed"
            )

    def _check_origin(self, headers: dict[str, str]) -> None:
        """Refuse web pages of other origins, which browsers name."""
        origin = headers.get("origin")
        if origin is None or origin in self._origins:
            return
        if origin_host(origin) != headers.get("host", "").lower():
            raise ApiError(
                403, f"Origin {origin[:100]!r} is not served; see --cors-origin", "origin_refused"
            )

    def _check_key(self, authorization: str) -> None:
        if not self._digests:
            return
        scheme, _, given = authorization.partition(" ")
        digest = sha256(given.strip().encode()).digest()
        matches = [hmac.compare_digest(digest, each) for each in self._digests]
        if scheme.lower() != "bearer" or not any(matches):
            problem = "the API key is wrong" if given else "an API key is needed"
            raise ApiError(
                401,
                f"{problem}; send it as Authorization: Bearer KEY",
                "invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )

    def too_large(self) -> ApiError:
        """The error for a body above the limit."""
        return ApiError(
            413,
            f"the body is larger than {self.options.max_upload_mb:g} MB; see --max-upload-mb",
            "file_too_large",
        )

    def cors_headers(self, headers: dict[str, str]) -> dict[str, str]:
        """The headers that let a page of an allowed origin read the answer; none for others."""
        origin = headers.get("origin")
        if origin not in self._origins:
            return {}
        exposed = "x-request-id, retry-after"
        return {
            "Access-Control-Allow-Origin": str(origin),
            "Access-Control-Expose-Headers": exposed,
            "Vary": "Origin",
        }


class Exchange:
    """One request and its answer."""

    def __init__(self, front: Front, scope: Message, receive: Receive, send: Send) -> None:
        self.front, self.scope = front, scope
        self._receive, self._send = receive, send
        self.headers = headers_of(scope)
        given = self.headers.get("x-request-id", "")
        self.id = given if _REQUEST_ID.fullmatch(given) else f"req_{secrets.token_hex(12)}"
        self.status = 0  # of the answer, once it has begun
        self._received, self._deadline = 0, 0.0
        self._body_ended = self._answered = False

    async def run(self) -> None:
        """Answer the request, and log it."""
        started = time.monotonic()
        self._deadline = started + self.front.options.timeout
        try:
            await self._answer()
        except ClientGoneError:
            pass
        except Exception as error:
            await self._fail(error)
        finally:
            self._record(time.monotonic() - started)

    async def _answer(self) -> None:
        try:
            if self._is_preflight():
                await self._send_json(204, None, self._preflight_headers())
                return
            self.front.check(self.headers, route_of(self.scope))
        except ApiError as error:
            await self._send_json(error.status, error.body, error.headers)
            return
        self.front.open += 1  # not before: who has no key must not fill the server
        try:
            await self.front.app(self.scope, self.receive, self.send)
        finally:
            self.front.open -= 1

    def _is_preflight(self) -> bool:
        """Whether a browser asks if a page may send a request, which carries no key."""
        asks = "access-control-request-method" in self.headers
        return bool(self.scope["method"] == "OPTIONS" and asks)

    def _preflight_headers(self) -> dict[str, str]:
        """Raises ApiError for another origin."""
        if not self.front.cors_headers(self.headers):
            raise ApiError(403, "this origin is not served; see --cors-origin", "origin_refused")
        asked = self.headers.get("access-control-request-headers", "")
        allowed = asked if _HEADER_NAMES.fullmatch(asked) else "authorization, content-type"
        return {
            "Access-Control-Allow-Methods": "GET, POST, DELETE",
            "Access-Control-Allow-Headers": allowed,
            "Access-Control-Max-Age": "600",
        }

    async def _fail(self, error: Exception) -> None:
        """Answer with an error that no route has handled; cut an answer that has begun."""
        known = isinstance(error, ApiError | OscineError)
        if not known and self.status in (0, 500):
            log.error("request %s failed", self.id, exc_info=error)
        elif self.status and self.status != 500:
            reason = error.__cause__ or error  # Starlette's says that the answer has begun
            log.warning("request %s: its answer is cut off (%s)", self.id, reason)
        if not self.status:
            answer = to_api_error(error)
            await self._send_json(answer.status, answer.body, answer.headers)

    async def receive(self) -> Message:
        """The next message of the client. Raises ApiError for a body above the limits."""
        if self._body_ended:
            return await self._receive()
        remaining = max(0.0, self._deadline - time.monotonic())
        try:
            message = await asyncio.wait_for(self._receive(), min(BODY_IDLE_S, remaining))
        except TimeoutError:
            problem = f"nothing was received for {BODY_IDLE_S:g} s"
            if remaining < BODY_IDLE_S:
                problem = f"the body was not received in {self.front.options.timeout:g} s"
            raise ApiError(408, problem, "timeout") from None
        if message["type"] == "http.request":
            self._received += len(message.get("body", b""))
            self._body_ended = not message.get("more_body", False)
            if self._received > self.front.options.max_body_bytes:
                raise self.front.too_large()
        return message

    async def send(self, message: Message) -> None:
        """Send a message of the answer, with the headers that every answer has."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            waits = "expect" in self.headers  # for a permission to send its body: curl does
            if self.status >= 400 and not self._body_ended and not waits:
                await self._drain()
            added = {
                "x-request-id": self.id,
                "X-Content-Type-Options": "nosniff",
                "Cache-Control": "no-store",
                **self.front.cors_headers(self.headers),
            }
            names = {name.lower() for name, _ in message.get("headers", ())}
            message["headers"] = [
                *message.get("headers", ()),
                *(
                    (name.encode("latin-1"), value.encode("latin-1"))
                    for name, value in added.items()
                    if name.lower().encode() not in names
                ),
            ]
        await self._send(message)

    async def _drain(self) -> None:
        """Receive the body that is refused, as far as it comes in time."""

        async def read() -> None:
            while not self._body_ended:
                message = await self._receive()
                self._body_ended = not message.get("more_body", False)

        with suppress(TimeoutError):
            await asyncio.wait_for(read(), DRAIN_S)

    async def _send_json(self, status: int, body: Any, headers: dict[str, str]) -> None:
        content = b"" if body is None else json.dumps(body).encode()
        sent = {"Content-Length": str(len(content)), **headers}
        if content:
            sent["Content-Type"] = "application/json"
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in sent.items()]
        with suppress(OSError):
            await self.send({"type": "http.response.start", "status": status, "headers": raw})
            await self.send({"type": "http.response.body", "body": content})

    def _record(self, seconds: float) -> None:
        route = getattr(self.scope.get("route"), "path", "other")
        self.front.metrics.add_request(route, self.status, seconds)
        path = self.scope["path"][:200]
        log.info(
            "%s %r %s %.3f s %s", self.scope["method"], path, self.status or 499, seconds, self.id
        )


def route_of(scope: Message) -> str:
    """The path of a request without the one below which a proxy offers the server."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


def headers_of(scope: Message) -> dict[str, str]:
    """The headers of a request by their names in lower case."""
    return {
        name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]
    }


def host_name(host: str) -> str:
    """The name or address of a Host header, without its port, in lower case."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower().rstrip(".")


def origin_host(origin: str) -> str:
    """Host and port of an Origin header; empty for one that is no URL, such as null."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def is_address(name: str) -> bool:
    """Whether a host is an IP address, to which no foreign name can be resolved."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
