"""The list of suffixes is of containers that FFmpeg reads, and has each suffix once."""

from __future__ import annotations

import av

from oscine.audio.suffixes import CONTAINERS, SUFFIXES


def test_every_container_is_read_and_every_suffix_is_there_once() -> None:
    assert not [name for name in CONTAINERS if not av.ContainerFormat(name, "r").is_input]
    listed = [suffix for each in CONTAINERS.values() for suffix in each.split()]
    assert len(listed) == len(SUFFIXES)
    assert all(suffix.startswith(".") and suffix == suffix.lower() for suffix in SUFFIXES)
