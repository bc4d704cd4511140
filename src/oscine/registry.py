"""The families of models: the built-in ones, and those of other packages and programs.

A package adds one by an entry point of the group `oscine.families`, whose value names a
`oscine.family.Family`; a program by `register`. The built-in families come first: a name that
two families claim stays with the first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any

from oscine.errors import CheckpointError, OscineError, PackageError, UsageError
from oscine.family import TASKS, Family, Network, Release, Task, VoiceSupport
from oscine.module_path import without_current_folder

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from oscine.weights import Checkpoint

log = logging.getLogger(__name__)

#: Folders that export FAMILY, in the order in which their models are listed.
BUILT_IN = ("oscine.models.whisper", "oscine.models.parakeet", "oscine.models.qwen3_tts")
ENTRY_POINT_GROUP = "oscine.families"
MAX_REASON_CHARS = 300  # of another project's error that a message quotes

#: Context in which code of other packages runs. Commands redirect its output to stderr.
plugin_context: Callable[[], AbstractContextManager[Any]] = nullcontext

_lock = RLock()
_registered: list[Family] = []
_installed: list[Family] | None = None


@cache
def built_in() -> tuple[Family, ...]:
    """The families that come with oscine."""
    return tuple(import_module(folder).FAMILY for folder in BUILT_IN)


def installed() -> tuple[Family, ...]:
    """The families of other packages. One that cannot be used is left out with a warning."""
    global _installed
    with _lock:
        if _installed is None:
            _installed = []  # first, since a package may call this while it is imported
            try:
                for point in _entry_points():
                    if (family := _load_entry_point(point)) is not None:
                        _installed.append(family)
            except BaseException:  # such as Ctrl-C: the next call tries again
                _installed = None
                raise
        return tuple(_installed)


def _entry_points() -> list[EntryPoint]:
    """The entry points of the group, in order of their names, from the first package of each name.

    The current folder, which is not trusted, is not searched.
    """
    from importlib.metadata import distributions  # slow: reads all packages

    points: list[EntryPoint] = []
    seen: set[str] = set()
    for package in distributions(path=without_current_folder()):
        try:
            found = package.entry_points.select(group=ENTRY_POINT_GROUP)
            if found and package.metadata["Name"] not in seen:
                points += found
                seen.add(package.metadata["Name"])
        except Exception as error:  # files of another project
            log.warning("a package cannot be looked at for families (%s)", _error_text(error))
    return sorted(points, key=lambda point: (point.name, point.value))


def _load_entry_point(point: EntryPoint) -> Family | None:
    """The record that an entry point names; None, with a warning, if it cannot be used."""
    try:
        with plugin_context():
            family = point.load()
    except (Exception, SystemExit) as error:  # code of another project, which may fail in any way
        log.warning(
            "%s is left out: it cannot be loaded (%s)",
            _entry_point_origin(point),
            _error_text(error),
        )
        return None
    if not isinstance(family, Family):
        what = f"{point.value} is of type {type(family).__name__}, not oscine.family.Family"
        log.warning("%s is left out: %s", _entry_point_origin(point), what)
        return None
    if family in _registered:  # by the package itself, while it was imported
        return None
    added, problem = _without_conflicts(family, (*built_in(), *_registered, *(_installed or ())))
    if problem:
        log.warning("%s: %s", _entry_point_origin(point), problem)
    return added


def _entry_point_origin(point: EntryPoint) -> str:
    package = None if point.dist is None else point.dist.metadata["Name"]
    return f"family {point.name!r} of package {package or '(unknown)'}"


def _error_text(error: BaseException) -> str:
    """An error of another project's code as text without line breaks."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:MAX_REASON_CHARS]


def _without_conflicts(family: Family, others: tuple[Family, ...]) -> tuple[Family | None, str]:
    """A family without the names that are taken, and a message about them; None if its own is."""
    if any(family.name == other.name for other in others):
        return None, f"there is a family {family.name!r} already; this one is left out"
    # These are names of folders, which are case-insensitive on some systems.
    taken = {name.casefold() for other in others for name in (*other.models, *other.aliases)}
    lost = sorted(name for name in (*family.models, *family.aliases) if name.casefold() in taken)
    if not lost:
        return family, ""
    models = {name: model for name, model in family.models.items() if name not in lost}
    aliases = {
        alias: name
        for alias, name in family.aliases.items()
        if alias not in lost and name in models
    }
    default, cloner = (
        name if name in models else None for name in (family.default, family.default_cloner)
    )
    kept = replace(family, models=models, aliases=aliases, default=default, default_cloner=cloner)
    return kept, f"another family has the name {', '.join(map(repr, lost))} and keeps it"


def register(family: Family) -> None:
    """Add a family for this process; adding it again does nothing.

    Raises UsageError for a value that is not a Family, and if its name or the name of one of its
    models is taken.
    """
    if not isinstance(family, Family):
        raise UsageError(f"a family is an oscine.family.Family, not {type(family).__name__}")
    with _lock:
        if family in _registered:
            return
        _, problem = _without_conflicts(family, families())
        if problem:
            raise UsageError(f"family {family.name!r} cannot be registered: {problem}")
        _registered.append(family)


def registered() -> tuple[Family, ...]:
    """The families registered in this process, for worker processes."""
    return tuple(_registered)


def families(task: Task | None = None) -> tuple[Family, ...]:
    """All families, built-in, installed and registered, or those of one task."""
    every = (*built_in(), *installed(), *_registered)
    return tuple(family for family in every if task in (None, family.task))


def models(task: Task | None = None) -> dict[str, Release]:
    """Name -> release of the models known by name, of all families or those of one task."""
    return {name: model for family in families(task) for name, model in family.models.items()}


def aliases() -> dict[str, str]:
    """Other names of models -> their names."""
    return {alias: name for family in families() for alias, name in family.aliases.items()}


def find_model(name: str) -> tuple[Family, str] | None:
    """The family and the name of a model, given its name, an alias or its repository; else None.

    Other packages are searched only if no built-in family has the name.
    """
    return _find(name, built_in()) or _find(name, families())


def _find(name: str, among: tuple[Family, ...]) -> tuple[Family, str] | None:
    for family in among:
        name_here = family.aliases.get(name, name)
        for own, model in family.models.items():
            if name_here in (own, model.repository):
                return family, own
    return None


def default_model(task: Task) -> str:
    """The default model of a task.

    Raises UsageError if no family has one; the built-in tasks do.
    """
    for among in (built_in, families):  # the second reads all packages
        for family in among():
            if family.task == task and family.default is not None:
                return family.default
    raise UsageError(f"no model is known for {TASKS[task]}; name one")


def default_cloning_model() -> str:
    """The default model for voice cloning, of a built-in family."""
    return next(family.default_cloner for family in built_in() if family.default_cloner)


def default_models() -> tuple[str, ...]:
    """The default models, one for each task."""
    return tuple(default_model(task) for task in TASKS)


def is_complete(family: Family, folder: Path, config: Mapping[str, Any]) -> bool:
    """Whether a folder has all files that a family needs, by its Family.is_complete."""
    try:
        with plugin_context():
            return bool(family.is_complete(folder, config))
    except (Exception, SystemExit) as error:  # code of another project, which may fail in any way
        log.warning("family %r cannot look at %s (%s)", family.name, folder, _error_text(error))
        return False


def network_of(family: Family) -> Network[Any, Any]:
    """Import and return a family's Network, which makes its models.

    Raises PackageError if the code of another package cannot be imported.
    """
    with plugin_errors(family, "be loaded"):
        network = family.network()
    if not isinstance(network, Network):
        what = f"{type(network).__name__}, not an oscine.family.Network"
        raise PackageError(f"family {family.name!r} cannot be loaded: its network() gives {what}")
    return network


def voice_support_of(family: Family) -> VoiceSupport:
    """Import and return the VoiceSupport of a text-to-speech family.

    Raises PackageError if the code of another package cannot be imported.
    """
    assert family.speaking is not None  # checked by Family
    with plugin_errors(family, "be asked for voices"):
        speaking = family.speaking()
    if not isinstance(speaking, VoiceSupport):
        what = f"{type(speaking).__name__}, not an oscine.family.VoiceSupport"
        raise PackageError(
            f"family {family.name!r} cannot be asked for voices: its speaking() gives {what}"
        )
    return speaking


@contextmanager
def plugin_errors(family: Family, task: str) -> Iterator[None]:
    """Context for calling a family's code: errors of other packages become PackageError.

    OscineError and MemoryError pass. `task` completes the message "family ... cannot ...".
    """
    try:
        with plugin_context():
            yield
    except (Exception, SystemExit) as error:  # code of another project, which may fail in any way
        ours = any(family is each for each in built_in())
        if ours or isinstance(error, OscineError | MemoryError):
            raise
        raise PackageError(
            f"family {family.name!r} cannot {task} ({_error_text(error)})"
        ) from error


def detect_family(checkpoint: Checkpoint, name: str | None = None) -> Family:
    """The family that an open checkpoint belongs to. The family of the model's `name` is preferred.

    Raises:
        CheckpointError: no family matches it, or more than one does.
    """
    refusals: list[CheckpointError] = []
    known = None if name is None else find_model(name)
    if known is not None and _matches(known[0], checkpoint, refusals):
        return known[0]
    refusals.clear()  # they come again
    found = [family for family in families() if _matches(family, checkpoint, refusals)]
    if len(found) == 1:
        return found[0]
    if found:
        names = " and ".join(family.name for family in found)
        remedy = "its configuration may be of another model: fetch it again; or remove one family"
        raise CheckpointError(checkpoint.path, f"belongs to more than one family: {names}", remedy)
    if refusals:
        raise refusals[0]
    lacking = ", no ".join(family.checkpoint_signature for family in families())
    stated: Any = checkpoint.config.get("model_type")
    states = f"; its configuration says model_type {stated!r:.60}" if stated else ""
    raise CheckpointError(checkpoint.path, f"holds no {lacking}{states}")


def _matches(family: Family, checkpoint: Checkpoint, refusals: list[CheckpointError]) -> bool:
    """Whether a family matches a checkpoint; its CheckpointError is added to `refusals`."""
    try:
        with plugin_context():
            return bool(family.matches(checkpoint))
    except CheckpointError as refusal:
        refusals.append(refusal)
    except (Exception, SystemExit) as error:  # code of another project, which may fail in any way
        log.warning(
            "family %r cannot look at %s (%s)", family.name, checkpoint.path, _error_text(error)
        )
    return False
