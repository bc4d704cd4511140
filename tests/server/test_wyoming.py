"""Wyoming with the client of its own package, and with bytes that no client sends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from wyoming.asr import Transcribe, Transcript, TranscriptChunk
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.client import AsyncTcpClient
from wyoming.error import Error
from wyoming.event import Event
from wyoming.info import Describe, Info
from wyoming.ping import Ping, Pong
from wyoming.tts import (
    Synthesize,
    SynthesizeChunk,
    SynthesizeStart,
    SynthesizeStop,
    SynthesizeVoice,
)

from oscine.errors import UsageError
from oscine.options.serve import ServeOptions
from oscine.server import wyoming
from oscine.server.app import Server
from oscine.server.catalog import Catalog, ServedModel
from oscine.server.front import check_exposure
from oscine.server.run import listen

from .running import Shelf, is_speaker

SECONDS = 60.0
SILENCE = (AudioStart(16_000, 2, 1).event(), AudioStop().event())
FEW = {"temperature": 0.0, "sample_len": 8, "vad_filter": False}


class Few:
    """A model whose transcriptions are short, as random weights may repeat for long."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def stream(self, source: Any, **options: Any) -> Any:
        short = {"max_seconds": 0.4, "seed": 3} if hasattr(self._model, "speak") else FEW
        return self._model.stream(source, **options, **short)


def with_client(
    models: dict[str, Any], work: Callable[[AsyncTcpClient], Awaitable[None]], **options: Any
) -> None:
    """Serve models, and use them with one connection."""
    asyncio.run(serving(models, work, **options))


async def serving(models: dict[str, Any], work: Any, **options: Any) -> None:
    catalog = Catalog((), (), Shelf(models))
    for name, model in models.items():
        task: Any = None if model is None else "speak" if is_speaker(model) else "transcribe"
        catalog.models[name] = ServedModel(name, name, model, task)
    catalog.ready = True
    server = Server(ServeOptions.of(**options), catalog)
    own = wyoming.WyomingServer(server)
    with listen("127.0.0.1", 0) as listener:
        await own.start(listener)
        async with AsyncTcpClient(*listener.getsockname()) as client:
            await asyncio.wait_for(work(client), SECONDS)
        own.close()
        for _ in range(100):  # threads of work that was stopped
            await asyncio.sleep(0.05 if server.gate.jobs else 0)
        assert not server.gate.jobs


async def received(client: AsyncTcpClient, last: str) -> list[Event]:
    """The events up to one of a type."""
    events: list[Event] = []
    while not events or events[-1].type != last:
        event = await client.read_event()
        assert event is not None, [each.type for each in events]
        events.append(event)
    return events


async def say(client: AsyncTcpClient, samples: Any, rate: int = 16_000, **wanted: Any) -> None:
    """Send a recording as Home Assistant does."""
    await client.write_event(Transcribe(**wanted).event())
    form = {"rate": rate, "width": 2, "channels": 1}
    await client.write_event(AudioStart(**form).event())
    data = (np.asarray(samples) * 32767).astype("<i2").tobytes()
    for at in range(0, len(data), 2048):
        await client.write_event(AudioChunk(audio=data[at : at + 2048], **form).event())
    await client.write_event(AudioStop().event())


def tone(seconds: float, rate: int = 16_000) -> Any:
    time = np.arange(round(rate * seconds)) / rate
    return 0.3 * np.sin(2 * np.pi * 300 * time * (1 + time))


def test_a_recording_is_transcribed_as_the_library_does(whisper: Any) -> None:
    samples = tone(2)
    stored = (samples * 32767).astype("<i2").astype(np.float32) / 32768
    expected = whisper.transcribe((stored, 16_000), language="de", **FEW)

    async def work(client: AsyncTcpClient) -> None:
        for _ in range(2):  # a connection takes several
            await say(client, samples, language="de-DE")
            events = await received(client, "transcript-stop")
            chunks = [
                TranscriptChunk.from_event(e).text for e in events if e.type == "transcript-chunk"
            ]
            (found,) = (Transcript.from_event(e) for e in events if e.type == "transcript")
            assert found.text == expected.text.strip() == "".join(chunks)
            assert events[0].type == "transcript-start" and found.language == "de"

    with_client({"tiny": Few(whisper)}, work)


def test_empty_speech_is_an_empty_text(whisper: Any) -> None:
    async def work(client: AsyncTcpClient) -> None:
        await say(client, [])
        events = await received(client, "transcript-stop")
        assert [Transcript.from_event(e).text for e in events if e.type == "transcript"] == [""]

    with_client({"tiny": Few(whisper)}, work)


def audio_of(events: list[Event]) -> bytes:
    return b"".join(AudioChunk.from_event(e).audio for e in events if e.type == "audio-chunk")


def test_a_text_is_spoken_whole_and_in_parts(speakers: dict[str, Any]) -> None:
    model = Few(speakers["custom_voice"])
    expected = model.stream("Hello.", voice="ryan").speech()
    samples = np.clip(expected.samples, -1, 1)

    async def work(client: AsyncTcpClient) -> None:
        voice = SynthesizeVoice(name="ryan")
        await client.write_event(Synthesize("Hello.", voice=voice).event())
        whole = await received(client, "audio-stop")
        assert AudioStart.from_event(whole[0]).rate == expected.rate
        assert len(audio_of(whole)) == 2 * len(samples)
        await client.write_event(SynthesizeStart(voice=voice).event())
        await client.write_event(SynthesizeChunk("Hel").event())
        await client.write_event(Synthesize("Hello.", voice=voice).event())  # the copy
        await client.write_event(SynthesizeChunk("lo.").event())
        await client.write_event(SynthesizeStop().event())
        parts = await received(client, "synthesize-stopped")
        assert audio_of(parts) == audio_of(whole)

    with_client({"voice": model}, work)


def test_describe_loads_nothing(whisper: Any, speakers: dict[str, Any]) -> None:
    async def work(client: AsyncTcpClient) -> None:
        await client.write_event(Describe().event())
        (event,) = await received(client, "info")
        info = Info.from_event(event)
        assert [model.name for program in info.asr for model in program.models] == ["tiny", "later"]
        assert info.asr[0].supports_transcript_streaming and "de" in info.asr[0].models[0].languages
        names = [voice.name for program in info.tts for voice in program.voices]
        assert "ryan" in names and "default" in names
        await client.write_event(Ping(text="there?").event())
        (event,) = await received(client, "pong")
        assert Pong.from_event(event).text == "there?"
        await client.write_event(Event("unknown"))  # is ignored
        await client.write_event(Ping().event())
        await received(client, "pong")

    with_client({"tiny": whisper, "voice": speakers["custom_voice"], "later": None}, work)


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([AudioStart(rate=0, width=2, channels=1).event()], "rate"),
        ([AudioStart(rate=16_000, width=4, channels=1).event()], "width"),
        ([AudioStart(rate=16_000, width=2, channels=99).event()], "channels"),
        ([Event("transcribe", {"name": "other"}), *SILENCE], "other"),
        ([Event("transcribe", {"transcript_terms": 5}), *SILENCE], "transcript_terms"),
        ([Event("synthesize", {"text": "Hi.", "voice": {"name": "../x"}})], "voice"),
        ([Event("synthesize", {"text": 5})], "text"),
        ([Event("synthesize", {"text": "Hi.", "text_format": "ssml"})], "SSML"),
        ([Event("synthesize-start"), Event("synthesize-start")], "synthesize-start"),
    ],
)  # fmt: skip
def test_a_wrong_event_is_an_error_and_ends_the_connection(
    whisper: Any, speakers: dict[str, Any], events: list[Event], message: str
) -> None:
    async def work(client: AsyncTcpClient) -> None:
        for event in events:
            await client.write_event(event)
        error = Error.from_event((await received(client, "error"))[-1])
        assert message in error.text and "\n" not in error.text
        assert await client.read_event() is None

    with_client({"tiny": Few(whisper), "voice": Few(speakers["custom_voice"])}, work)


def test_a_recording_over_wyoming_has_the_limit_of_seconds(whisper: Any) -> None:
    async def work(client: AsyncTcpClient) -> None:
        await say(client, tone(1.5))
        assert "1 s" in Error.from_event((await received(client, "error"))[-1]).text

    with_client({"tiny": Few(whisper)}, work, max_audio_seconds=1.0)


@pytest.mark.parametrize(
    "sent",
    [
        b"\n",
        b"nonsense\n",
        b"[" * 60_000 + b"\n",
        b"x" * 200_000,
        b'{"type": 5}\n',
        b'{"type": "ping", "data": 5}\n',
        b'{"type": "ping", "data_length": -1}\n',
        b'{"type": "ping", "payload_length": 99999999999}\n',
        b'{"type": "ping", "data_length": 2}\n[]',
        b'{"type": "audio-start", "data": {"rate": true}}\n',
    ],
)
def test_bytes_that_are_no_event_end_in_an_error(whisper: Any, sent: bytes) -> None:
    async def work(client: AsyncTcpClient) -> None:
        assert client._writer is not None
        client._writer.write(sent)
        await client._writer.drain()
        assert (await received(client, "error"))[-1].data["code"]
        assert await client.read_event() is None

    with_client({"tiny": whisper}, work)


def test_a_client_that_leaves_ends_its_work(whisper: Any) -> None:
    async def work(client: AsyncTcpClient) -> None:
        await say(client, tone(30))
        await client.disconnect()
        await asyncio.sleep(0.5)

    with_client({"tiny": whisper}, work)


def test_too_many_connections_are_closed(whisper: Any) -> None:
    async def work(client: AsyncTcpClient) -> None:
        await client.write_event(Ping().event())
        await received(client, "pong")
        assert client._writer is not None
        place = client._writer.get_extra_info("peername")
        others = [AsyncTcpClient(*place) for _ in range(3)]
        for other in others:
            await other.connect()
        answers = []
        for other in others:
            try:
                await other.write_event(Ping().event())
                answers.append(await other.read_event() is not None)
            except ConnectionError:
                answers.append(False)
            with suppress(ConnectionError):
                await other.disconnect()
        assert answers == [True, False, False]

    with_client({"tiny": whisper}, work, max_requests=1)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"wyoming": "127.0.0.1:10300"}, "tcp://"),
        ({"wyoming": "tcp://127.0.0.1"}, "tcp://"),
        ({"wyoming": "tcp://[::1"}, "tcp://"),
        ({"wyoming": "tcp://127.0.0.1:99999"}, "tcp://"),
        ({"wyoming": "tcp://0.0.0.0:10300"}, "no keys"),
        ({"wyoming": "tcp://0.0.0.0:10300", "api_key_file": "keys"}, "no keys"),
        ({"wyoming": "tcp://127.0.0.1:10300"}, None),
        ({"wyoming": "tcp://0.0.0.0:10300", "allow_unauthenticated": True}, None),
    ],
)
def test_wyoming_on_a_public_address_is_refused_unless_told(
    options: dict[str, Any], problem: str | None
) -> None:
    if problem is None:
        check_exposure(ServeOptions.of(**options))
        return
    with pytest.raises(UsageError, match=problem):
        check_exposure(ServeOptions.of(**options))


def test_an_event_is_what_the_package_reads() -> None:
    data = {"text": "ä" * 10, "n": 1}
    sent = wyoming.event_bytes(wyoming.Event("transcript", data, b"\0\1"))
    head, _, rest = sent.partition(b"\n")
    lengths = json.loads(head)
    size = lengths["data_length"]
    assert json.loads(rest[:size]) == data and rest[size:] == b"\0\1"
    assert lengths["payload_length"] == 2
