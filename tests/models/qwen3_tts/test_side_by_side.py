"""Calls and streams side by side in any threads, left alone, closed, failed, slow.

Every thread here is a daemon and is joined with a timeout, so that a hang is a failure.
"""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oscine.errors import Cancelled, DeviceError, DeviceLostError, NonFiniteError, UsageError
from oscine.models.qwen3_tts import codec_batching, sequences, stream
from oscine.models.qwen3_tts.pipeline import Qwen3Tts
from oscine.models.qwen3_tts.stream import SpeechStream

SPEC = importlib.util.spec_from_file_location("scripted", Path(__file__).with_name("scripted.py"))
assert SPEC is not None and SPEC.loader is not None
SCRIPTED = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(SCRIPTED)

LIMIT = 20.0  # seconds that no test comes near
ANY = {"voice": "ryan", "seed": 1}


ENDLESS = [300 + (37 * i) % 600 for i in range(4000)]
TEXT = "This is the first sentence.\n\nHere the second one is.\n\nAnd a third. " * 2


def frames(request: Any) -> list[int]:
    """First codes that depend on the text and the seed."""
    text = round(float(np.abs(request.prompt.trailing_text).sum())) + len(
        request.prompt.trailing_text
    )
    return [300 + (41 * i + 7 * text + 13 * request.seed) % 600 for i in range(9)]


@pytest.fixture
def model() -> Qwen3Tts:
    """A model with nine frames for each piece of text: three pieces of audio."""
    made, _ = SCRIPTED.scripted(lambda request, call: (frames(request), "end"))
    return made  # type: ignore[no-any-return]


Held = tuple[threading.Event, threading.Event]


@pytest.fixture
def held(model: Qwen3Tts) -> Held:
    """Each request signals that it has begun (first), and waits to continue (second)."""
    entered, go_on = threading.Event(), threading.Event()
    admit = model.runner.talker.admit

    def slow(voices: Any) -> None:
        entered.set()
        assert go_on.wait(LIMIT)
        admit(voices)

    model.runner.talker.admit = slow  # type: ignore[method-assign]
    return entered, go_on


class Started:
    """Work in another thread; `result` waits for its result or error."""

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


def is_idle(model: Qwen3Tts) -> bool:
    """Whether all slots are free, which a caller that gives up does not wait for."""
    left = time.monotonic() + LIMIT
    while model.engine.running or model.engine.waiting or model.runner.codec.slots:  # type: ignore[attr-defined]
        if time.monotonic() > left:
            return False
        time.sleep(0.001)
    return not model.runner.utterance_executor.voices


def speak(model: Qwen3Tts) -> str:
    return model.speak("Hi.", **ANY).finish_reason


def joined(pieces: list[Any]) -> np.ndarray:
    return np.concatenate([audio.samples for audio in pieces])


def alone(model: Qwen3Tts, seed: int, text: str = TEXT) -> np.ndarray:
    """The audio of a call that runs alone."""
    return joined(list(model.stream(text, voice="ryan", seed=seed)))


def stream_of(model: Qwen3Tts, seed: int, text: str = TEXT) -> SpeechStream:
    return model.stream(text, voice="ryan", seed=seed)


# -- streams side by side -------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_streams_of_a_pool_say_what_each_says_alone(model: Qwen3Tts, workers: int) -> None:
    """Web frameworks iterate so: any worker requests the next piece of any stream."""
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
    assert is_idle(model)


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


def test_streams_speak_side_by_side(model: Qwen3Tts, held: Held) -> None:
    """Those that wait while others are begun run in one batch, and their frames in one call."""
    entered, go_on = held
    calls = [Started(lambda: list(stream_of(model, 0, "One.")))]
    assert entered.wait(LIMIT)
    for index in range(1, 9):
        calls.append(Started(lambda i=index: list(stream_of(model, i, "Hi."))))  # type: ignore[misc]
    while model.engine.waiting < 8:
        assert calls[-1].waits()
    go_on.set()
    assert [len(call.result()) for call in calls] == [3] * 9
    occupancy = model.engine.occupancy
    assert occupancy.max_sequences >= 8 and occupancy.mean > 1 and occupancy.multi_caller_bursts
    assert (8, 1) in model.runner.codec.calls  # type: ignore[attr-defined]


def test_pieces_of_a_text_are_spoken_at_once_where_the_whole_is_wanted(model: Qwen3Tts) -> None:
    text = "\n\n".join(f"This is sentence {number} of them all." for number in range(40))
    streamed = alone(model, 1, text)
    assert model.engine.occupancy.max_sequences == 1
    for speech in (model.speak(text, **ANY), stream_of(model, 1, text).speech()):
        assert np.array_equal(speech.samples, streamed) and speech.pieces == 40
    assert model.engine.occupancy.max_sequences == stream.MAX_CONCURRENT_PIECES
    model.engine.occupancy.max_sequences = 0
    limited = model.speak(text, max_seconds=20, **ANY)  # of which the later pieces depend on others
    assert np.array_equal(limited.samples, streamed[: len(limited.samples)])
    assert model.engine.occupancy.max_sequences == 1


def test_a_whole_text_that_is_cancelled_stops_all_of_its_pieces(model: Qwen3Tts) -> None:
    text = "\n\n".join(f"This is sentence {number} of them all." for number in range(40))
    asked: list[int] = []
    with pytest.raises(Cancelled):
        model.speak(text, cancel=lambda: asked.append(1) or len(asked) > 5, **ANY)
    assert is_idle(model)


def test_calls_grow_with_what_was_handed_over() -> None:
    """One frame, then four, then up to twelve: at most a quarter of the delivered frames."""
    model, engine = SCRIPTED.scripted(
        lambda request, call: ([300 + (37 * i) % 600 for i in range(200)], "end")
    )
    given = {"guard": False, **ANY}
    heard = [len(audio.samples) // SCRIPTED.HOP_LENGTH for audio in model.stream("Hello.", **given)]
    assert heard[:9] == [1, 4, 4, 4, 4, 4, 4, 4, 4] and sum(heard) == 200
    assert set(heard[:-1]) == {1, 4, 8, 12}
    for number, size in enumerate(heard[1:], 1):
        assert size <= max(4, sum(heard[:number]) // 4)
    assert {frames for _, frames in engine.codec.calls[:-1]} == {1, 4, 8, 12}
    calls, engine.codec.calls = engine.codec.calls, []
    model.speak("Hello.", **given)
    assert engine.codec.calls == calls


# -- slow readers ---------------------------------------------------------------------------------


def test_a_slow_reader_gives_up_its_slot_and_loses_nothing(
    model: Qwen3Tts, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = alone(model, 1, "Hello.")
    monkeypatch.setattr(codec_batching, "MAX_BUFFERED_S", 0.3)
    monkeypatch.setattr(sequences, "MIN_BUFFERED_S", 0.0)
    monkeypatch.setattr("oscine.models.qwen3_tts.generation.MIN_BUFFERED_S", 0.1)
    slow = stream_of(model, 1, "Hello.")
    heard = [next(slow)]
    assert is_idle(model)  # it is parked: 0.4 s of audio wait
    assert speak(model) == "end"
    requests = len(model.runner.requests)  # type: ignore[attr-defined]
    heard += slow
    assert len(model.runner.requests) > requests  # type: ignore[attr-defined]
    assert np.array_equal(joined(heard), expected) and slow.finish_reason == "end"
    other = stream_of(model, 1, "Hello.")
    next(other)
    assert is_idle(model)
    other.close()
    assert list(other) == [] and is_idle(model)


def test_a_slow_reader_whose_voice_says_something_else_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, _ = SCRIPTED.scripted(
        lambda request, call: ([300 + call + 10 * i for i in range(20)], "end")
    )
    monkeypatch.setattr(codec_batching, "MAX_BUFFERED_S", 0.3)
    slow = model.stream("Hello.", **ANY)
    next(slow)
    assert is_idle(model)
    with pytest.raises(DeviceError, match="differs from the audio before"):
        list(slow)
    assert is_idle(model)


def test_readers_of_many_speeds_hear_the_same(
    model: Qwen3Tts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(codec_batching, "MAX_BUFFERED_S", 0.3)
    expected = [alone(model, seed) for seed in range(6)]
    streams = [stream_of(model, seed) for seed in range(6)]
    heard: list[list[Any]] = [[] for _ in streams]
    chance = random.Random(0)
    left = list(range(6))
    while left:
        number = chance.choice(left)
        audio = next(streams[number], None)
        heard[number].append(audio) if audio is not None else left.remove(number)
    assert all(np.array_equal(joined(h), e) for h, e in zip(heard, expected, strict=True))
    assert is_idle(model)


# -- left alone, closed, cancelled ----------------------------------------------------------------


def test_a_stream_that_is_left_alone_is_not_waited_for(model: Qwen3Tts) -> None:
    """Its thread has ended, or does something else; it loses nothing."""
    for ended in (True, False):
        stream = stream_of(model, 1)
        heard = [Started(lambda: next(stream)).result() if ended else next(stream)]  # noqa: B023
        assert Started(lambda: speak(model)).result() == "end"
        assert speak(model) == "end"
        assert np.array_equal(joined(heard + list(stream)), alone(model, 1))


def test_a_stream_that_goes_away_stops() -> None:
    model, engine = SCRIPTED.scripted(lambda request, call: (ENDLESS, "end"))
    for leave in (lambda stream: stream.close(), lambda stream: None):
        stream = model.stream("Hello.", voice="ryan", guard=False)
        next(stream)
        leave(stream)
        del stream
        assert is_idle(model)
        assert engine.runs[-1].seen_frames < 1000  # not computed to its end for nothing
    assert model.speak("Hello.", max_frames=3, **ANY).duration == 0.24


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
    assert len(first.result()) == 3 and is_idle(model)


def test_two_threads_at_once(model: Qwen3Tts) -> None:
    going, more = threading.Event(), threading.Event()

    def writer() -> Iterator[str]:
        going.set()
        assert more.wait(LIMIT)
        yield "Hello."

    stream = model.stream(writer(), **ANY)
    first = Started(lambda: list(stream))
    assert going.wait(LIMIT)
    with pytest.raises(UsageError, match="already being iterated over"):
        next(stream)
    assert speak(model) == "end"  # a text that is waited for holds up no other
    more.set()
    assert len(first.result()) == 3


# -- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("frame", [0, 1, 5])
def test_an_error_is_told_to_its_own_caller(model: Qwen3Tts, frame: int) -> None:
    """Others in the same batch continue."""
    expected = alone(model, 1, "Hello.")
    read = model.runner.utterance_executor.read_frames

    def failing(voice: Any, state: Any, codes: Any) -> None:
        if voice.utterance.request.seed == 7 and voice.num_read >= frame:
            raise NonFiniteError("on purpose")
        read(voice, state, codes)

    model.runner.utterance_executor.read_frames = failing  # type: ignore[method-assign]
    first, broken = stream_of(model, 1, "Hello."), stream_of(model, 7, "Hello.")
    heard = [next(first)]
    with pytest.raises(NonFiniteError, match="on purpose"):
        list(broken)
    with pytest.raises(UsageError, match="ended with an error"):
        next(broken)
    assert np.array_equal(joined(heard + list(first)), expected)
    assert speak(model) == "end" and is_idle(model)


@pytest.mark.parametrize("lose_at", [1, 5, 8])
def test_a_device_that_is_lost_under_several(model: Qwen3Tts, lose_at: int) -> None:
    """All streams continue, or end with the loss if there is no other device."""
    expected = [alone(model, seed) for seed in range(4)]
    streams = [stream_of(model, seed) for seed in range(4)]
    heard = [[next(stream)] for stream in streams[:2]]
    heard += [[], []]
    model.runner.lose_at = lose_at  # type: ignore[attr-defined]
    waiting = [Started(lambda stream=stream: list(stream)) for stream in streams]  # type: ignore[misc]
    for parts, one in zip(heard, waiting, strict=True):
        parts += one.result()
    assert all(np.array_equal(joined(h), e) for h, e in zip(heard, expected, strict=True))
    model.runner.lose_at, model.engine._rebuild = lose_at, None  # type: ignore[attr-defined]
    with pytest.raises(DeviceLostError):
        list(stream_of(model, 2))


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

    model.runner.lose_at = 1  # type: ignore[attr-defined]
    logger, handler = logging.getLogger("oscine.engine.scheduler"), Speaks()
    logger.addHandler(handler)
    try:
        assert Started(lambda: speak(model)).result() == "end"
    finally:
        logger.removeHandler(handler)
    assert len(refused) == 1 and is_idle(model)


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
    assert is_idle(model) and speak(model) == "end"


def test_many_threads_that_do_as_they_please(model: Qwen3Tts) -> None:
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
    assert is_idle(model)
