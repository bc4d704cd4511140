"""What a decoder process and its parent say to each other, through two pipes.

A message is its kind (1 byte), the length of its body (4 bytes, big endian) and the body. The
parent sends a JOB and then answers; the process asks with READ as often as it wants to, and gets
DATA, or STOP where the parent has had enough. It sends BLOCK and LOG in between, and at last END or
ERROR; then the next JOB may come.
"""

from __future__ import annotations

import json
import struct
from typing import Any, BinaryIO, Final

HELLO: Final = b"H"  # of the process, once: it is ready
JOB: Final = b"J"  # JSON: task, name, suffix, size, and what is wanted of a task "decode"
READ: Final = b"R"  # an offset (8 bytes) and a size (4 bytes) of the recording
DATA: Final = b"D"  # the bytes there; fewer at its end
STOP: Final = b"X"  # in place of DATA: nothing more is wanted
BLOCK: Final = b"B"  # float32 samples in the machine's order
LOG: Final = b"L"  # JSON: name of the logger, level, text
ERROR: Final = b"E"  # JSON: problem, remedy
END: Final = b"Z"  # JSON: the result

PLACE = struct.Struct(">QI")
_HEAD = struct.Struct(">cI")
MAX_BODY_BYTES = 1 << 20  # of a body: no side can make the other take more


def send(pipe: BinaryIO, kind: bytes, body: bytes | bytearray | memoryview = b"") -> None:
    """Write a message whole. Raises OSError where the other side has gone."""
    write_all(pipe, memoryview(_HEAD.pack(kind, len(body)) + body))


def write_all(pipe: BinaryIO, data: memoryview) -> None:
    """Write bytes whole, also where a signal cuts it short. Raises OSError."""
    while data:
        data = data[pipe.write(data) :]


def send_json(pipe: BinaryIO, kind: bytes, value: Any) -> None:
    """The same with a value."""
    send(pipe, kind, json.dumps(value).encode("ascii"))


def receive(pipe: BinaryIO) -> tuple[bytes, bytearray]:
    """Kind and body of the next message. Raises EOFError where the other side has gone."""
    kind, size = _HEAD.unpack(exactly(pipe, _HEAD.size))
    if size > MAX_BODY_BYTES:
        raise EOFError("that is no message")
    return kind, exactly(pipe, size)


def exactly(pipe: BinaryIO, size: int) -> bytearray:
    """That many bytes. Raises EOFError where the other side has gone."""
    data = bytearray(size)
    rest = memoryview(data)
    while rest:
        count = pipe.readinto(rest)  # type: ignore[attr-defined]
        if not count:
            raise EOFError
        rest = rest[count:]
    return data
