"""Files and folders that get their name when they are whole, so that there is never half of one
under it; and small files that are read whole, whatever lies in their place."""

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
    """With ~ replaced; as it is where nobody knows whose home that would be."""
    return Path(os.path.expanduser(path))  # Path.expanduser raises then


def temp_path(folder: Path) -> Path:
    """Where a file is written before it has its name: hidden, and new every time.

    Not made of that name, which may be as long as names can be.
    """
    return folder / f".{os.urandom(8).hex()}.part"


def write_error(name: object, error: OSError) -> OscineError:
    """The one line for a disk or folder that does not allow it."""
    return OscineError(f"{name}: cannot write: {error.strerror or error}")


def is_special(path: Path) -> bool:
    """Whether a path is there and is no file with contents but, say, a pipe or a device."""
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except (OSError, ValueError):
        return False


def is_device(path: Path) -> bool:
    """Whether a path is there and is what may never end, such as /dev/zero; a pipe is none."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISCHR(mode) or stat.S_ISBLK(mode)


def read_bounded(path: Path, most: int) -> bytes:
    """All of a file of at most so many bytes.

    Raises OSError also for more than that, and for what is no file: a device may never end, and a
    pipe wait for ever. Its strerror says so.
    """
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is a folder, a pipe or a device, not a file")
    data, end = bytearray(), found.st_size > most
    with path.open("rb") as file:
        while not end and len(data) <= most:  # what is stated may be too little, as in /proc
            block = file.read(1 << 20)
            data += block
            end = not block
    if max(found.st_size, len(data)) > most:
        raise OSError(errno.EFBIG, f"it has more than {most} bytes")
    return bytes(data)


def replace_atomically(part: Path, place: Path) -> None:
    """Name a whole file or folder once its bytes are on the disk, in place of what is there.

    After a power cut there is then either nothing of that name or all of it. Raises OSError.
    """
    for inside in (*part.rglob("*"), part):
        fsync(inside)
    old = place.with_name(place.name + ".old")
    remove(old)  # of a call that was interrupted
    if os.path.lexists(place) and (
        part.is_dir() or place.is_dir()
    ):  # no folder is replaced at once
        place.rename(old)
    part.replace(place)
    fsync(place.parent)
    remove(old)


def fsync(path: Path) -> None:
    """Put what a file or folder holds on the disk. Raises OSError where the disk fails."""
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
    """Remove a file, a link or a folder with all that is in it, if it is there. Raises OSError."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


class AtomicFile:
    """A file to be: `file` is written beside `path`; `keep` names it, `discard` takes it away.

    A pipe or device is written at once. A link is written through, as /dev/stdout is one, or with
    `over_link` replaced. A file that is replaced leaves its mode to the new one, so that what was
    private stays private; any other follows the umask. Raises OscineError where there cannot be
    such a file.
    """

    def __init__(self, path: Path, over_link: bool = False) -> None:
        self.path = path = expand_user(path)
        self._place = path if over_link else Path(os.path.realpath(path))
        replaced = over_link and os.path.islink(self._place)
        special = is_special(self._place) and not replaced
        self._part = None if special else temp_path(self._place.parent)
        try:
            if os.path.isdir(self._place) and not replaced:
                raise IsADirectoryError(21, "it is a folder")
            self.file: BinaryIO = (self._part or self._place).open("xb" if self._part else "wb")
        except OSError as error:
            raise write_error(path, error) from error
        self._take_mode()  # before anything is in it that others might read

    def keep(self) -> None:
        """Put it on the disk and give it its name, in place of what had it.

        Raises OscineError where that fails; nothing is left then but what had the name.
        """
        try:
            self.file.flush()
            if self._part is not None:
                os.fsync(self.file.fileno())
            self.file.close()
            if self._part is not None:
                self._take_mode()  # which may have changed meanwhile
                self._part.replace(self._place)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise write_error(self.path, error) from error
        finally:
            self.discard()

    def _take_mode(self) -> None:
        """Give the new file the permissions and the group of the regular file that it replaces.

        Where the group cannot be given, the file's own group may do no more than everybody may.
        File systems without permissions are left alone.
        """
        if self._part is None:
            return
        with suppress(OSError):
            old = os.lstat(self._place)
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
        """Take it away unless it was kept. Never raises."""
        with suppress(OSError):
            self.file.close()
        if self._part is not None:
            with suppress(OSError):
                self._part.unlink()
