"""A model in several processes gives what it gives in one, to any threads and tasks at once."""

from __future__ import annotations

import asyncio
import io
import os
import pickle
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from operator import gt
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oscine
from oscine import probe
from oscine.errors import (
    AudioError,
    Cancelled,
    CheckpointError,
    DeviceError,
    OtherModelError,
    UsageError,
)
from oscine.fleet.model import Fleet, nearly_equal, open_fleet
from oscine.types import Transcript

from .fleets import OPTIONS, SOUND, WHISPER, busy, soon, two


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    with two(WHISPER) as fleet:
        yield fleet


@pytest.fixture(scope="module")
def model() -> Any:
    return oscine.load(WHISPER, device="cpu", dtype="f32", offline=True)


def told(transcript: Transcript) -> Transcript:
    """Without what is measured."""
    return replace(transcript, timings={}, read_audio=None)


def test_it_has_what_the_model_has(fleet: Any, model: Any) -> None:
    assert (fleet.name, fleet.device) == (model.name, "NumPy, NumPy")
    assert repr(fleet) == "<Fleet whisper_multi on NumPy, NumPy>"
    assert (fleet.languages, fleet.multilingual) == (model.languages, model.multilingual)
    assert {"transcribe", "stream", "align", "languages", "recordings_at_once"} <= set(dir(fleet))
    assert hasattr(fleet, "align") and not hasattr(fleet, "speak")
    assert fleet.recordings_at_once == 2 * getattr(model, "recordings_at_once", 1)
    with pytest.raises(OtherModelError, match="is a speech-to-text model and cannot speak"):
        fleet.speak("Hello.")
    with pytest.raises(AttributeError):
        assert fleet.nothing_of_this_name
    assert not hasattr(fleet, "runner")


def test_calls_give_what_they_give_in_one_process(fleet: Any, model: Any) -> None:
    found, alone = (told(each.transcribe(SOUND, **OPTIONS)) for each in (fleet, model))
    assert nearly_equal(found, alone)  # BLAS may have other threads here
    assert nearly_equal(fleet.encode(SOUND), model.encode(SOUND))
    assert fleet.detect_language(SOUND)[0] == model.detect_language(SOUND)[0]
    assert set(fleet.timings) >= {"encode", "decode"} and fleet.trace() == {}


def test_a_stream_gives_what_it_gives_in_one_process(fleet: Any, model: Any) -> None:
    stream, alone = (each.stream(SOUND, **OPTIONS) for each in (fleet, model))
    stream.begin()
    assert (stream.language, stream.duration) == ("en", SOUND.size / 16_000)
    assert nearly_equal((*stream,), (*alone,))
    assert nearly_equal(told(stream.transcript()), told(alone.transcript()))
    assert repr(stream) == f"<{type(alone).__name__} in another process>"
    assert "transcript" in dir(stream)
    with pytest.raises(AttributeError, match="no attribute 'speech'"):
        stream.speech()
    assert busy(fleet) == [0, 0]  # it is over, though values can still be had


def test_threads_share_the_devices_and_each_gets_its_own(fleet: Any, model: Any) -> None:
    sounds = [SOUND[: 16_000 + 2_000 * number] for number in range(6)]
    before = [worker.served for worker in fleet.workers.living()]
    with ThreadPoolExecutor(len(sounds)) as pool:
        found = list(pool.map(lambda sound: fleet.transcribe(sound, **OPTIONS), sounds))
    after = [worker.served for worker in fleet.workers.living()]
    alone = tuple(told(model.transcribe(sound, **OPTIONS)) for sound in sounds)
    assert nearly_equal(tuple(map(told, found)), alone)
    assert [now - then for now, then in zip(after, before, strict=True)] == [3, 3]


def test_many_recordings_are_spread_over_the_devices(fleet: Any, model: Any) -> None:
    sounds = [SOUND[: 16_000 + 2_000 * number] for number in range(6)]
    before = [worker.served for worker in fleet.workers.living()]
    found = tuple(map(told, fleet.transcribe_many(iter(sounds), **OPTIONS)))
    after = [worker.served for worker in fleet.workers.living()]
    assert nearly_equal(found, tuple(told(model.transcribe(sound, **OPTIONS)) for sound in sounds))
    assert sum(after) - sum(before) == 6 and all(map(gt, after, before))


def test_tasks_share_the_devices(fleet: Any, model: Any) -> None:
    async def both() -> tuple[list[Any], list[Any]]:
        ticks = asyncio.create_task(tick())
        calls = await asyncio.gather(*(fleet.transcribe_async(SOUND, **OPTIONS) for _ in "ab"))
        segments = [segment async for segment in fleet.stream(SOUND, **OPTIONS)]
        ticks.cancel()
        return calls, segments

    async def tick() -> None:
        while True:
            await asyncio.sleep(0.01)

    calls, segments = asyncio.run(both())
    alone = model.transcribe(SOUND, **OPTIONS)
    assert nearly_equal(tuple(map(told, calls)), (told(alone),) * 2)
    assert nearly_equal(tuple(segments), alone.segments)


def test_a_task_that_is_cancelled_stops_the_work(fleet: Any) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(fleet.transcribe_async(np.tile(SOUND, 100), **OPTIONS), 0.2)

    with pytest.raises(TimeoutError):
        asyncio.run(bounded())
    assert soon(lambda: busy(fleet) == [0, 0])


def write(number: int, data: bytes) -> None:
    with os.fdopen(number, "wb") as pipe:
        pipe.write(data)


def test_recordings_of_every_kind(
    fleet: Any, model: Any, example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(example.parent)  # not the workers' folder
    data = example.read_bytes()
    behind = io.BytesIO(b"before" + data)
    behind.seek(6)
    reader, writer = os.pipe()
    with ThreadPoolExecutor(1) as pool, os.fdopen(reader, "rb") as pipe:
        written = pool.submit(write, writer, data)
        kinds = ["spoken.wav", Path("spoken.wav"), data, behind, pipe]
        found = [fleet.encode(kind) for kind in kinds]
        written.result()
    assert behind.tell() == 6
    assert all(nearly_equal(each, model.encode(example)) for each in found)
    assert nearly_equal(fleet.encode((SOUND, 8000)), model.encode((SOUND, 8000)))
    for wrong, line in (
        ("no.wav", "^no.wav: no such file; check the path"),
        (b"", "^bytes: is empty"),
        (b"no sound", "^bytes: "),
    ):
        with pytest.raises(AudioError, match=line):
            fleet.transcribe(wrong)
    with pytest.raises(UsageError, match="int is not a recording"):
        fleet.transcribe(5)


def test_a_transcript_reads_its_recording_again(fleet: Any, example: Path) -> None:
    transcript = fleet.transcribe(example, clip_timestamps=[0, 1], **OPTIONS)
    assert transcript.read_audio().duration == pytest.approx(8.346, abs=0.001)


def test_progress_is_told_and_may_raise(fleet: Any) -> None:
    told: list[tuple[float, float]] = []
    fleet.transcribe(SOUND, progress=lambda *seconds: told.append(seconds), **OPTIONS)
    assert told[-1] == (2.5, 2.5) and told == sorted(told)
    with pytest.raises(ZeroDivisionError):
        fleet.transcribe(SOUND, progress=lambda *_: 1 / 0, **OPTIONS)
    assert soon(lambda: busy(fleet) == [0, 0])


def test_who_wants_no_more_gets_what_was_finished(fleet: Any) -> None:
    stop = threading.Event()
    long = np.tile(SOUND, 240)
    with pytest.raises(Cancelled) as told:
        fleet.transcribe(long, cancel=stop, progress=lambda done, _: done and stop.set(), **OPTIONS)
    partial = told.value.partial
    assert partial is not None and 0 < len(partial.segments) and partial.duration == 600
    with pytest.raises(Cancelled):
        fleet.transcribe(SOUND, cancel=lambda: True, **OPTIONS)
    with pytest.raises(UsageError, match=r"cancel must be a threading\.Event"):
        fleet.transcribe(SOUND, cancel=3, **OPTIONS)


def test_a_caller_who_stops_iterating_stops_the_work(fleet: Any) -> None:
    stream = fleet.stream(np.tile(SOUND, 60), **OPTIONS)
    first = next(stream)
    assert sum(busy(fleet)) == 1
    del stream
    assert busy(fleet) == [0, 0]
    with fleet.stream(np.tile(SOUND, 60), **OPTIONS) as stream:
        assert nearly_equal(next(stream), first)
    assert list(stream) == [] and busy(fleet) == [0, 0]
    assert nearly_equal(stream.transcript().segments, (first,))


def test_what_a_worker_logs_is_logged_here(fleet: Any, caplog: pytest.LogCaptureFixture) -> None:
    fleet.transcribe(SOUND, clip_timestamps=[5, 6], language="en", vad_filter=False)
    assert "array: nothing to transcribe: clip_timestamps selects nothing" in caplog.text
    assert {each.thread for each in caplog.records} == {threading.get_ident()}  # the caller's


def test_what_cannot_be_sent_is_one_line(fleet: Any) -> None:
    with pytest.raises(UsageError, match=r"^transcribe: what it is given cannot be sent"):
        fleet.transcribe(SOUND, initial_prompt=lambda: "Hello")
    with pytest.raises(UsageError, match="probing looks into this process"), probe.probing(print):
        fleet.encode(SOUND)
    with pytest.raises(UsageError, match=r"was not opened by oscine\.load"):
        pickle.dumps(fleet)


def test_a_device_that_will_not_do_is_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    no_such = "gpu:999"
    with open_fleet(["cpu", no_such], str(WHISPER), "f32", offline=True) as one:
        assert one.device == "NumPy" and "continuing without a device: " in caplog.text
        assert one.encode(SOUND).shape
    with pytest.raises(DeviceError):
        one.encode(SOUND)
    with pytest.raises(DeviceError):
        open_fleet([no_such], str(WHISPER), "f32", offline=True)
    damaged = tmp_path / "model.safetensors"
    damaged.write_bytes(b"no tensors")
    with pytest.raises(CheckpointError):
        open_fleet(["cpu", "cpu"], str(damaged), "f32", offline=True)
