"""The list of suffixes is of containers that FFmpeg reads, and has each suffix once."""

from __future__ import annotations

import av
import pytest

from oscine.audio.demuxer import FORMATS
from oscine.audio.file_types import CONTAINERS, SUFFIXES, container_of

#: What FFmpeg reads since 7.1, which the oldest PyAV that is allowed does not bring.
LATER = {"lc3"}
#: Suffixes that FFmpeg lists and a folder's files with them are no recordings: pictures, subtitles,
#: manifests, and one that no file has.
OTHERS = set(".avif .heic .heif .ism .mks .ty+".split())


def reader(name: str) -> av.ContainerFormat | None:
    try:
        return av.ContainerFormat(name, "r")
    except ValueError:
        return None


def test_every_suffix_that_ffmpeg_has_for_what_is_read_is_there() -> None:
    readers = filter(None, map(reader, FORMATS))
    listed = {f".{suffix.lower()}" for each in readers for suffix in each.extensions}
    assert len(listed) > 70
    assert listed - SUFFIXES == listed & OTHERS
    assert not OTHERS & SUFFIXES


def test_every_container_is_read_and_every_suffix_is_there_once() -> None:
    assert not [name for name in CONTAINERS if name not in LATER and reader(name) is None]
    listed = [suffix for each in CONTAINERS.values() for suffix in each.suffixes.split()]
    assert len(listed) == len(SUFFIXES)
    assert all(suffix.startswith(".") and suffix == suffix.lower() for suffix in SUFFIXES)


@pytest.mark.parametrize("name", [name for name, each in CONTAINERS.items() if each.magic])
def test_a_container_is_known_by_its_first_bytes(name: str) -> None:
    container = CONTAINERS[name]
    for magic in container.magic:
        begin = bytes(container.at) + magic + b"x"
        assert container_of(begin) == (container.called or name)
        assert container_of(bytes(container.at + 1) + magic) is None
    assert container_of(b"") is None


def test_a_picture_in_riff_is_no_recording() -> None:
    assert container_of(b"RIFF\x10\0\0\0WEBPVP8 ") is None
    assert container_of(b"RIFF\x10\0\0\0AVI LIST") == "avi"
    for length in (8, 9, 12, 40):
        assert container_of((b"RIFF\x10\0\0\0WAVE" + bytes(40))[:length]) == "a wav file"
