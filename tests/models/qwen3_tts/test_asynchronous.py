"""Streams in asyncio: the loop keeps running, cancelled tasks close streams, texts are awaited."""

from __future__ import annotations

import asyncio
import importlib.util
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oscine.errors import Cancelled, UsageError

SPEC = importlib.util.spec_from_file_location("scripted", Path(__file__).with_name("scripted.py"))
assert SPEC is not None and SPEC.loader is not None
SCRIPTED = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(SCRIPTED)
scripted = SCRIPTED.scripted

PARTS = ("Hello the", "re. How ar", "e you? I am", " well.")
VOICE = {"voice": "ryan", "seed": 1}
OURS = {"oscine-stream_0", "oscine call"}  # threads


def good(request: Any, call: int) -> tuple[list[int], str]:
    return [300 + call, 310, 320, 330, 340, 350], "end"


def run(main: Any) -> Any:
    """A coroutine in a loop, which must end, and end its threads."""

    async def bounded() -> Any:
        return await asyncio.wait_for(main, 60)

    found = asyncio.run(bounded())
    assert not [t for t in threading.enumerate() if t.name in OURS and hang(t)]
    return found


def hang(thread: threading.Thread) -> bool:
    thread.join(20)
    return thread.is_alive()


async def written(*parts: str) -> AsyncIterator[str]:
    for part in parts:
        await asyncio.sleep(0)
        yield part


def test_async_for_gives_what_for_gives() -> None:
    async def main() -> list[np.ndarray]:
        stream = scripted(good)[0].stream("One sentence is here. " * 20, **VOICE)
        heard = [audio.samples async for audio in stream]
        assert stream.finish_reason == "end"
        assert [audio async for audio in stream] == []
        return heard

    heard = run(main())
    whole = scripted(good)[0].speak("One sentence is here. " * 20, **VOICE)
    assert np.array_equal(np.concatenate(heard), whole.samples) and len(heard) > 2


def test_an_awaited_text_is_spoken_sentence_by_sentence() -> None:
    model, engine = scripted(good)

    async def main() -> list[np.ndarray]:
        spoken = []

        async def text() -> AsyncIterator[str]:
            async for part in written(*PARTS):
                spoken.append(len(engine.requests))
                yield part

        async with model.stream(text(), **VOICE) as stream:
            heard = [audio.samples async for audio in stream]
        assert spoken == [0, 0, 1, 2]
        return heard

    heard = run(main())
    other = scripted(good)[0].speak(PARTS, **VOICE)
    assert np.array_equal(np.concatenate(heard), other.samples)


def test_the_loop_goes_on_while_audio_is_made() -> None:
    """The engine waits for what another task of the loop does."""
    go_on = threading.Event()

    def waiting(request: Any, call: int) -> tuple[list[int], str]:
        assert go_on.wait(30)
        return good(request, call)

    async def main() -> int:
        stream = scripted(waiting)[0].stream("Hello.", **VOICE)

        async def listen() -> int:
            return len([audio async for audio in stream])

        task = asyncio.create_task(listen())
        await asyncio.sleep(0.01)
        go_on.set()
        return await task

    assert run(main()) > 1


def test_many_streams_wait_for_texts_that_need_the_pool() -> None:
    """More than threads of asyncio's own pool, which the texts themselves work in."""
    model, _ = scripted(good)

    async def text(number: int) -> AsyncIterator[str]:
        yield await asyncio.to_thread(lambda: f"Sentence {number}.")

    async def listen(number: int) -> int:
        return len([audio async for audio in model.stream(text(number), **VOICE)])

    async def main() -> list[int]:
        return await asyncio.gather(*map(listen, range(40)))

    assert len(set(run(main()))) == 1


class InMemory:
    """Speech that waits at a point chosen by a test: for its first audio, or for more text."""

    def __init__(self, waits: str) -> None:
        self.waits = waits
        self.entered, self.go_on, self.ended = threading.Event(), threading.Event(), False

    def answer(self, request: Any, call: int) -> tuple[list[int], str]:
        if call == 1 and self.waits == "audio":
            self.entered.set()
            assert self.go_on.wait(30)
        return good(request, call)

    async def text(self) -> AsyncIterator[str]:
        try:
            yield "Hello there. "
            if self.waits == "text":
                self.entered.set()
                await asyncio.sleep(3600)
            yield "More."
        finally:
            self.ended = True


@pytest.mark.parametrize("waits", ["audio", "text"])
def test_a_cancelled_task_closes_its_stream(waits: str) -> None:
    """While audio is made, and while more text is awaited; the model is free then."""
    held = InMemory(waits)
    model, engine = scripted(held.answer)

    async def main() -> Any:
        stream = model.stream(held.text(), **VOICE)

        async def listen() -> None:
            async for _ in stream:
                pass

        task = asyncio.create_task(listen())
        await asyncio.to_thread(held.entered.wait, 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        held.go_on.set()
        return stream

    stream = run(main())
    assert list(stream) == [] and stream.finish_reason is None and held.ended
    assert model.speak("Hello.", **VOICE).finish_reason == "end"
    assert all(run.stopped for run in engine.runs[:1])


def test_an_error_of_the_text_and_of_the_model_comes_out() -> None:
    async def broken() -> AsyncIterator[str]:
        yield "Hello there. "
        raise RuntimeError("the writer failed")

    async def numbers() -> AsyncIterator[Any]:
        yield 3

    async def main() -> None:
        model, _ = scripted(good)
        with pytest.raises(RuntimeError, match="the writer failed"):
            async for _ in model.stream(broken(), **VOICE):
                pass
        with pytest.raises(UsageError, match="parts of a text must be str, not int"):
            async for _ in model.stream(numbers(), **VOICE):
                pass
        with pytest.raises(UsageError, match="no text to speak"):
            async for _ in model.stream(written(" "), **VOICE):
                pass
        stream = model.stream(written("Hello."), cancel=lambda: True, **VOICE)
        with pytest.raises(Cancelled):
            await anext(stream)

    run(main())


def test_an_awaited_text_needs_its_loop() -> None:
    model, _ = scripted(good)
    with pytest.raises(UsageError, match="needs a running event loop"):
        model.stream(written("Hello."), **VOICE)

    async def main() -> None:
        with pytest.raises(UsageError, match="async for audio in stream"):
            next(model.stream(written("Hello."), **VOICE))
        speech = await asyncio.to_thread(model.stream(written("Hello."), **VOICE).speech)
        assert speech.finish_reason == "end"

    run(main())


def test_leaving_early_closes() -> None:
    model, engine = scripted(good)

    async def main() -> Any:
        async with model.stream(written(*PARTS), **VOICE) as stream:
            async for _ in stream:
                break
        return stream

    stream = run(main())
    assert stream.finish_reason is None and engine.runs[0].stopped


def test_awaited_speech_is_that_of_a_blocking_call() -> None:
    """Several at once, and from a text that is awaited itself."""
    model, _ = scripted(lambda request, call: ([300, 310, 320], "end"))

    async def main() -> Any:
        texts = [f"Sentence {number}." for number in range(8)]
        return await asyncio.gather(
            *(model.speak_async(text, **VOICE) for text in [*texts, written(*PARTS)])
        )

    *found, awaited = run(main())
    whole = model.speak("Sentence 1.", **VOICE)
    assert all(np.array_equal(speech.samples, whole.samples) for speech in found)
    assert np.array_equal(awaited.samples, model.speak(PARTS, **VOICE).samples)


@pytest.mark.parametrize("waits", ["audio", "text"])
def test_a_cancelled_task_stops_its_speech(waits: str) -> None:
    """While audio is made, and while more text is awaited; the model is free then."""
    held = InMemory(waits)
    model, engine = scripted(held.answer)

    async def main() -> None:
        task = asyncio.create_task(model.speak_async(held.text(), **VOICE))
        await asyncio.to_thread(held.entered.wait, 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        held.go_on.set()

    run(main())
    assert held.ended and model.speak("Hello.", **VOICE).finish_reason == "end"
    assert len(engine.requests) == 1 + (waits == "audio")  # the rest of the text is not spoken


def test_errors_and_a_caller_s_own_cancel_end_awaited_speech() -> None:
    model, _ = scripted(good)

    async def main() -> Any:
        calls = [
            model.speak_async("Hello.", **VOICE),
            model.speak_async(" ", **VOICE),
            model.speak_async("Hello.", no_such_option=1, **VOICE),
            model.speak_async("Hello.", cancel=lambda: True, **VOICE),
        ]
        return await asyncio.gather(*calls, return_exceptions=True)

    spoken, *errors = run(main())
    assert spoken.finish_reason == "end"
    assert [type(error) for error in errors] == [UsageError, UsageError, Cancelled]
