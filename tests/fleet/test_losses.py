"""Processes that end: their work begins again elsewhere, and they end with their parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oscine.errors import DeviceError
from oscine.fleet.model import DeliveredItems, Fleet, ReplayBuffer, nearly_equal, open_fleet
from oscine.types import Audio, Segment

from .fleets import OPTIONS, SOUND, WHISPER, busy, kill_busy, soon, two

LONG = np.tile(SOUND, 40)


def alive(number: int) -> bool:
    """Whether a process runs; one that waits to be asked how it ended does not."""
    try:
        state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_work_begins_again_and_goes_on_behind_what_was_delivered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with two(WHISPER) as made:
        fleet: Any = made
        whole = fleet.transcribe(LONG, **OPTIONS).segments
        stream = fleet.stream(LONG, **OPTIONS)
        first = [next(stream) for _ in range(3)]
        kill_busy(fleet)
        assert nearly_equal((*first, *stream), whole) and nearly_equal(
            stream.transcript().segments, whole
        )
        killed: list[bool] = []

        def kill_once(done: float, total: float) -> None:
            if done and not killed:
                killed.append(True)
                kill_busy(fleet, signal.SIGSEGV)

        again = fleet.transcribe(LONG, progress=kill_once, **OPTIONS)
        assert nearly_equal(again.segments, whole) and killed
        lines = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert lines == [
            "cpu: its process ended by signal 9; another takes its work",
            "cpu: its process ended by signal 11; another takes its work",
        ]
        assert soon(lambda: len(fleet.workers.living()) == 2)


def test_work_that_ends_every_process_is_given_up() -> None:
    with open_fleet(["cpu"], str(WHISPER), "f32", offline=True) as made:
        fleet: Any = made
        for attempt in range(2):
            told = (
                "^the work was given up: the process that did it ended by signal 9, "
                "as did one before it"
            )
            told = "^the processes of all devices have ended" if attempt else told
            with pytest.raises(DeviceError, match=told):
                fleet.transcribe(LONG, progress=lambda *_: kill_busy(fleet), **OPTIONS)
        with pytest.raises(DeviceError, match=r"^the processes of all devices have ended"):
            fleet.encode(SOUND)
        assert busy(fleet) == []


def test_what_differs_from_what_was_delivered_is_an_error() -> None:
    def delivered(*items: Any) -> DeliveredItems:
        found = DeliveredItems()
        for item in items:
            found.add(item)
        return found

    def audio(*samples: int) -> Audio:
        return Audio(np.array(samples, np.float32), 24_000)

    words = [Segment(number, 0, 0.0, 1.0, "a", (), 0.0, 0.0, 0.0, 0.0) for number in range(3)]
    nearly = [replace(word, avg_logprob=1e-4) for word in words]
    assert delivered(*words).skip(iter(nearly).__next__) is None
    assert delivered(*words[:2]).skip(iter(words).__next__) is None
    rest = delivered(audio(1, 2), audio(3)).skip(iter([audio(1), audio(2, 3, 4, 5)]).__next__)
    assert rest.samples.tolist() == [4, 5]
    assert delivered().skip(iter([]).__next__) is None
    for before, now in (
        ([words[0]], [words[1]]),
        (words, words[:2]),
        ([words[0]], [replace(words[0], end=1.1)]),
        ([words[0]], [replace(words[0], tokens=(1,))]),
        ([audio(1, 2)], [audio(1), audio(3)]),
    ):
        with pytest.raises(DeviceError, match="its result differs"):
            delivered(*before).skip(iter(now).__next__)


def test_items_are_kept_for_another_beginning_as_far_as_there_is_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = ReplayBuffer(iter("abc"))
    assert [kept.item(place) for place in (0, 1, 0, 1, 2, 3, 0)] == [
        ("a",), ("b",), ("a",), ("b",), ("c",), (), ("a",),
    ]  # fmt: skip
    monkeypatch.setattr("oscine.fleet.model.MAX_REPLAY_BYTES", 100)
    live = ReplayBuffer(iter([np.zeros(20, np.float32)] * 3))
    for place in range(3):
        assert live.item(place)
    assert live.item(3) == ()
    with pytest.raises(DeviceError, match="exceeds the replay buffer"):
        live.item(0)


PARENT = f"""
import sys, time
import numpy as np
sys.path.insert(0, {str(Path(__file__).resolve().parents[2])!r})
from tests.fleet.fleets import LONGEST, OPTIONS, WHISPER, two
fleet = two(WHISPER)
print(*[worker.process.pid for worker in fleet.workers.living()], flush=True)
try:
    fleet.transcribe(LONGEST, progress=lambda *_: print(".", flush=True), **OPTIONS)
except KeyboardInterrupt:
    print("interrupted")
"""


def parent() -> tuple[subprocess.Popen[str], list[int]]:
    """A process with a fleet at work, in a group of its own, and the numbers of its workers."""
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    workers = list(map(int, process.stdout.readline().split()))
    assert len(workers) == 2 and process.stdout.readline() == ".\n"
    return process, workers


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_workers_end_with_a_parent_that_is_killed() -> None:
    process, workers = parent()
    assert all(map(alive, workers))
    process.kill()
    process.communicate()
    assert soon(lambda: not any(map(alive, workers)))


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_ctrl_c_is_for_the_parent_and_no_worker_says_a_word() -> None:
    process, workers = parent()
    os.killpg(process.pid, signal.SIGINT)
    out, error = process.communicate(timeout=60)
    assert out.splitlines()[-1] == "interrupted" and error == "" and process.returncode == 0
    assert soon(lambda: not any(map(alive, workers)))


def test_a_model_that_goes_away_takes_its_processes_with_it() -> None:
    fleet: Fleet = two(WHISPER)
    processes = [worker.process for worker in fleet.workers.living()]
    del fleet
    assert [process.poll() for process in processes] == [-signal.SIGKILL] * 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_says_that_its_model_is_the_parents() -> None:
    code = PARENT.partition("try:")[0] + (
        "import os, oscine.errors\n"
        "stream = fleet.stream(LONGEST, **OPTIONS)\n"
        "if not (child := os.fork()):\n"
        "    try:\n"
        "        fleet.encode(LONGEST)\n"
        "    except oscine.errors.DeviceError as error:\n"
        "        print(error, flush=True)\n"
        "    try:\n"
        "        next(stream)\n"
        "    except oscine.errors.DeviceError as error:\n"
        "        print(error, flush=True)\n"
        "    os._exit(0)\n"
        "os.waitpid(child, 0)\n"
        "print(fleet.encode(LONGEST[:16000]).shape)\n"
        "print(next(stream) is not None)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    _, *told, shape, goes_on = done.stdout.splitlines()
    assert told == ["the processes of all devices have ended; load the model again"] * 2
    assert shape.startswith("(") and goes_on == "True"
