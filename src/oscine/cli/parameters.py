"""Parameters of commands, made of the records of their options."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Annotated, Any, TypeVar, get_args, get_origin

import typer

from oscine.cli.openai_style import OpenAIStyle
from oscine.options import Group, Option, options_of

T = TypeVar("T")


def command(
    app: typer.Typer, *kinds: type[Any], style: type[OpenAIStyle] = OpenAIStyle
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A decorator: a function becomes the command of `app`, with the options of all `kinds`.

    The function states its arguments and takes the options as keywords, of which `chosen` makes
    a kind.
    """

    def register(function: Callable[..., None]) -> Callable[..., None]:
        stated = inspect.signature(function, eval_str=True).parameters.values()
        generated = [
            parameter(record, heading)
            for heading, records in in_groups(kinds).items()
            for record in records
        ]
        own = [each for each in stated if each.kind is not each.VAR_KEYWORD]
        function.__dict__["__signature__"] = inspect.Signature([*own, *generated])
        records = [record for kind in kinds for record in options_of(kind).values()]
        once = frozenset(record.name for record in records if record.once)
        styled = type(style.__name__, (style,), {"once": once})
        app.command(cls=styled, no_args_is_help=True)(function)
        return function

    return register


def chosen(kind: type[T], options: Mapping[str, Any]) -> T:
    """Of a command's options those of one kind."""
    return kind(**{name: options[name] for name in options_of(kind)})


def in_groups(kinds: Sequence[type[Any]]) -> dict[str, list[Option]]:
    """The records of all kinds by the heading of their group, in the order of the groups.

    A heading also names the families that alone take the options, where all of them say the same.
    """
    records = [record for kind in kinds for record in options_of(kind).values()]
    order = [*Group, *(record.group for record in records)]
    records.sort(key=lambda record: order.index(record.group))
    groups = {}
    for name, each in groupby(records, key=lambda record: record.group):
        group = list(each)
        families = {record.families for record in group}
        only = ", ".join(families.pop()) if len(families) == 1 else ""
        groups[f"{name} ({only})" if only else str(name)] = group
    return groups


def parameter(record: Option, heading: str) -> inspect.Parameter:
    """An option as a parameter of a command. Its help is under a heading."""
    return inspect.Parameter(
        record.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default_of(record),
        annotation=Annotated[form(record)[0], option(record, heading)],
    )


def default_of(record: Option) -> Any:
    """The default as the command line takes it."""
    return record.default if record.cli_default is None else record.cli_default


def declared(kind: type[Any], name: str) -> Any:
    """What Typer is told of an option of a kind, for a command that states its parameters."""
    return option(options_of(kind)[name])


def option(record: Option, heading: str | None = None) -> Any:
    """What Typer is told of an option.

    The flag of an option with a value is named, since Typer 0.27 takes a metavar such as DEVICE for
    the name of `device`.
    """
    kind, parser, metavar = form(record)
    named = () if kind in (bool, bool | None) else (f"--{record.name.replace('_', '-')}",)
    return typer.Option(
        *(record.flags or named),
        help=record.help + (f"  [default: {record.default_text}]" if record.default_text else ""),
        parser=parser,
        metavar=record.metavar or metavar,
        rich_help_panel=heading,
    )


def form(record: Option) -> tuple[Any, Callable[[str], Any] | None, str | None]:
    """What an option is on the command line: its type there, what reads it, its value's name."""
    kind = record.type if record.cli_default is None else type(record.cli_default)
    for part in get_args(kind):
        if get_origin(part) is list:  # of a few words
            (words,) = get_args(part)
            return list[str] | None, some_of(get_args(words)), None
    return FORMS.get(kind, (kind, None, None))


def number(text: str | float) -> float:
    """A number."""
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a number") from None


def whole(text: str | int) -> int:
    """A whole number."""
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a whole number") from None


def or_none(parser: Callable[[Any], T]) -> Callable[[Any], T | None]:
    """A parser that takes the word None as well, as openai-whisper's optional_float does."""
    return lambda text: None if text is None or text == "None" else parser(text)


def word(text: str | None) -> str | None:
    """Text, or None for the word."""
    return None if text == "None" else text


def some_of(names: Sequence[str]) -> Callable[[str], str]:
    """Some of the names in any case, with commas between; the result has these in their own."""

    def parse(text: str) -> str:
        parts = [part.strip().lower() for part in text.split(",")]
        for part in parts:
            if part not in names:
                is_path = "." in part or "/" in part  # whisper.cpp's -f
                remedy = "; a recording is named without an option" if is_path else ""
                raise typer.BadParameter(f"{part!r} is not one of {', '.join(names)}{remedy}")
        return ",".join(parts)

    return parse


#: Forms of types on the command line: see `form`. Only numbers that may be None are None by that
#: word, which could be meant as text.
FORMS: Mapping[Any, tuple[Any, Callable[[str], Any] | None, str | None]] = {
    int: (int, whole, "NUMBER"),
    float: (float, number, "NUMBER"),
    str: (str, None, "TEXT"),
    str | None: (str | None, None, "TEXT"),
    int | None: (int | None, or_none(whole), "NUMBER"),
    float | None: (float | None, or_none(number), "NUMBER"),
    int | str | None: (str | None, word, "TEXT"),
    Any: (str | None, None, "TEXT"),
}
