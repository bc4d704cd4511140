"""Runs the server: listens, loads the models meanwhile, and drains on SIGTERM and Ctrl-C."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from threading import Thread
from typing import Any

import uvicorn

from oscine.errors import OscineError
from oscine.options.serve import ServeOptions
from oscine.registry import default_model
from oscine.server.app import Server
from oscine.server.catalog import Catalog, Loader
from oscine.server.connection import Connection
from oscine.server.front import OPEN_PER_REQUEST, check_exposure, parse_address, read_keys
from oscine.server.request_warnings import kept_from_log
from oscine.server.wyoming import WyomingServer

log = logging.getLogger(__name__)

UNLOAD_S = 5.0  # most seconds between two looks at models that are idle
MAX_MESSAGE_BYTES = 16 << 20  # of a WebSocket; a reference recording is in one as base64
BACKLOG = 512  # connections that wait to be accepted
CLOSE_S = 5  # for connections to close once their answers have been sent


def serve(options: ServeOptions, loader: Loader, announce: Callable[[str], None]) -> None:
    """Serve until SIGTERM or Ctrl-C, and then until the requests at work have ended.

    Args:
        options: Of the server.
        loader: Loads and unloads the models.
        announce: Shows a line to whoever has started the server.

    Raises:
        UsageError: for options that cannot be carried out; OscineError where the address cannot be
            listened on; what loading a model raises.
    """
    check_exposure(options)
    keys = () if options.api_key_file is None else read_keys(options.api_key_file)
    names = options.model or (default_model("transcribe"),)
    catalog = Catalog(
        names,
        options.alias,
        loader,
        max_memory=options.max_memory,
        keep_alive_s=options.keep_alive,
    )
    with ExitStack() as stack:
        listener, wyoming = stack.enter_context(listen(options.host, options.port)), None
        address = f"http://{host_and_port(listener)}"
        doing = "loading on demand" if options.on_demand else "loading"
        loading = f"{doing} {', '.join(catalog.models)}"
        if options.wyoming is not None:
            wyoming = stack.enter_context(listen(*parse_address(options.wyoming)))
            loading += f"; Wyoming on tcp://{host_and_port(wyoming)}"
        announce(f"listening on {address}; {loading}")
        server = Server(options, catalog, keys)
        lifetime = Lifetime(server, listener, wyoming, lambda: announce(f"ready on {address}"))
        with kept_from_log(options.verbose):
            asyncio.run(lifetime.run())


def connections(options: ServeOptions) -> Any:
    """How uvicorn makes a connection: an idle one for each request that may be open."""
    return partial(Connection, 2 * OPEN_PER_REQUEST * options.max_requests)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens on an address. Raises OscineError with the reason if it cannot."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise OscineError(f"cannot listen on {host} port {port}: {reason}") from None


def host_and_port(listener: socket.socket) -> str:
    """The address of a socket as URLs have it."""
    host, port = listener.getsockname()[:2]
    return f"{f'[{host}]' if ':' in host else host}:{port}"


class Lifetime:
    """The time of a server, from loading its models to the end of its last request."""

    def __init__(
        self,
        server: Server,
        listener: socket.socket,
        wyoming: socket.socket | None,
        ready: Callable[[], None],
    ) -> None:
        self._server, self._listener, self._ready = server, listener, ready
        self._wyoming_listener, self._wyoming = wyoming, WyomingServer(server)
        self._failure: BaseException | None = None
        self._draining: asyncio.Task[None] | None = None
        logging.getLogger("python_multipart").setLevel(logging.CRITICAL)  # it warns of each form
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # `front` logs errors
        self._http: Any = uvicorn.Server(
            uvicorn.Config(
                server.app,
                http=connections(server.options),
                ws="websockets-sansio",
                ws_max_size=MAX_MESSAGE_BYTES,
                ws_per_message_deflate=False,  # a small message cannot become a large one
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=CLOSE_S,
                root_path=server.options.root_path,
            )
        )

    async def run(self) -> None:
        """Serve to the end. Raises what loading a model raises."""
        loop = asyncio.get_running_loop()

        def end(*_: object) -> None:
            loop.call_soon_threadsafe(self._end)

        self._http.handle_exit = end  # of SIGTERM and SIGINT, instead of uvicorn's
        Thread(target=self._load, args=(loop,), name="oscine loading", daemon=True).start()
        unloading = asyncio.create_task(self._unload_idle())
        if self._wyoming_listener is not None:
            await self._wyoming.start(self._wyoming_listener)
        await self._http.serve(sockets=[self._listener])
        unloading.cancel()
        self._wyoming.close()
        if self._failure is not None:
            raise self._failure

    def _load(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            if self._server.options.on_demand:
                self._server.catalog.ready = True
            else:
                self._server.catalog.load_first()
            self._ready()
        except BaseException as error:
            self._failure = error
            loop.call_soon_threadsafe(self._close)

    async def _unload_idle(self) -> None:
        """Unload models as they become idle."""
        keep_alive = self._server.catalog.keep_alive_s
        while keep_alive is not None:
            await asyncio.sleep(min(max(keep_alive / 4, 0.1), UNLOAD_S))
            await self._server.catalog.unload_idle()

    def _end(self) -> None:
        """Drain; asked a second time, stop all work and close."""
        if self._draining is None:
            self._draining = asyncio.ensure_future(self._drain())
        else:
            self._close()

    async def _drain(self) -> None:
        self._wyoming.stop_accepting()
        log.info("draining: %d requests are at work", len(self._server.gate.jobs))
        await self._server.gate.drain(self._server.options.drain)
        self._close()

    def _close(self) -> None:
        self._server.gate.stop()
        self._http.should_exit = True
