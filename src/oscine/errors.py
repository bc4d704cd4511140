"""Every error oscine raises on purpose; a message is one line: problem, file and remedy.

    OscineError
    ├── UsageError (ValueError)          an option or argument is wrong; exit code 2
    │   ├── OtherModelError (AttributeError)   the method belongs to models of another task
    │   ├── UnknownArgumentError (TypeError)   the call has no such argument
    │   └── PackageError                 a required package is not installed
    ├── AudioError                       a recording cannot be read or used
    ├── CheckpointError                  weights, configuration or tokenizer are invalid
    ├── HubError                         a model is not on this machine and cannot be downloaded
    ├── DeviceError                      no such adapter, or the adapter failed its check
    │   ├── DeviceLostError              the driver has reset or removed the device
    │   └── DeviceMemoryError            out of memory on the device
    │       └── MemoryBudgetError        more than the budget that `memory` sets
    ├── BusyError                        too many calls are waiting for the device
    ├── DeadlineError                    the deadline of a call has passed
    ├── NonFiniteError                   NaN or infinity in samples or logits
    └── Cancelled                        the caller has asked to stop

All but UsageError end a command with exit code 1. A message that several places raise is made here,
in the class, so that its wording is the same.

A message names an option as Python does, such as device="cpu"; the command line replaces that by
the flag (oscine/cli/option_names.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oscine.types import Transcript


MAX_PROBLEM_CHARS = 1000  # characters of a problem in a message


class OscineError(Exception):
    """The base class: catch it to catch every error that oscine raises on purpose."""

    exit_code = 1

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore_error, (type(self), self.args, self.__dict__)


def _restore_error(
    kind: type[OscineError], args: tuple[Any, ...], state: dict[str, Any]
) -> OscineError:
    """An error as it was, without its __init__: a message is made of other arguments than it has.

    A pool of processes waits for ever where an error cannot be read back.
    """
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class UsageError(OscineError, ValueError):
    """An invalid option, argument or combination of them."""

    exit_code = 2


class OtherModelError(UsageError, AttributeError):
    """A method of models of another task; an AttributeError, so that hasattr returns False."""


class UnknownArgumentError(UsageError, TypeError):
    """A call has no argument of this name; a TypeError, as Python raises for other functions."""


class PackageError(UsageError):
    """A package that only this call needs cannot be imported."""


@contextmanager
def needed(package: str, purpose: str, otherwise: str = "") -> Iterator[None]:
    """Context for imports from an optional `package`.

    Raises PackageError, which names the `purpose` and, as an alternative, `otherwise`.
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
    def too_long(cls, source: object, max_seconds: float) -> AudioError:
        """A recording longer than the caller allows."""
        problem = f"is longer than the {max_seconds:g} s of max_audio_seconds"
        return cls(source, problem, "cut it, or raise max_audio_seconds")


class CheckpointError(OscineError):
    """Weights, configuration or tokenizer files that are damaged, incomplete or contradictory."""

    def __init__(self, path: Path | str, problem: str, remedy: str = "") -> None:
        # A problem quotes names and numbers of the file, which may be of any length.
        if len(problem) > MAX_PROBLEM_CHARS:
            problem = f"{problem[: MAX_PROBLEM_CHARS - 20]} ... {problem[-15:]}"
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
    """A model that is not on this machine and cannot be downloaded."""


class DeviceError(OscineError):
    """No usable adapter, or an adapter that fails its check against NumPy."""


class DeviceLostError(DeviceError):
    """The driver has reset or removed the device: a watchdog, an unplugged card, a fault.

    Every buffer and plan on it is lost; a device has to be opened again.
    """

    def __init__(self, device: str, reason: str) -> None:
        super().__init__(
            f"{device}: the device was lost ({reason}); "
            'if that happens again, update its driver or use device="cpu"'
        )


class DeviceMemoryError(DeviceError):
    """A buffer does not fit into the memory of a device, or into one of its bindings.

    The device stays usable: a smaller buffer may fit.
    """

    def __init__(self, device: str, problem: str) -> None:
        super().__init__(f'{device}: {problem}; use a smaller batch or model, or device="cpu"')


class MemoryBudgetError(DeviceMemoryError):
    """More memory than the budget of a model allows, which `memory` sets.

    `needed`: the bytes held and asked for when the budget was exceeded; a request may need more.
    """

    def __init__(self, device: str, needed: int, needed_text: str, limit_text: str) -> None:
        OscineError.__init__(
            self,
            f"{device}: at least {needed_text} of memory are needed, and the budget is "
            f'{limit_text}; use a larger memory=, a smaller model or, on a GPU, dtype="f16"',
        )
        self.needed = needed


class BusyError(OscineError):
    """The queue of the device is full; `waiting` is the number of sequences in it."""

    def __init__(self, waiting: int) -> None:
        super().__init__(f"{waiting} sequences wait for the device already; try again later")
        self.waiting = waiting


class DeadlineError(OscineError):
    """The deadline that the caller has set passed before the result was ready."""

    def __init__(self) -> None:
        super().__init__("the deadline passed before the work was done")


#: The names of the CPU's backends, which other devices are not called.
CPU_BACKENDS = ("NumPy", "Numba")


class NonFiniteError(OscineError):
    """NaN or infinity in audio samples or logits; never turned into text."""

    @classmethod
    def of_network(cls, what: str, device: str) -> NonFiniteError:
        """The error for `what` a network has computed on a device, by the name of its backend."""
        weights = "the weights are damaged or not those of this model: fetch them again"
        if device not in CPU_BACKENDS:
            weights = f'try device="cpu", or dtype="f32"; if that fails too, {weights}'
        return cls(f"non-finite {what} on {device}; {weights}")


class Cancelled(OscineError):  # noqa: N818  # not a failure
    """The caller has stopped the call; `partial` is the transcript so far, or None."""

    partial: Transcript | None = None
