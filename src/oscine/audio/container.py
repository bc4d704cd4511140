"""Decodes one audio track of a media file to mono float32 blocks with FFmpeg's libraries."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeAlias

from oscine.audio import tracks
from oscine.audio.clock import JITTER_S, MAX_SILENCE_S, Clock, TimedFrame
from oscine.audio.demuxer import channel_count_of, open_container, reason
from oscine.audio.ffmpeg import av
from oscine.audio.ogg_chain import FileSlice, links
from oscine.audio.resample import Resampler
from oscine.audio.timestamps import (
    begins_with_tag,
    clock_period,
    frame_timer,
    has_frame_count,
    start_time,
)
from oscine.audio.truncation import is_truncated, mp3_end_by_header
from oscine.audio.wav_header import WavLengths, read_lengths
from oscine.errors import AudioError
from oscine.types import Samples

_log = logging.getLogger(__name__)

# Containers that state their duration; FFmpeg estimates that of others from the bit rate.
_FORMATS_WITH_LENGTH = {"wav", "w64", "aiff", "flac", "caf", "au", "mov"}
_FORMATS_WITH_MAX_LENGTH = {"matroska", "flv", "rm"}
CODEC_PADDING_S = 0.1  # added by codecs, and tolerated by limits of duration
_REMEDY = "record it or convert it again"
_MAX_CONSECUTIVE_ERRORS = 16  # consecutive errors after which reading of packets ends


#: Logs a message about a recording once, however often the recording is read.
Warn: TypeAlias = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class DecodeRequest:
    """What to decode of a recording.

    Samples at `rate` hertz, of all channels mixed or of one `channel` (from 1). A recording longer
    than `max_duration_s` is refused. `track` is the number of an audio track (from 1) or a
    language; None: the preferred one (tracks.py).
    """

    rate: int
    channel: int | None = None
    max_duration_s: float | None = None
    track: int | str | None = None


def decode_track(
    name: str, file: BinaryIO | FileSlice, wanted: DecodeRequest, warn: Warn = _log.warning
) -> Iterator[Samples]:
    """Decode one audio track of a file object from its start, in blocks float32 [n].

    A warning says which track if there are several. What a damaged file still contains is decoded
    with a warning. Raises AudioError, which names `name`, if nothing can be decoded, or if the
    header states more than `max_duration_s`.
    """
    damage = _DamageReport(name, warn)
    channel = wanted.channel
    resampler = Resampler(wanted.rate, channel)
    header = _read_wav_lengths(name, file)
    beyond = header is not None and header.understated
    with open_container(name, file, wanted.track, ignore_length=beyond) as container:
        taken = _choose_track(name, file, container, wanted.track)
        if channel is not None:
            check_channel(name, channel, channel_count_of(taken.of(container)))
        if (line := tracks.describe_choice(container, taken)) is not None:
            warn(f"{name}: {line}")
        if not (header and (header.streamed or header.data > header.rest)):
            _refuse_longer(name, container, taken, file, wanted.max_duration_s)
        if "ogg" not in container.format.name:
            yield from _track_samples(name, container, taken.of(container), file, resampler, damage)
            _warn_of_ending(file, header, damage)
            return
    parts, cut = links(file)
    for number, part in enumerate(list[BinaryIO | FileSlice](parts) or [file]):
        try:
            container = open_container(name, part)
        except AudioError as error:
            if not number:
                raise
            damage.add(error)
            damage.warn("continues with data that is not audio")
            return
        with container:
            yield from _track_samples(name, container, taken.of(container), part, resampler, damage)
    if cut and not damage.warned:
        damage.warn("breaks off")


def _warn_of_ending(
    file: BinaryIO | FileSlice, header: WavLengths | None, damage: _DamageReport
) -> None:
    """Warn of a file that ends elsewhere than its header says, unless it was warned of already."""
    if header is not None and header.understated:
        if header.data:
            damage.warn("has more audio than its header says")
    elif not damage.warned and not (header and header.streamed):
        if damage.cut or is_truncated(file):
            damage.warn("breaks off")


def channel_count(name: str, file: BinaryIO | FileSlice, track: int | str | None = None) -> int:
    """Number of channels of the audio track that would be decoded. Raises AudioError."""
    with open_container(name, file, track) as container:
        return channel_count_of(_choose_track(name, file, container, track).of(container))


def _choose_track(
    name: str, file: BinaryIO | FileSlice, container: Any, wanted: int | str | None
) -> tracks.TrackChoice:
    """The audio track to decode; if several are possible, the first that is not silent.

    Those are decoded from a second container over the same file.
    """
    possible = tracks.candidates(container, wanted)
    first = number = tracks.number_of(container, possible[0])
    if len(possible) > 1:
        position = file.tell()
        with open_container(name, file) as other:
            found = tracks.first_with_sound(other, tracks.candidates(other, wanted))
            number = tracks.number_of(other, found)
        file.seek(position)  # FFmpeg continues to read from there
    return tracks.TrackChoice(number, passed_silence=number != first)


def check_channel(name: str, channel: int, count: int) -> None:
    """Raise AudioError if there are fewer than `channel` channels."""
    if channel > count:
        problem = f"has no channel {channel}, only {count}" if count != 1 else "has one channel"
        raise AudioError(name, problem, "choose another, or all of them mixed")


def _track_samples(
    name: str,
    container: Any,
    stream: Any,
    file: BinaryIO | FileSlice,
    resampler: Resampler,
    damage: _DamageReport,
) -> Iterator[Samples]:
    clock = damage.clock
    begin = clock.position
    frames = _timed_frames(container, stream, file, damage)
    try:
        for silence, frame in clock.align(
            frames, start_time(container), clock_period(container, stream)
        ):
            if damage.late is None:
                damage.late = 0.0 if damage.count else silence
            damage.seconds += frame.samples / max(frame.sample_rate, 1)
            if silence:
                yield from resampler.silence(silence)
            yield from resampler.push(frame)
        if damage.lost > JITTER_S:  # a player's timeline ends with the last packet
            yield from resampler.silence(clock.fill(damage.lost))
        yield from resampler.flush()
    except (av.error.FFmpegError, ValueError) as error:
        raise AudioError(name, f"cannot be decoded ({reason(error)})", _REMEDY) from None
    if not damage.seconds and damage.count:
        problem = f"nothing of its {_codec_name(stream)} track can be decoded ({damage.first})"
        raise AudioError(name, problem, _REMEDY)
    damage.tell(clock.position - begin, _stated_length(container, stream, file))


class _DamageReport:
    """What could not be decoded and what the clock leaves out, collected for one warning."""

    def __init__(self, name: str, warn: Warn) -> None:
        self.name = name
        self._warn = warn
        self.clock = Clock()
        self.count = 0
        self.first = ""
        self.cut = self.warned = False
        self.late: float | None = None  # silence before the first audio, if nothing is lost
        self.lost = 0.0
        self.seconds = 0.0

    def add(self, error: Exception) -> None:
        self.count += 1
        self.first = self.first or _damage_message(error)

    def tell(self, length: float, stated: tuple[float, bool] | None) -> None:
        """Warn once of all that is wrong with a track that was read to its end.

        `length`: of the track in seconds. `stated`: the duration in the header, and whether it
        includes silence at the start.
        """
        clock = self.clock
        late = self.late or 0.0
        if clock.refused is not None:
            self._warn_of_clock(*clock.refused)
        if self.count:
            places = f"{self.count} places" if self.count > 1 else "one place"
            self.warn(f"is damaged in {places} ({self.first}){_filled_gaps(clock, late)}")
        elif clock.gap_count > bool(late):
            self.warn(f"lacks some of its audio{_filled_gaps(clock, late)}")
        elif stated is not None and length - late * (not stated[1]) < stated[0] - 1.0:
            self.warn(f"ends before the {stated[0]:.1f} s stated in its header")
        self.count, self.first, self.late = 0, "", None
        clock.reset()

    def _warn_of_clock(self, begin: float, seconds: float) -> None:
        hours = MAX_SILENCE_S / 3600
        self._warn(
            f"{self.name}: its clock leaves out {seconds:.1f} s at {begin:.1f} s, and at most "
            f"{hours:.0f} h of silence are put in; times from there on count the sound alone"
        )

    def warn(self, problem: str) -> None:
        self.warned = True
        self._warn(f"{self.name}: {problem}; using the {self.seconds:.1f} s that can be read")


def _filled_gaps(clock: Clock, late: float) -> str:
    """The gaps that were filled with silence, without the `late` seconds before a late track."""
    gaps = [f"{begin:.1f} to {end:.1f} s" for begin, end in clock.gaps[bool(late) :]]
    if not gaps:
        return ""
    more = clock.gap_count - len(clock.gaps)
    times = ", ".join(gaps) + (f" and {more} times more" if more else "")
    return f"; silence replaces {times} ({clock.gap_seconds - late:.1f} s in all)"


def _timed_frames(
    container: Any, stream: Any, file: BinaryIO | FileSlice, damage: _DamageReport
) -> Iterator[TimedFrame]:
    """Decoded frames with their times; damaged packets are skipped."""
    codec = stream.codec_context
    times = frame_timer(container, stream, file)
    for packet in _read_packets(container, stream, damage):
        frames = _decode_packet(codec, packet, damage)
        if frames is None:
            times.skip(packet)
        else:
            yield from (times.stamp(packet, frame) for frame in frames)
    damage.lost = times.lost
    yield from (times.stamp(None, frame) for frame in _decode_packet(codec, None, damage) or ())


def _read_packets(container: Any, stream: Any, damage: _DamageReport) -> Iterator[Any]:
    """Packets with content, also those after damage; a truncated file ends at the truncation."""
    failures = 0
    while failures < _MAX_CONSECUTIVE_ERRORS:
        try:
            for packet in container.demux(stream):
                failures = 0
                if packet.size:
                    damage.cut = packet.is_corrupt  # the last packet is shorter than it states
                    yield packet
            return
        except IndexError:  # PyAV's flush at the end, if a track appeared while reading
            return
        except av.error.FFmpegError as error:
            damage.add(error)
            failures += 1


def _decode_packet(codec: Any, packet: Any, damage: _DamageReport) -> list[Any] | None:
    """The frames of a packet; None if it is damaged."""
    try:
        return list(codec.decode(packet))
    except av.error.EOFError:
        return []
    except av.error.FFmpegError as error:
        if packet is None or not begins_with_tag(packet):  # the tag of a concatenated recording
            damage.add(error)
        return None


def _stated_length(
    container: Any, stream: Any, file: BinaryIO | FileSlice
) -> tuple[float, bool] | None:
    """Duration in seconds if the file states one, and whether from the start of the file.

    The duration of a Matroska, Flash or RealMedia file is that of its longest track.
    """
    names = set(container.format.name.split(","))
    if names & _FORMATS_WITH_MAX_LENGTH:
        stated = _tagged_length(stream)
        if stated is None and len(container.streams) == 1 and container.duration:
            stated = container.duration / av.time_base
        return None if stated is None else (stated - max(0.0, start_time(container) or 0.0), True)
    states = names & _FORMATS_WITH_LENGTH or (names == {"mp3"} and _counts_all(file))
    if not states or not stream.duration:
        return None
    return float(stream.duration * stream.time_base), "mov" not in names


def _counts_all(file: BinaryIO | FileSlice) -> bool:
    """Whether the first frame of an mp3 file counts all of its frames.

    In concatenated recordings it does not, and FFmpeg decodes the tags between them as audio.
    """
    end, position = mp3_end_by_header(file), file.tell()
    size = file.seek(0, 2)
    file.seek(position)  # FFmpeg continues to read from there
    return has_frame_count(file) and (end is None or size - end <= size // 32)


def _tagged_length(stream: Any) -> float | None:
    """The duration that mkvmerge and FFmpeg write for each track: 01:02:03.456000000."""
    parts = str(stream.metadata.get("DURATION", "")).split(":")
    try:
        hours, minutes, seconds = map(float, parts)
    except ValueError:
        return None
    return 3600 * hours + 60 * minutes + seconds


def _refuse_longer(
    name: str,
    container: Any,
    taken: tracks.TrackChoice,
    file: BinaryIO | FileSlice,
    max_duration_s: float | None,
) -> None:
    """Raise AudioError if the file states that the track is longer than `max_duration_s`."""
    if max_duration_s is None:
        return
    stated = _stated_length(container, taken.of(container), file)
    if stated is not None and stated[0] > max_duration_s + CODEC_PADDING_S:
        raise AudioError.too_long(name, max_duration_s)


def _read_wav_lengths(name: str, file: BinaryIO | FileSlice) -> WavLengths | None:
    try:
        return read_lengths(file)
    except (OSError, ValueError) as error:
        raise AudioError(name, f"cannot be read ({reason(error)})", _REMEDY) from None


def _damage_message(error: Exception) -> str:
    """FFmpeg's message for damaged data.

    Some decoders have error numbers of their own for it, and some return -1, which reads as a lack
    of permission.
    """
    why = reason(error)
    own = why.startswith("Error number") or isinstance(error, av.error.PermissionError)
    return "Invalid data found when processing input" if own else why


def _codec_name(stream: Any) -> str:
    return getattr(stream.codec_context, "name", None) or "unknown"
