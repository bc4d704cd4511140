"""A media file -> mono float32 pieces of its first audio track, by FFmpeg's libraries (PyAV)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, BinaryIO

import av

from oscine.audio.resample import Resampler
from oscine.errors import AudioError
from oscine.types import Samples

_log = logging.getLogger(__name__)

# These containers state their length; for others it is guessed from the bit rate.
_STATES_LENGTH = {"wav", "w64", "aiff", "flac", "caf", "au", "mov", "matroska"}
_MEDIA = "give a recording such as wav, mp3, flac, ogg, m4a or mp4"
_AGAIN = "record it or convert it again"


class _Reader:
    """Only what FFmpeg needs of a file object; PyAV trips over odd `name` attributes otherwise."""

    def __init__(self, file: BinaryIO) -> None:
        self.read = file.read
        self.seek = file.seek
        self.tell = file.tell


def decoded(name: str, file: str | BinaryIO, rate: int) -> Iterator[Samples]:
    """Pieces float32 [n] at `rate`, mono, of the first audio track of a path or file object.

    Raises AudioError in the name of `name`; what a damaged file still gives comes first, and is not
    an error when it is any sound at all.
    """
    try:
        container = av.open(
            file if isinstance(file, str) else _Reader(file),
            metadata_errors="ignore",
            options={"protocol_whitelist": "file"},  # a playlist must not reach into the network
        )
    except (av.error.FFmpegError, OSError, ValueError) as error:
        raise AudioError(name, f"is not a recording ({_reason(error)})", _MEDIA) from None
    with container:
        if not container.streams.audio:
            kinds = ", ".join(sorted({stream.type for stream in container.streams}))
            raise AudioError(name, f"has no audio track (only {kinds or 'no tracks'})", _MEDIA)
        yield from _track(name, container, rate)


def _track(name: str, container: Any, rate: int) -> Iterator[Samples]:
    stream = container.streams.audio[0]
    resampler = Resampler(rate)
    damage = _Damage(name)
    samples = 0
    frame_rate = 1
    try:
        for frame in _frames(container, stream, damage):
            samples, frame_rate = samples + frame.samples, frame.sample_rate
            yield from resampler.push(frame)
        yield from resampler.flush()
    except (av.error.FFmpegError, ValueError) as error:
        raise AudioError(name, f"cannot be decoded ({_reason(error)})", _AGAIN) from None
    if not samples and damage.count:
        problem = f"nothing of its {_codec(stream)} track can be decoded ({damage.first})"
        raise AudioError(name, problem, _AGAIN)
    damage.report(samples / frame_rate, _stated_length(container, stream))


class _Damage:
    """Counts what could not be read, to warn once."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.count = 0
        self.first = ""

    def add(self, error: Exception) -> None:
        self.count += 1
        self.first = self.first or _reason(error)

    def report(self, seconds: float, stated: float | None) -> None:
        if self.count:
            _log.warning(
                "%s: damaged in %d places (%s); using what can be decoded, %.1f s",
                self.name,
                self.count,
                self.first,
                seconds,
            )
        elif stated is not None and seconds < stated - 1.0:
            _log.warning(
                "%s: ends after %.1f s although it says %.1f s; using what is there",
                self.name,
                seconds,
                stated,
            )


def _frames(container: Any, stream: Any, damage: _Damage) -> Iterator[Any]:
    """Decoded frames; damaged packets are skipped, and a file that breaks off ends there."""
    packets = container.demux(stream)
    while True:
        try:
            packet = next(packets)
        except StopIteration:
            break
        except av.error.FFmpegError as error:
            damage.add(error)
            break
        if packet.size:
            yield from _decoded(stream.codec_context, packet, damage)
    yield from _decoded(stream.codec_context, None, damage)


def _decoded(codec: Any, packet: Any, damage: _Damage) -> list[Any]:
    try:
        return list(codec.decode(packet))
    except av.error.EOFError:
        return []
    except av.error.FFmpegError as error:
        damage.add(error)
        return []


def _stated_length(container: Any, stream: Any) -> float | None:
    """Seconds that the file says it holds, where it really says so."""
    if not _STATES_LENGTH & set(container.format.name.split(",")) or not stream.duration:
        return None
    return float(stream.duration * stream.time_base)


def _codec(stream: Any) -> str:
    return getattr(stream.codec_context, "name", None) or "unknown"


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error).split("\n")[0]
