"""Plans the jobs of a command: each recording with its result files, checked before any work."""

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
from oscine.cli.results import ResultState, ResultStore, kept_message
from oscine.errors import OscineError, UsageError
from oscine.files import expand_user, is_special, temp_path
from oscine.terminal import printable

MAX_COLUMNS = 1 << 16  # width of a table in a pipe: longer than any path


@dataclass(frozen=True, slots=True)
class Job:
    """One recording; `targets`: format -> result file, empty if the result goes to stdout."""

    source: str
    targets: Mapping[str, Path]


def plan_jobs(
    found: InputFiles, formats: Sequence[str], output_dir: Path | None
) -> tuple[Job, ...]:
    """Make one job for each recording.

    A single recording that was named, with one format and no `output_dir`, goes to standard output.
    Otherwise results are files named after the recording, beside it or in `output_dir`, in the same
    subfolders. Recordings whose names differ only in the suffix keep it (talk.wav.srt,
    talk.mp3.srt), compared without case, as on macOS and Windows. Raises UsageError if two
    recordings would write the same file, or a result would overwrite an input.
    """
    sources = found.output_subfolders
    if len(sources) == 1 and not found.in_folder and len(formats) == 1 and output_dir is None:
        return (Job(next(iter(sources)), {}),)
    stems = {
        each: target_base(each, output_dir, below, whole=False) for each, below in sources.items()
    }
    shared = Counter(map(case_folded, stems.values()))
    read = file_ids(each for each in sources if each != STANDARD_INPUT)
    jobs: list[Job] = []
    owners: dict[object, str] = {}
    for source, stem in stems.items():
        keeps = shared[case_folded(stem)] > 1
        base = target_base(source, output_dir, sources[source], whole=True) if keeps else stem
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


def plan_single_job(found: InputFiles, format: str, target: Path) -> tuple[Job, ...]:
    """Make the job of the only recording, whose result goes to the file `target`.

    Raises UsageError if there may be several recordings, or the result would overwrite the input.
    """
    sources = tuple(found.output_subfolders)
    if len(sources) != 1 or found.in_folder:
        problem = "the input is a folder" if found.in_folder else "there are several recordings"
        raise UsageError(f"{target} is one file, but {problem}; name a folder for the results")
    if find_overwritten(target, file_ids(sources)) is not None:
        raise UsageError(f"{target} would be overwritten by its own transcript")
    return (Job(sources[0], {format: target}),)


def pending_jobs(
    jobs: Iterable[Job], results: ResultStore, *, skip_existing: bool
) -> tuple[Job, ...]:
    """The jobs that still have results to write, each with those results only.

    A result that was edited is kept, with a message; with `skip_existing` every existing result is
    kept, except that of an interrupted transcription. A message counts the skipped recordings.
    """
    needed = [pending_job(job, results, skip_existing=skip_existing) for job in jobs]
    left = tuple(job for job in needed if job is not None)
    if skip_existing and (count := len(needed) - len(left)):
        warn(f"skipped {count} recording{'s' * (count > 1)} with results")
    return left


def pending_job(job: Job, results: ResultStore, *, skip_existing: bool) -> Job | None:
    """A job reduced to the results that are still to be written; None if there are none."""
    targets = dict(job.targets)
    for name, path in job.targets.items():
        if skip_existing and results.state(path) not in (ResultState.MISSING, ResultState.PARTIAL):
            del targets[name]
        elif results.is_kept(path):
            warn(kept_message(path))
            del targets[name]
    return Job(job.source, targets) if targets or not job.targets else None


def expand_tilde(argument: str) -> str:
    """A path with ~ expanded, which shells do not do after `--option=`."""
    return str(expand_user(argument)) if argument.startswith("~") else argument


def case_folded(path: Path) -> tuple[Path, str]:
    """A key that is equal for paths whose names differ only in case or Unicode normalization."""
    return path.parent, unicodedata.normalize("NFC", path.name).casefold()


def target_base(source: str, output_dir: Path | None, below: Path, *, whole: bool) -> Path:
    """The path of a result without its suffix; `below`: its subfolder of the output folder."""
    path = Path("stdin") if source == STANDARD_INPUT else Path(source)
    folder = path.parent if output_dir is None else output_dir / below
    return folder / (path.name if whole else path.stem)


def make_output_folder(folder: Path) -> None:
    """Create a folder for results if need be. Raises OscineError if it is not writable."""
    if os.path.isfile(folder):
        raise OscineError(f"{folder}: is a file; name the folder that results go to")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OscineError(f"{folder}: cannot be made: {error.strerror or error}") from error
    check_writable_folder(folder)


def is_readable(source: str, track: int | str | None = None) -> bool:
    """Whether a file exists and holds audio, with the given track; otherwise the reason is printed.

    Nothing is read from a pipe.
    """
    from oscine.audio.io import check_contents, open_source  # slow to import

    try:
        check_contents(open_source(source), track)
    except OscineError as error:
        warn(str(error))
        return False
    return True


def file_ids(inputs: Iterable[str]) -> dict[tuple[int, int], str]:
    """Device and inode -> path, for those of the inputs that are files."""
    found = {}
    for each in inputs:
        with suppress(OSError, ValueError):  # not a path, such as a text
            status = os.stat(each)
            found[status.st_dev, status.st_ino] = each
    return found


def find_overwritten(target: Path, read: Mapping[tuple[int, int], str]) -> str | None:
    """The input that `target` would overwrite, by the inputs' `file_ids`; None if there is none."""
    return next((read[each] for each in file_ids([str(target)]) if each in read), None)


def are_writable(targets: Mapping[str, Path], output_dir: Path | None = None) -> bool:
    """Whether results can be written to all targets; otherwise the reason is printed.

    Missing subfolders of `output_dir` are created.
    """
    try:
        for path in targets.values():
            if output_dir is not None and path.parent != output_dir:
                make_output_folder(path.parent)
            check_writable_file(path)
    except OscineError as error:
        warn(str(error))
        return False
    return True


def check_writable_file(path: Path) -> None:
    """Raise OscineError if a file cannot be created under this path, such as a too long name."""
    try:
        os.lstat(path)
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        if not isinstance(error, NotADirectoryError):  # reported for the folder below
            problem = getattr(error, "strerror", None) or error
            raise OscineError(f"{path}: cannot write: {problem}") from error
    if not is_special(path):
        place = Path(os.path.realpath(path)) if path.is_symlink() else path
        check_writable_folder(place.parent)


def check_writable_folder(folder: Path) -> None:
    """Create a file in a folder and remove it. Raises OscineError if that fails.

    Permissions alone are not enough, for example on a read-only file system.
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
    """Print a table on stdout: wrapped on a terminal; in a pipe lines are never wrapped."""
    from rich.console import Console  # slow to import
    from rich.table import Table

    table = Table(*head, box=None)
    for line in lines:
        table.add_row(*map(printable, line))
    terminal = sys.stdout is not None and sys.stdout.isatty()
    console = Console(width=None if terminal else MAX_COLUMNS, markup=False, emoji=False)
    with console.capture() as shown:
        console.print(table)
    write_stdout(shown.get())
