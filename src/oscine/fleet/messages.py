"""Messages between a worker process and its parent: pickled values through two pipes.

A message is the number of its request, its kind, and a pickle followed by its arrays as out-of-band
buffers (pickle's protocol 5), written in blocks.
"""

from __future__ import annotations

import pickle
import struct
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Thread
from typing import Any, BinaryIO, Final

from oscine.audio.decoder_protocol import exactly, write_all

#: The number of messages that belong to no request.
NO_REQUEST: Final = 0
# From the parent.
#: (name, device, dtype, offline, deterministic, memory, level of the log, families)
LOAD: Final = 1
#: (turn, whether the caller has cancelled already, operation, name, positional and keyword
#: arguments): the first of a request is a call of the model, later ones are calls of its stream.
ASK: Final = 2
ITEM: Final = 4  # [item] of the requested iterator, [] at its end
CANCEL: Final = 5  # the caller has cancelled the request
INTERRUPT: Final = 6  # the caller's wait was interrupted: cancel, no item will follow
CLOSE: Final = 7  # cancel the request and close its stream
DROP: Final = 8  # cancel the request and release its stream
# From the worker.
RESULT: Final = 10  # (turn, value)
STREAM: Final = 11  # (turn, Shape): the value is an iterator, which stays there
END: Final = 12  # (turn,): the iterator has ended
ERROR: Final = 13  # (turn, exception)
PROGRESS: Final = 14  # (done, total)
PULL: Final = 15  # (number of an iterator, index): requests an item
LOG: Final = 16  # (name, level, text)
LOST: Final = 17  # (reason,): made by the parent for a worker that has exited

MAX_WRITE_BYTES = 1 << 20  # bytes written at a time
_HEADER = struct.Struct(">QHI")
_PART_SIZE = struct.Struct(">Q")


@dataclass(frozen=True, slots=True)
class Message:
    """One message, not yet unpickled: the receiver does that, and handles its errors."""

    request: int
    kind: int
    body: Any
    buffers: list[Any]

    def read(self) -> Any:
        """Unpickle the contents."""
        return pickle.loads(self.body, buffers=self.buffers)


class Connection:
    """A connection to the other process over two pipes. A thread writes, so `send` never blocks."""

    def __init__(self, incoming: BinaryIO, outgoing: BinaryIO) -> None:
        self._incoming, self._outgoing = incoming, outgoing
        self._waiting: SimpleQueue[list[Any]] = SimpleQueue()
        Thread(target=self._write, name="oscine pipe", daemon=True).start()

    def send(self, request: int, kind: int, *said: Any) -> None:
        """Send a message. Raises pickling errors; nothing if the other process has exited."""
        buffers: list[pickle.PickleBuffer] = []
        body = pickle.dumps(said, 5, buffer_callback=buffers.append)
        parts = [memoryview(body), *(buffer.raw() for buffer in buffers)]
        sizes = b"".join(_PART_SIZE.pack(part.nbytes) for part in parts)
        self._waiting.put([memoryview(_HEADER.pack(request, kind, len(parts)) + sizes), *parts])

    def receive(self) -> Message:
        """Wait for the next message. Raises EOFError, OSError if the other process has exited."""
        request, kind, count = _HEADER.unpack(exactly(self._incoming, _HEADER.size))
        sizes = [
            _PART_SIZE.unpack(exactly(self._incoming, _PART_SIZE.size))[0] for _ in range(count)
        ]
        body, *buffers = [exactly(self._incoming, size) for size in sizes]
        return Message(request, kind, body, buffers)

    def close(self) -> None:
        """Stop writing; call it from the receiving thread once the other process has exited."""
        self._waiting.put([])
        self._incoming.close()

    def _write(self) -> None:
        with suppress(OSError, ValueError), self._outgoing:
            while self._write_next():
                pass

    def _write_next(self) -> bool:
        """Write a message and release its memory; False at the end."""
        parts = self._waiting.get()
        for part in parts:
            for start in range(0, part.nbytes, MAX_WRITE_BYTES):
                write_all(self._outgoing, part[start : start + MAX_WRITE_BYTES])
        return bool(parts)
