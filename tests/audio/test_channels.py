"""One channel of a recording at a time, of everything that can be opened."""

from __future__ import annotations

import importlib.util
import io
import struct
import sys
from pathlib import Path

import av
import numpy as np
import pytest

from oscine.audio.io import channel_count, decode, open_source
from oscine.audio.resample import MAX_CHANNELS, Resampler
from oscine.errors import AudioError, UsageError
from oscine.types import Audio

RATE = 16_000
LEVELS = np.array([0.5, -0.25, 0.125, 0.0625, -0.75, 0.375, 0.3, -0.6])


def recording(channels: int, rate: int = RATE, seconds: float = 0.5) -> np.ndarray:
    """Tones of 220, 330, 440 … Hz, [n, channels], so that each channel is known by its own."""
    time = np.arange(int(rate * seconds))[:, None] / rate
    tones = np.sin(2 * np.pi * 110 * (2 + np.arange(channels)) * time)
    return (tones * LEVELS[:channels]).astype(np.float32)


def wav(samples: np.ndarray, rate: int = RATE, codec: str = "pcm_f32le") -> bytes:
    file = io.BytesIO()
    layout = {1: "mono", 2: "stereo", 3: "2.1", 6: "5.1"}[samples.shape[1]]
    with av.open(file, "w", format="wav") as output:
        stream = output.add_stream(codec, rate=rate, layout=layout)
        form = stream.format.name
        if form == "s16":
            samples = np.round(samples * 32768).astype(np.int16)
        frame = av.AudioFrame.from_ndarray(samples.reshape(1, -1), form, layout)
        frame.sample_rate = rate
        output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    return file.getvalue()


@pytest.mark.parametrize("channels", [1, 2, 3, 6])
@pytest.mark.parametrize("codec", ["pcm_f32le", "pcm_s16le"])
def test_channels_of_a_file_however_it_comes(tmp_path, channels, codec):
    samples = recording(channels)
    path = tmp_path / "many.wav"
    path.write_bytes(wav(samples, codec=codec))
    with path.open("rb") as opened:
        for given in (path, str(path), path.read_bytes(), open_source(opened)):
            assert channel_count(given) == channels
            for number in range(1, channels + 1):
                heard = decode(open_source(given, number)).samples
                assert np.abs(heard - samples[:, number - 1]).max() < 1e-4
    assert open_source(path, channel=1).channel == 1
    assert open_source(path).channel is None


def test_channels_of_arrays():
    samples = recording(2)
    for given in (samples, samples.T, (samples, RATE), (np.round(samples * 32768).astype("i2"))):
        assert channel_count(given) == 2
        for number in (1, 2):
            heard = decode(open_source(given, number)).samples
            assert np.abs(heard - samples[:, number - 1]).max() < 1e-4
    for mono in (samples[:, 0], Audio(samples[:, 0].copy(), RATE), np.zeros(0)):
        assert channel_count(mono) == 1
    assert np.array_equal(decode(open_source(samples[:, 0], 1)).samples, samples[:, 0])


def test_channels_are_resampled_like_the_mix():
    samples = recording(2, 44_100)
    whole = decode((samples, 44_100)).samples
    apart = [decode(open_source((samples, 44_100), number)).samples for number in (1, 2)]
    filed = [decode(open_source(wav(samples, 44_100), number)).samples for number in (1, 2)]
    assert np.abs(np.mean(apart, axis=0) - whole).max() < 1e-5
    assert np.abs(np.array(apart) - filed).max() < 1e-5


class Pipe(io.RawIOBase):
    """Bytes that can be read once."""

    def __init__(self, data: bytes) -> None:
        self.rest = data

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        part, self.rest = self.rest[: len(buffer)], self.rest[len(buffer) :]
        buffer[: len(part)] = part
        return len(part)


@pytest.mark.parametrize("standard_input", [True, False])
def test_a_pipe_gives_every_channel_in_turn(monkeypatch, standard_input):
    samples = recording(2)
    piped = Pipe(wav(samples))
    if standard_input:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(piped)))
    source = open_source("-" if standard_input else piped)
    assert channel_count(source) == 2
    for number in (1, 2, 1):
        heard = decode(open_source(source, number)).samples
        assert np.abs(heard - samples[:, number - 1]).max() < 1e-4
    assert np.abs(decode(source).samples - samples.mean(axis=1)).max() < 1e-4


def test_channels_that_are_not_there():
    for given, name in ((wav(recording(2)), "bytes"), (recording(2), "array")):
        with pytest.raises(AudioError, match=f"^{name}: has no channel 3, only 2; choose another"):
            decode(open_source(given, 3))
    with pytest.raises(AudioError, match=r"^bytes: has one channel; choose another, or all"):
        decode(open_source(wav(recording(1)), 2))
    with pytest.raises(AudioError, match="not a recording"):
        channel_count(b"no recording at all")


@pytest.mark.parametrize("channel", [0, -1, 1.0, "1", True])
def test_what_is_no_channel(channel):
    with pytest.raises(UsageError, match="channels are numbered from 1"):
        open_source(recording(2), channel)


def _encode():
    path = Path(__file__).with_name("test_container.py")
    spec = importlib.util.spec_from_file_location("encoders", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.encode


def test_a_stretch_with_fewer_channels_is_silent_unless_it_is_mono():
    encode = _encode()
    joined = encode("adts", "aac", 48_000, 6) + encode("adts", "aac", 48_000, 2)
    third = decode(open_source(joined, 3)).samples
    assert len(third) == pytest.approx(4 * RATE, rel=0.1)
    assert np.abs(third[8000:24_000]).max() > 0.2
    assert not third[-16_000:].any()
    joined = encode("adts", "aac", 48_000, 2) + encode("adts", "aac", 48_000, 1)
    second = decode(open_source(joined, 2)).samples
    assert np.abs(second[-16_000:-4000]).max() > 0.2


NAMES = {1: "mono", 2: "stereo", 3: "2.1", 6: "5.1", 7: "6.1", 8: "7.1"}
FORMATS = ("u8", "s16", "s32", "s64", "flt", "dbl")


def converted(samples: np.ndarray, form: str, layout: str, rate: int = RATE) -> av.AudioFrame:
    """A frame of any format; swresample parts planes, which PyAV's from_ndarray miscounts."""
    graph = av.filter.Graph()
    entry = graph.add_abuffer(sample_rate=rate, format="flt", layout=layout)
    change, exit_ = graph.add("aformat", f"sample_fmts={form}"), graph.add("abuffersink")
    entry.link_to(change)
    change.link_to(exit_)
    graph.configure()
    frame = av.AudioFrame.from_ndarray(samples.reshape(1, -1), "flt", layout)
    frame.sample_rate = rate
    graph.push(frame)
    return graph.pull()


@pytest.mark.parametrize("channels", [1, 2, 3, 6, 7, 8, 9, 10, 11, 12, 13, 16, 24, 32, 44, 63, 64])
@pytest.mark.parametrize("planar", [False, True])
def test_any_number_of_channels_in_any_format(channels, planar):
    """PyAV counts the planes of a frame past their end, from eight on: memory that is not its."""
    layout = NAMES.get(channels, f"{channels} channels")
    levels = (1 + np.arange(channels)) / 80
    samples = np.tile(levels.astype("f4"), (1000, 1))
    for form in FORMATS:
        frame = converted(samples, form + "p" * planar, layout)
        assert frame.format.is_planar == planar
        for number in {1, channels // 2 + 1, channels}:
            resampler = Resampler(RATE, number)
            heard = np.concatenate([*resampler.push(frame), *resampler.flush()])
            assert np.abs(heard - levels[number - 1]).max() < 0.01
            assert len(heard) == 1000
        resampler = Resampler(RATE)
        mixed = np.concatenate([*resampler.push(frame), *resampler.flush()])
        assert len(mixed) == 1000
        if channels in (9, 11, 13, 32, 44, 63, 64):  # FFmpeg has no mix for them: the average
            assert np.abs(mixed - levels.mean()).max() < 0.01


def test_more_channels_than_any_recording_has():
    frame = av.AudioFrame.from_ndarray(np.zeros((1, 650), "f4"), "flt", "65 channels")
    frame.sample_rate = RATE
    for channel in (None, 1):
        with pytest.raises(ValueError, match="65 channels, and 64 are the most"):
            list(Resampler(RATE, channel).push(frame))


@pytest.mark.parametrize("channels", [65, 255, 1024, 65_535])
def test_a_header_of_far_too_many_channels(channels):
    data = bytes(2 * channels * 60)
    form = (16, 1, channels, RATE, min(2 * RATE * channels, 2**32 - 1), 2 * channels & 0xFFFF, 16)
    header = b"RIFF" + (36 + len(data)).to_bytes(4, "little") + b"WAVEfmt "
    header += struct.pack("<IHHIIHH", *form) + b"data" + len(data).to_bytes(4, "little")
    with pytest.raises(AudioError, match=r"^bytes: has .* channels, not 1 to 64; keep those"):
        decode(header + data)


SURROUND = [
    ("mp4", "aac", "7.1", 8),
    ("ogg", "libopus", "7.1", 8),
    ("matroska", "aac", "7.1", 8),
    ("flac", "flac", "7.1", 8),
    ("wav", "pcm_s16le", "12 channels", 12),
    ("w64", "pcm_f32le", "64 channels", MAX_CHANNELS),
]


@pytest.mark.parametrize(("container", "codec", "layout", "channels"), SURROUND)
def test_every_channel_of_surround_sound(container, codec, layout, channels):
    rate = 48_000
    file = io.BytesIO()
    levels = np.where(np.arange(channels) == 1, 0.4, 0.0)  # in the second channel alone
    with av.open(file, "w", format=container) as output:
        stream = output.add_stream(codec, rate=rate)
        stream.codec_context.layout = layout
        stream.codec_context.bit_rate = 512_000
        form = stream.codec_context.codec.audio_formats[0].name
        stream.codec_context.format = form
        for start in range(0, 960 * 50, 960 if codec != "aac" else 1024):
            time = (start + np.arange(960 if codec != "aac" else 1024)) / rate
            tone = np.sin(2 * np.pi * 300 * time)[:, None] * levels
            frame = converted(tone.astype("f4"), form, layout, rate)
            frame.pts = start
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    data = file.getvalue()
    assert channel_count(data) == channels
    loud = [np.abs(decode(open_source(data, each + 1)).samples).max() for each in range(channels)]
    assert np.argmax(loud) == 1
    assert loud[1] == pytest.approx(0.4, abs=0.05)
    assert max(np.delete(loud, 1)) < 0.05
    assert 0 < np.abs(decode(data).samples).max() < 0.3


def caf(samples: np.ndarray, tag: int, labels: tuple[int, ...] = ()) -> bytes:
    """Samples [n, channels] with a `chan` chunk (Apple, Core Audio Format Specification 1.0)."""
    count = samples.shape[1]
    described = b"".join(struct.pack(">II3f", label, 0, 0, 0, 0) for label in labels)
    form = struct.pack(">d4s5I", RATE, b"lpcm", 1, 4 * count, 1, count, 32)
    chan = struct.pack(">III", tag, 0, len(labels)) + described
    data = bytes(4) + samples.astype(">f4").tobytes()
    chunks = ((b"desc", form), (b"chan", chan), (b"data", data))
    whole = b"".join(name + struct.pack(">Q", len(body)) + body for name, body in chunks)
    return b"caff\0\1\0\0" + whole


ORDERS = [
    (128 << 16 | 8, ()),  # 7.1, whose order PyAV frees twice
    *((number << 16 | count, ()) for number in range(100, 196, 3) for count in (2, 5, 8)),
    *((0, labels) for labels in ((2, 1), (4, 3, 2, 1), (9, 3, 10, 1, 4), (44, 40, 38, 39, 1, 2))),
]


def test_channels_in_any_order_of_a_container():
    for tag, labels in ORDERS:
        samples = recording(max(len(labels), tag & 0xFFFF, 1))
        data = caf(samples, tag, labels)
        assert channel_count(data) == samples.shape[1]
        assert len(decode(data).samples) == len(samples)
        for number in (1, samples.shape[1]):
            heard = decode(open_source(data, number)).samples
            assert np.abs(heard - samples[:, number - 1]).max() < 1e-4, (tag, labels)
