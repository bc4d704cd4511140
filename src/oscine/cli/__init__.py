"""The `oscine` command: one module a subcommand, each with an `app`, imported when it is called."""

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
from typer.core import TyperGroup

import oscine
from oscine.cli.console import ArgumentError, stdout_error, warn, write_stdout
from oscine.cli.openai_style import NARROW
from oscine.errors import OscineError
from oscine.terminal import SanitizedStream

INTERRUPTED = 130

COMMANDS = ("transcribe", "speak", "voices", "models", "doctor")


class LazyGroup(TyperGroup):
    """Subcommands by module name, so that one is not slowed down by what another imports."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Those whose module is there."""
        return [name for name in COMMANDS if find_spec(f"oscine.cli.{name}") is not None]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import and build one."""
        if cmd_name not in self.list_commands(ctx):
            return None
        return typer.main.get_command(import_module(f"oscine.cli.{cmd_name}").app)


app = typer.Typer(
    cls=LazyGroup,
    name="oscine",
    help="Speech to text and text to speech on any GPU through WebGPU, and in NumPy without one.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        write_stdout(f"oscine {oscine.__version__}\n")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print and exit."),
    ] = False,
) -> None:
    """Options that stand before the subcommand."""


@contextmanager
def sanitized_stderr() -> Iterator[None]:
    """Nothing that is printed meanwhile, by whatever library, commands a terminal.

    Messages go nowhere where stderr is closed, as by `2>&-`; else print chooses stdout.
    """
    with ExitStack() as stack:
        stream = sys.stderr
        if stream is None:
            stream = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
        if not isinstance(stream, SanitizedStream):
            stack.enter_context(redirect_stderr(SanitizedStream(stream)))
        yield


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; -> exit code: 0, 1 failed, 2 wrongly called, 130 interrupted.

    A user's mistake is one line on stderr, never a traceback.
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
    """`run` where there is a stderr."""
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
    except BrokenPipeError as error:  # the reader of our output has gone, as `head` does
        stdout_error(error)
        return 1
    except OSError as error:
        if error.filename is not None:
            raise
        warn(str(stdout_error(error)))  # only Typer's help is not written by `write_stdout`
        return 1
    if code == INTERRUPTED:  # newer Typers turn the interrupt into this code themselves
        warn("interrupted")
    return code if isinstance(code, int) else 0


def help_width() -> int | None:
    """The width of help on a terminal so narrow that Click would write wider lines than it has."""
    columns = get_terminal_size().columns
    return max(columns - 1, 20) if columns < NARROW else None


def reserve_std_fds() -> None:
    """Give closed standard streams' numbers to the null device.

    Else a file that is opened gets one, and what native libraries tell on stderr goes into it.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)


def main() -> None:
    """The entry point of the installed command.

    What ends a program kindly is taken as Ctrl-C is, so that what is done is kept; the exit code is
    then 128 and the signal's number, as of a program that the signal ended.
    """
    reserve_std_fds()
    if sys.stderr is not None:  # for good: a traceback of our own mistake is printed at the end
        sys.stderr = SanitizedStream(sys.stderr)
        os.environ["PYTHON_COLORS"] = "0"  # or it would come in colours, which are escapes
    ended = 0

    def end(number: int, _: object) -> None:
        nonlocal ended
        ended = number
        raise KeyboardInterrupt

    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # there is no SIGHUP on Windows
        if number is not None and signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
            signal.signal(number, end)
    try:
        code = run()
    except KeyboardInterrupt:  # a second one
        code = INTERRUPTED
    sys.exit(128 + ended if ended else code)
