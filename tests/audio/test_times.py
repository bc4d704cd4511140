"""Times are a player's: each burst of a tone is heard where the packets of the file say it is.

docs/times.md lists what happens in which container, and the test that shows it. Every file is made
here: bursts of tones, one a second, whose packets are muxed with other times, left out or
overwritten. What is expected comes from demuxing the file, not from oscine.
"""

from __future__ import annotations

import io
import logging
import random
import re
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import av
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oscine.audio import decoder_pool
from oscine.audio.clock import MAX_SILENCE_S, Clock, TimedFrame
from oscine.audio.io import decode, open_source
from oscine.audio.resample import Resampler, mono_frame

BURST = 0.2  # seconds of tone in each second
NEAR = 0.1  # seconds that a burst may be off
RATES = {"libmp3lame": 44_100, "wmav2": 44_100, "pcm_s16le": 16_000}
CLOCKED = [
    *[("mp4", "aac"), ("mov", "alac"), ("matroska", "flac"), ("matroska", "aac")],
    *[("webm", "libopus"), ("mpegts", "mp2"), ("mpegts", "aac"), ("mpeg", "mp2")],
    *[("ogg", "libopus"), ("ogg", "flac"), ("flv", "aac"), ("asf", "wmav2"), ("nut", "mp2")],
]
WITHOUT_CLOCK = [("mp3", "libmp3lame"), ("adts", "aac"), ("ac3", "ac3")]
FRAGMENTS = {"movflags": "frag_keyframe+empty_moov", "frag_duration": "1000000"}
Shift = Callable[[float], float | None]


class Packet(NamedTuple):
    """One that an encoder made: its bytes, and which seconds of the recording it holds."""

    data: bytes
    begin: float
    length: float


def pitch(second: int) -> int:
    return 400 + 150 * (second % 12)


@lru_cache(maxsize=32)
def encoded(codec: str, seconds: int) -> tuple[tuple[Packet, ...], int]:
    """Packets of `seconds` of bursts, and their rate."""
    rate = RATES.get(codec, 48_000)
    time = np.arange(seconds * rate) / rate
    tone = np.sin(2 * np.pi * (400 + 150 * (time.astype(int) % 12)) * time) * (time % 1 < BURST)
    noise = np.random.default_rng(0).normal(size=len(time))  # no two packets are alike
    samples = (0.5 * tone + 1e-3 * noise).astype("f4")
    with av.open(io.BytesIO(), "w", format="asf" if codec == "wmav2" else "matroska") as output:
        stream = _stream(output, codec, rate)
        frame = av.AudioFrame.from_ndarray(samples.reshape(1, -1), "flt", "mono")
        frame.sample_rate = rate
        stream.codec_context.open()
        size = stream.codec_context.frame_size or 1024
        packets, at = [], 0
        for piece in av.AudioResampler(stream.format, "mono", rate, size).resample(frame):
            piece.pts, piece.time_base = at, Fraction(1, rate)
            at += piece.samples
            packets += stream.encode(piece)
        packets += stream.encode(None)
        packets = [packet for packet in packets if packet.pts is not None and packet.size]
        begins = [float(packet.pts * packet.time_base) for packet in packets]
        lengths = [*np.diff(begins), size / rate]
        made = [
            Packet(bytes(packet), *ends)
            for packet, *ends in zip(packets, begins, lengths, strict=True)
        ]
        return tuple(made), rate


def _stream(output, codec, rate):
    stream = output.add_stream(codec, rate=rate, layout="mono")
    if not codec.startswith(("flac", "alac", "pcm")):
        stream.bit_rate = 64_000
    return stream


def muxed(
    container: str,
    codec: str,
    seconds: int = 10,
    shift: Shift = lambda second: second,
    video: int = 0,
    options: dict[str, str] | None = None,
    path: Path | None = None,
) -> bytes:
    """A file whose packets have the times that `shift` makes of their own; None leaves one out."""
    if codec not in av.codec.codecs_available or container not in av.formats_available:
        pytest.skip(f"this FFmpeg writes no {codec} in {container}")
    packets, rate = encoded(codec, seconds)
    file = io.BytesIO()
    place = file if path is None else str(path)
    with av.open(place, "w", format=container, options=options or {}) as output:
        if video:
            coder = {"mpeg": "mpeg2video", "flv": "flv"}.get(container, "mpeg4")
            pictures = output.add_stream(coder, rate=25)
            pictures.width = pictures.height = 64
            pictures.pix_fmt = "yuv420p"
        stream = _stream(output, codec, rate)
        if codec != "wmav2":  # or the header lacks what the encoder would say
            stream.codec_context.open()
        if video:
            for number in range(25 * video):
                picture = av.VideoFrame.from_ndarray(np.zeros((64, 64, 3), np.uint8), "rgb24")
                picture.pts, picture.time_base = number, Fraction(1, 25)
                output.mux(pictures.encode(picture))
            output.mux(pictures.encode(None))
        for made in packets:
            second = shift(made.begin)
            if second is None:
                continue
            packet = av.Packet(made.data)
            packet.stream, packet.time_base = stream, Fraction(1, 90_000)
            packet.pts = packet.dts = round(second * 90_000)
            packet.duration = round(made.length * 90_000)
            packet.is_keyframe = True
            output.mux(packet)
    return file.getvalue() if path is None else path.read_bytes()


def packet_clock(data: bytes, codec: str, seconds: int = 10) -> dict[int, float]:
    """When each burst begins by the packets that are in the file, from where it begins.

    Bursts whose first packet is not there, or is not whole, are left out.
    """
    known = {packet.data: packet for packet in encoded(codec, seconds)[0]}
    ends = {data[-24:]: packet for data, packet in known.items()}  # some put a header before it
    times: dict[int, float] = {}
    with av.open(io.BytesIO(data)) as opened:
        stream = opened.streams.audio[0]
        start = opened.start_time if opened.start_time and opened.start_time > -(10**12) else 0
        for packet in packets_of(opened, stream):
            data = bytes(packet)
            made = known.get(data) or ends.get(data[-24:])
            if made is None or packet.pts is None or made.data not in data:
                continue
            second = round(made.begin + made.length / 2)
            if made.begin <= second + 0.03 < made.begin + made.length and second not in times:
                begin = float(packet.pts * packet.time_base) - start / 1e6
                times[second] = begin + second - made.begin
    return times


def packets_of(opened, stream):
    for _ in range(20):
        try:
            yield from opened.demux(stream)
            return
        except av.error.InvalidDataError:  # there are more behind the damage
            pass


def onsets(samples: np.ndarray, seconds: list[int]) -> dict[int, list[float]]:
    """When tones of the pitch of these seconds begin, rate 16 kHz."""
    time = np.arange(len(samples)) / 16_000
    of_pitch = {}
    for hertz in {pitch(second) for second in seconds}:
        sums = np.cumsum(
            np.concatenate([np.zeros(480), samples * np.exp(-2j * np.pi * hertz * time)])
        )
        of_pitch[hertz] = begins(np.abs(sums[480:] - sums[:-480]) / 480 > 0.1)
    return {second: of_pitch[pitch(second)] for second in seconds}


def begins(loud: np.ndarray) -> list[float]:
    """Seconds at which it is loud for 50 ms and more."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], loud.astype(int), [0]]))).reshape(-1, 2)
    return [begin / 16_000 for begin, end in edges.tolist() if end - begin > 800]


def check(data: bytes, codec: str, seconds: int = 10, near: float = NEAR, least: int = 6):
    """Decode, and hold each burst against the clock of the packets; returns the audio."""
    audio = decode(data)
    expected = packet_clock(data, codec, seconds)
    assert len(expected) >= least
    found = onsets(audio.samples, sorted(expected))
    for second, time in expected.items():
        assert any(abs(onset - time) < near for onset in found[second]), (second, time, found)
    return audio


def gap(at: float, length: float, start: float = 0) -> Shift:
    return lambda second: start + second + length * (second >= at)


def lost(begin: float, end: float) -> Shift:
    return lambda second: None if begin <= second < end else second


def damaged(data: bytes, begin: float = 0.35, end: float = 0.6, seed: int = 7) -> bytes:
    """A part of the bytes is replaced by random ones."""
    first, last = int(begin * len(data)), int(end * len(data))
    return data[:first] + random.Random(seed).randbytes(last - first) + data[last:]


def silences(message: str) -> list[tuple[float, float]]:
    return [(float(a), float(b)) for a, b in re.findall(r"([\d.]+) to ([\d.]+) s", message)]


@pytest.fixture
def warnings(caplog):
    """The messages so far, which a call empties."""
    caplog.set_level(logging.WARNING)

    def taken() -> list[str]:
        messages = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return messages

    return taken


@pytest.mark.parametrize(("container", "codec"), [*CLOCKED, ("avi", "libmp3lame")])
def test_a_file_without_gaps_stays_as_it_is(warnings, container, codec):
    audio = check(muxed(container, codec), codec, least=9)
    assert audio.duration == pytest.approx(10, abs=0.1)
    assert not warnings()


@pytest.mark.parametrize(
    ("container", "codec"), [kind for kind in CLOCKED if kind[0] not in ("webm", "ogg")]
)
def test_a_track_that_starts_late(warnings, container, codec):
    data = muxed(container, codec, 6, lambda second: second + 5, video=14)
    audio = check(data, codec, 6, least=5)
    assert audio.duration == pytest.approx(11, abs=0.15)
    assert not audio.samples[: int(4.5 * 16_000)].any()
    assert not warnings()


@pytest.mark.parametrize(("container", "codec"), CLOCKED)
def test_a_gap_of_the_clock_becomes_silence(warnings, container, codec):
    audio = check(muxed(container, codec, shift=gap(4.5, 20)), codec, least=9)
    assert audio.duration == pytest.approx(30, abs=0.15)
    (message,) = warnings()
    assert message.startswith("bytes: lacks some of its audio; silence replaces ")
    assert message.endswith("; using the 10.0 s that can be read") or container == "asf"
    ((begin, end),) = silences(message)
    assert end - begin == pytest.approx(20, abs=0.11) and begin == pytest.approx(4.5, abs=0.8)


def test_a_gap_in_a_fragmented_file(warnings):
    data = muxed("mp4", "aac", shift=gap(4.5, 20), options=FRAGMENTS)
    assert check(data, "aac", least=9).duration == pytest.approx(30, abs=0.1)
    assert len(warnings()) == 1


@pytest.mark.parametrize(("container", "codec"), CLOCKED)
def test_a_lost_segment_becomes_silence(warnings, container, codec):
    audio = check(muxed(container, codec, shift=lost(3.1, 5.9)), codec, least=6)
    assert audio.duration == pytest.approx(10, abs=0.1)
    (message,) = warnings()
    assert sum(end - begin for begin, end in silences(message)) == pytest.approx(2.8, abs=0.21)


@pytest.mark.parametrize(
    ("container", "codec"),
    [*CLOCKED, ("flac", "flac"), ("caf", "alac"), ("avi", "libmp3lame"), ("avi", "pcm_s16le")],
)
def test_damage_becomes_silence(warnings, container, codec):
    options = {"cluster_time_limit": "1000"} if container in ("matroska", "webm") else {}
    whole = muxed(container, codec, options=options)
    data = damaged(whole)
    if container == "avi":
        with av.open(io.BytesIO(data)) as opened:
            if not hasattr(opened.streams.audio[0], "index_entries"):
                pytest.skip("this PyAV does not show the index of an AVI file")
        expected = packet_clock(whole, codec)  # FFmpeg counts chunks, the index knows better
        found = onsets(decode(data).samples, [1, 2, 8, 9])
        assert all(abs(found[second][-1] - expected[second]) < NEAR for second in found)
        assert decode(data).duration == pytest.approx(10, abs=0.1)
        assert len(set(warnings())) == 1
        return
    audio = check(data, codec, least=4)
    assert audio.duration == pytest.approx(10, abs=0.1)
    (message,) = warnings()
    assert "silence replaces" in message
    assert sum(end - begin for begin, end in silences(message)) > 1.5


@pytest.mark.parametrize(("container", "codec"), WITHOUT_CLOCK)
@pytest.mark.parametrize("seed", range(3))
def test_damage_without_a_clock_is_counted_in_bytes(warnings, tmp_path, container, codec, seed):
    whole = muxed(container, codec)
    path = tmp_path / "damaged"
    path.write_bytes(damaged(whole, seed=seed))
    audio = decode(path)
    (message,) = warnings()
    assert "silence replaces" in message and "Error number" not in message
    assert np.array_equal(decode(path.read_bytes()).samples, audio.samples)
    assert audio.duration == pytest.approx(10, abs=0.15)
    found = onsets(audio.samples, [1, 2, 7, 8, 9])
    for second, times in found.items():
        assert len(times) == 1 and abs(times[0] - second - 0.02) < 0.15, found


def test_tags_between_recordings_are_no_time(warnings):
    part = muxed("mp3", "libmp3lame", 3)
    size = 200_000
    tag = b"ID3\x03\0\0" + bytes(size >> shift & 127 for shift in (21, 14, 7, 0))
    apev2 = b"APETAGEX\xd0\x07\0\0\x20\0\0\0\1\0\0\0\0\0\0\xa0" + bytes(8) + bytes(32)
    for between in (tag + bytes(size), b"TAG" + bytes(125), apev2, apev2 + tag + bytes(size)):
        audio = decode(part + between + part)
        assert audio.duration == pytest.approx(6.05, abs=0.15)
        assert not [message for message in warnings() if "silence" in message]


def test_damage_at_the_end_counts_to_the_last_packet(warnings):
    whole = muxed("mp4", "aac")
    sound = whole.index(b"moov") - 4
    audio = decode(damaged(whole[:sound], 0.8, 1) + whole[sound:])
    assert audio.duration == pytest.approx(10, abs=0.1)
    (message,) = warnings()
    assert message.endswith(" s that can be read") and " to 10.0 s" in message


def test_a_cut_with_an_edit_list_keeps_its_times(warnings):
    def cut(second: float) -> float | None:
        return None if second < 3.6 else second - 4

    data = muxed("mp4", "aac", shift=cut)
    audio = decode(data)
    assert audio.duration == pytest.approx(6, abs=0.1)
    found = onsets(audio.samples, [5, 6, 7, 8, 9])
    assert all(len(times) == 1 for times in found.values())
    assert all(abs(times[0] - second + 4) < 0.05 for second, times in found.items())
    assert not warnings()


@pytest.mark.parametrize(
    ("container", "codec"), [kind for kind in CLOCKED if kind != ("ogg", "flac")]
)
def test_a_clock_that_begins_late_counts_from_there(warnings, container, codec):
    audio = check(muxed(container, codec, shift=lambda second: second + 3700), codec, least=9)
    assert audio.duration == pytest.approx(10, abs=0.1)
    assert not warnings()


@pytest.mark.parametrize(
    ("container", "codec"),
    [("mpegts", "mp2"), ("mpegts", "aac"), ("mpeg", "mp2"), ("ogg", "libopus")],
)
@pytest.mark.parametrize("offset", [0, 3700])
def test_recordings_that_follow_each_other(warnings, container, codec, offset):
    first = muxed(container, codec, 5, lambda second: second + offset)
    audio = decode(first + muxed(container, codec, 5))
    assert audio.duration == pytest.approx(10, abs=0.15)
    found = onsets(audio.samples, [1, 2, 3, 4])
    for second, times in found.items():
        assert len(times) == 2 and abs(times[1] - second - 5) < NEAR, found
    assert not warnings()


def test_a_clock_that_wraps(warnings):
    for missing in (0, 3):
        data = muxed("mpegts", "mp2", shift=gap(4.5, missing, start=2**33 / 90_000 - 3))
        assert decode(data).duration == pytest.approx(10 + missing, abs=0.1)
        assert len(warnings()) == bool(missing)


@pytest.mark.parametrize("speed", [1.004, 0.996])
def test_a_clock_that_drifts_is_followed(warnings, speed):
    data = muxed("matroska", "aac", 60, lambda second: second * speed)
    audio = decode(data)
    expected = packet_clock(data, "aac", 60)
    level = np.sqrt(np.convolve(audio.samples**2, np.ones(160) / 160, "same"))
    found = np.array(begins(level > 0.1))  # of any pitch, which is higher where time is made up
    assert len(expected) >= 59
    assert all(np.abs(found - time).min() < NEAR for time in expected.values())
    assert audio.duration == pytest.approx(60 * speed, abs=NEAR)
    assert len(warnings()) == (speed > 1)


def test_jitter_puts_nothing_in(warnings):
    draw = random.Random(3)
    data = muxed("matroska", "libopus", shift=lambda second: second + draw.uniform(0, 0.009))
    audio = decode(data)
    assert audio.duration == pytest.approx(10, abs=0.03)
    assert not warnings()


def test_more_silence_than_six_hours_is_not_put_in(warnings):
    def jump(second: float) -> float:
        return second + 4 * (second > 2.5) + 7 * 3600 * (second > 4.5) + 60 * (second > 6.5)

    audio = decode(muxed("matroska", "aac", shift=jump))
    assert audio.duration == pytest.approx(14, abs=0.1)
    refused, told = warnings()
    assert refused == (
        "bytes: its clock leaves out 25200.0 s at 8.5 s, and at most 6 h of silence are put in; "
        "times from there on count the sound alone"
    )
    assert silences(told) == [(2.5, 6.5)]


def test_many_gaps_are_one_line(warnings):
    data = muxed("matroska", "aac", 30, lambda second: second + 0.3 * int(second))
    check(data, "aac", 30, least=28)
    (message,) = warnings()
    assert len(silences(message)) == 5
    assert "and 24 times more (8.7 s in all)" in message


@pytest.mark.parametrize("where", ["another process", "this process"])
def test_a_recording_that_is_read_again_warns_once(warnings, monkeypatch, where):
    if where == "this process":
        monkeypatch.setattr(decoder_pool, "_acquire_decoder", lambda: None)
    source = open_source(muxed("matroska", "aac", shift=gap(4.5, 2)))
    for reading in (source, source, source.with_channel(1), source.with_max_duration(60)):
        assert sum(map(len, reading.blocks())) == pytest.approx(12 * 16_000, abs=3000)
    assert len(warnings()) == 1


def test_a_video_longer_than_its_sound(warnings):
    for container in ("matroska", "mp4", "mpegts"):
        data = muxed(container, "aac", 4, video=12)
        assert decode(data).duration == pytest.approx(4, abs=0.1)
    assert not warnings()


@pytest.mark.parametrize("late", [0, 5])
@pytest.mark.parametrize("container", ["mp4", "matroska"])
def test_a_late_track_that_is_cut_off_is_told_by_its_length(warnings, tmp_path, container, late):
    data = muxed(
        *(container, "aac", 10, lambda second: second + late, 16),
        options={"movflags": "faststart"} if container == "mp4" else {},
        path=tmp_path / "late",
    )
    decode(data)
    assert not warnings()
    with av.open(io.BytesIO(data)) as opened:
        places = [packet.pos for packet in opened.demux(audio=0) if packet.pos]
    audio = decode(data[: places[len(places) * 2 // 3]])
    assert late < audio.duration < late + 9
    stated = 10 + late * (container == "matroska")
    assert f"ends before the {stated:.1f} s stated in its header" in " ".join(warnings())


@pytest.mark.parametrize("counted", [True, False])
def test_an_mp3_that_is_cut_is_told_by_its_count_of_frames(warnings, tmp_path, counted):
    """Without a count nothing says how long it was."""
    options = {"write_xing": str(int(counted))}
    data = muxed("mp3", "libmp3lame", 12, options=options, path=tmp_path / "whole.mp3")
    decode(data)
    assert not warnings()
    assert decode(data[: len(data) // 2]).duration == pytest.approx(6, abs=0.2)
    found = [message for message in warnings() if "ends before the 12." in message]
    assert len(found) == counted


def test_gaps_of_every_channel_and_rate(warnings):
    data = muxed("mpegts", "mp2", shift=gap(4.5, 3))
    whole = decode(data, 48_000)
    assert whole.duration == pytest.approx(13, abs=0.1)
    for rate in (8000, 11_025, 24_000):
        samples = decode(data, rate).samples
        assert abs(len(samples) / rate - whole.duration) < 2e-3
    for channel, expected in ((1, decode(data).samples), (2, None)):
        if expected is not None:
            heard = decode(open_source(data, channel)).samples
            assert np.abs(heard - expected).max() < 1e-3
    blocks = list(open_source(muxed("matroska", "aac", shift=gap(4.5, 1800))).blocks())
    assert sum(map(len, blocks)) == pytest.approx(1810 * 16_000, abs=1600)
    assert max(map(len, blocks)) <= 1 << 18


@given(
    gaps=st.dictionaries(st.integers(0, 8), st.floats(0, 3) | st.floats(0, 0.12), max_size=6),
    place=st.floats(0.3, 0.9),
    kind=st.sampled_from([("matroska", "libopus"), ("mpegts", "mp2"), ("mp4", "aac")]),
)
@settings(max_examples=15)
def test_gaps_anywhere(gaps, place, kind):
    def shift(second: float) -> float:
        return second + sum(length for at, length in gaps.items() if second >= at + place)

    audio = check(muxed(*kind, shift=shift), kind[1], least=8)
    assert audio.duration == pytest.approx(10 + sum(gaps.values()), abs=0.15)


class _Frame:
    """As much of a decoded frame as the clock looks at."""

    def __init__(self, samples: int, sample_rate: int = 16_000) -> None:
        self.samples, self.sample_rate = samples, sample_rate


def aligned(times: list[float | None], samples: int = 320, **how) -> tuple[Clock, list[float]]:
    """The clock after frames of 20 ms with these times, and the silence before each."""
    clock = Clock()
    frames = [TimedFrame(_Frame(samples), time) for time in times]
    return clock, [silence for silence, _ in clock.align(frames, **{"start": 0.0} | how)]


def steady(count: int, start: float = 0.0) -> list[float]:
    return [start + number * 0.02 for number in range(count)]


@given(
    steps=st.lists(
        st.tuples(st.integers(30, 200), st.floats(-500, 500) | st.floats(-0.04, 0.2)), max_size=8
    )
)
def test_the_clock_never_goes_back_and_drops_nothing(steps):
    times, now = [], 0.0
    for count, step in steps:
        times += steady(count, now)
        now = times[-1] + 0.02 + step
    clock, silences_ = aligned(times)
    assert len(silences_) == len(times) and min(silences_, default=0) >= 0
    sound = 0.02 * len(times)
    assert sound / 1.06 <= clock.position - sum(silences_) <= sound + 1e-6
    forward = sum(max(0, step) for _, step in steps[:-1])
    assert sum(silences_) <= forward + 0.05 * (len(steps) + 1)


@given(
    gaps=st.dictionaries(st.integers(1, 900), st.floats(0, 3), max_size=30),
    jitter=st.floats(0, 0.02),
    seed=st.integers(0, 9),
)
def test_every_frame_is_near_its_time(gaps, jitter, seed):
    draw = random.Random(seed)
    times, now = [], 0.0
    for number in range(1000):
        now += gaps.get(number, 0.0)
        times.append(now + draw.uniform(0, jitter))
        now += 0.02
    position = 0.0
    for time, silence in zip(times, aligned(times)[1], strict=True):
        position += silence
        assert abs(position - time) < 0.08
        position += 0.02


@pytest.mark.parametrize("wrong", [500.0, -500.0, 0.5, -0.5, 90_000.0])
@pytest.mark.parametrize("count", [1, 5, 20])
def test_times_that_are_damaged_for_a_moment_put_nothing_in(wrong, count):
    times = steady(500, 1000.0)
    for number in range(200, 200 + count):
        times[number] += wrong
    clock, silences_ = aligned(times, start=1000.0)
    assert not any(silences_) and clock.refused is None
    times[220:] = [time + 3 for time in times[220:]]  # and where packets are missing as well
    clock, silences_ = aligned(times, start=1000.0)
    assert sum(silences_) == pytest.approx(3, abs=0.06)


def test_a_clock_that_stands_still_or_is_not_there_is_none():
    for times in ([0.0] * 1000, [None] * 1000, [7.0, None, None] + [None] * 997):
        clock, silences_ = aligned(times, start=None)
        assert clock.position == pytest.approx(20) and not any(silences_)


def test_silence_is_bounded_over_all_parts():
    clock = Clock()
    for part in range(4):
        frames = [
            TimedFrame(_Frame(320), time) for time in [0.0, 2 * 3600.0 + 0.02, 2 * 3600 + 0.04]
        ]
        frames += [TimedFrame(_Frame(320), 2 * 3600 + 0.06 + 0.02 * n) for n in range(60)]
        filled = sum(silence for silence, _ in clock.align(frames, 0.0))
        assert filled == pytest.approx(7200 if part < 3 else 0)
        assert (clock.refused is None) == (part < 3)
    assert clock.gap_seconds == pytest.approx(MAX_SILENCE_S)


@pytest.mark.parametrize("rate", [8000, 16_000, 44_100])
def test_silence_begins_where_the_sound_ends(rate):
    """Whatever is inside the filter comes first, and the lengths add up to the sample."""
    resampler = Resampler(16_000)
    ramp = np.full(rate, 0.5, np.float32)
    parts = []
    for _ in range(3):
        for start in range(0, rate, 1000):
            parts += resampler.push(mono_frame(ramp[start : start + 1000], rate))
        parts += resampler.silence(10.3)
    samples = np.concatenate(parts)
    assert abs(len(samples) - 3 * 11.3 * 16_000) <= 1
    assert max(map(len, parts)) <= 1 << 16
    for turn in range(3):
        begin = round(turn * 11.3 * 16_000)
        assert (samples[begin + 100 : begin + 15_900] > 0.4).all()
        assert not samples[begin + 16_100 : begin + 11 * 16_000].any()
