"""Sessions of WebSockets: messages with any values in any order, and frames that are damaged.

The same random numbers make the same session.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any

from fuzzing.mutations import NUMBERS, VALUES, damaged, restated
from fuzzing.requests import WORDS, Request

TEXT, BINARY, CLOSE, PING = 1, 2, 8, 9
MASK = b"mask"
#: Messages that a client sends, by the path of the session.
Messages = Callable[[str], tuple[Mapping[str, Any], ...]]


def speech(model: str) -> tuple[Mapping[str, Any], ...]:
    """Messages of /v1/audio/speech/stream."""
    config = {"type": "session.config", "model": model, "max_frames": 2, "guard": False}
    return (
        config,
        {**config, "response_format": "mp3", "voice": "alloy"},
        {"type": "input.text", "text": "Hi. "},
        {"type": "input.text", "text": "Good day"},
        {"type": "input.done"},
        {"type": "session.close"},
    )


PATHS: Mapping[str, Messages] = {"/v1/audio/speech/stream": speech}


def frame(code: int, payload: bytes, last: bool = True, reserved: int = 0) -> bytes:
    """A frame as a client sends it; RFC 6455, section 5.2."""
    size = len(payload)
    length = (
        bytes([0x80 | size])
        if size < 126
        else struct.pack(">BH", 0x80 | 126, size)
        if size < 1 << 16
        else struct.pack(">BQ", 0x80 | 127, size)
    )
    mask = (MASK * (size // 4 + 1))[:size]
    masked = int.from_bytes(payload, "big") ^ int.from_bytes(mask, "big")
    head = bytes([(0x80 if last else 0) | reserved << 4 | code]) + length + MASK
    return head + masked.to_bytes(size, "big")


class SessionMaker:
    """Makes sessions for a model that speaks, with its name."""

    def __init__(self, speaker: str) -> None:
        self.speaker = speaker

    def make(self, random: Random) -> Request:
        """The bytes of a session: the request that opens it, and all its frames."""
        path = random.choice(sorted(PATHS))
        key = base64.b64encode(random.randbytes(16)).decode()
        head = (
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\n"
            f"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n"
        ).encode()
        if random.random() < 0.05:
            head = damaged(head, head, random)
        frames = b"".join(self._frames(PATHS[path](self.speaker), random))
        if random.random() < 0.2:
            frames = damaged(frames, frames[:200], random)
        return Request(path, "websocket", head + frames, framed=False)

    def _frames(self, messages: tuple[Mapping[str, Any], ...], random: Random) -> Iterator[bytes]:
        if random.random() < 0.7:  # else nothing begins
            yield frame(TEXT, json.dumps(messages[0]).encode())
        for _ in range(random.choice((1, 2, 4, 8))):
            yield from self._message(dict(random.choice(messages)), random)

    def _message(self, message: dict[str, Any], random: Random) -> Iterator[bytes]:
        if random.random() < 0.4:
            name = random.choice((*message, "type", "model", "seed", "voice", "text"))
            message[name] = random.choice((*NUMBERS, *VALUES, *WORDS))
        if random.random() < 0.2:
            message = restated(message, random)
        content = json.dumps(message).encode("utf-8", "surrogatepass")
        kind = random.random()
        if kind < 0.75:
            yield frame(TEXT, content)
        elif kind < 0.8:
            half = len(content) // 2
            yield frame(TEXT, content[:half], last=False)
            yield frame(PING, b"between")
            yield frame(0, content[half:])
        elif kind < 0.9:
            yield frame(random.choice((TEXT, BINARY)), damaged(content, content, random))
        else:
            yield odd_frame(content, random)


def odd_frame(content: bytes, random: Random) -> bytes:
    """A frame that is no message, or wrong in itself."""
    return random.choice(
        (
            lambda: frame(BINARY, content),
            lambda: frame(CLOSE, random.choice((b"", b"\x03", b"\x03\xe8bye", bytes(2)))),
            lambda: frame(PING, bytes(200)),
            lambda: frame(TEXT, content, reserved=4),
            lambda: frame(7, content),
            lambda: frame(TEXT, bytes(20_000_000)),
            lambda: struct.pack(">BBQ", 0x81, 0xFF, 2**63 - 1) + MASK,
            lambda: bytes([0x81, len(content) & 0x7D]) + content,  # without a mask
        )
    )()


def messages_of(received: bytes) -> Iterator[bytes]:
    """The text messages in the frames of a server, as far as they are whole."""
    at = 0
    while len(received) >= at + 2:
        code, size = received[at] & 15, received[at + 1] & 127
        at += 2
        if size > 125:
            width = 2 if size == 126 else 8
            size = int.from_bytes(received[at : at + width], "big")
            at += width
        if code == TEXT and len(received) >= at + size:
            yield received[at : at + size]
        at += size
