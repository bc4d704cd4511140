"""Shared by commands that load a model: logging, device, precision, threads, loading."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Mapping
from contextlib import nullcontext, redirect_stdout
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from oscine import registry
from oscine.budget import MemoryLimit
from oscine.cli.console import warn, write_stderr
from oscine.cli.option_names import use_flags
from oscine.cli.parameters import declare_option
from oscine.errors import UsageError
from oscine.family import Task
from oscine.files import expand_user
from oscine.options.command import Dtype, LoadOptions
from oscine.terminal import printable
from oscine.threads import count, set_count

if TYPE_CHECKING:
    from oscine.models.base_model import Model
    from oscine.models.transcription import Transcriber

    AnyTranscriber: TypeAlias = Transcriber[Any]


#: Options for loading a model, for commands that declare their parameters themselves.
Device = Annotated[str, declare_option(LoadOptions, "device")]
Precision = Annotated[Dtype, declare_option(LoadOptions, "dtype")]
Threads = Annotated[int | None, declare_option(LoadOptions, "threads")]
Offline = Annotated[bool, declare_option(LoadOptions, "offline")]
Memory = Annotated[str | None, declare_option(LoadOptions, "memory")]


def explicit_options(context: typer.Context) -> frozenset[str]:
    """Names of the parameters that were given on the command line, whatever their values."""
    return frozenset(
        name
        for name in context.params
        if getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"
    )


class OneLineFormatter(logging.Formatter):
    """Formats a record's message as one line with flags as options; keeps a traceback's lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        return printable(use_flags(super().formatMessage(record)))


class StderrHandler(logging.Handler):
    """Logging handler that prints records as messages of the command."""

    def emit(self, record: logging.LogRecord) -> None:
        write_stderr(self.format(record))


def set_up_logging(verbose: bool) -> None:
    """Log to stderr, and hide the output of GPU drivers unless `verbose`.

    NumPy's overflow warnings are hidden: NonFiniteError reports their consequences.
    """
    warnings.filterwarnings("ignore", ".* encountered in ", RuntimeWarning)
    if not verbose and not is_tracing():
        from oscine.cli.driver_output import silence_drivers  # imports oscine.gpu

        silence_drivers()
    log_to_stderr(logging.INFO if verbose else logging.WARNING)


def log_to_stderr(level: int = logging.WARNING) -> None:
    """Log to stderr, and send there what plug-in packages print, since stdout is for results.

    For a command that opens no GPU.
    """
    registry.plugin_context = lambda: redirect_stdout(sys.stderr)
    handler = StderrHandler()
    handler.setFormatter(OneLineFormatter("oscine: %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])


def restore_package_output() -> None:
    """Undo the redirection of `log_to_stderr`: as a library, oscine leaves its process's streams
    alone."""
    registry.plugin_context = nullcontext


def set_threads(number: int | None) -> None:
    """Apply --threads, or check OSCINE_THREADS. Raises UsageError for an invalid number."""
    if number is None:
        count()
    else:
        set_count(number)


def check_device(device: str, memory: str | None = None) -> None:
    """Raise UsageError for an invalid device name or memory size, without looking for devices."""
    if memory is not None:
        MemoryLimit.of(memory)
    if device not in ("auto", "cpu") or {"OSCINE_DEVICE", "OSCINE_WEBGPU"} & os.environ.keys():
        from oscine.backends import parse_device  # slow to import

        parse_device(device)


def start_decoder() -> None:
    """Start the process that decodes recordings, so that it is ready when the model is loaded."""
    from oscine.audio.decoder_pool import prepare  # slow to import

    prepare()
    import_module("oscine.loading")  # meanwhile: the imports for a model take as long


def load_model(name: str, how: LoadOptions) -> Model[Any]:
    """Load a model by name or path, with progress bars for downloads; `how.model` is ignored.

    Imports are local, so that a wrong option is reported without waiting for them.
    """
    import oscine
    from oscine import hub

    if (
        not os.path.exists(expand_user(name))
        and hub.find_local(name) is None
        and not hub.is_offline(how.offline)
    ):
        from oscine.cli.download_bars import download_bars  # slow to import

        with download_bars() as report:
            hub.resolve(name, progress=report)
    return oscine.load(
        name,
        device=how.device,
        dtype=how.dtype,
        offline=how.offline,
        deterministic=how.deterministic,
        memory=how.memory,
    )


def is_tracing() -> bool:
    """Whether OSCINE_TRACE is set."""
    return os.environ.get("OSCINE_TRACE", "0") not in ("", "0")


def print_timings(model: Model[Any]) -> None:
    """Print milliseconds by stage since loading if OSCINE_TRACE is set; on a GPU also the times
    that the device measured."""
    if not is_tracing():
        return
    for stage, spent in model.timings.items():
        warn(f"{stage}: {spent:.1f} ms")
    for stage, (passes, spent) in model.trace().items():
        warn(f"{stage} on the GPU: {spent:.1f} ms in {passes} passes")


#: What a model of each task does, and what one of the other task does not.
DOES: Mapping[Task, str] = {"transcribe": "writes down", "speak": "speaks"}
LACKS: Mapping[Task, str] = {"transcribe": "does not write down", "speak": "does not speak"}


def wrong_task_error(name: str, task: Task) -> UsageError:
    """The error for a model of the other task than the one a command needs."""
    own = other(task)
    return UsageError(f"{name} {DOES[own]} and {LACKS[task]}; oscine {own} is its command")


def other(task: Task) -> Task:
    """The task of the models that do not do this one."""
    return "speak" if task == "transcribe" else "transcribe"


def require_task(name: str, task: Task) -> None:
    """Check, before anything is downloaded, that a name is that of a model of the task.

    Raises UsageError for an unknown name or a model of the other task, HubError for a missing path.
    """
    from oscine import hub

    found = registry.find_model(name)
    if found is not None and found[0].task != task:
        raise wrong_task_error(name, task)
    hub.lookup(name, "speak" if task == "speak" else None)  # few models speak: suggest only those


def load_for_task(task: Task, name: str, how: LoadOptions) -> Any:
    """Load a model of a task. Raises UsageError for a model of the other task, before it is
    downloaded if its name is known."""
    if not os.path.exists(expand_user(name)):
        require_task(name, task)
    loaded = load_model(name, how)
    if hasattr(loaded, "speak") != (task == "speak"):
        raise wrong_task_error(name, task)
    return loaded
