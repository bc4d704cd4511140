"""The `oscine` command: one module a subcommand, each with an `app`, imported when it is called."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated, Any

import oscine
from oscine.errors import OscineError

INTERRUPTED = 130

try:
    import typer
    from typer.core import TyperGroup
except KeyboardInterrupt:  # these take a while; a traceback would be no answer to Ctrl-C
    sys.exit(INTERRUPTED)

COMMANDS = ("transcribe", "speak", "voices", "models", "doctor")

#: A mistake in the arguments, which Typer (with its own Click or the real one) finds itself.
ArgumentError: type[Any] = typer.BadParameter.__mro__[1]


class Commands(TyperGroup):
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
    cls=Commands,
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
        print(f"oscine {oscine.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print and exit."),
    ] = False,
) -> None:
    """Options that stand before the subcommand."""


def printable(message: str) -> str:
    """One line, whatever is in it: file names may be no text, or hold line breaks."""
    line = message.replace("\r", "\\r").replace("\n", "\\n")
    return line.encode("utf-8", "backslashreplace").decode()


def tell(message: str) -> None:
    """One line on stderr."""
    print("oscine:", printable(message), file=sys.stderr)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; -> exit code: 0, 1 failed, 2 wrongly called, 130 interrupted.

    A user's mistake is one line on stderr, never a traceback.
    """
    try:
        code = typer.main.get_command(app).main(
            args=None if arguments is None else list(arguments),
            prog_name="oscine",
            standalone_mode=False,
        )
    except OscineError as error:
        tell(str(error))
        return error.exit_code
    except ArgumentError as error:
        message: str = error.format_message().replace("Value error, ", "")  # pydantic's, in Typer
        # A command line without arguments is answered with the help, which begins with its usage.
        if message.startswith("Usage:"):
            print(message, file=sys.stderr)
        else:
            tell(message)
        return 2
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except MemoryError:
        tell("there is not enough memory; use a smaller model, or less --batch-size or --best-of")
        return 1
    except BrokenPipeError:  # the reader of our output has gone, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    if code == INTERRUPTED:  # newer Typers turn the interrupt into this code themselves
        tell("interrupted")
    return code if isinstance(code, int) else 0


def main() -> None:
    """The entry point of the installed command.

    What ends a program kindly is taken as Ctrl-C is, so that what is done is kept; the exit code is
    then 128 and the signal's number, as of a program that the signal ended.
    """
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
