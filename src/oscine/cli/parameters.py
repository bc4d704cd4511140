"""Generates the parameters of Typer commands from option records."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Annotated, Any, TypeVar, get_args, get_origin

import typer

from oscine.cli.openai_style import OpenAIStyleCommand
from oscine.cli.option_names import flag_of, use_flags
from oscine.options import Group, Option, options_of

T = TypeVar("T")


def command(
    app: typer.Typer, *kinds: type[Any], style: type[OpenAIStyleCommand] = OpenAIStyleCommand
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorator: make a function the command of `app`, with the options of the records in `kinds`.

    The function declares its arguments itself and takes the options as keywords; `select_options`
    makes an instance of a kind from them.
    """

    def register(function: Callable[..., None]) -> Callable[..., None]:
        stated = inspect.signature(function, eval_str=True).parameters.values()
        generated = [
            to_parameter(record, heading)
            for heading, records in group_options(kinds).items()
            for record in records
        ]
        own = [each for each in stated if each.kind is not each.VAR_KEYWORD]
        function.__dict__["__signature__"] = inspect.Signature([*own, *generated])
        records = [record for kind in kinds for record in options_of(kind).values()]
        unique = frozenset(record.name for record in records if record.unique)
        styled = type(style.__name__, (style,), {"unique": unique})
        app.command(cls=styled)(function)
        return function

    return register


def select_options(kind: type[T], options: Mapping[str, Any]) -> T:
    """Make a `kind`, a class of options, from a command's keyword arguments."""
    return kind(**{name: options[name] for name in options_of(kind)})


def group_options(kinds: Sequence[type[Any]]) -> dict[str, list[Option]]:
    """Option records of all kinds by heading, in the order of Group.

    A heading also names the families, if all options of its group belong to the same ones.
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


def to_parameter(record: Option, heading: str) -> inspect.Parameter:
    """An option as a parameter of a command, with its help under `heading`."""
    return inspect.Parameter(
        record.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=cli_default_of(record),
        annotation=Annotated[cli_type(record)[0], typer_option(record, heading)],
    )


def cli_default_of(record: Option) -> Any:
    """The default value in the form of the command line."""
    return record.default if record.cli_default is None else record.cli_default


def declare_option(kind: type[Any], name: str) -> Any:
    """typer.Option for one option of a class, for a command that declares its parameters itself."""
    return typer_option(options_of(kind)[name])


def typer_option(record: Option, heading: str | None = None) -> Any:
    """typer.Option for an option record.

    The flag of an option with a value is explicit, since Typer 0.27 would take a metavar such as
    DEVICE for its name.
    """
    kind, parser, metavar = cli_type(record)
    named = () if kind in (bool, bool | None) else (flag_of(record.name),)
    default = f"  [default: {record.default_text}]" if record.default_text else ""
    return typer.Option(
        *(record.flags or named),
        help=use_flags(record.help + default),
        parser=parser,
        metavar=record.metavar or metavar,
        rich_help_panel=heading,
    )


def cli_type(record: Option) -> tuple[Any, Callable[[str], Any] | None, str | None]:
    """(type, parser, placeholder of the value) of an option on the command line."""
    if record.repeatable:
        return list[str], None, "TEXT"
    kind = record.type if record.cli_default is None else type(record.cli_default)
    for part in get_args(kind):
        if get_origin(part) is list:  # of a few words
            (words,) = get_args(part)
            return list[str] | None, comma_separated(get_args(words)), None
    return CLI_TYPES.get(kind, (kind, None, None))


def parse_float(text: str | float) -> float:
    """Parse a number. Raises typer.BadParameter."""
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a number") from None


def parse_int(text: str | int) -> int:
    """Parse an integer. Raises typer.BadParameter."""
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a whole number") from None


def optional(parser: Callable[[Any], T]) -> Callable[[Any], T | None]:
    """A parser that also accepts "None", as openai-whisper's optional_float does."""
    return lambda text: None if text is None or text == "None" else parser(text)


def optional_str(text: str | None) -> str | None:
    """Parse text; "None" gives None."""
    return None if text == "None" else text


def comma_separated(names: Sequence[str]) -> Callable[[str], str]:
    """A parser for a comma-separated list of `names` in any case; returns it in their case."""

    def parse(text: str) -> str:
        parts = [part.strip().lower() for part in text.split(",")]
        for part in parts:
            if part not in names:
                is_path = "." in part or "/" in part  # whisper.cpp's -f
                remedy = "; a recording is named without an option" if is_path else ""
                raise typer.BadParameter(f"{part!r} is not one of {', '.join(names)}{remedy}")
        return ",".join(parts)

    return parse


#: Types on the command line: see `cli_type`. "None" means None for optional numbers only; for text
#: it could be the text itself.
CLI_TYPES: Mapping[Any, tuple[Any, Callable[[str], Any] | None, str | None]] = {
    int: (int, parse_int, "NUMBER"),
    float: (float, parse_float, "NUMBER"),
    str: (str, None, "TEXT"),
    str | None: (str | None, None, "TEXT"),
    int | None: (int | None, optional(parse_int), "NUMBER"),
    float | None: (float | None, optional(parse_float), "NUMBER"),
    int | str | None: (str | None, optional_str, "TEXT"),
    Any: (str | None, None, "TEXT"),
}
