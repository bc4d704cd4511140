"""The engine over a network that counts: whatever runs beside a sequence, its result is its own."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oscine.engine.queue import Queue
from oscine.engine.scheduler import Engine
from oscine.engine.sequence import Caller, EncoderInput, Priority, Sequence
from oscine.errors import (
    BusyError,
    Cancelled,
    DeadlineError,
    DeviceLostError,
    DeviceMemoryError,
    OscineError,
    UsageError,
)
from oscine.probe import current_probe, probing
from tests.engine.by_hand import ByHand, arrivals, check_flat, play
from tests.engine.counting import Count, Counting, Pass, Runner, audio


@settings(max_examples=150, deadline=None)
@given(arrivals(), st.booleans(), st.integers(1, 20), st.integers(3, 12), st.booleans())
def test_a_result_does_not_depend_on_neighbours(
    plan: list[tuple[int, Sequence[int]]], ahead: bool, steps_per_poll: int, most: int, first: bool
) -> None:
    runner = Runner(is_async=ahead, steps_per_poll=steps_per_poll, poll_after_prefill=first)
    engine = ByHand(runner, max_slots=most)
    play(engine, plan)
    for _, sequence in plan:
        assert sequence.result(0) == sequence.alone()  # type: ignore[attr-defined]
        if isinstance(sequence, Count):
            assert sum(sequence.pieces()) == sequence.steps
    assert max(slots for slots, _ in runner.reserved) < 2 * most
    check_flat(engine)


@settings(max_examples=80, deadline=None)
@given(arrivals(), st.booleans(), st.booleans(), st.data())
def test_what_is_delivered_later_is_the_same(
    plan: list[tuple[int, Sequence[int]]], ahead: bool, first: bool, data: st.DataObject
) -> None:
    """An executor hands over behind the next burst; a spent sequence keeps its slot until then."""
    victims = data.draw(st.lists(st.sampled_from([s for _, s in plan]), max_size=2))
    turns = {data.draw(st.integers(0, 20)): victim for victim in victims}
    engine = ByHand(Runner(is_async=ahead, poll_after_prefill=first, delivers=True), max_slots=6)
    play(engine, plan, turns)
    for _, sequence in plan:
        assert sequence.done()
        if sequence not in turns.values():
            assert sequence.result() == sequence.alone()  # type: ignore[attr-defined]
    check_flat(engine)


@pytest.mark.parametrize("lose_after", range(0, 40, 3))
def test_what_is_yet_to_be_delivered_is_not_lost_with_a_device(lose_after: int) -> None:
    runner = Runner(lose_after=lose_after, delivers=True)
    engine = ByHand(runner, rebuild=lambda: Runner(delivers=True))
    counts = [engine.submit(Count(number, 3 + number)) for number in range(4)]
    engine.until_idle()
    assert [count.result() for count in counts] == [count.alone() for count in counts]  # type: ignore[attr-defined]


@settings(max_examples=80, deadline=None)
@given(arrivals(), st.data())
def test_cancelled_sequences_leave_the_others_alone(
    plan: list[tuple[int, Sequence[int]]], data: st.DataObject
) -> None:
    victims = data.draw(st.lists(st.sampled_from([s for _, s in plan]), max_size=4))
    turns = {data.draw(st.integers(0, 20)): victim for victim in victims}
    engine = ByHand(Runner(), max_slots=data.draw(st.integers(3, 8)))
    play(engine, plan, turns)
    for _, sequence in plan:
        assert sequence.done()
        if sequence not in turns.values():
            assert sequence.result() == sequence.alone()  # type: ignore[attr-defined]
    check_flat(engine)


@settings(max_examples=80, deadline=None)
@given(arrivals(), st.integers(0, 60))
def test_a_lost_device_loses_nothing(
    plan: list[tuple[int, Sequence[int]]], lose_after: int
) -> None:
    engine = ByHand(Runner(lose_after=lose_after), rebuild=Runner, max_slots=6)
    play(engine, plan)
    for _, sequence in plan:
        assert sequence.result() == sequence.alone()  # type: ignore[attr-defined]
    check_flat(engine)


@settings(max_examples=60, deadline=None)
@given(arrivals(), st.integers(3, 6))
def test_where_memory_ends_fewer_run_and_none_is_lost(
    plan: list[tuple[int, Sequence[int]]], room: int
) -> None:
    engine = ByHand(Runner(room=room))
    play(engine, plan)
    for _, sequence in plan:
        assert sequence.result() == sequence.alone()  # type: ignore[attr-defined]
    assert engine.max_slots <= room or engine._slots.count <= room
    check_flat(engine)


@settings(max_examples=40, deadline=None)
@given(arrivals(), st.integers(3, 8))
def test_with_one_bucket_nothing_is_computed_in_other_company(
    plan: list[tuple[int, Sequence[int]]], most: int
) -> None:
    """Prompts and encoder inputs run one by one, and every step has the same rows."""
    runner, sizes = Runner(encode_batch=3), set()
    engine = ByHand(runner, max_slots=most)
    engine.fix_rows(most)
    encode, executor_of = runner.encode, runner.executor

    def encoding(inputs: list[EncoderInput], encoder_slots: list[int]) -> None:
        sizes.add(("encode", len(inputs)))
        encode(inputs, encoder_slots)

    def watched(key: Any) -> Any:
        executor = executor_of(key)
        start, step = type(executor).start, type(executor).step_plan
        executor.start = lambda entries: (
            sizes.add(("start", len(entries))),
            start(executor, entries),
        )
        executor.step_plan = lambda rows, entries: (
            sizes.add(("step", rows, executor.group_size)),
            step(executor, rows, entries),
        )[1]
        return executor

    runner.encode, runner.executor = encoding, watched  # type: ignore[method-assign]
    play(engine, plan)
    for _, sequence in plan:
        assert sequence.result(0) == sequence.alone()  # type: ignore[attr-defined]
    steps = {("step", most // width * width, width) for width in (1, 2, 3)}
    assert sizes <= {("encode", 1), ("start", 1), *steps}


FAULTS = [
    DeviceLostError("counting", "a test"),
    DeviceMemoryError("counting", "a test"),
    OscineError("broken"),
    SystemExit(1),  # as a probe may raise
]


@settings(max_examples=250, deadline=None)
@given(arrivals(), st.sampled_from(FAULTS), st.integers(1, 60), st.integers(0, 3), st.data())
def test_a_fault_at_any_moment_leaves_no_caller_waiting_and_nothing_behind(
    plan: list[tuple[int, Sequence[int]]],
    fault: BaseException,
    first: int,
    more: int,
    data: st.DataObject,
) -> None:
    """Also where what the fault sets in motion fails in turn, such as stopping the rows."""
    victims = data.draw(st.lists(st.sampled_from([s for _, s in plan]), max_size=2))
    turns = {data.draw(st.integers(0, 20)): victim for victim in victims}
    engine = ByHand(Runner(), rebuild=Runner, max_slots=6)
    device = engine.runner.device_
    second = data.draw(st.sampled_from(FAULTS[:3]))
    device.faults = {first: fault} | {first + 1 + number: second for number in range(more)}
    play(engine, plan, turns)
    for _, sequence in plan:
        assert sequence.done()
        if sequence not in turns.values() and sequence.exception() is None:
            assert sequence.result() == sequence.alone()  # type: ignore[attr-defined]
        elif sequence not in turns.values():
            assert type(sequence.exception()) in (type(fault), type(second), DeviceLostError)
    device.faults.clear()
    after = [engine.submit(Count(number, 9, audio(number), 2)) for number in range(3)]
    engine.until_idle()
    assert [each.result() for each in after] == [each.alone() for each in after]  # type: ignore[attr-defined]
    check_flat(engine)


def test_an_input_of_a_cancelled_sequence_is_encoded_for_the_next() -> None:
    """Also where it had run before, on a device that was lost: it waits, and cannot be admitted."""
    engine = ByHand(Runner(), rebuild=Runner)
    sound = audio(1)
    first = engine.submit(Count(1, 20, sound))
    engine.run_iteration()
    engine.runner.device_.faults = {engine.runner.device_.submits + 1: FAULTS[0]}
    engine.run_iteration()
    first.cancel()
    engine.run_iteration()
    after = Pass(2, sound)
    engine.submit(after)
    engine.until_idle()
    assert first.done() and after.result() == after.alone()
    check_flat(engine)


@pytest.mark.parametrize("fault", FAULTS, ids=repr)
def test_rows_that_were_moved_run_no_more_also_after_a_fault(fault: BaseException) -> None:
    engine = ByHand(Runner(), rebuild=Runner)
    device = engine.runner.device_
    short, long = Count(1, 5), Count(2, 60)
    engine.submit(short)
    engine.submit(long)
    stop_rows = engine.runner.executor(("count", 1)).stop_rows

    def fail_once(rows: Any) -> None:
        device.faults = {device.submits + 1: fault}
        stop_rows(rows)

    engine.runner.executor(("count", 1)).stop_rows = fail_once
    engine.until_idle()
    assert short.result() == short.alone() and long.result() == long.alone()
    check_flat(engine)


def test_less_room_than_one_sequence_needs_is_its_error_alone() -> None:
    engine = ByHand(Runner(room=2))
    wide, narrow = Count(1, 5, rows=3), Count(2, 5)
    engine.submit(wide)
    engine.submit(narrow)
    engine.until_idle()
    with pytest.raises(DeviceMemoryError):
        wide.result()
    assert narrow.result() == narrow.alone()


@pytest.mark.parametrize("rows", [1, 3, 5])
def test_a_sequence_that_never_starts_for_want_of_memory_ends_with_that_error(
    monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    engine = ByHand(Runner())

    def start(self: Counting, entries: list[Any]) -> None:
        raise DeviceMemoryError("counting", "a test")

    with monkeypatch.context() as patch:
        patch.setattr(Counting, "start", start)
        alone = engine.submit(Count(1, 5, rows=rows))
        engine.until_idle()
    with pytest.raises(DeviceMemoryError):
        alone.result()
    after = engine.submit(Count(2, 5, rows=rows))
    engine.until_idle()
    assert after.result() == after.alone()  # type: ignore[attr-defined]
    check_flat(engine)


class Places(Runner):
    """All encoder slots are as large as the longest sequence so far; 8 steps fit in all of them."""

    longest = 1

    def reserve(self, slots: int, encoder_slots: int, sequence: Sequence[Any]) -> None:
        assert isinstance(sequence, Count)
        longest = max(self.longest, sequence.steps)
        if encoder_slots * longest > 8:
            raise DeviceMemoryError(
                self.device, f"no room for {encoder_slots} encoder slots of {longest}"
            )
        super().reserve(slots, encoder_slots, sequence)
        self.longest = longest


def test_memory_that_nothing_uses_is_given_back_before_a_sequence_is_refused() -> None:
    engine, kept = ByHand(Places()), [audio(number) for number in range(4)]
    first = [Count(number, 1, given) for number, given in enumerate(kept)]
    for sequence in first:
        engine.submit(sequence)
    engine.until_idle()
    assert engine._cache.count == 4
    long, after, longer = Count(9, 8, kept[0]), Count(5, 1, kept[1]), Count(1, 9, kept[2])
    for sequence in (long, after):
        engine.submit(sequence)
        engine.until_idle()
        assert engine._cache.count == 1
    for sequence in (*first, long, after):
        assert sequence.result() == sequence.alone()
    engine.submit(longer)
    engine.until_idle()
    with pytest.raises(DeviceMemoryError, match="1 encoder slots of 9"):
        longer.result()


def test_a_device_lost_again_and_again_ends_with_the_error() -> None:
    engine = ByHand(Runner(lose_after=3), rebuild=lambda: Runner(lose_after=3))
    sequence = Count(1, 50)
    engine.submit(sequence)
    engine.until_idle()
    with pytest.raises(DeviceLostError):
        sequence.result()
    check_flat(engine)


def test_an_input_is_encoded_once_for_many_sequences() -> None:
    engine, heard = ByHand(Runner()), audio(5)
    sequences = [Count(1, 9, heard), Count(2, 3, heard), Pass(4, heard)]
    for sequence in sequences:
        engine.submit(sequence)
        engine.until_idle()
    assert engine.runner.encoded == [0]
    assert [s.result() for s in sequences] == [s.alone() for s in sequences]  # type: ignore[attr-defined]


def test_inputs_are_encoded_side_by_side_and_kept_as_long_as_there_is_room() -> None:
    engine = ByHand(Runner(encode_batch=2), max_slots=2)
    first, second, third = (audio(number) for number in range(3))
    for heard in (first, second):
        engine.submit(Count(1, 4, heard))
    engine.until_idle()
    assert engine.runner.encoded == [0, 1]
    engine.submit(Count(1, 4, third))
    engine.until_idle()
    assert engine.runner.encoded == [0, 1, 0], "the one used longest ago makes room"
    engine.submit(Count(1, 4, second))
    engine.until_idle()
    assert engine.runner.encoded == [0, 1, 0]


@pytest.mark.parametrize("priority", [Priority.LIVE, Priority.BULK])
def test_few_inputs_are_encoded_at_once_while_a_live_caller_waits(priority: Priority) -> None:
    engine, passes = ByHand(Runner(encode_batch=8)), []
    encode = engine.runner.encode

    def counted(inputs: list[EncoderInput], encoder_slots: list[int]) -> None:
        passes.append(len(inputs))
        encode(inputs, encoder_slots)

    engine.runner.encode = counted  # type: ignore[method-assign]
    engine.submit(Count(0, 9), Caller(priority))
    bulk = [Count(number, 5, audio(number)) for number in range(8)]
    for sequence in bulk:
        engine.submit(sequence, Caller(Priority.BULK))
    engine.until_idle()
    assert passes == ([4, 4] if priority == Priority.LIVE else [8])
    assert [each.result() for each in bulk] == [each.alone() for each in bulk]


def test_few_inputs_are_encoded_at_once_while_another_model_has_work() -> None:
    engine = ByHand(Runner(encode_batch=8))
    engine.is_shared = True
    inputs = [audio(number) for number in range(8)]
    for number, given_input in enumerate(inputs):
        engine.submit(Pass(number, given_input))
    engine.run_iteration()
    assert engine.runner.encoded == [0, 1, 2, 3]


def test_callers_share_bursts_and_the_engine_counts_it() -> None:
    engine = ByHand(Runner())
    for number in range(4):
        sequence = Count(number, 30)
        sequence.caller = Caller()
        engine.submit(sequence)
    engine.until_idle()
    assert engine.occupancy.max_sequences == 4
    assert engine.occupancy.multi_caller_bursts > 5
    assert engine.occupancy.mean > 3


def test_time_is_booked_to_the_caller_that_it_was_for() -> None:
    engine, caller = ByHand(Runner()), Caller()
    engine.submit(Count(1, 9, audio(1)), caller)
    engine.submit(Count(1, 9))
    engine.until_idle()
    assert set(caller.timings) == {"encode", "count"}
    assert 0 < caller.timings["count"] < engine.runner.timings["count"]


def test_turns_go_round_callers_and_live_ones_first() -> None:
    queue = Queue()
    bulk, one, other, live = (
        Caller(Priority.BULK), Caller(), Caller(), Caller(Priority.LIVE),
    )  # fmt: skip
    for caller, count in ((bulk, 2), (one, 3), (other, 1), (live, 1)):
        for number in range(count):
            sequence = Count(number, 1)
            sequence.bind(caller, lambda: None)
            queue.add(sequence)
    order = []
    while (head := queue.head()) is not None:
        queue.take(head)
        order.append((head.caller, head.number))  # type: ignore[attr-defined]
    assert order == [(live, 0), (one, 0), (other, 0), (one, 1), (one, 2), (bulk, 0), (bulk, 1)]


def test_none_starves() -> None:
    queue, old = Queue(), Count(1, 1)
    old.bind(Caller(Priority.BULK), lambda: None)
    old.submitted -= 60
    queue.add(old)
    new = Count(2, 1)
    new.bind(Caller(Priority.LIVE), lambda: None)
    queue.add(new)
    assert queue.head() is old


def test_a_full_queue_refuses_at_once() -> None:
    engine = ByHand(Runner(), max_waiting=2)
    engine.submit(Count(1, 1))
    engine.submit(Count(1, 1))
    with pytest.raises(BusyError, match="2 sequences wait"):
        engine.submit(Count(1, 1))
    engine.until_idle()
    engine.submit(Count(1, 1))


def test_what_cannot_be_computed_is_refused_before_it_waits() -> None:
    engine = ByHand(Runner())
    with pytest.raises(UsageError, match="fewer than no steps"):
        engine.submit(Count(1, -1))
    assert not engine.has_work


@pytest.mark.parametrize("turns", [0, 2])
def test_a_deadline_ends_what_waits_and_what_runs(turns: int) -> None:
    engine = ByHand(Runner())
    late, other = Count(1, 100), Count(2, 100)
    engine.submit(late)
    engine.submit(other)
    for _ in range(turns):
        engine.run_iteration()
    late.deadline = time.monotonic() - 1
    engine.until_idle()
    with pytest.raises(DeadlineError):
        late.result()
    assert other.result() == other.alone()
    check_flat(engine)


def test_a_looked_at_sequence_runs_alone_and_in_its_callers_context() -> None:
    engine = ByHand(Runner())
    seen: list[object] = []
    step = engine._step_batch
    engine._step_batch = lambda *a: (seen.append((current_probe(), engine.running)), step(*a))  # type: ignore
    first, last = Count(1, 9), Count(3, 9)
    engine.submit(first)
    with probing(probe := lambda name, values: None):
        looked = engine.submit(Count(2, 9))
        engine.submit(last)
        engine.until_idle()
    assert (probe, 1) in seen
    assert all(running <= 1 for shown, running in seen if shown is not None)
    assert [s.result() for s in (first, looked, last)] == [s.alone() for s in (first, looked, last)]  # type: ignore


# -- with the thread ----------------------------------------------------------------------------


@pytest.fixture
def engine() -> Iterator[Engine[Runner]]:
    engine = Engine(Runner(name=f"counting {time.monotonic()}"))
    yield engine
    engine._device_thread.close()


def test_many_threads_get_their_own_results(engine: Engine[Runner]) -> None:
    wrong: list[object] = []

    def work(number: int) -> None:
        for turn in range(20):
            sequence = Count(number * 100 + turn, (number * 7 + turn) % 40, audio(number))
            if engine.submit(sequence).wait() != sequence.alone():
                wrong.append(sequence)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert engine.occupancy.multi_caller_bursts > 0


def test_a_call_has_the_runner_to_itself_and_its_errors_are_its_own(
    engine: Engine[Runner],
) -> None:
    running = engine.submit(Count(1, 500))
    assert engine.call(lambda runner: runner.device) == engine.runner.device
    with pytest.raises(ZeroDivisionError):
        engine.call(lambda runner: 1 // 0)
    assert running.wait() == running.alone()  # type: ignore[attr-defined]


def test_without_threads_work_is_done_where_it_is_submitted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    engine = Engine(Runner(name="counting alone"))
    sequence = Count(1, 20, audio(2))
    assert engine.submit(sequence).done()
    assert sequence.result() == sequence.alone()
    assert engine.call(lambda runner: runner.device) == "counting alone"


def test_a_fault_of_the_engine_itself_leaves_no_caller_waiting(
    engine: Engine[Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_select", lambda *_: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        engine.submit(Count(1, 5)).wait()
    monkeypatch.undo()
    sequence = Count(1, 5)
    assert engine.submit(sequence).wait() == sequence.alone()


def test_work_on_the_device_cannot_wait_for_itself(engine: Engine[Runner]) -> None:
    with pytest.raises(UsageError, match="from within its own work"):
        engine.call(lambda runner: engine.submit(Count(1, 1)))


def test_check_is_asked_while_a_caller_waits_and_cancels(engine: Engine[Runner]) -> None:
    asked: list[int] = []

    def check() -> None:
        asked.append(1)
        if len(asked) == 3:
            raise Cancelled("enough")

    sequence = engine.submit(Count(1, 10**9))
    with pytest.raises(Cancelled, match="enough"):
        sequence.wait(check)
    other = engine.submit(Count(2, 5))
    assert other.wait() == other.alone()  # type: ignore[attr-defined]
    assert sequence.done()


def test_a_caller_that_stops_iterating_frees_its_slot(engine: Engine[Runner]) -> None:
    sequence = Count(1, 10**9)
    engine.submit(sequence)
    for _piece in sequence.pieces():
        break
    engine.submit(Count(1, 1)).wait()
    assert engine.running == 0


def test_an_error_of_a_step_ends_its_batch_and_the_engine_goes_on(
    engine: Engine[Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = engine.runner.executor(("count", 1))
    monkeypatch.setattr(
        executor, "collect", lambda *_: (_ for _ in ()).throw(OscineError("broken"))
    )
    sequence = engine.submit(Count(1, 5))
    with pytest.raises(OscineError, match="broken"):
        sequence.wait()
    monkeypatch.undo()
    again = engine.submit(Count(1, 5))
    assert again.wait() == again.alone()  # type: ignore[attr-defined]


def test_idle_engines_give_memory_back_and_go_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oscine.engine.device_thread.IDLE_TIMEOUT_S", 0.05)
    engine = Engine(Runner(name="counting idle"))
    for sequence in [engine.submit(Count(number, 9, audio(number))) for number in range(6)]:
        sequence.wait()
    deadline = time.monotonic() + 10
    while engine._device_thread._thread is not None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert engine._device_thread._thread is None
    assert len(engine.runner.numbers) == 1
    sequence = Count(3, 9, audio(3))
    assert engine.submit(sequence).wait() == sequence.alone()
    runner = __import__("weakref").ref(engine.runner)
    while engine._device_thread._thread is not None and time.monotonic() < deadline:
        time.sleep(0.01)
    del engine
    gc.collect()
    assert runner() is None


def test_encoder_inputs_of_no_holder_make_room_first() -> None:
    from oscine.engine.slots import EncoderCache

    cache = EncoderCache(2)
    kept, dropped = audio(1), audio(2)
    for heard in (dropped, kept):
        claimed = cache.acquire(heard)
        assert claimed is not None
        cache.release(claimed[0])
    slot = cache.find(dropped)
    del heard, dropped
    gc.collect()
    new: EncoderInput = audio(3)
    assert cache.acquire(new) == (slot, False)
    assert cache.contains(kept)
