"""Option names and values as openai-whisper's command takes them, and the help in groups."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

from typer.core import TyperCommand

from oscine.errors import UsageError
from oscine.options.aliases import resolve_alias

NAME_COLUMNS = 30  # least width of names in the help, so that all groups have one margin
MIN_COLUMNS = 60  # columns below which help is under its names, not beside them
BOOLEANS = {"true": True, "false": False}
DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"  # what word processors make of -


class OpenAIStyleCommand(TyperCommand):
    """Reads `--output_format` as `--output-format`, and `--fp16 False` as `--no-fp16`.

    `unique`: names of options of which two could both be meant. The last one wins of others, as
    aliases rely on.
    """

    unique: ClassVar[Collection[str]] = ()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Rewrite before parsing."""
        flags: dict[str, str] = {}
        for option in self.params:
            if getattr(option, "is_flag", False):
                flags |= dict.fromkeys(option.opts, next(iter(option.secondary_opts), ""))
                flags |= dict.fromkeys(option.secondary_opts, option.opts[0])
        names = {name for option in self.params for name in option.opts + option.secondary_opts}
        rewritten = normalize_args(args, flags, names)
        _, _, said = self.make_parser(ctx).parse_args([*rewritten])
        for option in said:
            if option.name in self.unique and said.count(option) > 1:
                raise UsageError(f"{option.opts[0]} is given twice; leave one out")
        return super().parse_args(ctx, rewritten)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Names of arguments as they are; some Typers put those that are needed in braces."""
        return [re.sub(r"^\{(.*)\}$", r"\1", each) for each in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Help of the parameters, each group under its heading."""
        groups: dict[str, list[tuple[str, str]]] = {}
        headings = {getattr(each, "rich_help_panel", None) for each in self.params} - {None}
        for parameter in self.get_params(ctx):
            group = "Help" if headings else "Options"
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            names, help = record
            if parameter.param_type_name != "option":
                group, names = "Arguments", parameter.metavar or names  # some Typers add a type
            group = getattr(parameter, "rich_help_panel", None) or group
            groups.setdefault(group, []).append((names.ljust(NAME_COLUMNS), help))
        for heading, records in groups.items():
            with formatter.section(heading):
                if formatter.width >= MIN_COLUMNS:
                    formatter.write_dl(records)
                else:
                    write_stacked(formatter, records)


def write_stacked(formatter: Any, records: Sequence[tuple[str, str]]) -> None:
    """Help of parameters for a narrow terminal: each under its names."""
    for names, help in records:
        formatter.write_text(names.strip())
        with formatter.indentation(), formatter.indentation():
            formatter.write_text(help)


def translate_foreign(
    arguments: Sequence[str], own: Mapping[str, bool], answers: Mapping[str, str]
) -> list[str]:
    """Arguments with the options of other programs as those of here, see options/aliases.py.

    `own`: the command's options, and whether each takes a value. What another program's option
    stands for as a whole comes first, so that an option that is given by its own name wins. Raises
    UsageError for an option that only another program has, with its answer.
    """
    first: list[str] = []
    rest: list[str] = []
    waiting = list(arguments)
    while waiting:
        argument = waiting.pop(0)
        if argument == "--":
            return [*first, *rest, argument, *waiting]
        name, equals, value = argument.partition("=")
        following = value if equals else next(iter(waiting), None)
        taken = resolve_alias(name, following) if name.startswith("-") else None
        if taken is None:
            name = name.replace("_", "-") if name.startswith("--") else name
            if name not in own and name in answers:
                raise UsageError(f"there is no option {name}: {answers[name]}")
            rest.append(argument)
        else:
            meant, with_value = taken
            if with_value and not equals:
                del waiting[0]
            if meant in own:
                name = meant
                rest.append(name + equals + value)
            else:
                first += meant.split()
                rest += [value] if value and not with_value else []
        if own.get(name) and not equals and waiting:
            rest.append(waiting.pop(0))
    return [*first, *rest]


def normalize_args(
    arguments: Sequence[str], flags: Mapping[str, str], names: Collection[str] = ()
) -> list[str]:
    """Dashes for underscores in option names; `--flag True|False` to `--flag` or its opposite.

    `flags`: the options that take no value, and what is their opposite; "" where they have none, so
    that leaving them out is. `names`: all options. Values and what follows `--` stay as they are.
    Raises UsageError for `--flag=value` with another value, and for an option that begins with a
    dash that is not a hyphen.
    """
    rewritten: list[str] = []
    waiting = list(arguments)
    while waiting:
        argument = waiting.pop(0)
        if argument == "--":
            return [*rewritten, argument, *waiting]
        if not argument.startswith("--"):
            reject_unicode_dash(argument, names)
            rewritten.append(argument)
            continue
        name, equals, value = argument.partition("=")
        name = name.replace("_", "-")
        if name in flags:
            if not equals and waiting and waiting[0].lower() in BOOLEANS:
                value = waiting.pop(0)
            if equals and value.lower() not in BOOLEANS:
                raise UsageError(f"{name} is True or False, not {value!r}")
            if meant := name if BOOLEANS.get(value.lower(), True) else flags[name]:
                rewritten.append(meant)
        else:
            rewritten.append(name + equals + value)
            if not equals and waiting:
                rewritten.append(waiting.pop(0))
    return rewritten


def reject_unicode_dash(argument: str, names: Collection[str]) -> None:
    """Refuse what would be an option but for its dash, as it is copied from a web page."""
    if argument and argument[0] in DASHES:
        bare = argument.lstrip(DASHES + "-").partition("=")[0].replace("_", "-")
        meant = f"-{bare}" if len(bare) == 1 else f"--{bare}"
        if meant in names:
            raise UsageError(f"{argument} begins with a dash that is not a hyphen; write {meant}")
