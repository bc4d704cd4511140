"""Calls that an event loop awaits: many at once, stopped, failing, at the end of the program."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oscine
from oscine.errors import AudioError, Cancelled, NonFiniteError, UsageError
from oscine.models.asynchronous import AsyncCalls
from oscine.probe import probing

GOLDENS = Path(__file__).resolve().parent.parent / "goldens"
FOLDERS = ("whisper_multi", "parakeet_tdt")
ALL: dict[str, Any] = {"vad_filter": False}


def options(folder: str) -> dict[str, Any]:
    if not folder.startswith("whisper"):
        return ALL
    return ALL | {"language": "de", "temperature": 0.0, "sample_len": 6}


def sound(number: int) -> np.ndarray:
    """Another pitch and length for each number."""
    seconds = np.arange(4_000 * (2 + number % 5), dtype=np.float32) / 16_000
    return 0.2 * np.sin(2 * np.pi * (150 + 40 * number + 300 * seconds) * seconds)


@pytest.fixture(params=FOLDERS)
def call(request: pytest.FixtureRequest) -> Any:
    """The model's `transcribe_async`, and its `transcribe`, with options that suit it."""
    model: Any = oscine.load(GOLDENS / request.param, "cpu")
    given = options(request.param)
    return partial(model.transcribe_async, **given), partial(model.transcribe, **given)


def said(transcript: Any) -> Any:
    """The result without probabilities, whose last digits depend on earlier requests."""
    return transcript.text, [(each.start, each.end, each.tokens) for each in transcript.segments]


def run(main: Any) -> Any:
    """A coroutine in a loop, which must end, and end its threads."""

    async def bounded() -> Any:
        return await asyncio.wait_for(main, 120)

    found = asyncio.run(bounded())
    assert not running_after(20)
    return found


def running_after(seconds: float) -> list[threading.Thread]:
    """Threads of calls that do not end within some seconds."""
    calls = [each for each in threading.enumerate() if each.name == "oscine call"]
    for each in calls:
        each.join(seconds)
    return [each for each in calls if each.is_alive()]


def test_many_tasks_have_the_results_of_blocking_calls(call: Any) -> None:
    awaited, blocking = call
    sounds = [sound(number) for number in range(12)]

    async def main() -> Any:
        return await asyncio.gather(*map(awaited, sounds))

    found = run(main())
    for samples, transcript in zip(sounds, found, strict=True):
        alone = blocking(samples)
        assert said(transcript) == said(alone)
        assert transcript.duration == len(samples) / 16_000


def test_the_loop_goes_on_meanwhile(call: Any) -> None:
    """A call whose thread waits for another task of the event loop."""
    awaited, _ = call
    go_on = threading.Event()

    async def main() -> Any:
        def cancel() -> bool:
            assert go_on.wait(30)
            return False

        task = asyncio.create_task(awaited(sound(0), cancel=cancel))
        await asyncio.sleep(0.01)
        go_on.set()
        return await task

    assert run(main()).duration == 0.5


def test_a_cancelled_task_stops_the_work(call: Any) -> None:
    awaited, blocking = call
    entered, go_on = threading.Event(), threading.Event()
    asked: list[bool] = []

    def cancel() -> bool:
        asked.append(True)
        entered.set()
        assert go_on.wait(30)
        return False

    async def main() -> None:
        task = asyncio.create_task(awaited(sound(0), cancel=cancel))
        await asyncio.to_thread(entered.wait, 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):  # although the work waits for its `cancel`
            await task
        go_on.set()

    run(main())
    assert len(asked) == 1  # once it has stopped nothing else is asked
    assert blocking(sound(1)).duration == 0.75


def test_a_caller_s_own_cancel_still_works(call: Any) -> None:
    awaited, _ = call
    stop = threading.Event()
    stop.set()

    async def main() -> None:
        with pytest.raises(Cancelled) as stopped:
            await awaited(sound(0), cancel=stop)
        assert stopped.value.partial is not None and stopped.value.partial.segments == ()
        with pytest.raises(UsageError, match=r"cancel must be a threading.Event"):
            await awaited(sound(0), cancel=3)

    run(main())


def test_errors_are_those_of_blocking_calls(call: Any) -> None:
    """Each is its own task's, and the others are done."""
    awaited, _ = call
    wrong = np.full(8_000, np.nan, np.float32)

    async def main() -> Any:
        calls = [awaited(sound(0)), awaited(wrong), awaited("missing.wav"),
                 awaited(sound(1), no_such_option=1), awaited(sound(2))]  # fmt: skip
        return await asyncio.gather(*calls, return_exceptions=True)

    found = run(main())
    kinds = [type(each) for each in found[1:4]]
    assert kinds == [NonFiniteError, AudioError, UsageError]
    assert (found[0].duration, found[4].duration) == (0.5, 1.0)


def test_a_probe_of_the_task_looks_into_its_call(call: Any) -> None:
    awaited, _ = call
    stages: dict[str, Any] = {}

    async def main() -> None:
        with probing(stages.__setitem__):
            await awaited(sound(0))

    run(main())
    assert stages


def test_few_calls_are_under_way_and_the_others_wait_without_a_thread() -> None:
    under_way, most = 0, 0
    lock = threading.Lock()

    def work(cancelled: Callable[[], bool]) -> int:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        time.sleep(0.002)
        with lock:
            under_way -= 1
        return under_way

    async def main(calls: AsyncCalls) -> None:
        waiting = [asyncio.create_task(calls.call(work, None)) for _ in range(40)]
        await asyncio.sleep(0)
        waiting[30].cancel()
        found = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(each) for each in found].count(asyncio.CancelledError) == 1

    calls = AsyncCalls(3)
    for _ in range(2):  # in another loop too
        run(main(calls))
        assert 1 <= most <= 3
    assert len(calls._semaphores) == 1


#: A call that takes for ever unless it is stopped, in a loop that ends in several ways.
ENDS = """
import asyncio, sys, threading, time
import numpy as np
import oscine
model = oscine.load(sys.argv[1], "cpu")
entered = threading.Event()

def progress(done, total):
    entered.set()
    time.sleep(0.05)

async def call():
    noise = np.random.default_rng(0).standard_normal(16_000 * 600, dtype=np.float32) / 10
    await model.transcribe_async(noise, progress=progress, **eval(sys.argv[2]))

async def main():
    task = asyncio.create_task(call())
    while not entered.is_set():
        assert not task.done()
        await asyncio.sleep(0.01)
    print("under way", flush=True)
    {end}

{run}
"""
RETURN = ENDS.format(end="return", run="asyncio.run(main())")
#: The loop is left with its task, which is never cancelled.
LEAVE = ENDS.format(end="return", run="asyncio.new_event_loop().run_until_complete(main())")
FAIL = ENDS.format(end="raise SystemExit(3)", run="asyncio.run(main())")


@pytest.mark.parametrize(("program", "code"), [(RETURN, 0), (LEAVE, 0), (FAIL, 3)])
def test_a_program_that_ends_meanwhile_ends_cleanly(program: str, code: int) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", program, str(GOLDENS / "whisper_multi"), str(options("whisper"))],
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stdout) == (code, "under way\n"), ended.stderr
    lines = [line for line in ended.stderr.splitlines() if "destroyed but it is pending" not in line
             and not line.startswith("task:")]  # fmt: skip
    assert lines == []
