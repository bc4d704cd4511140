"""/v1/audio/speech/stream: a WebSocket that takes a text in parts and gives its speech.

The messages are those of vLLM-Omni (vllm_omni/entrypoints/openai/serving_speech_stream.py). The
client sends session.config, then for each utterance input.text with parts of the text, and
input.done; session.close ends the session. The server sends audio.start, the bytes of the file as
binary messages, audio.done and session.done. Each sentence is spoken once it is complete, so that
speech begins before the text has ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias

from starlette.websockets import WebSocket, WebSocketDisconnect

from oscine.errors import Cancelled
from oscine.server import speech
from oscine.server.errors import ApiError, ClientGoneError, invalid, to_api_error
from oscine.server.fields import Fields, decode_json
from oscine.server.gate import END, POLL_S, Job
from oscine.server.metrics import Metrics

log = logging.getLogger(__name__)

CONFIG_S, IDLE_S = 10.0, 60.0  # without a message, before session.config and after it
MAX_QUEUED = 32  # messages that are received before they are needed
MAX_QUEUED_CHARACTERS = 4 << 20  # of these messages together, but for a single one
MAX_TEXT_BYTES = 128 << 10  # of a message other than session.config
DEFAULT_MODEL, DEFAULT_FORMAT = "tts-1", "wav"
#: Fields of /v1/audio/speech that a session does not have.
NO_SESSION_FIELDS = ("input", "plain", "stream", "stream_format")


class TextParts(Iterator[str]):
    """The text of an utterance as it comes; the thread that speaks it iterates over its parts."""

    def __init__(self) -> None:
        self._parts: SimpleQueue[str | None] = SimpleQueue()
        self.characters = 0
        self.rate = 0  # of the speech, in hertz, once it has begun
        self.job: Job | None = None

    def put(self, part: str) -> None:
        """Add a part. Raises ApiError for a text that is too long."""
        self.characters += len(part)
        if self.characters > speech.MAX_INPUT_CHARACTERS:
            limit = f"an utterance may have {speech.MAX_INPUT_CHARACTERS} characters"
            raise invalid("text", limit, "string_above_max_length")
        self._parts.put(part)

    def end(self) -> None:
        """No part follows."""
        self._parts.put(None)

    def __next__(self) -> str:
        while True:
            try:
                part = self._parts.get(timeout=POLL_S)
            except Empty:
                if self.job is not None and self.job.should_stop():
                    raise Cancelled("the utterance has ended") from None
                continue
            if part is None:
                raise StopIteration
            return part


StartSpeech: TypeAlias = Callable[[speech.SpeechRequest, TextParts], Awaitable[Job]]


class SpeechSession:
    """One connection: its configuration, and its utterances, one after another.

    `start` starts the speech of a request whose text comes in parts. It raises ApiError.
    """

    def __init__(self, socket: WebSocket, start: StartSpeech, metrics: Metrics) -> None:
        self._socket, self._start, self._metrics = socket, start, metrics
        self._messages: asyncio.Queue[str | None] = asyncio.Queue(MAX_QUEUED)
        self._queued, self._space = 0, asyncio.Event()  # characters, and whether some were taken
        self._request: speech.SpeechRequest | None = None
        self._index = 0  # of the utterance
        self._parts: TextParts | None = None  # of the utterance under way
        self._job: Job | None = None
        self._sender: asyncio.Task[int] | None = None

    async def run(self) -> None:
        """Serve the connection until either side closes it."""
        await self._socket.accept()
        reader = asyncio.create_task(self._read())
        try:
            while await self._serve_message():
                pass
        except (ClientGoneError, WebSocketDisconnect):
            pass
        finally:
            reader.cancel()
            if self._job is not None:
                self._job.close()
            if self._sender is not None:
                self._sender.cancel()
            with suppress(RuntimeError, WebSocketDisconnect):  # it is closed already
                await self._socket.close()

    async def _read(self) -> None:
        """Queue the client's messages; a disconnect stops the utterance at once."""
        try:
            while True:
                text = await self._socket.receive_text()
                while self._queued and self._queued + len(text) > MAX_QUEUED_CHARACTERS:
                    self._space.clear()
                    await self._space.wait()
                self._queued += len(text)
                await self._messages.put(text)
        except (WebSocketDisconnect, KeyError, RuntimeError):  # KeyError: a binary message
            if self._job is not None:
                self._job.stop("client")
            await self._messages.put(None)

    async def _serve_message(self) -> bool:
        """Handle the next message; False where the session ends."""
        try:
            text = await asyncio.wait_for(
                self._messages.get(), CONFIG_S if self._request is None else IDLE_S
            )
        except TimeoutError:
            await self._send_error(ApiError(408, "no message was received", "timeout"))
            return False
        if text is None:
            return False
        self._queued -= len(text)
        self._space.set()
        try:
            return await self._handle(text)
        except ApiError as error:
            await self._send_error(error)
            return self._request is not None

    async def _handle(self, text: str) -> bool:
        """Carry out a message; False for the last one. Raises ApiError."""
        message = decode_json(text)
        if not isinstance(message, dict):
            raise ApiError(400, "a message must be a JSON object", "invalid_json")
        kind = message.get("type")
        if kind == "session.config":
            if self._parts is not None:
                raise invalid(
                    "type", "session.config does not go between input.text and input.done"
                )
            self._request = read_config(message)
        elif self._request is None:
            raise invalid("type", "session.config must be the first message")
        elif len(text.encode("utf-8", "replace")) > MAX_TEXT_BYTES:
            raise ApiError(413, f"a message may have {MAX_TEXT_BYTES} bytes", "file_too_large")
        elif kind == "input.text":
            await self._add_text(message.get("text"))
        elif kind == "input.done":
            await self._finish()
        elif kind == "session.close":
            return False
        else:
            known = "session.config, input.text, input.done, session.close"
            raise invalid("type", f"type must be one of {known}")
        return True

    async def _add_text(self, text: Any) -> None:
        """Give a part of the text to the utterance, which the first one begins."""
        if not isinstance(text, str):
            raise invalid("text", "text must be text")
        if self._parts is None:
            await self._begin()
        assert self._parts is not None
        self._parts.put(text)

    async def _begin(self) -> None:
        """Begin an utterance. Raises ApiError, also where the server is full."""
        assert self._request is not None
        request, parts = self._request, TextParts()
        parts.job = self._job = await self._start(request, parts)
        self._parts = parts
        self._sender = asyncio.create_task(self._send_audio(parts, self._job))

    async def _finish(self) -> None:
        """End the text of the utterance, and wait until it is spoken."""
        sentences = 0
        if self._parts is not None and self._sender is not None:
            self._parts.end()
            sentences = await self._sender
        self._parts = self._job = self._sender = None
        done = {"type": "session.done", "utterance_index": self._index}
        await self._socket.send_json({**done, "total_sentences": sentences})
        self._index += 1

    async def _send_audio(self, parts: TextParts, job: Job) -> int:
        """Send the audio of an utterance; returns 1, or 0 where it has failed."""
        assert self._request is not None
        place = {"utterance_index": self._index, "sentence_index": 0}
        begun = False
        try:
            while (item := await job.next()) is not END:
                if not begun:
                    begun = True
                    form = {"format": self._request.response_format, "channels": 1}
                    start = {"type": "audio.start", **place, **form, "sample_rate": parts.rate}
                    await self._socket.send_json(start)
                await self._socket.send_bytes(item)
            self._metrics.speech_seconds += job.result.duration
            ended = {"finish_reason": job.result.finish_reason, "seed": job.result.seed}
            await self._socket.send_json({"type": "audio.done", **place, **ended})
            return 1
        except (ClientGoneError, WebSocketDisconnect):
            return 0
        except Exception as error:
            answer = to_api_error(error)
            if answer.code == "internal_error":
                log.error("an utterance failed", exc_info=error)
            await self._send_error(answer)
            return 0
        finally:
            job.close()

    async def _send_error(self, error: ApiError) -> None:
        """Send an error; the session goes on."""
        body: Mapping[str, Any] = error.body["error"]
        known = {"code": body["code"], "param": body["param"]}
        with suppress(RuntimeError, WebSocketDisconnect):
            await self._socket.send_json(
                {"type": "error", "message": error.message, **known, "utterance_index": self._index}
            )


def read_config(message: Mapping[str, Any]) -> speech.SpeechRequest:
    """The request of a session.config: the fields of /v1/audio/speech without the text.

    `stream_audio` false sends each utterance as one whole file. Raises ApiError.
    """
    for name in NO_SESSION_FIELDS:
        if name in message:
            raise invalid(name, f"{name} is not a field of session.config", "unknown_parameter")
    values = {name: value for name, value in message.items() if name != "type"}
    stream = Fields(values).flag("stream_audio", True)
    values.pop("stream_audio", None)
    defaults = {"model": DEFAULT_MODEL, "response_format": DEFAULT_FORMAT}
    return speech.read_request(Fields({**defaults, **values, "input": "-", "stream": stream}))
