"""Hides what GPU drivers print to stderr while adapters are listed and opened.

Mesa, its Wayland and EGL libraries and Dawn's log write to file descriptor 2: about ten lines on
each run that a user cannot act on. The descriptor is redirected during these calls only. If the
process dies in one of them, the lines are printed after all, since one may give the reason.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from typing import IO

from oscine.gpu import device
from oscine.terminal import SanitizedStream

STDERR_FD = 2
END_MARK = b"\0done\0"
#: Program of a separate process, since one that has died prints nothing. It buffers its input and
#: prints it only if the input ends without END_MARK, with control characters replaced by `?`.
BUFFER_PROGRAM = f"""
import os
text = b""
while not text.endswith({END_MARK!r}) and (part := os.read(0, 65536)):
    text = (text + part)[-1048576:]
if not text.endswith({END_MARK!r}):
    text = "".join(
        each if each.isprintable() or each == chr(10) else "?"
        for each in text.decode("utf-8", "replace")
    )
    os.write(2, text.encode())
"""


def silence_drivers() -> None:
    """Hold back the output of drivers in calls of oscine.gpu.device, until
    `stop_silencing_drivers`."""
    device.around_driver_calls = captured_stderr


def stop_silencing_drivers() -> None:
    """Undo `silence_drivers`: as a library, oscine leaves its process's descriptors alone."""
    device.around_driver_calls = nullcontext


@contextmanager
def captured_stderr() -> Iterator[None]:
    """Context in which file descriptor 2 leads to the buffer process; Python's stderr is unchanged.

    Does nothing on Windows, without a descriptor 2, or in a frozen program.
    """
    with ExitStack() as stack:
        device.around_driver_calls = nullcontext  # nested calls are redirected already
        stack.callback(silence_drivers)
        if os.name == "posix" and sys.executable and not getattr(sys, "frozen", False):
            try:
                before = os.dup(STDERR_FD)
            except OSError:
                before = None
            if before is not None:
                stack.callback(os.close, before)
                bypass_own_messages(before, stack)
                if (keeper := start_buffer(before)) is not None:
                    stack.enter_context(redirected_to(keeper, before))
        yield


def start_buffer(before: int) -> subprocess.Popen[bytes] | None:
    """Start the buffer process with descriptor `before` as its stderr; None if that fails."""
    try:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", BUFFER_PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=before,
            start_new_session=True,  # so that Ctrl-C does not reach it
        )
    except OSError:
        return None


@contextmanager
def redirected_to(keeper: subprocess.Popen[bytes], before: int) -> Iterator[None]:
    """Context in which descriptor 2 is the input of the buffer process; restores `before`."""
    pipe: IO[bytes] | None = keeper.stdin
    assert pipe is not None
    with keeper:  # waits until the process has exited
        with pipe:
            os.dup2(pipe.fileno(), STDERR_FD)
        try:
            yield
        finally:
            with suppress(OSError):  # the process has been killed
                os.write(STDERR_FD, END_MARK)
            os.dup2(before, STDERR_FD)


def bypass_own_messages(before: int, stack: ExitStack) -> None:
    """Let Python's stderr write to `before` until `stack` ends, if it uses descriptor 2."""
    stream = sys.stderr
    try:
        if not isinstance(stream, SanitizedStream) or stream.fileno() != STDERR_FD:
            return
    except (OSError, ValueError):  # without a descriptor, as in tests
        return
    raw = stream.raw
    raw.flush()
    stream.raw = stack.enter_context(
        open(
            before,
            "w",
            buffering=1,
            encoding=raw.encoding,
            errors=raw.errors,
            closefd=False,
        )
    )
    stack.callback(setattr, stream, "raw", raw)
