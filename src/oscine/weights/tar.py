"""Reads tar archives in place: no file is written under a name from the archive.

Formats: POSIX.1-2001 pax and ustar, GNU's long names and large sizes, as Python's tarfile writes
them. Only regular files and folders are accepted; a name that leads out of the archive, a link, a
device or a sparse file is refused.
"""

from __future__ import annotations

import mmap
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from typing import Final

from oscine.errors import CheckpointError
from oscine.weights.archive import Member
from oscine.weights.mapped_file import MappedFile, printable_name

_BLOCK_BYTES: Final = 512
_MAX_MEMBERS: Final = 10_000
_MAX_HEADER_BYTES: Final = 1 << 20  # bytes of a long name or of pax records
_PLAIN, _FOLDER, _PAX, _PAX_ALL, _LONG_NAME = b"0", b"5", b"x", b"g", b"L"
_REFUSED_TYPES: Final = {b"1": "a hard link", b"2": "a link", b"S": "a sparse file"}

#: Weights do not compress to an eighth; a larger expansion is a decompression bomb.
_MAX_EXPANSION: Final = 8
_MIN_LIMIT_BYTES: Final = 64 << 20
_MAGIC_SLICE: Final = slice(257, 262)  # of the first member's header


def is_tar(file: MappedFile) -> bool:
    """Whether a file is a tar archive, by the magic number of its first member."""
    return (
        file.size >= _BLOCK_BYTES
        and file.bytes(0, _BLOCK_BYTES, "the first header")[_MAGIC_SLICE] == b"ustar"
    )


def is_gzip(file: MappedFile) -> bool:
    """Whether a file is compressed with gzip."""
    return file.head[:3] == b"\x1f\x8b\x08"


def decompress(file: MappedFile) -> MappedFile:
    """Decompress a gzip file with a tar archive into an unnamed temporary file, and map that.

    Only a tar archive is written to disk.

    Raises:
        CheckpointError: not a tar archive, damaged, truncated, expanding too much, or a full disk.
    """
    limit = max(_MIN_LIMIT_BYTES, _MAX_EXPANSION * file.size)
    written = 0
    try:
        folder = tempfile.gettempdir()
        free = shutil.disk_usage(folder).free
        with tempfile.TemporaryFile(dir=folder) as target:
            for data in _inflate(file):
                if not written and data[_MAGIC_SLICE] != b"ustar":
                    raise CheckpointError(file.path, "is compressed, but no tar archive")
                written += len(data)
                if written > limit:
                    raise CheckpointError(
                        file.path, f"unpacks to more than {limit} bytes, which no weights do"
                    )
                if written > free:
                    raise CheckpointError(
                        file.path,
                        f"unpacks to more than the {free} bytes that are free in {folder}",
                        "set TMPDIR to a folder with more room, or unpack it: gzip -dc OLD > NEW",
                    )
                target.write(data)
            if not written:
                raise file.damaged("its gzip stream is empty")
            target.flush()
            data_map = mmap.mmap(target.fileno(), 0, access=mmap.ACCESS_READ)
            return MappedFile(file.path, memoryview(data_map))
    except zlib.error as error:
        raise file.damaged(f"its gzip stream cannot be read ({str(error)[:80]})") from None
    except OSError as error:
        raise CheckpointError(
            file.path, f"cannot be unpacked into a temporary file ({error.strerror})"
        ) from None


def _inflate(file: MappedFile) -> Iterator[bytes]:
    """Yield the contents of a gzip stream: the first header at once, then at most 4 MiB each."""
    machine = zlib.decompressobj(wbits=31)
    front = b""
    for start in range(0, file.size, 1 << 20):
        piece: bytes | memoryview = file.part(start, min(1 << 20, file.size - start), "the stream")
        data = b"more"
        while data and not machine.eof:
            data = machine.decompress(piece, 1 << 22)
            piece = machine.unconsumed_tail
            front += data
            if len(front) >= _BLOCK_BYTES:
                yield front
                front = b""
    if front:
        yield front
    if not machine.eof:
        raise file.damaged("its gzip stream ends too early")


def read_members(file: MappedFile) -> dict[str, Member]:
    """The regular files of the archive by name, without a leading `./`.

    Raises:
        CheckpointError: a header that is damaged, a member beyond the end, named twice, of another
            kind, or with a name that is absolute or holds `..`.
    """
    found: dict[str, Member] = {}
    records: dict[str, str] = {}  # from pax and GNU headers, for the next member
    at = 0
    for _ in range(_MAX_MEMBERS):
        header = file.bytes(at, _BLOCK_BYTES, "the end of the archive")
        if not any(header):
            return found
        size = _checked_size(file, header)
        kind = header[156:157]
        plain = kind in (_PLAIN, b"\0", b"7")
        if "size" in records and plain:
            size = _parse_decimal(file, records["size"])
        name = records.get("path") or _member_name(header)
        what = f"member {name!r}"
        at += _BLOCK_BYTES
        file.require(at, size, what)
        if kind in (_PAX, _LONG_NAME):
            if size > _MAX_HEADER_BYTES:
                raise file.damaged(f"{what} has a header of {size} bytes")
            records |= _long_name_records(file, kind, file.bytes(at, size, what))
        elif kind != _PAX_ALL:
            safe = _safe_name(file, name)
            if plain:
                if safe in found:
                    raise file.damaged(f"member {printable_name(safe)} occurs twice")
                found[safe] = Member(at, size)
            elif kind != _FOLDER:
                called = _REFUSED_TYPES.get(kind, f"of kind {kind!r}")
                raise CheckpointError(
                    file.path,
                    f"member {printable_name(name)} is {called}, not a regular file",
                    "such archives are not read",
                )
            records = {}
        at += -(-size // _BLOCK_BYTES) * _BLOCK_BYTES
    raise file.damaged(f"holds more than {_MAX_MEMBERS} members")


def _checked_size(file: MappedFile, header: bytes) -> int:
    """The size in a header, after its checksum is verified."""
    plain = header[:148] + b" " * 8 + header[156:]
    if _parse_octal(header[148:156]) != sum(plain):
        raise file.damaged("a member's header has a wrong checksum")
    field = header[124:136]
    if field[0] & 0x80:  # GNU's way for 8 GiB and more
        size = int.from_bytes(field, "big", signed=False) & ((1 << 94) - 1)
        if field[0] != 0x80:
            raise file.damaged("a member has a negative size")
        return size
    found = _parse_octal(field)
    if found is None:
        raise file.damaged("a member's header states no size")
    return found


def _parse_octal(field: bytes) -> int | None:
    digits = field.strip(b" \0")
    if not digits:
        return 0
    return int(digits, 8) if all(48 <= byte < 56 for byte in digits) else None


def _parse_decimal(file: MappedFile, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise file.damaged(f"a member's header states the size {text[:40]!r}")
    return int(text)


def _member_name(header: bytes) -> str:
    name = header[:100].split(b"\0")[0]
    prefix = header[345:500].split(b"\0")[0] if header[257:263] == b"ustar\0" else b""
    return (prefix + b"/" + name if prefix else name).decode("utf-8", "replace")


def _safe_name(file: MappedFile, name: str) -> str:
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts or "\\" in name or ":" in name or "\0" in name:
        raise CheckpointError(
            file.path,
            f"member {printable_name(name[:200])} lies outside the archive",
            "nothing was written; do not trust this file",
        )
    return "/".join(parts)


def _long_name_records(file: MappedFile, kind: bytes, data: bytes) -> dict[str, str]:
    """A long name of GNU's, or pax records `length key=value`."""
    if kind == _LONG_NAME:
        return {"path": data.split(b"\0")[0].decode("utf-8", "replace")}
    records: dict[str, str] = {}
    at = 0
    while at < len(data) and data[at]:
        space = data.find(b" ", at, at + 12)
        length = data[at:space] if space > 0 else b""
        if not length.isdigit() or not space + 1 - at < int(length) <= len(data) - at:
            raise file.damaged("a member's pax header cannot be read")
        record = data[space + 1 : at + int(length) - 1]
        key, _, value = record.partition(b"=")
        if key.startswith(b"GNU.sparse"):
            raise CheckpointError(file.path, "a member is a sparse file, which is not read")
        records[key.decode("utf-8", "replace")] = value.decode("utf-8", "replace")
        at += int(length)
    return records
