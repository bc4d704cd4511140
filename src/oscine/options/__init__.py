"""Options, each defined once: one record holds its name, type, default, check, help and families.

The options of a task are the fields of a frozen dataclass, made with `option`: TranscribeOptions in
options/transcribe.py, SpeakOptions in options/speak.py; options/command.py has those that only the
commands take. The Python API, the command line, its help and docs/cli.md read the records with
`options_of`, so a new option is one field and its use. SupportedOptions lists which options a
family of models supports, and refuses the others by name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from difflib import get_close_matches
from enum import StrEnum
from types import MappingProxyType
from typing import Any, ClassVar, Generic, Self, TypeVar, get_type_hints

from oscine.errors import UsageError

#: (option's name, value in any accepted form) -> value in normal form. Raises UsageError, which
#: names the option.
Check = Callable[[str, Any], Any]

#: Families of models, as messages and help call them.
WHISPER, PARAKEET, QWEN3_TTS = "Whisper", "Parakeet", "Qwen3-TTS"

_RECORD_KEY = "oscine.option"  # key in the metadata of a dataclass field
_read: dict[type[Any], Mapping[str, Option]] = {}


class Group(StrEnum):
    """Headings of the help text and of docs/cli.md, in order."""

    MODEL = "Model and device"
    OUTPUT = "Output"
    LIVE = "Live"
    SERVER = "Server"
    LIMITS = "Limits of a request"
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
    """The record of one option. `name` and `type` are those of its dataclass field.

    `help` is one short clause; `default_text` describes the default if that is None. `families` are
    the families that support the option; empty: all families of the task. A family without it
    refuses every value except the default and the `no_op_values`; `refusal` gives the reason, or
    what to use instead.
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
    no_op_values: tuple[object, ...] = ()
    refusal: str = ""
    #: Names of the option in other programs -> what to use instead.
    renamed_from: Mapping[str, str] = field(default_factory=dict)
    #: For an option that only commands take: how the Python API does the same.
    python_hint: str = ""
    #: On the command line: all spellings, if there are more than --name; the value's placeholder;
    #: the default, if it has another form there; whether the option may be given only once, or
    #: several times, which gives all values.
    flags: tuple[str, ...] = ()
    metavar: str | None = None
    cli_default: Any = None
    unique: bool = False
    repeatable: bool = False

    def normalize(self, value: Any) -> Any:
        """The value in normal form; None stays None if that is the default. Raises UsageError."""
        return None if value is None and self.default is None else self.check(self.name, value)


def option(default: Any, check: Check, help: str, group: str, **more: Any) -> Any:
    """Make a dataclass field that is an option; `more`: other fields of Option."""
    return field(
        default=default, metadata={_RECORD_KEY: Option(default, check, help, group, **more)}
    )


def options_of(kind: type[Any]) -> Mapping[str, Option]:
    """The option records of a dataclass by name, in order of its fields."""
    if kind not in _read:
        types = get_type_hints(kind)
        _read[kind] = MappingProxyType(
            {
                each.name: replace(
                    each.metadata[_RECORD_KEY], name=each.name, type=types[each.name]
                )
                for each in fields(kind)
                if _RECORD_KEY in each.metadata
            }
        )
    return _read[kind]


class Options:
    """Base of frozen dataclasses of options. Make one with `of`, which checks the values.

    `purpose` names in messages what the options are for. `call_arguments` are arguments of the
    method `call_name`, not options. `related` are classes of options of the same command that `of`
    does not take. `foreign_hints`: names that only other programs have -> what to use instead.
    """

    __slots__ = ()
    purpose: ClassVar[str]
    call_name: ClassVar[str] = ""
    call_arguments: ClassVar[tuple[str, ...]] = ()
    related: ClassVar[tuple[type[Any], ...]] = ()
    foreign_hints: ClassVar[Mapping[str, str]] = MappingProxyType({})

    @classmethod
    def of(cls, **options: Any) -> Self:
        """Check and normalise options. Raises UsageError, which names the option at fault."""
        known, remedies = options_of(cls), hints_for(cls)
        for name, value in options.items():
            if name in known:
                continue
            if name in cls.call_arguments:
                raise UsageError(f"{name} is not in {cls.__name__}: give it to {cls.call_name}")
            if name in remedies and value is not None:
                raise UsageError(f"{name} is not an option of {cls.purpose}; {remedies[name]}")
            if name not in remedies:
                names = (*cls.call_arguments, *known)
                near = get_close_matches(name, names, 1)
                hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(names)}"
                raise UsageError(f"unknown option {name}; {hint}")
        make: Any = cls
        checked: Self = make(
            **{name: known[name].normalize(options[name]) for name in options if name in known}
        )
        checked.check()
        return checked

    def check(self) -> None:
        """Raise UsageError for options that contradict each other."""

    def non_default(self, *names: str) -> list[str]:
        """Those of the named options whose value is not the default."""
        known = options_of(type(self))
        return [name for name in names if getattr(self, name) != known[name].default]


def hints_for(kind: type[Options]) -> Mapping[str, str]:
    """Names that are not options of a class -> what to use instead."""
    records = [each for other in kind.related for each in options_of(other).values()]
    commands = {each.name: each.python_hint for each in records if each.python_hint}
    return MappingProxyType({**kind.foreign_hints, **renamed_options(kind), **commands})


def renamed_options(kind: type[Options]) -> Mapping[str, str]:
    """Names in other programs of the options of a class and its command -> what to use instead."""
    remedies: dict[str, str] = {}
    for each in (kind, *kind.related):
        for record in options_of(each).values():
            remedies |= record.renamed_from
    return MappingProxyType(remedies)


T = TypeVar("T", bound=Options)


@dataclass(frozen=True, slots=True)
class SupportedOptions(Generic[T]):
    """The options of a task that a family of models supports; `of` refuses the others by name.

    `kind` is a class of options, `family` the family's name in messages. `names` are the supported
    options; None: those whose record names the family or no family. `refusals`: name of an
    unsupported option -> the family's own message, in which {value} is replaced by the value.
    `check` raises UsageError for values that only this family refuses. Raises UsageError for names
    that are not options of `kind`, and for refusals that are not format strings.
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
        if self.names is not None:  # an iterator can be read only once
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
        """Check and normalise options. Raises UsageError, also for an unsupported option."""
        checked = self.kind.of(**options)
        for record in options_of(self.kind).values():
            value = getattr(checked, record.name)
            if not self.supports(record) and value not in (record.default, *record.no_op_values):
                raise UsageError(self.unsupported_message(record, value))
        if self.check is not None:
            self.check(checked)
        return checked

    def supports(self, record: Option) -> bool:
        """Whether the family supports an option."""
        if self.names is not None:
            return record.name in self.names
        return not record.families or self.family in record.families

    def unsupported_message(self, record: Option, value: object) -> str:
        """The message for a value of an option that the family does not support."""
        if record.name in self.refusals:
            return self.refusals[record.name].format(value=value)
        if record.refusal:
            return f"{record.name} is not an option of {self.family}; {record.refusal}"
        remedy = f", or use a {record.families[0]} model" if record.families else ""
        return f"{self.family} does not support {record.name}: leave it out{remedy}"
