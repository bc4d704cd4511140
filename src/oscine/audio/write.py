"""Writes mono samples as an audio file, at once or incrementally.

    save(audio, "a.mp3")
    with AudioWriter("a.wav", 24_000) as writer:
        writer.write(samples)

wav and raw are written here, other formats by FFmpeg's encoders, through PyAV. A file gets its name
when it is complete. A pipe, which cannot seek, gets every format too, with a header of unknown
length.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
from numpy.typing import NDArray

from oscine.audio.encode import CODECS, Encoder, make_encoder
from oscine.audio.ffmpeg import av
from oscine.audio.resample import to_float
from oscine.audio.sink import Sink
from oscine.errors import NonFiniteError, OscineError, UsageError
from oscine.files import AtomicFile
from oscine.types import Audio

Target: TypeAlias = str | Path | BinaryIO

BLOCK_SAMPLES = 1 << 16  # samples per call of an encoder
#: All formats. raw: the samples of wav without a header, 16-bit little endian.
FORMATS = ("wav", "raw", *CODECS)
ALIASES = {"pcm": "raw"}


def format_of(target: Target, name: str | None = None) -> str:
    """The named format, else that of the file's suffix, else (no file name) wav.

    Raises UsageError for an unknown format, or one that this machine's PyAV cannot encode.
    """
    known = f"supported: {', '.join(FORMATS)}"
    if name is not None and not isinstance(name, str):
        raise UsageError(f"an audio format must be a name, not {name!r}; {known}")
    if name is not None:
        chosen = name.lower().removeprefix(".")
        problem = f"unknown audio format {name!r}"
    elif isinstance(target, str | Path):
        chosen = Path(target).suffix.lower().removeprefix(".")
        message = (
            f"{Path(target).suffix} is not an audio format"
            if chosen
            else "no suffix names a format"
        )
        problem = f"{target}: {message}"
    else:
        chosen = "wav"
    chosen = ALIASES.get(chosen, chosen)
    if chosen not in FORMATS:
        raise UsageError(f"{problem}; {known}")
    if chosen in CODECS:
        codec = CODECS[chosen].codec
        try:
            av.codec.Codec(codec, "w")
        except (av.error.FFmpegError, ValueError):
            raise UsageError(
                f"{chosen} cannot be written: PyAV has no encoder {codec}; write wav or flac"
            ) from None
    return chosen


def check_target(target: object) -> None:
    """Raise UsageError for anything but a path or a binary file object."""
    if isinstance(target, str | Path):
        try:
            name = os.fsencode(target)
        except UnicodeEncodeError:
            name = b"\0"  # half a surrogate
        if b"\0" in name:
            raise UsageError(f"{str(target)!r} is not a file name")
    elif isinstance(target, io.TextIOBase):
        raise UsageError("the file object is open as text; open it with mode 'wb'")
    elif not callable(getattr(target, "write", None)):
        kind = type(target).__name__
        raise UsageError(f"{kind} cannot be written to; give a path or a binary file object")


def save(
    audio: Audio, target: Target, format: str | None = None, *, comment: str | None = None
) -> None:
    """Write audio to a file or a binary file object, in `format` or as the suffix says.

    `comment` is written as metadata, except for raw.

    Raises UsageError for a format that cannot be written, NonFiniteError for NaN or infinity,
    OscineError if the disk does not allow it; no file is left then.
    """
    with AudioWriter(target, audio.rate, format, comment=comment) as writer:
        writer.write(audio.samples)


class AudioWriter:
    """An audio file that is written incrementally: `write` repeatedly, then `close`.

    `name` is used in messages; `comment`: metadata, except for raw. `abandon`, or an exception
    inside `with`, leaves no file. A file object is left open, at the end of what was written. All
    methods raise as `save` does.
    """

    def __init__(
        self,
        target: Target,
        rate: int,
        format: str | None = None,
        *,
        name: str | None = None,
        comment: str | None = None,
    ) -> None:
        if isinstance(rate, bool) or not isinstance(rate, int) or not 0 < rate < 1 << 22:
            raise UsageError(f"a sample rate is whole hertz, not {rate!r}")
        check_target(target)
        self.format = format_of(target, format)
        self.rate = rate
        self._open = True
        self._new: AtomicFile | None = None
        if isinstance(target, str | Path):
            self._new = AtomicFile(Path(target))
            self.name = name or str(target)
            file = self._new.file
        else:
            given = getattr(target, "name", None)
            self.name = name or (given if isinstance(given, str) and given else "file object")
            file = target
        self._sink = Sink(file, self.name)
        self._encoder: Encoder | None = None
        try:
            self._encoder = make_encoder(self._sink, self.format, rate, comment)
        except BaseException:
            self.abandon()
            raise

    @property
    def open(self) -> bool:
        """Whether it is open for writing."""
        return self._open

    @property
    def count(self) -> int:
        """The number of samples written."""
        return 0 if self._encoder is None else self._encoder.count

    @property
    def duration(self) -> float:
        """The number of seconds written."""
        return self.count / self.rate

    def write(self, samples: NDArray[Any]) -> None:
        """Append samples [n]: floats with full scale 1, clipped beyond it, or PCM integers.

        Raises UsageError for other arrays, besides what `save` raises. If the disk does not allow
        it, the file is abandoned.
        """
        if not self._open or self._encoder is None:
            raise UsageError(f"{self.name}: is closed; nothing more can be written")
        given = np.asarray(samples)
        try:
            numbers = to_float(given)
        except TypeError:
            numbers = None
        if numbers is None or numbers.ndim != 1:
            kind = f"{given.dtype} {list(given.shape)}"
            raise UsageError(f"{self.name}: an array of {kind} is not mono samples [n]")
        if not np.isfinite(numbers).all():
            raise NonFiniteError(f"{self.name}: non-finite samples; none of them were written")
        try:
            for start in range(0, len(numbers), BLOCK_SAMPLES):
                self._encoder.write(numbers[start : start + BLOCK_SAMPLES])
            self._sink.flush()
        except (OscineError, BrokenPipeError):
            self.abandon()  # later samples must not follow a loss
            raise

    def close(self) -> None:
        """Finish the file and give it its name. A second call does nothing.

        If Ctrl-C interrupts `close` or `write`, another `close` continues with everything that was
        given.
        """
        if not self._open or self._encoder is None:
            return
        try:
            self._encoder.close()
            self._sink.flush()
            if self._new is not None:
                self._new.keep()
        except (OscineError, BrokenPipeError):
            self.abandon()
            raise
        self._open = False

    def abandon(self) -> None:
        """Leave no file, unless closed; a file object keeps what was written. Never raises."""
        if self._open and self._encoder is not None:
            self._encoder.abandon()
        self._open = False
        if self._new is not None:
            self._new.discard()

    def __enter__(self) -> AudioWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self.close()
        finally:
            self.abandon()
