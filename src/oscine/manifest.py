"""Whether a model's folder has all that a model needs, and whether its bytes are still right.

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
ARCHIVE = ".nemo"  # of NVIDIA: weights, configuration and tokenizer in one
BLOCK = 1 << 20
#: (folder, config.json) -> whether all else is there that a model of a family needs.
HasFamilyFiles = Callable[[Path, Mapping[str, Any]], bool]
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|git-sha1:[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class FileRecord:
    """What a file should be: its bytes, and "sha256:…" or "git-sha1:…" in hexadecimal."""

    size: int
    digest: str

    def __post_init__(self) -> None:
        """Raise ValueError for what no file can be: entries come from servers and from disks."""
        if type(self.size) is not int or not 0 <= self.size < 1 << 63:
            raise ValueError("a size that is no number of bytes")
        if type(self.digest) is not str or not _DIGEST.fullmatch(self.digest):
            raise ValueError("a hash that is none")


def file_digest(path: Path, kind: str) -> str:
    """Digest of a file as "kind:hex": sha256, or git-sha1 (of a git blob, as hubs list it)."""
    if kind == "git-sha1":
        summer = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
    else:
        summer = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            summer.update(block)
    return f"{kind}:{summer.hexdigest()}"


def matches_record(path: Path, entry: FileRecord) -> bool:
    """Whether a file is there and has the size and hash that it should. Raises OSError."""
    if _size(path) != entry.size:
        return False
    return file_digest(path, entry.digest.partition(":")[0]) == entry.digest


def damaged_files(folder: Path, entries: Mapping[str, FileRecord]) -> list[str]:
    """The files of a folder that are missing or are not what they should be. Raises OSError."""
    return [name for name, entry in entries.items() if not matches_record(folder / name, entry)]


def write_manifest(folder: Path, entries: Mapping[str, FileRecord]) -> None:
    """Write down beside a folder what is in it, or is about to be. Raises OSError."""
    place = _place(folder)
    part = place.with_name(place.name + ".part")
    listed = {name: asdict(entry) for name, entry in entries.items()}
    part.write_text(json.dumps(listed, indent=1), "utf-8")
    replace_atomically(part, place)


def read_manifest(folder: Path) -> dict[str, FileRecord]:
    """What was written down of a folder; nothing where that is not there, or damaged."""
    listed = _json(_place(folder))
    try:
        return {_inside(name): FileRecord(**entry) for name, entry in listed.items()}
    except (AttributeError, TypeError, ValueError):
        return {}


def _inside(name: str) -> str:
    """A file's name below a folder. Raises ValueError for one that leads out of it, or is none."""
    parts = name.split("/")
    if "\0" in name or "\\" in name or not {"", ".", ".."}.isdisjoint(parts):
        raise ValueError("a name that leads elsewhere")
    return name


def _place(folder: Path) -> Path:
    return folder.with_name(folder.name + ".inventory")


def is_intact(folder: Path, has_rest: HasFamilyFiles) -> bool:
    """Whether a folder that oscine filled has every file, each as long as it was."""
    sizes = {name: entry.size for name, entry in read_manifest(folder).items()}
    if any(_size(folder / name) != size for name, size in sizes.items()):
        return False
    return is_complete(folder, has_rest)


def describe_damage(folder: Path) -> str:
    """Why a folder that has files is not whole, as a clause that names the first file at fault."""
    for name, entry in read_manifest(folder).items():
        size = _size(folder / name)
        if size is None:
            return f"{name} is missing"
        if size != entry.size:
            return f"{name} has {size} bytes, not {entry.size}"
    return "some of its files are missing or empty"


def is_complete(folder: Path, has_rest: HasFamilyFiles) -> bool:
    """Whether a folder has, by the names of its files, all that a model needs; none may be empty.

    `has_rest`: what a family says of all but the weights and the configuration.
    Files of Hugging Face's cache are links, which may be broken.
    """
    try:
        archives = [file for file in folder.iterdir() if file.suffix == ARCHIVE]
    except OSError:
        return False
    if any(_size(file) for file in archives):
        return True
    settings = _json(folder / "config.json")
    return isinstance(settings, dict) and has_weights(folder) and has_rest(folder, settings)


def has_weights(folder: Path) -> bool:
    """Whether a folder has weights in a form that is fetched, with all of their shards."""
    index = folder / SHARD_INDEX
    if _size(index) and not _size(folder / "model.safetensors"):
        listed = _json(index)
        shards = listed.get("weight_map") if isinstance(listed, dict) else None
        if not isinstance(shards, dict) or not shards:
            return False
        return all(isinstance(name, str) and _size(folder / name) for name in shards.values())
    return any(_size(folder / name) for name in WEIGHTS_FILES)


def has_files(folder: Path, *names: str) -> bool:
    """Whether a folder has files of these names, none of them empty."""
    return all(_size(folder / name) for name in names)


def has_tokenizer(folder: Path) -> bool:
    """Whether a folder has a tokenizer of one file."""
    return has_files(folder, "tokenizer.json")


def _size(path: Path) -> int | None:
    """Bytes of a file; None of what is none, or cannot be looked at."""
    try:
        return path.stat().st_size if path.is_file() else None
    except (OSError, ValueError):  # a name with a NUL, or too long
        return None


def _json(path: Path) -> Any:
    """What a JSON file holds; None where it cannot be read, or is none."""
    try:
        data = small_file(path)
        return None if data is None else parse_value(path, data)
    except (CheckpointError, ValueError):  # the latter: a name with a NUL
        return None
