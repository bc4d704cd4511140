"""Spells the options in messages of the library as flags: `beam_size=5` becomes --beam-size 5.

The library names an option as Python does, since it does not know its caller. These forms become
flags: an option with a value or `=`; a name with an underscore; and a name of one word where the
wording shows that it is an option, as in "patience needs". File names are unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from oscine.options import Option, options_of
from oscine.options.command import SpeakCommand, TranscribeCommand
from oscine.options.layout import Layout
from oscine.options.mcp import McpOptions
from oscine.options.serve import ServeOptions
from oscine.options.speak import SpeakOptions, VoiceOptions
from oscine.options.transcribe import TranscribeOptions

_KINDS = (
    TranscribeCommand,
    TranscribeOptions,
    Layout,
    SpeakCommand,
    VoiceOptions,
    SpeakOptions,
    ServeOptions,
    McpOptions,
)
_BEFORE = r"(?<![\w./\\=-])"  # no part of a path, a flag or a longer name
_AFTER = r"(?![\w/\\=-]|\.\w)"
_WITH_VALUE = re.compile(rf"""{_BEFORE}(?<!\w\()([a-z]\w*)=("[^"]*"|'[^']*'|[\w.:+-]*\w|)""")
_WITH_UNDERSCORE = re.compile(rf"{_BEFORE}([a-z0-9]+(?:_[a-z0-9]+)+){_AFTER}")
_ONE_WORD = re.compile(
    rf"{_BEFORE}([a-z0-9]+)(?= (?:needs|must|does not go with|is for|is not an option)\b)"
    rf"|(?<=does not support )([a-z0-9]+){_AFTER}"
)


@cache
def _records() -> Mapping[str, Option]:
    """All options of the commands by name."""
    return {name: each for kind in _KINDS for name, each in options_of(kind).items()}


def flag_of(name: str) -> str:
    """The flag of an option, such as --beam-size for beam_size."""
    return f"--{name.replace('_', '-')}"


def use_flags(message: str) -> str:
    """A message of the library with its options spelled as on the command line."""
    message = _WITH_VALUE.sub(_flag_with_value, message)
    message = _WITH_UNDERSCORE.sub(_flag, message)
    return _ONE_WORD.sub(_flag, message)


def _flag(match: re.Match[str]) -> str:
    name = next(each for each in match.groups() if each is not None)
    return flag_of(name) if name in _records() else match[0]


def _flag_with_value(match: re.Match[str]) -> str:
    name, value = match.groups()
    if name not in _records():
        return match[0]
    if value in ("True", "False"):
        return flag_of(name if value == "True" else f"no_{name}")
    bare = value.strip("\"'")
    return f"{flag_of(name)} {value if len(bare.split()) > 1 else bare}".rstrip()
