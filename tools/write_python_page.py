"""Write docs/python.md, the reference of the Python API, from its docstrings: `make pages`.

tests/test_readme.py fails where the page is not what this writes.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import oscine
from oscine import errors, formats, probe
from oscine import types as results
from oscine.audio.write import AudioWriter
from oscine.models.parakeet.pipeline import Parakeet
from oscine.models.qwen3_tts.pipeline import Qwen3Tts
from oscine.models.qwen3_tts.stream import SpeechStream
from oscine.models.qwen3_tts.voices import Voice
from oscine.models.speech import Speech, SpokenPiece
from oscine.models.transcription import Transcription
from oscine.models.whisper.pipeline import Whisper

PAGE = Path(__file__).resolve().parent.parent / "docs" / "python.md"
MAX_WIDTH = 96  # characters of a signature on one line
MAX_DEFAULT = 30  # characters of a default value that is shown
HEAD = """\
# Python reference

`make pages` writes this page from the docstrings. [Speech to text](transcribe.md#python) and
[text to speech](speak.md#python) have examples. The options of `transcribe`, `stream` and `speak`
are those of the [command line](cli.md), with underscores: `--beam-size 5` is `beam_size=5`.
`model.engine` shows how full the batches are ([engine](engine.md#how-to-observe-it)).

Names in the signatures: `SourceLike` is a path, `"-"` for standard input, bytes, a binary file, an
array at 16 kHz, or `(array, rate)`. `Progress` is a function of the seconds done and the seconds in
total, or `True` for a bar. `Cancel` is a function that returns whether to stop, or a
`threading.Event`. `Samples` is a float32 array of shape [n].
"""
#: Parts of a docstring whose indented lines describe names.
DESCRIBED = ("Args", "Attributes")
PARTS = (*DESCRIBED, "Raises", "Returns", "Yields")


def public_models() -> list[type[Any]]:
    """The classes of models with their base classes, each base class before its subclasses."""
    found: dict[type[Any], None] = {}
    for model in (Whisper, Parakeet, Qwen3Tts):
        bases = [base for base in model.__mro__ if base.__module__.startswith("oscine.")]
        found |= dict.fromkeys(reversed(bases))
    return list(found)


def section(title: str, entries: list[Any]) -> Iterator[str]:
    """A heading of the second rank, and each class or function below it."""
    yield f"## {title}\n"
    for entry in entries:
        yield from class_lines(entry) if inspect.isclass(entry) else function_lines(entry)


def class_lines(kind: type[Any]) -> Iterator[str]:
    """A class: its docstring, its fields, and its own public methods and properties."""
    yield f"### {kind.__name__}\n"
    yield markdown(kind)
    if dataclasses.is_dataclass(kind):
        fields = [f"    {each.name}: {each.type}" for each in dataclasses.fields(kind)]
        yield code("\n".join([f"class {kind.__name__}:", *fields]))
    for name, member in vars(kind).items():
        if not name.startswith("_") and (callable(member) or isinstance(member, property)):
            yield from function_lines(member, kind.__name__)


def function_lines(member: Any, owner: str = "") -> Iterator[str]:
    """A function, method or property: its signature and its docstring."""
    is_property = isinstance(member, property)
    function = member.fget if is_property else member
    name = function.__name__
    yield f"{'####' if owner else '###'} {f'{owner}.' if owner else ''}{name}\n"
    signature = inspect.signature(function)
    if is_property:
        yield code(f"{name}: {annotation_text(signature.return_annotation)}")
    else:
        yield code(signature_text(function, signature))
    yield markdown(member)


def signature_text(function: Callable[..., Any], signature: inspect.Signature) -> str:
    """A call with annotations and defaults, one parameter a line if it is long."""
    parameters = [p for p in signature.parameters.values() if p.name != "self"]
    parts: list[str] = []
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in "".join(p[:1] for p in parts):
            parts.append("*")
        parts.append(parameter_text(parameter))
    start = "async def " if inspect.iscoroutinefunction(function) else "def "
    start += function.__name__
    end = (
        ""
        if signature.return_annotation is inspect.Signature.empty
        else (f" -> {annotation_text(signature.return_annotation)}")
    )
    whole = f"{start}({', '.join(parts)}){end}"
    if len(whole) <= MAX_WIDTH:
        return whole
    lines = "".join(f"    {part},\n" for part in parts)
    return f"{start}(\n{lines}){end}"


def parameter_text(parameter: inspect.Parameter) -> str:
    """A parameter as it is written in a signature."""
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    text = stars + parameter.name
    if parameter.annotation is not inspect.Parameter.empty:
        text += f": {annotation_text(parameter.annotation)}"
    if parameter.default is not inspect.Parameter.empty:
        default = repr(parameter.default)
        text += f" = {default if len(default) <= MAX_DEFAULT else '...'}"
    return text


def annotation_text(annotation: Any) -> str:
    """A type as it is written: a string where annotations are not evaluated, else a class."""
    if isinstance(annotation, str):
        return annotation
    return inspect.formatannotation(annotation)


def markdown(member: Any) -> str:
    """A docstring as Markdown; what is indented without a heading of PARTS stays a code block."""
    lines, part = [], ""
    for line in (inspect.getdoc(member) or "").splitlines():
        if line.rstrip(":") in PARTS and line.endswith(":"):
            part = line.rstrip(":")
            lines += [f"**{part}**", ""]
        elif part and (line.startswith("    ") or not line):
            text = line[4:]
            named = re.match(r"(\*{0,2}\w+): ", text) if part in DESCRIBED else None
            lines.append(f"- `{named[1]}`: {text[named.end() :]}" if named else hang(text, part))
        else:
            part = ""
            if re.match(r"`[\w*]+`: ", line):
                line = f"- {line}"
            elif line.startswith("Raises ") and lines and lines[-1]:
                lines.append("")
            lines.append(line)
    return "\n".join(lines).strip() + "\n"


def hang(text: str, part: str) -> str:
    """A line that continues an item of a list, or a paragraph."""
    return f"  {text.strip()}" if text and part in DESCRIBED else text


def code(text: str) -> str:
    """A block of code that is read, and not run by the tests."""
    return f"```py\n{text}\n```\n"


def text() -> str:
    """The page as one text."""
    functions = [getattr(oscine, name) for name in ("load", "transcribe", "speak")]
    functions += [getattr(oscine, name) for name in ("plain_text", "register")]
    types = [kind for kind in vars(results).values() if inspect.isclass(kind)]
    types = [kind for kind in types if kind.__module__ == results.__name__]
    problems = [kind for kind in vars(errors).values() if inspect.isclass(kind)]
    problems = [kind for kind in problems if kind.__module__ == errors.__name__]
    tree = (errors.__doc__ or "").partition("\n\n")[2]
    lines = [
        HEAD,
        *section("oscine", functions),
        *section("Models", public_models()),
        *section("Results", [Transcription, SpeechStream, *types, Speech, SpokenPiece, Voice]),
        *section("Files and stages", [formats.render, AudioWriter, probe.probing]),
        "## oscine.errors\n",
        inspect.cleandoc(f"\n{tree}"),
        "",
    ]
    for kind in problems:
        lines += [f"### {kind.__name__}\n", markdown(kind)]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(text(), "utf-8")
