"""Speech and voices, as OpenAI's client asks for them."""

from __future__ import annotations

import base64
import io
import json
import os
import threading
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from openai import BadRequestError, NotFoundError, OpenAI

from oscine.audio.io import decode
from oscine.errors import OscineError
from oscine.server.speech import OPENAI_VOICES

from .running import Running, ScriptedSpeaker

OPTIONS = {"max_frames": 6, "seed": 5, "guard": False}


@pytest.fixture(scope="module")
def running(speakers: dict[str, Any]) -> Iterator[Running]:
    server = Running(speakers)
    yield server
    server.close()


@pytest.fixture(scope="module")
def client(running: Running) -> OpenAI:
    return running.client()


@pytest.fixture(scope="module")
def voice(speakers: dict[str, Any]) -> str:
    return str(speakers["custom_voice"].capabilities.default_voice)


@pytest.fixture(scope="module")
def expected(speakers: dict[str, Any], voice: str) -> Any:
    """The samples that the library gives for the same request, as 16-bit numbers."""
    speech = speakers["custom_voice"].speak("Hello there.", voice=voice, **OPTIONS)
    file = io.BytesIO()
    speech.save(file, "raw")
    return np.frombuffer(file.getvalue(), np.int16)


def post(running: Running, **fields: Any) -> httpx2.Response:
    body = {"model": "custom_voice", "input": "Hello there.", **OPTIONS, **fields}
    return httpx2.post(f"{running.url}/v1/audio/speech", json=body)


def test_pcm_is_the_librarys_speech(client: OpenAI, voice: str, expected: Any) -> None:
    answer = client.audio.speech.create(
        model="tts-1", voice=voice, input="Hello there.", response_format="pcm",
        extra_body=OPTIONS,
    )  # fmt: skip
    assert answer.response.headers["content-type"] == "audio/pcm"
    assert np.array_equal(np.frombuffer(answer.content, np.int16), expected)


@pytest.mark.parametrize("name", ["mp3", "opus", "aac", "flac", "wav"])
def test_every_format_decodes_to_the_speech(
    client: OpenAI, voice: str, expected: Any, name: Any
) -> None:
    with client.audio.speech.with_streaming_response.create(
        model="custom_voice", voice={"id": voice}, input="Hello there.", response_format=name,
        extra_body=OPTIONS,
    ) as answer:  # fmt: skip
        assert answer.headers["transfer-encoding"] == "chunked"
        contents = b"".join(answer.iter_bytes())
    samples = decode(contents, 24_000).samples
    assert abs(len(samples) - len(expected)) <= 0.15 * 24_000
    # Encoders delay what they encode: the best of all shifts.
    likeness = np.correlate(samples, expected.astype(np.float32), "full").max()
    norm = np.linalg.norm(samples) * np.linalg.norm(expected.astype(np.float32))
    assert likeness / norm > (0.99 if name in ("flac", "wav") else 0.5)


def test_a_streamed_wave_file_has_no_length_and_a_whole_one_has(
    running: Running, voice: str, expected: Any
) -> None:
    streamed = post(running, voice=voice, response_format="wav").content
    assert streamed[4:8] == b"\xff\xff\xff\xff"
    whole = post(running, voice=voice, response_format="wav", stream=False)
    assert int(whole.headers["content-length"]) == len(whole.content)
    assert (whole.headers["x-oscine-seed"], whole.headers["x-oscine-finish-reason"]) == (
        "5", "end",
    )  # fmt: skip
    with wave.open(io.BytesIO(whole.content)) as file:
        assert file.getnframes() == len(expected)
        assert np.array_equal(np.frombuffer(file.readframes(10**6), np.int16), expected)


def test_events_add_up_to_one_file(running: Running, voice: str, expected: Any) -> None:
    answer = post(running, voice=voice, response_format="pcm", stream_format="sse")
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = [json.loads(line.removeprefix("data: ")) for line in answer.text.split("\n\n") if line]
    *deltas, done = events
    assert {event["type"] for event in deltas} == {"speech.audio.delta"} and len(deltas) > 1
    contents = b"".join(base64.b64decode(event["audio"]) for event in deltas)
    assert np.array_equal(np.frombuffer(contents, np.int16), expected)
    assert done["type"] == "speech.audio.done" and done["seed"] == 5
    spoken = round(10 * len(expected) / 24_000)
    assert done["usage"] == {
        "input_tokens": 12,
        "output_tokens": spoken,
        "total_tokens": 12 + spoken,
    }


def test_the_file_says_that_it_is_synthetic_unless_told(running: Running, voice: str) -> None:
    marked = post(running, voice=voice, response_format="wav").content
    assert b'"synthetic": true' in marked
    assert b"synthetic" not in post(running, voice=voice, response_format="wav", mark=False).content


def test_openais_voices_and_the_default_one_speak(
    running: Running, speakers: dict[str, Any], voice: str, expected: Any
) -> None:
    for name in ("alloy", "default", ""):
        answer = post(running, voice=name, response_format="pcm")
        assert np.array_equal(np.frombuffer(answer.content, np.int16), expected), name
    for name in OPENAI_VOICES:
        assert post(running, voice=name, response_format="pcm", max_frames=2).status_code == 200
    listed = running.client().get("/audio/voices", cast_to=object)
    names = {row["id"] for row in listed["data"] if row.get("model") == "custom_voice"}  # type: ignore[index]
    assert names == {*speakers["custom_voice"].voices, *OPENAI_VOICES, "default"}


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"input": " "}, "input", "missing_required_parameter"),
    ({"input": "x" * 100_001}, "input", "string_above_max_length"),
    ({"input": "..."}, "input", "invalid_value"),
    ({"speed": 1.5}, "speed", "unsupported_parameter"),
    ({"speed": 9}, "speed", "invalid_value"),
    ({"speed": 10**400}, "speed", "invalid_value"),
    ({"response_format": "m4a"}, "response_format", "unsupported_value"),
    ({"stream_format": "ws"}, "stream_format", "unsupported_value"),
    ({"temperature": "hot"}, "temperature", "invalid_value"),
    ({"top_q": 1}, "top_q", "unknown_parameter"),
    ({"language": "klingon"}, "language", "invalid_value"),
    ({"voice": 7}, "voice", "invalid_value"),
    ({"instructions": "Slowly.", "instruct": "Fast."}, "instruct", "invalid_value"),
    ({"reference": "/etc/passwd"}, "reference", "invalid_value"),
    ({"reference": "data:audio/wav,abc"}, "reference", "invalid_value"),
    ({"stream": False, "stream_format": "sse"}, "stream", "invalid_value"),
    ({"max_frames": [1]}, "max_frames", "invalid_value"),
]


@pytest.mark.parametrize(("fields", "param", "code"), WRONG, ids=[row[1] for row in WRONG])
def test_what_is_wrong_is_named(
    running: Running, fields: dict[str, Any], param: str, code: str
) -> None:
    answer = post(running, **fields)
    error = answer.json()["error"]
    assert answer.status_code == 400, error
    assert (error["param"] or "", error["code"]) == (param, code)
    assert param in error["message"]


@pytest.mark.parametrize("voice", ["nobody", "../../etc/passwd", "/etc/passwd", "voice_0"])
def test_a_voice_that_there_is_not(client: OpenAI, voice: str) -> None:
    for model in ("custom_voice", "base"):
        with pytest.raises(NotFoundError) as refused:
            client.audio.speech.create(model=model, voice=voice, input="Hello.")
        assert refused.value.code == "voice_not_found"


def test_a_voice_is_made_of_a_recording_and_deleted(
    running: Running, client: OpenAI, speakers: dict[str, Any], example: Path
) -> None:
    with example.open("rb") as file:
        made = client.audio.voices.create(name="Ada", audio_sample=file, consent="cons_1")
    assert made.object == "audio.voice" and made.name == "Ada" and made.type == "audio_sample"
    answer = post(running, model="base", voice=made.id, response_format="pcm")
    own = speakers["base"].voice_of(example)
    alone = speakers["base"].speak("Hello there.", voice=own, **OPTIONS)
    samples = np.frombuffer(answer.content, np.int16) / 32767
    assert np.abs(samples - alone.samples).max() < 1e-3
    other = post(running, model="custom_voice", voice=made.id)
    assert other.status_code == 404
    assert client.audio.voices.delete(made.id).deleted
    with pytest.raises(NotFoundError):
        client.audio.voices.delete(made.id)
    assert post(running, model="base", voice=made.id).status_code == 404


def test_a_voice_is_made_of_a_description(
    running: Running, client: OpenAI, speakers: dict[str, Any]
) -> None:
    made = client.audio.voices.create(name="Old", type="prompt", prompt="An old man.")
    assert made.prompt == "An old man."
    answer = post(running, model="voice_design", voice=made.id, response_format="pcm")
    alone = speakers["voice_design"].speak("Hello there.", instruct="An old man.", **OPTIONS)
    samples = np.frombuffer(answer.content, np.int16) / 32767
    assert np.abs(samples - alone.samples).max() < 1e-3
    client.audio.voices.delete(made.id)


def test_a_recording_in_the_request_is_cloned(running: Running, example: Path) -> None:
    recording = base64.b64encode(example.read_bytes()).decode()
    for given in (recording, f"data:audio/wav;base64,{recording}"):
        answer = post(running, model="base", reference=given, response_format="pcm")
        assert answer.status_code == 200 and len(answer.content) > 1000
    broken = base64.b64encode(b"no recording" * 50).decode()
    error = post(running, model="base", reference=broken).json()["error"]
    assert (error["code"], error["param"]) == ("unsupported_audio", "reference")


def test_a_reference_that_is_too_long_is_refused(
    serve: Any, speakers: dict[str, Any], example: Path
) -> None:
    running = serve({"base": speakers["base"]}, max_audio_seconds=1.0)
    recording = base64.b64encode(example.read_bytes()).decode()
    error = post(running, model="base", reference=recording).json()["error"]
    assert (error["code"], error["param"]) == ("audio_too_long", "reference")
    with example.open("rb") as file:
        url, data = f"{running.url}/v1/audio/voices", {"name": "Ada", "model": "base"}
        answer = httpx2.post(url, data=data, files={"audio_sample": file})
    error = answer.json()["error"]
    assert (error["code"], error["param"]) == ("audio_too_long", "audio_sample")


def test_a_model_that_does_not_clone_names_the_voice(client: OpenAI, example: Path) -> None:
    with example.open("rb") as file, pytest.raises(BadRequestError) as refused:
        client.audio.voices.create(
            name="Ada", audio_sample=file, consent="c", extra_body={"model": "voice_design"}
        )
    assert "cannot clone" in refused.value.message


def test_markdown_is_read_as_text(running: Running, voice: str, expected: Any) -> None:
    answer = post(running, voice=voice, input="**Hello** there.", plain=True, response_format="pcm")
    assert np.array_equal(np.frombuffer(answer.content, np.int16), expected)


PCM = {"model": "a", "input": "Hello.", "response_format": "pcm"}


@pytest.mark.parametrize("events", [False, True])
def test_audio_leaves_while_the_rest_is_made(serve: Any, events: bool) -> None:
    model = ScriptedSpeaker()
    running = serve({"a": model})
    body = PCM | ({"stream_format": "sse"} if events else {})
    with httpx2.stream("POST", f"{running.url}/v1/audio/speech", json=body) as answer:
        chunks = answer.iter_raw()
        first = next(chunks)
        assert (b"speech.audio.delta" in first) if events else first == bytes(4800)
        model.release.set()
        rest = b"".join(chunks)
        assert (b"speech.audio.done" in rest) if events else rest == bytes(4800)


def test_a_listener_that_leaves_ends_the_speech(serve: Any) -> None:
    model = ScriptedSpeaker()
    running = serve({"a": model})
    with httpx2.stream("POST", f"{running.url}/v1/audio/speech", json=PCM) as answer:
        next(answer.iter_raw())
    assert model.cancelled.wait(30)
    running.until(lambda: not running.server.gate.jobs)


def test_an_error_after_the_first_audio_cuts_the_answer(
    serve: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """So that no client takes a part for the whole."""
    model = ScriptedSpeaker(OscineError("the device has failed"))
    model.release.set()
    running = serve({"a": model})
    with pytest.raises(httpx2.RemoteProtocolError):
        httpx2.post(f"{running.url}/v1/audio/speech", json=PCM)
    running.until(lambda: "its answer is cut off (the device has failed)" in caplog.text)
    events = httpx2.post(f"{running.url}/v1/audio/speech", json=PCM | {"stream_format": "sse"})
    last = json.loads(events.text.strip().split("\n\n")[-1].removeprefix("data: "))
    assert last["error"]["message"] == "the device has failed"


def test_listeners_that_leave_leave_nothing_behind(serve: Any, speakers: dict[str, Any]) -> None:
    running = serve({"a": speakers["custom_voice"]})
    url = f"{running.url}/v1/audio/speech"
    counts = []
    for number in range(24):
        body = PCM | {"response_format": ("mp3", "opus", "aac")[number % 3], "max_frames": 200}
        with httpx2.stream("POST", url, json=body) as answer:
            next(answer.iter_raw())
        running.until(lambda: not running.server.gate.jobs)
        if number >= 12:
            counts.append((threading.active_count(), len(os.listdir("/proc/self/fd"))))
    for before, after in ((counts[0], counts[6]), (counts[5], counts[11])):
        # A pool may start a thread where the one before is not idle yet: fewer than one each.
        assert all(last <= first + 3 for first, last in zip(before, after, strict=True)), counts
