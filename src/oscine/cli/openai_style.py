"""Commands that accept openai-whisper's spelling of options, and groups of subcommands."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, ClassVar

from typer.core import TyperCommand, TyperGroup

from oscine.errors import UsageError
from oscine.options.aliases import resolve_alias

NAME_COLUMNS = 30  # minimum width of names in the help, so that all groups are aligned
MIN_COLUMNS = 60  # on narrower terminals help is printed below the names
BOOLEANS = {"true": True, "false": False}
DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"  # word processors replace - by these


class CommandGroup(TyperGroup):
    """A command with subcommands, which suggests the nearest name for a mistyped one."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The subcommand that `args` begin with. Raises UsageError for an unknown name."""
        names = self.list_commands(ctx)
        if args and args[0] not in names and not args[0].startswith("-"):
            near = get_close_matches(args[0].lower(), names, 1)
            hint = f"did you mean {near[0]}?" if near else f"the commands are {', '.join(names)}"
            raise UsageError(f"no such command {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)


class OpenAIStyleCommand(TyperCommand):
    """Reads `--output_format` as `--output-format`, and `--fp16 False` as `--no-fp16`.

    `unique`: names of options that may be given only once. For other options the last value wins,
    which aliases rely on.
    """

    unique: ClassVar[Collection[str]] = ()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Normalise arguments, then parse them. Raises UsageError for a repeated unique option."""
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
        """Names of arguments; some versions of Typer put required ones in braces."""
        return [re.sub(r"^\{(.*)\}$", r"\1", each) for each in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the help of the parameters, each group under its heading."""
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
    """Write the help of parameters for a narrow terminal, each below its names."""
    for names, help in records:
        formatter.write_text(names.strip())
        with formatter.indentation(), formatter.indentation():
            formatter.write_text(help)


def translate_foreign(
    arguments: Sequence[str], own: Mapping[str, bool], answers: Mapping[str, str]
) -> list[str]:
    """Replace other programs' options in `arguments` by those of this command: options/aliases.py.

    `own`: the command's options, and whether each takes a value. `answers`: unsupported option ->
    hint. Replacements that contain a value come first, so that an option given by its own name
    wins. Raises UsageError with the hint for an option that only another program has.
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
    """Replace underscores in option names by hyphens, and `--flag True|False` by `--[no-]flag`.

    `flags`: options without a value -> their negation; "" if there is none, and the option is then
    omitted. `names`: all options. Values and arguments after `--` are unchanged. Raises UsageError
    for `--flag=value` with another value, and for an option that begins with a Unicode dash.
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
    """Raise UsageError for an option with a Unicode dash, as copied from a web page."""
    if argument and argument[0] in DASHES:
        bare = argument.lstrip(DASHES + "-").partition("=")[0].replace("_", "-")
        meant = f"-{bare}" if len(bare) == 1 else f"--{bare}"
        if meant in names:
            raise UsageError(f"{argument} begins with a dash that is not a hyphen; write {meant}")
