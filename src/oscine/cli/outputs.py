"""Which inputs there are, where each one's results go, and whether either will work."""

from __future__ import annotations

import os
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from oscine.audio.suffixes import SUFFIXES
from oscine.cli.console import emit, tell
from oscine.errors import OscineError, UsageError
from oscine.files import expanded, is_special, unfinished
from oscine.formats import FORMATS
from oscine.terminal import printable

STANDARD_INPUT = "-"
WIDEST = 1 << 16  # columns: more than any path has


@dataclass(frozen=True, slots=True)
class Job:
    """One recording; `targets` are its files by format, empty if the result goes to stdout."""

    source: str
    targets: Mapping[str, Path]


def plan(inputs: Sequence[str], formats: Sequence[str], output_dir: Path | None) -> tuple[Job, ...]:
    """One job a recording.

    One input, one format and no `output_dir`: standard output. Otherwise files named after the
    recording, in `output_dir` or beside it; two recordings that differ in the suffix only keep it
    (talk.wav.srt, talk.mp3.srt), also where they differ in case as well, since that is no
    difference on macOS and Windows. Raises UsageError if two would write the same file, or one
    itself, for a folder without recordings and for an empty name, which Path takes for this folder.
    """
    if "" in inputs:
        raise UsageError("the name of a recording is empty")
    # os.path, because Path.is_dir raises for a name that is too long
    folders = [each for each in inputs if each != STANDARD_INPUT and os.path.isdir(each)]
    sources = [file for each in inputs for file in (_inside(each) if each in folders else [each])]
    sources = list(dict.fromkeys(sources))
    if len(inputs) == 1 and not folders and len(formats) == 1 and output_dir is None:
        return (Job(sources[0], {}),)
    stems = {source: _base(source, output_dir, whole=False) for source in sources}
    shared = Counter(map(folded, stems.values()))
    read = identities(each for each in sources if each != STANDARD_INPUT)
    jobs: list[Job] = []
    owners: dict[object, str] = {}
    for source, stem in stems.items():
        base = _base(source, output_dir, whole=True) if shared[folded(stem)] > 1 else stem
        targets = {each: base.with_name(f"{base.name}.{each}") for each in formats}
        for target in targets.values():
            place = folded(target) if sys.platform in ("darwin", "win32") else target
            if place in owners:
                raise UsageError(f"{owners[place]} and {source} would both be written to {target}")
            if (lost := overwritten(target, read)) is not None:
                whose = "its own transcript" if lost == source else f"that of {source}"
                raise UsageError(f"{lost} would be overwritten by {whose}")
            owners[place] = source
        jobs.append(Job(source, targets))
    return tuple(jobs)


def at_home(argument: str) -> str:
    """A path with ~ replaced, which shells do not do after `--option=`."""
    return str(expanded(argument)) if argument.startswith("~") else argument


def _inside(folder: str) -> list[str]:
    """Recordings in a folder, by name; a line tells how much of it is none.

    Folders inside it are not taken. Hidden names are passed over: they are thumbnails, bins, and
    what macOS keeps about a recording under the recording's own suffix (._talk.wav).
    """
    try:
        there = sorted(path for path in Path(folder).iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise UsageError(f"{folder}: cannot be listed: {error.strerror or error}") from error
    files = [path for path in there if not os.path.isdir(path)]
    taken = [path for path in files if path.suffix.lower() in SUFFIXES and os.path.isfile(path)]
    written = {f"{name}.{each}" for path in taken for name in (path.name, path.stem)
               for each in FORMATS}  # fmt: skip
    others = len({path.name for path in files} - {path.name for path in taken} - written)
    left = counted(others, len(there) - len(files))
    if not taken:
        raise UsageError(
            f"{folder}: no recordings in this folder" + (f", but {left}" if left else "")
        )
    if left:
        tell(f"{folder}: left out: {left}; a file that is named is tried")
    return [str(path) for path in taken]


def counted(files: int, folders: int) -> str:
    """As in "3 files, 1 folder"; nothing for none of either."""
    numbers = {"file": files, "folder": folders}
    return ", ".join(
        f"{number} {name}{'s' if number > 1 else ''}" for name, number in numbers.items() if number
    )


def folded(path: Path) -> tuple[Path, str]:
    """The same for all names that are one where case and the form of accents are not told apart."""
    return path.parent, unicodedata.normalize("NFC", path.name).casefold()


def _base(source: str, output_dir: Path | None, *, whole: bool) -> Path:
    """A target without its format's suffix."""
    path = Path("stdin") if source == STANDARD_INPUT else Path(source)
    return (output_dir or path.parent) / (path.name if whole else path.stem)


def make_folder(folder: Path) -> None:
    """The output folder, made if it is not there; OscineError where files cannot be put there."""
    if os.path.isfile(folder):
        raise OscineError(f"{folder}: is a file; name the folder that results go to")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OscineError(f"{folder}: cannot be made: {error.strerror or error}") from error
    try_folder(folder)


def is_readable(source: str) -> bool:
    """Whether a recording is there and not empty; if not, it is reported."""
    from oscine.audio.io import open_source  # slow to import

    try:
        open_source(source)
    except OscineError as error:
        tell(str(error))
        return False
    return True


def identities(inputs: Iterable[str]) -> dict[tuple[int, int], str]:
    """Those of the inputs that are files, by what a file is known by whatever its path."""
    found = {}
    for each in inputs:
        with suppress(OSError, ValueError):  # a text, say
            status = os.stat(each)
            found[status.st_dev, status.st_ino] = each
    return found


def overwritten(target: Path, read: Mapping[tuple[int, int], str]) -> str | None:
    """Which of the inputs, by `identities`, a result would take the place of."""
    return next((read[each] for each in identities([str(target)]) if each in read), None)


def are_writable(targets: Mapping[str, Path]) -> bool:
    """Whether there may be new files where results go; if not, it is reported."""
    try:
        for path in targets.values():
            try_file(path)
    except OscineError as error:
        tell(str(error))
        return False
    return True


def try_file(path: Path) -> None:
    """OscineError where there can be no such file, as where the name is too long."""
    try:
        os.lstat(path)
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        if not isinstance(error, NotADirectoryError):  # told of the folder
            problem = getattr(error, "strerror", None) or error
            raise OscineError(f"{path}: cannot write: {problem}") from error
    if not is_special(path):
        place = Path(os.path.realpath(path)) if path.is_symlink() else path
        try_folder(place.parent)


def try_folder(folder: Path) -> None:
    """Make a file and take it away; OscineError where that fails.

    Permissions alone do not tell, on a read-only disk for one.
    """
    trial = unfinished(folder)
    try:
        trial.touch(exist_ok=False)
        trial.unlink()
    except OSError as error:
        problem = f"{folder}: cannot write there: {error.strerror or error}"
        remedy = "; make this folder first" if isinstance(error, FileNotFoundError) else ""
        raise OscineError(problem + remedy) from error


def print_table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
    """On stdout, folded where that is a terminal; a pipe gets every line and path whole."""
    from rich.console import Console  # costs start-up time
    from rich.table import Table

    table = Table(*head, box=None)
    for line in lines:
        table.add_row(*map(printable, line))
    terminal = sys.stdout is not None and sys.stdout.isatty()
    console = Console(width=None if terminal else WIDEST, markup=False, emoji=False)
    with console.capture() as shown:
        console.print(table)
    emit(shown.get())
