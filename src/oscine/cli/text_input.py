"""Reads the text to speak from the command line, a file, or standard input as it arrives."""

from __future__ import annotations

import codecs
import os
import sys
from collections.abc import Iterator
from io import IncrementalNewlineDecoder
from pathlib import Path
from typing import Any

from oscine.audio.file_types import SUFFIXES as AUDIO_SUFFIXES
from oscine.cli.inputs import STANDARD_INPUT
from oscine.cli.jobs import expand_tilde
from oscine.errors import OscineError, UsageError
from oscine.files import is_device
from oscine.text.plain_text import plain_parts, plain_text

NOT_TEXT = "is not text in UTF-8; save or convert it as that"
REFERENCE_TEXT_HINT = "give the words that are said, in quotes, or a file that holds them"
MAX_BYTES = 16 << 20  # two weeks of speech
#: An argument of one word with such a suffix is taken for a file name, also if it does not exist.
SUFFIXES = AUDIO_SUFFIXES | frozenset(
    ".csv .doc .docx .epub .htm .html .json .log .md .odt .pdf .rst .rtf .srt .text .txt .vtt "
    ".xml".split()
)


def open_text(argument: str, *, plain: bool = False) -> str | Iterator[str]:
    """The argument itself, the contents of an existing file, or standard input (`-`) as it arrives.

    `plain`: convert Markdown to text that can be spoken.

    Raises UsageError for an empty text and for the name of a missing file, OscineError for a file
    that is empty or not UTF-8; a byte order mark is removed.
    """
    if argument == STANDARD_INPUT:
        if sys.stdin is None:
            raise OscineError("standard input: is closed; name a file")
        coming = read_stdin(sys.stdin.buffer)
        return plain_parts(coming) if plain else coming
    if not argument.strip():
        raise UsageError("there is no text to speak")
    found = read_if_file(
        argument, "give this text through -", "to speak this name, give it through -"
    )
    text = argument if found is None else found
    text = plain_text(text) if plain else text
    if (found is None or plain) and not any(map(str.isalnum, text)):
        raise UsageError(f"there is nothing to say in {argument!r}: no letter and no digit")
    return text


def split_lines(words: str | Iterator[str], *, plain: bool) -> list[tuple[int, str]]:
    """The non-empty lines of a text, each with its number from 1."""
    numbered = enumerate("".join(words).split("\n"), 1)
    filled = [(number, line.strip()) for number, line in numbered if line.strip()]
    return [(number, plain_text(line) if plain else line) for number, line in filled]


def open_reference_text(argument: str) -> str:
    """The transcript of a reference recording: the argument, or the contents of an existing file.

    Raises UsageError for the name of a missing file, OscineError for a file that is empty or not
    UTF-8.
    """
    if argument == STANDARD_INPUT:
        raise UsageError(
            f"standard input cannot be the words of a reference; {REFERENCE_TEXT_HINT}"
        )
    found = read_if_file(argument, REFERENCE_TEXT_HINT, REFERENCE_TEXT_HINT)
    return argument if found is None else found.strip()


def read_if_file(argument: str, instead_of_folder: str, instead_of_file: str) -> str | None:
    """The contents of a file; None if the argument does not look like a file name.

    Raises UsageError, with a remedy, for a folder and for a missing file.
    """
    argument = expand_tilde(argument)
    if os.path.isdir(argument):
        raise UsageError(f"{argument} is a folder; name a file in it, or {instead_of_folder}")
    if os.path.exists(argument):
        return read_file(Path(argument))
    suffix = os.path.splitext(argument)[1].lower()
    if suffix in SUFFIXES and len(argument.split()) == 1:
        raise UsageError(f"{argument}: no such file; {instead_of_file}")
    return None


def read_file(path: Path) -> str:
    """Read a whole file or pipe as text, with \\n as line ends. Raises UsageError, OscineError."""
    try:
        if is_device(path):
            raise UsageError(f"{path} is a device and not a text; give a text through -")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise OscineError(f"{path}: cannot be read: {error.strerror or error}") from error
    if len(data) > MAX_BYTES:
        raise OscineError(f"{path}: is larger than {MAX_BYTES >> 20} MiB; give it in parts")
    decoder = TextDecoder(str(path))
    text = decoder.decode(data) + decoder.decode(b"", last=True)
    if not text.strip():
        raise OscineError(f"{path}: is empty; there is no text to speak")
    return text


def read_stdin(file: Any) -> Iterator[str]:
    """Yield text as it arrives. Raises OscineError if all of it is empty."""
    decoder = TextDecoder("standard input")
    spoken = False
    while data := read_some(file):
        if text := decoder.decode(data):
            spoken = spoken or not text.isspace()
            yield text
    text = decoder.decode(b"", last=True)
    if not spoken and not text.strip():
        raise OscineError("standard input: is empty; there is no text to speak")
    yield text


def read_some(file: Any) -> bytes:
    """The bytes that have arrived; waits for at least one, empty at the end."""
    try:
        data: bytes = file.read1(1 << 16)
    except OSError as error:
        problem = f"standard input: cannot be read: {error.strerror or error}"
        raise OscineError(problem) from error
    return data


class TextDecoder:
    """Incremental UTF-8 decoder that removes a byte order mark and normalises line ends."""

    def __init__(self, name: str) -> None:
        self._name = name
        utf8 = codecs.getincrementaldecoder("utf-8-sig")()
        self._decoder = IncrementalNewlineDecoder(utf8, translate=True)

    def decode(self, data: bytes, *, last: bool = False) -> str:
        """Decode the complete characters so far. Raises OscineError if it is not text."""
        try:
            text = self._decoder.decode(data, final=last)
        except UnicodeDecodeError:
            raise OscineError(f"{self._name}: {NOT_TEXT}") from None
        if "\0" in text:
            raise OscineError(f"{self._name}: {NOT_TEXT}")
        return text
