"""Whose turn it is: streams side by side in any threads, left alone, closed, failed, interrupted.

Every thread here is a daemon that is waited for a bounded time, so that what would hang fails.
"""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import logging
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oscine.errors import Cancelled, DeviceLostError, NonFiniteError, UsageError
from oscine.models.qwen3_tts import turns
from oscine.models.qwen3_tts.pipeline import Qwen3Tts
from oscine.models.qwen3_tts.stream import SpeechStream

SPEC = importlib.util.spec_from_file_location("scripted", Path(__file__).with_name("scripted.py"))
assert SPEC is not None and SPEC.loader is not None
SCRIPTED = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(SCRIPTED)

LIMIT = 20.0  # seconds that no test comes near
ANY = {"voice": "ryan", "seed": 1}


TEXT = "This is the first sentence.\n\nHere the second one is.\n\nAnd a third. " * 2


def frames(request: Any) -> list[int]:
    """First codes that hang on the text and the seed."""
    text = round(float(np.abs(request.prompt.text).sum())) + len(request.prompt.text)
    return [300 + (41 * i + 7 * text + 13 * request.seed) % 600 for i in range(9)]


@pytest.fixture
def model() -> Qwen3Tts:
    """One that says nine frames to each piece of text: three pieces of audio. It fails where a
    piece begins before the one ahead of it is over."""

    def script(request: Any, call: int) -> tuple[list[int], str]:
        assert all(run.finish_reason is not None or run.stopped for run in engine.runs)
        return frames(request), "end"

    made, engine = SCRIPTED.scripted(script)
    return made  # type: ignore[no-any-return]


Held = tuple[threading.Event, threading.Event]


@pytest.fixture
def held(model: Qwen3Tts) -> Held:
    """Each request of the model says that it has begun (first), and waits to go on (second)."""
    entered, go_on = threading.Event(), threading.Event()
    begin = model.decoder.begin

    def slow(request: Any) -> Any:
        entered.set()
        assert go_on.wait(LIMIT)
        return begin(request)

    model.decoder.begin = slow  # type: ignore[method-assign]
    return entered, go_on


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


def joined(pieces: list[Any]) -> np.ndarray:
    return np.concatenate([audio.samples for audio in pieces])


def alone(model: Qwen3Tts, seed: int, text: str = TEXT) -> np.ndarray:
    """What a call says that has the model for itself."""
    return joined(list(model.stream(text, voice="ryan", seed=seed)))


def stream_of(model: Qwen3Tts, seed: int, text: str = TEXT) -> SpeechStream:
    return model.stream(text, voice="ryan", seed=seed)


# -- streams side by side -------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_streams_of_a_pool_say_what_each_says_alone(model: Qwen3Tts, workers: int) -> None:
    """As web frameworks iterate: any worker asks for the next piece of any stream."""
    expected = [alone(model, seed) for seed in range(4)]
    streams = [stream_of(model, seed) for seed in range(4)]
    heard: list[list[Any]] = [[] for _ in streams]
    chance = random.Random(workers)
    with ThreadPoolExecutor(workers) as pool:
        left = list(range(4))
        while left:
            asked = chance.sample(left, chance.randint(1, len(left)))
            futures = [(i, pool.submit(next, streams[i], None)) for i in asked]
            for i, future in futures:
                audio = future.result(LIMIT)
                heard[i].append(audio) if audio is not None else left.remove(i)
    assert all(np.array_equal(joined(h), e) for h, e in zip(heard, expected, strict=True))
    assert model.turns.current is None


@pytest.mark.parametrize("order", ["abab", "aabb", "abba", "abcabc", "cbaacb", "aaaabc"])
def test_streams_by_turns_in_one_thread(model: Qwen3Tts, order: str) -> None:
    expected = {name: alone(model, ord(name)) for name in "abc"}

    def work() -> dict[str, list[Any]]:
        streams = {name: stream_of(model, ord(name)) for name in "abc"}
        heard: dict[str, list[Any]] = {name: [] for name in "abc"}
        for name in order:
            heard[name].append(next(streams[name]))
        for name in reversed(streams):
            heard[name] += streams[name]
        return heard

    heard = Started(work).result()
    assert all(np.array_equal(joined(heard[name]), expected[name]) for name in "abc")


def test_a_call_within_an_iteration(model: Qwen3Tts) -> None:
    """Also of the same stream's model from its text and from its `cancel`, at any depth."""
    expected, short = alone(model, 1), alone(model, 2, "Hi.")
    inner: list[np.ndarray] = []

    def say() -> bool:
        inner.append(model.speak("Hi.", voice="ryan", seed=2).samples)
        return False

    def work() -> list[Any]:
        heard: list[Any] = []
        for audio in stream_of(model, 1):
            say()
            for _ in stream_of(model, 3):
                say()
                break
            heard.append(audio)
        heard += model.stream("Again.", voice="ryan", seed=1, cancel=say)
        return heard

    heard = Started(work).result()
    assert np.array_equal(joined(heard)[: len(expected)], expected)
    assert len(inner) > 10 and all(np.array_equal(samples, short) for samples in inner)


def test_a_text_that_speaks_itself(model: Qwen3Tts) -> None:
    def writer() -> Iterator[str]:
        yield "Hello. And"
        assert speak(model) == "end"
        yield " more."

    assert Started(lambda: model.speak(writer(), **ANY).pieces).result() == 2


def test_asyncio(model: Qwen3Tts) -> None:
    """Several tasks that iterate in threads, and in the event loop's own."""
    expected = [alone(model, seed) for seed in range(4)]

    async def listen(seed: int) -> np.ndarray:
        stream, heard = stream_of(model, seed), []
        while True:
            if seed == 0:
                await asyncio.sleep(0)
                audio = next(stream, None)
            else:
                audio = await asyncio.to_thread(next, stream, None)
            if audio is None:
                return joined(heard)
            heard.append(audio)

    async def all_of_them() -> list[np.ndarray]:
        return await asyncio.gather(*map(listen, range(4)))

    found = Started(lambda: asyncio.run(all_of_them())).result()
    assert all(np.array_equal(f, e) for f, e in zip(found, expected, strict=True))


def test_streams_alternate_piece_by_piece(model: Qwen3Tts) -> None:
    """The second one is heard after a piece of the first, not after all of it."""
    first, second = stream_of(model, 1, TEXT * 5), stream_of(model, 2)
    next(first)
    next(second)
    assert (first.pieces, second.pieces) == (1, 1)
    heard = len(list(second))
    assert heard > 10 and first.pieces == 1  # what is made of it waits in memory
    assert len(first._synthesis.model.decoder.requests) == second.pieces + 1


def test_a_call_waits_for_its_turn_in_order(model: Qwen3Tts, held: Held) -> None:
    """While a step is made for another thread; who came first goes first."""
    entered, go_on = held
    calls = [Started(lambda: list(stream_of(model, 0, "One.")))]
    assert entered.wait(LIMIT)
    for index in range(1, 4):
        calls.append(Started(lambda i=index: list(stream_of(model, i, "Hi."))))  # type: ignore[misc]
        assert calls[-1].waits()
    go_on.set()
    assert [len(call.result()) for call in calls] == [3] * 4
    assert [request.seed for request in model.decoder.requests] == [0, 1, 2, 3]  # type: ignore[attr-defined]


# -- left alone, closed, cancelled ----------------------------------------------------------------


def test_a_stream_that_is_left_alone_is_not_waited_for(model: Qwen3Tts) -> None:
    """Its thread has ended, or does something else; it loses nothing."""
    for ended in (True, False):
        stream = stream_of(model, 1)
        heard = [Started(lambda: next(stream)).result() if ended else next(stream)]  # noqa: B023
        assert Started(lambda: speak(model)).result() == "end"
        assert speak(model) == "end"
        assert np.array_equal(joined(heard + list(stream)), alone(model, 1))


def test_a_stream_that_goes_away_stops(model: Qwen3Tts) -> None:
    engine: Any = model.decoder
    for leave in (lambda stream: stream.close(), lambda stream: None):
        stream = stream_of(model, 1)
        next(stream)
        leave(stream)
        del stream
        assert model.turns.current is None and engine.runs[-1].stopped
        assert engine.runs[-1].seen_frames == 1  # not computed to its end for nothing
    assert speak(model) == "end"


def test_a_stream_is_handed_on(model: Qwen3Tts) -> None:
    stream = stream_of(model, 1)
    heard = [next(stream)]
    go_on, began = threading.Event(), threading.Event()

    def work() -> list[Any]:
        heard.append(next(stream))
        began.set()
        assert go_on.wait(LIMIT)
        return heard + list(stream)

    other = Started(work)
    assert began.wait(LIMIT)
    assert speak(model) == "end"
    go_on.set()
    assert np.array_equal(joined(other.result()), alone(model, 1))


def test_who_waits_can_be_cancelled_and_closed(model: Qwen3Tts, held: Held) -> None:
    entered, go_on = held
    first = Started(lambda: list(stream_of(model, 1, "Hello.")))
    assert entered.wait(LIMIT)
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
    go_on.set()
    assert len(first.result()) == 3 and model.turns._waiting == []


def test_a_stream_that_is_closed_while_another_call_finishes_its_piece(model: Qwen3Tts) -> None:
    engine: Any = model.decoder
    stream = stream_of(model, 1)
    next(stream)
    advance, closed = turns.Job.advance, []

    def closing(job: turns.Job) -> None:
        advance(job)
        if not closed:
            closed.append(Started(stream.close).result())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(turns.Job, "advance", closing)
        assert speak(model) == "end"
    assert closed and engine.runs[-2].stopped and engine.runs[-2].seen_frames < 9
    assert list(stream) == []


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
    assert speak(model) == "end"  # a text that is waited for keeps nobody waiting
    more.set()
    assert len(first.result()) == 3


# -- errors ---------------------------------------------------------------------------------------


class Broken(BaseException):
    """As KeyboardInterrupt, which pytest takes for its own."""


@pytest.mark.parametrize("step", [0, 1, 2])
def test_an_error_is_told_to_its_own_caller(model: Qwen3Tts, step: int) -> None:
    """Though another call made the step that failed; what was made before is given."""
    first = stream_of(model, 1, "Hello.")
    expected = alone(model, 1, "Hello.")
    heard = [next(first)] if step else []
    advance, steps = turns.Job.advance, []

    def failing(job: turns.Job) -> None:
        steps.append(job)
        if len(steps) == max(1, step) and step:
            raise NonFiniteError("on purpose")
        advance(job)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(turns.Job, "advance", failing)
        assert speak(model) == "end"
    if not step:
        assert np.array_equal(joined(list(first)), expected)
        return
    with pytest.raises(NonFiniteError, match="on purpose"):
        heard += iter(first.__next__, None)
    assert len(heard) == step and np.array_equal(joined(heard), expected[: len(joined(heard))])
    with pytest.raises(UsageError, match="ended with an error"):
        next(first)
    assert speak(model) == "end"


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("step", [1, 2, 3])
def test_an_interrupt_of_one_call_harms_no_other(model: Qwen3Tts, step: int, late: bool) -> None:
    """It comes before a step or right behind it, in the call that finishes another's piece."""
    expected = alone(model, 1)
    first = stream_of(model, 1)
    heard = [next(first)]
    advance, steps = turns.Job.advance, []

    def interrupted(job: turns.Job) -> None:
        steps.append(job)
        if late:
            advance(job)
        if len(steps) == step:
            raise Broken
        if not late:
            advance(job)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(turns.Job, "advance", interrupted)
        with pytest.raises(Broken):
            speak(model)
    assert speak(model) == "end"
    assert np.array_equal(joined(heard + list(first)), expected)


def test_an_interrupt_within_a_step(model: Qwen3Tts) -> None:
    """The run is begun a second time, and what was made before is left out."""
    engine: Any = model.decoder
    expected = alone(model, 1, "Hello.")
    first = stream_of(model, 1, "Hello.")
    heard = [next(first)]
    codec_begin, calls = engine.codec.begin, []

    def begin(codes: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise Broken
        return codec_begin(codes)

    engine.codec.begin = begin
    with pytest.raises(Broken):
        speak(model)
    assert np.array_equal(joined(heard + list(first)), expected)
    assert engine.requests[-1].seed == 1 and speak(model) == "end"


@pytest.mark.parametrize("lose_at", [1, 5])
def test_a_device_that_is_lost_while_a_piece_is_finished_for_another(
    model: Qwen3Tts, lose_at: int
) -> None:
    expected = alone(model, 1)
    first = stream_of(model, 1)
    heard = [next(first)]
    model.decoder.lose_at = lose_at  # type: ignore[attr-defined]
    assert np.array_equal(joined(list(stream_of(model, 1))), expected)
    heard += first
    assert np.array_equal(joined(heard), expected)
    second = stream_of(model, 2)
    next(second)
    model.decoder.lose_at, model._rebuild = lose_at, None  # type: ignore[attr-defined]
    assert speak(model) == "end"  # the loss is the other stream's error
    with pytest.raises(DeviceLostError):
        list(second)


def test_a_call_from_within_the_work_is_refused(
    model: Qwen3Tts, caplog: pytest.LogCaptureFixture
) -> None:
    """By a handler of the log, for one; it would wait for itself."""
    refused: list[str] = []

    class Speaks(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            with pytest.raises(UsageError, match="from within its own work"):
                model.speak("Hi.", **ANY)
            refused.append(record.message if hasattr(record, "message") else record.msg)

    model.decoder.lose_at = 1  # type: ignore[attr-defined]
    logger, handler = logging.getLogger("oscine.models.resident"), Speaks()
    logger.addHandler(handler)
    try:
        assert Started(lambda: speak(model)).result() == "end"
    finally:
        logger.removeHandler(handler)
    assert len(refused) == 1 and model.turns._waiting == []


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
    assert model.turns.current is None and speak(model) == "end"


def test_many_threads_that_do_as_they_please(
    model: Qwen3Tts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "POLL", 0.01)
    expected = alone(model, 1, "Hi. You.")

    def work(seed: int) -> int:
        chance = random.Random(seed)
        for _ in range(12):
            act = chance.randrange(5)
            if act == 0:
                assert np.array_equal(model.speak("Hi. You.", **ANY).samples, expected)
                continue
            stream = model.stream("Hi. You.", **ANY)
            if act == 1:
                assert np.array_equal(joined(list(stream)), expected)
            elif act == 2:
                next(stream)
                del stream  # which stops it
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
    assert model.turns.current is None and model.turns._waiting == []
