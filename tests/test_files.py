"""What is read whole: files of a bounded size, and nothing that never ends."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from oscine.files import AtomicFile, read_bounded

UNIX = pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no such device here")


def test_as_much_as_is_allowed(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"12345")
    assert read_bounded(path, 5) == b"12345"
    with pytest.raises(OSError, match="more than 4 bytes"):
        read_bounded(path, 4)
    with pytest.raises(FileNotFoundError):
        read_bounded(tmp_path / "b", 4)


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
        read_bounded(path, 4)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="no such file here")
def test_a_file_that_states_no_size_is_bounded_too() -> None:
    assert Path("/proc/self/maps").stat().st_size == 0
    with pytest.raises(OSError, match="more than 10 bytes"):
        read_bounded(Path("/proc/self/maps"), 10)


def written(path: Path, over_link: bool = False) -> int:
    """Write a file by AtomicFile; -> its permissions."""
    new = AtomicFile(path, over_link)
    new.file.write(b"new")
    new.keep()
    assert path.read_bytes() == b"new"
    return path.stat().st_mode & 0o7777


@UNIX
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o400, 0o666, 0o755])
def test_a_file_written_again_keeps_its_mode(tmp_path: Path, mode: int) -> None:
    path, link = tmp_path / "a.txt", tmp_path / "link"
    path.write_bytes(b"old")
    path.chmod(mode)
    assert written(path) == mode
    link.symlink_to(path)
    assert written(link) == mode
    assert link.is_symlink()
    path.chmod(0o600)
    assert written(path, over_link=True) == 0o600


@UNIX
@pytest.mark.parametrize("umask", [0o022, 0o027, 0o077, 0o000])
def test_a_new_file_follows_the_umask(tmp_path: Path, umask: int) -> None:
    target = tmp_path / "private"
    target.write_bytes(b"old")
    target.chmod(0o600)
    (tmp_path / "link").symlink_to(target)
    before = os.umask(umask)
    try:
        assert written(tmp_path / "new") == 0o666 & ~umask
        assert written(tmp_path / "link", over_link=True) == 0o666 & ~umask
    finally:
        os.umask(before)
    assert target.read_bytes() == b"old"


@UNIX
def test_what_is_private_is_so_while_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"old")
    path.chmod(0o600)
    new = AtomicFile(path)
    (part,) = tmp_path.glob(".*.part")
    assert part.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)  # while it is written
    new.keep()
    assert path.stat().st_mode & 0o777 == 0o644


@UNIX
@pytest.mark.skipif(not hasattr(os, "chown"), reason="no groups here")
def test_a_group_that_cannot_be_kept_gets_no_more_than_everybody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"old")
    other = next((group for group in os.getgroups() if group != path.stat().st_gid), None)
    if other is None and os.geteuid() == 0:
        other = 12345
    if other is None:
        pytest.skip("this user is in one group")
    os.chown(path, -1, other)
    path.chmod(0o664)
    assert written(path) == 0o664
    assert path.stat().st_gid == other

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("os.chown", refuse)
    assert written(path) == 0o644
