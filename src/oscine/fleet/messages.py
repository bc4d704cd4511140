"""What a worker process and its parent say to each other: pickled values through two pipes.

A message is the number of its request, its kind, and a pickle whose arrays follow it as they are
in memory (pickle's protocol 5), written in pieces.
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
#: (turn, whether the caller's `cancel` says so already, operation, name, positional and keyword
#: arguments): the first of a request is asked of the model, those after it of its stream.
ASK: Final = 2
ITEM: Final = 4  # [item] of an iterator that was asked for, [] at its end
CANCEL: Final = 5  # the caller's `cancel` says so
ABANDON: Final = 6  # likewise, and no item will come: the wait was interrupted
CLOSE: Final = 7  # likewise, and close the stream
DROP: Final = 8  # likewise, and the stream is not needed any more
# From the worker.
RESULT: Final = 10  # (turn, value)
STREAM: Final = 11  # (turn, Shape): the value is an iterator, which stays there
END: Final = 12  # (turn,): the iterator has ended
ERROR: Final = 13  # (turn, exception)
PROGRESS: Final = 14  # (done, total)
PULL: Final = 15  # (number of an iterator, place): its item is wanted
LOG: Final = 16  # (name, level, text)
LOST: Final = 17  # (reason,): of no worker, but said for one that has gone

PIECE = 1 << 20  # bytes written at a time
_HEAD = struct.Struct(">QHI")
_SIZE = struct.Struct(">Q")


@dataclass(frozen=True, slots=True)
class Message:
    """One message, not yet unpickled: whoever it is for does that, and meets what fails in it."""

    request: int
    kind: int
    body: Any
    buffers: list[Any]

    def read(self) -> Any:
        """What it says."""
        return pickle.loads(self.body, buffers=self.buffers)


class Connection:
    """Both directions. A thread writes, so that whoever sends waits for no reader."""

    def __init__(self, incoming: BinaryIO, outgoing: BinaryIO) -> None:
        self._incoming, self._outgoing = incoming, outgoing
        self._waiting: SimpleQueue[list[Any]] = SimpleQueue()
        Thread(target=self._write, name="oscine pipe", daemon=True).start()

    def send(self, request: int, kind: int, *said: Any) -> None:
        """Say something. Raises what pickling raises; where the other side has gone, nothing."""
        buffers: list[pickle.PickleBuffer] = []
        body = pickle.dumps(said, 5, buffer_callback=buffers.append)
        parts = [memoryview(body), *(buffer.raw() for buffer in buffers)]
        sizes = b"".join(_SIZE.pack(part.nbytes) for part in parts)
        self._waiting.put([memoryview(_HEAD.pack(request, kind, len(parts)) + sizes), *parts])

    def receive(self) -> Message:
        """The next message. Raises EOFError or OSError where the other side has gone."""
        request, kind, count = _HEAD.unpack(exactly(self._incoming, _HEAD.size))
        sizes = [_SIZE.unpack(exactly(self._incoming, _SIZE.size))[0] for _ in range(count)]
        body, *buffers = [exactly(self._incoming, size) for size in sizes]
        return Message(request, kind, body, buffers)

    def close(self) -> None:
        """Write no more; for the thread that receives, once the other side has gone."""
        self._waiting.put([])
        self._incoming.close()

    def _write(self) -> None:
        with suppress(OSError, ValueError), self._outgoing:
            while self._write_next():
                pass

    def _write_next(self) -> bool:
        """Write a message, which is not kept in memory after that; False at the end."""
        parts = self._waiting.get()
        for part in parts:
            for start in range(0, part.nbytes, PIECE):
                write_all(self._outgoing, part[start : start + PIECE])
        return bool(parts)
