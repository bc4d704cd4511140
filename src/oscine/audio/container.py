"""A media file -> mono float32 pieces of one of its audio tracks, by FFmpeg's libraries (PyAV)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, BinaryIO

import av

from oscine.audio import tracks
from oscine.audio.chain import Part, links
from oscine.audio.resample import Resampler
from oscine.audio.riff import Lengths, lengths
from oscine.errors import AudioError
from oscine.types import Samples

_log = logging.getLogger(__name__)

# These containers state their length; for others it is guessed from the bit rate.
_STATES_LENGTH = {"wav", "w64", "aiff", "flac", "caf", "au", "mov", "matroska"}
_MEDIA = "give a recording such as wav, mp3, flac, ogg, m4a or mp4"
_AGAIN = "record it or convert it again"


class _Reader:
    """Only what FFmpeg needs of a file object; PyAV trips over odd `name` attributes otherwise."""

    def __init__(self, file: BinaryIO | Part) -> None:
        self.read = file.read
        self.seek = file.seek
        self.tell = file.tell


#: Tags that are not UTF-8 are no reason to refuse a recording; PyAV 19 no longer decodes them here.
_TAGS: Any = {"metadata_errors": "ignore"} if int(av.__version__.split(".")[0]) < 19 else {}


def decoded(
    name: str, file: str | BinaryIO, rate: int, channel: int | None = None
) -> Iterator[Samples]:
    """Pieces float32 [n] at `rate` of one audio track of a path or file object; a warning says
    which, where there are several.

    All channels are mixed, unless one `channel`, from 1, is asked for. Raises AudioError in the
    name of `name`; what a damaged file still gives comes first, and is not an error when it is any
    sound at all.
    """
    damage = _Damage(name)
    resampler = Resampler(rate, channel)
    header = _header(name, file)
    beyond = header is not None and header.understated
    with _opened(name, file, ignore_length=beyond) as container:
        if channel is not None:
            check_channel(name, channel, _channels(container))
        if (line := tracks.told(container)) is not None:
            _log.warning("%s: %s", name, line)
        if "ogg" not in container.format.name:
            yield from _track(name, container, resampler, damage)
            if header and beyond:
                if header.data:
                    damage.warn("says that it holds less than it does")
            elif damage.cut and not (header and header.streamed):
                damage.warn("breaks off")
            return
    with links(file) as parts:
        for number, part in enumerate(list[str | BinaryIO | Part](parts) or [file]):
            try:
                container = _opened(name, part)
            except AudioError as error:
                if not number:
                    raise
                damage.add(error)
                damage.warn("goes on with what is not a recording")
                return
            with container:
                yield from _track(name, container, resampler, damage)


def channel_count(name: str, file: str | BinaryIO) -> int:
    """Channels of the audio track that is taken, as its beginning has them. Raises AudioError."""
    with _opened(name, file) as container:
        return _channels(container)


def check_channel(name: str, channel: int, count: int) -> None:
    """Raises AudioError where there are no more than `count` channels."""
    if channel > count:
        problem = f"has no channel {channel}, only {count}" if count != 1 else "has one channel"
        raise AudioError(name, problem, "choose another, or all of them mixed")


def _opened(name: str, file: str | BinaryIO | Part, *, ignore_length: bool = False) -> Any:
    """The container, to be closed by `with`; it has an audio track."""
    options = {"protocol_whitelist": "file"}  # a playlist must not reach into the network
    if ignore_length:
        options["ignore_length"] = "1"
    try:
        container = av.open(
            file if isinstance(file, str) else _Reader(file),
            **_TAGS,
            options=options,
        )
    except (av.error.FFmpegError, OSError, ValueError) as error:
        raise AudioError(name, f"is not a recording ({reason(error)})", _MEDIA) from None
    try:
        if not container.streams.audio:
            kinds = ", ".join(sorted({stream.type for stream in container.streams}))
            raise AudioError(name, f"has no audio track (only {kinds or 'no tracks'})", _MEDIA)
        if tracks.chosen(container).codec_context is None:
            problem = "has audio of a kind that FFmpeg has no decoder for"
            raise AudioError(name, problem, "convert it to wav or flac")
    except AudioError:
        container.close()
        raise
    return container


def _channels(container: Any) -> int:
    return max(1, int(tracks.chosen(container).codec_context.layout.nb_channels))


def _track(name: str, container: Any, resampler: Resampler, damage: _Damage) -> Iterator[Samples]:
    stream = tracks.chosen(container)
    try:
        for frame in _frames(container, stream, damage):
            damage.seconds += frame.samples / max(frame.sample_rate, 1)
            yield from resampler.push(frame)
        yield from resampler.flush()
    except (av.error.FFmpegError, ValueError) as error:
        raise AudioError(name, f"cannot be decoded ({reason(error)})", _AGAIN) from None
    if not damage.seconds and damage.count:
        problem = f"nothing of its {_codec(stream)} track can be decoded ({damage.first})"
        raise AudioError(name, problem, _AGAIN)
    stated = _stated_length(container, stream)
    if damage.count:
        damage.warn(f"is damaged in {damage.count} places ({damage.first})")
    elif stated is not None and damage.seconds < stated - 1.0:
        damage.warn(f"ends before the {stated:.1f} s that it says it holds")


class _Damage:
    """What could not be read of a file, for one warning."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.count = 0
        self.first = ""
        self.cut = False
        self.seconds = 0.0

    def add(self, error: Exception) -> None:
        self.count += 1
        self.first = self.first or reason(error)

    def warn(self, problem: str) -> None:
        self.cut = False
        _log.warning("%s: %s; using the %.1f s that can be read", self.name, problem, self.seconds)


def _frames(container: Any, stream: Any, damage: _Damage) -> Iterator[Any]:
    """Decoded frames; damaged packets are skipped, and a file that breaks off ends there."""
    packets = container.demux(stream)
    while True:
        try:
            packet = next(packets)
        except (StopIteration, IndexError):
            break  # IndexError: PyAV's own flush at the end, when a track appeared on the way
        except av.error.FFmpegError as error:
            damage.add(error)
            break
        if packet.size:
            damage.cut = packet.is_corrupt  # of the last packet: fewer bytes came than belong to it
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


def _header(name: str, file: str | BinaryIO) -> Lengths | None:
    try:
        return lengths(file)
    except (OSError, ValueError) as error:
        raise AudioError(name, f"cannot be read ({reason(error)})", _AGAIN) from None


def _codec(stream: Any) -> str:
    return getattr(stream.codec_context, "name", None) or "unknown"


def reason(error: Exception) -> str:
    """The one line of an error that says what went wrong."""
    return getattr(error, "strerror", None) or str(error).split("\n")[0]
