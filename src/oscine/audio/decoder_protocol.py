"""Messages between a decoder process and its parent, through two pipes.

A message is its type (1 byte), the length of its body (4 bytes, big endian) and the body. The
parent sends a JOB and then answers requests: the process sends READ as often as it needs to, and
gets DATA, or STOP if the parent needs no more. It sends BLOCK and LOG in between, and END or ERROR
at last; then the next JOB may come.
"""

from __future__ import annotations

import json
import struct
from typing import Any, BinaryIO, Final

HELLO: Final = b"H"  # from the process, once: it is ready
JOB: Final = b"J"  # JSON: task, name, suffix, size, and the request of a task "decode"
READ: Final = b"R"  # an offset (8 bytes) and a size (4 bytes) of the recording
DATA: Final = b"D"  # the bytes there; fewer at the end of the recording
STOP: Final = b"X"  # in place of DATA: the job is cancelled
BLOCK: Final = b"B"  # float32 samples in the machine's order
LOG: Final = b"L"  # JSON: name of the logger, level, text
ERROR: Final = b"E"  # JSON: problem, remedy
END: Final = b"Z"  # JSON: the result

READ_RANGE = struct.Struct(">QI")  # body of READ
_HEADER = struct.Struct(">cI")
MAX_BODY_BYTES = 1 << 20  # limit that neither side can exceed


def send(pipe: BinaryIO, kind: bytes, body: bytes | bytearray | memoryview = b"") -> None:
    """Write a whole message. Raises OSError if the other side has ended."""
    write_all(pipe, memoryview(_HEADER.pack(kind, len(body)) + body))


def write_all(pipe: BinaryIO, data: memoryview) -> None:
    """Write all bytes, also if a signal interrupts. Raises OSError if the other side has ended."""
    while data:
        data = data[pipe.write(data) :]


def send_json(pipe: BinaryIO, kind: bytes, value: Any) -> None:
    """Write a message whose body is a value as JSON. Raises OSError if the other side has ended."""
    send(pipe, kind, json.dumps(value).encode("ascii"))


def receive(pipe: BinaryIO) -> tuple[bytes, bytearray]:
    """Type and body of the next message. Raises EOFError if the other side has ended."""
    kind, size = _HEADER.unpack(exactly(pipe, _HEADER.size))
    if size > MAX_BODY_BYTES:
        raise EOFError("that is no message")
    return kind, exactly(pipe, size)


def exactly(pipe: BinaryIO, size: int) -> bytearray:
    """Read exactly `size` bytes. Raises EOFError if the other side has ended."""
    data = bytearray(size)
    rest = memoryview(data)
    while rest:
        count = pipe.readinto(rest)  # type: ignore[attr-defined]
        if not count:
            raise EOFError
        rest = rest[count:]
    return data
