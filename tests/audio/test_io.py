"""Every way to hand over a recording, and one clear line for each way to get it wrong."""

from __future__ import annotations

import io
import os
import pickle
import re
import struct
import sys
import tempfile
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oscine.audio import decoder_pool
from oscine.audio import io as audio_io
from oscine.audio.io import decode, open_source
from oscine.errors import AudioError, NonFiniteError, UsageError
from oscine.types import Audio

SAMPLES = np.round(20_000 * np.sin(np.arange(5000) * 0.1)).astype("<i2")
WAV = (
    b"RIFF" + struct.pack("<I", 36 + SAMPLES.nbytes) + b"WAVEfmt "
    + struct.pack("<IHHIIHH", 16, 1, 1, 16_000, 32_000, 2, 16)
    + b"data" + struct.pack("<I", SAMPLES.nbytes) + SAMPLES.tobytes()
)  # fmt: skip
EXPECTED = SAMPLES.astype(np.float32) / 32768


class Pipe(io.RawIOBase):
    """Bytes that come a few at a time and cannot be rewound."""

    def __init__(self, data: bytes) -> None:
        self.rest = data

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        part, self.rest = self.rest[: min(len(buffer), 777)], self.rest[777:]
        buffer[: len(part)] = part
        return len(part)


def twice(source) -> np.ndarray:
    """All samples, read two times over to see that they are the same."""
    first, second = (np.concatenate(list(source.blocks())) for _ in range(2))
    assert np.array_equal(first, second)
    return first


def test_a_file_by_path_or_string(tmp_path):
    path = tmp_path / "speech.wav"
    path.write_bytes(WAV)
    for given_path in (path, str(path)):
        source = open_source(given_path)
        assert source.name == str(path)
        assert np.array_equal(twice(source), EXPECTED)
    assert open_source(path, name="first").name == "first"
    assert open_source(source) is source


@pytest.mark.parametrize("name", ["concat:a.wav", "http:b.wav", "-.wav", "%03d.wav", "ü 声.wav"])
def test_odd_file_names(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(WAV)
    assert np.array_equal(twice(open_source(name)), EXPECTED)


def test_bytes_and_file_objects(tmp_path):
    assert np.array_equal(twice(open_source(WAV)), EXPECTED)
    assert np.array_equal(twice(open_source(io.BytesIO(WAV))), EXPECTED)
    path = tmp_path / "speech.wav"
    path.write_bytes(b"#!" + WAV)
    with path.open("rb") as file:
        file.read(2)  # what is left of it counts
        source = open_source(file)
        assert source.name == str(path)
        assert np.array_equal(twice(source), EXPECTED)
    with os.fdopen(os.open(path, os.O_RDONLY), "rb") as file:  # its name is a number
        file.read(2)
        assert np.array_equal(twice(open_source(file)), EXPECTED)


def test_a_file_object_is_read_from_where_it_stands_and_stands_there_again():
    for before in (b"", b"some bytes of a form"):
        file = io.BytesIO(before + WAV)
        file.seek(len(before))
        for _ in range(2):  # an upload that is transcribed, then translated
            assert np.array_equal(decode(file).samples, EXPECTED)
            assert file.tell() == len(before)
        blocks = open_source(file).blocks()
        next(blocks)
        blocks.close()
        assert file.tell() == len(before)


def test_a_file_object_at_its_end_says_so(tmp_path):
    written = io.BytesIO()
    written.write(WAV)
    with (tmp_path / "upload.wav").open("w+b") as file:
        file.write(WAV)
        for each, name in ((written, "file object"), (file, str(tmp_path / "upload.wav"))):
            with pytest.raises(AudioError) as caught:
                open_source(each)
            assert str(caught.value) == f"{name}: is at its end; seek(0) first"
            each.seek(0)
            assert np.array_equal(decode(each).samples, EXPECTED)


def test_nothing_at_all_is_empty(tmp_path):
    spooled = tempfile.SpooledTemporaryFile()
    (tmp_path / "empty").touch()
    with spooled, (tmp_path / "empty").open("rb") as file:
        for each in (io.BytesIO(), spooled, file, Pipe(b""), b"", bytearray()):
            with pytest.raises(AudioError, match=r": is empty; "):
                decode(each)


def test_a_home_folder_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    (tmp_path / "speech.wav").write_bytes(WAV)
    for path in ("~/speech.wav", Path("~/speech.wav")):
        assert np.array_equal(decode(path).samples, EXPECTED)
    with pytest.raises(AudioError, match=r"^~/other.wav: no such file; check the path$"):
        open_source("~/other.wav")


@pytest.mark.parametrize("spool", [1, 1 << 20])
def test_a_pipe_is_kept_for_the_second_reading(monkeypatch, spool):
    monkeypatch.setattr("oscine.audio.spool.SPOOL_BYTES", spool)
    assert np.array_equal(twice(open_source(Pipe(WAV))), EXPECTED)


def test_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(Pipe(WAV))))
    source = open_source("-")
    assert source.name == "standard input"
    assert np.array_equal(twice(source), EXPECTED)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this system")
def test_a_named_pipe(tmp_path):
    path = tmp_path / "fifo"
    os.mkfifo(path)
    source = open_source(path)
    writer = threading.Thread(target=path.write_bytes, args=(WAV,))
    writer.start()
    assert np.array_equal(twice(source), EXPECTED)
    writer.join()


@pytest.mark.parametrize(
    ("dtype", "zero", "full"),
    [("i1", 0, 127), ("u1", 128, 127), ("<i2", 0, 2**15), (">i2", 0, 2**15), ("i4", 0, 2**31),
     ("f2", 0, 1), ("f4", 0, 1), ("f8", 0, 1)],
)  # fmt: skip
def test_arrays_by_type(dtype, zero, full):
    wave = 0.5 * np.sin(np.arange(100))
    array = (wave * full + zero).astype(dtype)
    audio = decode(array)
    assert audio.rate == 16_000
    assert audio.samples.dtype == np.float32
    assert np.abs(audio.samples - wave).max() < 0.02 if full == 127 else 1e-3


def test_arrays_by_shape():
    stereo = np.stack([np.full(500, 0.5), np.full(500, -0.1)], axis=1)
    for array in (stereo, stereo.T, np.asfortranarray(stereo)):
        assert np.allclose(decode(array).samples, np.full(500, 0.2), atol=1e-7)
    assert decode(np.zeros((1, 7))).samples.shape == (7,)
    assert decode(np.zeros((7, 1))).samples.shape == (7,)
    assert decode(np.zeros(0)).samples.shape == (0,)
    assert decode(np.zeros((0, 2))).samples.shape == (0,)


@given(
    rate=st.sampled_from([8000, 11_025, 44_100, 48_000, 16_001]),
    length=st.integers(0, 3000),
    channels=st.integers(1, 3),
)
@settings(max_examples=40, deadline=None)
def test_rates_keep_the_length(rate, length, channels):
    audio = decode((np.ones((length, channels) if length > 3 else length, np.float32), rate))
    if length >= 200:  # of less than its own filter swresample swallows some
        assert abs(len(audio.samples) - length * 16_000 / rate) <= 2
    assert np.isfinite(audio.samples).all()


def test_audio_passes_through():
    audio = Audio(np.linspace(-1, 1, 900, dtype=np.float32), 8000)
    assert np.array_equal(decode(audio, 8000).samples, audio.samples)
    assert len(decode(audio).samples) == 1800


def test_blocks_are_bounded_however_long_the_input():
    sizes = [len(block) for block in open_source(np.zeros(1_000_000, np.float32)).blocks()]
    assert sum(sizes) == 1_000_000
    assert max(sizes) <= 2 * audio_io.BLOCK_SAMPLES


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_non_finite_arrays(bad):
    array = np.zeros(1000)
    array[7] = bad
    with pytest.raises(NonFiniteError, match="take 3: audio contains non-finite samples"):
        list(open_source(array, name="take 3").blocks())
    with pytest.raises(NonFiniteError):
        decode(np.full(4, 1e300))  # finite in float64 only


def test_damage_louder_than_any_recording():
    decode(np.full(500, 2.0**31))  # the wrong scale is still a recording
    with pytest.raises(AudioError, match=r"take 3: has samples beyond .*; scale floats to -1"):
        list(open_source(np.full(500, -1e30), name="take 3").blocks())


@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_a_matrix_is_an_array():
    expected = decode(np.ones(2000, np.float32)).samples
    assert np.array_equal(decode(np.asmatrix(np.ones(2000, np.float32))).samples, expected)


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros((80, 3000)), "shape"),
        (np.zeros((2, 3, 4)), "shape"),
        (np.array(1.0), "not audio"),
        (np.zeros(9, complex), "complex128"),
        (np.zeros(9, bool), "bool"),
        (np.array(["a"]), "not audio"),
        (np.zeros(9, np.uint16), "uint16"),
        (np.zeros(9, np.int64), "int64.*64-bit integers have no defined full scale"),
        (np.zeros(9, ">i8"), "64-bit integers have no defined full scale"),
    ],
)
def test_arrays_that_are_no_samples(array, words):
    with pytest.raises(AudioError, match=words):
        open_source(array)


@pytest.mark.parametrize(
    "rate",
    [
        *(0, -1, 44.1, 16_000.5, float("nan"), float("inf"), "16000", None, [16_000]),
        *(10**400, -(10**400), 16e3j, np.complex64(16_000), np.datetime64(16_000, "s")),
    ],
)
def test_rates_that_are_none(rate):
    with pytest.raises(AudioError, match=r"(not a sample rate|not plausible)"):
        open_source((np.zeros(9), rate))


@pytest.mark.parametrize("thing", [None, 5, [0.0, 1.0], ("a", 5), (np.zeros(3),), object()])
def test_things_that_are_no_recording(thing):
    with pytest.raises(UsageError, match="is not a recording"):
        open_source(thing)


def test_paths_that_cannot_be_used(tmp_path, monkeypatch):
    (tmp_path / "empty.wav").touch()
    for source, words in [
        (tmp_path / "none.wav", "none.wav: no such file; check the path"),
        ("https://example.org/a.mp3", "no such file; download it first"),
        ("https://example.org/a.mp3", "^https://example.org/a.mp3: "),
        ("", "^'': names no file"),
        ("x" * 5000, "cannot be opened"),
        (tmp_path, "is a folder; give the files in it"),
        (tmp_path / "empty.wav", "empty.wav: is empty"),
        (tmp_path / "empty.wav" / "x", "cannot be opened"),
        ("nul\0byte", "cannot be opened"),
        (b"", "bytes: is empty"),
    ]:
        with pytest.raises(AudioError, match=words) as caught:
            open_source(source)
        assert "\n" not in str(caught.value)


def test_unreadable_objects():
    class Broken(io.RawIOBase):
        def read(self, size=-1):
            raise OSError(5, "Input/output error")

    class Unready(io.RawIOBase):
        def read(self, size=-1):
            return None

    class Counting(io.RawIOBase):
        def read(self, size=-1):
            return 5  # bytes(5) would be five zeros, again and again

    for file, words in [
        (io.StringIO("text"), "is open as text"),
        (Counting(), "gives int instead of bytes"),
        (Broken(), r"cannot be read \(Input/output error\)"),
        (Unready(), "has no data ready"),
        (Pipe(b""), "is empty"),
    ]:
        with pytest.raises(AudioError, match=words):
            list(open_source(file).blocks())
    closed = io.BytesIO(WAV)
    source = open_source(closed)
    closed.close()
    with pytest.raises(AudioError, match="cannot be read again"):
        list(source.blocks())


def test_a_terminal_is_no_recording(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Terminal())
    with pytest.raises(AudioError, match="pipe one in or name a file"):
        open_source("-")


@pytest.mark.parametrize(
    "data",
    [b"hello world\n" * 50, b"PK\x03\x04" + bytes(400), b"\x89PNG\r\n\x1a\n" + bytes(64)],
    ids=["text", "zip", "png"],
)  # fmt: skip
def test_files_that_are_no_media(tmp_path, data):
    path = tmp_path / "thing.wav"
    path.write_bytes(data)
    for source in (path, data):
        with pytest.raises(AudioError, match=r"(is not a recording|no audio track).*give a rec"):
            decode(source)


@pytest.mark.parametrize("kind", ["<i2", "u1", "<f4", "zeros"])
def test_samples_without_a_header_are_told_from_a_video(kind):
    wave = np.sin(np.arange(30_000) * 0.05) * np.random.default_rng(1).random(30_000)
    samples = {
        "<i2": (wave * 30_000).astype("<i2"),
        "u1": (wave * 120 + 128).astype("u1"),
        "<f4": wave.astype("<f4"),
        "zeros": np.zeros(30_000, "<i2"),
    }[kind]
    with pytest.raises(
        AudioError, match=r"not a recording.*without a header.* array, or to --live"
    ):
        decode(samples.tobytes())


def test_text_is_told(tmp_path):
    for text, code in [
        ("A talk.\n" * 900, "utf-8"),
        ("1\n00:00:01,000 --> 00:00:02,000\nÜ\n", "utf-16"),
    ]:
        with pytest.raises(AudioError, match=r"^bytes: is not a recording but text; give a rec"):
            decode(text.encode(code))


def length_of(source, most: float) -> int:
    return sum(map(len, open_source(source).with_max_duration(most).blocks()))


def test_a_recording_longer_than_allowed_is_refused_from_its_header(monkeypatch):
    """And only that: no sound of it is decoded."""
    data = WAV[:40] + struct.pack("<I", SAMPLES.nbytes) + WAV[44:]
    assert length_of(data, 0.3125) == len(SAMPLES)
    for source in (data, io.BytesIO(data), (SAMPLES, 16_000), SAMPLES):
        with pytest.raises(AudioError) as caught:
            next(open_source(source, name="talk").with_max_duration(0.2).blocks())
        assert str(caught.value) == (
            "talk: is longer than the 0.2 s of max_audio_seconds; "
            "cut it, or raise max_audio_seconds"
        )


@pytest.mark.parametrize("stated", [0, 100, 0xFFFFFFFF])
def test_a_header_that_lies_about_its_length_does_not_get_round_the_limit(stated):
    data = WAV[:40] + struct.pack("<I", stated) + WAV[44:]
    assert length_of(data, 0.3125) == len(SAMPLES)  # nor is it refused for what it does not hold
    for source in (data, Pipe(data)):
        with pytest.raises(AudioError, match=r"is longer than the 0.1 s"):
            length_of(source, 0.1)


def test_a_limit_stays_with_the_channels_of_a_recording():
    source = open_source(np.zeros((32_000, 2), np.float32)).with_max_duration(1)
    for channel in (1, 2):
        with pytest.raises(AudioError, match=r"is longer than the 1 s"):
            list(open_source(source, channel).blocks())
    assert len(decode(open_source(source.with_max_duration(None), 2)).samples) == 32_000


def test_a_pipe_that_no_disk_has_room_for_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.BytesIO):
        def write(self, _: Any) -> int:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.SpooledTemporaryFile", lambda **_: Full())
    source = open_source(SimpleNamespace(read=lambda size: bytes(size)), name="pipe")
    with pytest.raises(AudioError, match=r"pipe: cannot be kept aside in .*No space left"):
        list(source.blocks())


def test_a_pipe_without_any_temporary_folder_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is large goes to a temporary file, and there may be no folder that takes one."""

    def none(*_: Any, **__: Any) -> str:
        raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "gettempdir", none)
    monkeypatch.setattr(tempfile, "_get_default_tempdir", none)
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr("oscine.audio.spool.SPOOL_BYTES", 10)
    source = open_source(SimpleNamespace(read=lambda size: bytes(size)), name="pipe")
    with pytest.raises(AudioError) as caught:
        list(source.blocks())
    said = r"pipe: cannot be kept aside in any temporary folder \(No usable .*set TMPDIR to"
    assert re.match(said, str(caught.value)), caught.value


@pytest.mark.parametrize(
    ("change", "value"), [("with_track", 1), ("with_channel", 1), ("with_max_duration", 60.0)]
)
def test_a_view_of_a_recording_does_not_read_it(monkeypatch, change, value):
    """What is no file is read whole to pickle it, and not before."""
    reads = []
    read_all = decoder_pool.read_all
    monkeypatch.setattr(
        decoder_pool, "read_all", lambda name, file: reads.append(name) or read_all(name, file)
    )
    source = open_source(io.BytesIO(WAV), name="talk")
    same = getattr(source, change)(value)
    assert reads == [] and same is not source and same.warned is source.warned
    np.testing.assert_array_equal(
        np.concatenate(list(same.blocks())), np.concatenate(list(source.blocks()))
    )
    kept = pickle.loads(pickle.dumps(same))
    assert reads == ["talk"]
    np.testing.assert_array_equal(
        np.concatenate(list(kept.blocks())), np.concatenate(list(source.blocks()))
    )
