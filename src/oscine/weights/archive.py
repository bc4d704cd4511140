"""Zip archives with uncompressed members, which can be memory-mapped: torch's and NumPy's."""

from __future__ import annotations

import io
import struct
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from oscine.errors import CheckpointError
from oscine.weights.mapped_file import MAX_TENSORS, MappedFile

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

#: Bytes that zipfile may read: the table of contents of MAX_TENSORS members, and its surroundings.
_MAX_READ = 256 * MAX_TENSORS
_LOCAL_HEADER_BYTES = 30  # bytes before the name, in PKWARE's APPNOTE 4.3.7


@dataclass(frozen=True, slots=True)
class Member:
    """Offset and size in bytes of a member in its archive."""

    offset: int
    size: int


class _Readable(io.RawIOBase):
    """A MappedFile as zipfile reads one. Raises ValueError after _MAX_READ bytes."""

    def __init__(self, file: MappedFile) -> None:
        self._file, self._at, self._left = file, 0, _MAX_READ

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._file.size}[whence]
        if origin + offset < 0:
            raise ValueError("seek before the beginning")
        self._at = origin + offset
        return self._at

    def readinto(self, buffer: WriteableBuffer) -> int:
        room = memoryview(buffer)
        count = max(0, min(len(room), self._file.size - self._at))
        self._left -= count
        if self._left < 0:
            raise ValueError(f"its table of contents has more than {_MAX_READ} bytes")
        if count:
            room[:count] = self._file.part(self._at, count, "the archive")
        self._at += count
        return count


class ZipArchive(MappedFile):
    """A zip file and its members by name.

    Raises:
        CheckpointError: not a zip file, or a member that is compressed, encrypted, duplicate or
            not completely inside the file.
    """

    def __init__(self, path: Path, data: memoryview | None = None) -> None:
        super().__init__(path, data)
        try:
            with zipfile.ZipFile(io.BufferedReader(_Readable(self))) as opened:
                records = opened.infolist()
        except (
            zipfile.BadZipFile,
            NotImplementedError,
            OSError,
            ValueError,
            EOFError,
            OverflowError,
            struct.error,
        ) as error:
            raise self.damaged(f"not a readable zip archive ({str(error)[:80]})") from None
        if len(records) > MAX_TENSORS:
            raise self.damaged(f"holds {len(records)} members, more than {MAX_TENSORS}")
        self.members: dict[str, Member] = {}
        for record in records:
            if record.filename in self.members:
                raise self.damaged(f"member {record.filename!r} occurs twice")
            self.members[record.filename] = self._member(record)

    def _member(self, record: zipfile.ZipInfo) -> Member:
        name = record.filename
        if record.compress_type != zipfile.ZIP_STORED or record.flag_bits & 1:
            raise CheckpointError(
                self.path, f"member {name!r} is compressed or encrypted", "save it uncompressed"
            )
        if record.compress_size != record.file_size:
            raise self.damaged(f"member {name!r} has two sizes")
        what = f"member {name!r}"
        header = self.bytes(record.header_offset, _LOCAL_HEADER_BYTES, what)
        if header[:4] != b"PK\x03\x04":
            raise self.damaged(f"{what} has no header")
        name_length, extra_length = struct.unpack_from("<HH", header, 26)
        offset = record.header_offset + _LOCAL_HEADER_BYTES + name_length + extra_length
        self.require(offset, record.file_size, what)
        return Member(offset, record.file_size)

    def read(self, name: str, limit: int) -> bytes:
        """A whole member of at most `limit` bytes."""
        member = self.members[name]
        if member.size > limit:
            raise self.damaged(f"member {name!r} has {member.size} bytes, more than {limit}")
        return self.bytes(member.offset, member.size, f"member {name!r}")
