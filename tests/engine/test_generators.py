"""Requests as generators: results in order, errors in their turn, nothing left open."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oscine.engine.generators import SequenceGenerator, run, run_concurrently
from oscine.engine.sequence import Sequence


class Echo(Sequence[int]):
    """Its result is a number; below zero it fails with it."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


class Later:
    """Computes what waits in an order of its own, one at each call of `check`."""

    def __init__(self, order: list[int] | None = None) -> None:
        self.order = order or []
        self.waiting: list[Echo] = []
        self.submitted: list[Echo] = []
        self.checks = 0

    def submit(self, sequence: Sequence[Any]) -> None:
        assert isinstance(sequence, Echo)
        self.waiting.append(sequence)
        self.submitted.append(sequence)

    def check(self) -> None:
        self.checks += 1
        at = self.order.pop() if self.order else 0
        sequence = self.waiting.pop(at % len(self.waiting))
        if sequence.number < 0:
            sequence.fail(ArithmeticError(str(sequence.number)))
        else:
            sequence.finish(sequence.number)


def added(numbers: list[int], log: list[str] | None = None) -> SequenceGenerator[int]:
    """The sum of what the sequences return."""
    total = 0
    try:
        for number in numbers:
            total += yield Echo(number)
    finally:
        if log is not None:
            log.append("closed")
    return total


def test_one_after_another() -> None:
    engine = Later()
    assert run(engine.submit, added([1, 2, 3]), engine.check) == 6
    assert engine.checks == 3
    assert run(engine.submit, added([]), engine.check) == 0


def test_steps_take_the_steps_of_a_part() -> None:
    def whole() -> SequenceGenerator[list[int]]:
        first = yield from added([1, 2])
        second = yield Echo(first)
        return [first, second]

    engine = Later()
    assert run(engine.submit, whole(), engine.check) == [3, 3]


@given(
    many=st.lists(st.lists(st.integers(0, 9), max_size=4), max_size=12),
    most=st.integers(1, 5),
    order=st.lists(st.integers(0, 99), max_size=60),
)
def test_results_are_in_order_and_at_most_so_many_are_open(
    many: list[list[int]], most: int, order: list[int]
) -> None:
    engine, begun, ended = Later(order), 0, 0

    def steps(numbers: list[int]) -> SequenceGenerator[int]:
        nonlocal begun, ended
        begun += 1
        assert begun - ended <= most
        total = yield from added(numbers)
        ended += 1
        return total

    results = run_concurrently(engine.submit, map(steps, many), most, engine.check)
    assert list(results) == list(map(sum, many))
    assert begun == ended == len(many)
    assert not engine.waiting


def test_what_ends_early_makes_place() -> None:
    """The first waits all the time; the others do not wait for it."""
    engine = Later([-1] * 4)  # the sequence that was submitted last
    results = run_concurrently(
        engine.submit, map(added, [[1], [2], [3], [4], [5]]), 2, engine.check
    )
    assert next(results) == 1
    assert [sequence.number for sequence in engine.submitted] == [1, 2, 3, 4, 5]
    assert list(results) == [2, 3, 4, 5]


def test_an_error_is_thrown_into_the_steps() -> None:
    def careful() -> SequenceGenerator[str]:
        try:
            yield Echo(-1)
        except ArithmeticError as error:
            yield Echo(1)
            return f"survived {error}"
        return ""

    engine = Later()
    assert run(engine.submit, careful(), engine.check) == "survived -1"


def test_an_error_is_raised_in_its_turn_and_closes_the_others() -> None:
    log: list[str] = []
    engine = Later([1])  # the second is the first to end
    many = [added([1], log), added([-2], log), added([3, 3], log), added([4], log)]
    results = run_concurrently(engine.submit, many, 3, engine.check)
    assert next(results) == 1
    with pytest.raises(ArithmeticError, match="-2"):
        next(results)
    assert len(log) == 3  # the fourth was never begun
    assert all(sequence.done() for sequence in engine.submitted)


def test_what_check_raises_cancels_what_is_open() -> None:
    log: list[str] = []
    engine = Later()

    def check() -> None:
        if engine.checks == 1:
            raise KeyboardInterrupt
        engine.check()

    results = run_concurrently(engine.submit, [added([1, 2], log), added([3], log)], 2, check)
    with pytest.raises(KeyboardInterrupt):
        list(results)
    assert log == ["closed"] * 2
    assert [sequence.cancel_requested for sequence in engine.submitted] == [False, True, True]


def test_a_caller_that_stops_iterating_cancels_what_is_open() -> None:
    log: list[str] = []
    engine = Later()
    begun: list[int] = []

    def many() -> Iterator[SequenceGenerator[int]]:
        for number in range(9):
            begun.append(number)
            yield added([number], log)

    results = run_concurrently(engine.submit, many(), 3, engine.check)
    assert next(results) == 0
    results.close()  # type: ignore[attr-defined]
    assert begun == [0, 1, 2, 3] and log == ["closed"] * 4
    assert [sequence.cancel_requested for sequence in engine.submitted] == [False, True, True, True]


def test_a_refused_sequence_closes_all() -> None:
    """Of whatever kind the refusal is: it is not taken for the end of the steps."""
    log: list[str] = []
    engine = Later()

    def submit(sequence: Any) -> None:
        if sequence.number == 2:
            raise StopIteration
        engine.submit(sequence)

    with pytest.raises(RuntimeError):
        list(run_concurrently(submit, [added([1], log), added([2], log)], 2, engine.check))
    assert log == ["closed"] * 2 and engine.submitted[0].cancel_requested


def test_sequences_that_end_at_once() -> None:
    def submit(sequence: Any) -> None:
        sequence.finish(sequence.number)

    assert list(run_concurrently(submit, map(added, [[1, 2], [3], [4, 5, 6]]), 2)) == [3, 3, 15]


def test_a_sequence_can_be_waited_for() -> None:
    engine, sequence = Later(), Echo(5)
    engine.submit(sequence)
    assert sequence.wait(engine.check) == 5

    def check() -> None:
        raise KeyboardInterrupt

    open_one = Echo(6)
    with pytest.raises(KeyboardInterrupt):
        open_one.wait(check)
    assert open_one.cancel_requested
    failed = Echo(7)
    failed.fail(ArithmeticError("no"))
    with pytest.raises(ArithmeticError):
        failed.wait()
