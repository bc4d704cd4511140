"""Several recordings at once: the results of one at a time, in order; errors, stops, bounds."""

from __future__ import annotations

import threading
import wave
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import oscine
from oscine.errors import AudioError, Cancelled, OscineError, UsageError
from oscine.models import ordered_pool
from oscine.models.ordered_pool import OrderedPool, map_in_order, recordings_at_once

from .test_asynchronous import FOLDERS, GOLDENS, options, running_after, said, sound

DAMAGED = 7


@pytest.fixture(params=FOLDERS)
def model(request: pytest.FixtureRequest) -> Any:
    loaded: Any = oscine.load(GOLDENS / request.param, "cpu")
    loaded.asked = options(request.param)
    return loaded


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Twenty of random lengths up to 3 s, one of which is damaged."""
    random = Random(3)
    made = []
    for number in range(20):
        path = tmp_path / f"{number}.wav"
        samples = np.resize(sound(number), random.randrange(800, 48_000))
        with wave.open(str(path), "wb") as file:
            file.setparams((1, 2, 16_000, 0, "NONE", ""))
            file.writeframes((samples * 32_767).astype("<i2").tobytes())
        made.append(path)
    made[DAMAGED].write_bytes(b"RIFF" + bytes(200))
    return made


def test_results_are_those_of_one_at_a_time(model: Any, files: list[Path]) -> None:
    found = list(model.transcribe_many(files, at_once=4, return_exceptions=True, **model.asked))
    assert len(found) == len(files)
    for number, (path, got) in enumerate(zip(files, found, strict=True)):
        if number == DAMAGED:
            assert isinstance(got, AudioError) and str(path) in str(got)
            continue
        alone = model.transcribe(path, **model.asked)
        assert said(got) == said(alone)
        assert got.duration == alone.duration and got.coverage == alone.coverage
    assert len({round(each.duration, 3) for each in found if each is not found[DAMAGED]}) > 12


def test_an_error_is_raised_in_its_turn_and_stops_the_others(model: Any, files: list[Path]) -> None:
    begun = 0

    def listed() -> Iterator[Path]:
        nonlocal begun
        for path in files:
            begun += 1
            yield path

    results = model.transcribe_many(listed(), at_once=2, **model.asked)
    found = []
    with pytest.raises(AudioError, match=files[DAMAGED].name):
        for transcript in results:
            found.append(said(transcript))
    assert found == [said(model.transcribe(each, **model.asked)) for each in files[:DAMAGED]]
    assert DAMAGED < begun < len(files) and not running_after(20)


def test_whoever_stops_iterating_stops_the_work(model: Any, files: list[Path]) -> None:
    results = model.transcribe_many(files, at_once=3, **model.asked)
    next(results)
    results.close()
    assert not running_after(0)
    stop = threading.Event()
    results = model.transcribe_many(
        files, at_once=3, cancel=stop, return_exceptions=True, **model.asked
    )
    next(results)
    stop.set()
    with pytest.raises(Cancelled):
        list(results)
    assert not running_after(0)


@pytest.mark.parametrize(
    ("recordings", "given", "problem"),
    [
        ("a.wav", {}, "transcribe_many takes an iterable of recordings"),
        (np.zeros(100, np.float32), {}, "transcribe_many takes an iterable of recordings"),
        (3, {}, "transcribe_many takes an iterable of recordings"),
        ([], {"at_once": 0}, "at_once must be a positive integer, not 0"),
        ([], {"at_once": True}, "at_once must be a positive integer"),
        ([], {"cancel": 3}, "cancel must be a threading.Event"),
    ],
)
def test_a_wrong_call_is_refused_at_once(
    model: Any, recordings: Any, given: Any, problem: str
) -> None:
    with pytest.raises(UsageError, match=problem):
        model.transcribe_many(recordings, **given)


def test_a_wrong_option_is_raised_although_errors_are_returned(model: Any) -> None:
    results = model.transcribe_many([sound(0)], return_exceptions=True, no_such_option=1)
    with pytest.raises(UsageError):
        next(results)


def test_each_transcript_has_timings_of_its_own(model: Any) -> None:
    """Together they are not more than the model's."""
    before = dict(model.timings)
    found = list(model.transcribe_many(map(sound, range(8)), at_once=4, **model.asked))
    for stage, spent in model.timings.items():
        booked = sum(transcript.timings.get(stage, 0.0) for transcript in found)
        assert booked == pytest.approx(spent - before.get(stage, 0.0), abs=0.1), stage


# -- the order itself -----------------------------------------------------------------------


def test_never_more_than_so_many_are_under_way_and_results_keep_their_order() -> None:
    lock, under_way, most = threading.Lock(), 0, 0
    random = Random(1)
    delays = [random.uniform(0, 0.01) for _ in range(60)]

    def work(item: int, stop: Callable[[], bool]) -> int:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        threading.Event().wait(delays[item])
        with lock:
            under_way -= 1
        return item

    assert list(map_in_order(OrderedPool(work, 5), range(60))) == list(range(60))
    assert 2 <= most <= 5


def test_a_result_comes_as_soon_as_all_before_it_are_there() -> None:
    go_on = [threading.Event() for _ in range(4)]

    def work(item: int, stop: Callable[[], bool]) -> int:
        assert go_on[item].wait(30)
        return item

    order: OrderedPool[int, int] = OrderedPool(work, 4)
    for item in range(4):
        order.add(item)
    go_on[1].set()
    go_on[3].set()
    assert list(order.results()) == []  # 0 is not there
    go_on[0].set()
    waiting = order.results(wait=True)
    assert [next(waiting), next(waiting)] == [0, 1]
    go_on[2].set()
    assert list(waiting) == [2, 3]


def test_results_that_wait_for_one_before_them_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ordered_pool, "MAX_FINISHED_AHEAD", 6)
    go_on, begun = threading.Event(), []

    def work(item: int, stop: Callable[[], bool]) -> int:
        begun.append(item)
        if item == 0:
            assert go_on.wait(30)
        return item

    def items() -> Iterator[int]:
        for item in range(20):
            if item == 6:
                threading.Timer(0.05, go_on.set).start()
            if item > 6:
                assert go_on.is_set()
            yield item

    assert list(map_in_order(OrderedPool(work, 2), items())) == list(range(20))


def test_stopped_work_ends_early_and_what_is_done_can_be_taken() -> None:
    def work(item: int, stop: Callable[[], bool]) -> str:
        while item and not stop():
            threading.Event().wait(0.001)
        return "stopped" if item else "done"

    order: OrderedPool[int, str] = OrderedPool(work, 3)
    for item in range(3):
        order.add(item)
    order.stop()
    assert list(order.results(wait=True)) == ["done", "stopped", "stopped"]
    assert not running_after(0)


def test_an_error_of_the_recordings_themselves_comes_out() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise OscineError("the list ends here")

    with pytest.raises(OscineError, match="the list ends here"):
        list(map_in_order(OrderedPool(lambda item, stop: item, 2), items()))


@pytest.mark.parametrize(
    ("ahead", "gigabytes", "expected"),
    [
        (False, 64, 1),
        (True, 64, 16),
        (True, 4, 8),
        (True, 0.25, 1),
        (True, None, 8),
    ],
)
def test_how_many_at_once_hangs_on_device_and_memory(
    monkeypatch: pytest.MonkeyPatch, ahead: bool, gigabytes: Any, expected: int
) -> None:
    def told(name: str) -> int:
        if gigabytes is None:
            raise ValueError
        return 4096 if name == "SC_PAGE_SIZE" else int(gigabytes * 2**30 / 4096)

    monkeypatch.setattr(ordered_pool.os, "sysconf", told, raising=False)
    runner = SimpleNamespace(backend=SimpleNamespace(is_async=ahead, preferred_batch=16))
    assert recordings_at_once(runner) == expected
    assert recordings_at_once(SimpleNamespace()) == 1
