"""Containers and codecs encoded on the spot: compressed, video, changing, cut off, silent."""

from __future__ import annotations

import io
import logging
import struct
import tracemalloc
import wave
from functools import lru_cache

import av
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oscine.audio.container import DecodeRequest, decode_track
from oscine.audio.io import decode, open_source
from oscine.audio.resample import Resampler
from oscine.errors import AudioError, NonFiniteError

SECONDS = 2
# container, codec, rate, channels, largest error in the middle (lossless or what a codec allows)
KINDS = [
    ("flac", "flac", 44_100, 2, 1e-3),
    ("wav", "pcm_s24le", 48_000, 2, 1e-3),
    ("wav", "adpcm_ms", 22_050, 1, 0.05),
    ("aiff", "pcm_s16be", 16_000, 1, 1e-3),
    ("caf", "pcm_s16le", 16_000, 1, 1e-3),
    ("mp3", "libmp3lame", 44_100, 2, 0.05),
    ("mp3", "libmp3lame", 16_000, 1, 0.05),
    ("ogg", "libopus", 48_000, 1, 0.05),
    ("ogg", "libvorbis", 44_100, 2, 0.05),
    ("webm", "libopus", 48_000, 2, 0.05),
    ("ipod", "aac", 44_100, 1, 0.05),
    ("ipod", "alac", 44_100, 2, 1e-3),
    ("adts", "aac", 44_100, 2, 0.05),
    ("mp4", "aac", 48_000, 2, 0.05),
    ("matroska", "aac", 48_000, 2, 0.05),
    ("matroska", "ac3", 48_000, 6, 0.05),
    ("mpegts", "mp2", 48_000, 2, 0.05),
    ("asf", "wmav2", 44_100, 2, 0.1),
]


class Counted(io.BytesIO):
    """Bytes that know up to where they were read."""

    furthest = 0

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self.furthest = max(self.furthest, self.tell())
        return data


def tone(rate: int, seconds: float = SECONDS) -> np.ndarray:
    return (0.3 * np.sin(2 * np.pi * 220 * np.arange(int(rate * seconds)) / rate)).astype("f4")


def encode(
    container: str, codec: str, rate: int, channels: int, *, video: bool = False, tracks: int = 1
) -> bytes:
    """A tone in the wanted form, all channels alike; further tracks hold zeros."""
    if codec not in av.codec.codecs_available or container not in av.formats_available:
        pytest.skip(f"this FFmpeg writes no {codec} in {container}")
    layout = {1: "mono", 2: "stereo", 6: "5.1"}[channels]
    file = io.BytesIO()
    with av.open(file, "w", format=container) as output:
        if video:
            pictures = output.add_stream("mpeg4", rate=10)
            pictures.width = pictures.height = 64
            pictures.pix_fmt = "yuv420p"
        streams = [output.add_stream(codec, rate=rate, layout=layout) for _ in range(tracks)]
        if video:
            for _ in range(10 * SECONDS):
                picture = av.VideoFrame.from_ndarray(np.zeros((64, 64, 3), np.uint8), "rgb24")
                output.mux(pictures.encode(picture))
            output.mux(pictures.encode(None))
        for number, stream in enumerate(streams):
            stream.bit_rate = 128_000
            samples = np.repeat(tone(rate)[:, None] * (number == 0), channels, axis=1)
            frame = av.AudioFrame.from_ndarray(samples.reshape(1, -1), "flt", layout)
            frame.sample_rate = rate
            for converted in av.AudioResampler(stream.format, layout, rate, 1024).resample(frame):
                output.mux(stream.encode(converted))
            output.mux(stream.encode(None))
    return file.getvalue()


@pytest.mark.parametrize(("container", "codec", "rate", "channels", "allowed"), KINDS)
def test_kinds(container, codec, rate, channels, allowed):
    audio = decode(encode(container, codec, rate, channels))
    assert audio.rate == 16_000
    assert audio.duration == pytest.approx(SECONDS, abs=0.15)  # raw codecs keep their padding
    heard = audio.samples[8000:24_000]
    # The phase is the codec's own business: compare with the best fitting tone of this frequency.
    t = 2 * np.pi * 220 * np.arange(len(heard)) / 16_000
    basis = np.stack([np.sin(t), np.cos(t)], axis=1)
    fit, *_ = np.linalg.lstsq(basis, heard, rcond=None)
    assert np.abs(heard - basis @ fit).max() < allowed
    # 5.1 holds a silent-by-weight bass channel; the others' weights sum to one.
    assert np.hypot(*fit) == pytest.approx(0.3, abs=max(allowed, 2e-3))


@pytest.mark.parametrize("container", ["mp4", "matroska", "mov", "avi"])
def test_the_first_audio_track_of_a_video(tmp_path, container):
    data = encode(container, "aac", 48_000, 2, video=True, tracks=2)
    path = tmp_path / "film"
    path.write_bytes(data)
    for source in (data, path):
        audio = decode(source)
        assert audio.duration == pytest.approx(SECONDS, abs=0.15)
        assert np.abs(audio.samples).max() > 0.25


def test_a_video_without_sound_says_so():
    data = encode("mp4", "aac", 48_000, 2, video=True, tracks=0)
    with pytest.raises(AudioError, match=r"film.mp4: has no audio track \(only video\); give a "):
        list(open_source(data, name="film.mp4").blocks())


@pytest.mark.parametrize(
    ("container", "codec", "rate"), [("flac", "flac", 44_100), ("ogg", "libopus", 48_000)]
)
def test_a_cut_recording_keeps_its_beginning(caplog, container, codec, rate):
    whole = encode(container, codec, rate, 1)
    data = whole[: len(whole) * 3 // 4]
    with caplog.at_level(logging.WARNING):
        audio = decode(data)
    assert 0.3 < audio.duration < 1.9
    if container == "flac":  # its header says how much was meant to be here
        assert len(caplog.records) == 1
        assert "bytes: " in caplog.records[0].getMessage()


@pytest.mark.parametrize(
    ("container", "codec"), [("mp4", "aac"), ("ipod", "alac"), ("mov", "pcm_s16le")]
)
def test_a_film_that_is_cut_before_its_index_is_told(container, codec):
    """Its index is the last that a recorder writes; mdat's size may have 4 or 8 bytes."""
    whole = encode(container, codec, 48_000, 1)
    index, sound = whole.index(b"moov") - 4, whole.index(b"mdat") - 4
    assert sound < index
    size = int.from_bytes(whole[sound : sound + 4], "big")
    long = whole[:sound] + b"\0\0\0\1mdat" + (size + 8).to_bytes(8, "big")
    long += whole[sound + 8 : index]
    unended = whole[:sound] + bytes(4) + whole[sound + 4 : index]
    places = (sound + 8, sound + 500, index, index + 4, index + 40)
    for data in [*(whole[:place] for place in places), whole[sound:index], long, unended]:
        with pytest.raises(AudioError) as raised:
            list(open_source(data, name="talk.mp4").blocks())
        assert str(raised.value) == (
            "talk.mp4: has no whole index (moov), as an mp4 or mov that is cut off; "
            "copy it again, or repair it with a tool such as untrunc"
        )


@pytest.mark.parametrize("size", [2, 7, 1 << 31, (1 << 32) - 1, 1 << 63, (1 << 64) - 1])
def test_a_box_of_any_size_is_one_line(size):
    """The walk over boxes ends, and seeks to no place that no file has."""
    head = b"\0\0\0\x10ftypisom\0\0\0\0"
    large = size >= 1 << 32
    box = (1 if large else size).to_bytes(4, "big") + b"mdat"
    box += size.to_bytes(8, "big") if large else b""
    with pytest.raises(AudioError, match=r"^a\.mp4: (begins as mp4, but|has no whole index)"):
        list(open_source(head + box + bytes(64), name="a.mp4").blocks())


def test_an_index_behind_damage_is_not_called_missing():
    whole = bytearray(encode("mp4", "aac", 48_000, 1))
    index = whole.index(b"moov")
    whole[index + 8 : index + 12] = b"\xff\xff\xff\xff"  # the boxes in it are damaged, it is whole
    try:
        decode(bytes(whole))
    except AudioError as error:
        assert "index" not in str(error)


def test_damage_in_the_middle_is_stepped_over(caplog):
    data = bytearray(encode("mp3", "libmp3lame", 44_100, 1))
    middle = len(data) // 2
    data[middle : middle + 600] = b"\0" * 600
    with caplog.at_level(logging.WARNING):
        audio = decode(bytes(data))
    assert audio.duration == pytest.approx(SECONDS, abs=0.3)


@lru_cache(maxsize=8)
def encoded_once(kind: tuple[str, str, int, int]) -> bytes:
    return encode(*kind)


@given(
    kind=st.sampled_from(
        [
            ("flac", "flac", 44_100, 2),
            ("adts", "aac", 44_100, 2),
            ("mp4", "aac", 48_000, 2),
            ("matroska", "aac", 48_000, 2),
            ("mpegts", "mp2", 48_000, 2),
        ]
    ),
    damage=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=12),
    head=st.booleans(),
    kept=st.just(1.0) | st.floats(0.01, 1),
)
@settings(max_examples=100, deadline=None)
def test_damaged_containers_decode_or_are_refused(kind, damage, head, kept):
    data = bytearray(encoded_once(kind))
    for place, value in damage:
        data[int(place * ((300 if head else len(data)) - 1))] = value
    try:
        audio = decode(bytes(data[: int(kept * len(data))]))
    except (AudioError, NonFiniteError) as error:
        assert "\n" not in str(error)
    else:
        assert np.isfinite(audio.samples).all()


def test_parameters_may_change_on_the_way():
    """Frames of other rates, channels and formats, as a stream joined from two recordings has."""
    resampler = Resampler(16_000)
    parts = []
    for rate, layout, format_, dtype in [
        (44_100, "stereo", "s16", "i2"),
        (44_100, "mono", "flt", "f4"),
        (16_000, "mono", "flt", "f4"),
        (48_000, "5.1", "fltp", "f4"),
        (8_000, "mono", "u8", "u1"),
    ]:
        channels = av.AudioLayout(layout).nb_channels
        shape = (channels, rate) if format_.endswith("p") else (1, channels * rate)
        frame = av.AudioFrame.from_ndarray(np.zeros(shape, dtype), format_, layout)
        frame.sample_rate = rate
        parts.extend(resampler.push(frame))
    parts.extend(resampler.flush())
    assert sum(map(len, parts)) == pytest.approx(5 * 16_000, abs=5)
    assert all(part.dtype == np.float32 for part in parts)


def test_joined_recordings_of_different_rates_decode():
    first = encode("adts", "aac", 44_100, 2)
    second = encode("adts", "aac", 22_050, 1)
    audio = decode(first + second)
    assert audio.duration == pytest.approx(2 * SECONDS, abs=0.3)


def test_decoding_is_flat_in_memory(tmp_path):
    def peak(seconds: int) -> int:
        path = tmp_path / f"{seconds}.flac"
        with av.open(str(path), "w", format="flac") as output:
            stream = output.add_stream("flac", rate=16_000, layout="mono")
            for _ in range(seconds):
                frame = av.AudioFrame.from_ndarray(np.zeros((1, 16_000), "i2"), "s16", "mono")
                frame.sample_rate = 16_000
                output.mux(stream.encode(frame))
            output.mux(stream.encode(None))
        tracemalloc.start()
        try:
            total = sum(len(block) for block in open_source(path).blocks())
            assert total == seconds * 16_000
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(5)
    assert peak(300) < peak(20) + 500_000  # 300 s are 19.2 MB


def test_a_place_beyond_any_file_is_the_end(tmp_path):
    """A system refuses to seek there, in a file; a container may name any place."""
    path = tmp_path / "joined.caf"
    chunks = b"".join(
        name + struct.pack(">Q", len(body)) + body
        for name, body in (
            (b"desc", struct.pack(">d4s5I", 16_000, b"lpcm", 0, 2, 1, 1, 16)),
            (b"data", bytes(4 + 32_000)),
        )
    )
    for place in (1 << 44, 1 << 48, 1 << 62):
        path.write_bytes(b"caff\0\1\0\0" + chunks + b"junk" + struct.pack(">Q", place) + bytes(9))
        assert len(decode(path).samples) == 16_000


def test_a_wave_file_is_not_searched_far_for_another_codec():
    file = io.BytesIO()
    with wave.open(file, "wb") as recording:
        recording.setparams((1, 2, 16_000, 0, "NONE", ""))
        recording.writeframes((tone(16_000, 100) * 32767).astype("<i2").tobytes())
    counted = Counted(file.getvalue())  # 3.2 MB
    assert len(next(decode_track("sound", counted, DecodeRequest(16_000)))) > 0
    assert counted.furthest < 500_000
