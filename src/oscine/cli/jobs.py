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

from oscine.cli.console import warn, write_stdout
from oscine.cli.inputs import STANDARD_INPUT, InputFiles
from oscine.cli.results import Results, State, kept
from oscine.errors import OscineError, UsageError
from oscine.files import expand_user, is_special, temp_path
from oscine.terminal import printable

MAX_COLUMNS = 1 << 16  # columns: more than any path has


@dataclass(frozen=True, slots=True)
class Job:
    """One recording; `targets` are its files by format, empty if the result goes to stdout."""

    source: str
    targets: Mapping[str, Path]


def plan_jobs(
    found: InputFiles, formats: Sequence[str], output_dir: Path | None
) -> tuple[Job, ...]:
    """One job a recording.

    One recording that is named, one format and no `output_dir`: standard output. Otherwise files
    named after the recording, in `output_dir`, with the folders that it was found in, or beside it;
    two recordings that differ in the suffix only keep it (talk.wav.srt, talk.mp3.srt), also where
    they differ in case as well, since that is no difference on macOS and Windows. Raises UsageError
    if two would write the same file, or one itself.
    """
    sources = found.recordings
    if len(sources) == 1 and not found.in_folder and len(formats) == 1 and output_dir is None:
        return (Job(next(iter(sources)), {}),)
    stems = {each: _base(each, output_dir, below, whole=False) for each, below in sources.items()}
    shared = Counter(map(case_folded, stems.values()))
    read = file_ids(each for each in sources if each != STANDARD_INPUT)
    jobs: list[Job] = []
    owners: dict[object, str] = {}
    for source, stem in stems.items():
        keeps = shared[case_folded(stem)] > 1
        base = _base(source, output_dir, sources[source], whole=True) if keeps else stem
        targets = {each: base.with_name(f"{base.name}.{each}") for each in formats}
        for target in targets.values():
            place = case_folded(target) if sys.platform in ("darwin", "win32") else target
            if place in owners:
                raise UsageError(f"{owners[place]} and {source} would both be written to {target}")
            if (lost := find_overwritten(target, read)) is not None:
                whose = "its own transcript" if lost == source else f"that of {source}"
                raise UsageError(f"{lost} would be overwritten by {whose}")
            owners[place] = source
        jobs.append(Job(source, targets))
    return tuple(jobs)


def pending_jobs(jobs: Iterable[Job], results: Results, *, skip_existing: bool) -> tuple[Job, ...]:
    """The jobs with the results that are to be written; those that need none are left out.

    A result that was edited is kept, which is told; with `skip_existing` every result is, but one
    whose transcription was stopped. A line counts the recordings that have all their results.
    """
    needed = [pending_job(job, results, skip_existing=skip_existing) for job in jobs]
    left = tuple(job for job in needed if job is not None)
    if skip_existing and (count := len(needed) - len(left)):
        warn(f"skipped {count} recording{'s' * (count > 1)} with results")
    return left


def pending_job(job: Job, results: Results, *, skip_existing: bool) -> Job | None:
    """A job with the results of it that are to be written; None where there are none of these."""
    targets = dict(job.targets)
    for name, path in job.targets.items():
        if skip_existing and results.state(path) not in (State.NOTHING, State.UNFINISHED):
            del targets[name]
        elif results.is_kept(path):
            warn(kept(path))
            del targets[name]
    return Job(job.source, targets) if targets or not job.targets else None


def expand_tilde(argument: str) -> str:
    """A path with ~ replaced, which shells do not do after `--option=`."""
    return str(expand_user(argument)) if argument.startswith("~") else argument


def case_folded(path: Path) -> tuple[Path, str]:
    """The same for all names that are one where case and the form of accents are not told apart."""
    return path.parent, unicodedata.normalize("NFC", path.name).casefold()


def _base(source: str, output_dir: Path | None, below: Path, *, whole: bool) -> Path:
    """A target without its format's suffix; `below`: its folder in the output folder."""
    path = Path("stdin") if source == STANDARD_INPUT else Path(source)
    folder = path.parent if output_dir is None else output_dir / below
    return folder / (path.name if whole else path.stem)


def make_folder(folder: Path) -> None:
    """The output folder, made if it is not there; OscineError where files cannot be put there."""
    if os.path.isfile(folder):
        raise OscineError(f"{folder}: is a file; name the folder that results go to")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OscineError(f"{folder}: cannot be made: {error.strerror or error}") from error
    check_writable_folder(folder)


def is_readable(source: str) -> bool:
    """Whether a recording is there and not empty; if not, it is reported."""
    from oscine.audio.io import open_source  # slow to import

    try:
        open_source(source)
    except OscineError as error:
        warn(str(error))
        return False
    return True


def file_ids(inputs: Iterable[str]) -> dict[tuple[int, int], str]:
    """Those of the inputs that are files, by what a file is known by whatever its path."""
    found = {}
    for each in inputs:
        with suppress(OSError, ValueError):  # a text, say
            status = os.stat(each)
            found[status.st_dev, status.st_ino] = each
    return found


def find_overwritten(target: Path, read: Mapping[tuple[int, int], str]) -> str | None:
    """Which of the inputs, by `file_ids`, a result would take the place of."""
    return next((read[each] for each in file_ids([str(target)]) if each in read), None)


def are_writable(targets: Mapping[str, Path], output_dir: Path | None = None) -> bool:
    """Whether there may be new files where results go; if not, it is reported.

    Folders that are missing in `output_dir` are made.
    """
    try:
        for path in targets.values():
            if output_dir is not None and path.parent != output_dir:
                make_folder(path.parent)
            check_writable_file(path)
    except OscineError as error:
        warn(str(error))
        return False
    return True


def check_writable_file(path: Path) -> None:
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
        check_writable_folder(place.parent)


def check_writable_folder(folder: Path) -> None:
    """Make a file and take it away; OscineError where that fails.

    Permissions alone do not tell, on a read-only disk for one.
    """
    trial = temp_path(folder)
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
    console = Console(width=None if terminal else MAX_COLUMNS, markup=False, emoji=False)
    with console.capture() as shown:
        console.print(table)
    write_stdout(shown.get())
