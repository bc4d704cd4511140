"""Faults of inputs that the other files here do not show: lengths, joints, scales, permissions.

docs/faults.md lists them all, with what happens and the test that shows it.
"""

from __future__ import annotations

import importlib.util
import io
import logging
import os
import struct
import tracemalloc
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oscine.audio.features import WhisperFeatures
from oscine.audio.io import decode, open_source
from oscine.audio.ogg_chain import links
from oscine.audio.speech import detect_speech
from oscine.audio.vad import VadOptions
from oscine.audio.wav_header import read_lengths
from oscine.errors import AudioError, NonFiniteError


def _beside(name: str) -> ModuleType:
    """Another test module, for the files that it makes."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


waves, containers = _beside("test_wav"), _beside("test_container")
PCM, FLOAT, MULAW, EXTENSIBLE = waves.PCM, waves.FLOAT, waves.MULAW, waves.EXTENSIBLE
LONG = np.tile(waves.TONE, 10)  # 2.5 s


def messages(caplog) -> list[str]:
    return [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize("size", [0, 4, 36, 4022, 8035, 16_088, 0x7FFFFFFF, 0xFFFFFFFF])
@pytest.mark.parametrize("as_file", [True, False])
def test_the_length_of_the_whole_may_be_any(tmp_path, size, as_file):
    data = waves.wav(PCM, 16, waves.integers(16))
    data = data[:4] + struct.pack("<I", size) + data[8:]
    path = tmp_path / "lying.wav"
    path.write_bytes(data)
    audio = decode(path if as_file else data)
    assert np.abs(audio.samples - waves.TONE).max() < 1e-4


@pytest.mark.parametrize("riff", [b"RIFF", b"RF64"])
@pytest.mark.parametrize("kind, bits", [(PCM, 8), (PCM, 16), (EXTENSIBLE, 24), (MULAW, 8)])
def test_a_header_that_says_too_little_is_not_believed(caplog, tmp_path, kind, bits, riff):
    data = waves.wav(kind, bits, waves.integers(bits, LONG), size=960, riff=riff)
    path = tmp_path / "cut_off_recorder.wav"
    path.write_bytes(data)
    with caplog.at_level(logging.WARNING), path.open("rb") as opened:
        for source in (path, data, open_source(opened)):
            assert len(decode(source).samples) == len(LONG)
    assert len(messages(caplog)) == 3
    assert messages(caplog)[0] == (
        f"{path}: has more audio than its header says; using the 2.5 s that can be read"
    )


def test_rf64_written_into_a_pipe(caplog):
    data = waves.wav(PCM, 16, waves.integers(16, LONG), size=0, riff=b"RF64")
    with caplog.at_level(logging.WARNING):
        assert len(decode(data).samples) == len(LONG)
    assert not caplog.records


def test_chunks_after_the_samples_are_no_samples(caplog):
    data = waves.wav(PCM, 16, waves.integers(16, LONG))
    with caplog.at_level(logging.WARNING):
        for more in (b"LIST" + struct.pack("<I", 9000) + bytes(9000), b"x", bytes(900)):
            assert len(decode(data + more).samples) == len(LONG)
    assert not caplog.records


@pytest.mark.parametrize("kept", range(46))
def test_headers_cut_at_every_byte(kept):
    data = waves.wav(PCM, 16, waves.integers(16))[:kept]
    if kept == 44:
        assert not len(decode(data).samples)
        return
    with pytest.raises(AudioError) as caught:
        decode(data)
    assert str(caught.value).startswith("bytes: ")
    assert ";" in str(caught.value)


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 255)), max_size=10), st.integers(0, 9000)
)
@settings(max_examples=100, deadline=None)
def test_lengths_of_any_header(damage, kept):
    data = bytearray(waves.wav(PCM, 16, waves.integers(16))[:kept])
    for place, value in damage:
        if place < len(data):
            data[place] = value
    file = io.BytesIO(data)
    found = read_lengths(file)
    assert file.tell() == 0
    assert found is None or 0 <= found.rest <= len(data)


@pytest.mark.parametrize("data", [bytes(1), bytes(1000), b"\xff" * 1000, b"words\n" * 200])
def test_bytes_of_no_meaning(data):
    with pytest.raises(AudioError, match=r"^bytes: .*give a recording"):
        decode(data)


@pytest.mark.parametrize("rate", [5512, 7350, 12_345, 37_800])
def test_odd_rates_keep_length_and_level(rate):
    tone = 0.5 * np.sin(2 * np.pi * 300 * np.arange(rate) / rate)
    audio = decode(waves.wav(PCM, 16, waves.integers(16, tone), rate=rate))
    assert audio.duration == pytest.approx(1, abs=0.001)
    assert np.sqrt((audio.samples[1000:-1000] ** 2).mean()) == pytest.approx(0.3536, rel=0.01)


@pytest.mark.parametrize("bits", [32, 64])
def test_six_channels_of_floats(bits):
    frames = np.repeat(waves.TONE[:, None], 6, axis=1).astype(f"<f{bits // 8}")
    audio = decode(waves.wav(FLOAT, bits, frames.tobytes(), channels=6))
    assert np.abs(audio.samples - waves.TONE).max() < 2e-4


JOINTS = [
    ("mp3", "libmp3lame", (44_100, 2), (22_050, 1)),
    ("mp3", "libmp3lame", (16_000, 1), (48_000, 2)),
    ("ogg", "libopus", (48_000, 1), (48_000, 2)),
    ("ogg", "libopus", (48_000, 2), (48_000, 2)),
    ("adts", "aac", (44_100, 2), (22_050, 1)),
    ("adts", "aac", (16_000, 1), (48_000, 2)),
    ("mpegts", "mp2", (48_000, 2), (32_000, 1)),
]


@pytest.mark.parametrize(("container", "codec", "first", "second"), JOINTS)
@pytest.mark.parametrize("as_file", [True, False])
def test_recordings_put_one_after_another(tmp_path, container, codec, first, second, as_file):
    path = tmp_path / "joined"
    data = containers.encode(container, codec, *first) + containers.encode(
        container, codec, *second
    )
    path.write_bytes(data)
    audio = decode(path if as_file else data)
    assert audio.duration == pytest.approx(4, abs=0.2)
    for at in (8000, len(audio.samples) - 24_000):
        heard = np.abs(np.fft.rfft(audio.samples[at : at + 16_000]))
        assert heard.argmax() == 220
        assert np.abs(audio.samples[at : at + 16_000]).max() == pytest.approx(0.3, abs=0.05)


def test_seconds_that_can_be_read_are_right_where_the_rate_changes(caplog):
    joined = containers.encode("mp3", "libmp3lame", 44_100, 2)
    joined += containers.encode("mp3", "libmp3lame", 22_050, 1)
    with caplog.at_level(logging.WARNING):
        decode(joined)
    for message in messages(caplog):  # where FFmpeg finds damage at the joint at all
        assert "using the 4.1 s" in message


def test_an_ogg_file_that_goes_on_with_something_else(caplog):
    data = containers.encode("ogg", "libopus", 48_000, 1)
    page = bytearray(data[:200])  # a page that begins a stream, and no more
    with caplog.at_level(logging.WARNING):
        audio = decode(data + bytes(page))
    assert audio.duration == pytest.approx(2, abs=0.1)
    assert len(messages(caplog)) <= 1


@given(damage=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), max_size=10))
@settings(max_examples=40, deadline=None)
def test_damaged_chains_decode_or_are_refused(damage):
    data = bytearray(containers.encoded_once(("ogg", "libopus", 48_000, 1)) * 2)
    for place, value in damage:
        data[int(place * (len(data) - 1))] = value
    file = io.BytesIO(data)
    assert sum(len(part.read()) for part in links(file)[0]) in (0, len(data))
    try:
        audio = decode(bytes(data))
    except (AudioError, NonFiniteError) as error:
        assert "\n" not in str(error)
    else:
        assert np.isfinite(audio.samples).all()


def test_sixteen_bit_numbers_as_floats_are_named_once(caplog):
    wrong = (waves.TONE * 32767).astype(np.float32)
    with caplog.at_level(logging.WARNING):
        source = open_source(wrong, name="take 7")
        for _ in range(2):
            decode(source)
        decode(waves.wav(FLOAT, 32, wrong.tobytes()))
        decode(wrong / 32768)
        decode(np.full(500, 99.0))
    assert messages(caplog) == [
        f"{name}: samples reach 19660 times full scale, which is 1; divide by 32768 if they are "
        "16-bit numbers"
        for name in ("take 7", "bytes")
    ]


def test_a_file_that_may_not_be_read(tmp_path, monkeypatch):
    path = tmp_path / "secret.wav"
    path.write_bytes(waves.wav(PCM, 16, waves.integers(16)))
    path.chmod(0)
    if os.access(path, os.R_OK):  # root may read all, and Windows knows no such permission
        monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(AudioError, match=r"secret.wav: may not be read; check its permissions$"):
        open_source(path)


def test_a_file_that_goes_away_after_it_was_opened(tmp_path):
    path = tmp_path / "gone.wav"
    path.write_bytes(waves.wav(PCM, 16, waves.integers(16)))
    source = open_source(path)
    path.unlink()
    with pytest.raises(AudioError, match=r"gone.wav: cannot be read \(No such file"):
        decode(source)


def test_a_survey_says_what_is_wrong_with_a_recording():
    bad = np.zeros(40_000, np.float32)
    bad[30_000] = np.nan
    for vad in (None, VadOptions()):
        with pytest.raises(NonFiniteError, match="take 3: audio contains non-finite samples"):
            detect_speech(open_source(bad, name="take 3"), vad=vad)


@pytest.mark.usefixtures("one_thread")
def test_hours_of_telephone_speech_take_no_more_memory_than_minutes(example, tmp_path):
    """G.711 at 8 kHz, as a call centre keeps it; the figures are of the whole way to windows."""
    piece = decode(example, 8000).samples
    piece = np.concatenate([piece, np.zeros(8 * 8000, np.float32)])
    level = np.round(127 * np.log1p(255 * np.abs(piece)) / np.log(256)).astype(np.uint8)
    codes = (255 - np.where(piece < 0, level + 128, level)).astype(np.uint8).tobytes()

    def peak(minutes: int) -> int:
        path = tmp_path / f"{minutes}.wav"
        turns = minutes * 60 * 8000 // len(codes)
        path.write_bytes(waves.wav(MULAW, 8, codes * turns, rate=8000))
        tracemalloc.start()
        try:
            speech = detect_speech(open_source(path), vad=VadOptions(), cached_seconds=30)
            features = WhisperFeatures(speech.recording, 80, 3000, cached_seconds=30)
            assert len(speech.spans) >= turns
            for seek in range(0, features.frames, 3000):
                features.window(seek, min(3000, features.frames - seek))
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(1)  # tables and imports
    assert peak(6) < peak(2) + 3_000_000  # the samples of 4 minutes more are 15 MB
