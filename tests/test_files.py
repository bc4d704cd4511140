"""What is read whole: files of a bounded size, and nothing that never ends."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from oscine.files import contents

UNIX = pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no such device here")


def test_as_much_as_is_allowed(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"12345")
    assert contents(path, 5) == b"12345"
    with pytest.raises(OSError, match="more than 4 bytes"):
        contents(path, 4)
    with pytest.raises(FileNotFoundError):
        contents(tmp_path / "b", 4)


@UNIX
@pytest.mark.parametrize("place", ["/dev/zero", "/dev/urandom", "pipe", "folder", "link"])
def test_what_is_no_file(tmp_path: Path, place: str) -> None:
    path = tmp_path / place
    if place == "pipe":
        os.mkfifo(path)
    elif place == "folder":
        path.mkdir()
    elif place == "link":
        path.symlink_to("/dev/zero")
    with pytest.raises(OSError, match="a pipe or a device, not a file"):
        contents(path, 4)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="no such file here")
def test_a_file_that_states_no_size_is_bounded_too() -> None:
    assert Path("/proc/self/maps").stat().st_size == 0
    with pytest.raises(OSError, match="more than 10 bytes"):
        contents(Path("/proc/self/maps"), 10)
