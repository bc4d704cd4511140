"""Option names and values as openai-whisper's command takes them, and the help in groups."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, ClassVar

from typer.core import TyperCommand

from oscine.errors import UsageError

COLUMN = 30  # least width of names in the help, so that all groups have one margin
BOOLEANS = {"true": True, "false": False}


class OpenAIStyle(TyperCommand):
    """Reads `--output_format` as `--output-format`, and `--fp16 False` as `--no-fp16`.

    `once`: names of options of which two could both be meant. The last one wins of others, as
    aliases rely on.
    """

    once: ClassVar[Collection[str]] = ()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Rewrite before parsing."""
        flags = {
            name
            for option in self.params
            if getattr(option, "is_flag", False)
            for name in (*option.opts, *option.secondary_opts)
        }
        rewritten = rewrite(args, flags)
        _, _, said = self.make_parser(ctx).parse_args([*rewritten])
        for option in said:
            if option.name in self.once and said.count(option) > 1:
                raise UsageError(f"{option.opts[0]} is given twice; leave one out")
        return super().parse_args(ctx, rewritten)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Help of the parameters, each group under its heading."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            is_option = parameter.param_type_name == "option"
            heading = getattr(parameter, "rich_help_panel", None)
            record = parameter.get_help_record(ctx)
            if record is not None:
                names, help = record
                group = heading or ("Help" if is_option else "Arguments")
                groups.setdefault(group, []).append((names.ljust(COLUMN), help))
        for heading, records in groups.items():
            with formatter.section(heading):
                formatter.write_dl(records)


def rewrite(arguments: Sequence[str], flags: Collection[str]) -> list[str]:
    """Dashes for underscores in option names; `--flag True|False` to `--flag` or `--no-flag`.

    `flags`: the options that take no value. Values and what follows `--` stay as they are. Raises
    UsageError for `--flag=value` with another value.
    """
    rewritten: list[str] = []
    waiting = list(arguments)
    while waiting:
        argument = waiting.pop(0)
        if argument == "--":
            return [*rewritten, argument, *waiting]
        if not argument.startswith("--"):
            rewritten.append(argument)
            continue
        name, equals, value = argument.partition("=")
        name = name.replace("_", "-")
        if name in flags:
            if not equals and waiting and waiting[0].lower() in BOOLEANS:
                value = waiting.pop(0)
            if equals and value.lower() not in BOOLEANS:
                raise UsageError(f"{name} is True or False, not {value!r}")
            wanted = BOOLEANS.get(value.lower(), True)
            rewritten.append(name if wanted else f"--no-{name.removeprefix('--')}")
        else:
            rewritten.append(name + equals + value)
            if not equals and waiting:
                rewritten.append(waiting.pop(0))
    return rewritten
