"""Saved voices: what cloning takes from a reference, in one file that holds data alone.

A safetensors file: `speaker` [D] float32, and where the reference's text is known `codes` [R, G]
int32; its metadata say what it is. Reading it executes nothing.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oscine.errors import CheckpointError, OscineError, UsageError
from oscine.family import LIST_VOICES
from oscine.files import AtomicFile, expand_user, is_special, write_error
from oscine.models.qwen3_tts.config import MODEL_SIZES, Qwen3TtsConfig
from oscine.models.qwen3_tts.prompt import Reference
from oscine.options.checks import abbreviate
from oscine.text.qwen import checked_text
from oscine.weights.mapped_file import MappedFile
from oscine.weights.safetensors import read_metadata, read_safetensors, serialize

SUFFIX = ".safetensors"
FORMAT, VERSION = "oscine voice", "1"
MAX_FILE_BYTES = 64 << 20  # a reference of an hour is 3 MB
MAX_TEXT_CHARACTERS = 100_000  # characters
MAX_SPEAKER_VALUE = 1e6  # of a speaker's vector; those of released models stay far below
REMEDY = "save the voice again"
#: Names that Windows keeps for itself, with any suffix.
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
_NAME = re.compile(r"\w(?:[\w .()-]{0,62}[\w()-])?")  # after `_without_marks`
_JOINERS = "\u200c\u200d"  # that some scripts need within a word


@dataclass(frozen=True, slots=True, eq=False)
class Voice:
    """Whom to sound like: speaker [D] float32; codes [R, G] uint32 and the text said in them, or
    neither. `size`: of the model that made it, "0b6" or "1b7", which alone understands it."""

    name: str
    speaker: NDArray[np.float32]
    codes: NDArray[np.uint32] | None = None
    text: str | None = None
    size: str = ""

    def __repr__(self) -> str:
        frames = "" if self.codes is None else f", {len(self.codes)} frames of {self.text!r:.40}"
        return f"<Voice {self.name!r}, made with {describe_size(self)}{frames}>"

    def reference(self, config: Qwen3TtsConfig, x_vector_only: bool | None = None) -> Reference:
        """As a prompt takes it. Raises UsageError where the voice is not for this model.

        x_vector_only: True without codes, False not without; None: with them where there are any.
        """
        if (problem := find_problem(self)) is not None:
            raise UsageError(f"voice {self.name!r} {problem}; save it again")
        width = len(self.speaker)
        if width != config.talker.hidden_size:
            raise UsageError(
                f"voice {self.name!r} has a speaker's vector of {width} values, this model's have "
                f"{config.talker.hidden_size}; save the voice again with it"
            )
        if self.codes is None and x_vector_only is False:
            raise UsageError(
                f"voice {self.name!r} was saved without text, so only its speaker's vector is "
                "there; save it again with the text that is said"
            )
        if self.codes is None or x_vector_only:
            return Reference(self.speaker)
        groups = self.codes.shape[1]
        if groups != config.num_code_groups or int(self.codes.max()) >= config.codec.codebook_size:
            raise UsageError(
                f"voice {self.name!r} has codes of another codec: {groups} a frame up to "
                f"{int(self.codes.max())}, this model has {config.num_code_groups} up to "
                f"{config.codec.codebook_size - 1}; save the voice again with it"
            )
        return Reference(self.speaker, self.codes, self.text)


def describe_size(voice: Voice) -> str:
    """The size of the model that made it, in words."""
    return f"a {MODEL_SIZES[voice.size]} model" if voice.size in MODEL_SIZES else "another model"


class VoiceFolder:
    """The saved voices of a folder, one file each. Nothing outside of it is ever touched."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def names(self) -> list[str]:
        """Of all that are there, sorted."""
        return sorted(self._files())

    def has(self, name: str) -> bool:
        """Whether a voice of that name is there, in whatever case and form it is written."""
        return is_valid_name(name) and os.path.isfile(self.path_of(name))

    def path_of(self, name: str) -> Path:
        """Where a voice of that name lies: one that is there, in whatever case and Unicode form it
        is written.

        Some systems take names that differ only so for one, so all of them do here. Raises
        UsageError for what is no name.
        """
        if not is_valid_name(name):
            raise UsageError(
                f"{name!r} is no name for a voice: give 1 to 64 letters, digits, spaces or ._-()"
            )
        name, files = nfc(name), self._files()
        if name not in files:
            alike = (other for other in sorted(files) if caseless_key(other) == caseless_key(name))
            name = next(alike, name)
        return files.get(name, self.path / f"{name}{SUFFIX}")

    def _files(self) -> dict[str, Path]:
        """Files of voices by name."""
        try:
            found = [p for p in self.path.iterdir() if p.suffix == SUFFIX and p.is_file()]
        except OSError:
            return {}
        return {nfc(path.stem): path for path in sorted(found) if is_valid_name(path.stem)}

    def path_to_write(self, name: str) -> Path:
        """The file to write a voice of that name to.

        Raises UsageError for an invalid name, for LIST_VOICES, and where the path is taken by
        something else than a file, such as a folder.
        """
        path = self.path_of(name)
        if name.lower() == LIST_VOICES:
            raise UsageError(f"{name!r} as a voice lists those there are; give another name")
        if not os.path.islink(path) and is_special(path):
            raise UsageError(f"{path}: is there and is no file; take it away, or give another name")
        return path

    def save(self, name: str, voice: Voice) -> Path:
        """Write a voice under a name, in place of one that had it. Returns the file.

        Raises UsageError for what is no name or no voice that could be read again, OscineError
        where the disk does not allow it.
        """
        path = self.path_to_write(name)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise write_error(self.path, error) from error
        write_voice(path, voice)
        return path

    def load(self, name: str | Path) -> Voice:
        """A saved voice by name, or any file of one by its path.

        Raises UsageError where there is none, CheckpointError for a file that is damaged.
        """
        text = str(name)
        if isinstance(name, Path) or text.endswith(SUFFIX) or "/" in text or "\\" in text:
            return read_voice(expand_user(name))
        path = self.path_of(text)
        if not os.path.isfile(path):
            known = ", ".join(self.names()) or "none yet"
            raise UsageError(f"no voice is saved as {text!r}; saved: {known}")
        return read_voice(path)

    def remove(self, name: str) -> None:
        """Delete a saved voice. Raises UsageError where there is none."""
        path = self.path_of(name)
        try:
            path.unlink()
        except FileNotFoundError:
            known = ", ".join(self.names()) or "none"
            raise UsageError(f"no voice is saved as {name!r}; saved: {known}") from None
        except OSError as error:
            raise OscineError(f"{path}: cannot be removed: {error.strerror or error}") from error


def is_valid_name(name: str) -> bool:
    """Whether a voice may be called so: no path, nothing hidden, nothing a system keeps."""
    name = nfc(name)
    return (
        _NAME.fullmatch(_marks_as_letters(name)) is not None and _RESERVED.fullmatch(name) is None
    )


def nfc(name: str) -> str:
    """The same name in Unicode's form NFC: some systems write and give others."""
    return unicodedata.normalize("NFC", name)


def caseless_key(name: str) -> str:
    """What names that differ in case and canonical form alone have in common.

    Source: the Unicode Standard, 3.13, canonical caseless matching.
    """
    return unicodedata.normalize("NFD", unicodedata.normalize("NFD", name).casefold())


def _marks_as_letters(name: str) -> str:
    """As the pattern of names takes it: what combines with a letter before it stands as one."""
    rest = ("x" if c in _JOINERS or unicodedata.category(c)[0] == "M" else c for c in name[1:])
    return name[:1] + "".join(rest)


def check_reference_text(text: object, name: str = "the text of a voice") -> str:
    """What is said in a reference, as a file can hold it.

    Raises UsageError for what is no text, says nothing, or is as long as no recording.
    """
    if not isinstance(text, str):
        raise UsageError(f"{name} must be text, not {abbreviate(text)}")
    if not text.strip():
        raise UsageError(
            f"{name} is empty: give the words that are said in the reference, or leave it out to "
            "take the voice alone"
        )
    if len(text) > MAX_TEXT_CHARACTERS:
        raise UsageError(
            f"{name} has {len(text)} characters; a reference says {MAX_TEXT_CHARACTERS} at most"
        )
    return checked_text(text, name)


def find_problem(voice: Voice) -> str | None:
    """What no model makes, if it is in a voice: numbers that would drown the others."""
    speaker = voice.speaker
    if speaker.dtype != np.float32 or speaker.ndim != 1 or not len(speaker):
        return "has no speaker's vector"
    if not np.isfinite(speaker).all():
        return "has a speaker's vector that is not finite"
    largest = float(np.abs(speaker).max())
    if largest > MAX_SPEAKER_VALUE:
        return f"has a speaker's vector of values up to {largest:.3g}, as no model makes them"
    return None


def write_voice(path: Path, voice: Voice) -> None:
    """A voice as a file, which has its name once it is whole; a link of that name is replaced.

    Raises UsageError for a voice that could not be read again, OscineError.
    """
    if (problem := find_problem(voice)) is not None:
        raise UsageError(f"voice {voice.name!r} {problem}; it is not saved")
    tensors: dict[str, NDArray[Any]] = {"speaker": voice.speaker.astype("<f4")}
    details = {"format": FORMAT, "version": VERSION, "size": voice.size}
    if voice.codes is not None and voice.text is not None:
        tensors["codes"] = voice.codes.astype("<i4")
        details["text"] = check_reference_text(voice.text)
    data = serialize(tensors, details)
    if len(data) > MAX_FILE_BYTES:
        raise UsageError(
            f"voice {voice.name!r} takes {len(data)} bytes; {MAX_FILE_BYTES} are the most"
        )
    new = AtomicFile(path, over_link=True)
    try:
        try:
            new.file.write(data)
        except OSError as error:
            raise write_error(path, error) from error
        new.keep()
    finally:
        new.discard()


def read_voice(path: Path) -> Voice:
    """A voice from a file. Raises CheckpointError for anything else, UsageError for no file."""
    if not os.path.isfile(path):  # Path's own raises for a name that is too long
        raise UsageError(f"{path}: no such file; give a saved voice's name or the path of its file")
    with with_voice_remedy(path):
        if MappedFile(path).size > MAX_FILE_BYTES:
            raise CheckpointError(path, "is too large for a saved voice", REMEDY)
        details = read_voice_metadata(path)
        tensors = {name: entry.read() for name, entry in read_safetensors(path).tensors.items()}
    codes, text = tensors.get("codes"), details.get("text", "")
    if "speaker" not in tensors:
        raise CheckpointError(path, "has no speaker's vector", REMEDY)
    speaker = tensors["speaker"].copy()  # not the file's pages, which may be replaced under us
    bare = Voice(path.stem, speaker, size=details.get("size", ""))
    wrong = find_problem(bare)
    if wrong is not None:
        raise CheckpointError(path, wrong, REMEDY)
    if codes is None or not text.strip():
        return bare
    if codes.dtype != np.int32 or codes.ndim != 2 or not codes.size or codes.min() < 0:
        raise CheckpointError(path, "has codes that are none", REMEDY)
    try:
        check_reference_text(text, "its text")
    except UsageError as error:
        raise CheckpointError(path, str(error), REMEDY) from None
    return replace(bare, codes=codes.astype(np.uint32), text=text)


@contextmanager
def with_voice_remedy(path: Path) -> Iterator[None]:
    """Damage that any such file may have, with the remedy for a voice's."""
    try:
        yield
    except CheckpointError as error:
        if error.path != path or not error.remedy or "voice" in error.remedy:
            raise
        raise CheckpointError(path, error.problem, REMEDY) from None


def read_voice_metadata(path: Path) -> dict[str, str]:
    """What a voice's file says of it. Raises CheckpointError for any other file."""
    details = read_metadata(path)
    if details.get("format") != FORMAT:
        raise CheckpointError(path, "holds no saved voice", "make one with `oscine voices save`")
    if not all(isinstance(value, str) for value in details.values()):
        raise CheckpointError(path, "describes its voice with other things than texts", REMEDY)
    if details.get("version") != VERSION:
        problem = f"holds a voice of version {details.get('version')!r}, not {VERSION}"
        raise CheckpointError(path, problem, "update oscine, or " + REMEDY)
    return details
