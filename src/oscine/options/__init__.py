"""Options, each said once: one record holds its name, type, default, check, help and families.

The options of a task are the fields of a frozen dataclass, which `option` makes: TranscribeOptions
in options/transcribe.py, SpeakOptions in options/speak.py; options/command.py has those that only
the commands take. The Python API, the command line, its help and docs/cli.md read the records with
`options_of`, so a new option is a field and its use. SupportedOptions says which options a family
of models takes, and refuses the others by name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from difflib import get_close_matches
from enum import StrEnum
from types import MappingProxyType
from typing import Any, ClassVar, Generic, Self, TypeVar, get_type_hints

from oscine.errors import UsageError

#: Takes the option's name and a value in any form that is understood, and returns the value in its
#: one normal form. Raises UsageError, which names the option.
Check = Callable[[str, Any], Any]

#: Families of models, as messages and help call them.
WHISPER, PARAKEET, QWEN3_TTS = "Whisper", "Parakeet", "Qwen3-TTS"

_RECORD = "oscine.option"  # key in the metadata of a dataclass field
_read: dict[type[Any], Mapping[str, Option]] = {}


class Group(StrEnum):
    """Headings of the help and of docs/cli.md, in their order."""

    MODEL = "Model and device"
    OUTPUT = "Output"
    LIVE = "Live"
    AUDIO = "Recording and language"
    TIMES = "Timestamps and words"
    SEGMENTS = "Segments"
    SUBTITLES = "Subtitles (srt, vtt)"
    CONTEXT = "Prompt and context"
    SEARCH = "Search"
    FALLBACK = "Fallback"
    VAD = "Voice activity detection"
    VOICE = "Voice and manner"
    SAMPLING = "Sampling"
    LENGTH = "Length and text"


@dataclass(frozen=True, slots=True)
class Option:
    """All that is known of one option. `name` and `type` are those of its dataclass field.

    `help` is one short clause, and `default_text` the default in words where that is None. The
    families that take the option are `families`, or if that is empty all families of the task. A
    family that lacks it refuses every value but the default and those in `neutral`, which ask for
    nothing; `refusal` tells why, or what to do instead.
    """

    default: Any
    check: Check
    help: str
    group: str
    _: KW_ONLY
    name: str = ""
    type: Any = None
    default_text: str = ""
    families: tuple[str, ...] = ()
    neutral: tuple[object, ...] = ()
    refusal: str = ""
    #: Names that other programs have for it, and what to do instead.
    replaces: Mapping[str, str] = field(default_factory=dict)
    #: Of what only commands take: where the Python API takes it.
    elsewhere: str = ""
    #: On the command line: all spellings, where there are more than --name; the value's name; the
    #: default, where it has another form there; whether the option may be given only once.
    flags: tuple[str, ...] = ()
    metavar: str | None = None
    cli_default: Any = None
    once: bool = False

    def normal(self, value: Any) -> Any:
        """The value in its normal form; None where that is the default. Raises UsageError."""
        return None if value is None and self.default is None else self.check(self.name, value)


def option(default: Any, check: Check, help: str, group: str, **more: Any) -> Any:
    """A dataclass field that is an option; `more`: fields of Option."""
    return field(default=default, metadata={_RECORD: Option(default, check, help, group, **more)})


def options_of(kind: type[Any]) -> Mapping[str, Option]:
    """The records of a dataclass by name, in order."""
    if kind not in _read:
        types = get_type_hints(kind)
        _read[kind] = MappingProxyType(
            {
                each.name: replace(each.metadata[_RECORD], name=each.name, type=types[each.name])
                for each in fields(kind)
                if _RECORD in each.metadata
            }
        )
    return _read[kind]


class Options:
    """Base of frozen dataclasses of options; make them with `of`, which checks and normalises.

    `purpose` is how messages call what they are for, `call` what takes those in `beside`, and
    `others` are classes of options that the task's command takes and `of` does not; `foreign` has
    names that only other programs have, and what to do instead.
    """

    __slots__ = ()
    purpose: ClassVar[str]
    call: ClassVar[str] = ""
    beside: ClassVar[tuple[str, ...]] = ()
    others: ClassVar[tuple[type[Any], ...]] = ()
    foreign: ClassVar[Mapping[str, str]] = MappingProxyType({})

    @classmethod
    def of(cls, **options: Any) -> Self:
        """Check and normalise; UsageError names the option that cannot be carried out."""
        known, remedies = options_of(cls), elsewhere(cls)
        for name, value in options.items():
            if name in known:
                continue
            if name in cls.beside:
                raise UsageError(f"{name} is no {cls.__name__}: give it to {cls.call}")
            if name in remedies and value is not None:
                raise UsageError(f"{name} is not an option of {cls.purpose}; {remedies[name]}")
            if name not in remedies:
                names = (*cls.beside, *known)
                near = get_close_matches(name, names, 1)
                hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(names)}"
                raise UsageError(f"unknown option {name}; {hint}")
        make: Any = cls
        checked: Self = make(
            **{name: known[name].normal(options[name]) for name in options if name in known}
        )
        checked.check()
        return checked

    def check(self) -> None:
        """Raise UsageError for options that contradict each other."""

    def changed(self, *names: str) -> list[str]:
        """Those of the options that do not have their default."""
        known = options_of(type(self))
        return [name for name in names if getattr(self, name) != known[name].default]


def elsewhere(kind: type[Options]) -> Mapping[str, str]:
    """Names that are no options of a kind, and what to do instead."""
    records = [each for other in kind.others for each in options_of(other).values()]
    commands = {each.name: each.elsewhere for each in records if each.elsewhere}
    return MappingProxyType({**kind.foreign, **replaced(kind), **commands})


def replaced(kind: type[Options]) -> Mapping[str, str]:
    """Names that other programs have for options of a kind's command, and what to do instead."""
    remedies: dict[str, str] = {}
    for each in (kind, *kind.others):
        for record in options_of(each).values():
            remedies |= record.replaces
    return MappingProxyType(remedies)


T = TypeVar("T", bound=Options)


@dataclass(frozen=True, slots=True)
class SupportedOptions(Generic[T]):
    """The options of a task that a family of models takes; `of` refuses the others by name.

    `kind` is a class of options and `family` how messages call the family. `names` are the options
    that it takes; None stands for those whose record names the family or no family. `refusals` has
    the family's own message for an option that it lacks, by name, where {value} stands for the
    value. `check` raises UsageError for values that this family alone refuses. Raises UsageError
    for names that are not options of the `kind`, and for refusals that are no such text.
    """

    kind: type[T]
    family: str
    names: Collection[str] | None = None
    refusals: Mapping[str, str] = field(default_factory=dict)
    check: Callable[[T], None] | None = None

    def __post_init__(self) -> None:
        names = () if self.names is None else self.names
        if isinstance(names, str) or not isinstance(names, Iterable):
            raise UsageError(f"{self.family}: names must be a collection of names, not {names!r}")
        if self.names is not None:  # kept, as an iterator gives them once
            names = tuple(names)
            object.__setattr__(self, "names", names)
        known = options_of(self.kind)
        for name in (*names, *self.refusals):
            if not isinstance(name, str) or name not in known:
                raise UsageError(f"{self.family}: there is no option {name} of {self.kind.purpose}")
        for name, refusal in self.refusals.items():
            try:
                refusal.format(value="")
            except (AttributeError, LookupError, ValueError):
                form = "must be text in which only {value} is in braces"
                raise UsageError(f"{self.family}: the refusal of {name} {form}") from None

    def of(self, **options: Any) -> T:
        """Check and normalise; UsageError names what is wrong or what the family lacks."""
        checked = self.kind.of(**options)
        for record in options_of(self.kind).values():
            value = getattr(checked, record.name)
            if not self.supports(record) and value not in (record.default, *record.neutral):
                raise UsageError(self.refusal(record, value))
        if self.check is not None:
            self.check(checked)
        return checked

    def supports(self, record: Option) -> bool:
        """Whether the family takes an option."""
        if self.names is not None:
            return record.name in self.names
        return not record.families or self.family in record.families

    def refusal(self, record: Option, value: object) -> str:
        """Why an option that the family lacks cannot have a value."""
        if record.name in self.refusals:
            return self.refusals[record.name].format(value=value)
        if record.refusal:
            return f"{record.name} is not an option of {self.family}; {record.refusal}"
        remedy = f", or use a {record.families[0]} model" if record.families else ""
        return f"{self.family} knows no {record.name}: leave it out{remedy}"
