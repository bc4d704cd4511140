"""Recordings without a clock, or with a stated length, that are cut, joined or damaged."""

from __future__ import annotations

import importlib.util
import io
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from oscine.audio.io import decode
from oscine.audio.stamps import ByBytes

_SPEC = importlib.util.spec_from_file_location(
    "times_to_cut", Path(__file__).with_name("test_times.py")
)
times = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(times)


def test_damage_that_is_taken_for_a_part_of_a_packet_is_counted():
    """As FFmpeg does with dts: it looks for the next packet's beginning and for nothing else."""
    packets = [bytes([number]) * 100 for number in range(1, 9)]
    packets[4] += bytes(2000)
    clock = ByBytes(io.BytesIO(b"".join(packets)))
    frame = SimpleNamespace(samples=1600, sample_rate=16_000)
    seconds = [clock.stamp(packet, frame).seconds for packet in packets]
    assert seconds == pytest.approx([0, 0.1, 0.2, 0.3, 0.4, 2.5, 2.6, 2.7])


def test_recordings_with_tags_of_their_own_are_not_damaged(caplog, tmp_path):
    part = times.muxed("mp3", "libmp3lame", 3, path=tmp_path / "part.mp3")
    assert part.startswith(b"ID3") and b"Xing" in part[:256] + part[:256].replace(b"Info", b"Xing")
    assert decode(part * 3).duration == pytest.approx(9, abs=0.15)
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
    assert re.search(r"ends before the (9\.9|10\.\d) s that it says it holds", message), message
