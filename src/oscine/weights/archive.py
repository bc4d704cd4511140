"""Zip archives whose members lie uncompressed, so that they can be mapped: torch's and NumPy's."""

from __future__ import annotations

import struct
import zipfile
from dataclasses import dataclass
from pathlib import Path

from oscine.errors import CheckpointError
from oscine.weights.source import MappedFile

_LOCAL_HEADER = 30  # bytes before the name, in PKWARE's APPNOTE 4.3.7


@dataclass(frozen=True, slots=True)
class Member:
    """Where one member's bytes lie in the archive."""

    offset: int
    size: int


class Archive(MappedFile):
    """A zip file and its members by name.

    Raises:
        CheckpointError: no zip file, or a member that is compressed, encrypted, named twice or
            not wholly inside the file.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        try:
            with zipfile.ZipFile(path) as opened:
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
            raise self.damaged(f"no readable zip archive ({str(error)[:80]})") from None
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
        header = self.bytes(record.header_offset, _LOCAL_HEADER, what)
        if header[:4] != b"PK\x03\x04":
            raise self.damaged(f"{what} has no header")
        name_length, extra_length = struct.unpack_from("<HH", header, 26)
        offset = record.header_offset + _LOCAL_HEADER + name_length + extra_length
        self.require(offset, record.file_size, what)
        return Member(offset, record.file_size)

    def read(self, name: str, limit: int) -> bytes:
        """A whole member of at most `limit` bytes."""
        member = self.members[name]
        if member.size > limit:
            raise self.damaged(f"member {name!r} has {member.size} bytes, more than {limit}")
        return self.bytes(member.offset, member.size, f"member {name!r}")
