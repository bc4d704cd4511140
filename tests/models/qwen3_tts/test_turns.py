"""Whose turn it is: streams that are handed on, left alone, closed and refused, in many threads.

Every thread here is a daemon that is waited for a bounded time, so that what would hang fails.
"""

from __future__ import annotations

import gc
import importlib.util
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from oscine.errors import Cancelled, UsageError
from oscine.models.qwen3_tts import turns
from oscine.models.qwen3_tts.pipeline import Qwen3Tts

SPEC = importlib.util.spec_from_file_location("scripted", Path(__file__).with_name("scripted.py"))
assert SPEC is not None and SPEC.loader is not None
SCRIPTED = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(SCRIPTED)

LIMIT = 20.0  # seconds that no test comes near
ANY = {"voice": "ryan", "seed": 1}


@pytest.fixture
def model() -> Qwen3Tts:
    """One that says nine frames to whatever it is given: three pieces of audio."""
    return SCRIPTED.scripted(lambda request, call: ([300 + i for i in range(9)], "end"))[0]


class Started:
    """Work in another thread; `result` waits for what it returns or raises."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self.found: list[Any] = []
        self.error: list[BaseException] = []
        self.work = work
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self) -> None:
        try:
            self.found.append(self.work())
        except Exception as error:
            self.error.append(error)

    def result(self) -> Any:
        self.thread.join(LIMIT)
        assert not self.thread.is_alive(), "it waits for ever"
        if self.error:
            raise self.error[0]
        return self.found[0]

    def waits(self) -> bool:
        self.thread.join(0.05)
        return self.thread.is_alive()


def speak(model: Qwen3Tts) -> str:
    return model.speak("Hi.", **ANY).finish_reason


def test_a_stream_that_was_handed_on_is_its_new_threads(model: Qwen3Tts) -> None:
    stream = model.stream("Hello.", **ANY)
    next(stream)

    def work() -> str:
        next(stream)
        with pytest.raises(UsageError, match=r"this thread's stream: .* close\(\)"):
            model.speak("Hi.", **ANY)
        stream.close()
        return speak(model)

    assert Started(work).result() == "end"
    assert speak(model) == "end"


def test_who_handed_a_stream_on_waits_for_it(model: Qwen3Tts) -> None:
    stream = model.stream("Hello.", **ANY)
    next(stream)
    go_on, began = threading.Event(), threading.Event()

    def work() -> int:
        next(stream)
        began.set()
        assert go_on.wait(LIMIT)
        return len(list(stream))

    other = Started(work)
    assert began.wait(LIMIT)
    threading.Timer(0.05, go_on.set).start()
    assert speak(model) == "end"
    assert other.result() == 1 and stream.finish_reason == "end"


@pytest.mark.parametrize("ended", [True, False])
def test_nobody_waits_for_ever(
    model: Qwen3Tts, ended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a stream that nobody iterates over: its thread has ended, or does something else."""
    monkeypatch.setattr(turns, "SHORT_PATIENCE" if ended else "PATIENCE", 0.05)
    stream = model.stream("Hello.", **ANY)
    Started(lambda: next(stream)).result() if ended else next(stream)
    with pytest.raises(UsageError, match="a stream that nobody iterates over"):
        Started(lambda: speak(model)).result()
    assert len(list(stream)) == 2  # nothing is lost
    assert speak(model) == "end"


def test_a_stream_that_goes_on_slowly_is_waited_for(
    model: Qwen3Tts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "PATIENCE", 5.0)
    stream = model.stream("Hello.", **ANY)
    next(stream)
    other = Started(lambda: speak(model))
    assert other.waits()
    next(stream)
    assert other.waits()
    stream.close()
    assert other.result() == "end"


def test_who_waits_can_be_cancelled_and_closed(model: Qwen3Tts) -> None:
    stream = model.stream("Hello.", **ANY)
    next(stream)
    event = threading.Event()
    asked = Started(lambda: model.speak("Hi.", cancel=event, **ANY))
    second = model.stream("Hi.", **ANY)
    closed = Started(lambda: list(second))
    assert asked.waits() and closed.waits()
    event.set()
    second.close()
    with pytest.raises(Cancelled):
        asked.result()
    assert closed.result() == []
    assert len(list(stream)) == 2


def test_two_threads_at_once(model: Qwen3Tts) -> None:
    going, more = threading.Event(), threading.Event()

    def writer() -> Iterator[str]:
        going.set()
        assert more.wait(LIMIT)
        yield "Hello."

    stream = model.stream(writer(), **ANY)
    first = Started(lambda: list(stream))
    assert going.wait(LIMIT)
    with pytest.raises(UsageError, match="iterated over already"):
        next(stream)
    more.set()
    assert len(first.result()) == 3


def test_a_text_that_is_waited_for_is_no_work(
    model: Qwen3Tts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "PATIENCE", 0.05)
    going, more = threading.Event(), threading.Event()

    def writer() -> Iterator[str]:
        going.set()
        assert more.wait(LIMIT)
        yield "Hello."

    first = Started(lambda: model.speak(writer(), **ANY).finish_reason)
    assert going.wait(LIMIT)
    with pytest.raises(UsageError, match="nobody iterates over"):
        speak(model)
    more.set()
    assert first.result() == "end"


def test_a_text_that_speaks_itself(model: Qwen3Tts) -> None:
    def writer() -> Iterator[str]:
        yield "Hello. And"
        model.speak("Hi.", **ANY)

    with pytest.raises(UsageError, match="this thread's stream"):
        Started(lambda: model.speak(writer(), **ANY)).result()
    assert speak(model) == "end"


def test_a_stream_that_was_refused_can_begin_later(model: Qwen3Tts) -> None:
    first, second = model.stream("Hello.", **ANY), model.stream("Hello.", **ANY)
    next(first)
    for _ in range(2):
        with pytest.raises(UsageError, match="this thread's stream"):
            next(second)
        with pytest.raises(UsageError, match="this thread's stream"):
            second.speech()
    first.close()
    assert len(list(second)) == 3 and second.finish_reason == "end"
    assert list(second) == []


def test_a_stream_that_failed_does_not_look_finished(model: Qwen3Tts) -> None:
    def writer() -> Iterator[str]:
        yield "Hello. And"
        raise RuntimeError("the writer broke")

    stream = model.stream(writer(), **ANY)
    with pytest.raises(RuntimeError, match="broke"):
        list(stream)
    for again in (lambda: next(stream), lambda: list(stream), stream.speech):
        with pytest.raises(UsageError, match="ended with an error"):
            again()
    event = threading.Event()
    event.set()
    stream = model.stream("Hello.", cancel=event, **ANY)
    for _ in range(2):
        with pytest.raises(Cancelled):
            next(stream)
    assert speak(model) == "end"


@pytest.mark.parametrize("heard", [0, 1])
def test_there_is_no_speech_of_a_closed_stream(model: Qwen3Tts, heard: int) -> None:
    stream = model.stream("Hello.", **ANY)
    for _ in range(heard):
        next(stream)
    stream.close()
    with pytest.raises(UsageError, match="the stream was closed"):
        stream.speech()
    assert list(stream) == []


def test_closing_from_within_the_text(model: Qwen3Tts) -> None:
    streams: list[Any] = []

    def writer() -> Iterator[str]:
        yield "Hello. And"
        streams[0].close()
        yield " more. And"

    streams.append(model.stream(writer(), **ANY))
    assert len(list(streams[0])) == 3
    assert model.turns.owner is None and speak(model) == "end"


def test_many_threads_that_do_as_they_please(
    model: Qwen3Tts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "POLL", 0.01)
    whole = len(model.speak("Hi.", **ANY).samples)

    def work(seed: int) -> int:
        chance = random.Random(seed)
        for _ in range(12):
            act = chance.randrange(5)
            if act == 0:
                assert len(model.speak("Hi.", **ANY).samples) == whole
                continue
            stream = model.stream("Hi.", **ANY)
            if act == 1:
                assert sum(len(audio.samples) for audio in stream) == whole
            elif act == 2:
                next(stream)
                del stream  # which frees the engine
            elif act == 3:
                with stream:
                    next(stream)
            else:
                next(stream)
                closer = Started(stream.close)
                list(stream)
                closer.result()
        return seed

    workers = [Started(lambda seed=seed: work(seed)) for seed in range(8)]  # type: ignore[misc]
    assert [worker.result() for worker in workers] == list(range(8))
    gc.collect()
    assert model.turns.owner is None
