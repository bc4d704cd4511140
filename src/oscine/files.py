"""Atomic writing of files and folders, which get their names once they are complete, and bounded
reading of small files."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from oscine.errors import OscineError


def expand_user(path: str | Path) -> Path:
    """A path with ~ expanded; unchanged if the home folder is unknown."""
    return Path(os.path.expanduser(path))  # Path.expanduser would raise


def temp_path(folder: Path) -> Path:
    """A random hidden path in `folder` for a file that is being written.

    It does not contain the final name, which may already have the maximum length.
    """
    return folder / f".{os.urandom(8).hex()}.part"


def write_error(name: object, error: OSError) -> OscineError:
    """The error for a file that cannot be written."""
    return OscineError(f"{name}: cannot write: {error.strerror or error}")


def is_special(path: Path) -> bool:
    """Whether a path exists and is not a regular file but, for example, a pipe or a device."""
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except (OSError, ValueError):
        return False


def is_device(path: Path) -> bool:
    """Whether a path exists and is a device, such as /dev/zero, which may never end."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISCHR(mode) or stat.S_ISBLK(mode)


def read_bounded(path: Path, most: int) -> bytes:
    """Read a whole file of at most `most` bytes.

    Raises OSError, also for a larger file and for one that is not regular: a device may never end,
    and a pipe may block. Its strerror gives the reason.
    """
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is a folder, a pipe or a device, not a file")
    data, end = bytearray(), status.st_size > most
    with path.open("rb") as file:
        while not end and len(data) <= most:  # st_size may be too small, as in /proc
            block = file.read(1 << 20)
            data += block
            end = not block
    if max(status.st_size, len(data)) > most:
        raise OSError(errno.EFBIG, f"it has more than {most} bytes")
    return bytes(data)


def replace_atomically(part: Path, target: Path) -> None:
    """Rename a complete file or folder to `target` after syncing it to disk, replacing what exists.

    After a power failure `target` is either missing or complete. Raises OSError.
    """
    for inside in (*part.rglob("*"), part):
        fsync(inside)
    old = target.with_name(target.name + ".old")
    remove(old)  # left by an interrupted call
    if os.path.lexists(target) and (
        part.is_dir() or target.is_dir()
    ):  # no folder is replaced at once
        target.rename(old)
    part.replace(target)
    fsync(target.parent)
    remove(old)


def fsync(path: Path) -> None:
    """Flush a file or folder to disk. Raises OSError."""
    if path.is_dir():
        if os.name == "posix":  # elsewhere a folder cannot be opened
            number = os.open(path, os.O_RDONLY)
            with suppress(OSError):  # some file systems refuse that for folders
                os.fsync(number)
            os.close(number)
        return
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def remove(path: Path) -> None:
    """Remove a file, a link or a folder with its contents, if it exists. Raises OSError."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


class AtomicFile:
    """Writes a file atomically: `file` is temporary; `keep` renames it, `discard` removes it.

    A pipe or device is written directly. A link is followed, as /dev/stdout is one, or replaced
    with `over_link`. The new file takes the mode of the one that it replaces, so that a private
    file stays private; otherwise the umask applies. Raises OscineError if it cannot be created.
    """

    def __init__(self, path: Path, over_link: bool = False) -> None:
        self.path = path = expand_user(path)
        self._target = path if over_link else Path(os.path.realpath(path))
        replaced = over_link and os.path.islink(self._target)
        special = is_special(self._target) and not replaced
        self._part = None if special else temp_path(self._target.parent)
        try:
            if os.path.isdir(self._target) and not replaced:
                raise IsADirectoryError(21, "it is a folder")
            self.file: BinaryIO = (self._part or self._target).open("xb" if self._part else "wb")
        except OSError as error:
            raise write_error(path, error) from error
        self._take_mode()  # before it has contents that others could read

    def keep(self) -> None:
        """Sync the file to disk and rename it to its path, replacing an existing file.

        Raises OscineError if that fails; the existing file is then unchanged.
        """
        try:
            self.file.flush()
            if self._part is not None:
                os.fsync(self.file.fileno())
            self.file.close()
            if self._part is not None:
                self._take_mode()  # it may have changed meanwhile
                self._part.replace(self._target)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise write_error(self.path, error) from error
        finally:
            self.discard()

    def _take_mode(self) -> None:
        """Give the new file the permissions and the group of the regular file that it replaces.

        If the group cannot be set, the new file's group gets only the permissions of others.
        Does nothing on file systems without permissions.
        """
        if self._part is None:
            return
        with suppress(OSError):
            old = os.lstat(self._target)
            if not stat.S_ISREG(old.st_mode):
                return
            mode = stat.S_IMODE(old.st_mode) & 0o777
            if old.st_gid != self._part.stat().st_gid:
                try:
                    os.chown(self._part, -1, old.st_gid)
                except (OSError, AttributeError):  # there is no chown on Windows
                    mode &= 0o707 | (mode & 0o007) << 3
            os.chmod(self._part, mode)

    def discard(self) -> None:
        """Remove the temporary file unless it was kept. Never raises."""
        with suppress(OSError):
            self.file.close()
        if self._part is not None:
            with suppress(OSError):
                self._part.unlink()
