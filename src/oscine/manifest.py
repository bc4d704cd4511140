"""Checks that a model's folder is complete and its files are intact.

The files of a downloaded model are listed in a manifest beside its folder, `models/base.inventory`
for `models/base`: the size of each file, which `is_intact` compares, and its hash, which
`damaged_files` compares. A folder from an older oscine or another program has no manifest and is
judged by the names of its files.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from oscine.errors import CheckpointError
from oscine.files import replace_atomically
from oscine.model_files import parse_value, small_file

SHARD_INDEX = "model.safetensors.index.json"
WEIGHTS_FILES = ("model.safetensors", SHARD_INDEX, "model.bin", "weights.safetensors")
NEMO_SUFFIX = ".nemo"  # of NVIDIA: weights, configuration and tokenizer in one
READ_BYTES = 1 << 20
#: (folder, config.json) -> whether all else is there that a model of a family needs.
HasFamilyFiles = Callable[[Path, Mapping[str, Any]], bool]
_DIGEST_PATTERN = re.compile(r"sha256:[0-9a-f]{64}|git-sha1:[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class FileRecord:
    """The expected size of a file in bytes, and its digest: "sha256:…" or "git-sha1:…" in hex."""

    size: int
    digest: str

    def __post_init__(self) -> None:
        """Raise ValueError for impossible values: records come from servers and from disk."""
        if type(self.size) is not int or not 0 <= self.size < 1 << 63:
            raise ValueError("the size is not a number of bytes")
        if type(self.digest) is not str or not _DIGEST_PATTERN.fullmatch(self.digest):
            raise ValueError("the digest is not a hash")


def file_digest(path: Path, kind: str) -> str:
    """Digest of a file as "kind:hex": sha256, or git-sha1 (of a git blob, as hubs list it)."""
    if kind == "git-sha1":
        summer = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
    else:
        summer = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(READ_BYTES):
            summer.update(block)
    return f"{kind}:{summer.hexdigest()}"


def matches_record(path: Path, entry: FileRecord) -> bool:
    """Whether a file exists and has the expected size and hash. Raises OSError."""
    if _file_size(path) != entry.size:
        return False
    return file_digest(path, entry.digest.partition(":")[0]) == entry.digest


def damaged_files(folder: Path, entries: Mapping[str, FileRecord]) -> list[str]:
    """The files of a folder that are missing or differ from their records. Raises OSError."""
    return [name for name, entry in entries.items() if not matches_record(folder / name, entry)]


def write_manifest(folder: Path, entries: Mapping[str, FileRecord]) -> None:
    """Write the manifest of a folder beside it. Raises OSError."""
    path = _manifest_path(folder)
    part = path.with_name(path.name + ".part")
    listed = {name: asdict(entry) for name, entry in entries.items()}
    part.write_text(json.dumps(listed, indent=1), "utf-8")
    replace_atomically(part, path)


def read_manifest(folder: Path) -> dict[str, FileRecord]:
    """The manifest of a folder; empty if it is missing or damaged."""
    listed = _read_json(_manifest_path(folder))
    try:
        return {_relative_name(name): FileRecord(**entry) for name, entry in listed.items()}
    except (AttributeError, TypeError, ValueError):
        return {}


def _relative_name(name: str) -> str:
    """A relative file name. Raises ValueError if it is invalid or leads out of its folder."""
    parts = name.split("/")
    if "\0" in name or "\\" in name or not {"", ".", ".."}.isdisjoint(parts):
        raise ValueError("a name that leads elsewhere")
    return name


def _manifest_path(folder: Path) -> Path:
    """The manifest of a folder: `models/base.inventory` of `models/base`."""
    return folder.with_name(folder.name + ".inventory")


def is_intact(folder: Path, has_rest: HasFamilyFiles) -> bool:
    """Whether a folder is complete, and its files have the sizes in its manifest."""
    sizes = {name: entry.size for name, entry in read_manifest(folder).items()}
    if any(_file_size(folder / name) != size for name, size in sizes.items()):
        return False
    return is_complete(folder, has_rest)


def describe_damage(folder: Path) -> str:
    """Why a folder is incomplete: a clause that names the first missing or wrong file."""
    for name, entry in read_manifest(folder).items():
        size = _file_size(folder / name)
        if size is None:
            return f"{name} is missing"
        if size != entry.size:
            return f"{name} has {size} bytes, not {entry.size}"
    return "some of its files are missing or empty"


def is_complete(folder: Path, has_rest: HasFamilyFiles) -> bool:
    """Whether a folder has, by the names of its files, all that a model needs; none may be empty.

    `has_rest`: whether a family finds all files besides weights and configuration.
    Files of Hugging Face's cache are links, which may be broken.
    """
    try:
        archives = [file for file in folder.iterdir() if file.suffix == NEMO_SUFFIX]
    except OSError:
        return False
    if any(_file_size(file) for file in archives):
        return True
    settings = _read_json(folder / "config.json")
    return isinstance(settings, dict) and has_weights(folder) and has_rest(folder, settings)


def has_weights(folder: Path) -> bool:
    """Whether a folder has weights in a format that is downloaded, with all shards."""
    index = folder / SHARD_INDEX
    if _file_size(index) and not _file_size(folder / "model.safetensors"):
        listed = _read_json(index)
        shards = listed.get("weight_map") if isinstance(listed, dict) else None
        if not isinstance(shards, dict) or not shards:
            return False
        return all(isinstance(name, str) and _file_size(folder / name) for name in shards.values())
    return any(_file_size(folder / name) for name in WEIGHTS_FILES)


def has_files(folder: Path, *names: str) -> bool:
    """Whether a folder has files of these names, none of them empty."""
    return all(_file_size(folder / name) for name in names)


def has_tokenizer(folder: Path) -> bool:
    """Whether a folder has a tokenizer of one file."""
    return has_files(folder, "tokenizer.json")


def _file_size(path: Path) -> int | None:
    """The size of a file in bytes; None if it is not a file or cannot be read."""
    try:
        return path.stat().st_size if path.is_file() else None
    except (OSError, ValueError):  # a name with a NUL, or too long
        return None


def _read_json(path: Path) -> Any:
    """The value of a JSON file; None if it cannot be read or is not JSON."""
    try:
        data = small_file(path)
        return None if data is None else parse_value(path, data)
    except (CheckpointError, ValueError):  # the latter: a name with a NUL
        return None
