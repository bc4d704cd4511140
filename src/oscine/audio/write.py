"""Mono samples as a sound file, whole or as they come.

    save(audio, "a.mp3")
    with AudioWriter("a.wav", 24_000) as writer:
        writer.write(samples)

wav and raw are written here; the others by FFmpeg's encoders, through PyAV. A file has its name
once it is whole. What cannot be gone back in (a pipe) gets every format too, with a header that
leaves the length open.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeAlias

import av
import numpy as np
from numpy.typing import NDArray

from oscine.audio.container import reason
from oscine.audio.resample import to_float
from oscine.errors import NonFiniteError, OscineError, UsageError
from oscine.files import NewFile, cannot_write
from oscine.types import Audio, Samples

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

Target: TypeAlias = str | Path | BinaryIO

FULL_SCALE = 32767.0
PIECE = 1 << 16  # samples given to an encoder at a time
OPEN_END = 0xFFFFFFFF  # the length in a header that is written before it is known


@dataclass(frozen=True, slots=True)
class Coding:
    """A format of FFmpeg's: its container and encoder, bits a second, the one rate if it has it."""

    container: str
    codec: str
    bit_rate: int | None = None
    rate: int | None = None


#: Speech in one channel is transparent at these rates.
CODINGS = {
    "mp3": Coding("mp3", "libmp3lame", 96_000),
    "flac": Coding("flac", "flac"),
    "opus": Coding("ogg", "libopus", 64_000, 48_000),  # every player decodes it at 48 kHz
    "ogg": Coding("ogg", "libopus", 64_000, 48_000),
    "m4a": Coding("ipod", "aac", 96_000),
    "aac": Coding("adts", "aac", 96_000),
}
#: Every format by name. raw: the samples of wav alone, 16-bit little endian.
FORMATS = ("wav", "raw", *CODINGS)
ALIASES = {"pcm": "raw"}


def format_of(target: Target, name: str | None = None) -> str:
    """The format that is named, else that of the file's suffix, else (no file name) wav.

    Raises UsageError for one that is not known, or that this machine's PyAV cannot encode.
    """
    known = f"known are {', '.join(FORMATS)}"
    if name is not None:
        chosen = name.lower().removeprefix(".")
        problem = f"there is no audio format {name!r}"
    elif isinstance(target, str | Path):
        chosen = Path(target).suffix.lower().removeprefix(".")
        said = f"{Path(target).suffix} is no audio format" if chosen else "no suffix names a format"
        problem = f"{target}: {said}"
    else:
        chosen = "wav"
    chosen = ALIASES.get(chosen, chosen)
    if chosen not in FORMATS:
        raise UsageError(f"{problem}; {known}")
    if chosen in CODINGS:
        codec = CODINGS[chosen].codec
        try:
            av.codec.Codec(codec, "w")
        except (av.error.FFmpegError, ValueError):
            raise UsageError(
                f"{chosen} cannot be written: PyAV is here without the encoder {codec}; "
                "write wav or flac"
            ) from None
    return chosen


def pcm16(samples: Samples) -> NDArray[np.int16]:
    """round(clip(x) * 32767), halves to even."""
    scaled = np.clip(samples, -1.0, 1.0) * np.float32(FULL_SCALE)
    whole: NDArray[np.int16] = np.rint(scaled).astype("<i2")
    return whole


def save(audio: Audio, target: Target, format: str | None = None) -> None:
    """Write all of it to a file or a binary file object, in `format` or as the suffix says.

    Raises UsageError for a format that cannot be written, NonFiniteError for NaN or infinity,
    OscineError where the disk does not allow it; there is no file then.
    """
    with AudioWriter(target, audio.rate, format) as writer:
        writer.write(audio.samples)


class AudioWriter:
    """A sound file that grows: `write` as often as wanted, then `close`.

    Messages call it `name`. `abandon`, or an exception inside `with`, leaves no file. A file object
    is left open, at the end of what was written. Raises as `save`, in every method.
    """

    def __init__(
        self, target: Target, rate: int, format: str | None = None, *, name: str | None = None
    ) -> None:
        if isinstance(rate, bool) or not isinstance(rate, int) or not 0 < rate < 1 << 22:
            raise UsageError(f"a sample rate is whole hertz, not {rate!r}")
        self.format = format_of(target, format)
        self.rate = rate
        self.count = 0  # samples so far
        self._open = True
        self._new: NewFile | None = None
        if isinstance(target, str | Path):
            self._new = NewFile(Path(target))
            self.name = name or str(target)
            file = self._new.file
        else:
            given = getattr(target, "name", None)
            self.name = name or (given if isinstance(given, str) and given else "file object")
            file = target
        self._sink = Sink(file, self.name)
        self._coder: Coder | None = None
        try:
            self._coder = coder(self._sink, self.format, rate)
        except OscineError:
            self.abandon()
            raise

    @property
    def duration(self) -> float:
        """Seconds written."""
        return self.count / self.rate

    def write(self, samples: NDArray[Any]) -> None:
        """Add samples [n]: floats, of which full scale is 1 and more is clipped, or PCM integers.

        Raises UsageError for what is no samples, besides what `save` raises.
        """
        if not self._open or self._coder is None:
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
            raise NonFiniteError(f"{self.name}: samples are not finite; nothing of them is written")
        for start in range(0, len(numbers), PIECE):
            piece = numbers[start : start + PIECE]
            self._coder.write(piece)
            self.count += len(piece)
        self._sink.flush()

    def close(self) -> None:
        """Finish the file and give it its name. A second time does nothing."""
        if not self._open or self._coder is None:
            return
        try:
            self._coder.close()
            self._sink.flush()
            if self._new is not None:
                self._new.keep()
            self._open = False
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Leave no file, unless it is closed; nothing is undone in a file object. Never raises."""
        if self._open and self._coder is not None:
            self._coder.abandon()
        self._open = False
        if self._new is not None:
            self._new.discard()

    def __enter__(self) -> AudioWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()


class Sink:
    """Where bytes go, counted from where the file stood; it keeps the first error for the caller.

    FFmpeg calls it from C, where an exception of ours may end as another.
    """

    def __init__(self, file: BinaryIO, name: str) -> None:
        self.name = name
        self.error: OSError | None = None
        self._file = file
        self._returns = goes_back(file)
        self._start = file.tell() if self._returns else 0

    def seekable(self) -> bool:
        """Whether what was written can be written over."""
        return self._returns

    def write(self, data: bytes) -> int:
        """All of it."""
        waiting = memoryview(data)
        try:
            while len(waiting):
                taken = self._file.write(waiting)
                waiting = waiting[len(waiting) if taken is None else taken :]
        except OSError as error:
            self.error = self.error or error
            raise
        return len(data)

    def seek(self, offset: int, whence: int = 0) -> int:
        """As a file."""
        place = self._start + offset if whence == 0 else offset
        return self._file.seek(place, whence) - self._start

    def tell(self) -> int:
        """As a file."""
        return self._file.tell() - self._start

    def flush(self) -> None:
        """What was written goes to its reader now."""
        with self.told():
            if callable(flush := getattr(self._file, "flush", None)):
                flush()

    @contextmanager
    def told(self) -> Iterator[None]:
        """Errors of the file and of FFmpeg as one line; a reader that has gone stays as it is."""
        try:
            yield
        except (OSError, av.error.FFmpegError, ValueError) as error:
            cause = self.error or error
            if isinstance(cause, BrokenPipeError):
                raise cause from None
            if isinstance(cause, OSError):
                raise cannot_write(self.name, cause) from error
            raise OscineError(f"{self.name}: cannot be written ({reason(cause)})") from error
        if self.error is not None:
            raise cannot_write(self.name, self.error) from self.error


def goes_back(file: BinaryIO) -> bool:
    """Not in pipes, nor where everything is put at the end (`>>`)."""
    try:
        if not file.seekable():
            return False
        file.tell()
    except (AttributeError, OSError, ValueError):
        return False
    try:
        descriptor = file.fileno()
    except (AttributeError, OSError, ValueError):
        return True  # in memory
    if fcntl is None:
        return "a" not in str(getattr(file, "mode", ""))
    return not fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_APPEND


class Coder(Protocol):
    """Samples to the bytes of one format."""

    def write(self, samples: Samples) -> None:
        """Float32 [n], finite."""

    def close(self) -> None:
        """All that is still inside, and the header's lengths where one can go back."""

    def abandon(self) -> None:
        """Let go of the sink. Never raises."""


def coder(sink: Sink, name: str, rate: int) -> Coder:
    """That of a format."""
    return Plain(sink, name, rate) if name in ("wav", "raw") else Coded(sink, name, rate)


class Plain:
    """PCM of 16 bits, with a header (wav) or without."""

    def __init__(self, sink: Sink, name: str, rate: int) -> None:
        self._sink, self._rate = sink, rate
        self._header = name == "wav"
        self._bytes = 0
        if self._header:
            self._put(wave_header(rate, None))

    def write(self, samples: Samples) -> None:
        self._bytes += 2 * len(samples)
        self._put(pcm16(samples).tobytes())

    def close(self) -> None:
        if self._header and self._sink.seekable():
            with self._sink.told():
                self._sink.seek(0)
                self._sink.write(wave_header(self._rate, self._bytes))
                self._sink.seek(0, 2)

    def abandon(self) -> None:
        pass

    def _put(self, data: bytes) -> None:
        with self._sink.told():
            self._sink.write(data)


def wave_header(rate: int, size: int | None) -> bytes:
    """44 bytes for mono PCM of 16 bits; `size` in bytes, None: open, as it is if it does not fit.

    Source: Microsoft's RIFF; FFmpeg and sox leave lengths open by the same number.
    """
    data = OPEN_END if size is None else min(size, OPEN_END)
    form = struct.pack("<HHIIHH", 1, 1, rate, 2 * rate, 2, 16)
    front = struct.pack("<4sI8sI", b"RIFF", min(data + 36, OPEN_END), b"WAVEfmt ", len(form))
    return front + form + struct.pack("<4sI", b"data", data)


class Coded:
    """A format of FFmpeg's."""

    def __init__(self, sink: Sink, name: str, rate: int) -> None:
        self._sink, self._rate = sink, rate
        coding = CODINGS[name]
        options = {"flush_packets": "1"}
        if not sink.seekable():
            if name == "m4a":  # else its index is written at the end, and then gone back for
                options["movflags"] = "frag_keyframe+empty_moov+default_base_moof"
                options["frag_duration"] = "500000"  # microseconds
            if coding.container == "ogg":
                options["page_duration"] = "200000"
        self._whole = coding.codec == "flac"  # 16-bit numbers, those of wav
        self._place = 0
        with sink.told():
            self._container: Any = av.open(sink, "w", format=coding.container, options=options)
            self._stream: Any = self._container.add_stream(
                coding.codec, rate=coding.rate or nearest_rate(coding.codec, rate)
            )
            context: Any = self._stream.codec_context
            context.layout = "mono"
            if self._whole:
                context.format = "s16"
            if coding.bit_rate is not None:
                context.bit_rate = coding.bit_rate

    def write(self, samples: Samples) -> None:
        if not len(samples):
            return
        if self._whole:
            frame = av.AudioFrame.from_ndarray(pcm16(samples)[None], format="s16", layout="mono")
        else:
            clipped = np.clip(samples, -1.0, 1.0)[None]
            frame = av.AudioFrame.from_ndarray(clipped, format="flt", layout="mono")
        frame.sample_rate = self._rate
        frame.time_base = Fraction(1, self._rate)
        frame.pts = self._place
        self._place += len(samples)
        with self._sink.told():
            self._container.mux(self._stream.encode(frame))

    def close(self) -> None:
        with self._sink.told():
            if self._place:
                self._container.mux(self._stream.encode(None))
            self._container.close()

    def abandon(self) -> None:
        # Else PyAV does so when it is collected, and then nobody can catch what it raises.
        with suppress(OSError, ValueError, av.error.FFmpegError):
            self._container.close()


def nearest_rate(codec: str, rate: int) -> int:
    """The rate itself if the encoder takes it, else the next above, else its highest."""
    rates = sorted(av.codec.Codec(codec, "w").audio_rates or [])
    if not rates or rate in rates:
        return rate
    return next((each for each in rates if each > rate), rates[-1])
