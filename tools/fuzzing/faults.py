"""What a process may do wrong, on request: so that a test sees that it is noticed."""

from __future__ import annotations

import ctypes
import time

from oscine.errors import OscineError


def crash() -> None:
    """Read where nothing is."""
    ctypes.string_at(1)


def hang() -> None:
    """Never come back."""
    time.sleep(3600)


def memory() -> None:
    """Want more than there may be."""
    bytearray(1 << 40)


def error() -> None:
    """What no caller expects."""
    raise KeyError("nothing")


def long_message() -> None:
    """An error of many lines."""
    raise OscineError("one\ntwo")


def refusal() -> None:
    """What is right."""
    raise OscineError("one line")
