"""Every error oscine raises on purpose; each message is one line: what, which file, and the remedy.

    OscineError
    ├── UsageError (ValueError)          an option or argument is wrong             exit code 2
    │   ├── OtherModelError (AttributeError)   asked of a model what others do
    │   └── PackageError                 a package that this needs is not installed
    ├── AudioError                       a recording cannot be read or used
    ├── CheckpointError                  weights, config or tokenizer are not what they should be
    ├── HubError                         a model is not here and cannot be fetched
    ├── DeviceError                      no such adapter, or the adapter failed its check
    │   ├── DeviceLostError              the driver took the device away: nothing on it is left
    │   └── DeviceMemoryError            no room: something smaller may fit
    │       └── MemoryBudgetError        no room within the budget that `memory` sets
    ├── BusyError                        too much waits for the device already
    ├── DeadlineError                    it was not done by the time that its caller gave
    ├── NonFiniteError                   NaN or infinity where numbers should be
    └── Cancelled                        the caller asked to stop

All but UsageError end a command with exit code 1. The messages are made here, in the class, where
more than one place raises the same kind, so that they read alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oscine.types import Transcript


MAX_PROBLEM = 1000  # characters of what a message says of a file


class OscineError(Exception):
    """Root of the tree: catch this to catch everything oscine raises on purpose."""

    exit_code = 1

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.args, self.__dict__)


def _restored(kind: type[OscineError], args: tuple[Any, ...], state: dict[str, Any]) -> OscineError:
    """An error as it was, without its __init__: a message is made of other arguments than it has.

    A pool of processes waits for ever where an error cannot be read back.
    """
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class UsageError(OscineError, ValueError):
    """An option, argument or combination of them that cannot be carried out."""

    exit_code = 2


class OtherModelError(UsageError, AttributeError):
    """A method that only models of another family have, so that hasattr says no."""


class PackageError(UsageError):
    """A package that this work needs, and other work does not, cannot be imported."""


@contextmanager
def needed(package: str, purpose: str, otherwise: str = "") -> Iterator[None]:
    """Imports within that may fail, as `package` may not be there.

    Raises PackageError, whose line says what needs it, and `otherwise` what does without.
    """
    try:
        yield
    except ImportError as error:
        missing = isinstance(error, ModuleNotFoundError)
        state = "is not installed here" if missing else f"cannot be loaded ({error})"
        remedy = f"pip install {package}" + (f", or {otherwise}" if otherwise else "")
        raise PackageError(
            f"{purpose} needs the package {package}, which {state}; {remedy}"
        ) from None


class AudioError(OscineError):
    """A recording that cannot be opened, decoded or used."""

    def __init__(self, source: object, problem: str, remedy: str = "") -> None:
        super().__init__(f"{source}: {problem}" + (f"; {remedy}" if remedy else ""))
        self.source, self.problem, self.remedy = source, problem, remedy

    @classmethod
    def too_long(cls, source: object, most_seconds: float) -> AudioError:
        """A recording longer than the caller allows."""
        problem = f"is longer than the {most_seconds:g} s of max_audio_seconds"
        return cls(source, problem, "cut it, or raise --max-audio-seconds")


class CheckpointError(OscineError):
    """Weights, configuration or tokenizer files that are damaged, incomplete or contradictory."""

    def __init__(self, path: Path | str, problem: str, remedy: str = "") -> None:
        # A problem quotes names and numbers of the file, which may be of any length.
        if len(problem) > MAX_PROBLEM:
            problem = f"{problem[: MAX_PROBLEM - 20]} ... {problem[-15:]}"
        super().__init__(f"{path}: {problem}" + (f"; {remedy}" if remedy else ""))
        self.path, self.problem, self.remedy = path, problem, remedy

    @classmethod
    def tensors(
        cls,
        path: Path | str,
        *,
        missing: Iterable[str] = (),
        extra: Iterable[str] = (),
        misshapen: Iterable[str] = (),
        not_floating: Iterable[str] = (),
    ) -> CheckpointError:
        """Name the tensors that do not fit; at most five of each kind, then a count."""

        def listed(names: list[str]) -> str:
            more = f" and {len(names) - 5} more" if len(names) > 5 else ""
            return ", ".join(names[:5]) + more

        parts = [
            f"{kind} {listed(names)}"
            for kind, names in (
                ("missing", sorted(missing)),
                ("unexpected", sorted(extra)),
                ("wrong shape", sorted(misshapen)),
                ("not floating point", sorted(not_floating)),
            )
            if names
        ]
        return cls(path, "tensors do not fit the configuration: " + "; ".join(parts))


class HubError(OscineError):
    """A model that is not on this machine and cannot be fetched."""


class DeviceError(OscineError):
    """No usable adapter, or an adapter that fails its check against NumPy."""


class DeviceLostError(DeviceError):
    """The driver took the device away: reset by a watchdog, unplugged, or broken down.

    Every buffer and plan of it is gone; only opening a device anew goes on.
    """

    def __init__(self, device: str, reason: str) -> None:
        super().__init__(
            f"{device}: the device was lost ({reason}); "
            "if that happens again, update its driver or use --device cpu"
        )


class DeviceMemoryError(DeviceError):
    """A device without room for a buffer, or whose bindings are too small for it.

    The device goes on: something smaller may fit.
    """

    def __init__(self, device: str, problem: str) -> None:
        super().__init__(f"{device}: {problem}; use a smaller batch or model, or --device cpu")


class MemoryBudgetError(DeviceMemoryError):
    """More memory than the budget of a model allows, which `memory` or `--memory` sets.

    `needed`: bytes that the budget would have to be at least.
    """

    def __init__(self, device: str, needed: int, needed_text: str, limit_text: str) -> None:
        OscineError.__init__(
            self,
            f"{device}: at least {needed_text} of memory are needed, and the budget is "
            f"{limit_text}; use a larger --memory, a smaller model or, on a GPU, --dtype f16",
        )
        self.needed = needed


class BusyError(OscineError):
    """The device's queue is full; `waiting` sequences are in it."""

    def __init__(self, waiting: int) -> None:
        super().__init__(f"{waiting} sequences wait for the device already; try again later")
        self.waiting = waiting


class DeadlineError(OscineError):
    """The work was not done by the deadline that its caller gave it."""

    def __init__(self) -> None:
        super().__init__("the deadline passed before the work was done")


class NonFiniteError(OscineError):
    """NaN or infinity in audio samples or logits; never turned into text."""

    @classmethod
    def of_network(cls, what: str, device: str) -> NonFiniteError:
        """The error for `what` a network has computed on a device, "NumPy" or a GPU's name."""
        weights = "the weights are damaged or not those of this model: fetch them again"
        if device != "NumPy":
            weights = f"try --device cpu, or --dtype f32; if that fails too, {weights}"
        return cls(f"non-finite {what} on {device}; {weights}")


class Cancelled(OscineError):  # noqa: N818  # a wish that was met
    """The caller stopped the work; `partial` is what was finished before, if there is any."""

    partial: Transcript | None = None
