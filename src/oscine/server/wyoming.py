"""Wyoming, the protocol of Home Assistant's speech engines, over TCP: both directions, streamed.

An event is a line of JSON, then data and a payload of the lengths that it states. A client asks
with `describe`, has speech transcribed by `transcribe`, `audio-start`, chunks and `audio-stop`, and
has a text spoken by `synthesize`, or in parts from `synthesize-start` to `synthesize-stop`. The
protocol has neither keys nor encryption. Source: the package wyoming 1.10.2 (event.py, asr.py,
tts.py, info.py).
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

import oscine
from oscine.family import Task
from oscine.server import speech
from oscine.server.app import Server
from oscine.server.catalog import ServedModel
from oscine.server.errors import ApiError, ClientGoneError, invalid, to_api_error
from oscine.server.fields import Fields
from oscine.server.gate import END, Job
from oscine.server.speech_stream import TextParts
from oscine.server.transcriptions import text_deltas
from oscine.text.languages import LANGUAGES
from oscine.types import Transcript

log = logging.getLogger(__name__)

MAX_LINE_BYTES, MAX_PART_BYTES = 64 << 10, 1 << 20  # of an event; data and payload each
MAX_QUEUED = 32  # events that are received before they are needed
IDLE_S = 300.0  # without an event, after which a connection is closed
CONNECTIONS_PER_REQUEST = 2  # open connections for each request that may be at work
MAX_RATE, MAX_CHANNELS, SAMPLE_BYTES = 192_000, 8, 2
MAX_WORDS = 1000  # of the names and terms that bias a transcription

ATTRIBUTION = {"name": "oscine", "url": ""}
SPEAK: Task = "speak"
TRANSCRIBE: Task = "transcribe"
Reader: TypeAlias = asyncio.StreamReader
Writer: TypeAlias = asyncio.StreamWriter


@dataclass(frozen=True, slots=True)
class Event:
    """An event of the protocol."""

    type: str
    data: Mapping[str, Any] = field(default_factory=dict)
    payload: bytes = b""


async def read_event(reader: Reader) -> Event | None:
    """The next event; None at the end of the connection. Raises ApiError for what is none."""
    try:
        line = await reader.readuntil(b"\n")
        head = _json_object(line)
        data = head.get("data") or {}
        if size := _length(head, "data_length"):
            data = {**data, **_json_object(await reader.readexactly(size))}
        payload = await reader.readexactly(_length(head, "payload_length"))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    except asyncio.LimitOverrunError:
        raise invalid("line", f"an event's line may have {MAX_LINE_BYTES} bytes") from None
    if not isinstance(head.get("type"), str) or not isinstance(data, dict):
        raise invalid("type", "an event is an object with a type and data")
    return Event(head["type"], data, payload)


def _json_object(text: bytes) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise invalid("line", "an event must be a JSON object")
    return value


def _length(head: Mapping[str, Any], name: str) -> int:
    size = head.get(name) or 0
    if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= MAX_PART_BYTES:
        raise invalid(name, f"{name} must be a number up to {MAX_PART_BYTES}")
    return size


def event_bytes(event: Event) -> bytes:
    """An event as it is sent."""
    head: dict[str, Any] = {"type": event.type}
    data = json.dumps(event.data, ensure_ascii=False).encode("utf-8", "replace")
    if event.data:
        head["data_length"] = len(data)
    if event.payload:
        head["payload_length"] = len(event.payload)
    line = json.dumps(head).encode() + b"\n"
    return line + (data if event.data else b"") + event.payload


class WyomingServer:
    """The connections of Wyoming beside the HTTP server, whose models and gate they share."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._max_connections = CONNECTIONS_PER_REQUEST * server.options.max_requests
        self._listener: asyncio.Server | None = None
        self._connections: set[asyncio.Task[Any]] = set()

    async def start(self, listening: Any) -> None:
        """Accept connections on a socket that listens."""
        self._listener = await asyncio.start_server(
            self._serve, sock=listening, limit=MAX_LINE_BYTES
        )

    def stop_accepting(self) -> None:
        """Accept no more connections; those that are open go on."""
        if self._listener is not None:
            self._listener.close()

    def close(self) -> None:
        """Close all connections."""
        self.stop_accepting()
        for task in list(self._connections):
            task.cancel()

    async def _serve(self, reader: Reader, writer: Writer) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._connections) >= self._max_connections:
            writer.close()
            return
        self._connections.add(task)
        try:
            await WyomingConnection(self._server, reader, writer).run()
        except asyncio.CancelledError:
            pass  # the server closes
        finally:
            self._connections.discard(task)
            writer.close()


class WyomingConnection:
    """One connection: requests, one after another, each of one or several events."""

    def __init__(self, server: Server, reader: Reader, writer: Writer) -> None:
        self._server, self._reader, self._writer = server, reader, writer
        self._events: asyncio.Queue[Event | ApiError | None] = asyncio.Queue(MAX_QUEUED)
        self._wanted: Mapping[str, Any] = {}  # of `transcribe`
        self._recording: Recording | None = None
        self._parts: TextParts | None = None
        self._job: Job | None = None
        self._sender: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Serve the connection until either side closes it; an error closes it too."""
        receiving = asyncio.create_task(self._receive())
        try:
            while (event := await self._next()) is not None:
                await self._handle(event)
        except (ClientGoneError, ConnectionError, TimeoutError):
            pass
        except Exception as error:
            answer = to_api_error(error)
            if answer.code == "internal_error":
                log.error("a request over Wyoming failed", exc_info=error)
            with suppress(ConnectionError):
                await self._send("error", text=answer.message, code=answer.code)
        finally:
            receiving.cancel()
            self._end_work()

    def _end_work(self) -> None:
        if self._job is not None:
            self._job.close()
        if self._sender is not None:
            self._sender.cancel()
        if self._recording is not None:
            self._recording.release()

    async def _receive(self) -> None:
        """Queue the client's events; the end of the connection stops the work at once."""
        event: Event | ApiError | None
        while True:
            try:
                event = await read_event(self._reader)
            except ApiError as error:
                event = error
            if not isinstance(event, Event) and self._job is not None:
                self._job.stop("client")
            await self._events.put(event)
            if not isinstance(event, Event):
                return

    async def _next(self) -> Event | None:
        event = await asyncio.wait_for(self._events.get(), IDLE_S)
        if isinstance(event, ApiError):
            raise event
        return event

    async def _send(self, kind: str, payload: bytes = b"", **data: Any) -> None:
        self._writer.write(event_bytes(Event(kind, data, payload)))
        await self._writer.drain()

    async def _handle(self, event: Event) -> None:
        """Carry out an event; one of an unknown type is ignored. Raises ApiError."""
        if event.type == "describe":
            await self._send("info", **describe(self._server))
        elif event.type == "ping":
            await self._send("pong", text=str(event.data.get("text", ""))[:1000])
        elif event.type in ("transcribe", "audio-start", "audio-chunk", "audio-stop"):
            await self._handle_recording(event)
        else:
            await self._handle_speech(event)

    async def _handle_recording(self, event: Event) -> None:
        if event.type == "transcribe":
            self._wanted = event.data
        elif event.type == "audio-start":
            self._begin_recording(event.data)
        elif self._recording is None:
            return
        elif event.type == "audio-chunk":
            self._recording.add(event.payload)
        else:
            await self._transcribe()

    async def _handle_speech(self, event: Event) -> None:
        if event.type == "synthesize-start":
            await self._begin_speech(event.data)
        elif event.type == "synthesize" and self._parts is None:  # in a stream it is a copy
            await self._begin_speech(event.data)
            self._add_text(event.data)
            await self._finish_speech()
        elif self._parts is None:
            return
        elif event.type == "synthesize-chunk":
            self._add_text(event.data)
        elif event.type == "synthesize-stop":
            await self._finish_speech()
            await self._send("synthesize-stopped")

    # -- speech to text -----------------------------------------------------------------------

    def _begin_recording(self, data: Mapping[str, Any]) -> None:
        """Begin a recording, and load its model meanwhile."""
        if self._recording is not None:
            self._recording.release()
        name = self._wanted.get("name") or first_model(self._server, TRANSCRIBE)
        limit = self._server.options.max_audio_seconds
        loading = asyncio.ensure_future(self._server.use(str(name), TRANSCRIBE))
        self._recording = Recording(data, limit, loading)

    async def _transcribe(self) -> None:
        """Transcribe the recording that has ended, and send its text as it is found."""
        recording, wanted = self._recording, self._wanted
        assert recording is not None
        served = await recording.model()
        self._recording, self._wanted = None, {}
        work = transcribe(served.model, recording, wanted)
        self._job = job = self._server.start(served, work, None)
        text = ""
        try:
            while (item := await job.next()) is not END:
                if not text:
                    await self._send("transcript-start")
                text += item
                await self._send("transcript-chunk", text=item)
            self._server.metrics.audio_seconds += job.result.duration
        finally:
            job.close()
            self._job = None
        language = {"language": job.result.language} if job.result.language else {}
        if not text:
            await self._send("transcript-start")
        await self._send("transcript", text=text, **language)
        await self._send("transcript-stop")

    # -- text to speech -----------------------------------------------------------------------

    async def _begin_speech(self, data: Mapping[str, Any]) -> None:
        """Begin an utterance, whose text comes in parts. Raises ApiError."""
        if self._parts is not None:
            raise invalid("type", "synthesize-start does not go before synthesize-stop")
        if data.get("text_format") not in (None, "text"):
            raise invalid("text_format", "text_format must be text; SSML is not supported")
        request, parts = speech_request(self._server, data.get("voice")), TextParts()
        parts.job = self._job = await self._server.start_speech(request, None, parts)
        self._parts = parts
        self._sender = asyncio.create_task(self._send_audio(parts, self._job))

    def _add_text(self, data: Mapping[str, Any]) -> None:
        text = data.get("text")
        if not isinstance(text, str):
            raise invalid("text", "text must be text")
        assert self._parts is not None
        self._parts.put(text)

    async def _finish_speech(self) -> None:
        """End the text, and wait until its speech is sent. Raises ApiError."""
        assert self._parts is not None and self._sender is not None
        self._parts.end()
        try:
            await self._sender
        finally:
            self._parts = self._job = self._sender = None

    async def _send_audio(self, parts: TextParts, job: Job) -> None:
        """Send the speech of an utterance as it is made."""
        begun = False
        form: dict[str, Any] = {"width": SAMPLE_BYTES, "channels": 1}
        try:
            while (item := await job.next()) is not END:
                form["rate"] = parts.rate
                if not begun:
                    begun = True
                    await self._send("audio-start", **form)
                for at in range(0, len(item), MAX_PART_BYTES):
                    await self._send("audio-chunk", item[at : at + MAX_PART_BYTES], **form)
            self._server.metrics.speech_seconds += job.result.duration
            await self._send("audio-stop")
        finally:
            job.close()


class Recording:
    """The samples of a recording as they come, and its model, which is loaded meanwhile.

    Args:
        data: Of `audio-start`: rate, width and channels.
        max_seconds: More raise ApiError.
        loading: The model once it is loaded; `release` ends its use.
    """

    def __init__(
        self, data: Mapping[str, Any], max_seconds: float, loading: asyncio.Future[ServedModel]
    ) -> None:
        self._loading: asyncio.Future[ServedModel] | None = loading
        self._data = bytearray()
        try:
            self.rate = _integer(data, "rate", MAX_RATE)
            self._channels = _integer(data, "channels", MAX_CHANNELS)
            if data.get("width") != SAMPLE_BYTES:
                raise invalid("width", "width must be 2: samples of 16 bits")
        except ApiError:
            self.release()
            raise
        self._max_bytes = int(max_seconds * self.rate) * self._channels * SAMPLE_BYTES
        self._max_seconds = max_seconds

    def add(self, payload: bytes) -> None:
        """Add samples. Raises ApiError for a recording that is too long."""
        if len(self._data) + len(payload) > self._max_bytes:
            problem = f"a recording may have {self._max_seconds:g} s"
            raise invalid("audio", problem, "audio_too_long")
        self._data += payload

    async def model(self) -> ServedModel:
        """The model, whose use passes to the caller. Raises ApiError."""
        assert self._loading is not None
        served = await asyncio.shield(self._loading)
        self._loading = None
        return served

    def release(self) -> None:
        """End the use of the model, also where it is being loaded."""
        if self._loading is not None:
            self._loading.add_done_callback(_release)
            self._loading = None

    def samples(self) -> NDArray[np.float32]:
        """The samples [count], the mean of the channels; half a frame at the end is left out."""
        frame = self._channels * SAMPLE_BYTES
        whole = np.frombuffer(self._data, "<i2", len(self._data) // frame * self._channels)
        mixed: NDArray[np.float32] = whole.reshape(-1, self._channels).mean(1, dtype=np.float32)
        return mixed / np.float32(32768)


def _integer(data: Mapping[str, Any], name: str, most: int) -> int:
    value = data.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise invalid(name, f"{name} must be a whole number from 1 to {most}")
    return value


def _release(loading: asyncio.Future[ServedModel]) -> None:
    if not loading.cancelled() and loading.exception() is None:
        loading.result().release()


def transcribe(
    model: Any, recording: Recording, wanted: Mapping[str, Any]
) -> Callable[[Job], Transcript]:
    """The work of a transcription: it puts each piece of the text, and returns the transcript."""
    options: dict[str, Any] = {}
    language = str(wanted.get("language") or "").replace("_", "-").partition("-")[0].lower()
    if language in getattr(model, "languages", ()):
        options["language"] = language
    words = [*_texts(wanted, "transcript_names"), *_texts(wanted, "transcript_terms")]
    if words:
        options["hotwords"] = ", ".join(words[:MAX_WORDS])

    def work(job: Job) -> Transcript:
        samples = recording.samples()
        if not len(samples):
            return Transcript("", "", (), 0.0, model.name, model.device)
        running = model.stream((samples, recording.rate), cancel=job.should_stop, **options)
        for delta in text_deltas(segment.text for segment in running):
            job.put(delta)
        transcript: Transcript = running.transcript()
        return transcript

    return work


def _texts(data: Mapping[str, Any], name: str) -> Iterator[str]:
    given = data.get(name) or []
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        raise invalid(name, f"{name} must be a list of text")
    return (each.strip() for each in given if each.strip())


def speech_request(server: Server, voice: Any) -> speech.SpeechRequest:
    """The request for speech with a voice of `describe`, or of a language. Raises ApiError."""
    wanted = voice if isinstance(voice, dict) else {}
    name, language = wanted.get("name"), wanted.get("language")
    model = next(
        (row["model"] for row in server.voices.listing() if row["id"] == name and "model" in row),
        first_model(server, SPEAK),
    )
    values = {"model": model, "input": "-", "response_format": "pcm"}
    if name is not None:
        values["voice"] = name
    spoken = LANGUAGES.get(str(language or "").replace("_", "-").partition("-")[0].lower())
    loaded = server.catalog.models[model].model
    if spoken in getattr(loaded, "languages", ()):
        values["language"] = spoken
    return speech.read_request(Fields(values))


def first_model(server: Server, task: Task) -> str:
    """The name of the first model of a task. Raises ApiError if there is none."""
    for served in server.catalog.models.values():
        if served.task in (task, None):
            return served.id
    raise ApiError(404, f"no model is served to {task}", "model_not_found")


# -- describe ---------------------------------------------------------------------------------


def describe(server: Server) -> dict[str, Any]:
    """The data of `info`: the models and voices, without loading any."""
    models = server.catalog.models.values()
    asr = [_asr_model(served) for served in models if served.task in (TRANSCRIBE, None)]
    voices = [voice for served in models if served.task == SPEAK for voice in _voices(served)]
    own = _artifact("oscine", "Speech on any GPU")
    info: dict[str, Any] = {
        name: [] for name in ("asr", "tts", "handle", "intent", "wake", "mic", "snd")
    }
    if asr:
        info["asr"] = [{**own, "models": asr, "supports_transcript_streaming": True}]
    if voices:
        info["tts"] = [{**own, "voices": voices, "supports_synthesize_streaming": True}]
    return info


def _asr_model(served: ServedModel) -> dict[str, Any]:
    languages = getattr(served.model, "languages", None)
    return {**_artifact(served.id), "languages": list(languages or LANGUAGES)}


def _voices(served: ServedModel) -> list[dict[str, Any]]:
    """The voices of a model; before it is loaded, its own choice of one."""
    codes = {name: code for code, name in LANGUAGES.items()}
    known = [codes[each] for each in getattr(served.model, "languages", ()) if each in codes]
    names = () if served.model is None else speech.own_voices(served.model)
    languages = known or ["en"]
    return [
        {**_artifact(name, f"{served.id}: {name}"), "languages": languages}
        for name in (*names, speech.DEFAULT)
    ]


def _artifact(name: str, description: str | None = None) -> dict[str, Any]:
    return {
        "name": name,
        "attribution": ATTRIBUTION,
        "installed": True,
        "description": description or name,
        "version": oscine.__version__,
    }
