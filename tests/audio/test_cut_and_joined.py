"""Recordings without a clock, or with a stated length, that are cut, joined or damaged."""

from __future__ import annotations

import importlib.util
import io
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from oscine.audio import truncation
from oscine.audio.io import decode, open_source
from oscine.audio.ogg_chain import links
from oscine.audio.timestamps import ByteTimer
from oscine.errors import AudioError

_SPEC = importlib.util.spec_from_file_location(
    "times_to_cut", Path(__file__).with_name("test_times.py")
)
times = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(times)


def test_damage_that_is_taken_for_a_part_of_a_packet_is_counted():
    """As FFmpeg does with dts: it looks for the next packet's beginning and for nothing else."""
    packets = [bytes([number]) * 100 for number in range(1, 9)]
    packets[4] += bytes(2000)
    clock = ByteTimer(io.BytesIO(b"".join(packets)))
    frame = SimpleNamespace(samples=1600, sample_rate=16_000)
    seconds = [clock.stamp(packet, frame).seconds for packet in packets]
    assert seconds == pytest.approx([0, 0.1, 0.2, 0.3, 0.4, 2.5, 2.6, 2.7])


def test_recordings_with_tags_of_their_own_are_not_damaged(caplog, tmp_path):
    part = times.muxed("mp3", "libmp3lame", 3, path=tmp_path / "part.mp3")
    assert part.startswith(b"ID3") and b"Xing" in part[:256] + part[:256].replace(b"Info", b"Xing")
    assert decode(part * 3).duration == pytest.approx(9, abs=0.15)
    assert not caplog.records


@pytest.mark.parametrize("size", [1000, 20_000, 300_000])
def test_recordings_with_large_tags_are_not_called_cut(caplog, tmp_path, size):
    """FFmpeg guesses their length from the bytes, those of pictures too."""
    part = times.muxed("mp3", "libmp3lame", 3, path=tmp_path / "part.mp3")
    length = bytes([size >> 21 & 127, size >> 14 & 127, size >> 7 & 127, size & 127])
    tag = b"ID3\x03\0\0" + length + b"PRIV" + (size - 10).to_bytes(4, "big") + bytes(2 + size - 10)
    for data in ((tag + part) * 3, part + tag + part * 2):
        blocks = open_source(data).with_max_duration(10.0).blocks()
        assert sum(map(len, blocks)) == pytest.approx(9 * 16_000, abs=0.15 * 16_000)
    assert not caplog.records


@pytest.mark.parametrize(("container", "codec"), [("flv", "libmp3lame"), ("rm", "ac3")])
def test_a_file_of_sound_alone_that_is_cut_is_told_by_its_length(
    caplog, tmp_path, container, codec
):
    decode(times.muxed(container, codec, shift=times.gap(0, 0, 70), path=tmp_path / "late"))
    data = times.muxed(container, codec, path=tmp_path / "whole")
    decode(data)
    assert not caplog.records
    decode(data[: len(data) // 2])
    (message,) = caplog.messages
    assert re.search(r"ends before the (9\.9|10\.\d) s stated in its header", message), message


FAST = {"movflags": "faststart"}
KINDS = {
    "faststart mp4": ("mp4", "aac", FAST),
    "mp4": ("mp4", "aac", {}),
    "fragmented mp4": ("mp4", "aac", {"movflags": "frag_keyframe+empty_moov"}),
    "mov": ("mov", "pcm_s16le", {}),
    "faststart mov": ("mov", "pcm_s16le", FAST),
    **{name: (name, codec, {}) for name, codec in (("flac", "flac"), ("mp3", "libmp3lame"))},
    **{name: (name, "libopus", {}) for name in ("ogg", "webm", "matroska")},
    **{name: (name, "pcm_s16le", {}) for name in ("wav", "caf", "w64")},
    **{name: (name, "pcm_s16be", {}) for name in ("aiff", "au")},
}
TOLD = re.compile(
    r"bytes: (breaks off|ends before the [\d.]+ s stated in its header|is damaged in one place)"
)
REFUSED = re.compile(
    r"bytes: (has no whole index \(moov\), as an mp4 or mov that is cut off; copy it again"
    r"|begins as [\w ]+, but its header is cut off or damaged; copy it again"
    r"|nothing of its \w+ track can be decoded)"
)


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_cut_anywhere_says_that_it_is_cut(caplog, tmp_path, kind):
    """Text with a warning, or a line that names the cut, and no other reason."""
    container, codec, options = KINDS[kind]
    data = times.muxed(container, codec, options=options, path=tmp_path / "whole")
    decode(data)
    assert not caplog.records
    sound = {"mp4": b"mdat", "mov": b"mdat"}.get(container, b"")
    head = data.find(sound) if "faststart" in kind else 0
    lengths = {len(data) * share // 100 for share in range(5, 100, 5)}
    lengths |= {head * share // 10 for share in range(1, 11) if head}  # in the index
    for length in sorted(lengths):
        caplog.clear()
        try:
            decode(data[:length])
        except AudioError as error:
            assert REFUSED.match(str(error)), (length, error)
        else:
            assert len(caplog.messages) == 1, (length, caplog.messages)
            assert TOLD.match(caplog.messages[0]), (length, caplog.messages)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "fragmented mp4"])
def test_a_header_that_is_cut_is_not_called_no_recording(tmp_path, kind):
    container, codec, options = KINDS[kind]
    data = times.muxed(container, codec, options=options, path=tmp_path / "whole")
    for length in (8, 12, 16, 20):
        with pytest.raises(AudioError) as raised:
            decode(data[:length])
        assert REFUSED.match(str(raised.value)) or container in ("mp3", "au"), raised.value


def test_what_states_no_end_does_not_break_off(tmp_path):
    """Live Matroska, an mp3 without a count, an ogg file that ends with a whole page."""
    live = times.muxed("matroska", "aac", options={"live": "1"}, path=tmp_path / "live")
    plain = times.muxed("mp3", "libmp3lame", options={"write_xing": "0"}, path=tmp_path / "mp3")
    au = b".snd" + (24).to_bytes(4, "big") + b"\xff" * 4 + bytes(100)
    for data in (live, plain, au, b"", b"\x1aE\xdf\xa3", b"ID3", b"\xff\xfb\x90"):
        assert not truncation.is_truncated(io.BytesIO(data))
    ogg = times.muxed("ogg", "libopus", path=tmp_path / "ogg")
    page = ogg.rindex(b"OggS")
    for length, cut in ((len(ogg), 0), (len(ogg) - 1, 1), (page, 0), (page + 2, 1), (page + 27, 1)):
        assert links(io.BytesIO(ogg[:length])) == ([], bool(cut))
