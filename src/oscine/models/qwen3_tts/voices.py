"""Saved voices: a speaker embedding and, with a transcript, the codes of the reference, in one
file.

The file is safetensors: `speaker` [D] float32 and optionally `codes` [R, G] int32, with a
description in its metadata. Reading it executes no code.
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
from oscine.text.qwen import check_characters
from oscine.weights.mapped_file import MappedFile
from oscine.weights.safetensors import read_metadata, read_safetensors, serialize

SUFFIX = ".safetensors"
FORMAT, VERSION = "oscine voice", "1"
MAX_FILE_BYTES = 64 << 20  # a reference of an hour is 3 MB
MAX_TEXT_CHARACTERS = 100_000  # characters
MAX_SPEAKER_VALUE = 1e6  # of a speaker embedding; released models' are far smaller
REMEDY = "save the voice again"
#: Names that Windows reserves, with any suffix.
_RESERVED_NAME_PATTERN = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
_NAME_PATTERN = re.compile(r"\w(?:[\w .()-]{0,62}[\w()-])?")  # after `_without_marks`
_JOINERS = "\u200c\u200d"  # needed within words of some scripts


@dataclass(frozen=True, slots=True, eq=False)
class Voice:
    """A voice to clone: speaker [D] float32; codes [R, G] uint32 and their text, or neither.

    `size`: "0b6" or "1b7", the size of the model that made it; only models of that size can use it.
    """

    name: str
    speaker: NDArray[np.float32]
    codes: NDArray[np.uint32] | None = None
    text: str | None = None
    size: str = ""

    def __repr__(self) -> str:
        frames = "" if self.codes is None else f", {len(self.codes)} frames of {self.text!r:.40}"
        return f"<Voice {self.name!r}, made with {describe_size(self)}{frames}>"

    def reference(self, config: Qwen3TtsConfig, x_vector_only: bool | None = None) -> Reference:
        """The reference for a prompt. Raises UsageError if the voice does not suit this model.

        x_vector_only: True: without codes; False: codes are required; None: with codes if there are
        any.
        """
        if (problem := speaker_embedding_problem(self)) is not None:
            raise UsageError(f"voice {self.name!r} {problem}; save it again")
        width = len(self.speaker)
        if width != config.talker.hidden_size:
            raise UsageError(
                f"voice {self.name!r} has a speaker embedding of {width} values, this model's have "
                f"{config.talker.hidden_size}; save the voice again with it"
            )
        if self.codes is None and x_vector_only is False:
            raise UsageError(
                f"voice {self.name!r} was saved without text and has only a speaker embedding; "
                "save it again with its transcript"
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
    """The size of the model that made a voice, for messages."""
    return f"a {MODEL_SIZES[voice.size]} model" if voice.size in MODEL_SIZES else "another model"


class VoiceFolder:
    """The saved voices of a folder, one file each. No other file is touched."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def names(self) -> list[str]:
        """The names of all saved voices, sorted."""
        return sorted(self._files())

    def has(self, name: str) -> bool:
        """Whether a voice of that name is saved, in any case and Unicode form."""
        return is_valid_name(name) and os.path.isfile(self.path_of(name))

    def path_of(self, name: str) -> Path:
        """The path of a voice: an existing file's in any case and Unicode form, else a new one.

        Names that differ only so are one name, as on some file systems. Raises UsageError for an
        invalid name.
        """
        if not is_valid_name(name):
            raise UsageError(
                f"{name!r} is not a valid name of a voice: give 1 to 64 letters, digits, spaces "
                "or ._-()"
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
            raise UsageError(f"{name!r} as a voice lists the saved voices; give another name")
        if not os.path.islink(path) and is_special(path):
            raise UsageError(f"{path}: exists and is not a file; remove it, or give another name")
        return path

    def save(self, name: str, voice: Voice) -> Path:
        """Save a voice under a name, replacing a voice of that name. Returns the file.

        Raises UsageError for an invalid name or voice, OscineError if the file cannot be written.
        """
        path = self.path_to_write(name)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise write_error(self.path, error) from error
        write_voice(path, voice)
        return path

    def load(self, name: str | Path) -> Voice:
        """Load a saved voice by name, or any voice file by its path.

        Raises UsageError if it does not exist, CheckpointError for a damaged file.
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
        """Delete a saved voice. Raises UsageError if it does not exist."""
        path = self.path_of(name)
        try:
            path.unlink()
        except FileNotFoundError:
            known = ", ".join(self.names()) or "none"
            raise UsageError(f"no voice is saved as {name!r}; saved: {known}") from None
        except OSError as error:
            raise OscineError(f"{path}: cannot be removed: {error.strerror or error}") from error


def is_valid_name(name: str) -> bool:
    """Whether a voice may have this name: no path, no hidden file, no name that a system
    reserves.
    """
    name = nfc(name)
    return (
        _NAME_PATTERN.fullmatch(_marks_as_letters(name)) is not None
        and _RESERVED_NAME_PATTERN.fullmatch(name) is None
    )


def nfc(name: str) -> str:
    """The name in Unicode's form NFC; some systems return other forms."""
    return unicodedata.normalize("NFC", name)


def caseless_key(name: str) -> str:
    """A key that names differing only in case and canonical form have in common.

    Source: the Unicode Standard, 3.13, canonical caseless matching.
    """
    return unicodedata.normalize("NFD", unicodedata.normalize("NFD", name).casefold())


def _marks_as_letters(name: str) -> str:
    """The name with each combining mark as a letter, for the pattern of names."""
    rest = ("x" if c in _JOINERS or unicodedata.category(c)[0] == "M" else c for c in name[1:])
    return name[:1] + "".join(rest)


def check_reference_text(text: object, name: str = "the text of a voice") -> str:
    """The transcript of a reference, checked so that a file can hold it.

    Raises UsageError if it is not a str, is empty or too long.
    """
    if not isinstance(text, str):
        raise UsageError(f"{name} must be text, not {abbreviate(text)}")
    if not text.strip():
        raise UsageError(
            f"{name} is empty: give the transcript of the reference, or leave it out to use the "
            "speaker embedding alone"
        )
    if len(text) > MAX_TEXT_CHARACTERS:
        raise UsageError(f"{name} has {len(text)} characters; at most {MAX_TEXT_CHARACTERS} fit")
    return check_characters(text, name)


def speaker_embedding_problem(voice: Voice) -> str | None:
    """Why a speaker embedding is invalid, such as values that no model produces; None if it is
    valid.
    """
    speaker = voice.speaker
    if speaker.dtype != np.float32 or speaker.ndim != 1 or not len(speaker):
        return "has no speaker embedding"
    if not np.isfinite(speaker).all():
        return "has a speaker embedding that is not finite"
    largest = float(np.abs(speaker).max())
    if largest > MAX_SPEAKER_VALUE:
        return f"has a speaker embedding with values up to {largest:.3g}, which is out of range"
    return None


def write_voice(path: Path, voice: Voice) -> None:
    """Write a voice to a file, which appears under its name when complete; a link is replaced.

    Raises UsageError for a voice that could not be read again, OscineError.
    """
    if (problem := speaker_embedding_problem(voice)) is not None:
        raise UsageError(f"voice {voice.name!r} {problem}; it is not saved")
    tensors: dict[str, NDArray[Any]] = {"speaker": voice.speaker.astype("<f4")}
    details = {"format": FORMAT, "version": VERSION, "size": voice.size}
    if voice.codes is not None and voice.text is not None:
        tensors["codes"] = voice.codes.astype("<i4")
        details["text"] = check_reference_text(voice.text)
    data = serialize(tensors, details)
    if len(data) > MAX_FILE_BYTES:
        raise UsageError(
            f"voice {voice.name!r} takes {len(data)} bytes; the limit is {MAX_FILE_BYTES}"
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
    """Read a voice from a file. Raises CheckpointError for an invalid file, UsageError for a
    missing one.
    """
    if not os.path.isfile(path):  # Path.is_file raises for a name that is too long
        raise UsageError(f"{path}: no such file; give a saved voice's name or the path of its file")
    with with_voice_remedy(path):
        if MappedFile(path).size > MAX_FILE_BYTES:
            raise CheckpointError(path, "is too large for a saved voice", REMEDY)
        details = read_voice_metadata(path)
        tensors = {name: entry.read() for name, entry in read_safetensors(path).tensors.items()}
    codes, text = tensors.get("codes"), details.get("text", "")
    if "speaker" not in tensors:
        raise CheckpointError(path, "has no speaker embedding", REMEDY)
    speaker = tensors["speaker"].copy()  # not a view of the file, which may be replaced
    bare = Voice(path.stem, speaker, size=details.get("size", ""))
    wrong = speaker_embedding_problem(bare)
    if wrong is not None:
        raise CheckpointError(path, wrong, REMEDY)
    if codes is None or not text.strip():
        return bare
    if codes.dtype != np.int32 or codes.ndim != 2 or not codes.size or codes.min() < 0:
        raise CheckpointError(path, "has invalid codes", REMEDY)
    try:
        check_reference_text(text, "its text")
    except UsageError as error:
        raise CheckpointError(path, str(error), REMEDY) from None
    return replace(bare, codes=codes.astype(np.uint32), text=text)


@contextmanager
def with_voice_remedy(path: Path) -> Iterator[None]:
    """Replace the remedy of a safetensors error by that of a voice file."""
    try:
        yield
    except CheckpointError as error:
        if error.path != path or not error.remedy or "voice" in error.remedy:
            raise
        raise CheckpointError(path, error.problem, REMEDY) from None


def read_voice_metadata(path: Path) -> dict[str, str]:
    """Read the metadata of a voice file. Raises CheckpointError for any other file."""
    details = read_metadata(path)
    if details.get("format") != FORMAT:
        raise CheckpointError(path, "is not a saved voice", "make one with `oscine voices save`")
    if not all(isinstance(value, str) for value in details.values()):
        raise CheckpointError(path, "has metadata that are not strings", REMEDY)
    if details.get("version") != VERSION:
        problem = f"is a voice of version {details.get('version')!r}, not {VERSION}"
        raise CheckpointError(path, problem, "update oscine, or " + REMEDY)
    return details
