"""Errors as OpenAI's API states them: a status, and a body with message, type, param and code."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from oscine.errors import (
    AudioError,
    BusyError,
    Cancelled,
    DeadlineError,
    DeviceError,
    NonFiniteError,
    OscineError,
    UsageError,
)

#: The name of an uploaded recording in messages; that of the client is not used.
UPLOAD = "file"
#: The type of an error by its status; 400 and the others that are the client's mistake have
#: invalid_request_error.
TYPES: Mapping[int, str] = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
}


class ApiError(Exception):
    """An error that a client receives.

    Args:
        status: The HTTP status.
        message: One line for the client's user.
        code: A word for programs, such as invalid_value.
        param: The name of the field at fault.
        headers: Of the answer.
    """

    def __init__(
        self,
        status: int,
        message: str,
        code: str | None = None,
        *,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.param = status, message, code, param
        self.headers = dict(headers or {})

    @property
    def body(self) -> dict[str, Any]:
        """The JSON body of the answer."""
        kind = TYPES.get(self.status, "invalid_request_error")
        if self.status >= 500:
            kind = "server_error"
        error = {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        return {"error": error}


class ClientGoneError(Exception):
    """The client has closed its connection, so that no answer can reach it."""


def invalid(param: str, message: str, code: str = "invalid_value") -> ApiError:
    """The error for a field of a request that is wrong; `message` begins with its name."""
    return ApiError(400, message, code, param=param)


def unsupported(param: str, reason: str) -> ApiError:
    """The error for a field of OpenAI's API that this server does not implement."""
    return ApiError(
        400, f"{param} is not supported: {reason}", "unsupported_parameter", param=param
    )


def unavailable(message: str, code: str, retry_after: int) -> ApiError:
    """The error for a request that may succeed later."""
    return ApiError(503, message, code, headers={"Retry-After": str(retry_after)})


def to_api_error(error: BaseException) -> ApiError:
    """The answer for an error of the library; 500 without its text for one that is a fault."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, UsageError):
        return ApiError(400, str(error), "invalid_value")
    if isinstance(error, AudioError):
        return _audio_error(error)
    if isinstance(error, NonFiniteError) and str(error).startswith(f"{UPLOAD}:"):
        return ApiError(400, str(error), "unsupported_audio", param=UPLOAD)
    if isinstance(error, BusyError):
        return ApiError(429, str(error), "queue_full", headers={"Retry-After": "1"})
    if isinstance(error, DeadlineError):
        return timed_out()
    if isinstance(error, Cancelled):
        return unavailable("the server has cancelled the request", "shutting_down", 5)
    if isinstance(error, DeviceError):
        return unavailable(str(error), "device_lost", 5)
    if isinstance(error, OscineError):
        return ApiError(500, str(error), "model_error", headers={"x-should-retry": "false"})
    return ApiError(500, "the server failed; its log has the reason", "internal_error")


def timed_out() -> ApiError:
    """The error for a request that has reached its deadline."""
    return ApiError(504, "the request took longer than the server's timeout", "timeout")


def _audio_error(error: AudioError) -> ApiError:
    code = "unsupported_audio"
    if "max_audio_seconds" in error.remedy:
        code = "audio_too_long"
    elif error.problem == "is empty":
        code = "empty_audio"
    param = UPLOAD if str(error.source) == UPLOAD else str(error.source)
    return ApiError(400, str(error), code, param=param)


@contextmanager
def named_options(
    spellings: Mapping[str, str], values: Mapping[str, Any] | None = None
) -> Iterator[None]:
    """Context in which a UsageError becomes a 400 that names the field at fault.

    `spellings`: the options of the request -> their names in it, such as initial_prompt -> prompt.
    `values`: of the options, by which an option is known that the message quotes without its name.
    """
    try:
        yield
    except UsageError as error:
        raise _named(str(error), spellings, values or {}) from error


def _named(message: str, spellings: Mapping[str, str], values: Mapping[str, Any]) -> ApiError:
    places = {}
    for name, spelling in spellings.items():
        if (match := re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", message)) is not None:
            places[spelling] = match.start()
            message = message[: match.start()] + spelling + message[match.end() :]
    quoted = (name for name, value in values.items() if value and repr(value) in message)
    if not places and (found := next(quoted, None)) is not None:
        spelling = spellings.get(found, found)
        places[spelling] = 0
        message = f"{spelling}: {message}"
    param = min(places, key=lambda spelling: places[spelling], default=None)
    code = "unknown_parameter" if message.startswith("unknown option") else "invalid_value"
    return ApiError(400, message, code, param=param)
