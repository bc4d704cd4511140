"""What commands that load a model have in common: its name, device, precision and threads."""

from __future__ import annotations

import logging
import os
import warnings
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from oscine.cli.console import tell
from oscine.cli.parameters import declared
from oscine.errors import UsageError
from oscine.files import expanded
from oscine.options.command import Dtype, LoadOptions
from oscine.terminal import printable
from oscine.threads import count, set_count

if TYPE_CHECKING:
    from oscine.loading import Model
    from oscine.models.parakeet.pipeline import Parakeet
    from oscine.models.qwen3_tts.pipeline import Qwen3Tts
    from oscine.models.whisper.pipeline import Whisper

    Listener: TypeAlias = Whisper | Parakeet  # those that write down


#: Options of loading, for commands that state their parameters.
Device = Annotated[str, declared(LoadOptions, "device")]
Precision = Annotated[Dtype, declared(LoadOptions, "dtype")]
Threads = Annotated[int | None, declared(LoadOptions, "threads")]
Offline = Annotated[bool, declared(LoadOptions, "offline")]


def given(context: typer.Context) -> frozenset[str]:
    """Names of the parameters that the command line has, whatever their values."""
    return frozenset(
        name
        for name in context.params
        if getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"
    )


class OneLine(logging.Formatter):
    """A record's message as one line. Of a traceback, if there is one, each line stays a line."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        return printable(super().formatMessage(record))


class Once(logging.Filter):
    """What is odd about a recording is said once, also where it is read twice, as long ones are."""

    def __init__(self) -> None:
        super().__init__()
        self.said: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        again = record.name.startswith("oscine.audio") and message in self.said
        self.said.add(message)
        return not again


def start_log(verbose: bool) -> None:
    """What any library logs, on stderr; what drivers print there only where much is wanted.

    NumPy's warnings of overflow are not shown: an error of ours tells of it.
    """
    warnings.filterwarnings("ignore", ".* encountered in ", RuntimeWarning)
    if not verbose and not traces():
        from oscine.cli.noise import keep_drivers_quiet  # which imports what speaks to GPUs

        keep_drivers_quiet()
    handler = logging.StreamHandler()
    handler.setFormatter(OneLine("oscine: %(message)s"))
    handler.addFilter(Once())
    level = logging.INFO if verbose else logging.WARNING
    logging.basicConfig(level=level, handlers=[handler])


def set_threads(number: int | None) -> None:
    """--threads, or a look at whether OSCINE_THREADS is a number."""
    if number is None:
        count()
    else:
        set_count(number)


def check_device(device: str) -> None:
    """Refuse what is known to be no device without looking for any."""
    if device not in ("auto", "cpu") or "OSCINE_DEVICE" in os.environ:
        from oscine.loading import wanted_device  # slow to import

        wanted_device(device)


def prepare_decoder() -> None:
    """Start the process that decodes recordings, so that it is there once the model is."""
    from oscine.audio.decoder_pool import prepare  # slow to import

    prepare()


def load_model(name: str, device: str, dtype: str, *, offline: bool) -> Model:
    """Load by name or path, showing what is fetched.

    Imports here, as a wrong option should not wait for them.
    """
    import oscine
    from oscine import hub

    if (
        not os.path.exists(expanded(name))
        and hub.find(name) is None
        and not hub.is_offline(offline)
    ):
        from oscine.cli.download_bars import download_bars  # slow to import

        with download_bars() as report:
            hub.resolve(name, progress=report)
    return oscine.load(name, device=device, dtype=dtype, offline=offline)


def traces() -> bool:
    """Whether OSCINE_TRACE is set."""
    return os.environ.get("OSCINE_TRACE", "0") not in ("", "0")


def tell_times(model: Model) -> None:
    """OSCINE_TRACE: milliseconds by stage since loading; on a GPU also those it measures itself."""
    if not traces():
        return
    for stage, spent in model.decoder.timings.items():
        tell(f"{stage}: {spent:.1f} ms")
    for stage, (passes, spent) in model.decoder.trace().items():
        tell(f"{stage} on the GPU: {spent:.1f} ms in {passes} passes")


def refuse_speaker(name: str) -> UsageError:
    """For a command that writes down."""
    return UsageError(f"{name} speaks and does not write down; oscine speak is its command")


def check_speaks(name: str) -> None:
    """Refuse a name that is no model's, or one's that only writes down, before it is fetched.

    Raises UsageError, HubError.
    """
    from oscine import hub

    own = hub.known(name)
    if own is not None and own not in hub.QWEN3_TTS:
        raise refuse_listener(name)
    hub.named(name, hub.QWEN3_TTS)


def refuse_listener(name: str) -> UsageError:
    """For a command that speaks."""
    return UsageError(f"{name} writes down and does not speak; oscine transcribe is its command")


def load_speaker(name: str, device: str, dtype: str, *, offline: bool) -> Qwen3Tts:
    """A model that speaks; UsageError for one that writes down, before it is fetched if known."""
    if not os.path.exists(expanded(name)):
        check_speaks(name)
    loaded: Any = load_model(name, device, dtype, offline=offline)
    if not hasattr(loaded, "speak"):
        raise refuse_listener(name)
    speaker: Qwen3Tts = loaded
    return speaker
