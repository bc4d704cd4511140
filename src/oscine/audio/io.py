"""Reads any recording as mono float32 blocks: files, pipes, bytes, file objects, arrays.

    open_source(recording) -> Source       .name, .blocks(rate), which can be read repeatedly
    channel_count(recording) -> int        open_source(recording, channel=1) reads the first one
    decode(recording, rate) -> Audio       the whole at once

Containers and codecs are FFmpeg's, through PyAV: no system tool is needed. Of a video one audio
track is read (tracks.py). Damaged parts become silence and a truncated file gives what it has, each
with a warning.
"""

from __future__ import annotations

import io
import logging
import math
import os
import stat
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from oscine.audio import container, decoder_pool
from oscine.audio.container import CODEC_PADDING_S, DecodeRequest
from oscine.audio.demuxer import reason
from oscine.audio.mel import SAMPLE_RATE
from oscine.audio.ogg_chain import FileSlice
from oscine.audio.resample import (
    MAX_CHANNELS,
    MAX_RATE,
    MIN_RATE,
    Resampler,
    mono_frame,
    to_float,
)
from oscine.audio.spool import LazyPipe, Spool, in_place, open_file
from oscine.errors import AudioError, NonFiniteError, OscineError, UsageError
from oscine.files import expand_user, is_device
from oscine.types import Audio, Samples

_log = logging.getLogger(__name__)

BLOCK_SAMPLES = 1 << 16  # 4 s at 16 kHz: large enough for NumPy, small enough for a CPU cache
MIN_INTEGER_PEAK = 100.0  # times full scale: these are integers, not floats
MAX_AMPLITUDE = 1e12  # times full scale: damage; larger values overflow in power


class Readable(Protocol):
    """A binary file object, as far as this module uses it."""

    def read(self, size: int, /) -> Any: ...


class Source(ABC):
    """A recording that can be read repeatedly; one reading at a time."""

    def __init__(self, name: str, channel: int | None = None) -> None:
        self.name = name
        self.channel = channel  # from 1; None: all, mixed
        self.track: int | str | None = None  # number from 1 or language; None: the preferred one
        self.max_duration_s: float | None = None  # a longer recording is refused
        self.warned: set[str] = set()  # warnings given; shared with copies
        self.quiet = False  # whether warnings are suppressed
        self.is_file = False  # whether it is a file, which can be read again later

    def __copy__(self) -> Source:
        """A copy over the same recording, whose bytes copy() would otherwise read as for pickle."""
        same = object.__new__(type(self))
        same.__dict__.update(self.__dict__)
        return same

    @abstractmethod
    def channels(self) -> int:
        """Number of channels. Raises AudioError if the recording cannot be read."""

    def with_channel(self, channel: int) -> Source:
        """The same recording with one channel instead of the mix."""
        same = copy(self)
        same.channel = channel
        return same

    def with_max_duration(self, max_duration_s: float | None) -> Source:
        """The same recording, refused if it is longer than `max_duration_s`; None: no limit."""
        same = copy(self)
        same.max_duration_s = max_duration_s
        return same

    def with_track(self, track: int | str | None) -> Source:
        """The same recording with another audio track: a number from 1, or a language.

        Raises AudioError for an array unless `track` is 1, since it has one track without a
        language.
        """
        same = copy(self)
        same.track = track
        return same

    def blocks(self, rate: int = SAMPLE_RATE) -> Iterator[Samples]:
        """Mono float32 blocks [n], n >= 1, at `rate` hertz, full scale 1.

        Raises AudioError if the recording cannot be read or is longer than `max_duration_s`, and
        NonFiniteError for NaN or infinity.
        """
        waiting: list[Samples] = []
        count = total = 0
        limit = math.inf if self.max_duration_s is None else self.max_duration_s + CODEC_PADDING_S
        for piece in self._pieces(rate):
            if not np.isfinite(piece).all():
                raise NonFiniteError(f"{self.name}: audio contains non-finite samples")
            peak = np.abs(piece).max(initial=0.0)
            if peak > MIN_INTEGER_PEAK:
                self._warn_of_scale(float(peak))
            if peak > MAX_AMPLITUDE:
                problem = f"has samples beyond {MAX_AMPLITUDE:g} times full scale"
                raise AudioError(self.name, problem, "scale floats to -1 … 1")
            waiting.append(piece)
            count += len(piece)
            total += len(piece)
            if total > limit * rate:  # whatever the header says
                raise AudioError.too_long(self.name, limit - CODEC_PADDING_S)
            if count >= BLOCK_SAMPLES:
                yield np.concatenate(waiting)
                waiting, count = [], 0
        if count:
            yield np.concatenate(waiting)

    def warn(self, message: str, about: str = "") -> None:
        """Log a warning about the recording once per message, or once per subject `about`."""
        if not self.quiet and (about or message) not in self.warned:
            _log.warning("%s", message)
        self.warned.add(about or message)

    def _warn_of_scale(self, peak: float) -> None:
        """Warn once: 16-bit integers stored as floats would be noise to the model."""
        self.warn(
            f"{self.name}: samples reach {peak:.0f} times full scale, which is 1; "
            "divide by 32768 if they are 16-bit numbers",
            about="scale",
        )

    @abstractmethod
    def _pieces(self, rate: int) -> Iterator[Samples]:
        """Mono float32 pieces of any length at `rate`."""


SourceLike: TypeAlias = (
    str | Path | bytes | Readable | Audio | NDArray[Any] | tuple[NDArray[Any], int] | Source
)


class _MediaSource(Source):
    """A container that FFmpeg reads; `opened` opens its bytes at their start each time."""

    def __init__(
        self,
        name: str,
        opened: Callable[[], AbstractContextManager[BinaryIO | FileSlice]],
        channel: int | None = None,
    ) -> None:
        super().__init__(name, channel)
        self._opened = opened

    def __getstate__(self) -> dict[str, Any]:
        """For pickling: a file by its path, anything else with all of its bytes.

        Raises AudioError if it cannot be read.
        """
        state = self.__dict__.copy()
        if not self.is_file:
            with self._opened() as file:
                data = decoder_pool.read_all(self.name, file)
            state["_opened"] = partial(_in_memory, np.frombuffer(data, np.uint8))
        return state

    def channels(self) -> int:
        with self._opened() as file:
            return decoder_pool.channel_count(self.name, file, self.track)

    def _pieces(self, rate: int) -> Iterator[Samples]:
        with self._opened() as file:
            wanted = DecodeRequest(rate, self.channel, self.max_duration_s, self.track)
            yield from decoder_pool.decode_track(self.name, file, wanted, self.warn)


class _ArraySource(Source):
    """Samples [n] or [n, channels] in memory, converted block by block."""

    def __init__(
        self, name: str, samples: NDArray[Any], rate: int, channel: int | None = None
    ) -> None:
        super().__init__(name, channel)
        self._samples = samples
        self._rate = rate

    def channels(self) -> int:
        return self._samples.shape[1] if self._samples.ndim == 2 else 1

    def with_channel(self, channel: int) -> Source:
        container.check_channel(self.name, channel, self.channels())
        return super().with_channel(channel)

    def with_track(self, track: int | str | None) -> Source:
        if track not in (None, 1):
            raise AudioError(self.name, "is samples, of one audio track", "leave out audio_track")
        return super().with_track(track)

    def _pieces(self, rate: int) -> Iterator[Samples]:
        limit = self.max_duration_s
        if limit is not None and len(self._samples) > (limit + CODEC_PADDING_S) * self._rate:
            raise AudioError.too_long(self.name, limit)
        resampler = Resampler(rate)
        for start in range(0, len(self._samples), BLOCK_SAMPLES):
            piece = to_float(self._samples[start : start + BLOCK_SAMPLES])
            if piece.ndim == 2:
                chosen = self.channel
                piece = piece.mean(axis=1) if chosen is None else piece[:, chosen - 1]
            if rate == self._rate:
                yield piece
            else:
                yield from resampler.push(mono_frame(piece, self._rate))
        yield from resampler.flush()


def open_source(
    source: SourceLike, channel: int | None = None, *, name: str | None = None
) -> Source:
    """Open any recording as a Source; `name` is used in messages.

    All channels are mixed unless `channel` (from 1) is given.

    - str, Path: a file; "-" is standard input. A pipe is read once and spooled.
    - bytes, binary file object: the contents of a file. A seekable object is read from its current
      position, which is restored afterwards; others are read to their end once.
    - Audio; (array, rate); an array alone, at 16 kHz: samples [n], [n, channels] or
      [channels, n] (the shorter axis is the channels, the last one when equal), float with
      full scale 1 or PCM int8, uint8, int16, int32 by dtype; channels are averaged.

    Raises AudioError if it is missing, empty or unusable; UsageError for other types. The contents
    are checked by `blocks`, which also raises if there is no such channel.
    """
    if channel is None:
        return _open(source, name)
    if isinstance(channel, bool) or not isinstance(channel, int) or channel < 1:
        raise UsageError(f"channels are numbered from 1, not {channel!r}")
    return _open(source, name).with_channel(channel)


def check_contents(source: Source, track: int | str | None = None) -> None:
    """Raise AudioError if a file holds no audio, or not the given track.

    A pipe is not read, since its recording may not be complete.
    """
    if source.is_file:
        source.with_track(track).channels()


def channel_count(source: SourceLike) -> int:
    """Number of channels of a recording.

    A source that can be read only once (a pipe, standard input) must be opened first, and its
    Source passed here and to `open_source` again. Raises what `open_source` and `blocks` raise.
    """
    return _open(source, None).channels()


def _open(source: SourceLike, name: str | None) -> Source:
    if isinstance(source, Source):
        return source
    if isinstance(source, str | Path):
        return (
            _standard_input(name)
            if source == "-"
            else _file_source(expand_user(source), name or str(source))
        )
    if isinstance(source, bytes | bytearray | memoryview):
        label = name or "bytes"
        if not len(source):
            raise AudioError(label, "is empty", "give the contents of an audio file")
        return _MediaSource(label, partial(_in_memory, source))
    if isinstance(source, Audio):
        return _array_source(name or "audio", source.samples, source.rate)
    if isinstance(source, np.ndarray):
        return _array_source(name or "array", source, SAMPLE_RATE)
    if isinstance(source, tuple) and len(source) == 2 and isinstance(source[0], np.ndarray):
        return _array_source(name or "array", source[0], source[1])
    if callable(getattr(source, "read", None)):
        return _file_object(source, name)
    raise UsageError(
        f"{type(source).__name__} is not a recording; give a path, bytes, a binary file, "
        "an array or (array, rate)"
    )


def decode(source: SourceLike, rate: int = SAMPLE_RATE) -> Audio:
    """Decode a whole recording to mono float32 at `rate`. Raises as open_source and blocks do."""
    blocks = list(open_source(source).blocks(rate))
    return Audio(np.concatenate(blocks) if blocks else np.zeros(0, np.float32), rate)


def reread(source: Source, max_duration_s: float) -> Audio | None:
    """Read a file again; None if it is gone or longer than `max_duration_s`."""
    same = source.with_max_duration(max_duration_s)
    same.quiet = True  # warnings were given at the first reading
    try:
        return decode(same)
    except OscineError:
        return None


def _in_memory(contents: Any) -> AbstractContextManager[BinaryIO]:
    """The bytes of a recording as a file object."""
    return nullcontext(io.BytesIO(contents))


def _array_source(name: str, samples: NDArray[Any], rate: Any) -> Source:
    return _ArraySource(name, _time_first(name, samples), _checked_rate(name, rate))


def _file_source(path: Path, label: str) -> Source:
    if not label:
        raise AudioError(repr(label), "names no file", "check the path")
    try:
        found = path.stat()
    except FileNotFoundError:
        remedy = "download it first" if "://" in label else "check the path"
        raise AudioError(label, "no such file", remedy) from None
    except (OSError, ValueError) as error:
        raise AudioError(label, f"cannot be opened ({reason(error)})", "check the path") from None
    if stat.S_ISDIR(found.st_mode):
        raise AudioError(label, "is a folder", "give the files in it")
    if not os.access(path, os.R_OK):
        raise AudioError(label, "may not be read", "check its permissions")
    if is_device(path):  # it may be endless
        raise AudioError(label, "is a device", "give a file, or pipe a part of it in")
    if not stat.S_ISREG(found.st_mode):
        return _MediaSource(label, Spool(label, LazyPipe(path).read))
    if not found.st_size:
        raise AudioError(label, "is empty", "record or copy it again")
    # Absolute, as the current folder may be another one when it is read.
    source = _MediaSource(label, partial(open_file, label, Path(os.path.abspath(path))))
    source.is_file = True
    return source


def _standard_input(name: str | None) -> Source:
    label = name or "standard input"
    if sys.stdin is None or sys.stdin.isatty():
        raise AudioError(label, "has no recording", "pipe one in or name a file")
    return _file_object(getattr(sys.stdin, "buffer", sys.stdin), label)


def _file_object(file: Any, name: str | None) -> Source:
    given = getattr(file, "name", None)
    label = name or (given if isinstance(given, str) and given else "file object")
    if isinstance(file, io.TextIOBase):
        raise AudioError(label, "is open as text", "open it with mode 'rb'")
    try:
        start = file.tell() if file.seekable() else None
        end = file.seek(0, os.SEEK_END) if start is not None else None
        if start is not None:
            file.seek(start)
    except (AttributeError, OSError, ValueError):
        start = None
    if start is None or not isinstance(end, int):
        return _MediaSource(label, Spool(label, file.read))
    if not end:
        raise AudioError(label, "is empty", "record or copy it again")
    if start >= end:
        raise AudioError(label, "is at its end", "seek(0) first")
    return _MediaSource(label, partial(in_place, label, file, start))


def _time_first(name: str, samples: NDArray[Any]) -> NDArray[Any]:
    """[n] or [n, channels] as a view, after checking shape and dtype."""
    remedy = "give float or PCM integer samples [n], [n, channels] or [channels, n]"
    samples = np.asarray(samples)  # not np.matrix, which stays 2-D whatever is done
    try:
        if samples.dtype.newbyteorder("=") == np.int64:
            remedy = "64-bit integers have no defined full scale: convert to int16 or float"
            raise TypeError
        to_float(samples[:0])
    except (TypeError, IndexError):
        raise AudioError(
            name, f"an array of {samples.dtype} {list(samples.shape)} is not audio", remedy
        ) from None
    if samples.ndim == 2 and samples.shape[0] < samples.shape[1]:
        samples = samples.T
    if samples.ndim > 2 or (samples.ndim == 2 and samples.shape[1] > MAX_CHANNELS):
        raise AudioError(name, f"an array of shape {list(samples.shape)} is not audio", remedy)
    if samples.ndim == 2 and not samples.shape[1]:
        return samples.reshape(0)
    return samples


def _checked_rate(name: str, rate: Any) -> int:
    # Compared, not converted: a whole number may be larger than any float.
    known = isinstance(rate, int | float | np.integer | np.floating) and -math.inf < rate < math.inf
    if not known or rate != int(rate):
        raise AudioError(name, f"{rate!r} is not a sample rate", "give whole hertz, such as 16000")
    if not MIN_RATE <= rate <= MAX_RATE:
        raise AudioError(name, f"a sample rate of {rate} Hz is not plausible", "give it in hertz")
    return int(rate)
