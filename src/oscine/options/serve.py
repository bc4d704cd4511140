"""Options of `oscine serve`: where it listens, who may call it, and what a request may cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from oscine.budget import MemoryLimit
from oscine.errors import UsageError
from oscine.options import Group, Options, option
from oscine.options.checks import flag, integer, invalid, non_negative, positive, text
from oscine.options.command import LoadOptions

DEFAULT_PORT = 8000
MEGABYTE = 1_000_000


def check_texts(name: str, value: Any) -> tuple[str, ...]:
    """Accept several texts, none of them empty."""
    values = [value] if isinstance(value, str) else value
    checked = tuple(text(name, each).strip() for each in values)
    if not all(checked):
        raise invalid(name, "not be empty", value)
    return checked


def _check_aliases(name: str, value: Any) -> tuple[str, ...]:
    """Accept pairs NAME=MODEL."""
    pairs = check_texts(name, value)
    for pair in pairs:
        alias, equals, model = pair.partition("=")
        if not (alias.strip() and equals and model.strip()):
            raise invalid(name, "be NAME=MODEL", pair)
    return pairs


def _check_size(name: str, value: Any) -> int:
    """Accept a size such as 4GB; returns bytes."""
    try:
        limit = MemoryLimit.of(value)
    except UsageError:
        limit = MemoryLimit()
    if not limit.nbytes:
        raise invalid(name, "be a size such as 4GB, 800MB or 1.5GiB", value)
    return limit.nbytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions(LoadOptions, Options):
    """Options of the server. Make one with `of`, which checks them."""

    purpose = "serve"

    # fmt: off
    model: Any = option(
        (), check_texts,
        "A model to serve: a name (see `oscine models list`), org/name on Hugging Face, or a path; "
        "repeat it for several.",
        Group.MODEL, metavar="MODEL", default_text="base", repeatable=True)
    alias: tuple[str, ...] = option(
        (), _check_aliases, "Another name for a model, as NAME=MODEL; repeat it for several.",
        Group.MODEL, metavar="NAME=MODEL", repeatable=True)
    on_demand: bool = option(
        False, flag, "Load a model when it is first used, not at the start.",
        Group.MODEL, flags=("--on-demand",))
    keep_alive: float | None = option(
        None, non_negative, "Unload a model after this time without use, in seconds.",
        Group.MODEL, default_text="models stay loaded")
    max_memory: Any = option(
        None, _check_size,
        "Maximum memory for the loaded models together, such as 12GB: the least recently used is "
        "unloaded for another.",
        Group.MODEL, metavar="SIZE", default_text="no limit", unique=True)
    host: str = option(
        "127.0.0.1", text, "Address to listen on; 0.0.0.0 is every IPv4 address.",
        Group.SERVER, metavar="ADDRESS")
    port: int = option(
        DEFAULT_PORT, integer(0, 65535), "Port to listen on; 0: any that is free.", Group.SERVER)
    wyoming: str | None = option(
        None, text,
        "Address for Home Assistant's protocol beside HTTP, such as tcp://127.0.0.1:10300; it has "
        "no keys.",
        Group.SERVER, metavar="ADDRESS")
    api_key_file: str | None = option(
        None, text, "File with the API keys that clients must send, one per line.",
        Group.SERVER, metavar="FILE", unique=True)
    allow_unauthenticated: bool = option(
        False, flag, "Serve without an API key on an address that other machines can reach.",
        Group.SERVER, flags=("--allow-unauthenticated",))
    allowed_host: tuple[str, ...] = option(
        (), check_texts,
        "Host name by which clients reach a server without an API key; repeat it for several.",
        Group.SERVER, metavar="NAME", default_text="localhost and IP addresses", repeatable=True)
    cors_origin: tuple[str, ...] = option(
        (), check_texts,
        "Origin of web pages that may call the server, such as https://example.org; repeat it for "
        "several.",
        Group.SERVER, metavar="ORIGIN", default_text="only the server's own", repeatable=True)
    root_path: str = option(
        "", text, "Path below which a reverse proxy offers the server, such as /speech.",
        Group.SERVER, metavar="PATH")
    max_requests: int = option(
        64, integer(1, 10_000), "Maximum number of requests at work; more are refused with 429.",
        Group.LIMITS)
    max_upload_mb: float = option(
        500.0, positive(), "Maximum size of a request's body, in megabytes.", Group.LIMITS)
    max_audio_seconds: float = option(
        14_400.0, positive(), "Refuse recordings longer than this, in seconds.", Group.LIMITS)
    timeout: float = option(
        600.0, positive(), "Maximum duration of a request, in seconds.", Group.LIMITS)
    drain: float = option(
        60.0, positive(), "Time for the requests at work to end after SIGTERM, in seconds.",
        Group.LIMITS)
    verbose: bool = option(
        False, flag, "Log each request and its warnings to stderr.", Group.SERVER,
        flags=("--verbose",))
    # fmt: on

    def check(self) -> None:
        """Raise UsageError for options that contradict each other."""
        if self.root_path and not self.root_path.startswith("/"):
            raise UsageError(f"root_path must begin with /, not be {self.root_path!r}")

    @property
    def max_body_bytes(self) -> int:
        """The maximum size of a request's body, in bytes."""
        return int(self.max_upload_mb * MEGABYTE)
