"""Expands the inputs of a command, files and folders, into a list of recordings."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from oscine.audio.file_types import SUFFIXES
from oscine.cli.console import warn
from oscine.errors import UsageError
from oscine.formats import FORMATS

STANDARD_INPUT = "-"


@dataclass(slots=True)
class InputFiles:
    """Recordings found in the inputs: path -> subfolder of the output folder for its results.

    `other_files` and `other_folders` count what was skipped; `in_folder` is true if a folder was
    among the inputs, `complete` if every folder could be listed.
    """

    output_subfolders: dict[str, Path] = field(default_factory=dict)
    other_files: int = 0
    other_folders: int = 0
    in_folder: bool = False
    complete: bool = True

    def left_out(self) -> str:
        """What was skipped, such as "3 files, 1 folder"; empty if nothing was."""
        numbers = {"file": self.other_files, "folder": self.other_folders}
        return ", ".join(
            f"{number} {name}{'s' if number > 1 else ''}"
            for name, number in numbers.items()
            if number
        )


def find_recordings(
    inputs: Sequence[str], *, recursive: bool = False, output: Path | None = None
) -> InputFiles:
    """The recordings of `inputs`; a message for each folder counts what was skipped in it.

    Raises UsageError for an empty name, which Path takes for the current folder, for a folder
    without recordings or one that cannot be listed, and for `recursive` without a folder.
    """
    if "" in inputs:
        raise UsageError("the name of a recording is empty")
    everything = InputFiles()
    for each in inputs:
        # os.path, since Path.is_dir raises OSError for a name that is too long
        if each == STANDARD_INPUT or not os.path.isdir(each):
            everything.output_subfolders.setdefault(each, Path())
            continue
        found = list_recordings(each, recursive=recursive, output=output)
        left = found.left_out()
        if not found.output_subfolders:
            but = f", but {left}" if left else ""
            raise UsageError(f"{each}: no recordings in this folder{but}")
        if left:
            warn(f"{each}: left out: {left}; a file that is named is tried")
        everything.output_subfolders = found.output_subfolders | everything.output_subfolders
        everything.in_folder = True
        everything.complete &= found.complete
    if recursive and not everything.in_folder:
        raise UsageError("recursive is for folders; name one")
    return everything


def list_recordings(folder: str, *, recursive: bool, output: Path | None) -> InputFiles:
    """The recordings of a folder, in order of their names; `recursive`: also of its subfolders.

    Hidden names are skipped: they are thumbnails, trash, and macOS's metadata files, which have the
    recording's suffix (._talk.wav). The `output` folder is skipped too, and so are links to
    folders, which may form a cycle. A subfolder that cannot be listed is reported.
    """
    found = InputFiles(in_folder=True)
    waiting = [Path()]
    while waiting:
        below = waiting.pop(0)
        try:
            names = sorted(path.name for path in (Path(folder) / below).iterdir())
        except OSError as error:
            problem = f"{Path(folder) / below}: cannot be listed: {error.strerror or error}"
            if not below.parts:
                raise UsageError(problem) from error
            warn(problem)
            found.complete = False
            continue
        paths = [Path(folder) / below / name for name in names if not name.startswith(".")]
        folders = [path for path in paths if os.path.isdir(path) and not _is_same(path, output)]
        deeper = [path for path in folders if recursive and not path.is_symlink()]
        found.other_folders += len(folders) - len(deeper)
        waiting[:0] = [below / path.name for path in deeper]
        _take_files([path for path in paths if not os.path.isdir(path)], below, found)
    return found


def _take_files(files: Sequence[Path], below: Path, found: InputFiles) -> None:
    """Add the recordings among the files of one folder and count the rest, except results."""
    taken = [path for path in files if path.suffix.lower() in SUFFIXES and os.path.isfile(path)]
    written = {f"{name}.{each}" for path in taken for name in (path.name, path.stem)
               for each in FORMATS}  # fmt: skip
    found.other_files += len(
        {path.name for path in files} - {path.name for path in taken} - written
    )
    found.output_subfolders |= {str(path): below for path in taken}


def _is_same(path: Path, other: Path | None) -> bool:
    try:
        return other is not None and os.path.samefile(path, other)
    except OSError:  # one of them does not exist
        return False
