"""Many clients: limits, deadlines, clients that leave, the end of the server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest
from openai import APIError, InternalServerError, RateLimitError

from oscine.errors import (
    BusyError,
    DeadlineError,
    DeviceLostError,
    NonFiniteError,
    OscineError,
)
from oscine.server.gate import MAX_UNREAD, Gate

from .running import Running, Scripted

Serve = Callable[..., Running]


def send(running: Running, **more: Any) -> httpx2.Response:
    data = {"model": "a", **more.pop("data", {})}
    url = f"{running.url}/v1/audio/transcriptions"
    return httpx2.post(url, data=data, files={"file": b"x"}, **{"timeout": 30, **more})


def test_a_full_server_refuses_with_the_time_to_wait(serve: Serve) -> None:
    model = Scripted()
    running = serve({"a": model}, max_requests=2)
    with ThreadPoolExecutor(2) as pool:
        first = [pool.submit(send, running) for _ in range(2)]
        for _ in first:
            assert model.started.acquire(timeout=30)
        for stream in (False, True):
            with pytest.raises(RateLimitError) as refused:
                running.client().audio.transcriptions.create(file=b"x", model="a", stream=stream)
            assert refused.value.code == "queue_full"
            assert 1 <= int(refused.value.response.headers["retry-after"]) <= 120
        model.release.set()
        assert [each.result().json()["text"] for each in first] == ["One two"] * 2
    assert send(running).status_code == 200  # there is room again


def test_the_time_to_wait_is_that_of_the_latest_requests() -> None:
    gate = Gate(4, 600)
    assert gate.retry_after() == 1
    gate._seconds.extend([30.0, 50.0])
    gate.jobs |= {object(), object()}  # type: ignore[arg-type]
    assert gate.retry_after() == 20
    gate._seconds.extend([9999.0] * 32)
    assert gate.retry_after() == 120


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_ends_its_work(serve: Serve, stream: bool) -> None:
    model = Scripted()
    running = serve({"a": model})
    if stream:
        url = f"{running.url}/v1/audio/transcriptions"
        data = {"model": "a", "stream": "true"}
        with httpx2.stream("POST", url, data=data, files={"file": b"x"}) as answer:
            assert "delta" in next(answer.iter_lines())
    else:
        with pytest.raises(httpx2.ReadTimeout):
            send(running, timeout=0.5)
    assert model.cancelled.wait(30)
    running.until(lambda: not running.server.gate.jobs)


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_ends_at_its_deadline(serve: Serve, stream: bool) -> None:
    model = Scripted()
    running = serve({"a": model}, timeout=0.3)
    with pytest.raises(APIError) as ended:
        answer = running.client().audio.transcriptions.create(file=b"x", model="a", stream=stream)
        list(answer)
    assert ended.value.code == "timeout" and model.cancelled.wait(30)
    if not stream:
        assert isinstance(ended.value, InternalServerError) and ended.value.status_code == 504


def test_draining_lets_work_end_and_refuses_more(serve: Serve) -> None:
    model = Scripted()
    running = serve({"a": model})
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(send, running)
        assert model.started.acquire(timeout=30)
        running.server.gate.draining = True
        refused = send(running)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "shutting_down")
        assert "retry-after" in refused.headers
        assert httpx2.get(f"{running.url}/health").status_code == 200
        ready = httpx2.get(f"{running.url}/health/ready")
        assert (ready.status_code, ready.json()) == (503, {"status": "draining"})
        model.release.set()
        assert first.result().json()["text"] == "One two"


def test_what_does_not_end_in_time_is_stopped_with_a_reason(serve: Serve) -> None:
    model = Scripted()
    running = serve({"a": model})
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(send, running)
        assert model.started.acquire(timeout=30)
        running.server.gate.stop()
        answer = first.result()
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "shutting_down")


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (BusyError(9), 429, "queue_full"),
        (DeadlineError(), 504, "timeout"),
        (DeviceLostError("GPU", "reset"), 503, "device_lost"),
        (NonFiniteError("file: audio contains non-finite samples"), 400, "unsupported_audio"),
        (NonFiniteError("non-finite logits on NumPy"), 500, "model_error"),
        (OscineError("anything"), 500, "model_error"),
        (MemoryError(), 500, "internal_error"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_errors_of_the_library(serve: Serve, error: Exception, status: int, code: str) -> None:
    running = serve({"a": Scripted(error)})
    for stream in ("false", "true"):  # no audio was sent yet: a status in both
        answer = send(running, data={"stream": stream})
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


def test_work_pauses_while_its_client_does_not_read() -> None:
    count = 0

    def work(job: Any) -> int:
        nonlocal count
        for number in range(10 * MAX_UNREAD):
            job.put(number)
            count += 1
        return count

    async def receive() -> Any:
        await asyncio.sleep(3600)

    async def run() -> None:
        gate = Gate(1, 600)
        job = gate.start(work, receive, lambda: None)
        while count < MAX_UNREAD:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        assert count == MAX_UNREAD
        assert [await job.next() for _ in range(40)] == list(range(40))
        job.close()
        while gate.jobs:
            await asyncio.sleep(0.01)

    asyncio.run(run())


def test_answers_of_many_clients_are_what_they_are_alone(
    serve: Serve, whisper: Any, example: Path
) -> None:
    options = [
        {"sample_len": 3 + number % 4, "vad_filter": False, "language": language}
        for number, language in enumerate(["de", "en", "zh", "es"] * 3)
    ]
    alone = [whisper.transcribe(example, temperature=0, **each).text.strip() for each in options]
    running = serve({"small": whisper})
    contents = example.read_bytes()

    def ask(each: dict[str, Any]) -> str:
        data = {"model": "small", "temperature[]": "0", **each}
        answer = httpx2.post(
            f"{running.url}/v1/audio/transcriptions", timeout=120,
            data=json.loads(json.dumps(data)), files={"file": contents},
        )  # fmt: skip
        return str(answer.json()["text"])

    with ThreadPoolExecutor(len(options)) as pool:
        assert list(pool.map(ask, options)) == alone


def test_a_recording_that_is_too_long_is_refused(serve: Serve, whisper: Any, example: Path) -> None:
    running = serve({"small": whisper}, max_audio_seconds=5)
    for more in ({}, {"max_audio_seconds": "600"}):
        answer = httpx2.post(
            f"{running.url}/v1/audio/transcriptions", data={"model": "small", **more},
            files={"file": example.read_bytes()},
        )  # fmt: skip
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (400, "audio_too_long")
        assert "5 s of max_audio_seconds" in error["message"]
