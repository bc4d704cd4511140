"""Texts that come in parts over a WebSocket, and their speech."""

from __future__ import annotations

import io
import json
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from oscine.server import speech_stream

from .running import Running, ScriptedSpeaker

Serve = Callable[..., Running]
CONFIG = {"type": "session.config", "model": "custom_voice", "response_format": "pcm",
          "max_frames": 40, "seed": 5, "guard": False}  # fmt: skip


@pytest.fixture(scope="module")
def running(speakers: dict[str, Any]) -> Iterator[Running]:
    server = Running(speakers)
    yield server
    server.close()


def open_session(running: Running, **headers: str) -> ClientConnection:
    url = f"ws://127.0.0.1:{running.port}/v1/audio/speech/stream"
    return connect(url, additional_headers=headers, max_size=None)


def tell(session: ClientConnection, kind: str, **fields: Any) -> None:
    session.send(json.dumps({"type": kind, **fields}))


def hear(session: ClientConnection) -> tuple[list[dict[str, Any]], bytes]:
    """The messages and the bytes up to session.done."""
    messages: list[dict[str, Any]] = []
    sound = b""
    while not messages or messages[-1]["type"] != "session.done":
        received = session.recv(60)
        if isinstance(received, bytes):
            sound += received
        else:
            messages.append(json.loads(received))
    return messages, sound


def samples_of(model: Any, parts: list[str]) -> Any:
    """The samples that the library gives for the same parts of a text."""
    options = {name: CONFIG[name] for name in ("max_frames", "seed", "guard")}
    voice = model.capabilities.default_voice
    pieces = [audio.samples for audio in model.stream(iter(parts), voice=voice, **options)]
    return np.rint(np.clip(np.concatenate(pieces), -1, 1) * np.float32(32767)).astype(np.int16)


def test_utterances_are_the_librarys_speech(running: Running, speakers: dict[str, Any]) -> None:
    """Two on one connection, whose configuration stays."""
    texts = [["Hello th", "ere. And ", "more."], ["Again."]]
    with open_session(running) as session:
        session.send(json.dumps(CONFIG))
        for index, parts in enumerate(texts):
            for part in parts:
                tell(session, "input.text", text=part)
            tell(session, "input.done")
            (start, done, last), sound = hear(session)
            assert start == {
                "type": "audio.start", "utterance_index": index, "sentence_index": 0,
                "format": "pcm", "channels": 1, "sample_rate": 24_000,
            }  # fmt: skip
            assert (done["type"], done["seed"]) == ("audio.done", 5)
            assert (last["utterance_index"], last["total_sentences"]) == (index, 1)
            expected = samples_of(speakers["custom_voice"], parts)
            assert np.array_equal(np.frombuffer(sound, np.int16), expected)
        tell(session, "session.close")
        with pytest.raises(ConnectionClosed):
            session.recv(60)


def test_speech_begins_before_the_text_ends(running: Running) -> None:
    with open_session(running) as session:
        session.send(json.dumps(CONFIG))
        tell(session, "input.text", text="One sentence. The next ")
        assert json.loads(session.recv(60))["type"] == "audio.start"
        assert isinstance(session.recv(60), bytes)
        tell(session, "input.text", text="one.")
        tell(session, "input.done")
        assert hear(session)[0][-1]["total_sentences"] == 1


def test_a_whole_file_a_moment(running: Running) -> None:
    with open_session(running) as session:
        session.send(json.dumps(CONFIG | {"stream_audio": False, "response_format": "wav"}))
        tell(session, "input.text", text="Hello.")
        tell(session, "input.done")
        _, sound = hear(session)
    assert io.BytesIO(sound).read(4) == b"RIFF" and sound[4:8] != b"\xff\xff\xff\xff"


@pytest.mark.parametrize(
    ("messages", "code"),
    [
        (["{"], "invalid_json"),
        (["[]"], "invalid_json"),
        ([{"type": "input.text", "text": "Hello."}], "invalid_value"),
        ([CONFIG | {"bean_size": 5}], "unknown_parameter"),
        ([CONFIG | {"input": "Hello."}], "unknown_parameter"),
        ([CONFIG | {"response_format": "m4a"}], "unsupported_value"),
        ([CONFIG, {"type": "input.text", "text": 7}], "invalid_value"),
        ([CONFIG, {"type": "input.other"}], "invalid_value"),
        ([CONFIG, {"type": "input.text", "text": "x" * 140_000}], "file_too_large"),
        ([CONFIG, {"type": "input.text", "text": "x" * 110_000}], "string_above_max_length"),
        ([CONFIG | {"model": "none"}, {"type": "input.text", "text": "a"}], "model_not_found"),
        ([CONFIG | {"voice": "/etc"}, {"type": "input.text", "text": "a"}], "voice_not_found"),
        ([CONFIG, {"type": "input.text", "text": ""}, CONFIG], "invalid_value"),
        ([CONFIG, {"type": "input.text", "text": "..."}, {"type": "input.done"}], "invalid_value"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_an_error(running: Running, messages: list[Any], code: str) -> None:
    """After session.config the session goes on."""
    with open_session(running) as session:
        for message in messages:
            session.send(message if isinstance(message, str) else json.dumps(message))
        error = json.loads(session.recv(60))
        assert (error["type"], error["code"]) == ("error", code) and error["message"]
        if messages[0] in (CONFIG, CONFIG | {"model": "none"}, CONFIG | {"voice": "/etc"}):
            tell(session, "input.done")
            assert json.loads(session.recv(60))["type"] in ("session.done", "audio.start", "error")
        else:
            with pytest.raises(ConnectionClosed):
                session.recv(60)
    running.until(lambda: not running.server.gate.jobs)


def test_done_without_text_says_nothing(running: Running) -> None:
    with open_session(running) as session:
        session.send(json.dumps(CONFIG))
        tell(session, "input.done")
        assert hear(session) == (
            [{"type": "session.done", "utterance_index": 0, "total_sentences": 0}], b"",
        )  # fmt: skip


@pytest.mark.parametrize("done", [False, True])
def test_a_session_that_is_left_ends_its_speech(serve: Serve, done: bool) -> None:
    model = ScriptedSpeaker()
    running = serve({"a": model})
    with open_session(running) as session:
        session.send(json.dumps({"type": "session.config", "response_format": "pcm"}))
        tell(session, "input.text", text="Hello.")
        if done:
            tell(session, "input.done")
        assert json.loads(session.recv(60))["type"] == "audio.start"
    assert model.cancelled.wait(30)
    running.until(lambda: not running.server.gate.jobs)
    running.until(lambda: not running.catalog.models["a"].users)


def test_messages_that_come_early_are_bounded(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They wait in the connection while an utterance is spoken, and none is lost."""
    sessions: list[Any] = []

    class Session(speech_stream.SpeechSession):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            sessions.append(self)

    monkeypatch.setattr("oscine.server.app.SpeechSession", Session)
    monkeypatch.setattr(speech_stream, "MAX_QUEUED_CHARACTERS", 1000)
    model = ScriptedSpeaker()
    running = serve({"a": model})
    with open_session(running) as session:
        session.send(json.dumps({"type": "session.config", "response_format": "pcm"}))
        for _ in range(2):
            for _ in range(8):
                tell(session, "input.text", text="x" * 400)
            tell(session, "input.done")
        (made,) = sessions
        running.until(lambda: made._messages.qsize() == 2)
        time.sleep(0.2)  # for more, which do not come
        assert made._messages.qsize() == 2
        model.release.set()
        for number in range(2):
            assert hear(session)[0][-1]["utterance_index"] == number


def test_a_silent_session_is_closed(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speech_stream, "CONFIG_S", 0.1)
    with open_session(serve({})) as session:
        assert json.loads(session.recv(60))["code"] == "timeout"
        with pytest.raises(ConnectionClosed):
            session.recv(60)


def test_a_full_server_says_so(serve: Serve) -> None:
    running = serve({"a": ScriptedSpeaker()}, max_requests=1)
    with open_session(running) as first, open_session(running) as second:
        for session in (first, second):
            tell(session, "session.config", response_format="pcm")
            tell(session, "input.text", text="Hello.")
            received = json.loads(session.recv(60))
        assert (received["type"], received["code"]) == ("error", "queue_full")


def test_a_websocket_passes_the_same_checks(serve: Serve) -> None:
    running = serve({}, ("sk-the-key",))
    with open_session(running, Authorization="Bearer sk-the-key") as session:
        session.send("{")
        assert json.loads(session.recv(60))["type"] == "error"
    open_one = serve({})
    for server, headers in [
        (running, {}), (running, {"Authorization": "Bearer wrong"}),
        (open_one, {"Origin": "https://evil.example"}),
    ]:  # fmt: skip
        with pytest.raises(InvalidStatus) as refused:
            open_session(server, **headers)
        assert refused.value.response.status_code == 403
    own = socket.create_connection(("127.0.0.1", open_one.port))
    with pytest.raises(InvalidStatus) as refused:
        connect("ws://evil.example/v1/audio/speech/stream", sock=own)
    assert refused.value.response.status_code == 403
