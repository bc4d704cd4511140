"""Wave files written byte by byte: every kind of sample, lying headers, and headers made up."""

from __future__ import annotations

import logging
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oscine.audio.io import decode
from oscine.errors import AudioError, NonFiniteError, OscineError

PCM, FLOAT, ALAW, MULAW, EXTENSIBLE = 1, 3, 6, 7, 0xFFFE
TONE = 0.6 * np.sin(np.arange(4000) * 0.11)


def wav(
    kind: int,
    bits: int,
    data: bytes,
    *,
    channels: int = 1,
    rate: int = 16_000,
    size: int | None = None,
    riff: bytes = b"RIFF",
) -> bytes:
    """A wave file; `size` is what the header claims of the data."""
    width = channels * bits // 8
    form = struct.pack("<HHIIHH", kind, channels, rate, rate * width, width, bits)
    if kind == EXTENSIBLE:
        form += struct.pack("<HHI", 22, bits, 0) + struct.pack("<H", PCM)
        form += bytes.fromhex("000000001000800000aa00389b71")
    claimed = len(data) if size is None else size
    extra = b""
    if riff == b"RF64":
        sizes = struct.pack("<QQQI", len(data) + 100, claimed, claimed // width, 0)
        extra, claimed = b"ds64" + struct.pack("<I", len(sizes)) + sizes, 0xFFFFFFFF
    total = min(claimed + 28 + len(form) + len(extra), 0xFFFFFFFF)
    return (
        riff + struct.pack("<I", total) + b"WAVE" + extra
        + b"fmt " + struct.pack("<I", len(form)) + form
        + b"data" + struct.pack("<I", claimed) + data
    )  # fmt: skip


def integers(bits: int, samples: np.ndarray = TONE) -> bytes:
    """Little-endian PCM of 8 (unsigned), 16, 24 or 32 bits."""
    whole = np.round(samples * (2.0 ** (bits - 1) - 1)).astype("<i4")
    if bits == 8:
        return (whole + 128).astype(np.uint8).tobytes()
    return whole.view(np.uint8).reshape(-1, 4)[:, : bits // 8].tobytes()


@pytest.mark.parametrize("kind", [PCM, EXTENSIBLE])
@pytest.mark.parametrize("bits", [8, 16, 24, 32])
def test_whole_numbers(kind, bits):
    audio = decode(wav(kind, bits, integers(bits)))
    assert audio.rate == 16_000
    assert audio.samples.dtype == np.float32
    assert audio.samples.shape == TONE.shape
    assert np.abs(audio.samples - TONE).max() < 2.0 ** (2 - bits) + 1e-6


@pytest.mark.parametrize("dtype", ["<f4", "<f8"])
def test_floats(dtype):
    data = TONE.astype(dtype)
    audio = decode(wav(FLOAT, data.itemsize * 8, data.tobytes()))
    assert np.array_equal(audio.samples, TONE.astype(np.float32))


def test_rf64():
    audio = decode(wav(PCM, 16, integers(16), riff=b"RF64"))
    assert np.abs(audio.samples - TONE).max() < 1e-4


@pytest.mark.parametrize(
    ("kind", "codes"),
    # ITU-T G.711: the codes of the loudest positive, the loudest negative and the quietest level.
    [(MULAW, {0x80: 32124, 0x00: -32124, 0xFF: 0}), (ALAW, {0xAA: 32256, 0x2A: -32256, 0xD5: 8})],
)
def test_telephone_codes(kind, codes):
    audio = decode(wav(kind, 8, bytes(codes), rate=16_000))
    assert (audio.samples * 32768).tolist() == list(codes.values())


@pytest.mark.parametrize("channels", [2, 3, 6, 11, 12])
def test_equal_channels_keep_their_level(channels):
    frames = np.repeat(TONE[:, None], channels, axis=1)
    audio = decode(wav(PCM, 16, integers(16, frames.reshape(-1)), channels=channels))
    if channels == 12:  # 7.1.4 and the like: FFmpeg's own weights, of which we ask only sanity
        assert 0.3 < np.abs(audio.samples).max() <= 0.61
        return
    assert audio.samples.shape == TONE.shape
    assert np.abs(audio.samples - TONE).max() < 2e-4


def test_stereo_is_averaged():
    frames = np.stack([TONE, np.full_like(TONE, 0.25)], axis=1)
    audio = decode(wav(PCM, 16, integers(16, frames.reshape(-1)), channels=2))
    assert np.abs(audio.samples - frames.mean(axis=1)).max() < 1e-4


@pytest.mark.parametrize("rate", [8_000, 11_025, 22_050, 44_100, 48_000, 96_000, 192_000])
def test_rates_become_16_khz(rate):
    t = np.arange(rate) / rate
    tone = 0.5 * np.sin(2 * np.pi * 300 * t)
    audio = decode(wav(PCM, 16, integers(16, tone), rate=rate))
    assert audio.duration == pytest.approx(1, abs=0.001)
    wanted = 0.5 * np.sin(2 * np.pi * 300 * np.arange(len(audio.samples)) / 16_000)
    inner = slice(500, -500)
    assert np.abs(audio.samples[inner] - wanted[inner]).max() < 2e-3


@pytest.mark.parametrize("size", [0, 7, 10**9, 0x7FFFF000, 0xFFFFFFFF])
def test_a_header_may_lie_about_its_length(size):
    audio = decode(wav(PCM, 16, integers(16), size=size))
    assert np.abs(audio.samples - TONE).max() < 1e-4


def test_a_cut_file_warns_and_gives_what_is_there(caplog):
    cut = wav(PCM, 16, integers(16))[:4044]
    with caplog.at_level(logging.WARNING):
        audio = decode(cut)
    assert len(audio.samples) == 2000
    assert [record.getMessage() for record in caplog.records] == [
        "bytes: breaks off; using the 0.1 s that can be read"
    ]


@pytest.mark.parametrize("size", [0, 0xFFFFFFFF])
def test_a_file_written_into_a_pipe_gives_no_warning(caplog, size):
    data = wav(PCM, 16, integers(16), size=size)
    data = data[:4] + struct.pack("<I", size) + data[8:]
    with caplog.at_level(logging.WARNING):
        assert len(decode(data).samples) == len(TONE)
    assert not caplog.records


def test_no_samples_is_no_error():
    assert decode(wav(PCM, 16, b"")).samples.shape == (0,)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("rate", [16_000, 44_100])
def test_non_finite_samples_are_named(bad, rate):
    data = TONE.astype("<f4")
    data[1000] = bad
    with pytest.raises(NonFiniteError, match="bytes: audio contains non-finite samples"):
        decode(wav(FLOAT, 32, data.tobytes(), rate=rate))


@pytest.mark.parametrize("rate", [0, 1, 999, 4_000_000, 0xFFFFFFFF])
def test_impossible_rates_are_refused(rate):
    data = bytearray(wav(PCM, 16, integers(16)))
    data[24:28] = struct.pack("<I", rate)
    with pytest.raises(AudioError):
        decode(bytes(data))


def _decodes_or_refuses(data: bytes) -> None:
    try:
        audio = decode(data)
    except OscineError as error:
        assert "\n" not in str(error)
        assert isinstance(error, AudioError | NonFiniteError)
    else:
        assert np.isfinite(audio.samples).all()


@given(
    kind=st.sampled_from([0, 1, 2, 3, 6, 7, 0x11, 0x31, 0x55, 0x160, 0xFF, 0xFFFE])
    | st.integers(0, 0xFFFF),
    bits=st.sampled_from([0, 1, 4, 8, 12, 16, 24, 32, 64]) | st.integers(0, 0xFFFF),
    channels=st.integers(0, 16) | st.integers(0, 0xFFFF),
    rate=st.sampled_from([0, 1, 8000, 16_000, 48_000]) | st.integers(0, 0xFFFFFFFF),
    width=st.integers(0, 0xFFFF),
    size=st.integers(0, 0xFFFFFFFF),
    length=st.integers(0, 0xFFFFFFFF) | st.sampled_from([14, 16, 18, 40]),
    data=st.binary(max_size=600),
)
@settings(max_examples=250, deadline=None)
def test_made_up_headers(kind, bits, channels, rate, width, size, length, data):
    form = struct.pack("<HHIIHH", kind, channels, rate, rate, width, bits)
    _decodes_or_refuses(
        b"RIFF" + struct.pack("<I", size) + b"WAVEfmt " + struct.pack("<I", length) + form
        + b"data" + struct.pack("<I", size) + data
    )  # fmt: skip


@given(
    st.sampled_from(["RIFF", "RF64"]),
    st.lists(st.tuples(st.integers(0, 130), st.integers(0, 255)), max_size=12),
    st.integers(0, 700),
)
@settings(max_examples=200, deadline=None)
def test_damaged_headers(riff, damage, cut):
    data = bytearray(wav(EXTENSIBLE, 16, integers(16)[:600], riff=riff.encode()))
    for place, value in damage:
        data[place] = value
    _decodes_or_refuses(bytes(data[: len(data) - cut]))
