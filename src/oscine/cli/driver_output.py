"""What drivers print while GPUs are looked for and opened, kept off stderr.

Mesa, its Wayland and EGL libraries and Dawn's own log write to file descriptor 2: ten lines that a
user can do nothing about, on each run. They are written while adapters are listed and opened, so
the descriptor leads elsewhere during these calls alone. Where the process dies in one of them, the
lines come out after all, since one of them may be the reason.
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
#: A process of its own, since one that has died prints nothing. It keeps what it reads until the
#: end; only if that came without DONE it writes all of it, each control but a line break as `?`.
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
    """As a library has it, which leaves the descriptors of its process alone."""
    device.around_driver_calls = nullcontext


@contextmanager
def captured_stderr() -> Iterator[None]:
    """Lead descriptor 2 to the keeper; messages of our own still go where it led before.

    Where that cannot be done, as without a descriptor 2, on Windows, or in a program that is frozen
    with its interpreter, nothing is changed.
    """
    with ExitStack() as stack:
        device.around_driver_calls = nullcontext  # calls inside are surrounded already
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
    """The keeper, whose stderr is `before`; None where no process can be started."""
    try:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", BUFFER_PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=before,
            start_new_session=True,  # Ctrl-C is not for it
        )
    except OSError:
        return None


@contextmanager
def redirected_to(keeper: subprocess.Popen[bytes], before: int) -> Iterator[None]:
    """Descriptor 2 is the keeper's input, and then what it was."""
    pipe: IO[bytes] | None = keeper.stdin
    assert pipe is not None
    with keeper:  # which waits for its end
        with pipe:
            os.dup2(pipe.fileno(), STDERR_FD)
        try:
            yield
        finally:
            with suppress(OSError):  # the keeper has been ended by others
                os.write(STDERR_FD, END_MARK)
            os.dup2(before, STDERR_FD)


def bypass_own_messages(before: int, stack: ExitStack) -> None:
    """Where Python's stderr is descriptor 2, it writes to `before` meanwhile."""
    stream = sys.stderr
    try:
        if not isinstance(stream, SanitizedStream) or stream.fileno() != STDERR_FD:
            return
    except (OSError, ValueError):  # it has no descriptor, as in tests
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
