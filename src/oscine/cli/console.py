"""Output of every command: results on standard output, messages and progress bars on stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TextIO

import typer

from oscine.errors import OscineError
from oscine.terminal import printable

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console
    from rich.progress import Progress, ProgressColumn

#: Base class of the errors that Typer raises for wrong arguments, with its own Click or Click's.
ArgumentError: type[Any] = typer.BadParameter.__mro__[1]


def warn(message: str) -> None:
    """Print a message as one line on stderr, after the program's name, with flags as options."""
    from oscine.cli.option_names import use_flags  # imports all options

    status(f"oscine: {use_flags(message)}")


def status(message: str) -> None:
    """Print a message as one line on stderr, without the program's name."""
    write_stderr(printable(message))


def write_stderr(lines: str) -> None:
    """Print lines on stderr, above progress bars that are shown. Errors of stderr are ignored."""
    with suppress(OSError):
        if _below is None:
            print(lines, file=sys.stderr)
        else:
            _below.out("\n".join(map(printable, lines.split("\n"))), highlight=False)


_below: Console | None = None  # the console whose progress bars are below messages


@contextmanager
def print_above(console: Console) -> Iterator[None]:
    """Context in which messages of any thread are printed above the progress bars of a console."""
    global _below
    _below = console
    try:
        yield
    finally:
        _below = None


class OutputError(OscineError):
    """Standard output is full or closed, so no further result can be written to it."""


def write_stdout(text: str) -> None:
    """Write text to standard output as UTF-8, whatever the encoding of the terminal or locale.

    Raises BrokenPipeError if the reader has exited, OutputError if stdout is closed or full.
    """
    if sys.stdout is None:  # closed by the caller, as `>&-` does
        raise OutputError("standard output is closed")
    try:
        sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace"))
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise stdout_error(error) from error


def write_path(path: Path) -> None:
    """Write a path as a line on standard output: unchanged in a pipe, printable on a terminal."""
    on_terminal = sys.stdout is not None and sys.stdout.isatty()
    write_stdout(f"{printable(str(path)) if on_terminal else path}\n")


def stdout_error(error: OSError) -> OutputError:
    """The OutputError for a failed write to standard output.

    Also redirects its descriptor to the null device: Python flushes the rest of the buffer at exit,
    which would fail again.
    """
    with suppress(OSError, AttributeError):  # stdout in memory has no descriptor
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    return OutputError(f"standard output: cannot write: {error.strerror or error}")


def raw_stderr() -> TextIO:
    """The unsanitized stderr, for progress bars; all text shown in them must be `printable`."""
    raw: TextIO = getattr(sys.stderr, "raw", sys.stderr)
    return raw


def progress_bars(*columns: ProgressColumn, transient: bool = False) -> Progress:
    """Progress bars on stderr. Other output is not redirected through Rich, which would interpret
    escape sequences in it as colours and links."""
    from rich.console import Console  # slow to import
    from rich.progress import Progress

    console = Console(file=raw_stderr())
    return Progress(
        *columns,
        console=console,
        transient=transient,
        redirect_stdout=False,
        redirect_stderr=False,
    )
