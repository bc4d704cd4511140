"""Opens a media file in FFmpeg's demuxer, which can read that file alone.

FFmpeg never opens a path here. It reads a file object, so it needs no protocol, and none is
allowed: neither a playlist nor a reference inside a container can reach another file or a server.
Formats that only refer to other files are not on the list of formats either.
"""

from __future__ import annotations

import errno
import re
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

from oscine.audio import tracks
from oscine.audio.ffmpeg import av
from oscine.audio.file_types import container_of
from oscine.audio.ogg_chain import FileSlice
from oscine.audio.resample import MAX_CHANNELS
from oscine.errors import AudioError

#: FFmpeg's names of supported containers: those of recorders, players and broadcasters.
#: Excluded: playlists and manifests (concat, hls, dash, imf, sdp), formats that open other files
#: (vobsub, image2, mlv, avs), pictures, subtitles, devices and the formats of games.
FORMATS = (
    *("wav", "w64", "aiff", "au", "caf", "voc", "sox", "ircam", "avr", "pvf", "nistsphere", "iff"),
    *("mp3", "aac", "loas", "ac3", "eac3", "dts", "dtshd", "truehd", "mlp", "flac", "ogg", "wv"),
    *("ape", "tta", "tak", "shn", "mpc", "mpc8", "oma", "dsf", "iamf", "sbc", "aptx", "aptx_hd"),
    *("mov", "matroska", "avi", "asf", "xwma", "flv", "live_flv", "mpegts", "mpeg", "pva", "mxf"),
    *("gxf", "dv", "nut", "rm", "wtv", "ty", "amr", "amrnb", "amrwb", "qcp", "dss", "act", "aea"),
    *("ilbc", "lc3", "codec2", "bit", "gsm", "g722", "g723_1", "g728", "g729"),
    *("alaw", "mulaw", "sln", "wve", "spdif", "s337m"),
)
PLAYLIST_SUFFIXES = frozenset(
    ".asx .cpl .cue .f4m .ffconcat .ism .ismc .m3u .m3u8 .mpd .pls .sdp .smil .wax .wpl .wvx "
    ".xspf".split()
)
#: Comments are matched atomically (`(?>`, `*+`) to avoid catastrophic backtracking.
_PLAYLIST_PATTERN = re.compile(
    r"\s*(#EXTM3U|ffconcat\b|\[playlist\]|\[reference\]|<asx|<smil|<\?wpl|RTSPtext|v=0\r?\no=|"
    r"(?><\?xml.*?>\s*)?(?><!--.*?-->\s*)*+"
    r"<(\w+:)?(asx|smil|MPD|playlist|SmoothStreamingMedia|CompositionPlaylist|manifest)\b|"
    r"((REM|PERFORMER|TITLE|CATALOG|CDTEXTFILE)\b[^\n]*\n\s*)*FILE\s[^\n]*"
    r"\b(WAVE|MP3|AIFF|FLAC|BINARY|MOTOROLA)\s*\n)",
    re.IGNORECASE | re.DOTALL,
)
_HEAD_BYTES = 4096  # bytes in which text and playlists are detected
_MIN_TEXT_BYTES = 12  # shorter heads may be the beginning of a container
_MAX_BOXES = 1000  # of an mp4, searched for its index
_BOX_TYPE_PATTERN = re.compile(rb"[ -~]{4}")
_MEDIA_HINT = "give a recording such as wav, mp3, flac, ogg, m4a or mp4"
_RAW_SAMPLES_HINT = "samples without a header can be given as an array, or to --live -"
_COUNT_ONLY_PATTERN = re.compile(r"|\d+ channels")  # description of a layout without an order
_SUFFIX_PATTERN = re.compile(r"\.[a-z0-9_]{1,8}")


@cache
def _tag_options() -> Any:
    """Options for tags that are not UTF-8, which PyAV 19 would raise an error for."""
    return {"metadata_errors": "ignore"} if int(av.__version__.split(".")[0]) < 19 else {}


class _Reader:
    """The part of a file object that FFmpeg needs; PyAV fails on unusual `name` attributes.

    Only the suffix of the name is kept, by which FFmpeg detects formats without a header, such as
    gsm.
    """

    def __init__(self, file: BinaryIO | FileSlice) -> None:
        self.read = file.read
        self.seek = file.seek
        self.tell = file.tell
        self.name = "recording" + suffix_of(file)


def suffix_of(file: object) -> str:
    """Suffix of a file object's name in lower case if it is an ordinary one; else ""."""
    name = getattr(file, "name", None)
    found = Path(name).suffix.lower() if isinstance(name, str | Path) else ""
    return found if _SUFFIX_PATTERN.fullmatch(found) else ""


def open_container(
    name: str,
    file: BinaryIO | FileSlice,
    track: int | str | None = None,
    *,
    ignore_length: bool = False,
) -> Any:
    """Open a container that has an audio track with a decoder; use it in a `with` statement.

    `file` must be at its start. `name` is used in messages. `track`: number or language of a track
    that must exist. Raises AudioError.
    """
    options = {"protocol_whitelist": "", "format_whitelist": ",".join(FORMATS)}
    options["max_size"] = str(1 << 16)  # bytes of a wave file per packet; the default is one second
    if ignore_length:
        options["ignore_length"] = "1"
    refuse_playlist(name, file)
    if _read_head(file)[8:12] == b"WAVE":
        # Packets that are searched for a stream of DTS in place of samples: 128 KiB of them, as
        # many bytes as FFmpeg searches with packets of its own size. 2 MiB take it 70 ms.
        options["max_probe_packets"] = "2"
    try:
        # `options` are the streams' too, which crashes PyAV 13.
        container = av.open(_Reader(file), **_tag_options(), container_options=options)
    except (av.error.FFmpegError, OSError, ValueError) as error:
        raise _unopenable_error(name, file, error) from None
    for stream in container.streams.audio:
        if stream.codec_context is not None:
            _leave_order(stream.codec_context)
    try:
        if not len(container.streams):  # as FFmpeg opens an mp4 that is cut in its index
            raise _unopenable_error(name, file, ValueError("no tracks"))
        _check_tracks(name, container, track)
    except AudioError as error:
        container.close()
        raise _cut_in_index(name, file) or error from None
    return container


def _leave_order(codec: Any) -> None:
    """Make a decoder, before it is opened, drop a custom channel order.

    PyAV shares the list of such an order (7.1 in aiff, caf and mov) between all references, and
    each frees it (18.1, AudioLayout). So it is read once here and replaced by a layout without an
    order.
    """
    layout = codec.layout
    count, name = layout.nb_channels, layout.name if layout.nb_channels else ""
    if not _COUNT_ONLY_PATTERN.fullmatch(name):
        codec.layout = f"{count} channels" if "+" in name or "channels" in name else name


def _check_tracks(name: str, container: Any, track: int | str | None) -> None:
    if not container.streams.audio:
        kinds = ", ".join(sorted({stream.type for stream in container.streams}))
        raise AudioError(name, f"has no audio track (only {kinds})", _MEDIA_HINT)
    found = tracks.candidates(container, track)
    if not found:
        which = track if isinstance(track, int) else f"in {track!r}"
        problem = f"has no audio track {which} but these: {tracks.list_tracks(container)}"
        raise AudioError(name, problem, "choose another, or leave out audio_track")
    codec = found[0].codec_context
    if codec is None:
        problem = "has audio of a kind that FFmpeg has no decoder for"
        raise AudioError(name, problem, "convert it to wav or flac")
    count = int(codec.layout.nb_channels)
    if count > MAX_CHANNELS or (not count and codec.name.startswith("pcm")):  # 0: above 512
        problem = f"has {count or 'no or far too many'} channels, not 1 to {MAX_CHANNELS}"
        raise AudioError(name, problem, "keep those that are needed")


def channel_count_of(track: Any) -> int:
    """Number of channels of an audio track, at least 1."""
    return max(1, int(track.codec_context.layout.nb_channels))


def refuse_playlist(name: str, file: BinaryIO | FileSlice) -> None:
    """Raise AudioError for a list of files or addresses; `file` is then at its start."""
    text = _head_as_text(_read_head(file))
    if text is None or not (suffix_of(file) in PLAYLIST_SUFFIXES or _PLAYLIST_PATTERN.match(text)):
        return
    listed = name if suffix_of(file) in PLAYLIST_SUFFIXES else "LIST"
    raise AudioError(
        name,
        "is a playlist, not a recording",
        f"give the recordings that it names, or join them: ffmpeg -i {listed} -c copy joined.mkv",
    )


def _unopenable_error(name: str, file: BinaryIO | FileSlice, error: Exception) -> AudioError:
    """The error for a file that FFmpeg cannot open; EINVAL: its format is not on the list."""
    try:
        head = _read_head(file)
        lacks_index = _lacks_index(file, head)
    except (OSError, ValueError) as failed:
        return AudioError(name, f"cannot be read ({reason(failed)})", "copy it again")
    begun = container_of(head)
    if _head_as_text(head) is not None and (begun is None or len(head) > _MIN_TEXT_BYTES):
        return AudioError(name, "is not a recording but text", _MEDIA_HINT)
    if lacks_index:
        return _without_index(name)
    if begun is not None:
        problem = f"begins as {begun}, but its header is cut off or damaged"
        return AudioError(name, problem, "copy it again, or convert it again")
    refused = getattr(error, "errno", None) == errno.EINVAL  # PyAV 13 calls its class otherwise
    why = "an unknown format" if refused else reason(error)
    why = "its header is damaged" if why.startswith("Error number") else why
    return AudioError(name, f"is not a recording ({why})", f"{_MEDIA_HINT}; {_RAW_SAMPLES_HINT}")


def _without_index(name: str) -> AudioError:
    problem = "has no whole index (moov), as an mp4 or mov that is cut off"
    return AudioError(name, problem, "copy it again, or repair it with a tool such as untrunc")


def _cut_in_index(name: str, file: BinaryIO | FileSlice) -> AudioError | None:
    """The error for an mp4 or mov whose index is truncated, with incomplete tracks; else None."""
    try:
        return _without_index(name) if _lacks_index(file, _read_head(file)) else None
    except (OSError, ValueError):
        return None


def _lacks_index(file: BinaryIO | FileSlice, head: bytes) -> bool:
    """Whether it is an mp4, m4a or mov without a complete index (moov).

    A box begins with its size, type and, if the size is 1, a 64-bit size: ISO/IEC 14496-12, 4.2.
    """
    if head[4:8] not in (b"ftyp", b"wide", b"mdat"):
        return False
    start, end = 0, file.seek(0, 2)
    for _ in range(_MAX_BOXES):
        if start + 8 > end:
            return True
        file.seek(start)
        header = file.read(16)
        size, kind = int.from_bytes(header[:4], "big"), header[4:8]
        size = int.from_bytes(header[8:], "big") if size == 1 else size or end - start
        if kind == b"moov":
            return start + size > end
        if size < 8 or not _BOX_TYPE_PATTERN.fullmatch(kind):  # damage, behind which it may be
            return False
        start += size
    return False


def _read_head(file: BinaryIO | FileSlice) -> bytes:
    file.seek(0)
    head = file.read(_HEAD_BYTES)
    file.seek(0)
    return head


def _head_as_text(head: bytes) -> str | None:
    """The beginning of a file if it is text; else None."""
    wide = head[:2] in (b"\xff\xfe", b"\xfe\xff")
    try:
        text = head.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError as error:
        if error.start < len(head) - 4 or not head:  # a character that is cut is none
            return None
        text = head[: error.start].decode("utf-16" if wide else "utf-8-sig")
    plain = text and all(each.isprintable() or each in "\t\n\r\f\v" for each in text)
    return text if plain else None


def reason(error: Exception) -> str:
    """One line that says what went wrong."""
    return getattr(error, "strerror", None) or str(error).split("\n")[0]
