"""The `oscine` command. Each subcommand is a module with an `app`, imported when it is called."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, suppress
from importlib import import_module
from importlib.util import find_spec
from shutil import get_terminal_size
from typing import Annotated, Any

import typer

import oscine
from oscine.cli.console import ArgumentError, stdout_error, warn, write_stdout
from oscine.cli.openai_style import MIN_COLUMNS, CommandGroup
from oscine.errors import OscineError
from oscine.terminal import SanitizedStream

INTERRUPTED = 130

COMMANDS = ("transcribe", "speak", "serve", "mcp", "voices", "models", "doctor", "bench")


class LazyGroup(CommandGroup):
    """Subcommands loaded lazily by module name, so that none waits for the imports of another."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of the subcommands whose modules are installed."""
        return [name for name in COMMANDS if find_spec(f"oscine.cli.{name}") is not None]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import a subcommand and build its command; None if there is no such subcommand."""
        if cmd_name not in self.list_commands(ctx):
            return None
        return typer.main.get_command(import_module(f"oscine.cli.{cmd_name}").app)


app = typer.Typer(
    cls=LazyGroup,
    name="oscine",
    help="Speech to text and text to speech, on any GPU through WebGPU or on the CPU with NumPy.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(value: bool) -> None:
    if value:
        write_stdout(f"oscine {oscine.__version__}\n")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Options before the subcommand."""


@contextmanager
def sanitized_stderr() -> Iterator[None]:
    """Context in which text printed to stderr by any library cannot control the terminal.

    If stderr is closed, as by `2>&-`, messages are discarded; print would otherwise use stdout.
    """
    with ExitStack() as stack:
        stream = sys.stderr
        if stream is None:
            stream = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
        if not isinstance(stream, SanitizedStream):
            stack.enter_context(redirect_stderr(SanitizedStream(stream)))
        yield


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code: 0, 1 failed, 2 usage error, 130 interrupted.

    A user's mistake is reported in one line on stderr, never with a traceback.
    """
    with sanitized_stderr():
        try:
            return run_command(arguments)
        finally:
            if (driver_output := sys.modules.get("oscine.cli.driver_output")) is not None:
                driver_output.stop_silencing_drivers()
            if (common := sys.modules.get("oscine.cli.common")) is not None:
                common.restore_package_output()


def run_command(arguments: Sequence[str] | None) -> int:
    """Run a command line, as `run` does, once stderr is sanitized; returns the exit code."""
    try:
        code = typer.main.get_command(app).main(
            args=None if arguments is None else list(arguments),
            prog_name="oscine",
            standalone_mode=False,
            terminal_width=help_width(),
        )
    except OscineError as error:
        warn(str(error))
        return error.exit_code
    except ArgumentError as error:
        message: str = error.format_message().replace("Value error, ", "")  # pydantic's, in Typer
        # A command line without arguments is answered with the help, which begins with its usage.
        if message.startswith("Usage:"):
            with suppress(OSError):
                print(message, file=sys.stderr)
        else:
            warn(message)
        return 2
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except MemoryError:
        warn("there is not enough memory; use a smaller model, or less --batch-size or --best-of")
        return 1
    except BrokenPipeError as error:  # the reader of stdout has exited, as `head` does
        stdout_error(error)
        return 1
    except OSError as error:
        if error.filename is not None:
            raise
        warn(str(stdout_error(error)))  # only Typer's help is not written by `write_stdout`
        return 1
    if code == INTERRUPTED:  # newer versions of Typer return this code for an interrupt
        warn("interrupted")
    return code if isinstance(code, int) else 0


def help_width() -> int | None:
    """Width of the help text on a terminal narrower than Click's minimum width; else None."""
    columns = get_terminal_size().columns
    return max(columns - 1, 20) if columns < MIN_COLUMNS else None


def reserve_std_fds() -> None:
    """Open the null device under the file descriptors 0 to 2 that are closed.

    Otherwise the next file to be opened gets such a descriptor, and native libraries that print to
    stderr would write into it.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)


def main() -> None:
    """Entry point of the installed command.

    SIGTERM and SIGHUP are handled as Ctrl-C is, so that finished results are kept; the exit code is
    then 128 plus the signal's number, as for a program that the signal terminated.
    """
    reserve_std_fds()
    if sys.stderr is not None:  # permanently: a traceback of a bug is printed after `run`
        sys.stderr = SanitizedStream(sys.stderr)
        os.environ["PYTHON_COLORS"] = "0"  # colours are escape sequences
    ended = 0

    def end(number: int, _: object) -> None:
        nonlocal ended
        ended = number
        raise KeyboardInterrupt

    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
            signal.signal(number, end)
    try:
        code = run()
    except KeyboardInterrupt:  # a second Ctrl-C
        code = INTERRUPTED
    sys.exit(128 + ended if ended else code)
