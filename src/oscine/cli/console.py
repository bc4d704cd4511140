"""What every command tells: results on standard output, messages and bars on stderr."""

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

#: A mistake in the arguments, which Typer (with its own Click or the real one) finds itself.
ArgumentError: type[Any] = typer.BadParameter.__mro__[1]


def warn(message: str) -> None:
    """One line on stderr."""
    status(f"oscine: {message}")


def status(message: str) -> None:
    """The same without the program's name."""
    write_stderr(printable(message))


def write_stderr(lines: str) -> None:
    """Lines on stderr, above bars that stay below messages. Where nobody takes them the work goes
    on."""
    with suppress(OSError):
        if _below is None:
            print(lines, file=sys.stderr)
        else:
            _below.out("\n".join(map(printable, lines.split("\n"))), highlight=False)


_below: Console | None = None  # whose bars are below messages


@contextmanager
def print_above(console: Console) -> Iterator[None]:
    """Messages of any thread are put above the bars of a console meanwhile."""
    global _below
    _below = console
    try:
        yield
    finally:
        _below = None


class OutputError(OscineError):
    """Standard output is full or closed: nothing else would fare better."""


def write_stdout(text: str) -> None:
    """UTF-8 on standard output, whatever the terminal or locale claims to be.

    Raises BrokenPipeError where the reader has gone, OutputError where nothing more fits.
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
    """A path as a line on standard output: as it is for a program, printable on a terminal."""
    on_terminal = sys.stdout is not None and sys.stdout.isatty()
    write_stdout(f"{printable(str(path)) if on_terminal else path}\n")


def stdout_error(error: OSError) -> OutputError:
    """What is still inside does not go out either: Python would try that as it ends, and fail."""
    with suppress(OSError, AttributeError):  # there is no such thing where stdout is in memory
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    return OutputError(f"standard output: cannot write: {error.strerror or error}")


def raw_stderr() -> TextIO:
    """stderr for what commands a terminal on purpose; all that is shown there is `printable`."""
    raw: TextIO = getattr(sys.stderr, "raw", sys.stderr)
    return raw


def progress_bars(*columns: ProgressColumn, transient: bool = False) -> Progress:
    """Progress bars on stderr. What others print meanwhile does not pass through them: they would
    take escape sequences in it for colours and links."""
    from rich.console import Console  # costs start-up time
    from rich.progress import Progress

    console = Console(file=raw_stderr())
    return Progress(
        *columns,
        console=console,
        transient=transient,
        redirect_stdout=False,
        redirect_stderr=False,
    )
