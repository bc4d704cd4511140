"""Compares a local model's files with their hashes, and downloads damaged files again."""

from __future__ import annotations

import logging
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from oscine import hub
from oscine.errors import HubError, UsageError
from oscine.family import Release
from oscine.files import expand_user
from oscine.manifest import FileRecord, damaged_files, read_manifest, write_manifest
from oscine.sources import entries_of_hub_cache, entry_of, hub_listing

if TYPE_CHECKING:
    from oscine.download import Progress

log = logging.getLogger(__name__)


def verify(name: str, offline: bool = False, progress: Progress | None = None) -> tuple[Path, int]:
    """Check every byte of a local model, and download damaged files again.

    Files in oscine's own folder are compared with their manifest, else with the hashes of the
    release or of Hugging Face's listing; those in Hugging Face's cache with the names of its blobs.
    Other programs use that cache too: for a model that is damaged there, a copy is downloaded into
    oscine's folder, which takes precedence. A missing model is downloaded, which checks it.

    Returns the model's folder and the number of files checked. Raises UsageError for a path,
    HubError for files without a known hash, and if damaged files cannot be downloaded.
    """
    if os.path.exists(expand_user(name)):
        raise UsageError(f"{name} is a path: there is nothing to check it against; give a name")
    name, model = hub.lookup(name)
    own = hub.model_folder(name)
    if hub.find_local(name) is None and not _known_files(model, own):  # missing or incomplete
        folder = hub.resolve(name, offline, progress)
        return folder, len(read_manifest(folder))
    with hub.download_lock(own, f"model {name!r}"):
        folder = hub.find_local(name) or own
        entries = _expected_files(name, model, folder, offline)
        bad = damaged_files(folder, entries)
        if not bad:
            if folder == own and not read_manifest(own):
                write_manifest(own, entries)
            return folder, len(entries)
        problem = f"{folder}: damaged or missing: {', '.join(bad)}"
        if hub.is_offline(offline):
            command = f"oscine models pull {name} --check"
            raise HubError(f"{problem}; {hub.offline_message(offline, command)}")
        log.warning("%s; fetching again", problem)
        if folder == own:
            _keep_good(own, entries, bad)
        hub.fetch_model(name, model, own, progress)
    return own, len(read_manifest(own))


def _expected_files(
    name: str, model: Release, folder: Path, offline: bool
) -> dict[str, FileRecord]:
    """The expected sizes and hashes of a model's files. Raises HubError if they are not known."""
    if folder != hub.model_folder(name):
        entries = entries_of_hub_cache(folder)
    else:
        entries = _known_files(model, folder)
        if not entries and not hub.is_offline(offline):  # an older oscine fetched it
            _, listed = hub_listing(model.repository)
            entries = {
                file: entry_of(file, listed[file]) for file in _list_files(folder) if file in listed
            }
    if not entries:
        raise HubError(f"{folder}: no hashes of its files are known; remove it and pull it again")
    return entries


def _known_files(model: Release, folder: Path) -> dict[str, FileRecord]:
    """The manifest of a folder, else the hashes of the release if it has the same files."""
    if kept := read_manifest(folder):
        return kept
    files = _list_files(folder)
    if not files or not set(files) <= model.files.keys():
        return {}
    sizes = {file: (folder / file).stat().st_size if file in files else 0 for file in model.files}
    return {file: FileRecord(sizes[file], f"sha256:{model.files[file]}") for file in model.files}


def _list_files(folder: Path) -> list[str]:
    try:
        found = [path for path in folder.rglob("*") if path.is_file()]
    except OSError:  # reported by the download
        return []
    return sorted(path.relative_to(folder).as_posix() for path in found)


def _keep_good(folder: Path, entries: dict[str, FileRecord], bad: list[str]) -> None:
    """Link or copy intact files to where the next download resumes. Raises OSError."""
    part = folder.with_name(folder.name + ".part")
    for name in entries.keys() - set(bad):
        (part / name).parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            try:
                os.link(folder / name, part / name)
            except OSError as error:
                if isinstance(error, FileExistsError):
                    raise
                shutil.copyfile(folder / name, part / name)
