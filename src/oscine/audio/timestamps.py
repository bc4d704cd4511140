"""Times of decoded frames: by the container's clock, or by bytes where it has none.

Raw streams (mp3, adts) have no clock: FFmpeg numbers the packets that it finds. There the bytes
between two packets are counted, at the mean bit rate so far. Sources: id3.org (ID3v1, ID3v2.4), APE
tags 2.0 for the tags between concatenated recordings.
"""

from __future__ import annotations

from bisect import bisect_right
from fractions import Fraction
from typing import Any, BinaryIO, Protocol

from oscine.audio.clock import TimedFrame
from oscine.audio.ffmpeg import av
from oscine.audio.ogg_chain import FileSlice

#: Raw streams: packets without timestamps.
_RAW_STREAM_FORMATS = {"mp3", "aac", "loas", "ac3", "eac3", "dts", "dtshd", "mlp", "truehd"}
#: Bits of clocks that wrap. FFmpeg adds a period wherever one jumps backwards.
_CLOCK_BITS = {"mpegts": 33, "mpeg": 33, "flv": 32, "asf": 32}
_READ_BYTES = 1 << 16  # bytes of the file that are read at once
_MAX_SEARCH_BYTES = 1 << 20  # bytes that are searched for one packet
_MAX_PACKET_GROWTH = 8  # times the usual size: FFmpeg included damaged bytes
_MAX_MISSES = 16  # packets not found before the search moves on
_NO_TIMESTAMP = -(1 << 63)  # AV_NOPTS_VALUE
_AVI_CHUNK_HEADER_BYTES = 8  # bytes of a chunk's header


class FrameTimer(Protocol):
    """Assigns times to the frames of a track. `lost`: seconds of packets without audio since."""

    lost: float

    def skip(self, packet: Any) -> None:
        """Count a packet that cannot be decoded."""

    def stamp(self, packet: Any | None, frame: Any) -> TimedFrame:
        """The time of a frame that was decoded from this packet; None: at the end of the stream."""


def frame_timer(container: Any, stream: Any, file: BinaryIO | FileSlice) -> FrameTimer:
    """The timer for an opened container; `file` is what FFmpeg reads, and keeps its position."""
    if container.format.name not in _RAW_STREAM_FORMATS:
        return _ClockTimer(stream, _avi_index(container, stream))
    return ByteTimer(file)


def start_time(container: Any) -> float | None:
    """The container's clock at the start of its earliest track."""
    begin = container.start_time
    if container.format.name in _RAW_STREAM_FORMATS or begin is None or begin == _NO_TIMESTAMP:
        return None
    return float(begin / av.time_base)


def clock_period(container: Any, stream: Any) -> float | None:
    """The period in seconds after which the container's clock wraps to 0."""
    bits = _CLOCK_BITS.get(container.format.name)
    return None if bits is None else float(2**bits * stream.time_base)


def has_frame_count(file: BinaryIO | FileSlice) -> bool:
    """Whether an mp3 file states its number of frames, in the first frame of some encoders.

    Source: the Xing and VBRI headers, as FFmpeg's libavformat/mp3dec.c reads them.
    """
    _, head = first_frame_header(file)
    return any(name in head for name in (b"Xing", b"Info", b"VBRI"))


def first_frame_header(file: BinaryIO | FileSlice) -> tuple[int, bytes]:
    """Offset of an mp3 file's first frame, after its tags, and its first 256 bytes."""
    position = file.tell()
    try:
        start = file.seek(0)
        while length := _id3_length(file.read(10)):
            start = file.seek(start + length)
        file.seek(start)
        return start, file.read(256)
    finally:
        file.seek(position)


def begins_with_tag(packet: Any) -> bool:
    """Whether FFmpeg included a tag before an mp3 recording in its first packet."""
    data = bytes(packet)
    return 0 < _id3_length(data) < len(data)


def _id3_length(head: bytes) -> int:
    """Length of the ID3v2 tag that begins with these 10 bytes; 0 if there is none."""
    if head[:3] != b"ID3" or len(head) < 10:
        return 0
    return 10 + sum((byte & 127) << 7 * (3 - n) for n, byte in enumerate(head[6:10]))


def _avi_index(container: Any, stream: Any) -> Any:
    """The index of an AVI file, the only record of missing chunks.

    Older releases of PyAV do not expose it: there, damage to an AVI file shifts what follows.
    """
    entries = getattr(stream, "index_entries", None) if container.format.name == "avi" else None
    return entries or None


class _ClockTimer:
    """Times of the container's packets."""

    def __init__(self, stream: Any, index: Any) -> None:
        self.lost = 0.0
        self._base = stream.time_base
        self._index = index
        self._ratio = 0
        self._shift = 0.0

    def skip(self, packet: Any) -> None:
        self.lost += float((packet.duration or 0) * self._base)

    def stamp(self, packet: Any | None, frame: Any) -> TimedFrame:
        self.lost = 0.0
        if self._index is not None and packet is not None:
            self._shift = self._behind_index(packet)
        if frame.pts is None or not frame.time_base:
            return TimedFrame(frame, None)
        return TimedFrame(frame, float(frame.pts * frame.time_base) + self._shift)

    def _behind_index(self, packet: Any) -> float:
        """How far FFmpeg's count is behind the index, which lists missing packets too.

        The index counts bytes where packets count samples, so their ratio is found first.
        """
        if not packet.pos or not packet.pts:
            return self._shift
        entry = self._index[max(0, bisect_right(self._index, packet.pos, key=_entry_position) - 1)]
        if not 0 <= packet.pos - entry.pos <= _AVI_CHUNK_HEADER_BYTES:
            return self._shift
        if not self._ratio:
            self._ratio, rest = divmod(entry.timestamp, packet.pts)
            if rest or not self._ratio:  # packets are already missing
                self._index = None
                return 0.0
        return float((Fraction(entry.timestamp, self._ratio) - packet.pts) * self._base)


def _entry_position(entry: Any) -> int:
    return int(entry.pos)


class ByteTimer:
    """Times of a raw stream: the audio decoded, and the bytes between, at the bit rate so far.

    FFmpeg reports neither where it skips bytes nor, after it did, the offset of a packet. So each
    packet is searched in the file, from the end of the one before.
    """

    def __init__(self, file: BinaryIO | FileSlice) -> None:
        self.lost = 0.0  # bytes after the last packet need not be audio
        self._file = file
        self._chunk, self._chunk_at = b"", 0
        self._end: int | None = None  # end of the last packet found
        self._searched = self._misses = 0  # where to search from, and failures so far
        self._decoded_s = self._skipped_s = 0.0
        self._bytes = self._count = 0  # of the packets found
        self._packet: Any = None

    def skip(self, packet: Any) -> None:
        if begins_with_tag(packet) and (at := self._search(bytes(packet))) is not None:
            self._end = self._searched = at + packet.size

    def stamp(self, packet: Any | None, frame: Any) -> TimedFrame:
        if packet is not None and packet is not self._packet:
            self._packet = packet
            self._find(bytes(packet))
        stamped = TimedFrame(frame, self._decoded_s + self._skipped_s)
        self._decoded_s += stamped.length
        return stamped

    def _find(self, data: bytes) -> None:
        """Advance to a packet, and count the bytes before it."""
        at = self._search(data)
        if at is None:  # FFmpeg joined both sides of a gap, or the gap is long
            self._misses += 1
            self._searched += _MAX_SEARCH_BYTES * (self._misses % _MAX_MISSES == 0)
            return
        if self._end is not None and at > self._end and self._bytes:
            missing = max(0, at - self._end - self._tags(self._end))
            self._skipped_s += missing * self._decoded_s / self._bytes
        usual = self._bytes // max(self._count, 1)
        length = usual if 0 < _MAX_PACKET_GROWTH * usual < len(data) else len(data)
        self._bytes += length
        self._count += 1
        self._end, self._searched = at + length, at + len(data)

    def _search(self, data: bytes) -> int | None:
        at = self._searched
        while at < self._searched + _MAX_SEARCH_BYTES:
            view = self._view(at, len(data))
            found = view.find(data)
            if found >= 0:
                return at + found
            if len(view) <= len(data):
                return None
            at += len(view) - len(data) + 1
        return None

    def _view(self, at: int, least: int) -> bytes:
        """Bytes of the file from `at` on, at least `least` of them unless it ends."""
        begin = at - self._chunk_at
        if not 0 <= begin <= len(self._chunk) - least:
            position = self._file.tell()
            self._file.seek(at)
            self._chunk, self._chunk_at, begin = self._file.read(least + _READ_BYTES), at, 0
            self._file.seek(position)
        return self._chunk[begin:]

    def _tags(self, at: int) -> int:
        """Length of the tags that begin here, of the previous recording or of the next one."""
        begin = at
        while True:
            head = self._view(at, 32)[:32]
            if length := _id3_length(head):
                at += length
            elif head[:8] == b"APETAGEX" and len(head) == 32:
                at += int.from_bytes(head[12:16], "little") + 32 * bool(head[23] & 0x20)
            elif head[:3] == b"TAG":
                at += 128
            else:
                return at - begin
