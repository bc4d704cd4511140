"""Damage: of bytes, of JSON, of what lies in archives. The same random numbers, the same damage."""

from __future__ import annotations

import gzip
import io
import json
import struct
import tarfile
import warnings
import zipfile
import zlib
from collections.abc import Callable
from random import Random
from typing import Any

Change = Callable[[bytes, Random], bytes]

#: Whole numbers at which lengths and signs break.
NUMBERS = (
    *(0, 1, -1, 2, 7, 255, 256, 65_535, 65_536, 1_000_003),
    *(2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53, 2**63 - 1, 2**64 - 1, -(2**31), -(2**63)),
)
#: What a value of JSON becomes.
VALUES: tuple[Any, ...] = (
    *(None, True, False, "", "a", "\0", "x" * 3000, "\ud800", [], {}, [[]], [None], {"a": {}}),
    *(0.5, -0.0, 1e-320, 1e308, float("inf"), float("nan"), 10**400),
)
TEXTS = (b"NaN", b"1e999", b"null", b"-1", b"[" * 4000, b'{"a":' * 4000, b"\xff\xfe", b"\\u0000")


def damaged(content: bytes, other: bytes, random: Random) -> bytes:
    """`content`, damaged in one to four ways that its kind allows; `other` is one to take from."""
    found = content
    for _ in range(random.choice((1, 1, 1, 2, 3, 4))):
        if random.random() < 0.1:
            found = spliced(found, other, random)
        else:
            found = random.choice(ways(found))(found, random)
    return found


def ways(content: bytes) -> list[Change]:
    """How content of this kind can be damaged; what is known of its form counts for more."""
    plain: list[Change] = [overwritten, numbered, cut, repeated, flipped]
    head = content[:8]
    if head[:4] == b"PK\x03\x04":
        return [*plain, *[zipped] * 6]
    if head[:2] == b"\x1f\x8b":
        return [*plain, *[gzipped] * 6]
    if content[257:262] == b"ustar":
        return [*plain, *[tarred] * 6]
    if head[:1] in b"{[" and head:
        return [*plain, texts, *[stated] * 8]
    if len(content) > 9 and content[8:9] == b"{":
        return [*plain, *[headed] * 8]
    return [*plain, near_the_front, near_the_front]


def place(content: bytes, random: Random, front: int | None = None) -> int:
    """A place in it, more often near its ends, where descriptions lie."""
    size = len(content)
    near = min(size, front or 4096)
    return random.choice((random.randrange(near + 1), random.randrange(size + 1), size - near))


def packed(random: Random) -> bytes:
    """A number of 1 to 8 bytes, in either order."""
    size, order = random.choice((1, 2, 4, 4, 8)), random.choice(("little", "big"))
    number = random.choice((*NUMBERS, random.getrandbits(8 * size)))
    return (number & ((1 << 8 * size) - 1)).to_bytes(size, order)  # type: ignore[arg-type]


def overwritten(content: bytes, random: Random) -> bytes:
    """A few bytes are others."""
    at, put = place(content, random), random.randbytes(random.choice((1, 1, 2, 4, 16)))
    return content[:at] + put + content[at + len(put) :]


def numbered(content: bytes, random: Random) -> bytes:
    """A number is written over it."""
    at, put = place(content, random), packed(random)
    return content[:at] + put + content[at + len(put) :]


def near_the_front(content: bytes, random: Random) -> bytes:
    """A number is written over its header."""
    at, put = place(content, random, 128), packed(random)
    return content[:at] + put + content[at + len(put) :]


def flipped(content: bytes, random: Random) -> bytes:
    """Some bits are turned over."""
    found = bytearray(content)
    for _ in range(random.choice((1, 1, 4, 64))):
        if found:
            found[min(place(content, random), len(found) - 1)] ^= 1 << random.randrange(8)
    return bytes(found)


def cut(content: bytes, random: Random) -> bytes:
    """The rest, or a piece, is missing."""
    at = place(content, random)
    end = len(content) if random.random() < 0.3 else at + random.choice((1, 2, 4, 100, 5000))
    return content[:at] + content[end:]


def repeated(content: bytes, random: Random) -> bytes:
    """A piece comes more than once."""
    at = place(content, random)
    piece = content[at : at + random.choice((1, 4, 64, 1024))]
    return content[:at] + piece * random.choice((2, 3, 50)) + content[at + len(piece) :]


def spliced(content: bytes, other: bytes, random: Random) -> bytes:
    """It goes on as another file does."""
    return content[: place(content, random)] + other[place(other, random) :]


def texts(content: bytes, random: Random) -> bytes:
    """A word that readers of JSON trip over is put in."""
    at = place(content, random)
    return content[:at] + random.choice(TEXTS) + content[at:]


def stated(content: bytes, random: Random) -> bytes:
    """A value of JSON, anywhere in it, is another, is away, or comes twice."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return overwritten(content, random)
    for _ in range(random.choice((1, 1, 2, 5))):
        value = restated(value, random)
    written = json.dumps(value)
    if random.random() < 0.1 and written.startswith("{") and isinstance(value, dict) and value:
        name = random.choice(list(value))
        written = f"{{{json.dumps(name)}: {json.dumps(random.choice(VALUES[:4]))}, {written[1:]}"
    return written.encode("utf-8", "surrogatepass")


def restated(value: Any, random: Random, depth: int = 0) -> Any:
    """A copy of the value with one change."""
    if isinstance(value, dict) and value and (depth == 0 or random.random() < 0.9):
        name = random.choice(list(value))
        found = dict(value)
        if random.random() < 0.1:
            del found[name]
        elif random.random() < 0.1:
            found[name + random.choice(("", "x", "\0"))] = found.pop(name)
        else:
            found[name] = restated(value[name], random, depth + 1)
        return found
    if isinstance(value, list) and value and (depth == 0 or random.random() < 0.9):
        at = random.randrange(len(value))
        if random.random() < 0.2:
            return [*value[:at], *value[at:] * random.choice((0, 2)), *value[at + 1 :]]
        return [*value[:at], restated(value[at], random, depth + 1), *value[at + 1 :]]
    if isinstance(value, int) and random.random() < 0.7:
        return random.choice((*NUMBERS, value + 1, value - 1, value * 2, -value))
    return random.choice((*VALUES, *NUMBERS))


def headed(content: bytes, random: Random) -> bytes:
    """The JSON at the front of safetensors is another, with its length told truly, or nearly."""
    (length,) = struct.unpack("<Q", content[:8])
    header = stated(content[8 : 8 + length], random)
    told = len(header) + random.choice((0, 0, 0, 0, 1, -1))
    return struct.pack("<Q", max(0, told)) + header + content[8 + length :]


def zipped(content: bytes, random: Random) -> bytes:
    """A member of a zip archive is damaged, or has another name; its checksum is right."""
    written = io.BytesIO()
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    except Exception:  # what was damaged before need not be an archive any more
        return overwritten(content, random)
    if not members:
        return overwritten(content, random)
    at = random.choice((0, random.randrange(len(members))))
    name, inner = members[at]
    members[at] = (
        renamed(name, random),
        random.choice((overwritten, numbered, cut, flipped))(inner, random),
    )
    with warnings.catch_warnings(), zipfile.ZipFile(written, "w") as archive:
        warnings.simplefilter("ignore")  # two members of one name are damage, too
        for name, inner in members:
            archive.writestr(zipfile.ZipInfo(name), inner)
    return written.getvalue()


def tarred(content: bytes, random: Random) -> bytes:
    """The same for tar."""
    written = io.BytesIO()
    try:
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            files = [info for info in archive.getmembers() if info.isfile()]
            members = [(info.name, archive.extractfile(info).read()) for info in files]  # type: ignore[union-attr]
    except Exception:
        return overwritten(content, random)
    if not members:
        return overwritten(content, random)
    at = random.randrange(len(members))
    name, inner = members[at]
    change = random.choice((texts, overwritten, numbered, cut, lines))
    members[at] = renamed(name, random), change(inner, random)
    with tarfile.open(fileobj=written, mode="w") as archive:
        for name, inner in members:
            info = tarfile.TarInfo(name)
            info.size = len(inner)
            archive.addfile(info, io.BytesIO(inner))
    return written.getvalue()


def gzipped(content: bytes, random: Random) -> bytes:
    """The same for tar within gzip."""
    try:
        inner = gzip.decompress(content)
    except (OSError, EOFError, zlib.error):
        return overwritten(content, random)
    return gzip.compress(tarred(inner, random), 1, mtime=0)


def lines(content: bytes, random: Random) -> bytes:
    """A line of text is another's, or its value is."""
    found = content.split(b"\n")
    at = random.randrange(len(found))
    name, colon, _ = found[at].partition(b":")
    value = str(random.choice((*NUMBERS, *VALUES[:12]))).encode("utf-8", "replace")
    found[at] = random.choice((name + colon + b" " + value, random.choice(found)))
    return b"\n".join(found)


def renamed(name: str, random: Random) -> str:
    """A member's name, seldom another."""
    if random.random() < 0.9:
        return name
    return random.choice(("../" + name, "/" + name, name + "x", name[:-1] or "a", "a/../" + name))
